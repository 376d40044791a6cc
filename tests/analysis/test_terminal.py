"""What the terminal, CSV and Parquet show: tables that fit, labels as they are, any file, the newest run."""

from __future__ import annotations

import csv
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from accelprof.analysis import escape
from accelprof.analysis.files import newest_run
from accelprof.analysis.grid import Column, Grid, wrapped
from accelprof.cli.report import report
from accelprof.errors import UserError

ODD = "void k<T>(float*) [with T = float]\x1b]0;pwn\x07\x1b[2J[/red]\u202e=1+1\ndone"


def run(*args: str, columns: int = 80) -> Result:
    return CliRunner().invoke(report, list(args), env={"COLUMNS": str(columns), "TERM": "dumb"})


def kernels(path: Path, *names: str) -> str:
    """A trace with a phase ``p`` that launches a kernel of each name."""
    rows: list[dict[str, Any]] = [
        {"ph": "X", "cat": "user_annotation", "name": "p", "pid": 1, "tid": 1, "ts": 0, "dur": 100 * len(names)}
    ]
    for number, name in enumerate(names):
        args = {"correlation": number + 1}
        rows.append(
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "pid": 1,
                "tid": 1,
                "ts": 100 * number + 1,
                "dur": 5,
                "args": args,
            }
        )
        rows.append(
            {
                "ph": "X",
                "cat": "kernel",
                "name": name,
                "pid": 0,
                "tid": 7,
                "ts": 100 * number + 10,
                "dur": 50,
                "args": {**args, "device": 0, "stream": 7},
            }
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"traceEvents": rows}))
    return str(path)


cells = st.lists(
    st.tuples(st.text(max_size=60), st.text(max_size=12), st.text("0123456789 msµ", max_size=12)), max_size=6
)


@given(cells, st.integers(30, 140), st.text(max_size=90))
def test_a_table_fits(rows: list[tuple[str, str, str]], columns: int, title: str) -> None:
    """No line is wider than the terminal, none holds a control character, and numbers are whole or their column is gone."""
    grid = Grid(title, [Column("phase", label=20), Column("tool", 2, label=6), Column("time", 1)], note=title)
    for row in rows:
        grid.add(*row)
    lines = [line for line, _ in grid.lines(columns)]
    assert all(escape.width(line) <= columns for line in lines)
    assert all(escape.terminal(line) == line for line in lines)
    head = len(wrapped(title, columns))
    if "time" in lines[head]:
        for row, line in zip(rows, lines[head + 1 :]):
            assert line.endswith(row[2].rstrip())


def test_kernels_of_no_phase_are_counted_by_name_in_the_table(tmp_path: Path) -> None:
    """One of a hundred is said in the table, on the page and in --json, though no line at the top speaks of it."""
    path = kernels(tmp_path / "t.json", *["gemm"] * 200)
    events = json.loads(Path(path).read_text())["traceEvents"]
    for thread, name in ((2, "load"), (3, "eval")):
        events.append({"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": thread, "ts": 0, "dur": 90})
    calls = [event for event in events if event["cat"] == "cuda_runtime"]
    calls[0]["tid"], calls[0]["ts"] = 4, 15
    calls[1]["tid"], calls[1]["ts"] = 5, 30_000
    Path(path).write_text(json.dumps({"traceEvents": events}))
    page = tmp_path / "page.html"
    shown = run(path, "--html", str(page), columns=160).output
    rows = [" ".join(line.split()) for line in shown.splitlines() if line.startswith("(")]
    assert rows == [
        f"({reason}) - - - - - - 1 -" for reason in ("1 undecided: eval or load or p", "1 launched outside every range")
    ]
    narrow = run(path, columns=60).output
    assert "(1 undecided: eval or load or p)" in narrow
    assert "stand in no phase" not in shown
    assert "(1 undecided: eval or load or p)</td>" in page.read_text()
    [file] = json.loads(run(path, "--json").output)["devices"]
    assert file["undecided"] == [{"ranges": ["eval", "load", "p"], "kernels": 1}]


def test_columns_go_by_rank_and_labels_are_cut_in_their_middle() -> None:
    """In less room the column of the highest rank goes first; then the label loses its middle, never an end."""
    grid = Grid("", [Column("phase", label=10), Column("a", 2), Column("b", 1)])
    grid.add("actor/update_policy_of_the_model", "11111", "22222")
    wide, less, narrow = ([line for line, _ in grid.lines(columns)] for columns in (50, 23, 17))
    assert wide[0].split() == ["phase", "a", "b"]
    assert less[0].split() == ["phase", "b"]
    assert narrow[1] == "actor…odel  22222"


@given(st.text(max_size=50), st.integers(0, 40))
def test_a_cut_label_keeps_both_ends(text: str, columns: int) -> None:
    """At most so wide; whole where it fits; otherwise the beginning, one ellipsis, the end."""
    shown = escape.terminal(text)
    cut = escape.elide(shown, columns)
    assert escape.width(cut) <= columns
    if escape.width(shown) <= columns:
        assert cut == shown
    elif columns >= 3:
        head, _, tail = cut.partition("…") if "…" not in shown else ("", "", "")
        assert shown.startswith(head)
        assert shown.endswith(tail)


