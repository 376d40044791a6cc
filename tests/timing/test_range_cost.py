"""What one range costs: the first plain calls of a process's windows are timed, and then none."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import accelprof
from accelprof.analysis.accounts import cost_rows
from accelprof.analysis.report_rows import Cost
from accelprof.analysis.run import open_run
from accelprof.analysis.table import ranges_cost
from accelprof.contracts.backend import BoundRange, RangeSpec
from accelprof.testing import RecordingBackend, capture
from accelprof.timing.range_cost import CALLS, RangeCost

TAKES_NS = 300_000


class Slow(RecordingBackend):
    """A vendor whose push takes :data:`TAKES_NS`."""

    name = "slow"
    aliases = ()

    def bind(self, spec: RangeSpec) -> BoundRange:
        bound = super().bind(spec)

        def push() -> Any:
            until = time.perf_counter_ns() + TAKES_NS
            while time.perf_counter_ns() < until:
                pass
            return bound.push()

        return bound._replace(push=push)


def run_of(tmp_path: Path, calls: int, body: Any) -> Cost:
    with capture(backend=Slow, directory=str(tmp_path), run="r", steps=[1, 3]) as run:
        for number in (1, 2, 3):
            with run.session.step(number):
                for _ in range(calls):
                    body()
        run.session.close()
        (row,) = cost_rows(open_run(run.run_dir))
    return row


@pytest.mark.parametrize("calls", [3, 40])
def test_a_range_costs_what_its_tools_take(tmp_path: Path, calls: int) -> None:
    """The cost of the first calls times all ranges of the windows; calls outside are not among them."""
    timed = accelprof.timer("work")(lambda: None)
    row = run_of(tmp_path, calls, timed)
    assert TAKES_NS <= row.range_ns < 20 * TAKES_NS
    assert row.range_calls == CALLS if calls > CALLS else 0 < row.range_calls <= 2 * calls
    assert row.ranges == row.spans >= 2 * calls
    assert row.ranges_ns >= 2 * calls * TAKES_NS
    assert row.ranges_unmeasured == 0


def test_ranges_of_code_that_is_suspended_are_said_to_be_unmeasured(tmp_path: Path) -> None:
    """Nothing is guessed of a generator's pieces."""

    @accelprof.timer("pieces")
    def pieces() -> Any:
        yield 1

    row = run_of(tmp_path, 2, lambda: list(pieces()))
    assert (row.range_ns, row.ranges_ns) == (None, None)
    assert row.ranges_unmeasured == row.ranges > 0
    assert ranges_cost(row) == "not measured"


def test_ad_hoc_ranges_are_timed_too(tmp_path: Path) -> None:
    def body() -> None:
        with accelprof.profiling_range("of mine"):
            pass

    assert run_of(tmp_path, 5, body).range_ns >= TAKES_NS


def test_after_enough_calls_the_tools_own_are_called() -> None:
    """The wrapper's table gets the untimed pair back with the last call that was wanted."""
    cost, replaced = RangeCost(), []
    push, pop = cost.timed(lambda: None, lambda: None, lambda: replaced.append(len(cost.taken)))
    assert cost.of_one(True) == (None, None)
    for _ in range(CALLS):
        assert not replaced
        push()
        pop()
    assert replaced == [CALLS]
    ns, calls = cost.of_one(True)
    assert ns is not None
    assert 0 <= ns < 1_000_000
    assert calls == CALLS


def test_a_push_that_fails_is_no_measure() -> None:
    cost = RangeCost()

    def fails() -> None:
        raise RuntimeError("no")

    push, pop = cost.timed(fails, lambda: None, lambda: None)
    with pytest.raises(RuntimeError):
        push()
    pop()
    assert cost.taken == []


def test_the_command_shows_it(tmp_path: Path) -> None:
    """Terminal and page have the row, and say where it comes from."""
    from click.testing import CliRunner

    from accelprof.cli.report import report

    timed = accelprof.timer("work")(lambda: None)
    run_of(tmp_path, 3, timed)
    directory = str(tmp_path / "r")
    said = CliRunner().invoke(report, [directory], env={"COLUMNS": "160"})
    assert said.exit_code == 0, said.output
    assert "what recording itself took" in said.output
    assert "the median of the process's first calls" in " ".join(said.output.split())
    page = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert "What recording itself took" in page
    as_json = json.loads(CliRunner().invoke(report, [directory, "--json"]).output)
    assert as_json["cost"][0]["range_ns"] >= TAKES_NS
