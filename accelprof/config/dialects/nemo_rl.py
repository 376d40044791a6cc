"""NeMo-RL's profiling switches, which are environment variables, as a plan of ours.

Written against its source (github.com/NVIDIA-NeMo/RL, ``nemo_rl/utils/nsys.py`` at 017d5c2, and
``distributed/worker_group_utils.py`` at d85dfaf and, with extra options, at 7cc643f); the package is not in the catalogue,
so it was not run.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from accelprof.config.dialect import Dialect, Translation
from accelprof.config.dialects.reading import Draft, Source
from accelprof.errors import nearest
from accelprof.numberset import LARGEST
from accelprof.versions import installed

PATTERNS, RANGE, EXTRA = "NRL_NSYS_WORKER_PATTERNS", "NRL_NSYS_PROFILE_STEP_RANGE", "NRL_NSYS_EXTRA_OPTIONS"
VARIABLES = (PATTERNS, RANGE, EXTRA)
PREFIX = "NRL_NSYS_"
#: others of its variables, which stay with it
OTHERS = ("NRL_NSYS_VLLM_WORKER_INDICES",)
#: what it gives nsys where nobody says otherwise
DEFAULTS: dict[str, object] = {
    "trace": "cuda,nvtx",
    "stop-on-exit": "true",
    "sample": "none",
    "cuda-graph-trace": "node",
}
#: before extra options could be given: up to release 0.5 at least
EARLY: dict[str, object] = {
    "trace": "cuda,cudnn,cublas,nvtx",
    "stop-on-exit": "true",
    "cuda-graph-trace": "node",
}
LAST_EARLY = (0, 5)
SHORT = {"t": "trace", "o": "output", "s": "sample", "c": "capture-range"}


class NemoRLDialect(Dialect):
    """A mapping with ``NRL_NSYS_*``, as ``os.environ`` is one. Steps count from 1; the range's end is exclusive."""

    name: ClassVar[str] = "nemo_rl"
    known_by: ClassVar[str] = "NRL_NSYS_WORKER_PATTERNS"

    def detects(self, mapping: Mapping[str, object]) -> bool:
        return any(str(key).startswith(PREFIX) for key in mapping)

    def knows(self, path: str, mapping: Mapping[str, object]) -> bool:
        return path in VARIABLES

    def translate(self, mapping: Mapping[str, object]) -> Translation:
        # a program's whole environment may be given; only what begins as theirs is looked at
        own = {str(key): value for key, value in mapping.items() if str(key).startswith(PREFIX)}
        source, draft = Source(own), Draft()
        for key in own:
            if key not in (*VARIABLES, *OTHERS):
                source.refuse(key, "unknown variable", value=own[key], mend=nearest(key, VARIABLES) or "unset it")
        patterns = [word.strip() for word in (source.text(PATTERNS) or "").split(",") if word.strip()]
        text = (source.text(RANGE) or "").strip()
        if bool(patterns) != bool(text):
            missing, given = (RANGE, PATTERNS) if patterns else (PATTERNS, RANGE)
            source.refuse(missing, f"must be given too, because {given} is", allowed="both of them, or neither")
        if not patterns:
            draft.set("enabled", False, PATTERNS)
            source.note(PATTERNS, "off", f"empty: nobody is profiled; it would be with a pattern, and {RANGE}")
            return source.finish(draft)
        patterns = [_in_its_case(pattern) for pattern in patterns]
        draft.set("groups", {pattern: {"ranks": "all"} for pattern in patterns}, PATTERNS)
        for pattern in patterns:
            draft.sources[f"groups.{pattern}"] = draft.sources[f"groups.{pattern}.ranks"] = PATTERNS
        steps = _steps(source, text)
        if steps:
            first, last = steps
            draft.set("steps", f"{first}-{last}" if last > first else [first], RANGE)
            draft.set("merge_steps", True, RANGE)
            source.note(RANGE, "info", f"steps {first} to {last} in one capture; the end is exclusive")
        draft.set("tool", "nsys")
        options = _defaults(source)
        for key, value in _extra(source).items():
            word = SHORT.get(key, key)
            options[word] = value
            draft.sources[f"tools.nsys.{word}"] = f"{EXTRA}.{key}"
        draft.set("tools.nsys", options, EXTRA)
        return source.finish(draft)


