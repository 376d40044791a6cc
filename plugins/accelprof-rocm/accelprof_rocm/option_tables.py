"""Options of AMD's launchers by release, for drivers on which the tool is not installed (its own help is asked otherwise).

Names are long ones, without dashes; ``short`` is the other spelling. ``takes``: ``switch`` (bare), ``flag`` (bare, or
with a truth value), ``value``, or ``words`` (several, each an argument of its own).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from accelprof.errors import nearest_word
from accelprof_rocm.releases import Release


@dataclass(frozen=True)
class Option:
    """One option; known from ``since`` on. ``choices``: allowed words, empty = any."""

    takes: str = "value"
    short: str = ""
    since: Release = (0, 0)
    choices: tuple[str, ...] = ()


Table = Mapping[str, Option]

FLAG, WORDS, VALUE = Option("flag"), Option("words"), Option("value")


def _since(release: Release, takes: str, *names: str) -> Table:
    """Options that came with one release, have no other spelling and take whatever is given."""
    return dict.fromkeys(names, Option(takes, since=release))


#: rocprof-sys-python, omnitrace-python: the same list in every release looked at
PYTHON: Table = {
    "help": Option("switch", "h"),
    "verbosity": Option("value", "v"),
    "builtin": Option("switch", "b"),
    "config": Option("value", "c"),
    "setup": Option("value", "s"),
    "full-filepath": Option("value", "F"),
    "label": Option("words", choices=("args", "file", "line")),
    "function-include": Option("words", "I"),
    "function-exclude": Option("words", "E"),
    "function-restrict": Option("words", "R"),
    "module-include": Option("words", "MI"),
    "module-exclude": Option("words", "ME"),
    "module-restrict": Option("words", "MR"),
    "trace-c": Option("value"),
    "annotate-trace": Option("value", "a"),
}

_KINDS = (
    "all", "kokkosp", "mpip", "ompt", "rcclp", "amd-smi", "rocm-smi", "rocm", "rocprofiler", "rocprofiler-sdk", "roctracer",
    "roctx", "mutex-locks", "spin-locks", "rw-locks",
)  # fmt: skip
_SYS_COMMON: Table = {
    "help": Option("flag", "h"),
    "config": Option("value", "c"),
    "output": Option("words", "o"),
    "trace": Option("flag", "T"),
    "profile": Option("flag", "P"),
    "flat-profile": Option("flag", "F"),
    "host": Option("flag", "H"),
    "device": Option("flag", "D"),
    "wait": Option("value", "w"),
    "duration": Option("value", "d"),
    "tids": Option("words", "t"),
    **dict.fromkeys(("trace-file", "trace-buffer-size", "trace-wait", "trace-duration", "trace-clock-id"), VALUE),
    **dict.fromkeys(("process-freq", "process-wait", "process-duration"), VALUE),
    **dict.fromkeys(("trace-periods", "profile-diff", "cpus", "gpus"), WORDS),
    "trace-fill-policy": Option("value", choices=("discard", "ring_buffer")),
    "trace-legacy": Option("flag", "L", since=(7, 11)),
    "profile-format": Option("words", choices=("text", "json", "console")),
    "include": Option("words", "I", choices=_KINDS),
    "exclude": Option("words", "E", choices=_KINDS),
    "cpu-events": Option("words", "C"),
    "gpu-events": Option("words", "G"),
    "verbose": Option("value", "v"),
    "monochrome": FLAG,
    "debug": FLAG,
    "selected-regions": Option("value", since=(7, 13)),
}
RUN: Table = {
    **_SYS_COMMON,
    "sample": Option("words", "S"),
    "sampling-freq": Option("value", "f"),
    "sampling-wait": VALUE,
    "sampling-duration": VALUE,
    "periods": WORDS,
    "fork": FLAG,
}
SAMPLE: Table = {
    **_SYS_COMMON,
    "freq": Option("value", "f"),
    **dict.fromkeys(("cputime", "realtime"), WORDS),
    **_since((7, 13), "value", "sampling-freq"),
    **_since((7, 13), "words", "sampling-cputime", "sampling-realtime"),
}

_TRACES = (
    "hip", "hip-runtime", "hip-compiler", "marker", "kernel", "memory-copy", "scratch-memory", "hsa", "hsa-core", "hsa-amd",
    "hsa-image", "hsa-finalizer",
)  # fmt: skip
_TRACES_63 = ("memory-allocation", "rccl")
_TRACES_64 = ("rocdecode", "rocjpeg", "kokkos")
_TRACES_NEW = ("hip-graph", "hip-event", "kfd", "ompt", "rocshmem", "hipfile")
FORMATS = ("csv", "json", "pftrace", "otf2", "rocpd")
ROCPROFV3: Table = {
    "help": Option("flag", "h"),
    "version": Option("flag", "v"),
    "input": Option("value", "i"),
    "output-file": Option("value", "o"),
    "output-directory": Option("value", "d"),
    "output-format": Option("words", "f", choices=FORMATS),
    "output-config": FLAG,
    "log-level": Option("value", choices=("fatal", "error", "warning", "info", "trace", "env", "config")),
    "extra-counters": Option("value", "E"),
    "runtime-trace": Option("flag", "r", since=(6, 3)),
    "sys-trace": Option("flag", "s"),
    **{f"{name}-trace": FLAG for name in _TRACES},
    **_since((6, 3), "flag", *(f"{name}-trace" for name in _TRACES_63), "summary-per-domain", "kernel-rename"),
    **_since((6, 4), "flag", *(f"{name}-trace" for name in _TRACES_64)),
    **_since((7, 2), "flag", *(f"{name}-trace" for name in _TRACES_NEW)),
    **_since((6, 3), "words", "pmc", "summary-groups", "kernel-iteration-range", "preload"),
    **_since((6, 3), "value", "summary-output-file", "kernel-include-regex", "kernel-exclude-regex"),
    **_since((6, 3), "value", "perfetto-buffer-size", "perfetto-shmem-size-hint"),
    **_since((6, 4), "value", "collection-period-unit"),
    **_since((7, 0), "flag", "group-by-queue", "selected-regions", "disable-signal-handlers"),
    **_since((7, 0), "value", "minimum-output-data", "rocm-root"),
    **_since((7, 1), "value", "attach", "attach-duration-msec"),
    **_since((7, 2), "flag", "selected-regions-ref-count", "process-sync", "attach-children"),
    **_since((7, 2), "value", "profile-mpi-ranks"),
    **_since((7, 14), "flag", "attach-sync-output"),
    "stats": Option("flag", "S"),
    "summary": Option("flag", "D", since=(6, 3)),
    "summary-units": Option("value", "u", since=(6, 3)),
    "mangled-kernels": Option("flag", "M"),
    "truncate-kernels": Option("flag", "T"),
    "perfetto-buffer-fill-policy": Option("value", since=(6, 3), choices=("discard", "ring_buffer")),
    "perfetto-backend": Option("value", since=(6, 3), choices=("inprocess", "system")),
    "list-avail": Option("flag", "L", since=(6, 3)),
    "collection-period": Option("words", "P", since=(6, 4)),
    "pid": Option("value", "p", since=(7, 1)),
}

#: rocprof-sys's groups and domains (``ROCPROFSYS_ROCM_DOMAINS``) and the release that brought them (its changelog); a word
#: that it does not know ends the worker
DOMAINS: Mapping[str, Release] = {
    **dict.fromkeys((
        "hip_runtime_api", "hip_compiler_api", "hip_api", "hsa_core_api", "hsa_amd_ext_api", "hsa_image_ext_api",
        "hsa_finalize_ext_api", "hsa_api", "marker_api", "roctx", "kernel_dispatch", "memory_copy", "memory_allocation",
        "scratch_memory", "page_migration", "rccl_api", "rocdecode_api", "rocjpeg_api", "ompt",
    ), (6, 4)),
    "kfd_events": (7, 13),
}  # fmt: skip
#: the newest release whose domains are known
NEWEST_DOMAINS = max(DOMAINS.values())
#: what is recorded where ``ROCPROFSYS_ROCM_DOMAINS`` is not set (from ROCm 6.4)
DEFAULT_DOMAINS = ("hip_runtime_api", "marker_api", "kernel_dispatch", "memory_copy", "scratch_memory")
#: both names of the domain that ranges and the marks of windows are in
MARKERS = frozenset({"marker_api", "roctx"})
#: up to ROCm 6.3 there are no domains: the settings by which a word after ``-T`` is switched on, empty = on by default
ROCTRACER: Mapping[str, tuple[str, ...]] = {
    "hip": (),
    "kernel": (),
    "memory": (),
    "roctx": (),
    "marker": (),
    "hsa": ("ROCTRACER_HSA_API", "ROCTRACER_HSA_ACTIVITY"),
    "rccl": ("USE_RCCLP",),
}
#: words that the guides put after ``-T``, and the domains that are meant
MEANT = {
    "hip": "hip_api",
    "hsa": "hsa_api",
    "rccl": "rccl_api",
    "roctx": "marker_api",
    "marker": "marker_api",
    "kernel": "kernel_dispatch",
    "memory": "memory_copy",
}


def domains(release: Release) -> list[str]:
    """The domains that ``release`` has."""
    return [word for word, since in DOMAINS.items() if since <= release]


def meant(word: str, release: Release) -> str:
    """The domain of ``release`` that a word stands for, or that it is all but a letter of; empty where there is none."""
    words = domains(release)
    if word in words:
        return word
    return MEANT.get(word) or nearest_word(word, words, 0.8)


def known(table: Table, release: Release) -> dict[str, Option]:
    """The options that ``release`` has."""
    return {name: option for name, option in table.items() if option.since <= release}


def aliases(table: Table) -> dict[str, str]:
    """Short spelling -> long one."""
    return {option.short: name for name, option in table.items() if option.short}
