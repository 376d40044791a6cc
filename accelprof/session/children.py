"""Child processes of an engine: what the worker that starts them leaves in their environment, and which methods are timed there.

What such a child does with it is :mod:`accelprof.session.joining`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from accelprof import atomic, texts
from accelprof.config.model import Config
from accelprof.contracts.targets import CONFIG_NAME, PARENT_ENV, RUN_ENV, Target
from accelprof.environment import STARTUP, join_env
from accelprof.planning.sampling import facts_fit
from accelprof.session.instrument import PROCESS_FACTS, Instruments, Item
from accelprof.versions import installed
from accelprof.voice import Voice

if TYPE_CHECKING:
    from accelprof.planning.presets import Preset
    from accelprof.session.session import Session

#: the voice of a process that has no session yet
voice = Voice(f"engine process {os.getpid()}")
#: instruments of such a process; the first use of one makes it a worker
watching: Instruments | None = None
_before: dict[str, str | None] = {}


def items_for(
    config: Config, presets: Mapping[str, Preset], target: Target, say: Callable[[str], object]
) -> list[Item]:
    """Methods that the configuration instruments in ``target``: its own list, then its presets by installed release."""
    items = []
    for index, instrument in enumerate(config.instrument):
        if facts_fit(instrument.when, target, None):
            facts = {key: value for key, value in instrument.when.items() if key not in PROCESS_FACTS}
            label = instrument.phase or instrument.target.partition(":")[2]
            origin = f"instrument[{index}]"
            items.append(Item(instrument.target, label, facts, origin, instrument.required))
    for name in config.presets:
        preset = presets[name]
        version = installed(preset.distribution)
        if version is None:
            say(f"preset {name}: {preset.distribution} is not installed here")
            continue
        sites = preset.sites_for(version)
        if not sites:
            say(
                f"preset {name}: it knows {preset.distribution} {preset.ranges()}, but {version} is installed; name the method under instrument"
            )
        for site in sites:
            origin = f"preset {name}"
            items.append(Item(site.target, site.phase, site.when, origin, False, site.rank, site.refused, site.part))
    return list({(item.target, item.phase, item.refused, item.part): item for item in items}.values())


def export(session: Session) -> None:
    """Let child processes know the run and whose children they are. The configuration lies in the run's directory."""
    target = session.target
    if session.instruments is None or target.engine_rank is not None:
        return
    run_dir = session.layout.run_dir
    modules = os.path.join(session.layout.workers_dir, session.key + ".modules.json")
    parent = {
        "group": target.group,
        "roles": list(target.roles),
        "rank": target.rank,
        "world_size": target.world_size,
        "replica": target.replica,
        "modules": modules,
    }
    try:
        os.makedirs(session.layout.workers_dir, exist_ok=True)
        _write_new(os.path.join(run_dir, CONFIG_NAME), session.config.model_dump(mode="json", exclude_unset=True))
        _write_new(modules, sorted({item.module for item in session.instruments.items}))
    except OSError as error:
        session.say(f"child processes of an engine cannot be instrumented: {error}")
        return
    ours = {RUN_ENV: run_dir, PARENT_ENV: texts.dumps(parent), "PYTHONPATH": STARTUP}
    for name, value in join_env({name: os.environ[name] for name in ours if name in os.environ}, ours).items():
        _before.setdefault(name, os.environ.get(name))
        os.environ[name] = value


def watch(instruments: Instruments) -> None:
    """Put ``instruments`` into this process, which has no session yet."""
    global watching
    watching = instruments
    instruments.install()


def leave() -> None:
    """Take them out again; harmless when there are none."""
    global watching
    instruments, watching = watching, None
    if instruments is not None:
        instruments.uninstall()


def forget() -> None:
    """Undo everything of this module in this process."""
    for name, value in _before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _before.clear()
    voice.forget()
    leave()


def _write_new(path: str, data: object) -> None:
    """Write ``data`` as JSON in one step; a file that is there already stays."""
    if os.path.exists(path):
        return
    atomic.write(path, lambda file: file.write(texts.dumps(data, default=str)))
