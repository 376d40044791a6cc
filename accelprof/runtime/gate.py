"""Moved to :mod:`accelprof.timing.gate`."""

from accelprof._moved import moved

moved(__name__, "accelprof.timing.gate")
