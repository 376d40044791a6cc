"""A run directory in figures: phases over ranks, what was not delivered, the page, the command."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from accelprof.analysis import finish_run, render_table
from accelprof.analysis.first import sentences
from accelprof.analysis.html import render_html
from accelprof.analysis.summary import summarise
from accelprof.cli.report import report
from accelprof.errors import ReadError

Event = Callable[..., dict[str, Any]]


def two_ranks(run_maker: Any, event: Event) -> str:
    """Rank 0: update 600 µs with forward 200; rank 1: update 900 µs; windows of 1000 µs each."""
    run_maker.timeline(run_maker.target(0), [event("update", 100, 600), event("forward", 200, 200, "range")])
    run_maker.timeline(run_maker.target(1), [event("update", 50, 900)])
    return str(run_maker.write())


def test_phases_over_ranks(run_maker: Any, event: Event) -> None:
    """Totals over ranks, self time without nested phases, share of the windows, the slowest rank, ranks that lack it."""
    rows = {row.phase: row for row in summarise(two_ranks(run_maker, event)).phases}
    update, forward = rows["update"], rows["forward"]
    assert (update.calls, update.total_ns, update.self_ns) == (2, 1_500_000, 1_300_000)
    assert (update.slowest, update.fastest, update.spread) == ("ActorGroup/rank1", "ActorGroup/rank0", 1.5)
    assert (update.mean_ns, update.p50_ns, update.p95_ns) == (750_000, 750_000, 885_000)
    assert update.share == pytest.approx(0.65)
    assert forward.share == pytest.approx(0.1)
    assert (forward.parent, forward.depth, forward.missing) == ("update", 1, ["ActorGroup/rank1"])


def test_concurrent_tasks_do_not_pass_a_hundred_percent(run_maker: Any, event: Event) -> None:
    """Three coroutines that overlap keep their own names and times, and together have at most the whole window."""
    names = [("a", 300), ("b", 100), ("c", 200)]
    calls = [event(name, 0, taken, tid=10 + at, task=f"Task-{at}") for at, (name, taken) in enumerate(names)]
    run_maker.timeline(run_maker.target(0), calls, end_us=300)
    rows = summarise(run_maker.write()).phases
    assert {row.phase: row.self_ns for row in rows} == {"a": 300_000, "b": 100_000, "c": 200_000}
    assert sum(row.share or 0 for row in rows) == pytest.approx(1.0)


def test_calls_cut_by_a_window(run_maker: Any, event: Event) -> None:
    """A phase that was running when the window opened is counted as cut; means are of whole calls."""
    calls = [
        event("update", 0, 40, in_progress=True),
        event("update", 100, 50),
        event("loop", 500, 500, in_progress=True),
    ]
    run_maker.timeline(run_maker.target(0), calls)
    rows = {row.phase: row for row in summarise(run_maker.write()).phases}
    assert (rows["update"].calls, rows["update"].cut, rows["update"].mean_ns) == (1, 1, 50_000)
    assert (rows["loop"].calls, rows["loop"].mean_ns, rows["loop"].total_ns) == (0, None, 500_000)


def test_time_of_a_generator_is_its_own(run_maker: Any, event: Event) -> None:
    """What a suspended generator leaves to its consumer is not its time."""
    run_maker.timeline(run_maker.target(0), [event("gen", 0, 900, own_ns=150_000)])
    [row] = summarise(run_maker.write()).phases
    assert row.total_ns == 150_000


def test_armed_but_never_opened(run_maker: Any) -> None:
    """Nobody announced step 2: said per rank with the steps and phases that were seen, nothing shown as a result, status 1."""
    run_maker.target(0, windows_opened=0, steps_seen=[0, 1], phases_seen=["actor/update"], tool="nsys")
    path = run_maker.write()
    summary = summarise(path)
    [key] = summary.run.workers
    assert summary.empty
    assert summary.undelivered == [
        f"{key}: armed, 0 windows opened; steps seen: 0, 1; phases seen: actor/update; tool: nsys"
    ]
    result = CliRunner().invoke(report, [path, "--no-html"])
    assert result.exit_code == 1
    assert "0 windows opened" in result.output
    assert "phase " not in result.output.replace("phases seen", "")


def test_an_empty_run_is_no_result(run_maker: Any) -> None:
    """No target, no window: an error status, not an empty table."""
    result = CliRunner().invoke(report, [run_maker.write(), "--json", "--no-html"])
    assert result.exit_code == 1
    assert json.loads(result.output)["delivered"] is False


def test_missing_files_are_named_and_the_others_count(run_maker: Any, event: Event) -> None:
    """A file that did not come, one on another node and one that is damaged are named; the rest is summarised."""
    two_ranks(run_maker, event)
    owner = run_maker.manifest["targets"][0]
    run_maker.artifact("gone.nsys-rep", "nsys", owner, state="missing", reason="the worker was killed")
    run_maker.artifact("/elsewhere/far.json", "torch", owner, remote=True)
    (run_maker.directory / "bad.pt.trace.json.gz").write_bytes(b"")
    run_maker.artifact("bad.pt.trace.json.gz", "torch", owner)
    summary = summarise(run_maker.write())
    assert summary.undelivered == [
        "ActorGroup/rank0: gone.nsys-rep (nsys) is missing: the worker was killed",
        "ActorGroup/rank0: bad.pt.trace.json.gz (torch) is truncated: it is empty",
    ]
    assert any("/elsewhere/far.json was not read: it is on node0" in line for line in summary.problems)
    assert any("bad.pt.trace.json.gz was not read: the file is empty (0 bytes)" in line for line in summary.problems)
    assert len(summary.phases) == 2


def test_large_files_are_left_out_and_named(run_maker: Any, event: Event) -> None:
    """A limit for the end of a run leaves large files to the command, by name."""
    summary = summarise(two_ranks(run_maker, event), max_bytes=10)
    assert len([line for line in summary.problems if "are left to `accelprof report`" in line]) == 2


def test_device_figures_of_a_vendor_file(run_maker: Any, event: Event, shared: Path) -> None:
    """A tool's trace gets busy time per device and device time per phase of its worker."""
    run_maker.timeline(run_maker.target(0), [event("update", 0, 10)])
    sample = shared / "samples/tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz"
    shutil.copy(sample, run_maker.directory)
    run_maker.artifact(sample.name, "torch", run_maker.manifest["targets"][0])
    [file] = summarise(run_maker.write()).files
    [device] = file.attribution.devices
    assert (file.worker.label, device.kernels, device.kernel_ns) == ("ActorGroup/rank0", 60, 307_197)


