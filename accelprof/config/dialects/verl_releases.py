"""Which release of verl a file is written for: by keys that only some releases have, and by the one that is installed.

From v0.6 on the words stayed and their meaning changed; what each release makes of them is the table in docs/dialects.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from accelprof import versions
from accelprof.config.dialects import verl_keys as keys
from accelprof.config.dialects.reading import Source

Version = tuple[int, ...]

#: releases whose files and code this was checked against, oldest first
KNOWN: tuple[Version, ...] = ((0, 6, 0), (0, 6, 1), (0, 7, 0), (0, 7, 1), (0, 8, 0), (0, 9, 0), (0, 9, 1))
OLDEST, NEWEST = KNOWN[0], KNOWN[-1]
#: our own key beside verl's: the release whose meaning is wanted
VERSION = keys.VERSION
SETTING = f"global_profiler.{VERSION}"

#: release -> paths of which one is enough, given as they stand in a file; they are there from that release on
SINCE: dict[Version, tuple[str, ...]] = {
    (0, 6, 1): ("algorithm.rollout_correction",),
    (0, 7, 0): ("actor_rollout_ref.actor.router_replay", "trainer.profile_interval"),
    (0, 7, 1): ("<role>.tool_config.torch.contents", "<role>.tool_config.torch.discrete"),
    (0, 8, 0): ("<role>.tool_config.precision_debugger", "global_profiler.global_tool_config.precision_debugger"),
    (0, 9, 0): (
        "<role>.tool_config.torch.schedule",
        *(f"<role>.tool_config.{tool}.profile_token_{end}" for tool in ("torch", "npu") for end in ("start", "end")),
    ),
    (0, 9, 1): (
        *(f"{place}.{key}" for place in ("global_profiler", "<role>") for key in keys.ROLE_D),
        "global_profiler.global_tool_config.torch_memory.memory_snapshot_num_steps",
        "<role>.tool_config.torch_memory.memory_snapshot_num_steps",
    ),
}
#: release -> paths that are gone from the one after it on
UNTIL: dict[Version, tuple[str, ...]] = {
    (0, 7, 0): (
        "reward_model.profiler",
        *(f"<role>.tool_config.torch.{key}" for key in ("step_start", "step_end", "manual_save")),
    ),
}


@dataclass(frozen=True, slots=True)
class Release:
    """The releases a file can be of, both ends included. ``how`` says what told them apart."""

    lowest: Version
    highest: Version
    how: str = ""

    def since(self, version: Version) -> bool | None:
        """Whether it is this release or a later one; ``None`` where the file does not tell."""
        return True if self.lowest >= version else False if self.highest < version else None

    def __str__(self) -> str:
        low, high = name(self.lowest), name(self.highest)
        return low if low == high else f"{low} to {high}"


def name(version: Version) -> str:
    """``0.9.1``."""
    return ".".join(map(str, version))


def parse(text: object) -> Version | None:
    """The known release that ``text`` behaves like: itself, or the last one before it, which is ``main``'s too; ``None`` where it is
    no version."""
    if text == "main":
        return NEWEST
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text) if isinstance(text, str) else None
    if match is None:
        return None
    given = tuple(int(part or 0) for part in match.groups())
    before = [known for known in KNOWN if known <= given]
    return before[-1] if before else None


def release_of(source: Source) -> Release:
    """The releases that ``source`` can be written for.

    ``global_profiler.verl_version`` says it. Otherwise keys do: in a composed file (its sections have ``_target_``) those
    that are missing count too. A file that somebody wrote by hand is read as the installed release where that has its keys.
    """
    lowest = max((version for version, paths in SINCE.items() if _any(source, paths)), default=OLDEST)
    highest = min((version for version, paths in UNTIL.items() if _any(source, paths)), default=NEWEST)
    if source.has(SETTING):
        return _asked_for(source, lowest, highest)
    if lowest > highest:
        source.note(
            "global_profiler", "doubtful", f"keys of {name(lowest)} stand beside keys that ended with {name(highest)}"
        )
        return Release(lowest, NEWEST, "by its newest keys")
    if any("_target_" in source.section(path) for path in ("global_profiler", *_roles())):
        missing = [version for version in SINCE if version > lowest and _tells(source, version)]
        if missing:
            highest = min(highest, KNOWN[KNOWN.index(min(missing)) - 1])
        return Release(lowest, max(lowest, highest), "by its keys")
    installed = parse(versions.installed("verl"))
    if installed is not None and lowest <= installed <= highest:
        return Release(installed, installed, "the release that is installed")
    return Release(lowest, highest, "by its keys")


def ask(source: Source, release: Release, path: str, reading: str, other: str) -> None:
    """Note that ``path`` means one thing or another by release, which the file does not tell."""
    said = (
        f'{reading}; {other}. The file can be of verl {release}: say which with --verl, or {SETTING}: "{name(NEWEST)}"'
    )
    source.note(path, "doubtful", said)


def _asked_for(source: Source, lowest: Version, highest: Version) -> Release:
    given = source.get(SETTING)
    version = parse(given)
    if version is None:
        source.refuse(
            SETTING, "not a release that has these keys", value=given, allowed=", ".join([*map(name, KNOWN), "main"])
        )
        return Release(lowest, NEWEST)
    if version < lowest:
        later = next(path for path in SINCE[lowest] if _any(source, (path,)))
        place = next(found for found in _places(later) if _there(source, found))
        source.refuse(
            place, f"is there from verl {name(lowest)} on, and {given} was asked for", mend=f"--verl {name(lowest)}"
        )
    elif version > highest:
        gone = next(path for path in UNTIL[highest] if _any(source, (path,)))
        place = next(found for found in _places(gone) if _there(source, found))
        source.note(place, "dropped", f"verl {name(version)} does not read it")
    if name(version) != str(given).lstrip("v"):
        source.note(SETTING, "info", f"{given} is read as {name(version)}, the last known release before it")
    return Release(version, version, "as asked for")


def _tells(source: Source, version: Version) -> bool:
    """Whether a composed file without the keys of ``version`` must be older; those of other trainers' files tell nothing."""
    first = SINCE[version][0]
    return "<role>" in first or first.startswith("global_profiler") or bool(source.section(first.partition(".")[0]))


def _roles() -> list[str]:
    return ["profiler", *(f"{path}.profiler" for paths in keys.ROLE_PATHS.values() for path in paths)]


def _places(path: str) -> list[str]:
    return [path.replace("<role>", role) for role in _roles()] if "<role>" in path else [path]


def _there(source: Source, path: str) -> bool:
    """Whether the file has the key at all, even with ``null``."""
    parent, _, key = path.rpartition(".")
    return key in source.section(parent)


def _any(source: Source, paths: tuple[str, ...]) -> bool:
    return any(_there(source, place) for path in paths for place in _places(path))
