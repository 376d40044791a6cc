"""Finds plug-ins, takes in what they bring, calls their hooks, and keeps the reason when one cannot be had.

pluggy checks and calls the hooks; each plug-in is asked on its own, so that one that fails stops nobody.
"""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pluggy

from accelprof.contracts import hookspecs
from accelprof.contracts.backend import Backend
from accelprof.contracts.tool import Tool
from accelprof.errors import PluginError, nearest

ENTRY_POINTS = "accelprof"
log = logging.getLogger("accelprof")


@dataclass(frozen=True, slots=True)
class Broken:
    """A plug-in, or one thing it brings, that cannot be used, and why."""

    name: str
    distribution: str
    reason: str


@dataclass
class _Plugin:
    name: str
    distribution: str
    module: Any
    backends: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)


class Plugins:
    """One set of plug-ins.

    Attributes:
        broken: everything that could not be taken in, with its reason, in order of discovery.
    """

    def __init__(self, *, entry_points: bool = True, builtin: bool = True) -> None:
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._plugins: dict[str, _Plugin] = {}
        self._backends: dict[str, tuple[type[Backend], str]] = {}
        self._tools: dict[str, tuple[type[Tool], str]] = {}
        self._aliases: dict[str, str] = {}
        self._tool_aliases: dict[str, str] = {}
        self._instances: dict[str, Backend] = {}
        self._event_failures: set[tuple[str, str]] = set()
        self.broken: list[Broken] = []
        if builtin:
            from accelprof import builtin as builtin_plugin

            self.register(builtin_plugin, "builtin", distribution="accelprof")
        if entry_points:
            self._load_entry_points()

    # --- taking plug-ins in -----------------------------------------------------------------------------------------

    def _load_entry_points(self) -> None:
        found = importlib.metadata.entry_points(group=ENTRY_POINTS)
        for entry in sorted(found, key=lambda e: (_distribution(e), e.name)):
            try:
                module = entry.load()
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - SystemExit and SyntaxError of a plug-in must stop nobody; kept below
                self.broken.append(Broken(entry.name, _distribution(entry), reason_of(error)))
                continue
            try:
                self.register(module, entry.name, distribution=_distribution(entry))
            except PluginError:
                continue  # register() has kept the reason

    def register(self, plugin: Any, name: str | None = None, *, distribution: str = "") -> None:
        """Take in a module or object that implements hooks.

        Raises:
            PluginError: wrong hook arguments, an unknown hook, a name taken twice, or a contract not met. The reason is
                kept in ``broken`` too.
        """
        name = name or getattr(plugin, "__name__", None) or type(plugin).__name__
        if name in self._plugins:
            raise self._refuse(
                name,
                distribution,
                f"a plug-in named {name!r} is registered already (from {self._plugins[name].distribution or 'this process'})",
            )
        unknown = self._unknown_hooks(plugin)
        if unknown:
            known = sorted(
                hookspecs.DISCOVERY_HOOKS
                | hookspecs.EVENT_HOOKS
                | {"accelprof_detect_dialect", "accelprof_worker_identity"}
            )
            raise self._refuse(
                name,
                distribution,
                f"implements {unknown[0]!r}, which is no hook of accelprof; {nearest(unknown[0], known) or 'known: ' + ', '.join(known)}",
            )
        try:
            self._manager.register(plugin, name)
        except (pluggy.PluginValidationError, ValueError) as error:
            if self._manager.has_plugin(name):
                self._manager.unregister(name=name)
            raise self._refuse(name, distribution, _one_line(str(error))) from None
        entry = _Plugin(name, distribution, plugin)
        try:
            self._take(entry)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever the plug-in's discovery raises is kept as its reason
            self._manager.unregister(name=name)
            self._forget(entry)
            raise self._refuse(name, distribution, reason_of(error)) from None
        self._plugins[name] = entry

    def unregister(self, name: str) -> None:
        """Take a plug-in out again, with everything it brought.

        Raises:
            PluginError: no plug-in has this name.
        """
        entry = self._plugins.pop(name, None)
        if entry is None:
            raise PluginError(f"no plug-in is named {name!r}; registered: {', '.join(self._plugins)}")
        self._manager.unregister(name=name)
        self._forget(entry)

    def _take(self, entry: _Plugin) -> None:
        for cls in self._ask(entry, "accelprof_backends"):
            _check_class(cls, Backend, "accelprof_backends")
            self._add(entry, cls.name, cls.aliases, cls, self._backends, self._aliases, "accelerator type")
            entry.backends.append(cls.name)
        for tool in self._ask(entry, "accelprof_tools"):
            _check_class(tool, Tool, "accelprof_tools")
            self._add(entry, tool.name, tool.aliases, tool, self._tools, self._tool_aliases, "tool")
            entry.tools.append(tool.name)

    def _add(
        self,
        entry: _Plugin,
        name: str,
        aliases: Sequence[str],
        cls: Any,
        table: dict[str, Any],
        names: dict[str, str],
        what: str,
    ) -> None:
        for word in (name, *aliases):
            taken = names.get(word.casefold())
            if taken is not None:
                raise PluginError(f"{what} {word!r} is taken by plug-in {table[taken][1]!r}; rename one of them")
        table[name] = (cls, entry.name)
        for word in (name, *aliases):
            names[word.casefold()] = name

    def _forget(self, entry: _Plugin) -> None:
        for table, names in ((self._backends, self._aliases), (self._tools, self._tool_aliases)):
            for name in [key for key, (_, owner) in table.items() if owner == entry.name]:
                del table[name]
                self._instances.pop(name, None)
                for word in [word for word, target in names.items() if target == name]:
                    del names[word]

    def _ask(self, entry: _Plugin, hook: str) -> list[Any]:
        method = getattr(entry.module, hook, None)
        if method is None:
            return []
        answer = method()
        if isinstance(answer, (str, bytes)) or not isinstance(answer, (list, tuple)):
            raise PluginError(f"{hook}() returned {type(answer).__name__}; a list or tuple is expected")
        return list(answer)

    def _unknown_hooks(self, plugin: Any) -> list[str]:
        return [
            name
            for name in dir(plugin)
            if name.startswith("accelprof_")
            and self._manager.parse_hookimpl_opts(plugin, name) is not None
            and not hasattr(hookspecs, name)
        ]

    def _refuse(self, name: str, distribution: str, reason: str) -> PluginError:
        self.broken.append(Broken(name, distribution, reason))
        return PluginError(f"plug-in {name!r}{f' of {distribution}' if distribution else ''} is refused: {reason}")

    @property
    def plugins(self) -> Mapping[str, _Plugin]:
        return self._plugins

    def _keep(self, broken: Broken) -> None:
        if broken not in self.broken:
            self.broken.append(broken)

    # --- calling hooks ----------------------------------------------------------------------------------------------

    def collect(self, hook: str, **kwargs: Any) -> list[Any]:
        """Answers of all plug-ins to a discovery hook; one that raises is kept in ``broken`` and the others count."""
        return [answer for answer in self._each(hook, kwargs, keep=True) if answer is not None]

    def first(self, hook: str, **kwargs: Any) -> Any:
        """The first answer that is not ``None``."""
        for answer in self._each(hook, kwargs, keep=True):
            if answer is not None:
                return answer
        return None

    def event(self, hook: str, **kwargs: Any) -> list[Any]:
        """Tell all plug-ins; a failure is logged once per plug-in and hook, by name, and stops nobody."""
        return [answer for answer in self._each(hook, kwargs, keep=False) if answer is not None]

    def listens(self, hook: str) -> bool:
        """Whether any plug-in implements ``hook``."""
        return bool(getattr(self._manager.hook, hook).get_hookimpls())

    def _each(self, hook: str, kwargs: Mapping[str, Any], keep: bool) -> Iterator[Any]:
        for impl in reversed(getattr(self._manager.hook, hook).get_hookimpls()):
            try:
                answer = impl.function(*[kwargs[name] for name in impl.argnames])
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - one plug-in's failure is named and stops nobody
                name = impl.plugin_name
                if keep:
                    self._keep(
                        Broken(
                            name,
                            self._plugins[name].distribution if name in self._plugins else "",
                            f"{hook}: {reason_of(error)}",
                        )
                    )
                elif (name, hook) not in self._event_failures:
                    self._event_failures.add((name, hook))
                    log.warning("accelprof: plug-in %r failed in %s: %s", name, hook, reason_of(error))
                continue
            yield answer  # outside the try: a caller that stops listening is no failure of the plug-in


def _check_class(cls: Any, base: type, hook: str) -> None:
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise PluginError(f"{hook}() brought {cls!r}; a subclass of {base.__module__}.{base.__name__} is expected")
    name = getattr(cls, "name", "")
    if not isinstance(name, str) or not name:
        raise PluginError(f"{hook}() brought {cls.__name__} without a name; set the class attribute 'name'")


def _distribution(entry: importlib.metadata.EntryPoint) -> str:
    dist = getattr(entry, "dist", None)
    return str(dist.metadata["Name"]) if dist is not None else ""


def reason_of(error: BaseException) -> str:
    """A plug-in's failure in one line; its class too, where it is not one of ours."""
    text = _one_line(str(error))
    name = type(error).__name__
    return text if isinstance(error, PluginError) else f"{name}: {text}" if text else name


def _one_line(text: str) -> str:
    return " ".join(text.split())
