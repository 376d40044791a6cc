"""The words of the contracts, each set once: a type that mypy checks, and the same as a table for what is known only at run time."""

from __future__ import annotations

from typing import Final, Literal, TypeVar, get_args

Word = TypeVar("Word", bound=str)

#: of :attr:`Tool.count`: must be told how many captures, takes any number, has one from start to exit
Count = Literal["exact", "open", "whole_process"]
#: of :attr:`Tool.thread`: any; start and stop on one thread, the one that works; start on the working thread
Thread = Literal["any", "starter", "work"]
#: of :attr:`Tool.schedule`: who counts the calls of a schedule
Counting = Literal["ours", "native"]
#: of :meth:`Tool.trigger`
TriggerCall = Literal["none", "api", "range", "pause", "in_process"]
#: of :attr:`Launch.mode`, the weakest first: of two launches of a process the stronger one decides
LaunchMode = Literal["none", "env", "prefix", "replace"]
#: of :attr:`Assignment.mode`
Mode = Literal["steps", "all", "process", "off"]
#: of :attr:`Expectation.when`
Written = Literal["window_close", "last_window", "process_exit"]
#: of :attr:`WindowInfo.kind`
WindowKind = Literal["step", "phase", "schedule", "process", "on_demand", "recorder"]
#: of :attr:`ArtifactFile.state`
ArtifactState = Literal["complete", "missing", "truncated", "partial"]
#: why the flight recorder is written out
DumpReason = Literal["slow", "hang", "exception", "sigterm", "request"]

COUNTS: Final[tuple[Count, ...]] = get_args(Count)
THREADS: Final[tuple[Thread, ...]] = get_args(Thread)
COUNTINGS: Final[tuple[Counting, ...]] = get_args(Counting)
TRIGGER_CALLS: Final[tuple[TriggerCall, ...]] = get_args(TriggerCall)
LAUNCH_MODES: Final[tuple[LaunchMode, ...]] = get_args(LaunchMode)
WINDOW_KINDS: Final[tuple[WindowKind, ...]] = get_args(WindowKind)
ARTIFACT_STATES: Final[tuple[ArtifactState, ...]] = get_args(ArtifactState)
DUMP_REASONS: Final[tuple[DumpReason, ...]] = get_args(DumpReason)

COMPLETE, MISSING, TRUNCATED, PARTIAL = ARTIFACT_STATES


def known(word: str | None, among: tuple[Word, ...], otherwise: Word) -> Word:
    """A word that was read from a file or given by another program, as one of ``among``."""
    return next((one for one in among if one == word), otherwise)
