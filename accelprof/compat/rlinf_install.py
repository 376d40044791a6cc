"""Sends RLinf's own timers, ranges and profiling windows through accelprof: in the driver its worker groups too."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
from collections.abc import Mapping
from typing import Any

from accelprof.compat import asked
from accelprof.compat import rlinf as ours
from accelprof.compat.forms import by_form
from accelprof.compat.patching import Patches, check_version, settle
from accelprof.config.door import plain
from accelprof.timing.ranges import profiling_range

VERSION = "0.3"
WORKER = "rlinf.scheduler.worker.worker"
GROUP = "rlinf.scheduler.worker.worker_group"
CLUSTER = "rlinf.scheduler.cluster.cluster"
ACCELERATOR = "rlinf.scheduler.hardware.accelerators.accelerator"
#: where releases keep it
TRACERS = (("rlinf.scheduler.tracing.tracer", "DistTracer"), ("rlinf.scheduler.manager.tracer", "Tracer"))
RUNNER = "rlinf.runners.embodied_runner"
SCOPED = "rlinf.utils.distributed"


def install(patches: Patches, any_version: bool) -> None:
    """See :func:`accelprof.compat.install`."""
    check_version("rlinf", VERSION, any_version)
    importlib.import_module("rlinf.scheduler")
    _worker(patches, importlib.import_module(WORKER).Worker)
    _accelerator(patches, importlib.import_module(ACCELERATOR))
    _tracer(patches)
    _scoped_timer(patches)
    driver = _Driver()
    _driver(patches, driver)
    patches.then(driver.close)
    patches.then(ours.process.release)


# --- in the workers -----------------------------------------------------------------------------------------------------


#: whether RLinf goes through us now; classes that were decorated at one time are asked at another
_on = [False]


def _worker(patches: Patches, cls: Any) -> None:
    _on[0] = True
    patches.then(lambda: _on.__setitem__(0, False))
    theirs = cls.timer

    @functools.wraps(theirs)
    def timer(tag: Any = None, trace: bool = True) -> Any:
        def decorator(function: Any) -> Any:
            mine, plainly = ours.timer(tag, trace)(function), theirs(tag)(function)
            return by_form(function, lambda _: mine if _on[0] else plainly)

        return decorator

    @functools.wraps(cls.worker_timer)
    def worker_timer(self: object, tag: str | None = None, trace: bool = True) -> object:
        return ours.worker_timer(self, tag or sys._getframe(1).f_code.co_name, trace)

    patches.set(cls, "timer", staticmethod(timer) if isinstance(vars(cls)["timer"], staticmethod) else timer)
    patches.set(cls, "worker_timer", worker_timer)
    for name in ("pop_execution_time", "pop_execution_times", "start_profile", "stop_profile"):
        patches.set(cls, name, _like(vars(cls).get(name), getattr(ours.Worker, name)))


def _like(theirs: Any, mine: Any) -> object:
    """``mine`` with the name, text and signature of ``theirs``: worker groups are made from what a worker's methods look like."""
    if theirs is None:
        return mine

    @functools.wraps(theirs)
    def called(*args: object, **kwargs: object) -> object:
        return mine(*args, **kwargs)

    return called


def _accelerator(patches: Patches, module: Any) -> None:
    util, base = module.AcceleratorUtil, module.AcceleratorManager
    for name in ("start_profiling", "stop_profiling"):
        patches.set(util, name, staticmethod(getattr(ours.AcceleratorUtil, name)))
    patches.set(util, "profiling_range", staticmethod(_profiling_range))
    patches.set(util, "is_profiling_active", staticmethod(ours.AcceleratorUtil.is_profiling_active))
    # the managers as a whole, so that whoever asks one of them gets the answer of whoever told another
    calls: dict[str, Any] = {
        "start_profiling": _manager_starts,
        "stop_profiling": _manager_stops,
        "is_profiling_active": ours.AcceleratorUtil.is_profiling_active,
        "profiling_range": _manager_range,
    }
    for manager in {base, *base.manager_register.values()}:
        for name, call in calls.items():
            if name in vars(manager):
                patches.set(manager, name, staticmethod(call))