def _in_its_case(pattern: str) -> str:
    """The same as a pattern of ours: a plain name under ``groups`` is found in any case, theirs by ``fnmatch`` as it is written."""
    if any(mark in pattern for mark in "*?["):
        return pattern
    return re.sub(r"[^\W\d_]", r"[\g<0>]", pattern, count=1)


def step_range(text: str) -> tuple[int, int]:
    """Start and exclusive stop of ``start:stop``, both as ``int`` reads them, which is how NeMo-RL does: ``+2: 4`` is one.

    Raises:
        ValueError: it is no such range.
    """
    start, stop = text.split(":")
    return int(start), int(stop)


def _steps(source: Source, text: str) -> tuple[int, int] | None:
    """First and last step, both included."""
    if not text:
        return None
    try:
        first, end = step_range(text)
    except ValueError:
        first, end = 0, LARGEST + 2
    if end > LARGEST + 1:
        shown = text if len(text) <= 60 else f"{text[:60]}…"
        allowed = f"start:stop, the start at least 1, the stop exclusive, numbers up to {LARGEST}"
        source.refuse(RANGE, "not a range of steps", value=shown, allowed=allowed)
        return None
    if first < 1 or end <= first:
        what = "the first step is 1" if first < 1 else "the range is empty; its end is exclusive"
        start = max(first, 1)
        source.refuse(RANGE, what, value=text, mend=f"{start}:{max(end, start + 1)}")
        return None
    return first, end - 1


def _defaults(source: Source) -> dict[str, object]:
    """Those of the NeMo-RL that is installed; where there is none, a job with extra options has one that reads them."""
    reads, given = _reads_extra(), bool(source.text(EXTRA))
    if reads is False and given:
        source.note(EXTRA, "info", "the NeMo-RL that is installed does not read it; here it counts")
    if reads is None and not given:
        early = json.dumps({"trace": EARLY["trace"], "sample": "process-tree"})
        said = f"absent: as in a NeMo-RL that reads it, nsys traces {DEFAULTS['trace']} and does not sample; before: {early}"
        source.note(EXTRA, "info", said)
    return dict(EARLY if reads is False else DEFAULTS)


def _reads_extra() -> bool | None:
    """Whether the NeMo-RL that is installed reads :data:`EXTRA`, which came with the other defaults: by its source, which is not
    imported, else by its release; ``None``: not known."""
    try:
        spec = importlib.util.find_spec("nemo_rl")
        for place in (spec.submodule_search_locations or ()) if spec is not None else ():
            return EXTRA in Path(place, "distributed", "worker_group_utils.py").read_text(encoding="utf-8")
    except (ImportError, ValueError, OSError):
        pass  # without that file
    found = re.match(r"(\d+)\.(\d+)", installed("nemo-rl") or "")
    return False if found is not None and (int(found[1]), int(found[2])) <= LAST_EARLY else None


def _extra(source: Source) -> dict[str, object]:
    """The user's options as they are spelt, but for those that the plan decides."""
    text = source.text(EXTRA)
    if not text:
        return {}
    try:
        given = json.loads(text)
    except ValueError as error:
        source.refuse(EXTRA, f"not JSON: {error}", value=text)
        return {}
    if not isinstance(given, dict):
        source.refuse(EXTRA, "no JSON object", value=text, allowed='an object, as {"trace": "cuda,nvtx"}')
        return {}
    options: dict[str, object] = {}
    for key, value in given.items():
        word = SHORT.get(str(key), str(key))
        if word in ("capture-range", "capture-range-end"):
            source.note(
                f"{EXTRA}.{key}", "changed", "the plan says how a window opens, and how many captures there are"
            )
        elif word == "output":
            source.note(f"{EXTRA}.{key}", "changed", "reports lie in the run's directory")
        else:
            options[str(key)] = value
    return options
