"""The host of plug-ins: pluggy, with one difference. A plug-in that fails in a hook is named, and stops nobody.

Everything else is pluggy's own: hook wrappers of both styles, ``firstresult``, ``tryfirst`` and ``trylast``, the order of
calls, the check of arguments. What the answers mean (backends, tools, dialects, presets) is the catalogue's.
"""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pluggy

from accelprof.contracts import hookspecs
from accelprof.errors import PluginError, failures, nearest, text_of

ENTRY_POINTS = "accelprof"
#: asked once a plug-in, when it is registered; the answers are kept
BROUGHT = ("accelprof_backends", "accelprof_tools", "accelprof_exporters")
log = logging.getLogger("accelprof")


@dataclass(frozen=True, slots=True)
class Broken:
    """A plug-in, or one thing it brings, that cannot be used, and why."""

    name: str
    distribution: str
    reason: str


@dataclass
class Plugin:
    """One registered plug-in.

    Attributes:
        brought: what it answered itself to the hooks of :data:`BROUGHT`.
        failed: hooks in which it raised or answered what they do not take, with the reason.
    """

    name: str
    distribution: str
    module: object
    brought: dict[str, list[object]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


class Host:
    """A set of plug-ins and the calls of their hooks.

    Attributes:
        plugins: by name, in the order of registration.
        broken: everything that could not be taken in, with its reason, in order of discovery.
    """

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self.plugins: dict[str, Plugin] = {}
        self.broken: list[Broken] = []

    def add(self, module: object, name: str | None = None, *, distribution: str = "") -> Plugin:
        """Take in a module or object that implements hooks.

        Raises:
            PluginError: wrong hook arguments, an unknown hook, a plug-in or its name registered already. The reason is
                kept in ``broken`` too.
        """
        name = name or getattr(module, "__name__", None) or type(module).__name__
        for other in self.plugins.values():
            if other.name == name:
                origin = other.distribution or "this process"
                raise self.refuse(name, distribution, f"a plug-in named {name!r} is registered already (from {origin})")
            if other.module is module:
                raise self.refuse(name, distribution, f"it is registered already, as {other.name!r}")
        plugin = Plugin(name, distribution, module)
        try:
            self._manager.register(self._guarded(plugin), name)
        except (pluggy.PluginValidationError, PluginError, ValueError) as error:
            if self._manager.has_plugin(name):
                self._manager.unregister(name=name)
            raise self.refuse(name, distribution, one_line(str(error))) from None
        self.plugins[name] = plugin
        return plugin

    def remove(self, name: str) -> None:
        """Take a plug-in out again.

        Raises:
            PluginError: no plug-in has this name.
        """
        if self.plugins.pop(name, None) is None:
            raise PluginError(f"no plug-in is named {name!r}; registered: {', '.join(self.plugins)}")
        self._manager.unregister(name=name)

    def refuse(self, name: str, distribution: str, reason: str) -> PluginError:
        """Keep why a plug-in cannot be taken in; the error to raise."""
        self.keep(Broken(name, distribution, reason))
        return PluginError(f"plug-in {name!r}{f' of {distribution}' if distribution else ''} is refused: {reason}")

    def keep(self, broken: Broken) -> None:
        """Remember something that cannot be used, once."""
        if broken not in self.broken:
            self.broken.append(broken)

    # --- calling hooks ----------------------------------------------------------------------------------------------

    def call(self, hook: str, **arguments: object) -> list[Any]:
        """pluggy's call of a hook: the answers that are not ``None``, in pluggy's order (the last registered first)."""
        answers: list[Any] = getattr(self._manager.hook, hook)(**arguments)
        return answers

    def call_with(self, own: Callable[..., object], hook: str, **arguments: object) -> list[Any]:
        """The same with one more implementation for this call, ``own``: before those of plug-ins, inside their wrappers."""
        answers: list[Any] = getattr(self._manager.hook, hook).call_extra([own], arguments)
        return answers

    def first(self, hook: str, **arguments: object) -> Any:
        """pluggy's call of a ``firstresult`` hook: the first answer that is not ``None``, and nobody is asked after it."""
        return getattr(self._manager.hook, hook)(**arguments)

    def listens(self, hook: str) -> bool:
        """Whether any plug-in implements ``hook``."""
        return bool(getattr(self._manager.hook, hook).get_hookimpls())

    # --- inside -----------------------------------------------------------------------------------------------------

    def _guarded(self, plugin: Plugin) -> SimpleNamespace:
        """What pluggy gets in the plug-in's place: the same hooks with the same marks and arguments, each of which cannot fail."""
        hooks: dict[str, Callable[..., object]] = {}
        for attribute in dir(plugin.module):
            options = self._manager.parse_hookimpl_opts(plugin.module, attribute)
            if options is None:
                continue
            hook = options.get("specname") or attribute
            if not hasattr(hookspecs, hook) and not options.get("optionalhook"):
                known = sorted(name for name in vars(hookspecs) if name.startswith("accelprof_"))
                raise PluginError(
                    f"implements {hook!r}, which is no hook of accelprof; {nearest(hook, known) or 'known: ' + ', '.join(known)}"
                )
            function = getattr(plugin.module, attribute)
            guarded: Callable[..., object]
            if options.get("wrapper") and inspect.isgeneratorfunction(function):
                guarded = self._wrapper(plugin, hook, function)
            elif options.get("hookwrapper") and inspect.isgeneratorfunction(function):
                guarded = self._old_wrapper(plugin, hook, function)
            else:
                guarded = self._plain(plugin, hook, function)
            hooks[attribute] = hookspecs.hookimpl(**options)(guarded)
        return SimpleNamespace(**hooks)

    def _plain(self, plugin: Plugin, hook: str, function: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(function)
        def guarded(*arguments: object) -> object:
            if hook in plugin.brought:
                return plugin.brought[hook]
            try:
                answer = function(*arguments)
                if hook in BROUGHT:
                    if not isinstance(answer, (list, tuple)):
                        raise PluginError(f"{hook}() returned {type(answer).__name__}; a list or tuple is expected")
                    answer = plugin.brought[hook] = list(answer)
            except failures() as error:  # named; whatever a plug-in raises stops nobody
                if hook in BROUGHT:
                    plugin.failed[hook] = reason_of(error)  # whoever registers it refuses it with this reason
                else:
                    self._failed(plugin, hook, error)
                return None
            return answer

        return guarded

    def _wrapper(
        self, plugin: Plugin, hook: str, function: Callable[..., Generator[None, object, object]]
    ) -> Callable[..., Generator[None, object, object]]:
        """A wrapper that fails is left out: before its ``yield`` the others are called, after it their answer stands."""

        @functools.wraps(function)
        def guarded(*arguments: object) -> Generator[None, object, object]:
            steps = _begun(function, arguments)
            if isinstance(steps, BaseException):
                self._failed(plugin, hook, steps)
                return (yield)
            try:
                answer = yield
            except BaseException:  # an interrupt: nothing else comes through the guards
                _left(steps)
                raise
            try:
                steps.send(answer)
            except StopIteration as end:
                if _is_answer(hook, end.value):
                    return end.value
                self._failed(
                    plugin, hook, PluginError(f"the wrapper returned {type(end.value).__name__}; a list is expected")
                )
            except failures() as error:  # as above
                self._failed(plugin, hook, error)
            else:
                _left(steps)
                self._failed(plugin, hook, PluginError("the wrapper yielded more than once"))
            return answer

        return guarded

    def _old_wrapper(
        self, plugin: Plugin, hook: str, function: Callable[..., Generator[None, pluggy.Result[object], None]]
    ) -> Callable[..., Generator[None, pluggy.Result[object], None]]:
        """The same for ``hookwrapper=True``, whose ``yield`` gives a :class:`pluggy.Result`."""

        @functools.wraps(function)
        def guarded(*arguments: object) -> Generator[None, pluggy.Result[object], None]:
            steps = _begun(function, arguments)
            if isinstance(steps, BaseException):
                self._failed(plugin, hook, steps)
                yield
                return
            outcome = yield
            answer = outcome.get_result()
            failure: BaseException
            try:
                steps.send(outcome)
            except StopIteration:
                if outcome.exception is None and _is_answer(hook, outcome.get_result()):
                    return
                failure = outcome.exception or PluginError(
                    f"the wrapper forced {type(outcome.get_result()).__name__}; a list is expected"
                )
            except failures() as error:  # as above
                failure = error
            else:
                _left(steps)
                failure = PluginError("the wrapper yielded more than once")
            self._failed(plugin, hook, failure)
            outcome.force_result(answer)

        return guarded

    def _failed(self, plugin: Plugin, hook: str, error: BaseException) -> None:
        """An event's failure is logged once a plug-in and hook; what was asked for is kept with its reason."""
        known = hook in plugin.failed
        plugin.failed[hook] = reason_of(error)
        if hook not in hookspecs.EVENT_HOOKS:
            self.keep(Broken(plugin.name, plugin.distribution, f"{hook}: {reason_of(error)}"))
        elif not known:
            log.warning("accelprof: plug-in %r failed in %s: %s", plugin.name, hook, reason_of(error))


def _begun(
    function: Callable[..., Generator[None, Any, Any]], arguments: tuple[object, ...]
) -> Generator[None, object, Any] | BaseException:
    """The wrapper's generator at its first ``yield``, or why it did not get there."""
    try:
        steps = function(*arguments)
        next(steps)
    except StopIteration:
        return PluginError("the wrapper did not yield")
    except failures() as error:  # named by the caller
        return error
    return steps


def _left(steps: Generator[None, object, object]) -> None:
    """End a generator that yielded where it should have returned; one that goes on yielding is left to the collector."""
    try:
        steps.close()
    except failures() as error:  # it is being thrown away, and its plug-in is named by the caller
        log.debug("accelprof: a hook wrapper could not be ended: %s", error)


def _is_answer(hook: str, answer: object) -> bool:
    """Whether a wrapper gave what callers of ``hook`` take: a list, except where the first answer alone counts."""
    specification: Mapping[str, object] = getattr(getattr(hookspecs, hook, None), f"{hookspecs.PROJECT}_spec", {})
    return bool(specification.get("firstresult")) or isinstance(answer, list)


def entry_points() -> Iterator[tuple[str, str, object | None, str]]:
    """``(name, distribution, module, reason)`` of every installed entry point; ``module`` is ``None`` where it could not be loaded."""
    found = importlib.metadata.entry_points(group=ENTRY_POINTS)
    for entry in sorted(found, key=lambda e: (_distribution(e), e.name)):
        unfit = _unfit(entry)
        if unfit:
            yield entry.name, _distribution(entry), None, unfit
            continue
        try:
            module = entry.load()
        except failures() as error:  # SystemExit and SyntaxError of a plug-in stop nobody; handed on
            yield entry.name, _distribution(entry), None, reason_of(error)
            continue
        yield entry.name, _distribution(entry), module, ""


def _unfit(entry: importlib.metadata.EntryPoint) -> str:
    """Why this plug-in and this core do not belong together: its distribution asks for another version. Empty = they do.

    An installer refuses such a pair too, but not one that was put together with ``--no-deps`` or by copying.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    from accelprof.release import VERSION

    dist = getattr(entry, "dist", None)
    for text in (dist.requires if dist is not None else None) or ():
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            continue  # of no concern here: it names somebody else, or the installer has complained
        if wanted.name.lower() != "accelprof" or (
            wanted.marker is not None and not wanted.marker.evaluate({"extra": ""})
        ):
            continue
        if not wanted.specifier.contains(VERSION, prereleases=True):
            name = _distribution(entry)
            return (
                f"{name} {dist.version if dist is not None else ''} works with accelprof {wanted.specifier}, this is {VERSION}; "
                f"install a pair that fits: pip install --upgrade accelprof {name}"
            )
    return ""


def _distribution(entry: importlib.metadata.EntryPoint) -> str:
    dist = getattr(entry, "dist", None)
    return str(dist.metadata["Name"]) if dist is not None else ""


def reason_of(error: BaseException) -> str:
    """A plug-in's failure in one line; its class too, where it is not one of ours."""
    return one_line(str(error)) if isinstance(error, PluginError) else text_of(error)


def one_line(text: str) -> str:
    return " ".join(text.split())