def test_without_a_manifest_the_journals_tell(run_maker: Any, event: Event) -> None:
    """The driver was killed: what the workers wrote down is summarised, and that is said."""
    os.unlink(Path(two_ranks(run_maker, event)) / "manifest.json")
    rows = [{"kind": "target", **run_maker.manifest["targets"][0]}]
    rows += [
        {**row, "kind": "window", "window_kind": "step", "closed": {"epoch_ns": 1}}
        for row in run_maker.manifest["windows"][:1]
    ]
    rows += [{"kind": "artifact", **row} for row in run_maker.manifest["artifacts"][:1]]
    (run_maker.directory / ".workers").mkdir()
    (run_maker.directory / ".workers/a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    summary = summarise(run_maker.directory)
    assert [row.phase for row in summary.phases] == ["update", "forward"]
    assert any("left no manifest" in line for line in summary.problems)


STEPS = """
    import json, os, sys, time, accelprof
    session = accelprof.configure(
        steps=json.loads(sys.argv[4]), ranks="all", recorder={"hang": None},
        output_dir=sys.argv[1], run="r", group="G", rank=int(sys.argv[2]), world_size=2,
    )
    work = accelprof.timer("work")(time.sleep)
    for number in range(1, 8):
        if number == 4 and sys.argv[2] == "1":
            print("four", flush=True)
            sys.stdin.readline()
        with session.step(number):
            work(0.002)
            if number == 6 and sys.argv[3] == "killed":
                os.kill(os.getpid(), 9)
    session.close()
"""


JOB = {"TORCHELASTIC_RUN_ID": "job", "MASTER_ADDR": "here", "MASTER_PORT": "1", "WORLD_SIZE": "2"}


def steps_of(directory: Path, rank: int, how: str, windows: str = "null") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(STEPS), str(directory), str(rank), how, windows],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **JOB, "RANK": str(rank)},
    )  # fmt: skip


def test_steps_of_a_killed_process_are_reported(tmp_path: Path) -> None:
    """Nobody wrote a manifest: the timings of the steps that had ended stand in the journal and are told."""
    with steps_of(tmp_path, 0, "killed") as process:
        assert process.wait() == -9
    found = summarise(tmp_path / "r")
    rows = {row["step"]: row for row in found.run.steps()}
    assert list(rows) == [1, 2, 3, 4, 5]
    assert all(row["wall_ns"] >= row["seconds"]["work"]["max"] * 1e9 >= 2e6 for row in rows.values())
    assert "the longest of 5" in sentences(found.report())[0]


