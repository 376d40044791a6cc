"""Moved to :mod:`accelprof.timing` and :mod:`accelprof.session`."""
