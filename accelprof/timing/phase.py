"""A phase as its decorator was written: the key of everything that is resolved once and used many times."""

from __future__ import annotations

from _operator import itemgetter  # the built-in part: nothing is loaded for it

#: how a phase runs, from the tool's point of view: on the thread's stack; suspended in between, so that others of its
#: kind may overlap it; or in pieces, of which each is on the thread's stack (a generator, between two of its items)
ON_STACK, SUSPENDS, IN_PIECES = 0, 1, 2


class PhaseSpec(tuple[str, str, str, str, bool]):
    """A phase as its decorator was written. Written out, because a named tuple is made by a compiler call, a fiftieth of
    the whole import."""

    __slots__ = ()

    def __new__(
        cls, tag: str, domain: str = "", color: str = "", category: str = "", device: bool = False
    ) -> PhaseSpec:
        return tuple.__new__(cls, (tag, domain, color, category, device))

    # read without a call of Python's, as a named tuple's fields are
    tag: property = property(itemgetter(0))
    domain: property = property(itemgetter(1))
    color: property = property(itemgetter(2))
    category: property = property(itemgetter(3))
    device: property = property(itemgetter(4))

    def __getnewargs__(self) -> tuple[object, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"PhaseSpec{tuple(self)}"


def key_of(spec: PhaseSpec) -> str:
    """The phase as one text: the same in every process, and quicker to look up than the tuple."""
    return "\0".join(map(str, spec))
