"""Rows of the report, each a type: who makes one and who reads one agree on its keys, and the columns of its table follow."""

from __future__ import annotations

import types
from typing import TypedDict, Union, get_args, get_origin, get_type_hints


class Waits(TypedDict):
    """Times in ns that others waited, with their bounds where clocks are not compared exactly; see docs/analysis.md."""

    waited_ns: int
    low_ns: int
    high_ns: int
    without_ns: int
    transfer_ns: int | None


class Straggler(TypedDict):
    """The last to arrive in a collective, and what the others waited for it: on their hosts or their devices."""

    step: int | str | None
    phase: str
    number: int | None
    group: str
    worker: str
    waited_ns: int
    low_ns: int
    high_ns: int
    waited_by: list[str]
    late_in: str | None
    missing: list[str]
    without_ns: int
    transfer_ns: int | None
    on: str
    process_group: str | None


def columns_of(row: type) -> dict[str, type]:
    """A row's columns and what is in them where there is anything: the first of several types, text of a list."""
    return {name: _column(hint) for name, hint in get_type_hints(row).items()}


def _column(hint: object) -> type:
    if get_origin(hint) in (Union, types.UnionType):
        return _column(get_args(hint)[0])
    return hint if isinstance(hint, type) and get_origin(hint) is None else str