def test_files_of_two_ranks_stay_apart() -> None:
    """Names that differ in their middle alone lose what they have in common; each fits."""
    names = [f"ActorGroup-r{rank}-s2-w0001-vm-2057.pt.trace.json.gz" for rank in range(3)]
    assert list(escape.elide_apart([*names, "rank0"], 24).values()) == [
        "ActorGroup-r0-s2-w…on.gz", "ActorGroup-r1-s2-w…on.gz", "ActorGroup-r2-s2-w…on.gz", "rank0",
    ]  # fmt: skip


@given(
    st.lists(st.text("ab12", min_size=1, max_size=30), unique=True, max_size=5),
    st.text(max_size=20),
    st.integers(1, 40),
)
def test_cut_labels_fit_and_stay_apart(middles: list[str], around: str, columns: int) -> None:
    """However many: none is wider, and where what they differ in has room no two look alike."""
    texts = [escape.terminal(around + middle + around) for middle in middles]
    found = escape.elide_apart(texts, columns)
    assert all(escape.width(short) <= columns for short in found.values())
    if max(map(len, middles), default=0) <= columns and len({len(middle) for middle in middles}) == 1:
        assert len(set(found.values())) == len(set(texts))


@given(st.text())
def test_nothing_of_a_label_acts(text: str) -> None:
    """No control character, direction mark or line end reaches a terminal; no markup a page; no formula a spreadsheet."""
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]", escape.terminal(text))
    assert not re.search(r"[<>\"']|&(?!amp;|lt;|gt;|quot;|#x27;)", escape.html(text))
    assert not escape.csv(text).lstrip().startswith(("=", "+", "-", "@"))
    escape.perfetto(text).encode("utf-8")


def test_labels_are_shown_as_they_are(tmp_path: Path) -> None:
    """Brackets and control characters of a kernel's name stand in every output, and act in none."""
    path = kernels(tmp_path / "t.json", ODD)
    out = run(path, "--csv", str(tmp_path / "csv"), "--html", str(tmp_path / "page.html"), columns=200)
    assert out.exit_code == 0, out.output
    assert "[with T = float]\\x1b]0;pwn\\x07\\x1b[2J[/red]\\u202e=1+1\\ndone" in out.output
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", out.output)
    with open(tmp_path / "csv/kernels.csv", encoding="utf-8", newline="") as file:
        [row] = csv.DictReader(file)
    assert row["kernel"] == escape.terminal(ODD)
    assert "k<T>" not in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_reports_of_samples_fit(shared: Path, columns: int) -> None:
    """Every line of a report of real traces is within the terminal's columns, without colours where there is no terminal."""
    out = run(str(shared / "samples/hta"), columns=columns)
    assert out.exit_code == 0, out.output
    assert max(escape.width(line) for line in out.output.splitlines()) <= columns
    assert "\x1b" not in out.output
    assert "share: part of the windows' time" in " ".join(out.output.split())
    assert "1.06x: its time per window on the slowest rank by that on the fastest" in " ".join(out.output.split())


def test_one_file_needs_no_manifest(tmp_path: Path) -> None:
    """A single file gets its phases with self time and share, its device time, and no page unless asked for."""
    path = kernels(tmp_path / "t.json", "a", "b")
    data = json.loads(run(path, "--json").output)
    [phase], [file] = data["phases"], data["devices"]
    assert (phase["phase"], phase["self_ns"], phase["share"]) == ("p", 200_000, 1.0)
    assert [(row["name"], row["kernels"]) for row in file["phases"]] == [("p", 2)]
    assert os.listdir(tmp_path) == ["t.json"]


def test_a_directory_of_traces(tmp_path: Path) -> None:
    """A directory stands for the files in it that a reader knows; what cannot be read is named, odd entries are passed by."""
    for rank in range(3):
        kernels(tmp_path / f"d/rank{rank}/t.pt.trace.json", "k")
    (tmp_path / "d/broken.json").write_text("{")
    (tmp_path / "d/loop").symlink_to(tmp_path / "d")
    os.mkfifo(tmp_path / "d/pipe.json")
    data = json.loads(run(str(tmp_path / "d"), "--json").output)
    assert sorted(row["worker"] for row in data["devices"]) == [f"rank{rank}/t.pt.trace.json" for rank in range(3)]
    assert [line for line in data["problems"] if "was not read" in line and "broken.json" in line]
    (tmp_path / "empty").mkdir()
    result = run(str(tmp_path / "empty"))
    assert isinstance(result.exception, UserError)
    assert "no file that a reader knows" in str(result.exception)


