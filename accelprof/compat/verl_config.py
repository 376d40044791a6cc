"""verl's profiler configuration classes: same fields and defaults, checked without ``assert``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from accelprof.config.dialects.verl_keys import NPU_CONTENTS, NPU_LEVELS, TORCH_CONTENTS
from accelprof.errors import ConfigError, Problem, nearest

T = TypeVar("T", bound="ProfilerConfig")


def as_any(value: object) -> object:
    """A field whose annotation nobody has checked yet."""
    return value


class CompatConfigError(ConfigError, AssertionError):
    """What verl raises as a bare ``AssertionError``, with path, value and what is allowed."""


class _Config(Mapping[str, Any]):
    """A dataclass that is a mapping of its fields, as verl's are."""

    def __getitem__(self, key: str) -> Any:
        try:
            return getattr(self, key)
        except AttributeError:
            raise KeyError(key) from None

    def __iter__(self) -> Iterator[str]:
        return (item.name for item in dataclasses.fields(self))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(dataclasses.fields(self))  # type: ignore[arg-type]

    def _refuse(self, name: str, message: str, value: object, allowed: str = "", mend: str = "") -> None:
        raise CompatConfigError(
            Problem(f"{type(self).__name__}.{name}", message, value=value, allowed=allowed, mend=mend)
        )

    def _whole(self, *names: str, minimum: int = 0) -> None:
        for name in names:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
                self._refuse(name, "not a whole number in range", value, f"whole numbers >= {minimum}")

    def _choices(self, name: str, allowed: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if not isinstance(value, list):
            self._refuse(name, f"a {type(value).__name__} where a list is expected", value)
        for word in value:
            if word not in allowed:
                self._refuse(
                    name, f"{word!r} cannot be recorded", value, ", ".join(allowed), nearest(str(word), allowed)
                )

    def _tokens(self) -> None:
        start, end = self["profile_token_start"], self["profile_token_end"]
        for name, value in (("profile_token_start", start), ("profile_token_end", end)):
            if value is not None:
                self._whole(name)
        if start is not None and end is not None and end <= start:
            self._refuse("profile_token_end", f"not after profile_token_start ({start}); the end is exclusive", end)


@dataclass(eq=True)
class NsightToolConfig(_Config):
    """``discrete``: one report per phase."""

    discrete: bool = False
    name: str = "nsight"


@dataclass(eq=True)
class TorchProfilerScheduleConfig(_Config):
    """Counts update mini-batches; ``active`` 0 is off."""

    skip_first: int = 0
    wait: int = 0
    warmup: int = 0
    active: int = 0
    repeat: int = 0
    name: str = "torch_schedule"

    def __post_init__(self) -> None:
        self._whole("skip_first", "wait", "warmup", "active", "repeat")

    @property
    def enabled(self) -> bool:
        """Whether there is a schedule at all."""
        return self.active > 0


@dataclass(eq=True)
class TorchProfilerToolConfig(_Config):
    """``contents``: empty = host and device activity."""

    contents: list[str] = field(default_factory=list)
    discrete: bool = False
    profile_token_start: int | None = None
    profile_token_end: int | None = None
    schedule: TorchProfilerScheduleConfig | None = None
    name: str = "torch"

    def __post_init__(self) -> None:
        self._choices("contents", TORCH_CONTENTS)
        self._tokens()


@dataclass(eq=True)
class TorchMemoryToolConfig(_Config):
    """Memory snapshots."""

    trace_alloc_max_entries: int = 100_000
    stack_depth: int = 32
    memory_snapshot_num_steps: int = 1
    name: str = "torch_memory"

    def __post_init__(self) -> None:
        self._whole("trace_alloc_max_entries", "stack_depth", "memory_snapshot_num_steps", minimum=1)


@dataclass(eq=True)
class PrecisionDebuggerToolConfig(_Config):
    """msprobe's debugger, which is left to verl."""

    name: str = "precision_debugger"
    config_path: str | None = None
    steps: list[int] | None = None
    stages: list[str] | None = None
    strict: bool = False


@dataclass(eq=True)
class NPUToolConfig(NsightToolConfig):
    """Ascend; ``contents`` as verl's."""

    contents: list[str] = field(default_factory=list)
    level: str = "level0"
    analysis: bool = False
    profile_token_start: int | None = None
    profile_token_end: int | None = None
    name: str = "npu"

    def __post_init__(self) -> None:
        self._choices("contents", NPU_CONTENTS)
        if self.level not in NPU_LEVELS:
            self._refuse(
                "level", "not a level", self.level, ", ".join(NPU_LEVELS), nearest(str(self.level), NPU_LEVELS)
            )
        if not isinstance(as_any(self.analysis), bool):
            self._refuse("analysis", "not a truth value", self.analysis)
        self._tokens()


@dataclass(eq=True)
class ProfilerConfig(_Config):
    """What one role's profiler does. ``ranks`` empty with ``enable`` = rank 0, as verl's code does.

    ``tool`` and ``save_path`` are ``None`` when not given.
    """

    _LISTS: ClassVar[tuple[str, ...]] = ("ranks", "finish_hook_ranks")

    tool: str | None = None
    enable: bool = False
    all_ranks: bool = False
    ranks: list[int] = field(default_factory=list)
    save_path: str | None = None
    tool_config: Any = None
    global_tool_config: Any = None
    relocate_results: bool = False
    finish_hook_cmd: str | None = None
    finish_hook_all_ranks: bool = False
    finish_hook_ranks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in self._LISTS:
            value = getattr(self, name)
            if not isinstance(value, (set, list, tuple)):
                self._refuse(
                    name, f"a {type(value).__name__} where a list is expected", value, "a list of ranks", "[0]"
                )
            for rank in value:
                if isinstance(rank, bool) or not isinstance(rank, int) or rank < 0:
                    self._refuse(name, f"{rank!r} is not a rank", value, "whole numbers >= 0")
        command = as_any(self.finish_hook_cmd)
        if command is not None and not isinstance(command, str):
            self._refuse("finish_hook_cmd", "not a text", self.finish_hook_cmd)

    def union(self: T, other: T) -> T:
        """A rank is profiled when either says so; ranks are sorted.

        Raises:
            CompatConfigError: (an ``AssertionError``) the tools differ.
        """
        return self._joined(other, "unite", lambda one, two: one or two, lambda one, two: one | two)

    def intersect(self: T, other: T) -> T:
        """A rank is profiled when both say so; ``all_ranks`` with a list is that list.

        Raises:
            CompatConfigError: (an ``AssertionError``) the tools differ.
        """
        joined = self._joined(other, "intersect", lambda one, two: one and two, lambda one, two: one & two)
        for everybody, ranks in (("all_ranks", "ranks"), ("finish_hook_all_ranks", "finish_hook_ranks")):
            for one, two in ((self, other), (other, self)):
                if one[everybody] and not two[everybody]:
                    setattr(joined, ranks, sorted(two[ranks]))
        return joined

    def _joined(self: T, other: T, doing: str, flags: Any, sets: Any) -> T:
        if self.tool != other.tool:
            self._refuse("tool", f"cannot {doing} profilers of different tools", [self.tool, other.tool])
        changes: dict[str, Any] = {
            name: flags(self[name], other[name])
            for name in ("enable", "all_ranks", "relocate_results", "finish_hook_all_ranks")
        }
        changes.update({name: sorted(sets(set(self[name] or ()), set(other[name] or ()))) for name in self._LISTS})
        changes["finish_hook_cmd"] = self.finish_hook_cmd or other.finish_hook_cmd
        changes["global_tool_config"] = self.global_tool_config or other.global_tool_config
        return dataclasses.replace(self, **changes)


def as_mapping(config: object) -> dict[str, Any]:
    """A configuration object of verl's, of ours, or a mapping, as plain data; ``{}`` for ``None``."""
    if config is None:
        return {}
    if isinstance(config, Mapping):
        return {str(key): _plain(value) for key, value in config.items()}
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {item.name: _plain(getattr(config, item.name, None)) for item in dataclasses.fields(config)}
    return {key: _plain(value) for key, value in vars(config).items() if not key.startswith("_")}


def _plain(value: object) -> Any:
    if isinstance(value, Mapping) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return as_mapping(value)
    return [_plain(item) for item in value] if isinstance(value, (list, tuple, set)) else value
