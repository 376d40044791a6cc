"""Reading damaged JSON costs what the text is long, whatever is wrong with it and wherever."""

from __future__ import annotations

import json
import random
from decimal import Decimal

import pytest

from accelprof.reading import lenient
from accelprof.reading.lenient import Repairs, objects

DAMAGED = '{"ph": "X", "name": "D:\\qa\\z", "ts": %d.5, "args": {"pad": "%s"}}'
WHOLE = '{"ph": "X", "name": "gemm", "ts": %d.25, "args": {"list": [{"a": 1}, {"b": [2, {}]}], "pad": "%s"}}'


def read(text: str) -> tuple[list[tuple[dict[str, object], int]], list[str]]:
    repairs = Repairs()
    return list(objects(text, text.index("[") + 1, repairs)), list(repairs.lines())


def test_no_event_is_decoded_with_the_whole_text_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the decoder counts the lines before it: with all of the text, twice the events would cost four times."""
    seen: list[int] = []
    decode = json.JSONDecoder.raw_decode

    def noted(self: json.JSONDecoder, text: str, at: int = 0) -> tuple[object, int]:
        seen.append(len(text))
        return decode(self, text, at)

    monkeypatch.setattr(json.JSONDecoder, "raw_decode", noted)
    count = 4000
    events, _ = read("[" + ",\n".join(DAMAGED % (number, "x" * 60) for number in range(count)) + "]")
    assert [event["ts"] for event, _ in events] == [Decimal(f"{number}.5") for number in range(count)]
    assert len(seen) < 3 * count
    assert max(seen) <= lenient._Strict.PIECE


@pytest.mark.parametrize("seed", range(8))
def test_the_size_of_a_piece_changes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events whole, damaged, longer than a piece, cut and no objects at all: as with one piece for all of the text."""
    luck = random.Random(seed)
    parts = []
    for number in range(60):
        pad = "p\\u00e9" * luck.choice((0, 3, 40, 400))
        parts.append(
            luck.choice((WHOLE % (number, pad), DAMAGED % (number, pad), str(10 ** luck.randrange(90)), "[1, 2]"))
        )
    text = "[" + luck.choice((",", ",\n", " , ")).join(parts) + "]"
    text = text[: luck.randrange(len(text) // 2, len(text) + 1)]
    monkeypatch.setattr(lenient._Strict, "PIECE", 1 << 30)
    expected = read(text)
    assert len(expected[0]) > 5
    for piece in (1, 16, 300, 4096):
        monkeypatch.setattr(lenient._Strict, "PIECE", piece)
        assert read(text) == expected
