"""Steps that others' windows were opened or closed in: what a rank waits there is the recording's cost, and no step's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelprof.analysis.compare import compare
from accelprof.analysis.first import sentences
from accelprof.analysis.recording import Recording
from accelprof.analysis.report_rows import StepTime
from accelprof.analysis.summary import summarise
from accelprof.output.records import Moment, WindowRow

MS = 1_000_000
EPOCH_NS = 1_795_852_566_000_000_000


def window(opened: int, open_ns: int, closed: int | None, close_ns: int | None) -> WindowRow:
    end = None if closed is None else Moment(closed)
    return WindowRow(id="w", opened=Moment(opened), open_ns=open_ns, closed=end, close_ns=close_ns)


@settings(deadline=None, max_examples=200)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(0, 60), st.integers(0, 20)), max_size=6
    ),
    began=st.integers(-10, 70),
    wall=st.integers(0, 50),
)
def test_moments_are_counted_once(rows: list[tuple[int, int, int, int]], began: int, wall: int) -> None:
    """Against a count of each nanosecond: of windows that open and close at once on several ranks it counts once."""
    found = Recording([window(opened, took, opened + more, ended) for opened, took, more, ended in rows])
    slow = {
        moment
        for opened, took, more, ended in rows
        for span in (range(opened - took, opened), range(opened + more - ended, opened + more))
        for moment in span
    }
    assert found.within(began, wall) == len(slow & set(range(began, began + wall)))


def test_windows_that_never_closed_and_old_ones_count_as_far_as_they_say() -> None:
    found = Recording([window(100, 50, None, None), WindowRow(id="old", opened=Moment(10 * MS), open_ms=2.5)])
    assert found.within(0, 1000) == 50
    assert found.within(0, 20 * MS) == 50 + 2.5 * MS


@pytest.mark.parametrize(("recorded", "costly"), [(None, False), (4, False), (6, True)])
def test_much_of_a_step_is_costly(recorded: int | None, costly: bool) -> None:
    assert StepTime(1, 100, False, recorded).is_costly is costly


def job(
    run_maker: Any,
    event: Any,
    directory: str,
    *,
    update_ms: int = 30,
    close_ms: int = 300,
    apart: bool = False,
    other: str = "ActorGroup",
) -> str:
    """Ranks 0 and 1 for 24 steps; rank 1's windows of steps 4 and 12 take ``close_ms`` to close, and rank 0, already in the
    next step, waits for it in ``update``. Step 17 was slow by itself on rank 0."""
    maker = type(run_maker)(run_maker.directory / directory)
    keys = [
        maker.target(rank, group=group, host=f"node{rank if apart else 0}")
        for rank, group in enumerate(("ActorGroup", other))
    ]
    at, rows = EPOCH_NS, []
    for step in range(24):
        wall = update_ms * MS + (60 * MS if step == 17 else 0) + (close_ms * MS if step in (5, 13) else 0)
        seconds = {
            "update": {
                "max": wall / 1e9,
                "mean": wall / 1e9,
                "min": wall / 1e9,
                "ranks": 2,
                "slowest": "ActorGroup/rank0",
            }
        }
        rows.append({"step": step, "began_ns": at, "wall_ns": wall, "window": step in (4, 12), "seconds": seconds})
        if step in (4, 12):
            for key, took in zip(keys, (0, close_ms), strict=True):
                begun_us = (at - EPOCH_NS) // 1000
                maker.timeline(key, [event("update", begun_us, wall // 1000)], (step,), wall // 1000, begun_us)
                closed = {"closed": {"epoch_ns": at + wall + took * MS}, "close_ns": took * MS, "kind": "step"}
                maker.manifest["windows"][-1].update(opened={"epoch_ns": at}, open_ns=0, **closed)
        at += wall
    maker.manifest["metrics"] = {"steps": rows}
    return str(maker.write())


def test_a_step_beside_a_closing_window_is_no_slow_step(run_maker: Any, event: Any) -> None:
    """Steps 5 and 13 took ten times the others only because rank 1 was writing its file: the page says so, names step 17, which was
    slow by itself, and no outlier, drift or first sentence has the others."""
    found = summarise(job(run_maker, event, "one")).report()
    assert [(row.step, row.phase, row.worker) for row in found.outliers] == [(17, "update", "ActorGroup/rank0")]
    assert {row.step: row.recording_ns for row in found.steps if row.recording_ns} == {
        5: 300 * MS,
        13: 300 * MS,
    }
    [line] = [
        line for line in found.notices if line.startswith("step 5, 13 ran while windows were being opened or closed")
    ]
    assert "300 ms of the 330 ms of step" in line
    assert any("tep 17 took 90 ms" in line for line in sentences(found))
    assert not any("tep 5 " in line or "tep 13 " in line for line in sentences(found))


def test_a_comparison_does_not_take_it_for_the_steps_own(run_maker: Any, event: Any) -> None:
    """The same training with a tool that closes quickly and with one that closes slowly: steps and phases took the same."""
    found = compare(
        job(run_maker, event, "quick", close_ms=1), job(run_maker, event, "slow", close_ms=900), allow_partial=True
    )
    ratios = {row.name: row.ratio for row in found.of("step")} | {
        row.name: row.ratio for row in found.of("phase in steps")
    }
    assert ratios
    assert all(ratio == pytest.approx(1.0, abs=0.01) for ratio in ratios.values()), json.dumps(ratios)


def test_another_groups_window_makes_no_step_costly(run_maker: Any, event: Any) -> None:
    """The windows that take long to close are of a group without a phase in these steps: they were slow by themselves."""
    found = summarise(job(run_maker, event, "one", other="Eval")).to_json()
    assert not any("recording_ns" in row for row in found["steps"])
    assert {row["step"] for row in found["outliers"]} == {5, 13, 17}


def test_clocks_that_were_not_compared_say_nothing_of_it(run_maker: Any, event: Any) -> None:
    """On two hosts nobody knows what happened at the same time; compared within a millisecond it is known, half a second apart it is not."""
    path = job(run_maker, event, "two", apart=True)
    assert not any("recording_ns" in row for row in summarise(path).to_json()["steps"])
    manifest = json.loads((Path(path) / "manifest.json").read_text())
    for offset_ms, known in ((1, True), (500, False)):
        row = {"offset_ns": offset_ms * MS, "error_ns": 1000}
        manifest["clock_offsets"] = {target["key"]: row for target in manifest["targets"]}
        (Path(path) / "manifest.json").write_text(json.dumps(manifest))
        assert any("recording_ns" in row for row in summarise(path).to_json()["steps"]) is known
