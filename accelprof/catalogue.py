"""Maps names to backends and tools, says why one cannot be had, and makes plans with them."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import ValidationError

from accelprof import builtin as built_in
from accelprof.contracts.answers import probe_of
from accelprof.contracts.backend import Backend, Probe
from accelprof.contracts.exporter import Exporter
from accelprof.contracts.tool import Tool
from accelprof.errors import ConfigError, PluginError, Problem, UnavailableError, failures, nearest, shown
from accelprof.planning.names import nearest_accelerator
from accelprof.plugins import Broken, Host, Plugin, entry_points, reason_of

if TYPE_CHECKING:  # who asks for a tool by name, to read a file with it, has no configuration
    from accelprof.config.dialect import Dialect
    from accelprof.config.load import Loaded
    from accelprof.config.model import Config
    from accelprof.planning.plan import Plan
    from accelprof.planning.presets import Preset

ACCELERATOR_ENV = "ACCELPROF_ACCELERATOR"
T = TypeVar("T", bound="Backend | Tool | Exporter")
ToolT = TypeVar("ToolT", bound=Tool)


@dataclass(frozen=True, slots=True)
class Detected:
    """The backend in use and how it was chosen."""

    backend: Backend
    reason: str


class _Names(Generic[T]):
    """Classes by name and alias, without regard to case, and the plug-in that brought each."""

    def __init__(self, what: str, base: type[T], hook: str) -> None:
        self.what, self.base, self.hook = what, base, hook
        self.classes: dict[str, type[T]] = {}
        self.owners: dict[str, str] = {}
        self.words: dict[str, str] = {}
        #: classes in the place of whoever has their names
        self.instead: tuple[type[T], ...] = ()

    def filled(self, host: Host) -> _Names[T]:
        """The names as ``host`` brings them now.

        Raises:
            PluginError: what was brought is no class of the contract, has no name, or has one that is taken.
        """
        names = _Names(self.what, self.base, self.hook)
        for answer in reversed(host.call(self.hook)):  # in the order of registration: the first keeps a name
            for cls in answer:
                names.add(cls, _owner(host, self.hook, cls))
        names.instead = self.instead
        for cls in self.instead:
            names.put(cls)
        return names

    def put(self, cls: type[T]) -> None:
        """Give a class its names, whoever has them."""
        for word in (cls.name, *getattr(cls, "aliases", ())):
            taken = self.words.get(word.casefold())
            if taken is not None:
                del self.classes[taken], self.owners[taken]
                self.words = {other: name for other, name in self.words.items() if name != taken}
        self.add(cls, "")

    def add(self, cls: object, owner: str) -> None:
        if not (isinstance(cls, type) and issubclass(cls, self.base)):
            expected = f"{self.base.__module__}.{self.base.__name__}"
            raise PluginError(f"{self.hook}() brought {cls!r}; a subclass of {expected} is expected")
        name, aliases = getattr(cls, "name", ""), getattr(cls, "aliases", ())
        if not isinstance(name, str) or not name:
            raise PluginError(f"{self.hook}() brought {cls.__name__} without a name; set the class attribute 'name'")
        if isinstance(aliases, str) or not all(isinstance(alias, str) for alias in aliases):
            raise PluginError(
                f"{self.hook}() brought {cls.__name__} with aliases {aliases!r}; a tuple of names is expected"
            )
        for word in (name, *aliases):
            taken = self.words.get(word.casefold())
            if taken is not None:
                raise PluginError(
                    f"{self.what} {word!r} is taken by plug-in {self.owners[taken]!r}; rename one of them"
                )
        self.classes[name], self.owners[name] = cls, owner
        for word in (name, *aliases):
            self.words[word.casefold()] = name

    def of(self, owner: str) -> list[str]:
        return [name for name, other in self.owners.items() if other == owner]


class Catalogue:
    """What plug-ins bring, by name: backends, tools, exporters, dialects, presets; and a plan made with them.

    A bare one is empty. :func:`make_catalogue` makes one with what is built in and installed; processes use
    :func:`get_catalogue`.

    Attributes:
        host: the plug-ins themselves, and the calls of their hooks.
    """

    def __init__(self, host: Host | None = None) -> None:
        self.host = Host() if host is None else host
        self._backends = _Names("accelerator type", Backend, "accelprof_backends").filled(self.host)
        self._tools = _Names("tool", Tool, "accelprof_tools").filled(self.host)
        self._exporters = _Names("exporter", Exporter, "accelprof_exporters").filled(self.host)
        self._instances: dict[type[Backend], Backend] = {}

    # --- taking plug-ins in -----------------------------------------------------------------------------------------

    def register(self, plugin: object, name: str | None = None, *, distribution: str = "") -> None:
        """Take in a module or object that implements hooks, and what it brings.

        Raises:
            PluginError: as :meth:`accelprof.plugins.Host.add`, a name taken twice, or a contract not met. The reason is
                kept in ``broken`` too.
        """
        added = self.host.add(plugin, name, distribution=distribution)
        try:
            self._fill(added.failed)
        except PluginError as error:
            self.host.remove(added.name)
            raise self.host.refuse(added.name, distribution, reason_of(error)) from None
        except BaseException:
            self.host.remove(added.name)
            raise

    def _fill(self, failed: Mapping[str, str] | None = None) -> None:
        """Take what all plug-ins bring from here on; with ``failed`` hooks, or a contract that is not met, all stays as it was."""
        names = self._backends.filled(self.host), self._tools.filled(self.host), self._exporters.filled(self.host)
        for reason in (failed or {}).values():
            raise PluginError(reason)
        self._backends, self._tools, self._exporters = names

    def unregister(self, name: str) -> None:
        """Take a plug-in out again, with everything it brought.

        Raises:
            PluginError: no plug-in has this name.
        """
        self.host.remove(name)
        self._fill()

    def put(self, backends: Sequence[type[Backend]] = (), tools: Sequence[type[Tool]] = ()) -> None:
        """These classes have their names and aliases from here on, also where a plug-in brought others of that name: what
        stands for something in tests is asked itself.

        Raises:
            PluginError: a contract is not met.
        """
        self._backends.instead += tuple(backends)
        self._tools.instead += tuple(tools)
        self._fill()

    def register_installed(self) -> None:
        """Take in every entry point of the group ``accelprof``; what cannot be loaded is kept in ``broken``."""
        for name, distribution, module, reason in entry_points():
            if module is None:
                self.host.keep(Broken(name, distribution, reason))
                continue
            try:
                self.register(module, name, distribution=distribution)
            except PluginError:
                continue  # register() has kept the reason

    @property
    def plugins(self) -> Mapping[str, Plugin]:
        return self.host.plugins

    @property
    def broken(self) -> Sequence[Broken]:
        return self.host.broken

    def brought_by(self, plugin: str) -> tuple[list[str], list[str]]:
        """Names of the backends and of the tools that a plug-in brought."""
        return self._backends.of(plugin), self._tools.of(plugin)

    # --- calling hooks ----------------------------------------------------------------------------------------------

    def event(self, hook: str, **arguments: object) -> list[Any]:
        """Tell all plug-ins; a failure is logged once per plug-in and hook, by name, and stops nobody."""
        return self.host.call(hook, **arguments)

    # --- asking for things ------------------------------------------------------------------------------------------

    def backend_names(self) -> list[str]:
        return sorted(self._backends.classes)

    def tool_names(self) -> list[str]:
        return sorted(self._tools.classes)

    def backend_class(self, name: str) -> type[Backend]:
        """The backend registered for an accelerator type or one of its aliases.

        Raises:
            PluginError: nobody registered it; carries the kept reasons of broken plug-ins and the nearest match.
        """
        return self._class(self._backends, name)

    def _class(self, names: _Names[T], name: str) -> type[T]:
        key = names.words.get(name.casefold())
        if key is None:
            raise PluginError(self._unknown(names, name))
        return names.classes[key]

    def backend(self, name: str) -> Backend:
        """The one instance of a backend in this process; availability is not asked.

        Raises:
            PluginError: as :meth:`backend_class`, or its constructor raised.
        """
        cls = self.backend_class(name)
        if cls not in self._instances:
            try:
                self._instances[cls] = cls()
            except failures() as error:
                raise PluginError(f"backend {cls.name!r} cannot be made: {reason_of(error)}") from error
        return self._instances[cls]

    def probe(self, name: str) -> Probe:
        """What a backend says about this machine; see :func:`accelprof.contracts.answers.probe_of`."""
        try:
            backend = self.backend(name)
        except PluginError as error:
            return Probe(None, f"unavailable: {reason_of(error)}")
        return probe_of(backend)

    def detect(self, explicit: str | None = None, config_value: str | None = None) -> Detected:
        """The backend of this process: explicit -> ``ACCELPROF_ACCELERATOR`` -> config -> highest probe priority -> ``cpu``.

        Raises:
            PluginError: a name was given that nobody registered.
            UnavailableError: a name was given whose backend cannot work here; the message has its reason.
        """
        for name, origin in (
            (explicit, "given explicitly"),
            (os.environ.get(ACCELERATOR_ENV), f"from {ACCELERATOR_ENV}"),
            (config_value, "from the configuration"),
        ):
            if name and name != "auto":
                backend = self.backend(name)
                probe = self.probe(backend.name)
                if not probe.available:
                    raise UnavailableError(f"accelerator {name!r} ({origin}) is not available: {probe.reason}")
                return Detected(backend, f"{origin}: {probe.reason}")
        ranked = [(probe.priority, name, probe.reason) for name, probe in self.probes() if probe.priority is not None]
        if not ranked:
            raise UnavailableError("no backend is available, not even cpu; was the builtin plug-in unregistered?")
        _, name, reason = max(ranked)
        return Detected(self.backend(name), f"detected: {reason}")

    def probes(self) -> Iterator[tuple[str, Probe]]:
        """``(name, probe)`` of every backend."""
        for name in self.backend_names():
            yield name, self.probe(name)

    def tool_class(self, name: str) -> type[Tool]:
        """The tool registered under a name or alias.

        Raises:
            PluginError: as :meth:`backend_class`.
        """
        return self._class(self._tools, name)

    def make_tool(self, name: str, options: Mapping[str, object] | None = None) -> Tool:
        """A tool with its options validated.

        Raises:
            PluginError: nobody registered the name, or its constructor failed.
            ConfigError: an option is unknown or has a value that is not allowed; paths begin with ``tools.<name>``.
        """
        return self.make(self.tool_class(name), options)

    def make(self, cls: type[ToolT], options: Mapping[str, object] | None = None) -> ToolT:
        """As :meth:`make_tool`, of a class."""
        where = f"tools.{cls.name}"
        try:
            return cls(cls.normalise(dict(options or {})))
        except ValidationError as error:
            from accelprof.config.load import problems_of

            raise ConfigError(*problems_of(error, cls.Options, where + ".")) from None
        except ConfigError:
            raise
        except (ValueError, TypeError) as error:
            raise ConfigError(Problem(where, str(error))) from None
        except failures() as error:
            raise PluginError(f"tool {cls.name!r} cannot be made: {reason_of(error)}") from error

    def exporter_names(self) -> list[str]:
        return sorted(self._exporters.classes)

    def make_exporters(self, config: Config) -> list[Exporter]:
        """The exporters that ``config.export`` names, with their options validated; none of them has begun.

        Raises:
            ConfigError: nobody registered a name, or an option is unknown or has a value that is not allowed; paths
                begin with ``export.<name>``.
        """
        made: list[Exporter] = []
        problems: list[Problem] = []
        for word, options in config.export.items():
            key = self._exporters.words.get(word.casefold())
            if key is None:
                text = self._unknown(self._exporters, word)
                problems.append(Problem(f"export.{word}", text, mend=nearest(word, self.exporter_names())))
                continue
            cls = self._exporters.classes[key]
            try:
                made.append(cls(cls.Options.model_validate(options)))
            except ValidationError as error:
                from accelprof.config.load import problems_of

                problems.extend(problems_of(error, cls.Options, f"export.{word}."))
            except failures() as error:
                problems.append(Problem(f"export.{word}", f"it cannot be made: {reason_of(error)}"))
        if problems:
            raise ConfigError(*problems)
        return made

    def dialects(self) -> list[Dialect]:
        """Dialects of all plug-ins, in pluggy's order: the last registered first, those that are built in last."""
        return [item for answer in self.host.call("accelprof_dialects") for item in answer]

    def presets(self) -> dict[str, Preset]:
        """Presets of all plug-ins by name; a name taken twice is refused and kept in ``broken``."""
        merged: dict[str, Preset] = {}
        for answer in self.host.call("accelprof_presets"):
            for name, preset in answer.items():
                if name in merged:
                    self.host.keep(Broken(name, "", f"preset {name!r} is brought by two plug-ins; the first stays"))
                else:
                    merged[name] = preset
        return merged

    def _unknown(self, names: _Names[T], name: str) -> str:
        text = f"no {names.what} {shown(name)} is registered; registered: {', '.join(sorted(names.classes)) or 'none'}"
        backends = names is self._backends
        near = nearest_accelerator(name, names.words) if backends else nearest(name.casefold(), names.words)
        if near:
            text += f"; {near}"
        own = [
            broken
            for broken in self.broken
            if name.casefold() in broken.name.casefold() or name.casefold() in broken.distribution.casefold()
        ]
        for broken in own or self.broken:
            text += f". Plug-in {broken.name!r} of {broken.distribution or 'this process'} is broken: {broken.reason}"
        return text

    # --- configurations ---------------------------------------------------------------------------------------------

    def load(self, source: object = None, overrides: Sequence[str] = (), **values: object) -> Loaded:
        """:func:`accelprof.config.load.load_config` with the dialects of all plug-ins; tools under their registered names.

        Raises:
            ConfigError: as there, or a tool has options under two of its names.
        """
        from accelprof.config.load import load_config
        from accelprof.planning.decide import canonical

        dialects = self.dialects()
        names = [dialect.name for dialect in dialects]
        loaded = load_config(
            source, overrides, dialects=dialects, detect=lambda mapping: self._detected(mapping, names), **values
        )
        return replace(loaded, config=canonical(loaded.config, self))

    def _detected(self, mapping: Mapping[str, object], dialects: Sequence[str]) -> str | None:
        """The dialect that a plug-in says ``mapping`` is written in; a name that nobody brings is kept in ``broken``."""
        if not self.host.listens("accelprof_detect_dialect"):
            return None
        name = self.host.first("accelprof_detect_dialect", mapping=mapping)
        if name is None or name in dialects:
            return None if name is None else str(name)
        reason = f"accelprof_detect_dialect named {name!r}, which nobody brings; there are {', '.join(dialects)}"
        self.host.keep(Broken("accelprof_detect_dialect", "", reason))
        return None

    def plan(self, config: Config, *, decided: bool = False) -> Plan:
        """:func:`accelprof.planning.decide.decide` with these names; exporters are checked too.

        Raises:
            ConfigError: as there, and as :meth:`make_exporters`.
        """
        from accelprof.config.beside import in_their_words
        from accelprof.planning.decide import decide

        self.make_exporters(config)
        try:
            return decide(config, self, decided=decided)
        except ConfigError as error:
            raise in_their_words(error, config) from None


