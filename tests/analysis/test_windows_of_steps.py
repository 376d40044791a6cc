"""Which steps a window is of: as the run has them, however it was opened."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import accelprof
from accelprof.analysis.compare import compare
from accelprof.analysis.files import summarise_files
from accelprof.analysis.first import sentences
from accelprof.analysis.report import Report
from accelprof.analysis.summary import summarise
from accelprof.cli.whatif import whatif


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    accelprof.reset()


def reported(session: Any) -> Report:
    return summarise(session.layout.run_dir).report()


def test_a_window_of_several_steps_is_of_all_of_them(tmp_path: Path) -> None:
    """Steps 2 to 4 in one window: the first sentence, the critical path and ``whatif`` name all three, the file that was written says
    so by itself, and no step is said to be as long as its window."""
    session = accelprof.configure(steps=["2-4"], merge_steps=True, group="G", rank=0, output_dir=str(tmp_path))
    work = accelprof.timer("train")(lambda: time.sleep(0.01))
    for step in range(1, 6):
        with session.step(step):
            work()
    session.close()
    found = reported(session)
    assert [row.step for row in found.critical_path] == ["2-4"]
    assert sentences(found)[0].startswith("Steps 2-4 took ")
    assert not any("took another time than its windows" in line for line in found.notices)
    assert [row.step for row in found.steps if row.window] == [2, 3, 4]
    [file] = (path for path in Path(session.layout.run_dir).glob("G/*.trace.json.gz"))
    assert [row["step"] for row in summarise_files([str(file)]).to_json()["steps"]] == [2, 3, 4]


def test_a_window_of_a_step_that_never_came_is_of_none(tmp_path: Path) -> None:
    """Items that do not say how many they are end before step 4, whose window was open: no figure has a step 4, and that it is not
    there is said."""
    session = accelprof.configure(steps=[2, 4], group="G", rank=0, output_dir=str(tmp_path))
    work = accelprof.timer("train")(lambda: time.sleep(0.01))
    for _ in session.steps(iter(range(3))):
        work()
    session.close()
    found = reported(session)
    assert [row.step for row in found.steps] == [1, 2, 3]
    assert [row.step for row in found.critical_path] == [2]
    assert any("steps 4 never opened" in line for line in found.undelivered)
    assert [(row.phase, row.calls) for row in found.phases] == [("train", 1), ("data", 1)]
    assert [steps for timeline in found.workers for _, steps, _, _ in timeline.windows] == [(2,)]
    assert len(found.seconds) == 1
    # and what is left is of steps: compared by them, not by call
    rows = compare(session.layout.run_dir, session.layout.run_dir, allow_partial=True).of("phase")
    assert {row.per for row in rows} == {"step"}


def test_a_rank_that_began_its_step_late_was_late_before_it(run_maker: Any, event: Any) -> None:
    """Rank 1's window opens 40 ms after the others', who wait those for it; both work for 10 ms, in a phase and in none."""
    for rank, opened in enumerate((0, 40, 0)):
        events = [
            event("work", opened * 1000, 8_000),
            event("ar", (opened + 10) * 1000, (42 - opened) * 1000, category="collective"),
        ]
        key = run_maker.target(rank, "G", host="node0")
        run_maker.timeline(key, events, end_us=(60 - opened) * 1000, at_us=opened * 1000)
    found = summarise(run_maker.write()).report()
    [row] = found.stragglers
    assert (row.worker, row.waited_ns, row.late_in) == ("G/rank1", 80_000_000, "(before its step)")
    assert "for G/rank1 in ar (late before its step)" in sentences(found)[0]


def test_a_rank_that_is_killed_in_a_window_of_several_steps_was_in_it(run_maker: Any, event: Any) -> None:
    """Rank 1 comes to step 2 of 2-4 alone, and its part of that window is beside rank 0's: 30 ms are waited for it."""
    for rank, (steps, work) in enumerate([((2, 3, 4), 10), ((2,), 40)]):
        events = [event("work", 0, work * 1000), event("ar", work * 1000, (50 - work) * 1000, category="collective")]
        run_maker.timeline(
            run_maker.target(rank, "G", host="node0"), events, steps=steps, end_us=60_000 if rank else 150_000
        )
    found = summarise(run_maker.write()).to_json()
    assert [(row["step"], row["worker"], row["waited_ns"]) for row in found["stragglers"]] == [
        ("2-4", "G/rank1", 30_000_000)
    ]


def test_whatif_takes_a_window_by_its_name_and_compares_it_with_its_like(run_maker: Any, event: Any) -> None:
    """Steps 2-4 and 7-8 take 150 and 100 ms and step 12 takes 50, as steps do that are alike: they do not lie apart by that."""
    key = run_maker.target(0, "G", host="node0")
    for at, steps in ((0, (2, 3, 4)), (200, (7, 8)), (400, (12,))):
        took = 50_000 * len(steps)
        run_maker.timeline(key, [event("work", at * 1000, took)], steps=steps, end_us=took, at_us=at * 1000)
    directory = run_maker.write()
    for asked in ("7-8", "8"):
        found = CliRunner().invoke(whatif, [directory, "--step", asked, "--scale", "work=0.5", "--json"])
        answer = json.loads(found.output)
        assert (answer["step"], answer["predicted_ns"]) == ("7-8", 50_000_000)
        assert (answer["low_ns"], answer["high_ns"]) == (49_000_000, 51_000_000)
    assert "step 9 has no window" in str(CliRunner().invoke(whatif, [directory, "--step", "9"]).exception)
