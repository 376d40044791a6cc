"""The options of ``nsys profile`` as data, and the model that validates what a user writes under ``tools.nsys``.

Names are those of ``nsys profile --help`` in 2022.4 and 2025.3 and of the user guides between them; others go through
``extra_args``. Values are passed on as text; only those that decide over windows are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, create_model

from accelprof.contracts.options import Words
from accelprof.contracts.tool import ToolOptions
from accelprof.errors import NotAllowedError
from accelprof.launch.command import canonical, merge, render_value

#: one-letter forms, and other spellings that users bring along
ALIASES = {
    "b": "backtrace",
    "c": "capture-range",
    "d": "duration",
    "e": "env-var",
    "f": "force-overwrite",
    "n": "inherit-environment",
    "o": "output",
    "p": "nvtx-capture",
    "s": "sample",
    "t": "trace",
    "w": "show-output",
    "x": "stop-on-exit",
    "y": "delay",
    "cuda-backtrace": "cudabacktrace",
}
#: every option with a value; a version that lacks one says so in the trial run
OPTIONS = (
    "backtrace", "capture-range", "capture-range-end", "command-file", "cpu-cluster-events", "cpu-core-events",
    "cpu-core-metrics", "cpu-socket-events", "cpu-socket-metrics", "cpuctxsw", "cuda-event-trace",
    "cuda-flush-interval", "cuda-graph-trace", "cuda-memory-usage", "cuda-trace-all-apis", "cuda-trace-scope",
    "cuda-um-cpu-page-faults", "cuda-um-gpu-page-faults", "cudabacktrace", "dask", "debug-symbols", "delay",
    "duration", "duration-frames", "enable", "env-var", "etw-provider", "event-sample", "event-sampling-frequency",
    "event-sampling-interval", "export", "flush-on-cudaprofilerstop", "force-overwrite", "ftrace",
    "ftrace-keep-user-config", "gds-metrics", "gpu-metrics-device", "gpu-metrics-devices", "gpu-metrics-frequency",
    "gpu-metrics-set", "gpu-video-device", "gpuctxsw", "hotkey-capture", "ib-net-info-devices", "ib-net-info-files",
    "ib-net-info-output", "ib-switch-congestion-devices", "ib-switch-congestion-nic-device",
    "ib-switch-congestion-percent", "ib-switch-congestion-threshold-high", "ib-switch-metrics-devices",
    "ib-switch-metrics-nic-device", "inherit-environment", "isr", "kill", "log-level", "mpi-impl", "nic-metrics",
    "nvtx-capture", "nvtx-domain-exclude", "nvtx-domain-include", "opengl-gpu-workload", "os-events",
    "osrt-backtrace-depth", "osrt-backtrace-stack-size", "osrt-backtrace-threshold", "osrt-file-access",
    "osrt-threshold", "output", "python-backtrace", "python-functions-trace", "python-sampling",
    "python-sampling-frequency", "pytorch", "qnx-kernel-events", "resolve-symbols", "retain-etw-files", "run-as",
    "sample", "samples-per-backtrace", "sampling-frequency", "sampling-period", "sampling-trigger", "session-new",
    "show-output", "soc-metrics", "soc-metrics-frequency", "soc-metrics-set", "start-frame-index", "start-later",
    "stats", "stop-on-exit", "storage-metrics", "syscall", "trace", "trace-fork-before-exec", "vsync",
    "vulkan-gpu-workload", "wait", "wddm-additional-events", "wddm-backtraces", "xhv-trace", "xhv-trace-events",
)  # fmt: skip
#: options whose "off" is the word none; YAML turns a bare ``no`` or ``off`` into a boolean
NONE_IS_OFF = frozenset(
    {"backtrace", "capture-range", "cpuctxsw", "cudabacktrace", "kill", "sample", "gpu-metrics-devices", "gpu-metrics-device"}
)  # fmt: skip
PRESETS: dict[str, dict[str, str]] = {
    "light": {"trace": "cuda,nvtx", "sample": "none", "cpuctxsw": "none"},
    "full": {
        "trace": "cuda,cudnn,cublas,nvtx,osrt",
        "sample": "process-tree",
        "cpuctxsw": "process-tree",
        "cudabacktrace": "all",
        "cuda-memory-usage": "true",
        "osrt-threshold": "1000",
    },
}
#: sources of ``trace`` that take hold of CUPTI
CUPTI_TRACES = frozenset({"cuda", "cuda-hw", "cuda-sw", "cudnn", "cublas", "cublas-verbose", "cusolver", "cusparse"})


def _text(value: object) -> Any:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return render_value(value)
    if isinstance(value, (list, tuple)) and all(isinstance(item, (str, int, float)) for item in value):
        return render_value(value)
    raise NotAllowedError(
        f"{value!r} is a {type(value).__name__}", "text, a number, true or false, a list of these, or null"
    )


def _text_or_none(value: object) -> object:
    return "none" if value is False else _text(value)


Text = Annotated[str | None, BeforeValidator(_text)]
Switch = Annotated[str | None, BeforeValidator(_text_or_none)]


class _Own(ToolOptions):
    """What is ours among the options.

    Attributes:
        preset: ``light`` (CUDA and NVTX, no CPU sampling) or ``full``; every option named beside it wins.
        flags: options without a value (``python-backtrace``).
        extra_args: passed on as they are, for options that this version does not know.
        nsys: the nsys program on the worker's node.
        preflight: whether nsys is tried once on each node before workers start.
        children: ``leave`` (processes that a worker starts are not profiled) or ``follow``.
    """

    preset: Literal["light", "full"] = "light"
    flags: Words = ()
    extra_args: Words = Field((), alias="extra-args")
    nsys: str = Field("nsys", min_length=1)
    preflight: bool = True
    children: Literal["leave", "follow"] = "leave"

    def arguments(self) -> dict[str, str]:
        """The preset with the user's options over it; what the user set to null is left out."""
        given = {name: getattr(self, name) for name in OPTIONS if name in self.model_fields_set}
        return {name: str(value) for name, value in merge(PRESETS[self.preset], given).items()}

    def traces(self) -> frozenset[str]:
        """Sources named by ``trace``."""
        return frozenset(word.strip() for word in self.arguments().get("trace", "").split(",") if word.strip())


_fields: dict[str, Any] = {name: (Switch if name in NONE_IS_OFF else Text, None) for name in OPTIONS}
NsysOptions: type[_Own] = create_model("NsysOptions", __base__=_Own, __module__=__name__, **_fields)


def normalise(options: Mapping[str, Any]) -> dict[str, object]:
    """The user's spelling made one: ``t`` and ``trace``, ``capture_range`` and ``capture-range``.

    Raises:
        ValueError: one option is given twice with different values, or as option and as flag.
    """
    result = canonical(options, ALIASES)
    flags = result.get("flags")
    names = [flags] if isinstance(flags, str) else flags if isinstance(flags, (list, tuple)) else []
    for flag in names:
        name = ALIASES.get(str(flag).lstrip("-"), str(flag).lstrip("-"))
        if name in result:
            raise ValueError(f"{name!r} stands under flags and as an option ({result[name]!r}); keep one")
    return result
