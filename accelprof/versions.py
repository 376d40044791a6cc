"""Version ranges such as ``>=0.11,<0.13`` over installed versions; what the tables of presets and engines need, and no more."""

from __future__ import annotations

import re
from typing import Any

_VERSION = re.compile(
    r"^v?(\d+(?:\.\d+)*)\s*[-._]?(?:(a|alpha|b|beta|rc|c|pre|dev)[-._]?(\d*))?(?:[-._]?post[-._]?(\d+))?"
)
_CLAUSE = re.compile(r"^\s*(>=|<=|==|!=|<|>)\s*(\S+)\s*$")
_STAGE = {"dev": 0, "a": 1, "alpha": 1, "b": 2, "beta": 2, "c": 3, "rc": 3, "pre": 3}


def key(version: str) -> tuple[Any, ...]:
    """What to sort a version by: ``0.14.0rc1`` < ``0.14.0`` < ``0.14.0.post1``; a local part (``+cu126``) does not count.

    Raises:
        ValueError: no version.
    """
    match = _VERSION.match(version.partition("+")[0])
    if not match:
        raise ValueError(f"{version!r} is not a version")
    release = [int(part) for part in match[1].split(".")]
    while release and not release[-1]:
        release.pop()
    stage = (_STAGE[match[2]], int(match[3] or 0)) if match[2] else (9, 0)
    return tuple(release), stage, int(match[4] or -1) if match[4] else -1


def within(version: str, spec: str) -> bool:
    """Whether ``version`` fulfils every clause of ``spec``; an empty one holds always.

    Raises:
        ValueError: no version, or a clause that is not one.
    """
    have = key(version)
    for clause in filter(None, (part.strip() for part in spec.split(","))):
        match = _CLAUSE.match(clause)
        if not match:
            raise ValueError(f"{clause!r} is not a version clause; allowed: >=, <=, ==, !=, <, > and a version")
        want = key(match[2])
        holds = {
            ">=": have >= want,
            "<=": have <= want,
            "==": have == want,
            "!=": have != want,
            "<": have < want,
            ">": have > want,
        }[match[1]]
        if not holds:
            return False
    return True
