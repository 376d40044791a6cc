"""A phase as its decorator was written: the key of everything that is resolved once and used many times."""

from __future__ import annotations

from typing import NamedTuple

#: how a phase runs, from the tool's point of view: on the thread's stack; suspended in between, so that others of its
#: kind may overlap it; or in pieces, of which each is on the thread's stack (a generator, between two of its items)
ON_STACK, SUSPENDS, IN_PIECES = 0, 1, 2


class PhaseSpec(NamedTuple):
    """A phase as its decorator was written."""

    tag: str
    domain: str = ""
    color: str = ""
    category: str = ""
    device: bool = False


def key_of(spec: PhaseSpec) -> str:
    """The phase as one text: the same in every process, and quicker to look up than the tuple."""
    return "\0".join(map(str, spec))
