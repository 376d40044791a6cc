"""What one role of a verl file asks for, and how roles become rules of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from accelprof.config.dialects import verl_keys as keys
from accelprof.config.dialects.nsys_range import own_options
from accelprof.config.dialects.reading import Draft, Source
from accelprof.numberset import NumberSet

#: the files' roles in the order in which they are looked at
ROLES = tuple(keys.ROLE_PATHS)


@dataclass
class Role:
    """What one role asks for. ``ranks``: ``all``, a list, or ``None`` for nobody; paths are those of the source."""

    name: str
    path: str
    enabled: bool
    ranks: Any
    tool: str | None
    discrete: bool = False
    ranks_path: str = ""
    discrete_path: str = ""
    enable_path: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    schedule: dict[str, object] | None = None
    replicas: Any = None


def agree(source: Source, roles: list[Role], why: str) -> None:
    """Refuse roles whose ``discrete`` differs, naming both keys."""
    for other in roles[1:]:
        if other.discrete != roles[0].discrete:
            source.refuse(
                other.discrete_path,
                f"contradicts {roles[0].discrete_path} ({roles[0].discrete}); {why}",
                value=other.discrete,
                mend=f"give both the same value: {roles[0].discrete_path} and {other.discrete_path}",
            )


def captures(steps: Sequence[int], merge: bool) -> int:
    """How many captures these sorted steps make; ``merge``: adjacent ones share a capture."""
    numbers = NumberSet.parse(steps)
    return numbers.stretch_count() if merge else len(numbers)


def nsys_tool(source: Source, draft: Draft, path: str, windows: int | None, controller: bool = True) -> None:
    """``tools.nsys`` and ``controller`` from the two option blocks under ``path``."""
    workers = source.mapping_at(f"{path}.worker_nsight_options")
    options = own_options(source, f"{path}.worker_nsight_options", workers, windows, by_step=True)
    if options:
        draft.set("tools.nsys", options, f"{path}.worker_nsight_options")
    driver = {
        name: value
        for name, value in source.mapping_at(f"{path}.controller_nsight_options").items()
        if value not in (None, "")
    }
    if driver and controller:
        draft.set("controller.tool", "nsys", f"{path}.controller_nsight_options")
        draft.set("controller.options", driver, f"{path}.controller_nsight_options")


def say_off(source: Source, roles: list[Role], steps: Sequence[int] | None, steps_path: str, switch: str) -> None:
    """What keeps the file from profiling anything, by its own keys, each with the value that would.

    Args:
        switch: what would turn a role on in a file that has none.
    """
    if not steps:
        some = "[2, 2], the first and the last" if steps_path == "trainer.profile_interval" else "[2]"
        source.note(steps_path, "off", f"null and [] = off; steps would be {some}")
    if any(role.enabled for role in roles):
        return
    for role in roles[:1]:
        if source.get(role.enable_path) is True:  # switched on, and nobody listed
            source.note(role.enable_path, "off", f"true, but nobody is listed; {role.ranks_path} would be [0]")
        else:
            on = _switched_on(role.enable_path)
            source.note(role.enable_path, "off", f"no role is on; it would be with {on} here or in another role")
    if not roles:
        source.note(switch, "off", f"no role is on; it would be with {_switched_on(switch)}")


def _switched_on(path: str) -> str:
    return "true" if path.endswith((".enable", "all_ranks")) else "[0]"


def add_rules(
    source: Source,
    draft: Draft,
    roles: list[Role],
    steps: Sequence[int] | None,
    steps_path: str,
    global_tool: str | None = None,
) -> None:
    """Steps, and a rule for each role: the hybrid worker\'s roles share a group, the others have their own."""
    draft.sources["steps"] = steps_path  # also where there are none
    if steps:
        draft.set("steps", steps)
    draft.set("groups", {})
    for role in roles:
        group = keys.HYBRID_GROUP if role.name in keys.HYBRID and role.replicas is None else role.name
        index = len(draft.config["groups"].get(group, []))
        where = f"groups.{group}[{index}]"
        draft.set(f"{where}.roles", [role.name], role.path)
        if not role.enabled:
            draft.set(f"{where}.enabled", False, role.enable_path)
            continue
        draft.set(f"{where}.ranks", role.ranks, role.ranks_path)
        if role.replicas is not None:
            draft.set(f"{where}.replicas", role.replicas, role.ranks_path)
        if role.discrete:
            draft.set(f"{where}.discrete", True)
        if source.has(role.discrete_path):
            draft.sources[f"{where}.discrete"] = role.discrete_path  # also where it says false
        if role.tool is not None and role.tool != global_tool:
            draft.set(f"{where}.tool", role.tool, f"{role.path}.tool")
        draft.sources[f"{where}.options"] = (
            f"{role.path}.tool_config.{role.tool or global_tool}"  # also where there are none
        )
        if role.options:
            draft.set(f"{where}.options", role.options)
        if role.schedule is not None:
            draft.set(f"{where}.schedule", [role.schedule], f"{role.path}.tool_config.{role.tool}")
