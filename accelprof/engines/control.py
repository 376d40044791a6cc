"""Moved to :mod:`accelprof.engines.profiler`."""

from accelprof._moved import moved
from accelprof.engines import profiler as new

moved(__name__, new)
