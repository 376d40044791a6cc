"""The schema of accelprof's own dialect, validated with pydantic; :mod:`accelprof.config.load` turns its errors into ours."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    field_validator,
    model_validator,
)

from accelprof.contracts.options import Options
from accelprof.errors import NotAllowedError, shown
from accelprof.numberset import LARGEST, NUMBERS_ALLOWED, NumberSet


def _numbers_or(words: tuple[str, ...]) -> Callable[[object], Any]:
    def parse(value: object) -> Any:
        if isinstance(value, NumberSet) or value is None:
            return value
        if isinstance(value, str) and value.strip().lower() in words:
            return value.strip().lower()
        try:
            return NumberSet.parse(value)
        except ValueError as error:
            choices = ", ".join(repr(word) for word in words)
            raise NotAllowedError(str(error), f"{choices}, {NUMBERS_ALLOWED}") from None

    return parse


def _dump(value: object) -> object:
    return value.to_config() if isinstance(value, NumberSet) else value


Numbers = Annotated[Any, BeforeValidator(_numbers_or(("all",))), PlainSerializer(_dump)]
Steps = Annotated[Any, BeforeValidator(_numbers_or(("all", "process"))), PlainSerializer(_dump)]


def _nodes(value: object) -> object:
    if value is None or value == "all" or isinstance(value, tuple):
        return value
    items = [value] if isinstance(value, (str, int)) and not isinstance(value, bool) else value
    if not isinstance(items, (list, tuple, set, range)):
        raise NotAllowedError(
            f"{value!r} is a {type(value).__name__}", "'all', node names (patterns with * work) or node numbers"
        )
    for item in items:
        if isinstance(item, bool) or not isinstance(item, (str, int)) or (isinstance(item, int) and item < 0):
            raise NotAllowedError(f"{item!r} names no node", "node names (patterns with * work) or numbers >= 0")
    return tuple(str(item) for item in items)


Nodes = Annotated[Any, BeforeValidator(_nodes), PlainSerializer(lambda v: list(v) if isinstance(v, tuple) else v)]


def _words(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise ValueError(f"{shown(value)} is not a name or a list of names")


Words = Annotated[tuple[str, ...], BeforeValidator(_words), PlainSerializer(list)]

_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?\s*$", re.IGNORECASE)
_UNIT = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_size(value: object) -> int | None:
    """Bytes from ``2GiB``, ``500 MB``, ``1024``; ``None`` stays ``None`` (no limit)."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST):
        return value
    match = _SIZE.match(value) if isinstance(value, str) else None
    if not match:
        raise NotAllowedError(f"{shown(value)} is not a size", "bytes, or a text such as 2GiB, 500MB")
    number = float(match[1]) * _UNIT[(match[2] or "").lower()]
    if number > LARGEST:
        raise ValueError("a size above 10^18 bytes; leave it out for no limit")
    return int(number)


Size = Annotated[int | None, BeforeValidator(parse_size)]


class _Model(Options):
    model_config = ConfigDict(allow_inf_nan=False)


