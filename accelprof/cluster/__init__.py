"""Ray: the driver's side. The only room that imports ray."""

from accelprof.cluster.controller import Controller

__all__ = ["Controller"]
