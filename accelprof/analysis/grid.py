"""Tables of text that fit: columns go by rank of use, labels are cut in their middle, never a number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from accelprof.analysis.escape import elide, elide_apart, terminal, width

if TYPE_CHECKING:
    from rich.console import Console

GAP = 2


@dataclass(frozen=True, slots=True)
class Column:
    """``rank``: the columns with the highest numbers go first where there is no room; 0 always stays. ``label``: 0 for
    numbers; the cells are labels otherwise, which are not cut to less than this while a column can still go."""

    title: str
    rank: int = 0
    label: int = 0


@dataclass
class Grid:
    """Rows of cells under columns; cells are shown as they are, control characters made visible."""

    title: str
    columns: Sequence[Column]
    rows: list[tuple[Sequence[str], str]] = field(default_factory=list)
    note: str = ""

    def add(self, *cells: str, style: str = "") -> None:
        """One row; ``style`` is for terminals that have any (``bold``, ``dim``, ``red``)."""
        self.rows.append(([terminal(cell) for cell in cells], style))

    def lines(self, columns: int) -> Iterable[tuple[str, str]]:
        """``(text, style)`` of each line, none longer than ``columns`` where the columns that always stay let it."""
        kept = list(range(len(self.columns)))
        needs = [
            max([width(self.columns[at].title), *(width(cells[at]) for cells, _ in self.rows if at < len(cells))])
            for at in kept
        ]
        labels = [at for at in kept if self.columns[at].label]

        def least() -> int:
            return sum(min(needs[at], self.columns[at].label) if at in labels else needs[at] for at in kept) + GAP * (
                len(kept) - 1
            )

        while least() > columns and any(self.columns[at].rank for at in kept):
            kept.remove(max(kept, key=lambda at: (self.columns[at].rank, at)))
        spare = columns - GAP * (len(kept) - 1) - sum(needs[at] for at in kept if at not in labels)
        room = _shared(spare, {at: needs[at] for at in kept if at in labels})
        short = {
            at: elide_apart((cells[at] for cells, _ in self.rows if at < len(cells)), size) for at, size in room.items()
        }
        yield from ((line, "bold") for line in wrapped(self.title, columns))
        yield self._line([column.title for column in self.columns], kept, needs, room), "dim"
        for cells, style in self.rows:
            yield (
                self._line([short.get(at, {}).get(cell, cell) for at, cell in enumerate(cells)], kept, needs, room),
                style,
            )
        yield from ((line, "dim") for line in wrapped(self.note, columns))

    def _line(self, cells: Sequence[str], kept: Sequence[int], needs: Sequence[int], room: dict[int, int]) -> str:
        parts = []
        for at in kept:
            cell = cells[at] if at < len(cells) else ""
            size = room.get(at, needs[at])
            cell = elide(cell, size) if at in room else cell
            pad = " " * (size - width(cell))
            parts.append(cell + pad if self.columns[at].label else pad + cell)
        return (" " * GAP).join(parts).rstrip()


def _shared(spare: int, needs: dict[int, int]) -> dict[int, int]:
    """Room for each label: what it needs, and where that is too much for all, the longest give way first."""
    room = {at: min(need, max(spare, 3)) for at, need in needs.items()}
    while room and sum(room.values()) > max(spare, 3 * len(room)):
        room[max(room, key=lambda at: room[at])] -= 1
    return room


def wrapped(text: str, columns: int, indent: str = "") -> list[str]:
    """Lines of a sentence, broken between words only; a word longer than a line is cut in its middle."""
    lines: list[str] = []
    line = ""
    for word in terminal(text).split():
        word = elide(word, max(columns - len(indent), 3))
        longer = f"{line} {word}" if line else word
        if line and width(longer) + (len(indent) if lines else 0) > columns:
            lines.append((indent if lines else "") + line)
            line = word
        else:
            line = longer
    return [*lines, (indent if lines else "") + line] if line else lines


def show(console: Console, grid: Grid) -> None:
    """Print a table; colours only where the console has a terminal."""
    for line, style in grid.lines(console.width):
        say(console, line, style)
    say(console, "")


def say(console: Console, text: str, style: str = "") -> None:
    """Print one line as it is: no markup, no wrapping in the middle of a word, control characters made visible."""
    from rich.text import Text

    console.print(Text(terminal(text), style=style), soft_wrap=True, highlight=False)


def tell(console: Console, text: str, style: str = "", indent: str = "  ") -> None:
    """Print a sentence, broken between words."""
    for line in wrapped(text, console.width, indent):
        say(console, line, style)