def test_steps_of_one_killed_behind_the_manifest_are_reported(tmp_path: Path) -> None:
    """Another rank had closed before and wrote the manifest: steps that came after it are told too, of both ranks."""
    with steps_of(tmp_path, 1, "killed", "[2]") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "four\n"
        with steps_of(tmp_path, 0, "closed", "[2]") as other:
            assert other.wait() == 0
        process.communicate("\n")
    found = summarise(tmp_path / "r")
    assert {row["step"]: row["seconds"]["work"]["ranks"] for row in found.run.steps()} == {
        **dict.fromkeys((1, 2, 3, 4, 5), 2), 6: 1, 7: 1,
    }  # fmt: skip


def test_a_run_of_steps_alone_lacks_nothing(tmp_path: Path) -> None:
    """Where no window was asked for and none is missing, the steps' timings are what was measured."""
    with steps_of(tmp_path, 0, "closed") as process:
        assert process.wait() == 0
    assert json.loads((tmp_path / "r/manifest.json").read_text())["status"] == "complete"
    result = CliRunner().invoke(report, [str(tmp_path / "r"), "--no-html"])
    assert result.exit_code == 0, result.output
    assert "not delivered" not in result.output
    assert "the longest of 7" in result.output
    assert summarise(tmp_path / "r").to_json()["delivered"] is True


def test_no_run_is_said(tmp_path: Path) -> None:
    """A directory without a run is refused with the reason."""
    with pytest.raises(ReadError, match="no manifest"):
        summarise(tmp_path)


def test_workers_with_one_label_stay_apart(run_maker: Any, event: Event) -> None:
    """Two processes that call themselves the same rank (a restarted actor) are two rows, with pid and host."""
    run_maker.timeline(run_maker.target(0), [event("update", 0, 10)])
    run_maker.manifest["targets"].append({**run_maker.manifest["targets"][0], "key": "again", "pid": 999})
    run_maker.timeline("again", [event("update", 0, 20)])
    [row] = summarise(run_maker.write()).phases
    assert sorted(row.ranks) == ["ActorGroup/rank0 (pid 100 on node0)", "ActorGroup/rank0 (pid 999 on node0)"]


def test_the_page_stands_alone_and_is_safe(run_maker: Any, event: Event) -> None:
    """The page loads nothing, runs its own script alone, escapes labels, and has a bar for every rank and step."""
    hostile = "<script>alert(1)</script>"
    for rank in range(2):
        key = run_maker.target(rank)
        for step in (2, 4):
            at = step * 10_000
            calls = [event("update", at + 100, 600), event(hostile, at + 200, 200)]
            run_maker.timeline(key, calls, steps=[step], at_us=at)
    page = render_html(summarise(run_maker.write()))
    assert page.count("<script") == 2
    assert hostile not in page
    assert "&lt;script&gt;" in page
    assert re.findall(r"(?:\bsrc=|\bhref=|url\(|@import|fetch\(|https?:)", page) == []
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert [(panel["steps"], [lane["name"] for lane in panel["lanes"]]) for panel in data["lanes"]] == [
        (step, ["ActorGroup/rank0", "ActorGroup/rank1"]) for step in ("2", "4")
    ]
    calls = [call[:4] for panel in data["lanes"] for lane in panel["lanes"] for call in lane["calls"]]
    assert calls == [["update", 100_000, 700_000, 0], [hostile, 200_000, 400_000, 1]] * 4
    assert "prefers-color-scheme:dark" in page


def test_finish_run_leaves_timeline_and_report(run_maker: Any, event: Event) -> None:
    """Both files stand beside the manifest, and the table shown afterwards needs no second reading."""
    from rich.console import Console

    path = two_ranks(run_maker, event)
    finish_run(path)
    assert {"timeline.json.gz", "report.html"} <= {item.name for item in Path(path).iterdir()}
    for file in Path(path).glob("*.trace.json.gz"):
        file.unlink()
    console = Console(width=100, record=True)
    render_table(path, console)
    text = console.export_text()
    assert "update" in text
    assert "rank1 1.50x" in text


