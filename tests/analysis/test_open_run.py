"""A run as data frames: the figures of ``--json``, in polars, Arrow and pandas, and as a notebook shows them."""

from __future__ import annotations

import html
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import accelprof
from accelprof.cli.report import report
from accelprof.errors import UserError


@pytest.fixture
def directory(run_maker: Any, event: Any) -> str:
    """Two ranks, two windows each, rank 1 slower."""
    for rank in range(2):
        key = run_maker.target(rank)
        for step in (2, 4):
            at = 10_000 * step
            calls = [event("update", at + 100, 600 + 300 * rank), event("<b>forward</b>", at + 200, 200)]
            run_maker.timeline(key, calls, steps=[step], at_us=at)
    return str(run_maker.write())


def test_frames_are_the_reports_figures(directory: str) -> None:
    """Phases, ranks and windows are those of ``accelprof report --json``."""
    polars = pytest.importorskip("polars", reason="polars is not installed")
    run = accelprof.open_run(directory)
    data = json.loads(CliRunner().invoke(report, [directory, "--json", "--no-html"]).output)
    assert isinstance(run.phases, polars.DataFrame)
    assert run.phases.select("phase", "calls", "total_ns", "self_ns").rows() == [
        (row["phase"], row["calls"], row["total_ns"], row["self_ns"]) for row in data["phases"]
    ]
    totals = run.ranks.filter(polars.col("phase") == "update").select("worker", "total_ns").rows()
    assert totals == [("ActorGroup/rank0", 1_200_000), ("ActorGroup/rank1", 1_800_000)]
    assert run.windows["window_ns"].sum() == sum(row["window_ns"] for row in data["workers"])
    assert run.phases is run.phases


def test_pandas_and_plain_rows(directory: str) -> None:
    """The same table by conversion, and as dictionaries."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    run = accelprof.open_run(directory)
    frame = run.pandas("phases")
    assert isinstance(frame, pandas.DataFrame)
    assert frame["total_ns"].tolist() == [row["total_ns"] for row in run.rows("phases")]


def test_arrow_without_polars_and_neither(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without polars the frames are Arrow's; without both the message says what to install, and rows still work."""
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    monkeypatch.setitem(sys.modules, "polars", None)
    table = accelprof.open_run(directory).phases
    assert isinstance(table, pyarrow.Table)
    assert table.column("calls").to_pylist() == [4, 4]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    run = accelprof.open_run(directory)
    with pytest.raises(UserError, match="accelprof\\[frames\\]"):
        run.frame("phases")
    assert len(run.rows("windows")) == 4


def test_a_notebook_shows_it(directory: str) -> None:
    """The head names the run, says what to look at first, and no label acts."""
    run = accelprof.open_run(directory)
    page = run._repr_html_()
    assert "<b>" not in page
    assert "&lt;b&gt;forward" in page
    assert run.first[0] in html.unescape(page)
    assert run.first[0] == (
        "Step 2 took 1 ms, as far as the clocks are known (those of node0, node1 were not compared); "
        "70% of its critical path is update on ActorGroup/rank1."
    )
    assert repr(run) == "<run run: 2 phases, 4 windows, 0 files>"


def test_names_that_are_no_table(directory: str) -> None:
    """A wrong name is refused with the names there are; completion knows the tables."""
    run = accelprof.open_run(directory)
    with pytest.raises(AttributeError, match="phases, ranks"):
        _ = run.phase
    with pytest.raises(UserError, match="no table 'phase'"):
        run.rows("phase")
    assert set(run.tables()) <= set(dir(run))


def test_files_without_a_run(tmp_path: Path) -> None:
    """Files open as a run does."""
    (tmp_path / "a.json").write_text('[{"ph":"X","cat":"user_annotation","name":"p","pid":1,"tid":1,"ts":0,"dur":5}]')
    run = accelprof.open_run(tmp_path / "a.json")
    assert [(row["phase"], row["total_ns"]) for row in run.rows("phases")] == [("p", 5000)]


def test_every_table_is_documented_and_reads() -> None:
    """Each table of a real run of two GPUs gives rows of plain values, lists as text; the documentation names every one."""
    run = accelprof.open_run(Path(__file__).parent / "two_gpus")
    text = (Path(__file__).parents[2] / "docs/output.md").read_text()
    listed = text[text.index("The tables are") : text.index("## Comparing")]
    for name in run.tables():
        assert f"`{name}`" in listed
        for row in run.rows(name):
            assert all(value is None or isinstance(value, (str, int, float)) for value in row.values()), (name, row)
    assert {row["waited_by"] for row in run.rows("stragglers")} == {"ActorGroup/rank0", "ActorGroup/rank1"}
    assert len(run.rows("stragglers")) == len(run.summary.to_json()["stragglers"])
