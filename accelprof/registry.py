"""Moved to :mod:`accelprof.catalogue`."""

from accelprof._moved import moved

moved(__name__, "accelprof.catalogue")
