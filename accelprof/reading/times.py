"""Many decimal times at once: µs as a file writes them become whole ns, exactly."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from accelprof.contracts.spans import FURTHEST_NS
from accelprof.reading.chrome_file import BadTimeError, exact_ns
from accelprof.reading.columns import Array

#: longer texts than this are left to the slow way
_WIDTH = 24
#: up to so many texts the slow way is the quick one: a run of many workers has many small files
_FEW = 100
#: of 16 digits before the point only those that begin so are below :data:`FURTHEST_NS` whatever follows
_THREE = ord("3")
_ZERO, _NINE, _DOT, _COMMA = b"09.,"
_TENS: Array = np.array([1, 10, 100, 1000], np.int64)


def exact_column(raws: Sequence[msgspec.Raw]) -> tuple[Array, dict[int, str]]:
    """``(int64 array of ns, row -> why it is no time)`` of times in µs as they stand in the file; 0 where there is none.

    Whatever has another form than ``123`` or ``123.456`` goes through :func:`accelprof.reading.chrome_file.exact_ns`,
    whose answer this is.
    """
    if len(raws) <= _FEW:
        return _one_by_one([bytes(raw) for raw in raws])
    found = _plain(raws)
    return (found, {}) if found is not None else _by_digits([bytes(raw) for raw in raws])


def _plain(raws: Sequence[msgspec.Raw]) -> Array | None:
    """Times that are all plain decimals with at most three places; ``None`` where one is none."""
    text = b",".join(raws)
    letters: Array = np.frombuffer(text + b",", np.uint8)
    commas: Array = np.flatnonzero(letters == _COMMA)
    dots: Array = np.flatnonzero(letters == _DOT)
    digits = (letters >= _ZERO) & (letters <= _NINE)
    if len(commas) != len(raws) or int(digits.sum()) + len(commas) + len(dots) != len(letters):
        return None
    owner: Array = np.searchsorted(commas, dots)
    begins = np.concatenate([[0], commas[:-1] + 1])
    places: Array = np.zeros(len(raws), np.int64)
    places[owner] = commas[owner] - dots - 1
    count = commas - begins - places
    count[owner] -= 1
    if (places > 3).any() or (places[owner] == 0).any() or (count < 1).any() or (count > 16).any():
        return None
    if (len(owner) > 1 and not (np.diff(owner) > 0).all()) or (letters[begins[count == 16]] > _THREE).any():
        return None
    size = int(commas[0]) + 1
    if (
        len(letters) == size * len(raws)
        and (np.diff(commas) == size).all()
        and (not len(dots) or (len(dots) == len(raws) and (np.diff(dots) == size).all()))
    ):  # all as long as the first, and the dots of all in one place
        table = letters.reshape(len(raws), size)[:, :-1]
        if len(dots):
            table = np.delete(table, int(dots[0]), axis=1)
        powers: Array = 10 ** np.arange(table.shape[1] - 1, -1, -1, dtype=np.int64)
        return (table - np.uint8(_ZERO)).astype(np.int64) @ powers * _TENS[3 - places]
    whole = np.fromstring(text.replace(b".", b"").decode("ascii"), dtype=np.int64, sep=",")
    return whole * _TENS[3 - places]


def _by_digits(texts: list[bytes]) -> tuple[Array, dict[int, str]]:
    """The same where some have another form: digits are added up column by column in whole numbers."""
    count = len(texts)
    table = np.array(texts, dtype=f"S{_WIDTH}").view(np.uint8).reshape(count, _WIDTH)
    total: Array = np.zeros(count, dtype=np.uint64)
    whole: Array = np.zeros(count, dtype=np.int64)
    fraction: Array = np.zeros(count, dtype=np.int64)
    dots: Array = np.zeros(count, dtype=np.int64)
    odd: Array = np.zeros(count, dtype=np.bool_)
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
    missing: Array = 3 - fraction
    odd |= (missing < 0) | (dots > 1) | (whole > 16) | (whole == 0) | ((dots == 1) & (fraction == 0))
    odd |= np.fromiter((len(text) >= _WIDTH for text in texts), dtype=np.bool_, count=count)
    total = total * np.array([1, 10, 100, 1000], dtype=np.uint64)[np.clip(missing, 0, 3)]
    odd |= total >= np.uint64(FURTHEST_NS)
    times = np.where(odd, np.uint64(0), total).astype(np.int64)
    rows = np.flatnonzero(odd).tolist()
    found, wrong = _one_by_one([texts[row] for row in rows])
    times[rows] = found
    return times, {rows[index]: why for index, why in wrong.items()}


def _one_by_one(texts: Sequence[bytes]) -> tuple[Array, dict[int, str]]:
    times: Array = np.zeros(len(texts), dtype=np.int64)
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
