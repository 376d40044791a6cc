"""What a report knows of one file that a vendor's tool left."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from accelprof.analysis.attribution import Attribution
from accelprof.analysis.operators import Operator
from accelprof.analysis.run import WorkerId
from accelprof.analysis.seconds import Second
from accelprof.contracts.spans import Table


@dataclass
class ToolFile:
    """Device figures of one vendor file.

    Attributes:
        note: why there are none.
        facts: of the file itself; ``has_spans``: whether its tool's files hold more than these.
        tables: those that the file itself has.
        operators: those of the host with the most self time.
        idle: its windows as they are for a device that did nothing in them.
        marked: whether it says where those begin and end.
        whole: whether all that it should hold is in it.
    """

    worker: WorkerId
    tool: str
    path: str
    windows: tuple[str, ...] = ()
    attribution: Attribution = field(default_factory=Attribution)
    facts: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    tables: list[Table] = field(default_factory=list)

    @property
    def where(self) -> str:
        """Worker and file for a line about it; once where the file is its own worker."""
        name = os.path.basename(self.path)
        return name if self.worker.label == name else f"{self.worker.label}: {name}"

    operators: list[Operator] = field(default_factory=list)
    idle: list[Second] = field(default_factory=list)
    marked: bool = False
    whole: bool = True
    has_spans: bool = True
