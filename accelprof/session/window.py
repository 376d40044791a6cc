"""One window while it is open: which tools capture, where ranges go, and what is written down about it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from accelprof.contracts.answers import bound_of
from accelprof.contracts.backend import NO_RANGE, BoundRange, Emitter, RangeSpec
from accelprof.contracts.targets import WindowInfo
from accelprof.contracts.tool import Tool
from accelprof.errors import PluginError
from accelprof.output.records import WindowRow
from accelprof.timing.entry import Bound, PlainCalls
from accelprof.timing.phase import PhaseSpec
from accelprof.timing.range_cost import RangeCost

if TYPE_CHECKING:
    from accelprof.tools.trace import TraceTool


class Window:
    """An open window. Made after the tools have started; ``bounds`` maps a phase to its callables, resolved once."""

    __slots__ = (
        "_refuse",
        "bounds",
        "closing",
        "cost",
        "emitters",
        "info",
        "opened_at",
        "overdue",
        "plain",
        "row",
        "steps",
        "thread",
        "tools",
        "trace",
    )

    def __init__(
        self,
        info: WindowInfo,
        tools: Sequence[Tool],
        trace: TraceTool | None,
        emitters: Sequence[Emitter],
        opened_at: int,
        row: WindowRow,
        refuse: Callable[[Emitter, PluginError], None],
    ) -> None:
        self.info, self.tools, self.trace, self.emitters = info, list(tools), trace, list(emitters)
        self.bounds: dict[PhaseSpec, Bound] = {}
        self._refuse = refuse
        self.opened_at = opened_at
        self.row = row
        #: announced steps in it, the row's own list
        self.steps: list[int] = row.steps
        self.thread = threading.get_ident()
        #: what plain calls need in it
        self.plain: PlainCalls | None = None
        #: what a range costs in it
        self.cost = RangeCost()
        #: somebody closes it at this moment
        self.closing = False
        #: why this window must close as soon as its own thread comes by; empty = it may stay
        self.overdue = ""

    def bind(self, spec: PhaseSpec) -> Bound:
        """``(for push/pop, for start/end)`` of every emitter; those that cannot take overlapping ranges have no second."""
        where = RangeSpec(spec.tag, spec.domain, spec.color, spec.category)
        bounds: list[tuple[Emitter, BoundRange]] = []
        for emitter in list(self.emitters):
            try:
                bounds.append((emitter, bound_of(emitter, where)))
            except PluginError as error:  # it answered something that cannot be called; the others go on
                if emitter in self.emitters:
                    self.emitters.remove(emitter)
                self._refuse(emitter, error)
        pushers = tuple(bound for _, bound in bounds if bound is not NO_RANGE)
        starters = tuple(bound for emitter, bound in bounds if bound is not NO_RANGE and emitter.overlapping_ranges)
        self.bounds[spec] = pushers, starters
        return pushers, starters

    def mark_end(self, spec: PhaseSpec, which: str) -> None:
        """Emitters that cannot take overlapping ranges get marks at both ends of code that can be suspended."""
        for emitter in self.emitters:
            if not emitter.overlapping_ranges:
                emitter.mark(RangeSpec(f"{spec.tag} {which}", spec.domain, spec.color, spec.category))
