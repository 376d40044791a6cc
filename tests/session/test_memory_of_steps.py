"""Memory of the process's device at the end of each step: written down where the backend knows, in the manifest, in reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import accelprof
from accelprof.analysis.memory import by_worker, memory_rows
from accelprof.analysis.report_rows import Memory
from accelprof.analysis.summary import summarise
from accelprof.analysis.table import grids
from accelprof.output import manifest as manifests
from accelprof.output import metrics
from accelprof.output.records import Manifest, MemoryRow, TargetRow
from accelprof.session import memory

MIB = 1 << 20


@pytest.fixture(autouse=True)
def every_step(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Steps of these tests are shorter than those that have a row; sessions are gone afterwards."""
    monkeypatch.setattr(memory, "EVERY_NS", 0)
    yield
    accelprof.reset()


def run(tmp_path: Path, answer: Any, steps: int = 4) -> dict[str, Any]:
    """The manifest of a run whose backend answers ``answer(step)``."""
    accelprof.reset()
    session = accelprof.configure(
        group="G", rank=0, steps=[2], ranks="all", output_dir=str(tmp_path), run="r", accelerator="cpu"
    )
    at = [0]
    if answer is not None:
        session.backend.memory = lambda: answer(at[0])  # type: ignore[method-assign]
    for number in range(1, steps + 1):
        at[0] = number
        with session.step(number):
            pass
    session.close()
    found: dict[str, Any] = json.loads((tmp_path / "r" / "manifest.json").read_text())
    return found


def test_each_step_has_its_memory(tmp_path: Path) -> None:
    """Windows or not; names of backends become those of reports; growth from the first step to the last is seen."""
    manifest = run(tmp_path, lambda n: {"allocated": n * MIB, "reserved": 10 * MIB, "max_allocated": (n + 1) * MIB})
    assert manifest["memory"] == [
        {"step": n, "worker": "G/rank0", "allocated": n * MIB, "reserved": 10 * MIB, "peak": (n + 1) * MIB}
        for n in range(1, 5)
    ]
    summary = summarise(tmp_path / "r")
    assert summary.to_json()["memory"] == manifest["memory"]
    [row] = by_worker(memory_rows(Manifest.of_json(manifest)))
    assert (row.what, row.largest, row.allocated, row.peak) == ("reserved", 10 * MIB, 4 * MIB, 5 * MIB)
    text = "\n".join(line for grid in grids(summary) for line, _ in grid.lines(80))
    assert "memory at the end of steps (reserved)" in text
    assert "5 MiB" in text


def test_a_process_without_a_device_says_what_is_resident(tmp_path: Path) -> None:
    """Of the embedded backend it is the process's resident memory, more than the interpreter takes."""
    rows = run(tmp_path, None)["memory"]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert all(row["resident"] > 5 * MIB for row in rows)


def test_a_backend_that_knows_nothing_or_fails(tmp_path: Path) -> None:
    """Nothing is written where nothing is known; a failure is said once and no step is lost."""
    assert "memory" not in run(tmp_path / "none", lambda n: {})

    def fails(step: int) -> dict[str, int]:
        raise RuntimeError(f"no device at step {step}")

    manifest = run(tmp_path / "fails", fails)
    assert "memory" not in manifest
    assert [row["step"] for row in manifest["metrics"]["steps"]] == [1, 2, 3, 4]
    assert sum("no device" in problem for problem in manifest["problems"]) == 1


def test_a_large_run_keeps_the_workers_with_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a bound the largest of each step stay, and it says of how many; a row that came twice counts once."""
    monkeypatch.setattr(metrics, "MEMORY_ROWS", 6)
    found = Manifest()
    for rank in range(4):
        found.targets[f"k{rank}"] = TargetRow(key=f"k{rank}", group="G", rank=rank)
        for step in (1, 2, 3):
            found.memories += [MemoryRow(f"k{rank}", step, {"reserved": 100 * rank + step, "name": "x"})] * 2
    rows = metrics.memory_rows(found)
    assert [(row["step"], row["worker"], row["reserved"], row["workers"]) for row in rows] == [
        (step, f"G/rank{rank}", 100 * rank + step, 4) for step in (1, 2, 3) for rank in (3, 2)
    ]


def test_a_journal_holds_only_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file has every row; memory of the process does not grow with the steps."""
    monkeypatch.setattr(manifests, "MEMORY_HELD", 3)
    journal = manifests.Journal(str(tmp_path / "run" / ".workers" / "w.jsonl"), print)
    for step in range(10):
        journal.add(MemoryRow("k", step, {"allocated": step}))
    journal.close()
    assert len(journal.records) == 3
    read = Manifest.of_journals(manifests.read_journals(str(tmp_path / "run")))
    assert [(row.step, row.figures()) for row in read.memories] == [(step, {"allocated": step}) for step in range(10)]


def test_rows_of_another_shape_are_left_out() -> None:
    """A manifest may hold anything; what is no row of memory is none."""
    odd: list[Any] = [
        3,
        {"step": "x", "worker": "a"},
        {"step": 1},
        {"step": 1, "worker": "a", "peak": 1.5, "reserved": 7},
    ]
    assert memory_rows(Manifest.of_json({"memory": odd})) == [Memory(1, "a", {"reserved": 7})]
    assert memory_rows(Manifest.of_json({"memory": {}})) == memory_rows(Manifest()) == []
    assert by_worker([Memory(1, "a", {"peak": 3})]) == []


def test_short_steps_have_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of no length are not all asked for: at most one row in the time that is set, the first step's always."""
    monkeypatch.setattr(memory, "EVERY_NS", 10**12)
    assert [row["step"] for row in run(tmp_path, lambda n: {"allocated": n})["memory"]] == [1]
