"""Version ranges such as ``>=0.11,<0.13`` over installed versions, for the tables of presets and engines."""

from __future__ import annotations

import importlib.metadata
import operator
from collections.abc import Callable, Mapping

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

_HOLDS: Mapping[str, Callable[[Version, Version], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}


def within(version: str, spec: str) -> bool:
    """Whether ``version`` fulfils every clause of ``spec``; an empty one holds always.

    In plain order, where a requirement would leave candidates and posts out: ``0.14.0rc1`` is before ``0.14.0``, and a
    table whose ranges meet has exactly one row for it. A local part (``+cu126``) does not count, on either side.

    Raises:
        ValueError: no version, or a clause that is not one.
    """
    try:
        have = Version(Version(version).public)
    except InvalidVersion:
        raise ValueError(f"{version!r} is not a version") from None
    try:
        clauses = [
            (clause.operator, Version(Version(clause.version).public), str(clause)) for clause in SpecifierSet(spec)
        ]
    except (InvalidSpecifier, InvalidVersion):
        raise ValueError(f"{spec!r} is not a version clause; allowed: >=, <=, ==, !=, <, > and a version") from None
    for word, _, clause in clauses:
        if word not in _HOLDS:
            raise ValueError(f"{clause!r} is not a version clause; allowed: {', '.join(_HOLDS)} and a version")
    return all(_HOLDS[word](have, wanted) for word, wanted, _ in clauses)


def installed(distribution: str) -> str | None:
    """Installed release of a distribution, or ``None``."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
