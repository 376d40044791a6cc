"""Options of tool ``npu``, and how they become arguments of ``torch_npu.profiler``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from accelprof.contracts.options import unique
from accelprof.contracts.tool import ToolOptions
from accelprof.errors import Problem

Content = Literal["npu", "cpu", "memory", "shapes", "module", "stack"]
AicMetrics = Literal[
    "AiCoreNone", "PipeUtilization", "ArithmeticUtilization", "Memory", "MemoryL0", "MemoryUB",
    "ResourceConflictRatio", "L2Cache", "MemoryAccess",
]  # fmt: skip
LEVELS: Mapping[str, str] = {"level_none": "Level_none", "level0": "Level0", "level1": "Level1", "level2": "Level2"}
#: levels that collect AI-core metrics; with any other torch_npu resets them, with a warning
WITH_METRICS = frozenset({"level1", "level2"})
DEFAULT_CONTENTS: tuple[Content, ...] = ("npu", "cpu")
#: contents that are switches of ``profile()`` rather than activities
SWITCHES: Mapping[str, str] = {
    "memory": "profile_memory",
    "shapes": "record_shapes",
    "module": "with_modules",
    "stack": "with_stack",
}


def _analysis(value: object) -> object:
    """verl writes a truth value: true = online, false = offline."""
    return {True: "online", False: "offline"}.get(value, value) if isinstance(value, bool) else value


def _export(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return "both" if set(value) == {"db", "text"} else value[0] if len(value) == 1 else value
    return value


class NpuOptions(ToolOptions):
    """``contents``: what is recorded; absent or empty = ``npu`` and ``cpu``, nothing that makes files large.

    ``analysis``: ``offline`` leaves raw data for ``accelprof analyse``; ``online`` parses in a child process when a window
    closes and waits for it; ``async`` does not wait before the session ends. ``aic_metrics``: absent = ``PipeUtilization``
    for level1 and level2, none below. ``mstx``: accelprof's ranges go into the data. ``numbering``: what ``ProfilerStep#N``
    counts in a scheduled window: its calls (decode step 30 is ``#30``), or from the training's ``step`` on.
    """

    level: Literal["level_none", "level0", "level1", "level2"] = "level0"
    contents: Annotated[tuple[Content, ...], BeforeValidator(unique)] = Field(())
    analysis: Annotated[Literal["online", "offline", "async"], BeforeValidator(_analysis)] = "offline"
    export: Annotated[Literal["db", "text", "both"], BeforeValidator(_export)] = "text"
    aic_metrics: AicMetrics | None = None
    l2_cache: bool = False
    record_op_args: bool = False
    host_sys: Annotated[
        tuple[Literal["cpu", "mem", "disk", "network", "osrt", "numa"], ...], BeforeValidator(unique)
    ] = Field(())
    sys_io: bool = False
    sys_interconnection: bool = False
    mstx: bool = True
    mstx_domain_include: Annotated[tuple[str, ...], BeforeValidator(unique)] = Field(())
    mstx_domain_exclude: Annotated[tuple[str, ...], BeforeValidator(unique)] = Field(("communication",))
    numbering: Literal["call", "step"] = "call"
    data_simplification: bool = True
    analysis_timeout: float = Field(3600.0, gt=0, description="seconds before an analysis of one window is given up")

    @model_validator(mode="after")
    def _consistent(self) -> NpuOptions:
        if self.aic_metrics not in (None, "AiCoreNone") and self.level not in WITH_METRICS:
            raise ValueError(
                f"aic_metrics {self.aic_metrics} needs level level1 or level2; {self.level} collects no AI-core metrics"
            )
        if self.level == "level_none" and not self.mstx:
            raise ValueError("level level_none records nothing but mstx ranges; mstx: false leaves nothing to record")
        if self.mstx_domain_include and self.mstx_domain_exclude != ("communication",) and self.mstx_domain_exclude:
            raise ValueError(
                "mstx_domain_include and mstx_domain_exclude say the same; torch_npu heeds include only, keep one"
            )
        return self

    @property
    def wanted(self) -> tuple[Content, ...]:
        """``contents`` with its default."""
        if not self.contents:
            return DEFAULT_CONTENTS
        if not {"npu", "cpu"} & set(self.contents):
            return (*DEFAULT_CONTENTS, *self.contents)
        return self.contents

    @property
    def exports(self) -> tuple[str, ...]:
        return ("db", "text") if self.export == "both" else (self.export,)


class Ability(NamedTuple):
    """An option that only some wheels have.

    ``argument``: of ``_ExperimentalConfig``. ``asked``: whether these options need it. ``degrade``: what happens without
    it; empty = refused.
    """

    option: str
    argument: str
    asked: Callable[[NpuOptions], bool]
    degrade: str = ""


ABILITIES: tuple[Ability, ...] = (
    Ability("mstx", "mstx", lambda o: o.mstx, "ranges are switched on through msprof_tx"),
    Ability("mstx_domain_include", "mstx_domain_include", lambda o: bool(o.mstx_domain_include)),
    Ability("mstx_domain_exclude", "mstx_domain_exclude", lambda o: o.mstx and bool(o.mstx_domain_exclude),
            "ranges of every domain are recorded"),
    Ability("host_sys", "host_sys", lambda o: bool(o.host_sys)),
    Ability("sys_io", "sys_io", lambda o: o.sys_io),
    Ability("sys_interconnection", "sys_interconnection", lambda o: o.sys_interconnection),
    Ability("l2_cache", "l2_cache", lambda o: o.l2_cache),
    Ability("record_op_args", "record_op_args", lambda o: o.record_op_args),
    Ability("aic_metrics", "aic_metrics", lambda o: o.aic_metrics not in (None, "AiCoreNone")),
)  # fmt: skip


def lacking(options: NpuOptions, parameters: frozenset[str], version: str) -> tuple[list[Problem], list[str]]:
    """What is asked for and this wheel cannot: ``(refused, degraded)``; ``parameters`` are those of ``_ExperimentalConfig``."""
    refused, degraded = [], []
    for ability in ABILITIES:
        if ability.argument in parameters or not ability.asked(options):
            continue
        if ability.degrade:
            degraded.append(f"tools.npu.{ability.option}: torch_npu {version} does not have it; {ability.degrade}")
        else:
            said, mend = (
                f"torch_npu {version} does not have it",
                "leave it out, or install a torch_npu whose _ExperimentalConfig takes it",
            )
            value = getattr(options, ability.option)
            refused.append(Problem(f"tools.npu.{ability.option}", said, value=value, mend=mend))
    return refused, degraded


def experimental_arguments(options: NpuOptions, profiler: Any, parameters: frozenset[str]) -> dict[str, Any]:
    """Keyword arguments of ``_ExperimentalConfig``, only those that this wheel takes; ``profiler`` is ``torch_npu.profiler``."""
    metrics = options.aic_metrics or ("PipeUtilization" if options.level in WITH_METRICS else "AiCoreNone")
    domains = {"mstx_domain_include": options.mstx_domain_include, "mstx_domain_exclude": options.mstx_domain_exclude}
    if options.mstx_domain_include:
        del domains["mstx_domain_exclude"]
    arguments: dict[str, object] = {
        "profiler_level": getattr(profiler.ProfilerLevel, LEVELS[options.level]),
        "aic_metrics": getattr(profiler.AiCMetrics, metrics, None),
        "l2_cache": options.l2_cache,
        "record_op_args": options.record_op_args,
        "data_simplification": options.data_simplification,
        "export_type": _export_type(options, profiler),
        "host_sys": [getattr(profiler.HostSystem, word.upper()) for word in options.host_sys] or None,
        "sys_io": options.sys_io,
        "sys_interconnection": options.sys_interconnection,
        "mstx": options.mstx,
        **{name: list(words) for name, words in domains.items() if options.mstx},
    }
    if "mstx" not in parameters:
        arguments["msprof_tx"] = options.mstx
    return {name: value for name, value in arguments.items() if name in parameters and value is not None}


def _export_type(options: NpuOptions, profiler: Any) -> object:
    """Wheels up to 2.1.0.post8 take one word, later ones a list; those had no domain filters or async handler either."""
    words = [getattr(profiler.ExportType, word.capitalize()) for word in options.exports]
    lists = "async_mode" in _handler_parameters(profiler)
    return words if lists else words[0]


def _handler_parameters(profiler: Any) -> frozenset[str]:
    import inspect

    handler = profiler.tensorboard_trace_handler
    return frozenset(inspect.signature(getattr(handler, "__wrapped__", handler)).parameters)


def profile_arguments(options: NpuOptions, profiler: Any) -> dict[str, object]:
    """Keyword arguments of ``profile`` apart from schedule, handler and the experimental configuration."""
    wanted = set(options.wanted)
    activities = [getattr(profiler.ProfilerActivity, word.upper()) for word in ("cpu", "npu") if word in wanted]
    return {"activities": activities, **{name: content in wanted for content, name in SWITCHES.items()}}
