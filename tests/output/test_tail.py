"""Journals that grow while they are read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from accelprof.contracts.names import JOURNAL, WORKERS
from accelprof.output import tail
from accelprof.output.tail import Tail


def line(step: int, label: str = "G/rank0") -> str:
    return json.dumps({"kind": "metrics", "label": label, "step": step, "rows": {}}) + "\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / WORKERS).mkdir()
    return tmp_path / WORKERS


def add(place: Path, key: str, text: str) -> None:
    with open(place / (key + JOURNAL), "a", encoding="utf-8") as file:
        file.write(text)


def steps(one: Tail) -> list[int]:
    return [row.step for row in one.look().timings]


def test_each_row_is_read_once_and_a_half_one_when_it_is_whole(place: Path) -> None:
    """However its writing is cut."""
    one = Tail(str(place.parent), "me")
    assert (one.keys(), steps(one)) == ([], [])
    whole = line(1) + line(2)
    for at, letter in enumerate(whole):
        add(place, "a", letter)
        ended = {len(line(1)) - 1: [1], len(whole) - 1: [2]}
        assert steps(one) == ended.get(at, [])
    assert (steps(one), one.behind, one.keys()) == ([], False, ["a"])


def test_ones_own_journal_and_what_is_none_are_left_out(place: Path) -> None:
    """A pipe would be waited on, and a link may lead anywhere."""
    one = Tail(str(place.parent), "me")
    add(place, "me", line(1))
    add(place.parent, "elsewhere", line(2))
    os.mkfifo(place / f"pipe{JOURNAL}")
    os.symlink(place.parent / f"elsewhere{JOURNAL}", place / f"link{JOURNAL}")
    (place / f"directory{JOURNAL}").mkdir()
    add(place, "other", "[1]\nno json\n" + line(3))
    assert steps(one) == [3]
    assert "other" in (keys := one.keys())
    assert "me" not in keys


def test_what_others_wrote_before_may_be_passed_over(place: Path) -> None:
    """What comes later of them is read, and one that is not there is nobody."""
    add(place, "a", line(1))
    add(place, "b", line(2))
    one = Tail(str(place.parent), "me")
    one.pass_over(["a", "nobody"])
    assert steps(one) == [2]
    add(place, "a", line(3))
    assert steps(one) == [3]


def test_one_look_has_an_end_and_the_next_goes_on_with_the_others(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that grows quickly does not keep the others from being read."""
    monkeypatch.setattr(tail, "CHUNK", 4 * len(line(10)))
    monkeypatch.setattr(tail, "LOOK", 4 * len(line(10)))
    one = Tail(str(place.parent), "me")
    for key, first in (("a", 10), ("b", 50)):
        add(place, key, "".join(line(first + number) for number in range(8)))
    looks = []
    while True:
        looks.append(steps(one))
        if not one.behind:
            break
        assert len(looks) < 20
    assert [found[0] for found in looks[:4]] == [10, 50, 14, 54]
    assert sorted(step for found in looks for step in found) == [*range(10, 18), *range(50, 58)]


def test_a_line_that_is_too_long_stops_nobody(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is passed, and what follows is read."""
    monkeypatch.setattr(tail, "CHUNK", 200)
    one = Tail(str(place.parent), "me")
    add(place, "a", "x" * 900 + "\n" + line(4))
    found = [step for _ in range(10) for step in steps(one)]
    assert found == [4]