class Schedule(_Model):
    """Samples calls of one phase: skip ``skip_first``, then ``repeat`` times: wait, warm up, record ``active`` calls.

    Counted from 0, so ``wait: 29, warmup: 1, active: 30`` records calls 30-59. ``per`` says when counting restarts:
    ``process`` never, ``step`` at every announced step, or the name of an enclosing phase. ``start``/``stop`` (end
    exclusive) may be given in place of wait/active; ``token_start``/``token_end`` (end exclusive) count generated
    response tokens. ``repeat: 0`` = until the end.

    ``keep_others``: what else the step runs is recorded too. Where the very first call is recorded, the window begins with
    the step and ends with the stretch; with ``discrete`` and ``per`` the name of an enclosing phase, every phase outside
    of that one has a window of its own.
    """

    phase: str = Field(min_length=1)
    wait: int = Field(0, ge=0, le=LARGEST)
    warmup: int = Field(0, ge=0, le=LARGEST)
    active: int = Field(1, ge=1, le=LARGEST)
    repeat: int = Field(1, ge=0, le=LARGEST)
    skip_first: int = Field(0, ge=0, le=LARGEST)
    per: str = "process"
    keep_others: bool = False
    start: int | None = Field(None, ge=0, le=LARGEST)
    stop: int | None = Field(None, ge=1, le=LARGEST)
    token_start: int | None = Field(None, ge=0, le=LARGEST)
    token_end: int | None = Field(None, ge=1, le=LARGEST)

    @model_validator(mode="after")
    def _one_way_to_count(self) -> Schedule:
        if (self.start is None) != (self.stop is None):
            raise ValueError("start and stop go together; give both or neither")
        if self.start is not None and self.stop is not None:
            if self.stop <= self.start:
                raise ValueError(f"stop ({self.stop}) is not after start ({self.start}); the end is exclusive")
            if self.model_fields_set & {"wait", "active", "skip_first"}:
                raise ValueError("start/stop and wait/active/skip_first are two ways to say the same; keep one")
        if (self.token_start is None) != (self.token_end is None):
            raise ValueError("token_start and token_end go together; give both or neither")
        if self.token_start is not None and self.token_end is not None and self.token_end <= self.token_start:
            raise ValueError(
                f"token_end ({self.token_end}) is not after token_start ({self.token_start}); the end is exclusive"
            )
        if self.token_start is not None and (
            self.start is not None or self.model_fields_set & {"wait", "active", "skip_first"}
        ):
            raise ValueError("token_start/token_end and start/stop or wait/active/skip_first say the same; keep one")
        return self


def _many(value: object) -> object:
    """A single mapping stands for a list of one."""
    if value is None:
        return ()
    return (value,) if isinstance(value, (dict, Options)) else value


Schedules = Annotated[tuple[Schedule, ...], BeforeValidator(_many)]


class Rule(_Model):
    """What one group (or part of it) does; what is absent comes from the top level.

    A rule that names any of ``ranks``, ``replicas``, ``nodes`` replaces the top level's selectors altogether.
    """

    enabled: bool = True
    roles: Words | None = None
    ranks: Numbers = None
    replicas: Numbers = None
    nodes: Nodes = None
    steps: Steps = None
    merge_steps: bool | None = None
    discrete: bool | None = None
    phases: Words = ()
    tool: str | None = None
    timeline: bool | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    schedule: Schedules = ()


class Instrument(_Model):
    """Times a method of a package without editing it: ``target`` is ``package.module:Class.method``.

    ``when`` selects by simple facts, all of which must hold: ``role``, ``rank``, ``group``, or an attribute path of the
    instance: ``{"actor_optimizer": null}``; it is never evaluated as code.
    """

    target: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")
    phase: str | None = None
    schedule: Schedule | None = None
    when: dict[str, Any] = Field(default_factory=dict)
    required: bool = True

    @field_validator("when")
    @classmethod
    def _ranks_are_numbers(cls, value: dict[str, Any]) -> dict[str, Any]:
        if "rank" in value:
            _numbers_or(("all",))(value["rank"])
        return value

    @field_validator("schedule", mode="before")
    @classmethod
    def _phase_of_schedule(cls, value: object, info: Any) -> Any:
        if isinstance(value, dict) and "phase" not in value:
            fallback = info.data.get("phase") or str(info.data.get("target", "")).rpartition(":")[2]
            return {**value, "phase": fallback}
        return value


class Budget(_Model):
    """Limits in bytes; a window that would pass one closes early with a note. ``None`` = no limit."""

    per_window: Size = None
    per_run: Size = None
    free_space: Size = 1 << 30

    @property
    def is_limited(self) -> bool:
        """Whether any limit is set."""
        return any(limit is not None for limit in (self.per_window, self.per_run, self.free_space))


