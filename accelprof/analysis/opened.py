"""A run for notebooks and scripts: its tables as data frames, of polars where it is installed, otherwise of pyarrow."""

from __future__ import annotations

import html
import os
from collections.abc import Iterator
from typing import Any

from accelprof.analysis import escape, frames
from accelprof.analysis.files import summarise_files
from accelprof.analysis.first import sentences
from accelprof.analysis.run import is_run
from accelprof.analysis.summary import Summary, summarise
from accelprof.analysis.units import duration
from accelprof.errors import UserError

#: rows of each table that a notebook shows
SHOWN = 8


class OpenedRun:
    """What a run measured; each table is read once, when it is first asked for.

    ``run.phases`` and the other names in ``run.tables()`` are data frames; ``run.rows("phases")`` is the same as a list of
    dictionaries and needs nothing installed. Columns that end in ``_ns`` are nanoseconds. The command line prints these
    tables.

    Attributes:
        summary: what the frames are made of.
    """

    def __init__(self, summary: Summary) -> None:
        self.summary = summary
        self._tables: dict[str, frames.Table] = {}
        self._frames: dict[str, Any] = {}

    @property
    def directory(self) -> str:
        return self.summary.run.directory

    @property
    def first(self) -> list[str]:
        """What to look at first, in up to three sentences."""
        return sentences(self.summary.report())

    @staticmethod
    def tables() -> list[str]:
        """The names of all tables."""
        return list(frames.TABLES)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table.

        Raises:
            UserError: there is no such table; the message names those there are.
        """
        return self._table(table).rows

    def _table(self, name: str) -> frames.Table:
        if name not in frames.TABLES:
            raise UserError(f"no table {name!r}; there are {', '.join(frames.TABLES)}")
        if name not in self._tables:
            self._tables[name] = frames.table(self.summary, name)
        return self._tables[name]

    def frame(self, table: str) -> Any:
        """A table as a data frame; one without rows has its columns.

        Raises:
            UserError: no such table, or neither polars nor pyarrow is installed.
        """
        if table not in self._frames:
            self._frames[table] = _frame(self._table(table))
        return self._frames[table]

    def pandas(self, table: str) -> Any:
        """A table as a ``pandas.DataFrame``.

        Raises:
            UserError: no such table, or pandas is not installed.
        """
        found = self._table(table)
        try:
            return frames.pandas_frame(found)
        except ImportError:
            raise UserError("pandas is not installed") from None

    def __getattr__(self, name: str) -> Any:
        if name in frames.TABLES:
            return self.frame(name)
        raise AttributeError(f"a run has no {name!r}; its tables are {', '.join(frames.TABLES)}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *frames.TABLES})

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(self.rows(name))} {name}" for name in ("phases", "windows", "files"))
        return f"<run {escape.terminal(os.path.basename(self.directory))}: {counts}>"

    def _repr_html_(self) -> str:
        """For notebooks: what to look at first, and the head of the longest tables."""
        name = escape.html(self.summary.run.manifest.run or os.path.basename(self.directory))
        return f"<h3>{name}</h3>" + "".join(self._parts())

    def _parts(self) -> Iterator[str]:
        for line in (*self.summary.undelivered, *self.first):
            yield f"<p>{escape.html(line)}</p>"
        for table in ("phases", "devices", "stragglers"):
            rows = self.rows(table)
            if not rows:
                continue
            names = [name for name in rows[0] if any(row.get(name) is not None for row in rows)]
            heads = "".join(f"<th>{html.escape(name.removesuffix('_ns'))}</th>" for name in names)
            lines = "".join(
                "<tr>" + "".join(f"<td>{escape.html(_text(name, row.get(name)))}</td>" for name in names) + "</tr>"
                for row in rows[:SHOWN]
            )
            rest = f"<p>… and {len(rows) - SHOWN} more rows in <code>.{table}</code></p>" if len(rows) > SHOWN else ""
            yield f"<h4>{table}</h4><table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>{rest}"


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name.endswith("_ns"):
        return duration(value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _frame(table: frames.Table) -> Any:
    for made in (frames.polars_frame, frames.arrow_table):
        try:
            return made(table)
        except ImportError:
            pass
    raise UserError("data frames need polars or pyarrow: pip install 'accelprof[frames]'")


def open_run(source: str | os.PathLike[str], *more: str | os.PathLike[str]) -> OpenedRun:
    """Open a run directory, or any files (and directories of files) that a reader knows.

    Raises:
        ReadError: there is no run, or none of the files can be read.
    """
    paths = [os.fspath(path) for path in (source, *more)]
    if not more and os.path.isdir(paths[0]) and is_run(paths[0]):
        return OpenedRun(summarise(paths[0]))
    return OpenedRun(summarise_files(paths))
