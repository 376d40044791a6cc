"""What an exporter keeps to: somebody else's place for the figures of a run, step by step and at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from accelprof.contracts.options import Options
from accelprof.contracts.timings import Timings, seconds_by_tag


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The run as it begins.

    Attributes:
        name: name of the run's directory.
        directory: absolute path of the run's directory, on the node that exports.
        config: the resolved configuration as plain data.
        versions: package -> version, as far as known at the start.
    """

    name: str
    directory: str
    config: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PhaseFigures:
    """One phase in one step over the ranks that have it; seconds.

    ``ranks`` is their number, ``slowest`` the label of the rank with the largest value (``ActorGroup/rank3``).
    """

    max: float
    mean: float
    min: float
    ranks: int
    slowest: str


def over_ranks(rows: Mapping[str, Timings]) -> dict[str, PhaseFigures]:
    """A step's phases over the union of those that any rank has; ``rows``: rank label -> phase -> ``{"seconds", "count"}``."""
    return {
        phase: PhaseFigures(
            max=max(found.values()),
            mean=sum(found.values()) / len(found),
            min=min(found.values()),
            ranks=len(found),
            slowest=max(found, key=lambda label: found[label]),
        )
        for phase, found in sorted(seconds_by_tag(rows).items())
    }


@dataclass(frozen=True, slots=True)
class StepFigures:
    """One step.

    Attributes:
        step: its number.
        ended_ns: when it ended, Unix-epoch nanoseconds; ``None`` of one that did not come to its end.
        wall_ns: its length, nanoseconds: as the announcing process saw it, the longest where each rank counts its own; ``None``
            where that is not known.
        window: whether a planned window holds the step, so that profiling's own cost is in its times.
        phases: phase -> figures over ranks.
    """

    step: int
    ended_ns: int | None
    wall_ns: int | None
    window: bool
    phases: Mapping[str, PhaseFigures]

    @property
    def ranks(self) -> int:
        """Number of ranks that the phase with the most is from."""
        return max((row.ranks for row in self.phases.values()), default=0)


class ExporterOptions(Options):
    """Base of every exporter's options; see :class:`accelprof.contracts.options.Options`."""


class Exporter:
    """Writes a run's figures to a place of its own. Configured under ``export: {<name>: {...}}``.

    Each exporter runs on one thread of its own, off the step's path, in the process that announces steps (the controller;
    without one, rank 0). What it raises is said once, with its name, and it is asked no more; nobody else notices.

    Declare ``name``, and ``Options`` where there are any. The constructor takes the validated options and touches
    nothing; heavy imports belong in :meth:`start`.
    """

    name: ClassVar[str] = ""
    Options: ClassVar[type[ExporterOptions]] = ExporterOptions

    def __init__(self, options: ExporterOptions) -> None:
        self.options: Any = options

    def start(self, run: RunFacts) -> None:
        """The run begins; called once, before anything else.

        Raises:
            Exception: this exporter cannot work here; it is said and left out.
        """

    def step(self, figures: StepFigures) -> None:
        """A step ended. Steps come in order, each once."""

    def finish(self, manifest: Mapping[str, object], directory: str) -> None:
        """The run's manifest, timeline and report are written; ``directory`` is where. Called once, at the end."""

    def close(self) -> None:
        """Let go of files and connections; called once, also after a failure."""
