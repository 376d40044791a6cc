"""Backends that come with accelprof: ``cpu`` alone; vendors live in plug-ins."""