def _manager_starts(step_idx: int | None = None) -> None:
    ours.AcceleratorUtil.start_profiling(None, step_idx)


def _manager_stops() -> None:
    ours.AcceleratorUtil.stop_profiling(None)


def _manager_range(label: str, color: str | None = None, domain: str | None = None) -> object:
    return ours.AcceleratorUtil.profiling_range(None, label, color, domain)


def _tracer(patches: Patches) -> None:
    """RLinf 0.4's tracer, where there is one: its spans go into our timeline, and nothing is sent to its server."""
    for place, name in TRACERS:
        module = sys.modules.get(place)
        cls = getattr(module, name, None)
        for method in ("trace_begin", "trace_end", "trace_span", "trace_func"):
            if cls is not None and method in vars(cls):
                patches.set(cls, method, vars(ours.Tracer)[method])


def _scoped_timer(patches: Patches) -> None:
    """The runners' timer: its seconds as they are, and a range. Where a release sends spans to its tracer, the range is instead of them."""

    def imported(module: Any) -> None:
        cls = module.ScopedTimer
        theirs_init, theirs_call = cls.__init__, cls.__call__
        known = inspect.signature(theirs_init).parameters.get("trace")
        default = True if known is None or known.default is inspect.Parameter.empty else bool(known.default)
        untraced: dict[str, Any] = {} if known is None else {"trace": False}

        @functools.wraps(theirs_init)
        def init(self: Any, *args: object, trace: bool = default, **kwargs: object) -> None:
            theirs_init(self, *args, **untraced, **kwargs)
            if not trace:
                self._accelprof_untraced = True

        @contextlib.contextmanager
        def call(self: object, name: str, trace_args: object = None) -> Any:
            untraced_block = getattr(self, "_accelprof_untraced", False)
            with contextlib.nullcontext() if untraced_block else profiling_range(name), theirs_call(self, name):
                yield

        patches.set(cls, "__init__", init)
        patches.set(cls, "__call__", functools.wraps(theirs_call)(call))

    patches.once_imported(SCOPED, imported)


def _profiling_range(
    accelerator_type: object, label: str, color: str | None = None, domain: str | None = None
) -> object:
    if sys._getframe(1).f_globals.get("__name__") == WORKER:
        return contextlib.nullcontext()  # RLinf's timer, whose worker_timer has made the range already
    return ours.AcceleratorUtil.profiling_range(accelerator_type, label, color, domain)


# --- in the driver ------------------------------------------------------------------------------------------------------


class _Driver:
    """The controller of an RLinf run, made when its cluster is given a profiling section."""

    def __init__(self) -> None:
        self.controller: Any = None
        self.given: dict[str, dict[str, Any]] = {}
        self.env: Mapping[str, str] = {}

    def begin(self, cluster_cfg: object) -> None:
        """Read the section as it was written; RLinf has added options of its own to the parsed one."""
        settle()
        section = plain(cluster_cfg)
        if self.controller is not None or not isinstance(section, Mapping):
            return
        if not {"profiling", "tracer"} & section.keys():
            return
        from accelprof.cluster import Controller

        self.controller = Controller({"cluster": dict(section)})
        self.controller.closes_at_exit = True  # RLinf's drivers have no line that would close it

    def options(self, worker_name: str, interpreter: str) -> dict[str, Any]:
        """``runtime_env`` of one worker as the plan wraps it; asked twice per worker."""
        if worker_name not in self.given:
            group, rank = _address(worker_name)
            accelerator = self.env.get("ACCELERATOR_TYPE", ours.AcceleratorType.NO_ACCEL.value)
            options = self.controller.options(
                group,
                rank=rank,
                has_devices=accelerator != ours.AcceleratorType.NO_ACCEL.value,
                base={"runtime_env": {"py_executable": interpreter}},
            )
            self.given[worker_name] = options.get("runtime_env", {})
        return self.given[worker_name]

    def attach(self, group: Any) -> None:
        """Give the workers of a group that was launched their sessions."""
        members = group.worker_info_list
        handles = [member.worker for member in members]
        if handles:
            ranks = [member.rank for member in members]
            self.controller.attach(group.worker_group_name, handles, ranks=ranks, world_size=len(handles))

    def close(self) -> None:
        """Close windows, wait for reports, write the manifest."""
        controller, self.controller = self.controller, None
        self.given.clear()
        if controller is not None:
            controller.close()


