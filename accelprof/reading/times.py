"""Many decimal times at once: µs as a file writes them become whole ns, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from accelprof.contracts.spans import FURTHEST_NS
from accelprof.reading.chrome_file import BadTimeError, exact_ns

#: longer texts than this are left to the slow way
_WIDTH = 24
#: up to so many texts the slow way is the quick one: a run of many workers has many small files
_FEW = 100
_ZERO, _NINE, _DOT = ord("0"), ord("9"), ord(".")


def exact_column(raws: Sequence[Any]) -> tuple[Any, dict[int, str]]:
    """``(int64 array of ns, row -> why it is no time)`` of times in µs as they stand in the file; 0 where there is none.

    Digits are added up column by column in whole numbers; whatever has another form than ``123`` or ``123.456`` goes
    through :func:`accelprof.reading.chrome_file.exact_ns`, whose answer this is.
    """
    texts = [bytes(raw) for raw in raws]
    count = len(texts)
    if count <= _FEW:
        return _one_by_one(texts)
    table = (
        np.array(texts, dtype=f"S{_WIDTH}").view(np.uint8).reshape(count, _WIDTH) if count else np.zeros((0, _WIDTH))
    )
    total: Any = np.zeros(count, dtype=np.uint64)
    whole: Any = np.zeros(count, dtype=np.int64)
    fraction: Any = np.zeros(count, dtype=np.int64)
    dots: Any = np.zeros(count, dtype=np.int64)
    odd: Any = np.zeros(count, dtype=np.bool_)
    for column in range(_WIDTH):
        letters = table[:, column]
        if not letters.any():
            break
        digit = (letters >= _ZERO) & (letters <= _NINE)
        dot = letters == _DOT
        odd |= ~(digit | dot | (letters == 0))
        total = np.where(digit, total * np.uint64(10) + (letters - _ZERO).astype(np.uint64), total)
        fraction += digit & (dots > 0)
        whole += digit & (dots == 0)
        dots += dot
    missing: Any = 3 - fraction
    odd |= (missing < 0) | (dots > 1) | (whole > 16) | (whole == 0) | ((dots == 1) & (fraction == 0))
    odd |= np.fromiter((len(text) >= _WIDTH for text in texts), dtype=np.bool_, count=count)
    total = total * np.array([1, 10, 100, 1000], dtype=np.uint64)[np.clip(missing, 0, 3)]
    odd |= total >= np.uint64(FURTHEST_NS)
    times = np.where(odd, np.uint64(0), total).astype(np.int64)
    rows = np.flatnonzero(odd).tolist()
    found, wrong = _one_by_one([texts[row] for row in rows])
    times[rows] = found
    return times, {rows[index]: why for index, why in wrong.items()}


def _one_by_one(texts: Sequence[bytes]) -> tuple[Any, dict[int, str]]:
    times: Any = np.zeros(len(texts), dtype=np.int64)
    bad: dict[int, str] = {}
    for row, text in enumerate(texts):
        try:
            found = exact_ns(text)
            if abs(found) >= FURTHEST_NS:
                raise BadTimeError("endless")
            times[row] = found
        except BadTimeError as error:
            bad[row] = str(error)
    return times, bad
