"""Configurations of other systems, read as they are. Each is translated once into ours; see docs/dialects.md."""

from __future__ import annotations

from accelprof.config.dialect import Dialect
from accelprof.config.dialects.nemo_rl import NemoRLDialect
from accelprof.config.dialects.rlinf import RLinfDialect
from accelprof.config.dialects.verl import VerlDialect

#: in the order in which they are asked
BUILTIN: tuple[Dialect, ...] = (VerlDialect(), RLinfDialect(), NemoRLDialect())

__all__ = ["BUILTIN", "NemoRLDialect", "RLinfDialect", "VerlDialect"]
