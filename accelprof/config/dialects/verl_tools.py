"""verl's options of single tools, as options of ours."""

from __future__ import annotations

from typing import Any

from accelprof.config.dialects import verl_keys as keys
from accelprof.config.dialects.reading import Source
from accelprof.config.dialects.verl_releases import Release, ask

#: verl's label of the phase that is one update mini-batch
MINI_BATCH = "train_batch"
#: and of the stage that runs them
UPDATE = "actor_update"
#: the phase whose calls are response tokens
DECODE_STEP = "rollout/decode_step"


def tool_options(source: Source, path: str, tool: str, release: Release) -> dict[str, object]:
    """Options of ``tool`` from a role's ``tool_config.<tool>``; ``{}`` = the tool's defaults."""
    if tool == "npu":
        return _npu(source, path, release)
    if tool == "torch":
        return _torch(source, path, release)
    if tool == "torch_memory":
        return _memory(source, path)
    return {}


def _contents(source: Source, path: str, allowed: tuple[str, ...]) -> list[str]:
    given = source.words(f"{path}.contents") or []
    for word in given:
        if word not in allowed:
            from accelprof.errors import nearest

            source.refuse(
                f"{path}.contents",
                f"{word!r} cannot be recorded by this tool",
                value=given,
                allowed=", ".join(allowed),
                mend=nearest(word, allowed),
            )
    return given


def _npu(source: Source, path: str, release: Release) -> dict[str, object]:
    contents = _contents(source, path, keys.NPU_CONTENTS)
    options: dict[str, object] = {}
    host_always = release.since((0, 9, 1))
    if contents:
        options["contents"] = _with_host(source, path, contents) if host_always else contents
    elif host_always:
        options["contents"] = ["cpu"]
        said = "empty: host side only, as verl 0.9.1's code does; name npu to record the device"
        source.note(f"{path}.contents", "doubtful", said)
    elif host_always is None and release.since((0, 8, 0)):
        ask(source, release, f"{path}.contents", "empty: host and device", "verl 0.9.1 records the host side only")
    # its YAML says level1 in the first releases, and the dataclass too
    default = "level1" if release.since((0, 7, 0)) is False else "level0"
    options["level"] = source.choice(f"{path}.level", keys.NPU_LEVELS, default)
    if source.has(f"{path}.analysis"):
        options["analysis"] = source.flag(f"{path}.analysis")
    if release.since((0, 7, 0)):
        options["export"] = "db"  # ExportType.Db in verl's code from 0.7.0 on; Text before
    elif release.since((0, 7, 0)) is False:
        options["mstx_domain_exclude"] = []  # its code left out no domain before
    return options


def _with_host(source: Source, path: str, contents: list[str]) -> list[str]:
    if "cpu" not in contents:
        source.note(f"{path}.contents", "changed", "cpu is always recorded, because phases are host marks")
    return ["cpu", *(word for word in contents if word != "cpu")]


def _torch(source: Source, path: str, release: Release) -> dict[str, object]:
    contents = _contents(source, path, keys.TORCH_CONTENTS)
    for key in ("step_start", "step_end", "manual_save"):
        if source.has(f"{path}.{key}"):
            source.note(f"{path}.{key}", "dropped", "global_profiler.steps says which steps, and each window is saved")
    if release.since((0, 7, 1)) is False:
        source.note(f"{path}.contents", "info", "verl 0.6 to 0.7.0 takes none: shapes and stacks are always recorded")
        return {"contents": ["cpu", "cuda", "shapes", "stack"]}
    if not contents:
        return {}
    if release.since((0, 9, 1)) is False:
        return {"contents": contents}
    return {"contents": _with_host(source, path, contents)}


def _memory(source: Source, path: str) -> dict[str, Any]:
    shared = "global_profiler.global_tool_config.torch_memory"
    where = path if source.has(f"{path}.trace_alloc_max_entries") else shared
    options: dict[str, Any] = {}
    entries = source.number(f"{where}.trace_alloc_max_entries", None, 1)
    if entries is not None:
        options["max_entries"] = entries
    for key in ("context", "stacks"):
        if source.has(f"{shared}.{key}"):
            source.note(f"{shared}.{key}", "dropped", "verl does not read it")
    depth = path if source.has(f"{path}.stack_depth") else shared
    if source.number(f"{depth}.stack_depth", 32, 1) != 32:
        source.note(f"{depth}.stack_depth", "dropped", "torch's own depth is used")
    if source.number(f"{path}.memory_snapshot_num_steps", 1, 1) != 1:
        source.note(f"{path}.memory_snapshot_num_steps", "dropped", "every window leaves its own snapshot")
    return options


def update_schedule(source: Source, path: str, discrete: bool, release: Release) -> dict[str, Any] | None:
    """The mini-batch schedule of v0.9; ``active: 0`` is off.

    Everything else of the step is kept, as verl does: in one capture up to the last mini-batch that is recorded where
    nothing comes before the first one, or with ``discrete`` in windows of its own.
    """
    source.check_keys(path, keys.SCHEDULE_KEYS, open_to_others=True)
    active = source.number(f"{path}.active", 0)
    if not active:
        return None
    if discrete and release.since((0, 9, 1)) is False:
        source.note(path, "dropped", "verl 0.9.0 has no schedule with discrete: every phase is recorded whole")
        return None
    numbers = {key: source.number(f"{path}.{key}", 0) or 0 for key in ("skip_first", "wait", "warmup", "repeat")}
    if not numbers["repeat"] and not discrete and release.since((0, 9, 1)) is not False:
        numbers["repeat"] = 1
        source.note(f"{path}.repeat", "info", "0 without discrete: one stretch a step, as verl 0.9.1 does")
    source.note(path, "info", f"counts update mini-batches, which are calls of {MINI_BATCH!r}, anew in each step")
    per = UPDATE if discrete else "step"
    return {"phase": MINI_BATCH, "per": per, "active": active, "keep_others": True, **numbers}


def token_window(source: Source, path: str) -> dict[str, object] | None:
    """The window of response tokens of generation d, end exclusive; both ends absent is off."""
    start, end = source.number(f"{path}.profile_token_start"), source.number(f"{path}.profile_token_end", None, 1)
    if start is None and end is None:
        return None
    if end is None:
        longest = "actor_rollout_ref.rollout.response_length"
        end = source.number(longest, source.number("data.max_response_length", None, 1), 1)
        if end is None:
            source.refuse(
                f"{path}.profile_token_end", "must be given when the longest response is not known", value=None
            )
            return None
        source.note(f"{path}.profile_token_end", "info", f"absent: up to the longest response, {end} tokens")
    if end <= (start or 0):
        said = f"not after profile_token_start ({start or 0}); the end is exclusive"
        source.refuse(f"{path}.profile_token_end", said, value=end)
        return None
    return {"phase": DECODE_STEP, "token_start": start or 0, "token_end": end, "per": "step"}
