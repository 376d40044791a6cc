"""Replacing attributes of imported modules and classes so that all of it can be taken back."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Callable
from typing import Any

from accelprof.errors import UserError

_ABSENT: Any = object()


class Patches:
    """Replacements in the order in which they were made; :meth:`undo` takes them back in reverse."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any]] = []
        self._moved: list[tuple[str, Any, Any]] = []
        self._last: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Replace ``owner.name``; returns what stood there itself (descriptors as they are), or ``None``."""
        before = vars(owner).get(name, _ABSENT)
        self._done.append((owner, name, before))
        setattr(owner, name, value)
        return None if before is _ABSENT else before

    def function(self, module: Any, name: str, value: Any) -> None:
        """Replace a module's function, also where modules of the same package imported it by name."""
        original = getattr(module, name)
        package = module.__name__.partition(".")[0]
        self._moved.append((package, original, value))
        _swap(package, original, value)

    def then(self, call: Callable[[], None]) -> None:
        """Call this first when everything is taken back."""
        self._last.append(call)

    def undo(self) -> None:
        """Take everything back; modules that were imported in the meantime too."""
        while self._last:
            self._last.pop()()
        while self._moved:
            package, original, value = self._moved.pop()
            _swap(package, value, original)
        while self._done:
            owner, name, before = self._done.pop()
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


def _swap(package: str, old: Any, new: Any) -> None:
    for name, module in list(sys.modules.items()):
        if module is None or (name != package and not name.startswith(package + ".")):
            continue
        for attribute, value in list(vars(module).items()):
            if value is old:
                setattr(module, attribute, new)


def check_version(distribution: str, known: str, any_version: bool) -> str:
    """The installed release.

    Args:
        known: releases this was written for and run with, by their first two numbers: ``0.9``.

    Raises:
        UserError: it is not installed, or is another release and ``any_version`` is false.
    """
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        raise UserError(f"compat: {distribution} is not installed in this environment") from None
    match = re.match(r"\d+\.\d+", version)
    if (match is None or match[0] != known) and not any_version:
        raise UserError(
            f"compat: {distribution} {version} is installed; this was written for {known}.*. "
            f"Mend: install that release, or accelprof.compat.install({distribution!r}, any_version=True)"
        )
    return version
