"""Moved to :mod:`accelprof.contracts.backend`."""

from accelprof._moved import moved
from accelprof.contracts import backend as new

moved(__name__, new)
