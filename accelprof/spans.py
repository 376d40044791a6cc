"""Moved to :mod:`accelprof.contracts.spans`."""

from accelprof._moved import moved
from accelprof.contracts import spans as new

moved(__name__, new)
