"""Tables of a summary as files: CSV with the standard library, Parquet through polars or pyarrow."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable

from accelprof import atomic
from accelprof.analysis import escape, frames
from accelprof.analysis.summary import Summary
from accelprof.errors import UserError


def write_tables(summary: Summary, directory: str, suffix: str) -> list[str]:
    """Write each table as ``NAME.csv`` or ``NAME.parquet``, also one without rows: what another run left under the name would be
    taken for this one's. Returns the names of the files.

    Raises:
        UserError: ``parquet`` without polars or pyarrow.
        OSError: the directory cannot be written.
    """
    write = _csv if suffix == "csv" else _parquet_writer()
    os.makedirs(directory, exist_ok=True)
    written = []
    for name in frames.TABLES:
        path = os.path.join(directory, f"{name}.{suffix}")
        with atomic.whole(path) as temporary:
            write(frames.table(summary, name), temporary)
        written.append(os.path.basename(path))
    return written


def _csv(table: frames.Table, path: str) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.columns)
        for row in table.rows:
            values = (row[name] for name in table.columns)
            writer.writerow(["" if v is None else escape.csv(v) if isinstance(v, str) else v for v in values])


def _parquet_writer() -> Callable[[frames.Table, str], None]:
    try:
        import polars  # noqa: F401 - asked for before anything is written

        return lambda table, path: frames.polars_frame(table).write_parquet(path)
    except ImportError:
        pass
    try:
        import pyarrow.parquet

        return lambda table, path: pyarrow.parquet.write_table(frames.arrow_table(table), path)
    except ImportError:
        raise UserError("Parquet needs polars or pyarrow: pip install 'accelprof[frames]'") from None