def test_what_is_not_delivered_is_said_once(run_maker: Any, event: Any) -> None:
    """A lack that the manifest has among its problems too stands above the tables, and not below them again; other problems do."""
    run_maker.timeline(run_maker.target(0), [event("update", 0, 900)])
    run_maker.manifest["undelivered"] = ["windows for steps 7 never opened"]
    run_maker.manifest["problems"] = ["windows for steps 7 never opened", "the disk is full"]
    said = run(run_maker.write()).output
    assert said.count("windows for steps 7 never opened") == 1
    assert said.count("the disk is full") == 1


def test_the_newest_run(run_maker: Any, event: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an argument the run that was finished last is shown, and named; where there is none, that is said."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no run in"):
        newest_run()
    for number, name in enumerate(("old", "new", "middle")):
        maker = type(run_maker)(tmp_path / "outputs/profile" / name)
        maker.timeline(maker.target(0), [event(f"phase of {name}", 0, 100)])
        os.utime(Path(maker.write(), "manifest.json"), (1000 + (number == 1) * 100 + number,) * 2)
    out = run("--no-html").output
    assert out.startswith("outputs/profile/new (the newest run)")
    assert "phase of new" in out


def test_the_worst_are_shown_and_the_rest_summed(tmp_path: Path) -> None:
    """Of 40 devices the least busy are shown, the others in one row; ``--all`` shows them all."""
    files = [kernels(tmp_path / f"rank{number:02}.json", *["k"] * (number % 7 + 1)) for number in range(40)]
    outputs = (run(*files).output, run(*files, "--all").output)
    parts = [text.partition("where the time goes")[2].partition("device time, over windows") for text in outputs]
    assert [sum(line.startswith("rank") for line in part[0].splitlines()) for part in parts] == [16, 40]
    assert "… and 24 with more of the first" in parts[0][0]
    short, whole = (part[2] for part in parts)
    assert "… 25 busier" in short
    assert sum(line.startswith("rank") for line in short.splitlines()) == 15
    assert sum(line.startswith("rank") for line in whole.splitlines()) == 40


def test_tables_as_parquet(tmp_path: Path) -> None:
    """Parquet files hold the same figures with their types."""
    polars = pytest.importorskip("polars", reason="polars is not installed")
    out = run(kernels(tmp_path / "t.json", "a", "b"), "--parquet", str(tmp_path / "out"))
    assert out.exit_code == 0, out.output
    frame = polars.read_parquet(tmp_path / "out/phases.parquet")
    assert frame.select("phase", "calls", "total_ns").rows() == [("p", 1, 200_000)]
    assert {item.name for item in (tmp_path / "out").iterdir()} >= {
        "phases.parquet",
        "devices.parquet",
        "kernels.parquet",
    }


def test_several_runs_are_refused(run_maker: Any, event: Any, tmp_path: Path) -> None:
    """A run and a file are not one report; the message says what puts two side by side."""
    run_maker.timeline(run_maker.target(0), [event("p", 0, 100)])
    result = run(run_maker.write(), kernels(tmp_path / "t.json", "a"))
    assert "accelprof compare" in str(result.exception)


# the opener is left to the desktop: click waits for none
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_open_starts_a_browser(run_maker: Any, event: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``report --open`` and ``compare --open`` hand the page that they wrote to the desktop's opener; that there is none is said."""
    from accelprof.cli.compare import compare

    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.chdir(tmp_path)
    run_maker.timeline(run_maker.target(0), [event("update", 0, 900)])
    directory = run_maker.write()
    with monkeypatch.context() as bare:
        bare.setenv("PATH", str(programs))
        result = CliRunner().invoke(report, [directory, "--open"])
        assert (result.exit_code, "no browser could be started for" in result.output) == (0, True)
    for name in ("xdg-open", "open"):
        (programs / name).write_text(f'#!/bin/sh\necho "$1" >> "{tmp_path}/opened"\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    result = CliRunner().invoke(report, [directory, "--open"])
    assert (result.exit_code, "no browser" in result.output) == (0, False)
    assert CliRunner().invoke(compare, [directory, directory, "--open"]).exit_code == 0
    deadline = time.monotonic() + 10
    opened: list[str] = []
    while len(opened) < 2 and time.monotonic() < deadline:
        opened = (tmp_path / "opened").read_text().splitlines() if (tmp_path / "opened").exists() else []
        time.sleep(0.02)
    assert {Path(line).resolve() for line in opened} == {Path(directory, "report.html"), tmp_path / "compare.html"}
    assert all(Path(line).stat().st_size > 1000 for line in opened)


def test_what_to_look_at_first_stands_above_the_tables(tmp_path: Path) -> None:
    """The sentences of the page stand on the terminal too, before the first table, and are those of ``--json``."""
    path = kernels(tmp_path / "trace.json", "k1", "k2")
    first = json.loads(run(path, "--json").output)["first"]
    text = " ".join(run(path, columns=200).output.split())
    assert first
    assert text.startswith(" ".join(" ".join(first).split()))
