"""Lets Hydra find accelprof's presets: ``defaults: [profile/nsys@accelprof]``."""
