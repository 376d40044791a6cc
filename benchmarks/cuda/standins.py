"""Stand-ins for packages that a framework imports at its top and that the measured code never touches.

RLinf's worker module imports ray and omegaconf; its timer uses neither. Where they are not installed the timer can be
measured all the same.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Anything:
    """Callable, subscriptable, usable as a base class and as a decorator; false and empty."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __call__(self, *arguments: Any, **_: Any) -> Any:
        return arguments[0] if arguments and callable(arguments[0]) else Anything()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (object,)

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__

    def __getitem__(self, key: Any) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __gt__(self, other: Any) -> bool:
        return False

    __lt__ = __ge__ = __le__ = __gt__


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in self._names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None: ...

    def find_distributions(self, context: Any = None) -> Iterator[importlib.metadata.Distribution]:
        name = getattr(context, "name", None)
        return iter([_Distribution(name)] if name in self._names else [])


class _Distribution(importlib.metadata.Distribution):
    def __init__(self, name: str) -> None:
        self._name = name

    def read_text(self, filename: str) -> str | None:
        return f"Metadata-Version: 2.1\nName: {self._name}\nVersion: 999\n" if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        return Path(path)


def importable(name: str) -> bool:
    """Whether a top-level package is installed; nothing is imported."""
    return importlib.util.find_spec(name) is not None


@contextlib.contextmanager
def for_missing(*names: str) -> Iterator[tuple[str, ...]]:
    """Imports inside get stand-ins for those of ``names`` that are not installed; yields them."""
    missing = tuple(name for name in names if not importable(name))
    finder = _Finder(missing)
    sys.meta_path.append(finder)
    try:
        yield missing
    finally:
        sys.meta_path.remove(finder)
