"""Instruments inside the processes that an engine starts: they inherit the environment, and nothing is edited.

``install`` is what engines call through their plug-in entry points (``vllm.general_plugins``, ``sglang.srt.plugins``), and
what our start-up module calls elsewhere. It only watches imports; the process becomes a worker of the run, with a
session, at the first use of an instrumented method, when the instance tells its rank.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelprof.config.model import Config
from accelprof.contracts.targets import PARENT_ENV, Target
from accelprof.planning.sampling import facts_fit
from accelprof.session.instrument import PROCESS_FACTS, Instruments, Item, attribute, known, rank_fits
from accelprof.timing.gate import gate

if TYPE_CHECKING:
    from accelprof.session.session import Session

log = logging.getLogger("accelprof")
STARTUP = str(Path(__file__).with_name("startup"))

_lazy: Instruments | None = None
_said: set[str] = set()
_before: dict[str, str | None] = {}


def items_for(config: Config, presets: Mapping[str, Any], target: Target, report: Callable[[str], None]) -> list[Item]:
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
            report(f"preset {name}: {preset.distribution} is not installed here")
            continue
        sites = preset.sites_for(version)
        if not sites:
            report(
                f"preset {name}: it knows {preset.distribution} {preset.ranges()}, but {version} is installed; name the method under instrument"
            )
        for site in sites:
            origin = f"preset {name}"
            items.append(Item(site.target, site.phase, site.when, origin, False, site.rank, site.refused, site.part))
    return list({(item.target, item.phase, item.refused, item.part): item for item in items}.values())


def installed(distribution: str) -> str | None:
    """Installed release of a distribution, or ``None``."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


# --- in the worker that starts an engine ----------------------------------------------------------------------------------


def export(session: Session) -> None:
    """Let child processes know the run and whose children they are. The configuration lies in the run's directory."""
    from accelprof.session.configure import CONFIG_NAME, RUN_ENV

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
    paths = [STARTUP, *(p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != STARTUP)]
    for name, value in (
        (RUN_ENV, run_dir),
        (PARENT_ENV, json.dumps(parent)),
        ("PYTHONPATH", os.pathsep.join(paths)),
    ):
        _before.setdefault(name, os.environ.get(name))
        os.environ[name] = value


def forget() -> None:
    """Undo :func:`export` and :func:`install` in this process."""
    global _lazy
    for name, value in _before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _before.clear()
    _said.clear()
    lazy, _lazy = _lazy, None
    if lazy is not None:
        lazy.uninstall()


def _write_new(path: str, data: Any) -> None:
    """Write ``data`` as JSON in one step; a file that is there already stays."""
    if os.path.exists(path):
        return
    temporary = f"{path}.{os.getpid()}.part"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(data, file, default=str)
    os.replace(temporary, path)


# --- in the child ---------------------------------------------------------------------------------------------------------


def install() -> None:
    """Watch for the methods that the run instruments. Cheap, harmless to call twice, never raises.

    Does nothing in a process that has a session of its own, or whose environment names no run.
    """
    global _lazy
    from accelprof.session.configure import CONFIG_NAME, RUN_ENV

    run_dir, parent = os.environ.get(RUN_ENV), os.environ.get(PARENT_ENV)
    if not run_dir or not parent or _lazy is not None or (gate.session is not None and not gate.session.closed):
        return
    try:
        from accelprof.catalogue import get_registry

        told = json.loads(parent)
        registry = get_registry()
        config = registry.load(os.path.join(run_dir, CONFIG_NAME)).config
        target = Target(told["group"], tuple(told["roles"]), told["rank"], told["world_size"], told["replica"])
        items = items_for(config, registry.presets(), target, _say)
        _lazy = Instruments(items, _say, lambda instance, item: _become_worker(instance, item, config, target))
        _lazy.install()
    except Exception as error:  # noqa: BLE001 - said once; an engine must start without its profiling
        _say(f"instruments cannot be put into this process: {type(error).__name__}: {error}")


def _become_worker(instance: Any, item: Item, config: Config, target: Target) -> None:
    """The first instrumented method is used: this process is a worker of the run, if its rank in the engine is selected."""
    global _lazy
    lazy, _lazy = _lazy, None
    try:
        if lazy is not None:
            lazy.uninstall()
        found = attribute(instance, item.rank) if item.rank else None
        rank = found if known(found) and isinstance(found, int) and not isinstance(found, bool) else None
        if rank is not None and not rank_fits(engine_ranks(config, item.module), rank):
            return
        from accelprof.session.configure import RUN_ENV, configure

        configure(
            config,
            run_dir=os.environ[RUN_ENV],
            group=target.group,
            role=target.roles,
            rank=target.rank,
            world_size=target.world_size,
            replica=target.replica,
            engine_rank=rank,
        )
    except Exception as error:  # noqa: BLE001 - said once; the engine's own call goes on
        _say(f"this engine process cannot join the run: {type(error).__name__}: {error}")


def engine_ranks(config: Config, module: str) -> Any:
    """Ranks within an engine that may open windows: ``engines.<engine>.ranks``, else rank 0."""
    package = module.partition(".")[0]
    options = config.engines.get(package) or config.engines.get(package.replace("_", "-")) or {}
    return options.get("ranks", 0)


def _say(message: str) -> None:
    if message not in _said:
        _said.add(message)
        log.warning("accelprof (engine process %d): %s", os.getpid(), message)
