"""Moved to :mod:`accelprof.contracts.spans`."""

from accelprof._moved import moved

moved(__name__, "accelprof.contracts.spans")