def _address(worker_name: str) -> tuple[str, int | None]:
    address = importlib.import_module("rlinf.scheduler.manager").WorkerAddress.from_name(worker_name)
    return address.root_group_name, address.rank_path[-1] if address.rank_path else None


def _driver(patches: Patches, driver: _Driver) -> None:
    cluster, group = importlib.import_module(CLUSTER).Cluster, importlib.import_module(GROUP).WorkerGroup
    theirs_init, theirs_allocate, theirs_launch = cluster.__init__, cluster.allocate, group.launch

    @functools.wraps(theirs_init)
    def init(self: object, *args: object, **kwargs: object) -> None:
        theirs_init(self, *args, **kwargs)
        config = kwargs.get("cluster_cfg", args[1] if len(args) > 1 else None)
        if config is not None:
            driver.begin(config)

    @functools.wraps(theirs_allocate)
    def allocate(self: object, *args: object, **kwargs: Any) -> object:
        env = {**(kwargs.get("env_vars") or {}), **asked.environment({}, "rlinf")}
        driver.env = env
        if "env_vars" in kwargs:
            kwargs["env_vars"] = env
        return theirs_allocate(self, *args, **kwargs)

    theirs_modify = vars(cluster)["modify_profile_context"].__func__
    theirs_env = vars(cluster)["get_profiling_env_vars_for_worker"].__func__

    @functools.wraps(theirs_modify)
    def modify_profile_context(
        cls: object, python_interpreter_path: str, worker_name: str, profiling_cfg: object
    ) -> str:
        if driver.controller is None:
            return str(theirs_modify(cls, python_interpreter_path, worker_name, profiling_cfg))
        runtime_env = driver.options(worker_name, python_interpreter_path)
        return str(runtime_env.get("py_executable", python_interpreter_path))

    @functools.wraps(theirs_env)
    def environment(cls: object, worker_name: str, profiling_cfg: object) -> dict[str, str]:
        if driver.controller is None:
            return dict(theirs_env(cls, worker_name, profiling_cfg))
        return dict(driver.given.get(worker_name, {}).get("env_vars", {}))

    @functools.wraps(theirs_launch)
    def launch(self: object, *args: object, **kwargs: object) -> Any:
        launched = theirs_launch(self, *args, **kwargs)
        if driver.controller is not None:
            driver.attach(self)
        return launched

    modify: Any = modify_profile_context
    variables: Any = environment
    patches.set(cluster, "__init__", init)
    patches.set(cluster, "allocate", allocate)
    patches.set(cluster, "modify_profile_context", classmethod(modify))
    patches.set(cluster, "get_profiling_env_vars_for_worker", classmethod(variables))
    patches.set(group, "launch", launch)
    _runner(patches, driver)


def _runner(patches: Patches, driver: _Driver) -> None:
    """The runner tells three groups; the controller tells every selected one, channel workers too."""

    def imported(module: Any) -> None:
        cls = module.EmbodiedRunner
        opens, closes = cls._open_profiling_window, cls._close_profiling_window
        opened: list[int] = []

        @functools.wraps(opens)
        def open_window(self: object, step_idx: int) -> None:
            if driver.controller is not None:
                opened[:] = [step_idx]
                driver.controller.begin_step(step_idx)
            opens(self, step_idx)

        @functools.wraps(closes)
        def close_window(self: object, step_idx: int) -> None:
            closes(self, step_idx)
            if driver.controller is not None:
                # later releases open once for steps that follow one another, and close at the last: what was opened is closed
                driver.controller.end_step(opened.pop() if opened else step_idx)

        patches.set(cls, "_open_profiling_window", open_window)
        patches.set(cls, "_close_profiling_window", close_window)

    # workers never import it, and its packages are not everywhere; a driver may be in the middle of importing it
    patches.once_imported(RUNNER, imported)
