"""Moved to :mod:`accelprof.timing.gate`."""

from accelprof._moved import moved
from accelprof.timing import gate as new

moved(__name__, new)
