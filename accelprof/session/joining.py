"""A child process of an engine joins the run: it inherits the environment, and nothing of the engine is edited.

``install`` is what engines call through their plug-in entry points (``vllm.general_plugins``, ``sglang.srt.plugins``), and
what our start-up module calls elsewhere. It only watches imports; the process becomes a worker of the run, with a
session, at the first use of an instrumented method, when the instance tells its rank.
"""

from __future__ import annotations

import json
import os

from accelprof.catalogue import get_catalogue
from accelprof.config.model import Config
from accelprof.contracts.targets import CONFIG_NAME, PARENT_ENV, RUN_ENV, Target
from accelprof.errors import failures, text_of
from accelprof.session import children
from accelprof.session.configure import configure, undone
from accelprof.session.instrument import Instruments, Item, attribute, known, rank_fits
from accelprof.timing.gate import gate


def install() -> None:
    """Watch for the methods that the run instruments. Cheap, harmless to call twice, never raises.

    Does nothing in a process that has a session of its own, or whose environment names no run.
    """
    run_dir, parent = os.environ.get(RUN_ENV), os.environ.get(PARENT_ENV)
    has_session = gate.session is not None and not gate.session.closed
    if not run_dir or not parent or children.watching is not None or has_session:
        return
    undone.add(children.forget)
    try:
        told = json.loads(parent)
        catalogue = get_catalogue()
        config = catalogue.load(os.path.join(run_dir, CONFIG_NAME)).config
        target = Target(told["group"], tuple(told["roles"]), told["rank"], told["world_size"], told["replica"])
        items = children.items_for(config, catalogue.presets(), target, children.voice.say)
        instruments = Instruments(
            items, children.voice.say, lambda instance, item: _join(instance, item, config, target)
        )
        children.watch(instruments)
    except failures() as error:  # said once; an engine must start without its profiling
        children.voice.say(f"instruments cannot be put into this process: {text_of(error)}")


def _join(instance: object, item: Item, config: Config, target: Target) -> None:
    """The first instrumented method is used: this process is a worker of the run, if its rank in the engine is selected."""
    try:
        children.leave()
        found = attribute(instance, item.rank) if item.rank else None
        rank = found if known(found) and isinstance(found, int) and not isinstance(found, bool) else None
        if rank is not None and not rank_fits(engine_ranks(config, item.module), rank):
            return
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
    except failures() as error:  # said once; the engine's own call goes on
        children.voice.say(f"this engine process cannot join the run: {text_of(error)}")


def engine_ranks(config: Config, module: str) -> object:
    """Ranks within an engine that may open windows: ``engines.<engine>.ranks``, else rank 0."""
    package = module.partition(".")[0]
    options = config.engines.get(package) or config.engines.get(package.replace("_", "-")) or {}
    return options.get("ranks", 0)
