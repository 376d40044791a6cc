"""Moved to :mod:`accelprof.contracts.backend`."""

from accelprof._moved import moved

moved(__name__, "accelprof.contracts.backend")
