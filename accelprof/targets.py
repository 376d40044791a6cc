"""Moved to :mod:`accelprof.contracts.targets`."""

from accelprof._moved import moved
from accelprof.contracts import targets as new

moved(__name__, new)
