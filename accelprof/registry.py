"""Moved to :mod:`accelprof.catalogue`."""

from accelprof import catalogue as new
from accelprof._moved import moved

moved(__name__, new)
