"""Moved to :mod:`accelprof.contracts.doctor`."""

from accelprof._moved import moved
from accelprof.contracts import doctor as new

moved(__name__, new)
