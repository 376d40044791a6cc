"""Rows of CSV files as the vendor's tools write them."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping

from accelprof.errors import ReadError

Row = Mapping[str, str]


def rows(path: str) -> Iterator[Row]:
    """Rows by column, whitespace (a TAB inside the quotes among it) taken off.

    Raises:
        ReadError: not there, empty, or not text.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            if not reader.fieldnames:
                raise ReadError(path, "the file is empty")
            for row in reader:
                yield {
                    (key or "").strip(): (value or "").strip()
                    for key, value in row.items()
                    if isinstance(value, str) or value is None
                }
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ReadError(path, str(error)) from error


def column(row: Row, *names: str) -> str:
    """The first of ``names`` that the row has with something in it."""
    return next((row[name] for name in names if row.get(name)), "")