class OnDemand(_Model):
    """Windows that are opened on a live job (``accelprof window``).

    ``signal``: SIGUSR2 opens one, and closes it again; ``seconds``: how long such a window stays open at most.
    """

    signal: bool = False
    seconds: float = Field(default=30.0, gt=0)


class Recorder(_Model):
    """The flight recorder: the last steps at all times, written out when something is wrong.

    ``steps``: how many a dump holds; ``slow``: times the running median; ``hang``: seconds without a step;
    ``hang_start``: seconds before the first step in which nothing is recorded; ``dumps``: at most, a reason.
    """

    steps: int = Field(20, ge=1)
    slow: float | None = Field(2.0, gt=1)
    hang: float | None = Field(30.0, gt=0)
    hang_start: float | None = Field(1800.0, gt=0)
    dumps: int = Field(5, ge=1)


def _on_demand(value: object) -> object:
    return {} if value is True else None if value is False else value


class ControllerRule(_Model):
    """Profiling of the driver process itself."""

    tool: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)


class Config(_Model):
    """accelprof's own dialect. Absent and empty mean the same everywhere: see the field comments in docs/configuration.md."""

    #: path of ours -> path in the foreign file it was translated from, for messages; empty in a file of ours
    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    enabled: bool = True
    accelerator: str = "auto"
    tool: str | None = None
    timeline: bool = True
    steps: Steps = None
    merge_steps: bool = False
    discrete: bool = False
    drain: bool = True
    phases: Words = ()
    ranks: Numbers = None
    replicas: Numbers = None
    nodes: Nodes = None
    output_dir: str = Field("outputs/profile", min_length=1)
    run: str = "auto"
    collect: Literal["none", "copy", "move"] = "none"
    on_error: Literal["warn", "raise"] = "warn"
    report_timeout: float = Field(120.0, ge=0)
    control_timeout: float = Field(120.0, gt=0)
    groups: dict[str, tuple[Rule, ...]] | None = None
    tools: dict[str, dict[str, Any]] = Field(default_factory=dict)
    schedule: Schedules = ()
    instrument: tuple[Instrument, ...] = ()
    presets: Words = ()
    engines: dict[str, dict[str, Any]] = Field(default_factory=dict)
    budget: Budget = Budget()
    on_demand: Annotated[OnDemand | None, BeforeValidator(_on_demand)] = None
    controller: ControllerRule | None = None
    recorder: Annotated[Recorder | None, BeforeValidator(_on_demand)] = None
    export: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @property
    def records_always(self) -> bool:
        """Whether a flight recorder runs, in every process, whomever the rules take."""
        return self.enabled and self.recorder is not None

    @property
    def exports(self) -> bool:
        """Whether the figures of steps go somewhere as they end."""
        return self.enabled and bool(self.export)

    def __eq__(self, other: object) -> bool:
        """Whether both say the same, wherever it was written."""
        return isinstance(other, Config) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    @field_validator("groups", mode="before")
    @classmethod
    def _rules(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        rules: dict[str, object] = {}
        for group, rule in value.items():
            if rule is None:
                rule = {}
            rules[group] = tuple(rule) if isinstance(rule, (list, tuple)) else (rule,)
        return rules

    @field_validator("tools", "export", mode="before")
    @classmethod
    def _tool_options(cls, value: object) -> object:
        if isinstance(value, dict):
            return {name: ({} if options is None else options) for name, options in value.items()}
        return value

    @field_validator("run")
    @classmethod
    def _run_is_a_name(cls, value: str) -> str:
        if not value or "/" in value or "\\" in value or value in (".", ".."):
            raise NotAllowedError(f"{value!r} is not a directory name", "auto, or a name without slashes")
        return value

    @field_validator("accelerator")
    @classmethod
    def _accelerator_is_a_name(cls, value: str) -> str:
        if not value:
            raise NotAllowedError("'' is not an accelerator type", "auto, or a registered type")
        return value
