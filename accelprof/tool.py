"""Moved to :mod:`accelprof.contracts.tool`."""

from accelprof._moved import moved

moved(__name__, "accelprof.contracts.tool")
