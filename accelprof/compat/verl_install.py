"""Sends verl's own profiler, timers and marks through accelprof, in this process."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from accelprof.compat import verl as ours
from accelprof.compat import verl_marks
from accelprof.compat.forms import by_form
from accelprof.compat.patching import Patches, check_version
from accelprof.config.dialects.verl_keys import NOT_PROFILERS
from accelprof.errors import text_of

VERSION = "0.9"
PROFILE = "verl.utils.profiler.profile"
#: modules that define timers and marks of their own, of which verl picks one set; not all import everywhere
DEFINING = (
    "verl.utils.profiler.profile",
    "verl.utils.profiler.performance",
    "verl.utils.profiler.nvtx_profile",
    "verl.utils.profiler.mstx_profile",
    "verl.utils.profiler.empty_annotations",
)
#: what verl's wrapper of an annotated method asks of the profiler
CHECKS = ("check_enable", "check_this_step", "check_this_rank")
#: whether verl goes through us now; classes that were decorated at one time are asked at another
_on = [False]
FUNCTIONS = tuple(name for name in verl_marks.__all__ if name != "GPUMemoryLogger")


class _Absorbed:
    """Stands where verl keeps the profiler of one tool: everything goes to the profiler it belongs to."""

    def __init__(self, profiler: object) -> None:
        self.profiler = profiler
        self._made: dict[Any, Any] = {}

    def start(self, **_: object) -> None:
        """The profiler itself has begun already."""

    def stop(self) -> None:
        """The profiler itself has ended already."""

    def step(self) -> None:
        """Schedules count phases by themselves."""

    def annotate(
        self,
        message: str | None = None,
        color: str | None = None,
        domain: str | None = None,
        category: str | None = None,
        **kwargs: Any,
    ) -> Callable[[Any], object]:
        """For methods that verl decorated before it went through us."""

        def decorator(function: Any) -> Any:
            if function not in self._made:
                role, over = kwargs.get("role"), bool(kwargs.get("scheduled"))
                self._made[function] = ours.annotated(function, message, color, domain, category, role, over)
            return self._made[function]

        return decorator


def install(patches: Patches, any_version: bool) -> None:
    """See :func:`accelprof.compat.install`."""
    check_version("verl", VERSION, any_version)
    # the package first, as it picks a set of marks while it is imported
    package = importlib.import_module("verl.utils.profiler")
    profile = importlib.import_module(PROFILE)
    cls = profile.DistProfiler
    changed = ("__init__", "start", "stop", "step", "annotate", *CHECKS)
    theirs: dict[str, Any] = {name: vars(cls)[name] for name in changed}
    taken: dict[int, tuple[Any, Any]] = {}
    _on[0] = True

    def take(profiler: Any, before: Any) -> None:
        taken[id(profiler)] = (profiler, before)
        profiler._impl = _Absorbed(profiler)
        ours.profilers.add(profiler)

    @functools.wraps(theirs["__init__"])
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        rank, config, tool_config, prefix = _arguments(*args, **kwargs)
        if getattr(config, "tool", None) in NOT_PROFILERS:
            theirs["__init__"](self, *args, **kwargs)
            return
        ours.prepare(self, rank, config, tool_config, prefix)
        take(self, functools.partial(theirs["__init__"], self, *args, **kwargs))

    def left_alone(self: object) -> bool:
        return getattr(self, "_tool", None) in NOT_PROFILERS

    @functools.wraps(theirs["start"])
    def start(self: Any, **kwargs: object) -> Any:
        if left_alone(self):
            return theirs["start"](self, **kwargs)
        if not isinstance(getattr(self, "_impl", None), _Absorbed):
            take(self, self._impl)  # made before verl went through us
        return ours.start(self, **kwargs)

    @functools.wraps(theirs["stop"])
    def stop(self: Any, run_command: bool = True) -> Any:
        if left_alone(self):
            return theirs["stop"](self, run_command)
        # the reports first: the finish command takes away what lies in save_path
        ours.stop(self, run_command=False)
        if self._enable and self._this_rank and self._relocate_results and self._tool == "nsys":
            _relocate(self)
        return ours.finish(self) if self._enable and run_command else None

    @functools.wraps(theirs["step"])
    def step(self: object) -> Any:
        return theirs["step"](self) if left_alone(self) else None

    original_annotate = theirs["annotate"].__func__

    @functools.wraps(original_annotate)
    def annotate(
        cls: Any,
        message: str | None = None,
        color: str | None = None,
        domain: str | None = None,
        category: str | None = None,
        **kwargs: Any,
    ) -> object:
        def decorator(function: Any) -> Any:
            plain = original_annotate(cls, message, color, domain, category, **kwargs)(function)
            if not callable(function):
                return plain  # decorated without parentheses, the function is taken for the message
            role, over = kwargs.get("role"), bool(kwargs.get("scheduled"))
            mine = _with_state(ours.annotated(function, message, color, domain, category, role, over), role)

            def choose(instance: object) -> Any:
                profiler = getattr(instance, "profiler", None)
                return mine if _on[0] and not (profiler is not None and left_alone(profiler)) else plain

            return by_form(function, choose)

        return decorator

    wrappers = frozenset(_nested(original_annotate.__code__))

    def asked(check: Any) -> Any:
        """``check``, which says yes to verl's wrapper of a method decorated before: whether it takes part is ours to say."""

        @functools.wraps(check)
        def answer(self: Any) -> Any:
            if sys._getframe(1).f_code not in wrappers or left_alone(self):
                return check(self)
            if not isinstance(getattr(self, "_impl", None), _Absorbed):
                take(self, self._impl)
            return True

        return answer

    for name, value in (("__init__", init), ("start", start), ("stop", stop), ("step", step)):
        patches.set(cls, name, value)
    made: Any = annotate
    patches.set(cls, "annotate", classmethod(made))
    for name in CHECKS:
        patches.set(cls, name, asked(theirs[name]))
    patches.then(lambda: _give_back(taken))
    for name in FUNCTIONS:
        # the set that verl has picked comes first and becomes ours itself; of the others each has one like it
        places = [module for module in _defining() if _defines(module, name)]
        for module in sorted(places, key=lambda module: vars(module)[name] is not getattr(package, name, None)):
            patches.function(module, name, getattr(verl_marks, name))
    logger = importlib.import_module("verl.utils.profiler.performance").GPUMemoryLogger
    patches.set(logger, "__call__", _logged)


