"""Moved to :mod:`accelprof.contracts.targets`."""

from accelprof._moved import moved

moved(__name__, "accelprof.contracts.targets")
