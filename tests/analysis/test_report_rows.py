"""Rows of the report keep their keys: who makes them, their table, and the files that were written before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from accelprof.analysis.critical import Step
from accelprof.analysis.frames import _TABLES, TABLES, _flat, devices_together
from accelprof.analysis.late import stragglers
from accelprof.analysis.replay import Graph
from accelprof.analysis.report_rows import DeviceRow, Straggler, columns_of, step_name
from accelprof.analysis.summary import summarise
from accelprof.analysis.table import grids
from accelprof.analysis.waited import by_phase
from accelprof.analysis.waits import Waits
from accelprof.output.layout import seen_text
from tests.analysis.test_whole_second import two_ranks

TWO_GPUS = Path(__file__).parent / "two_gpus"
STRAGGLERS = {
    "step": int, "phase": str, "number": int, "group": str, "worker": str, "waited_ns": int, "low_ns": int,
    "high_ns": int, "waited_by": str, "late_in": str, "missing": str, "without_ns": int, "transfer_ns": int, "on": str,
    "process_group": str, "after": str, "alone_ns": int,
}  # fmt: skip


def test_stragglers_have_their_columns_in_order() -> None:
    """Names, order and types of the table of stragglers, and of the rows that hosts' collectives give."""
    assert list(columns_of(Straggler).items()) == list(STRAGGLERS.items())
    assert TABLES["stragglers"] == STRAGGLERS
    rows = stragglers(Graph(two_ranks()))
    assert rows
    assert all(list(row.to_json()) == list(STRAGGLERS) for row in rows)


def test_every_row_has_the_columns_of_its_table() -> None:
    """Of a run with devices, of all tables: names in order, and no others but of figures that backends have besides."""
    summary = summarise(TWO_GPUS)
    seen = set()
    for name, columns in TABLES.items():
        for row in _TABLES[name][0](summary):
            seen.add(name)
            assert list(dict(_flat(row.cells()))) == list(columns), name
    assert seen >= {
        "phases",
        "steps",
        "devices",
        "device_phases",
        "kernels",
        "operators",
        "seconds",
        "stragglers",
        "slack",
    }
    assert seen >= {"critical_path", "cost", "ranks", "windows", "files", "file_phases"}


def straggler(step: int, on: str, waited_ns: int) -> Straggler:
    return Straggler(
        step=step, phase="reduce", number=0, group="G", worker="G/rank1", waited_ns=waited_ns, low_ns=0, high_ns=waited_ns,
        waited_by=["G/rank0"], late_in="work", missing=[], without_ns=0, transfer_ns=1, on=on, process_group=None,
        after="G/rank0", alone_ns=waited_ns // 2,
    )  # fmt: skip


def test_a_wait_that_host_and_device_saw_is_not_added_up() -> None:
    """In the table on the terminal each side has its line, as on the page; a comparison takes the longer."""
    rows = [straggler(1, "host", 100), straggler(1, "device", 90), straggler(2, "host", 7), straggler(2, "device", 8)]
    summary = summarise(TWO_GPUS)
    summary.waits = Waits(stragglers=rows)
    (grid,) = (grid for grid in grids(summary) if grid.title.startswith("stragglers"))
    assert [cells for cells, _ in grid.rows] == [
        ["G/rank1", "reduce", "work", "2", "107 ns", "53 ns"],
        ["G/rank1", "reduce (device)", "work", "2", "98 ns", "49 ns"],
    ]
    assert by_phase(rows) == {("reduce", "1"): 100, ("reduce", "2"): 8}


def device(busy: int, window: int, busy_in_window: int) -> DeviceRow:
    return DeviceRow(
        worker="", tool="", device="", files=1, kernels=0, copies=0, busy_ns=busy, kernel_ns=0, communication_ns=0, idle_ns=0,
        span_ns=busy, window_ns=window, busy_in_window_ns=busy_in_window, busy_share=None, share_of="window" if window else "work",
        work_share=None,
    )  # fmt: skip


def test_devices_together_have_the_share_of_what_each_has() -> None:
    """Of the windows where each file says which it holds, otherwise of the stretch of work."""
    both = devices_together("2 others", [device(10, 100, 10), device(30, 100, 20)])
    assert (both.busy_share, both.share_of, both.busy_ns) == (0.15, "window", 40)
    mixed = devices_together("2 others", [device(10, 100, 10), device(30, 0, 0)])
    assert (mixed.busy_share, mixed.share_of) == (1.0, "work")


@pytest.mark.parametrize(("steps", "name"), [((0,), 0), ((7,), 7), ((4, 5, 6), "4-6"), ((2, 3, 7), "2-3+7"), ((), "")])
def test_steps_of_a_window_have_one_name(steps: tuple[int, ...], name: int | str) -> None:
    """In rows, on the page and in names of files; a step between that was not in the window is not in its name."""
    assert step_name(steps) == name
    assert Step(steps, 0, 1, []).name == name


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ([], "none"),
        ([3, 4], "3, 4"),
        (range(1, 179), "1..178"),
        ([*range(1, 6), *range(900, 906)], "1..5, 900..905"),
        (range(10, 110, 10), "10, 20, 30, 40, …, 80, 90, 100"),
    ],
)
def test_steps_that_were_not_seen_are_not_said_to_be(seen: Sequence[int], text: str) -> None:
    """A loop that announces every tenth step has not seen those between."""
    assert seen_text(seen) == text