def _relocate(profiler: Any) -> None:
    """verl's driver had Ray wrap the worker, so reports lie in Ray's directory; verl's own code moves them."""
    try:
        module = importlib.import_module("verl.utils.profiler.nvtx_profile")
        mover = object.__new__(module.NsightSystemsProfiler)  # its method needs nothing that a constructor sets
        mover.relocate_results(
            profiler.config.save_path, rank=profiler.rank, save_file_prefix=profiler.save_file_prefix
        )
    except Exception as error:  # noqa: BLE001 - said once; the reports stay where Ray put them
        ours.process.voice.say(f"reports of nsys stay in Ray's directory: {text_of(error)}")


def _arguments(
    rank: int, config: object = None, tool_config: object = None, save_file_prefix: str | None = None, **_: object
) -> tuple[int, Any, Any, str | None]:
    return rank, config, tool_config, save_file_prefix


def _nested(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _nested(constant)


def _give_back(taken: dict[int, tuple[Any, Any]]) -> None:
    _on[0] = False
    ours.process.release()
    for profiler, before in taken.values():
        profiler._this_step = False
        ours.profilers.discard(profiler)
        if not callable(before):
            profiler._impl = before
            continue
        try:
            before()
        except Exception as error:  # noqa: BLE001 - its tool may be missing here; the worker goes on unprofiled
            profiler._impl = None
            ours.process.voice.say(f"verl's own profiler cannot be made again: {text_of(error)}")
    taken.clear()


def _defining() -> list[Any]:
    found = []
    for name in DEFINING:
        # those of vendors import their vendor's package; verl has imported what it uses
        if name in sys.modules:
            found.append(sys.modules[name])
    return found


def _defines(module: Any, name: str) -> bool:
    return callable(vars(module).get(name)) and vars(module)[name].__module__ == module.__name__


def _with_state(function: Any, role: str | None) -> Any:
    """verl's own state timeline goes on while accelprof marks the phase."""
    import inspect

    if (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    ):
        return function
    insight = getattr(sys.modules.get("verl.utils.tracking"), "RLInsightLogger", None)
    if insight is None:
        return function

    @functools.wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        profiler = getattr(self, "profiler", None)
        state = (
            contextlib.nullcontext()
            if profiler is None
            else insight.trace_state(role or function.__qualname__, state_lane_id=f"rank_{profiler.rank}")
        )
        with state:
            return function(self, *args, **kwargs)

    return wrapper


def _logged(self: Any, decorated_function: Any) -> object:
    return verl_marks.GPUMemoryLogger(self.role, self.logger, self.level, self.log_only_rank_0)(decorated_function)
