"""Moved to :mod:`accelprof.contracts.tool`."""

from accelprof._moved import moved
from accelprof.contracts import tool as new

moved(__name__, new)
