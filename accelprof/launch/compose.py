"""The launch of one process: what all its tools need, joined, as plug-ins changed it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from accelprof.catalogue import Catalogue
from accelprof.contracts.targets import LAUNCH_ENV, TARGET_ENV, UNSET_ENV, WRAPPED_ENV, Assignment, Launch
from accelprof.contracts.tool import ToolUse
from accelprof.contracts.words import LAUNCH_MODES
from accelprof.environment import join_env
from accelprof.errors import ConfigError, PluginError, Problem


def compose(
    catalogue: Catalogue, uses: Sequence[ToolUse], assignment: Assignment, directory: str, shared: bool = False
) -> Launch:
    """How the process must be started for ``uses``, the tools of ``assignment``; ``directory`` is its own.

    ``shared``: the launcher will surround several selected processes, so none of them may end what it does for all.

    Raises:
        PluginError: a tool answered something else than a launch.
        ConfigError: two of the tools want to start the process.
    """
    if not assignment.selected or assignment.tool is None:
        return Launch()
    launch, owner = Launch(), ""
    for use in uses:
        if use.tool is None:
            continue
        name, more = use.name, use.tool.launch(assignment, directory)
        if not isinstance(more, Launch):
            raise PluginError(
                f"launch() of tool {name} returned a {type(more).__name__}; accelprof.contracts.targets.Launch is expected"
            )
        if more.mode in ("prefix", "replace"):
            if owner:
                raise ConfigError(
                    Problem(
                        "tool",
                        f"{owner} and {name} both want to start the process of {assignment.target.label}",
                        mend="one of them per process",
                    )
                )
            owner = name
        launch = _joined(launch, more)
    for changed in catalogue.event("accelprof_launch_modify", target=assignment.target, launch=launch):
        if isinstance(changed, Launch):
            launch = changed
    if launch.mode != "none":
        env = {**launch.env, TARGET_ENV: assignment.target.label, LAUNCH_ENV: "shared" if shared else "own"}
        if launch.unset_in_children:
            env[UNSET_ENV] = json.dumps({name: launch.env.get(name) for name in launch.unset_in_children})
        launch = replace(launch, env={WRAPPED_ENV: owner or assignment.tool, **env})
    return launch


def _joined(one: Launch, other: Launch) -> Launch:
    stronger = max((one, other), key=lambda launch: LAUNCH_MODES.index(launch.mode))  # they stand in order of strength
    return Launch(
        mode=stronger.mode,
        argv=stronger.argv,
        env=join_env(one.env, other.env),
        unset_in_children=tuple(dict.fromkeys((*one.unset_in_children, *other.unset_in_children))),
        make_dirs=tuple(dict.fromkeys((*one.make_dirs, *other.make_dirs))),
        preflight=stronger.preflight or one.preflight or other.preflight,
        notes=(*one.notes, *other.notes),
    )
