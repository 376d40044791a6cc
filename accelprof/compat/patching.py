"""Replacing attributes of imported modules and classes so that all of it can be taken back."""

from __future__ import annotations

import functools
import logging
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import wrapt

from accelprof.errors import UserError
from accelprof.versions import installed

_ABSENT: object = object()
log = logging.getLogger("accelprof")


@dataclass(eq=False)
class _Place:
    """One attribute that was replaced: what stood there, and what stands there now."""

    owner: object
    name: str
    before: Any
    ours: Any


@dataclass(eq=False)
class _Function:
    """One function of a package that was replaced wherever its modules had it."""

    package: str
    original: Any
    ours: Any
    held: frozenset[tuple[int, str]]  # places where ours stood before


#: functions that are replaced now, by whomever
_functions: list[_Function] = []
#: (id of the owner, name) -> replacements of that attribute, the one that is in force last; places keep their owners alive
_layers: dict[tuple[int, str], list[_Place]] = {}


class Patches:
    """Replacements that are taken back place by place, in whatever order several of these are undone."""

    def __init__(self) -> None:
        self._places: list[_Place] = []
        self._functions: list[_Function] = []
        self._last: list[Callable[[], None]] = []

    def set(self, owner: object, name: str, value: object) -> Any:
        """Replace ``owner.name``; returns what stood there itself (descriptors as they are), or ``None``."""
        before = vars(owner).get(name, _ABSENT)
        place = _Place(owner, name, before, value)
        setattr(owner, name, value)
        self._places.append(place)
        _layers.setdefault((id(owner), name), []).append(place)
        return None if before is _ABSENT else before

    def function(self, module: Any, name: str, value: Any) -> None:
        """Replace a module's function, also where modules of the same package imported it by name.

        Two functions may be replaced by one and the same ``value``: each gets a ``value`` of its own, so that a module
        which imports one of them in the meantime can be given back the right one.
        """
        original = getattr(module, name)
        package = module.__name__.partition(".")[0]
        if any(known.ours is value for known in _functions):
            value = _another(value)
        held = frozenset((id(owner), attribute) for owner, attribute in _holding(package, value))
        replaced = _Function(package, original, value, held)
        self._functions.append(replaced)
        _functions.append(replaced)
        for owner, attribute in _holding(package, original):
            self.set(owner, attribute, value)

    def then(self, call: Callable[[], None]) -> None:
        """Call this first when everything is taken back."""
        self._last.append(call)

    def once_imported(self, name: str, call: Callable[[object], None]) -> None:
        """``call(module)`` once the module is whole, as :func:`when_imported`, unless everything was taken back before."""
        wanted = [call]
        self.then(wanted.clear)

        def imported(module: object) -> None:
            for put in wanted:
                put(module)

        when_imported(name, imported)

    def undo(self) -> None:
        """Take everything back; from modules that were imported in the meantime too. What somebody else replaced stays."""
        while self._last:
            self._last.pop()()
        settle()
        while self._places:
            _take_back(self._places.pop())
        while self._functions:
            replaced = self._functions.pop()
            _functions.remove(replaced)
            for later in _functions:
                if later.original is replaced.ours:
                    later.original = replaced.original
            for owner, attribute in _holding(replaced.package, replaced.ours):
                if (id(owner), attribute) not in replaced.held and (id(owner), attribute) not in _layers:
                    setattr(owner, attribute, replaced.original)
            for at, layers in _layers.items():  # imported with ours, and replaced again since
                for place in layers:
                    if place.before is replaced.ours and at not in replaced.held:
                        place.before = replaced.original


def _take_back(place: _Place) -> None:
    layers = _layers[id(place.owner), place.name]
    at = layers.index(place)
    del layers[at]
    if at < len(layers):  # replaced again since: whoever did that gives back what stood here before
        layers[at].before = place.before
        return
    if not layers:
        del _layers[id(place.owner), place.name]
    if vars(place.owner).get(place.name, _ABSENT) is not place.ours:
        log.warning("accelprof: %s of %r was replaced by somebody else meanwhile and stays", place.name, place.owner)
    elif place.before is _ABSENT:
        delattr(place.owner, place.name)
    else:
        setattr(place.owner, place.name, place.before)


def _holding(package: str, value: object) -> list[tuple[object, str]]:
    """Modules of ``package`` and their attributes that are ``value`` itself."""
    return [
        (module, attribute)
        for name, module in list(sys.modules.items())
        if module is not None and (name == package or name.startswith(package + "."))
        for attribute, found in list(getattr(module, "__dict__", {}).items())
        if found is value
    ]


def _another(function: Callable[..., object]) -> Callable[..., object]:
    """One more function object that does the same; frames are counted as in the first."""
    if isinstance(function, FunctionType):
        code, names = function.__code__, function.__globals__
        copy = FunctionType(code, names, function.__name__, function.__defaults__, function.__closure__)
        copy.__kwdefaults__ = function.__kwdefaults__
        return functools.update_wrapper(copy, function)

    def called(*args: object, **kwargs: object) -> object:
        return function(*args, **kwargs)

    return called


#: modules whose import had begun when somebody wanted to change them, and who
_unfinished: list[tuple[str, Callable[[object], None]]] = []


def when_imported(name: str, call: Callable[[object], None]) -> None:
    """``call(module)`` once the module is whole: now, when its import that is going on has ended, or when it is imported."""
    module = sys.modules.get(name)
    if module is None:
        wrapt.register_post_import_hook(call, name)  # which calls when all of the module has run
    elif _is_partial(module):
        _unfinished.append((name, call))
        if _again not in sys.meta_path:
            sys.meta_path.insert(0, _again)
    else:
        call(module)


def settle() -> None:
    """Look again at modules whose import had not ended; called where work begins."""
    _look_again()
    if not _unfinished and _again in sys.meta_path:
        sys.meta_path.remove(_again)


def _look_again() -> None:
    for item in list(_unfinished):
        module = sys.modules.get(item[0])
        if module is not None and not _is_partial(module) and item in _unfinished:
            _unfinished.remove(item)
            item[1](module)


def _is_partial(module: object) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


class _Again:
    """Finds no module; that one is looked for is when others may have become whole."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        _look_again()  # no more: whoever goes over the finders now must find them in their places


_again: Any = _Again()


def check_version(distribution: str, known: str | tuple[str, ...], any_version: bool) -> str:
    """The installed release.

    Args:
        known: releases this was written for, by their first two numbers: ``0.9``.

    Raises:
        UserError: it is not installed, or is another release and ``any_version`` is false.
    """
    version = installed(distribution)
    if version is None:
        raise UserError(f"compat: {distribution} is not installed in this environment")
    match = re.match(r"\d+\.\d+", version)
    releases = (known,) if isinstance(known, str) else known
    if (match is None or match[0] not in releases) and not any_version:
        raise UserError(
            f"compat: {distribution} {version} is installed; this was written for {'.*, '.join(releases)}.*. "
            f"Mend: install that release, or accelprof.compat.install({distribution!r}, any_version=True)"
        )
    return version
