"""What each release of an engine takes, as data: environment, arguments, calls, and what it does with them.

Read in the released packages: vLLM sdists 0.8.5-0.33.0, vllm-ascend tags v0.7.3-v0.25.1rc1, SGLang wheels 0.4.6-0.5.23,
TensorRT-LLM single files of 2025-2026. The left column of each table is a version range of the engine's distribution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Release:
    """One range of releases of an engine.

    Attributes:
        versions: clauses, ``>=0.13,<0.16``.
        how: ``env`` (variables at build time), ``config`` (an argument at build time), ``call`` (nothing at build time).
        names: our setting -> the variable, key or call argument that carries it.
        call_names: our setting -> argument of the start call.
        unset: variables that must not be in the engine's environment, because they win over the arguments there.
        fixed: settings that this release has at a fixed value; ``None`` = its own default, whatever is asked.
        start, stop: methods on the engine object, dotted.
        notes: what to know, one line each.
    """

    versions: str
    how: str
    names: Mapping[str, str] = field(default_factory=dict)
    call_names: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    fixed: Mapping[str, bool | None] = field(default_factory=dict)
    start: str = "start_profile"
    stop: str = "stop_profile"
    notes: tuple[str, ...] = ()


_DIR = {"directory": "VLLM_TORCH_PROFILER_DIR"}
_CONTENTS = {
    "shapes": "VLLM_TORCH_PROFILER_RECORD_SHAPES",
    "memory": "VLLM_TORCH_PROFILER_WITH_PROFILE_MEMORY",
    "stack": "VLLM_TORCH_PROFILER_WITH_STACK",
    "flops": "VLLM_TORCH_PROFILER_WITH_FLOPS",
}
_CUDA = {"cuda_gate": "VLLM_TORCH_CUDA_PROFILE"}
_LIMITS = {
    "skip": "VLLM_PROFILER_DELAY_ITERS",
    "iterations": "VLLM_PROFILER_MAX_ITERS",
    "gzip": "VLLM_TORCH_PROFILER_USE_GZIP",
    "table": "VLLM_TORCH_PROFILER_DUMP_CUDA_TIME_TOTAL",
    "no_frontend": "VLLM_TORCH_PROFILER_DISABLE_ASYNC_LLM",
}
VLLM_VARIABLES = tuple({**_DIR, **_CONTENTS, **_CUDA, **_LIMITS}.values())

_AT_START = {"skip": "delay_iterations", "iterations": "max_iterations"}
_PROFILER_CONFIG = {
    "profiler": "profiler",
    "directory": "torch_profiler_dir",
    "shapes": "torch_profiler_record_shapes",
    "memory": "torch_profiler_with_memory",
    "stack": "torch_profiler_with_stack",
    "flops": "torch_profiler_with_flops",
    "gzip": "torch_profiler_use_gzip",
    "table": "torch_profiler_dump_cuda_time_total",
    "no_frontend": "ignore_frontend",
    **_AT_START,
}
_ASCEND_CONFIG = {key: _PROFILER_CONFIG[key] for key in ("profiler", "directory", "memory", "stack")}
_STOP_TWICE = "an automatic stop leaves the profiler marked as on: stop_profile is called all the same, or the next window is empty"

#: arguments of SGLang's start_profile, each release's beside those of the ones before
_SGLANG_ALONE = {"directory": "output_dir", "activities": "activities"}
_SGLANG_CONTENTS = {**_SGLANG_ALONE, "stack": "with_stack", "shapes": "record_shapes"}
_SGLANG_STEPS = {**_SGLANG_CONTENTS, "iterations": "num_steps"}
_TOKENIZER = ("tokenizer_manager.start_profile", "tokenizer_manager.stop_profile")
_NO_MEMORY: dict[str, bool | None] = {"memory": None, "flops": None}
_NO_SHAPES: dict[str, bool | None] = {"shapes": None, "flops": None}

#: section of the configuration -> its distribution
DISTRIBUTIONS = {"vllm": "vllm", "vllm-ascend": "vllm-ascend", "sglang": "sglang", "tensorrt-llm": "tensorrt_llm"}

RELEASES: dict[str, tuple[Release, ...]] = {
    "vllm": (
        Release("<0.10.1", "env", _DIR, fixed={"stack": True, "shapes": False, "memory": False, "flops": False}),
        Release(">=0.10.1,<0.11.1", "env", {**_DIR, **_CONTENTS}),
        Release(">=0.11.1,<0.12.0", "env", {**_DIR, **_CONTENTS, **_CUDA}),
        Release(">=0.12.0,<0.13.0", "env", {**_DIR, **_CONTENTS, **_CUDA, **_LIMITS}, notes=(_STOP_TWICE,)),
        # the variables are still read here, and win over the arguments
        Release(">=0.13.0,<0.16.0", "config", _PROFILER_CONFIG, unset=VLLM_VARIABLES, notes=(_STOP_TWICE,)),
        # from here on an unknown key ends the server
        Release(">=0.16.0,<0.17.1", "config", _PROFILER_CONFIG, notes=(_STOP_TWICE,)),
        Release(">=0.17.1,<0.30.0", "config", _PROFILER_CONFIG, {"prefix": "profile_prefix"}, notes=(_STOP_TWICE,)),
        Release(">=0.30.0,<0.33.0", "config", _PROFILER_CONFIG, {"prefix": "profile_prefix"}),
        Release(">=0.33.0", "config", _PROFILER_CONFIG, {"prefix": "profile_prefix", **_AT_START}),
    ),
    "vllm-ascend": (
        Release("<0.11.0", "env", _DIR, fixed={"stack": False, "memory": False, **_NO_SHAPES}),
        Release(
            ">=0.11.0,<0.13.0rc1",
            "env",
            {**_DIR, **{key: _CONTENTS[key] for key in ("stack", "memory")}},
            fixed=_NO_SHAPES,
        ),
        # its variables compare a truth value with the text '0': any value set, 0 included, means yes
        Release(
            ">=0.13.0rc1,<0.14.0rc1",
            "env",
            {**_DIR, "memory": _CONTENTS["memory"]},
            fixed={"stack": False, **_NO_SHAPES},
            notes=("only an absent variable means no here, so those that are off are left out",),
        ),
        Release(">=0.14.0rc1,<0.20.2rc1", "config", _ASCEND_CONFIG, fixed=_NO_SHAPES),
        Release(">=0.20.2rc1", "config", {**_ASCEND_CONFIG, **_AT_START}, fixed=_NO_SHAPES, notes=(_STOP_TWICE,)),
    ),
    "sglang": (
        # Engine.start_profile takes no arguments here; with num_steps the call would not return before they are done
        Release(
            "<0.4.6.post5", "call", {}, _SGLANG_ALONE, (), {"stack": None, "shapes": None, **_NO_MEMORY}, *_TOKENIZER
        ),
        Release(">=0.4.6.post5,<0.4.9", "call", {}, _SGLANG_CONTENTS, (), _NO_MEMORY, *_TOKENIZER),
        Release(
            ">=0.4.9,<0.5.6",
            "call",
            call_names=_SGLANG_STEPS,
            fixed=_NO_MEMORY,
            notes=("below 0.5.5 data-parallel ranks write one file between them: give each its own directory",),
        ),
        Release(">=0.5.6", "call", call_names={**_SGLANG_STEPS, "prefix": "profile_prefix"}, fixed=_NO_MEMORY),
    ),
    # counted from the engine's start, warm-up excluded; parsed once a process. The release that brought calls at run
    # time (start_profile with num_steps) is not known, so it is chosen by the option `runtime`, not by version.
    "tensorrt-llm": (
        Release(
            "",
            "env",
            {"span": "TLLM_PROFILE_START_STOP", "trace": "TLLM_TORCH_PROFILE_TRACE"},
            fixed={"shapes": True, "stack": False, "memory": False, "flops": False},
            start="",
            stop="",
            notes=("releases before April 2026 write the trace of all ranks to one path: use it with one rank",),
        ),
    ),
}

#: with an immediate start SGLang recorded one batch less than num_steps; 0.5.18 is the first release seen without that
SGLANG_ONE_SHORT = "<0.5.18"
#: files, as regular expressions with named groups for the ranks that the name tells
FILES: dict[str, tuple[tuple[str, str], ...]] = {
    "vllm": (
        ("<0.11.1", r"[^/]+_\d+\.\d+\.pt\.trace\.json(\.gz)?$"),
        (">=0.11.1,<0.17.1", r"[^/]+-rank-(?P<rank>\d+)\.\d+\.pt\.trace\.json(\.gz)?$"),
        (
            ">=0.17.1",
            r"(?:[^/]+_)?dp(?P<dp>\d+)_pp(?P<pp>\d+)_tp(?P<tp>\d+)_dcp\d+_ep\d+_rank(?P<rank>\d+)\.\d+\.pt\.trace\.json(\.gz)?$",
        ),
    ),
    "vllm-ascend": (("", r"[^/]+_\d+_\d{17}_ascend_pt/?$"),),
    "sglang": (
        (
            "",
            r"(?:[^/]+-)?[\d.]+-TP-(?P<tp>\d+)(?:-DP-(?P<dp>\d+))?(?:-PP-(?P<pp>\d+))?(?:-EP-\d+)?(?:-(?P<stage>[A-Z]+))?\.trace\.json\.gz$",
        ),
    ),
    "tensorrt-llm": (("", r"[^/]*?(?:-rank-(?P<rank>\d+))?\.json$"),),
}
