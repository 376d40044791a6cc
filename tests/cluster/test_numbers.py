"""What counts as a step's, a worker's or a replica's number, at every door of a run: one rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import accelprof
from accelprof.errors import ConfigError

pytest.importorskip("ray", reason="ray is not installed")


class Index:
    """A whole number of another package's, as numpy's and torch's are."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __index__(self) -> int:
        return self._number


NO_NUMBERS = [True, 3.0, Decimal(3), "three", 3.5, [3], float("nan")]


@pytest.fixture
def made(tmp_path: Path) -> Any:
    """A controller whose driver is a worker too."""
    from accelprof.cluster import Controller  # needs ray

    made = Controller(steps=[3], controller={"tool": None}, output_dir=str(tmp_path), run="r", report_timeout=1)
    yield made
    made.close()
    accelprof.reset()


def test_a_step_is_any_whole_number_for_controller_and_session(made: Any, tmp_path: Path) -> None:
    """Numbers of other packages are taken as what they stand for, in every file too; what is none is refused by both."""
    for wrong in (*NO_NUMBERS, "3"):
        for call in (made.begin_step, made.end_step, made.session.begin_step, made.session.end_step):
            with pytest.raises(TypeError, match="whole numbers"):
                call(wrong)
        for step in (made.step, made.session.step):
            with pytest.raises(TypeError, match="whole numbers"), step(wrong):
                pytest.fail("it began")
        with pytest.raises(TypeError, match="whole numbers"):
            next(made.session.steps([1], first=wrong))
    with made.step(Index(3)):
        pass
    manifest = made.close()
    assert [window["steps"] for window in manifest["windows"]] == [[3]]
    kept = json.loads((tmp_path / "r/manifest.json").read_text())
    assert [(row["step"], "wall_ns" in row) for row in kept["metrics"]["steps"]] == [(3, True)]


@pytest.mark.parametrize("name", ["rank", "replica", "world_size"])
def test_a_workers_numbers_are_the_same_at_every_door(made: Any, name: str, tmp_path: Path) -> None:
    """``options``, ``attach`` and ``configure`` take the same numbers for a worker, and make plain ones of them."""
    many = {"rank": "ranks", "replica": "replicas"}.get(name, name)
    doors: list[Callable[[Any], Any]] = [
        lambda value: made.options("G", **{name: value}),
        lambda value: made.attach("G", [object()], **{many: value if many == name else [value]}),
    ]
    for wrong in (*NO_NUMBERS, -1):
        for door in doors:
            with pytest.raises(ConfigError, match=many if door is doors[1] else name):
                door(wrong)
    for right in (Index(4), 4, "4"):
        made.options("G", **{name: right})
        value = getattr(made.roster.planned["G"][-1].target, name)
        assert (value, type(value)) == (4, int)
    assert not made.roster.members