def _owner(host: Host, hook: str, cls: object) -> str:
    """The plug-in whose answer a class stands in; a hook wrapper may have put in others."""
    for plugin in host.plugins.values():
        if any(cls is own for own in plugin.brought.get(hook, ())):
            return plugin.name
    return "a hook wrapper"


def make_catalogue(*, entry_points: bool = True, builtin: bool = True) -> Catalogue:
    """A catalogue of its own, with what is built in and what is installed."""
    made = Catalogue()
    if builtin:
        made.register(built_in, "builtin", distribution="accelprof")
    if entry_points:
        made.register_installed()
    return made


class Registry(Catalogue):
    """The name of :func:`make_catalogue` in the last release; it goes with the next."""

    def __init__(self, *, entry_points: bool = True, builtin: bool = True) -> None:
        warnings.warn("Registry() is make_catalogue() now; it goes with the next release", DeprecationWarning, 2)
        super().__init__(make_catalogue(entry_points=entry_points, builtin=builtin).host)


_catalogue: Catalogue | None = None
_loading: Catalogue | None = None  # made, and asking its entry points; only their modules can see it
_lock = threading.RLock()


def get_catalogue() -> Catalogue:
    """The process's catalogue; entry points are loaded at the first call.

    Raises:
        PluginError: called by a plug-in while it is imported as an entry point or asked what it brings: what is
            registered is not known yet.
    """
    global _catalogue, _loading
    if _catalogue is None:
        with _lock:
            if _loading is not None:
                raise PluginError(
                    "the catalogue is asked while plug-ins are being loaded; ask it when it is needed, not at import or in discovery"
                )
            if _catalogue is None:
                _loading = make_catalogue(entry_points=False)
                try:
                    _loading.register_installed()
                    _catalogue = _loading
                finally:
                    _loading = None
    return _catalogue


def get_registry() -> Catalogue:
    """The name of :func:`get_catalogue` in the last release; it goes with the next."""
    warnings.warn("get_registry() is get_catalogue() now; it goes with the next release", DeprecationWarning, 2)
    return get_catalogue()


def unlock_after_fork() -> None:
    """In a forked child: a lock that another thread of the parent held would never be released here."""
    global _lock, _loading
    _lock, _loading = threading.RLock(), None


def reset_catalogue() -> None:
    """Forget the process's catalogue; the next :func:`get_catalogue` loads entry points again."""
    global _catalogue
    with _lock:
        _catalogue = None


def register(plugin: object, name: str | None = None) -> None:
    """Take a plug-in into this process's catalogue; see :meth:`Catalogue.register`.

    A module that is imported as an entry point may call this too.
    """
    _any_catalogue().register(plugin, name)


def unregister(name: str) -> None:
    """Take a plug-in out of this process's catalogue."""
    _any_catalogue().unregister(name)


def _any_catalogue() -> Catalogue:
    with _lock:  # another thread waits here until the catalogue is complete
        return get_catalogue() if _loading is None else _loading
