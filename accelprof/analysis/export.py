"""Tables of a summary as files: CSV with the standard library, Parquet through polars or pyarrow."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence

from accelprof.analysis import escape, frames
from accelprof.analysis.summary import Summary
from accelprof.errors import UserError

Row = dict[str, object]


def write_tables(summary: Summary, directory: str, suffix: str) -> list[str]:
    """Write each table that has rows as ``NAME.csv`` or ``NAME.parquet``; returns the names of the files.

    Raises:
        UserError: ``parquet`` without polars or pyarrow.
        OSError: the directory cannot be written.
    """
    write = _csv if suffix == "csv" else _parquet_writer()
    os.makedirs(directory, exist_ok=True)
    written = []
    for name, rows in frames.TABLES.items():
        found = list(rows(summary))
        if not found:
            continue
        path = os.path.join(directory, f"{name}.{suffix}")
        temporary = f"{path}.{os.getpid()}.part"
        try:
            write(found, temporary)
            os.replace(temporary, path)
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)
        written.append(os.path.basename(path))
    return written


def columns(rows: Sequence[Row]) -> list[str]:
    """All names in the rows, in the order in which they come first."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _csv(rows: Sequence[Row], path: str) -> None:
    names = columns(rows)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for row in rows:
            values = (row.get(name) for name in names)
            writer.writerow(["" if v is None else escape.csv(v) if isinstance(v, str) else v for v in values])


def _parquet_writer() -> Callable[[Sequence[Row], str], None]:
    try:
        import polars

        return lambda rows, path: polars.DataFrame(list(rows), infer_schema_length=None).write_parquet(path)
    except ImportError:
        pass
    try:
        import pyarrow
        import pyarrow.parquet

        return lambda rows, path: pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    except ImportError:
        raise UserError("Parquet needs polars or pyarrow: pip install 'accelprof[frames]'") from None
