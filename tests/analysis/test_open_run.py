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
from accelprof.analysis import frames
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


def test_a_file_that_is_named_again_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under another spelling, in its directory, by a link: it is the same file, and is that which was asked for."""
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 5, "dur": 2}
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.pt.trace.json").write_text(json.dumps({"traceEvents": [call]}))
    (tmp_path / "link.pt.trace.json").symlink_to(tmp_path / "files" / "a.pt.trace.json")
    monkeypatch.chdir(tmp_path)
    spelt = ["files/a.pt.trace.json", "./files/a.pt.trace.json", str(tmp_path / "files"), "link.pt.trace.json"]
    for names in (spelt, spelt[::-1]):
        [row] = accelprof.open_run(*names).rows("operators")
        assert (row["calls"], row["total_ns"]) == (1, 2000)


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


def eventful(run_maker: Any, event: Any, tmp_path: Path) -> list[str]:
    """Sources whose tables all have rows between them."""
    key = run_maker.target(0)
    for step in (2, 4):
        run_maker.timeline(key, [event("update", 10_000 * step, 600)], steps=[step], at_us=10_000 * step)
    for rank in (0, 1):  # who may wait for each other unseen
        pair = [event("backward", 60_000 + 40_000 * rank, 60_000 - 40_000 * rank)]
        run_maker.timeline(run_maker.target(rank, "Pair", host="node0"), pair, [6], end_us=60_000, at_us=60_000)
    rows = []
    for step in range(1, 41):
        took = 0.1 + 0.002 * step + (0.3 if step == 20 else 0)
        figures = {"min": took, "mean": took, "max": took, "slowest": "ActorGroup/rank0"}
        rows.append({"step": step, "wall_ns": int(took * 1.1e9), "seconds": {"update": figures}})
    run_maker.manifest["metrics"] = {"steps": rows}
    run_maker.manifest["memory"] = [
        {"step": 2, "worker": "ActorGroup/rank0", "allocated": 1, "reserved": 2, "peak": 3, "workers": 9, "swapped": 4},
        {"step": 4, "worker": "ActorGroup/rank0", "resident": 5},
    ]
    loose = [
        event("p", 0, 5, "user_annotation"),
        event("launch", 50, 5, "cuda_runtime", correlation=1),
        {**event("k", 60, 5, "kernel", 8, correlation=1, stream=7, device=0), "pid": 0},
    ]
    (tmp_path / "loose.json").write_text(json.dumps({"traceEvents": loose}))
    return [str(Path(__file__).parent / "two_gpus"), run_maker.write(), str(tmp_path / "loose.json")]


def test_the_columns_that_are_declared_are_those_there_are(run_maker: Any, event: Any, tmp_path: Path) -> None:
    """Of every table: each declared column comes in some row and nothing else does but figures of memory, with values of the type."""
    seen: dict[str, dict[str, set[type]]] = {}
    for source in eventful(run_maker, event, tmp_path):
        summary = accelprof.open_run(source).summary
        for name, (rows, _) in frames._TABLES.items():
            mine = seen.setdefault(name, {})
            for row in rows(summary):
                for key, value in frames._flat(row.cells()):
                    mine.setdefault(key, set()).update({type(value)} - {type(None)})
    assert seen.pop("memory").keys() - frames.TABLES["memory"] == {"workers", "swapped"}
    for name, columns in seen.items():
        assert set(columns) == set(frames.TABLES[name]), name
        for key, kinds in columns.items():
            wanted = frames.TABLES[name][key]
            assert kinds <= ({int, float} if wanted is float else {wanted}), (name, key)


def test_tables_without_rows_have_their_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that is right of one run is right of every run: no table loses its columns or their types when it is empty."""
    polars = pytest.importorskip("polars", reason="polars is not installed")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    (tmp_path / "a.json").write_text('[{"ph":"X","cat":"user_annotation","name":"p","pid":1,"tid":1,"ts":0,"dur":5}]')
    run = accelprof.open_run(tmp_path / "a.json")
    empty = [name for name in run.tables() if not run.rows(name)]
    assert {"stragglers", "outliers", "drift", "devices", "memory", "slack"} <= set(empty)
    for name in run.tables():
        assert set(run.frame(name).columns) == set(run.pandas(name).columns) == set(frames.TABLES[name])
        assert polars.Null not in run.frame(name).dtypes
    assert run.stragglers.sort("waited_ns").filter(polars.col("waited_ns") > 1).select("worker", "late_in").rows() == []
    waits = run.pandas("stragglers").sort_values("waited_ns")
    assert waits["waited_ns"].sum() == 0
    assert pandas.concat([waits, pandas.DataFrame({"waited_ns": [2]})])["waited_ns"].tolist() == [2]
    monkeypatch.setitem(sys.modules, "polars", None)
    table = accelprof.open_run(tmp_path / "a.json").stragglers
    assert table.num_rows == 0
    assert str(table.schema.field("waited_ns").type) == "int64"
    assert str(table.schema.field("late_in").type) == "string"


def test_steps_as_number_and_text_in_one_table() -> None:
    """Windows of several steps have text as their step (``4-9``): beside numbers all of them are text, in Arrow as in polars."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = frames.Table({"step": int, "worker": str}, [{"step": 3, "worker": None}, {"step": "4-9", "worker": None}])
    assert frames.arrow_table(table).column("step").to_pylist() == ["3", "4-9"]
    assert frames.polars_frame(table)["step"].to_list() == ["3", "4-9"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_directory_used_twice_has_one_run(suffix: str, tmp_path: Path) -> None:
    """Tables without rows are written too, with their columns: nothing of another run stays under their names."""
    polars = pytest.importorskip("polars", reason="polars is not installed")
    (tmp_path / "a.json").write_text('[{"ph":"X","cat":"user_annotation","name":"p","pid":1,"tid":1,"ts":0,"dur":5}]')
    read = polars.read_csv if suffix == "csv" else polars.read_parquet
    for source, waits in ((Path(__file__).parent / "two_gpus", True), (tmp_path / "a.json", False)):
        done = CliRunner().invoke(report, [str(source), "--no-html", f"--{suffix}", str(tmp_path / "out")])
        assert done.exit_code == 0, done.output
        tables = {path.stem: read(path) for path in (tmp_path / "out").iterdir()}
        assert set(tables) == set(frames.TABLES)
        assert (tables["stragglers"].height > 0) is waits
        assert all(set(frames.TABLES[name]) <= set(frame.columns) for name, frame in tables.items())
