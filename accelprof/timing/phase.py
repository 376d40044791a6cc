"""A phase as its decorator was written: the key of everything that is resolved once and used many times."""

from __future__ import annotations

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

    @property
    def tag(self) -> str:
        return self[0]

    @property
    def domain(self) -> str:
        return self[1]

    @property
    def color(self) -> str:
        return self[2]

    @property
    def category(self) -> str:
        return self[3]

    @property
    def device(self) -> bool:
        return self[4]

    def __getnewargs__(self) -> tuple[object, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"PhaseSpec{tuple(self)}"


def key_of(spec: PhaseSpec) -> str:
    """The phase as one text: the same in every process, and quicker to look up than the tuple."""
    return "\0".join(map(str, spec))
