"""Moved to :mod:`accelprof.contracts.doctor`."""

from accelprof._moved import moved

moved(__name__, "accelprof.contracts.doctor")