def test_finish_run_with_a_directory_that_cannot_be_written(
    run_maker: Any, event: Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A place where files should go that is taken by a directory is reported, once for each file, and nothing is raised."""
    path = two_ranks(run_maker, event)
    (Path(path) / "timeline.json.gz").mkdir()
    (Path(path) / "report.html").mkdir()
    finish_run(path)
    assert [record.getMessage().split(" of ")[0] for record in caplog.records] == [
        "accelprof: the merged timeline",
        "accelprof: the report",
    ]
    assert not list(Path(path).glob("*.part"))


def test_the_command_writes_json_and_page(run_maker: Any, event: Event) -> None:
    """``report --json`` is strict JSON with the figures; the page is written beside the manifest; status 0."""
    path = two_ranks(run_maker, event)
    result = CliRunner().invoke(report, [path, "--json"])
    assert result.exit_code == 0, result.output
    data = json.loads(result.output)
    assert {row["phase"]: row["total_ns"] for row in data["phases"]} == {"update": 1_500_000, "forward": 200_000}
    assert (Path(path) / "report.html").exists()


def test_every_step_stands_on_the_page(run_maker: Any, event: Event) -> None:
    """Timings of steps outside windows, as the controller collected them, are shown beside the profiled ones."""
    figures = {"max": 0.25, "mean": 0.2, "min": 0.1, "ranks": 2, "slowest": "ActorGroup/rank1"}
    steps = [{"step": step, "seconds": {"update": {**figures, "max": step / 8}}} for step in (1, 2, 3)]
    run_maker.manifest["metrics"] = {"steps": steps}
    page = render_html(summarise(two_ranks(run_maker, event)))
    assert re.findall(r"<th data-step=.(\d).( class=.mark.)?>step \1</th>", page) == [
        ("1", ""),
        ("2", ' class="mark"'),
        ("3", ""),
    ]
    assert re.findall(r"%,transparent\)\">(.*?)</td>", page) == ["125 ms", "250 ms", "375 ms"]


def test_partial_files_and_spent_time_are_named(run_maker: Any, event: Event) -> None:
    """A file that its tool called partial is said so; when the time is used up, tools' files are left to the command."""
    two_ranks(run_maker, event)
    (run_maker.directory / "x.pt.trace.json").write_text("[]")
    owner = run_maker.manifest["targets"][0]
    run_maker.artifact("x.pt.trace.json", "torch", owner, state="partial", reason="stopped early")
    summary = summarise(run_maker.write(), seconds=0.0)
    assert "ActorGroup/rank0: x.pt.trace.json is partial: stopped early" in summary.problems
    assert any("reading took 0 s already" in line for line in summary.problems)
    assert len(summary.phases) == 2


@pytest.mark.parametrize("how", ["absolute", "upwards", "a link", "a link to a directory"])
def test_a_path_out_of_the_run_directory_is_named_and_not_followed(
    run_maker: Any, event: Any, tmp_path: Path, how: str
) -> None:
    """Whatever way a manifest leads out of its run, the file there is not read: it is said where it lies and how to read it."""
    key = run_maker.target(0)
    run_maker.timeline(key, [event("actor/update", 0, 300)], steps=(2,))
    run_maker.timeline(key, [event("secret/phase", 0, 300)], steps=(4,), at_us=5000)
    inside = run_maker.directory / run_maker.manifest["artifacts"][1]["path"]
    outside = tmp_path / "elsewhere" / inside.name
    outside.parent.mkdir()
    inside.rename(outside)
    if how == "a link":
        inside.symlink_to(outside)
    elif how == "a link to a directory":
        (run_maker.directory / "linked").symlink_to(outside.parent)
        run_maker.manifest["artifacts"][1]["path"] = f"linked/{inside.name}"
    else:
        run_maker.manifest["artifacts"][1]["path"] = (
            str(outside) if how == "absolute" else f"../elsewhere/{inside.name}"
        )
    found = summarise(run_maker.write()).to_json()
    assert [row["phase"] for row in found["phases"]] == ["actor/update"]
    assert any("outside of the run directory" in text for text in found["problems"] + found["notices"])


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ({"train": {"max": 0.9}, "load": {"max": 0.2}}, "; its longest phase is train, 900 ms on the slowest rank."),
        ({}, "."),
        (None, "."),
        ({"train": {"max": "long"}, "load": 3}, "."),
    ],
)
def test_timings_alone_have_a_first_sentence(run_maker: Any, seconds: Any, said: str) -> None:
    """Without a window the longest step is named, and its longest phase where the timings can be read."""
    run_maker.target(0, windows_opened=0)
    rows = [
        {"step": step, "wall_ns": ns, "seconds": seconds if step == 2 else {}}
        for step, ns in ((1, 10**9), (2, 2 * 10**9), (3, 10**9))
    ]
    run_maker.manifest["metrics"] = {"steps": rows}
    found = summarise(run_maker.write()).report()
    if not isinstance(seconds, dict) or "long" in str(seconds):  # a row of another shape is no step
        assert sentences(found) == ["Step 1 took 1 s, the longest of 2 (their median is 1 s)."]
    else:
        assert sentences(found) == [f"Step 2 took 2 s, the longest of 3 (their median is 1 s){said}"]


@pytest.mark.parametrize("odd", [[2], {"a": 1}, None])
def test_a_step_that_is_no_number_ends_no_page(run_maker: Any, event: Event, odd: object) -> None:
    """The row of a step may say anything of itself; the first sentences come of the others."""
    steps = [{"step": step, "seconds": {"update": {"max": 0.25}}} for step in (odd, 1, 2)]
    run_maker.manifest["metrics"] = {"steps": steps}
    assert sentences(summarise(two_ranks(run_maker, event)).report())
