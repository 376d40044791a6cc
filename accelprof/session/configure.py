"""``configure``: a configuration and an identity become the process's session. ``reset`` undoes all of it."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from accelprof.catalogue import Catalogue, get_catalogue, reset_catalogue, unlock_after_fork
from accelprof.contracts import reasons
from accelprof.contracts.names import TIMELINE_TOOL
from accelprof.contracts.targets import CONFIG_NAME, RUN_ENV, UNSET_ENV, WRAPPED_ENV, Assignment, Target
from accelprof.contracts.tool import Tool, ToolContext
from accelprof.environment import without
from accelprof.errors import (
    AccelprofError,
    CaptureError,
    ConfigError,
    Problem,
    UnavailableError,
    UserError,
    failures,
    text_of,
)
from accelprof.output.layout import Layout, claim_run, job_token
from accelprof.planning.kept import keeps
from accelprof.session import ending
from accelprof.session.identity import from_environment, host_name, number_of
from accelprof.session.session import Session
from accelprof.timing import metrics
from accelprof.timing.compiled import hide
from accelprof.timing.gate import gate

if TYPE_CHECKING:
    from accelprof.config.model import Config
    from accelprof.contracts.backend import Backend
    from accelprof.planning.plan import Plan
    from accelprof.tools.trace import TraceTool

log = logging.getLogger("accelprof")

DEFAULT_GROUP = "workers"

_environment: dict[str, str] = {}
#: what else :func:`reset` calls: of parts that are loaded where they are needed alone
undone: set[Callable[[], None]] = set()
_lock = threading.RLock()


def configure(
    config: Any = None,
    *,
    group: str | None = None,
    role: str | Sequence[str] | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    replica: int | None = None,
    accelerator: str | None = None,
    node: str | None = None,
    run_dir: str | None = None,
    has_devices: bool | None = None,
    engine_rank: int | None = None,
    assignment: Assignment | None = None,
    **values: Any,
) -> Session:
    """Make this process's session.

    Args:
        config: path, mapping, ``DictConfig``, ``Config``; ``None`` takes the run that ``ACCELPROF_RUN`` names, else defaults.
        group: worker group; ``workers`` when nobody says.
        role: role, or roles that share this process. Called again with another role of the same group, the session
            becomes the union.
        rank, world_size: as the framework numbers them; else from the launcher's environment, else unknown.
        replica: engine replica or data-parallel copy.
        accelerator: type or alias; else ``ACCELPROF_ACCELERATOR``, the configuration, the highest probe.
        node: node name; else the host name.
        run_dir: directory of the run, when a controller made it already.
        engine_rank: in a child process of an engine, its rank within the engine; the rest is then its parent's.
        assignment: what the controller's plan gives this process; without it the process decides for itself.
        **values: configuration keys as keywords (``steps=[2]``).

    Raises:
        ConfigError, PluginError: the configuration is wrong. Failures of tools and disks never raise here unless
            ``on_error: raise``.
    """
    catalogue = get_catalogue()
    with _lock:
        launched = False
        if run_dir is None:
            config, run_dir = of_launcher(config)
            launched = run_dir is not None
        resolved = catalogue.load(config, **values).config
        identity = from_environment(os.environ)
        told = catalogue.host.first("accelprof_worker_identity", env=dict(os.environ)) or {}
        for name, value in (("group", group), ("node", node), ("accelerator", accelerator)):
            _text(name, value)
        roles = (role,) if isinstance(role, str) else tuple(role or ())
        for one in roles:
            _text("role", one)
        if not roles and told.get("role"):
            roles = (str(told["role"]),)
        target = Target(
            group=group or told.get("group") or DEFAULT_GROUP,
            roles=roles,
            rank=number_of("rank", rank, told.get("rank"), identity.rank),
            world_size=number_of("world_size", world_size, told.get("world_size"), identity.world_size),
            replica=number_of("replica", replica, told.get("replica")),
            node=node or host_name(),
            engine_rank=number_of("engine_rank", engine_rank),
        )
        current: Session | None = gate.session
        if current is not None and not current.closed:
            target = _joined(current, target, resolved)
            if target == current.target:
                return current
            if current.windows:
                if current.widen(_planned(catalogue, resolved, target, assignment, run_dir)[0]):
                    return current
                raise UserError(
                    f"role {roles} joins {current.target.label} after its first window; configure all roles of a process before the first step"
                )
            current.close(reasons.JOINED)
        alone = assignment is None
        assignment, plan = _planned(catalogue, resolved, target, assignment, run_dir)
        detected = _detect(catalogue, accelerator, resolved)
        assignment = _with_devices(assignment, detected.name, has_devices, detected)
        launched = launched and engine_rank is None and (assignment.selected or resolved.exports)
        session = _make_session(catalogue, resolved, assignment, plan, detected, run_dir, launched)
        # a controller says it once, for all workers of the group
        if alone and plan is not None and not assignment.selected and (lack := plan.lacks_role(target)):
            session.say(lack)
        for text in identity.problems if rank is None and told.get("rank") is None else ():
            session.say(text)
        _record(session)
        gate.take(session)
        _install()
        _instrument(session)
        hide()
        for note in assignment.notes:
            log.info("accelprof %s: %s", target.label, note)
        session.start()
        _listen(session)
        return session


def of_launcher(config: Any) -> tuple[Any, str | None]:
    """Where no configuration is given, the one of the run that ``accelprof run`` started, and its directory."""
    run_dir = os.environ.get(RUN_ENV) if config is None else None
    if not run_dir:
        return config, None
    stored = os.path.join(run_dir, CONFIG_NAME)
    return stored if os.path.exists(stored) else None, run_dir


def current_session() -> Session | None:
    """The session of this process, or ``None``."""
    session: Session | None = gate.session
    return session if session is not None and not session.closed else None


def reset() -> None:
    """Undo everything ``configure`` did: session closed, handlers removed, timings and catalogue forgotten."""
    with _lock:
        session = gate.session
        if session is not None:
            try:
                session.close(reasons.RESET)
            except AccelprofError as error:  # on_error: raise; what is undone here is undone all the same
                log.warning("accelprof: %s", error)
        gate.release()
        for undo in tuple(undone):  # a thread of an engine may add to them
            undo()
        undone.clear()
        _uninstall()
        metrics.forget_all()
        reset_catalogue()


def _planned(
    catalogue: Catalogue, config: Config, target: Target, given: Assignment | None, run_dir: str | None
) -> tuple[Assignment, Plan | None]:
    """What this process does, and the plan where this process made one, with its tools.

    What the controller gave is taken as it is, unless this process knows of itself what the plan did not (its rank, its
    node where rules choose by node). A process of a run that somebody else started assigns itself by that run's
    configuration, which is decided; one that is on its own decides.
    """
    if given is not None and _is_of(given.target, target, config):
        return replace(given, target=target), None
    decided = run_dir is not None or given is not None
    plan = catalogue.plan(config, decided=decided)
    if not decided:
        catalogue.event("accelprof_plan_ready", plan=plan)
    return plan.assign(target), plan


def _is_of(planned: Target, own: Target, config: Config) -> bool:
    facts = ["group", "roles", "rank", "world_size", "replica", "engine_rank"]
    if config.nodes is not None or any(
        rule.nodes is not None for rules in (config.groups or {}).values() for rule in rules
    ):
        facts.append("node")
    return all(getattr(planned, fact) == getattr(own, fact) for fact in facts)


def _detect(catalogue: Catalogue, accelerator: str | None, config: Config) -> Backend:
    try:
        return catalogue.detect(accelerator, config.accelerator).backend
    except UnavailableError as error:
        if config.on_error == "raise":
            raise
        log.warning("accelprof: %s; ranges go nowhere in this process, timings and the timeline are kept", error)
        return catalogue.backend("cpu")


def _with_devices(assignment: Assignment, accelerator: str, has_devices: bool | None, backend: Backend) -> Assignment:
    """The target with what is known here: its accelerator, and whether it sees a device."""
    if has_devices is None and assignment.selected:
        try:
            has_devices = bool(backend.devices())
        except failures() as error:  # a vendor's enumeration may raise anything; unknown then
            log.info("accelprof: devices of %s cannot be listed: %s", accelerator, error)
    return replace(assignment, target=replace(assignment.target, accelerator=accelerator, has_devices=has_devices))


def _joined(current: Session, target: Target, config: Config) -> Target:
    """The target of a second ``configure`` in one process: the union of roles of the same worker."""
    old = current.target
    if (target.group, target.rank, target.replica) != (old.group, old.rank, old.replica):
        raise UserError(
            f"this process has a session as {old.label} already and is configured again as {target.label}; call accelprof.reset() first, or give colocated roles one group"
        )
    if config != current.config:
        raise UserError(
            f"{old.label} is configured a second time with another configuration; call accelprof.reset() first"
        )
    return replace(old, roles=tuple(dict.fromkeys((*old.roles, *target.roles))))


def _make_session(
    catalogue: Catalogue,
    config: Config,
    assignment: Assignment,
    plan: Plan | None,
    backend: Backend,
    run_dir: str | None,
    launched: bool,
) -> Session:
    host = host_name()
    problem = ""
    own = run_dir is None and keeps(config, assignment, exports=True)
    if own:
        try:
            run_dir = claim_run(config.output_dir, config.run, _job(), host)
        except (OSError, ConfigError) as error:
            problem = f"the output directory {config.output_dir!r} cannot be made: {error}"
            if config.on_error == "raise":
                raise
    layout = Layout(os.path.abspath(run_dir or config.output_dir))
    tools: list[Tool] = []
    problems = [problem] if problem else []
    trace: TraceTool | None = None
    if assignment.selected and not problem:
        wanted = [(assignment.tool, assignment.options)] if assignment.tool else []
        made = [use.tool for use in plan.uses_of(assignment)] if plan is not None else []
        for index, (name, options) in enumerate([*wanted, *assignment.also]):
            try:
                tools.append((made[index] if made else None) or catalogue.make_tool(name, options))
            except AccelprofError as error:
                problems.append(f"tool {name} cannot be used here: {error}")
        if assignment.timeline or assignment.tool == TIMELINE_TOOL:
            from accelprof.tools.trace import TraceTool

            trace = catalogue.make(TraceTool, config.tools.get(TIMELINE_TOOL))
            tools = [tool for tool in tools if tool.name != TIMELINE_TOOL]
    if problem:
        assignment = replace(assignment, selected=False)
    kept = (own and not problem) or launched
    session = Session(config, assignment, backend, [], trace, layout, host, catalogue, kept)
    if own:
        from accelprof.session.ownrun import OwnRun

        session.own_run = session.course.writer = OwnRun(session.captures, config, catalogue, plan, run_dir, problem)
    elif launched:
        from accelprof.session.ownrun import StepsOfLaunched

        session.course.writer = StepsOfLaunched(session.captures)
    for text in problems:
        session.say(text)
    context = ToolContext(
        assignment.target, assignment, backend, layout.target_dir(assignment.target), session.say, layout.run_dir
    )
    for tool in [*tools, *([trace] if trace is not None else [])]:
        try:
            tool.attach(context)
        except failures() as error:
            hint = _start_hint(tool, assignment, context.directory)
            session.say(f"tool {tool.name} cannot be used here: {text_of(error)}{hint}")
            if config.on_error == "raise":
                if hint or not isinstance(error, Exception):
                    raise CaptureError(f"{error}{hint}") from error
                raise
        else:
            if tool is not trace:
                session.tools.append(tool)
    if session.tools:
        _spare_children(session)
    return session


def _start_hint(tool: Tool, assignment: Assignment, directory: str) -> str:
    """How a worker that has roles only since it was attached would have been started under ``tool``; else empty."""
    target = assignment.target
    if not target.roles or os.environ.get(WRAPPED_ENV):
        return ""
    try:
        mode = tool.launch(assignment, directory).mode
    except failures():  # what kept the tool from being used is said already
        return ""
    roles = target.roles[0] if len(target.roles) == 1 else list(target.roles)
    return (
        ""
        if mode == "none"
        else f". A process is started for the roles it is planned with: options({target.group!r}, role={roles!r}) "
        "needs the role= that attach has"
    )


def _spare_children(session: Session) -> None:
    """Take what the launch put there for this process alone out of the environment that children inherit."""
    told = os.environ.get(UNSET_ENV)
    if not told:
        return
    try:
        unset: dict[str, str | None] = dict(json.loads(told))
    except (ValueError, TypeError) as error:  # at worst children are captured too
        session.say(f"{UNSET_ENV} is not what a launch writes, and children keep all variables: {text_of(error)}")
        return
    for name, ours in {**unset, UNSET_ENV: None}.items():
        present = os.environ.get(name)
        if present is None:
            continue
        rest = without(name, present, present if ours is None else ours)
        _environment.setdefault(name, present)
        if rest:
            os.environ[name] = rest
        else:
            del os.environ[name]


def _instrument(session: Session) -> None:
    """Put in what the configuration instruments here, and let child processes of an engine know the run."""
    config = session.config
    if not session.assignment.selected or not (config.instrument or config.presets):
        return
    from accelprof.session import children

    undone.add(children.forget)
    from accelprof.session.instrument import Instruments

    children.forget()
    items = children.items_for(config, session.catalogue.presets(), session.target, session.say)
    session.instruments = Instruments(items, session.say)
    session.instruments.install()
    children.export(session)


def _record(session: Session) -> None:
    """The flight recorder, in every process of a run whose configuration asks for one."""
    wanted = session.config.recorder
    if wanted is None or not session.config.records_always:
        return
    from accelprof.session.recorder import Recorder

    try:
        recorder = session.course.recorder = Recorder(session.captures, wanted)
    except OSError as error:
        session.say(f"the flight recorder cannot be had: {error}")
        return
    session.entrance.background = recorder.background


def _listen(session: Session) -> None:
    """Selected sessions hear requests for windows; see :mod:`accelprof.session.requests`."""
    if session.assignment.selected and not session.closed:
        from accelprof.session.requests import Requests

        session.requests = Requests(session.captures, session.demand, session.config.on_demand)
        session.requests.start()


def _text(name: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise ConfigError(Problem(name, "it is no text", value=value, allowed="text; None where it is not known"))


def _job() -> str:
    """What the processes of this job share: Ray's job where there is one, else what their launcher gave them."""
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        context = ray.get_runtime_context()
        return f"ray={context.gcs_address}:{context.get_job_id()}"
    return job_token(os.environ)


def _in_child() -> None:
    """A forked child is another process: it has no session and leaves the parent's files alone."""
    global _lock
    _lock = threading.RLock()  # one that another thread of the parent held would never be released here
    unlock_after_fork()
    session = gate.session
    gate.release()
    if session is not None:
        session.disown()


_fork_registered = False


def _install() -> None:
    global _fork_registered
    if not _fork_registered:
        os.register_at_fork(after_in_child=_in_child)
        os.register_at_fork(
            before=ending.before_fork, after_in_parent=ending.after_fork, after_in_child=ending.after_fork
        )
        _fork_registered = True
    ending.install()


def _uninstall() -> None:
    os.environ.update(_environment)
    _environment.clear()
    ending.uninstall()


def plain_target(target: Target) -> Mapping[str, Any]:
    """Keyword arguments of ``configure`` that name ``target`` again in another process."""
    return {
        "group": target.group,
        "role": list(target.roles),
        "rank": target.rank,
        "world_size": target.world_size,
        "replica": target.replica,
        "node": target.node,
    }
