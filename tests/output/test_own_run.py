"""Runs that nobody else ends: plain processes, and several that one launcher started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from accelprof import hookimpl
from accelprof.analysis import draw
from accelprof.analysis.run import open_run
from accelprof.atomic import halves
from accelprof.catalogue import make_catalogue
from accelprof.output.delivery import EndedRun, finish
from accelprof.output.presence import PAGE, TURN, Presence, at_work
from accelprof.output.records import Manifest, TargetRow
from accelprof.testing import capture

LEAVES = ("manifest.json", "report.html", "timeline.json.gz")
WORK = """
    import os, sys, time
    import accelprof

    @accelprof.timer("train/step")
    def work():
        time.sleep(0.001)

    session = accelprof.configure(steps=[1, 2], ranks="all", merge_steps=False, output_dir="o", run="r", group="G")
    for number in range(4):
        with session.step(number):
            work()
            if number == int(os.environ.get("STOP_IN", -1)):
                open(f"waits-{os.environ['RANK']}", "w").close()
                time.sleep(60)
"""
CLOSE = (
    WORK
    + """
    manifest = session.close()
    print(os.environ["RANK"], manifest["status"], len(manifest["targets"]), manifest.get("running"))
"""
)


def start(directory: Path, code: str, rank: int, **env: str) -> subprocess.Popen[str]:
    launcher = {"TORCHELASTIC_RUN_ID": "job", "MASTER_ADDR": "here", "MASTER_PORT": "1", "RANK": str(rank)}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=directory,
        env={**os.environ, **launcher, "WORLD_SIZE": "3", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def until(condition: Any, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def left(directory: Path) -> dict[str, Any]:
    run = directory / "o" / "r"
    assert sorted(path.name for path in run.iterdir() if path.is_file() and path.name[0] != ".") == list(LEAVES)
    manifest: dict[str, Any] = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    return manifest


def test_a_plain_process_leaves_a_whole_run(tmp_path: Path) -> None:
    """Manifest, timeline and page, with the timings of every step; close says so, and where it lies."""
    code = (
        WORK
        + """
    first, again = session.close(), session.close()
    assert first == again and not first["problems"] and first["journal"]
    print(first["status"], first["run_dir"])
    """
    )
    process = start(tmp_path, code, 0)
    assert process.communicate(timeout=60)[0].split() == ["complete", str(tmp_path / "o" / "r")]
    manifest = left(tmp_path)
    assert [row["step"] for row in manifest["metrics"]["steps"]] == [0, 1, 2, 3]
    assert all(row["seconds"]["train/step"]["slowest"] == "G/rank0" for row in manifest["metrics"]["steps"])
    assert [row["steps"] for row in manifest["windows"]] == [[1], [2]]
    assert (manifest["status"], "running" in manifest) == ("complete", False)


def test_a_process_that_never_calls_close_leaves_a_whole_run_too(tmp_path: Path) -> None:
    """The end of the process is the end of the run."""
    process = start(tmp_path, WORK, 0)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert left(tmp_path)["status"] == "complete"


def test_ranks_that_close_in_any_order_are_one_run(tmp_path: Path) -> None:
    """The last one finds all of them; nobody waits for another, and one that starts when all have gone adds itself."""
    ranks = [start(tmp_path, CLOSE, rank) for rank in (0, 1)]
    said = [process.communicate(timeout=60)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], said
    assert len(left(tmp_path)["targets"]) == 2
    late = start(tmp_path, CLOSE, 2)
    assert late.communicate(timeout=60)[0].split() == ["2", "complete", "3", "None"]
    manifest = left(tmp_path)
    assert sorted(row["rank"] for row in manifest["targets"]) == [0, 1, 2]
    assert {row["seconds"]["train/step"]["ranks"] for row in manifest["metrics"]["steps"]} == {3}
    assert len(manifest["windows"]) == 6
    assert open_run(tmp_path / "o" / "r").lacks == []


def test_a_rank_that_is_killed_keeps_nobody_waiting_and_is_named(tmp_path: Path) -> None:
    """Killed after the others have ended: the manifest says that it was at work, and a report says what became of it."""
    killed = start(tmp_path, CLOSE, 1, STOP_IN="2")
    until((tmp_path / "waits-1").exists)
    began = time.monotonic()
    other = start(tmp_path, CLOSE, 0)
    said = other.communicate(timeout=60)[0]
    assert time.monotonic() - began < 30
    [key] = json.loads((tmp_path / "o" / "r" / "manifest.json").read_text())["running"]
    assert "-r1-" in key
    assert "complete 2" in said
    assert open_run(tmp_path / "o" / "r").lacks == []  # it may yet close its window
    killed.kill()
    killed.communicate(timeout=30)
    [lack] = open_run(tmp_path / "o" / "r").lacks
    assert (lack.code, lack.target) == ("window_open", key)
    late = start(tmp_path, CLOSE, 2)
    assert late.communicate(timeout=60)[0].split()[-4:] == ["2", "incomplete", "3", "None"]


def test_sigterm_writes_the_manifest_and_lets_the_process_go(tmp_path: Path) -> None:
    """The window that was open is closed and listed; timeline and page are left to ``accelprof report``."""
    process = start(tmp_path, WORK, 0, STOP_IN="2")
    until((tmp_path / "waits-0").exists)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert time.monotonic() - began < 10
    assert process.returncode == -signal.SIGTERM
    manifest = json.loads((tmp_path / "o" / "r" / "manifest.json").read_text())
    assert [(row["steps"], row["reason"]) for row in manifest["windows"]] == [([1], "step ended"), ([2], "SIGTERM")]
    assert open_run(tmp_path / "o" / "r").lacks == []


def test_a_directory_that_cannot_be_made_is_no_complete_run(tmp_path: Path) -> None:
    """Nothing was recorded, and close says so; training went on."""
    (tmp_path / "o").write_text("in the way")
    process = start(tmp_path, CLOSE.replace("print(", "print(manifest['lacks'][0]['code'], "), 0)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 0
    assert said.splitlines()[-1] == "no_directory 0 incomplete 0 None"


def test_presence_is_of_the_living(tmp_path: Path) -> None:
    """A process is there until it leaves or dies; a forked child does not keep it there."""
    code = """
        import os, sys, time
        from accelprof.output.presence import Presence
        mine = Presence(sys.argv[1], "one")
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        print("up", flush=True)
        time.sleep(60)
    """
    both = {key: TargetRow(key) for key in ("one", "two")}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert at_work(str(tmp_path), both) == {"one"}
        process.kill()
        process.wait(timeout=10)
        until(lambda: at_work(str(tmp_path), both) == set(), 10)


def test_a_turn_is_one_processs_at_a_time(tmp_path: Path) -> None:
    """Whoever waits gives up in time, and a turn of another kind is free."""
    code = """
        import sys
        from accelprof.output.presence import TURN, Presence
        mine = Presence(sys.argv[1], "one")
        with mine.turn(TURN, 5.0) as got:
            print(got, flush=True)
            sys.stdin.read()
    """
    mine = Presence(str(tmp_path), "two")
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        with mine.turn(TURN, 0.1) as got:
            assert not got
        with mine.turn(PAGE, 0.1) as got:
            assert got
        process.communicate(timeout=10)
    with mine.turn(TURN, 5.0) as got:
        assert got
    mine.close()


def test_without_locks_everyone_finishes_as_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that has no locks keeps nobody from ending a run."""

    def refused(*_: Any) -> None:
        raise OSError(95, "not supported")

    monkeypatch.setattr("accelprof.output.presence.fcntl.lockf", refused)
    mine = Presence(str(tmp_path), "one")
    with mine.turn(TURN, 0.1) as got:
        assert got
    assert mine.there(["two"]) == set()
    mine.close()


@pytest.mark.parametrize("ending", ["closed", "killed", "killed, by an older version"])
def test_a_run_directory_can_be_moved_and_read_elsewhere(tmp_path: Path, ending: str) -> None:
    """Finished or not: every file is found where the directory lies now, and no path leads back to where it lay."""
    process = start(tmp_path, CLOSE, 0, **({} if ending == "closed" else {"STOP_IN": "2"}))
    if ending != "closed":
        until((tmp_path / "waits-0").exists)
        process.kill()
    process.communicate(timeout=60)
    before, after = tmp_path / "o" / "r", tmp_path / "elsewhere" / "run"
    [journal] = (before / ".workers").glob("*.jsonl")
    if ending.endswith("older version"):
        rows = [json.loads(line) for line in journal.read_text().splitlines()]
        whole = [{**row, "path": str(before / row["path"])} if row["kind"] == "artifact" else row for row in rows]
        journal.write_text("".join(json.dumps(row) + "\n" for row in whole))
    else:
        assert str(tmp_path) not in journal.read_text()
    after.parent.mkdir()
    before.rename(after)
    run = open_run(after)
    assert [lack.code for lack in run.lacks] == ([] if ending == "closed" else ["window_open"])
    files = [file for file in run.files() if not file.skip]
    assert len(files) == (2 if ending == "closed" else 1)
    assert all(file.path.startswith(str(after)) for file in files)


def test_halves_of_files_are_found_and_said(tmp_path: Path) -> None:
    """A merge that was killed leaves half a timeline: the report says so once; one that a living process writes is left alone."""
    with capture(directory=str(tmp_path), run="r", steps=[1], tool=None) as captured:
        with captured.session.step(1):
            pass
        captured.session.close()
    run_dir = tmp_path / "r"
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    (run_dir / f"timeline.json.gz.{gone.pid}.part").write_bytes(b"half")
    (run_dir / "Group" / f"x.json.{gone.pid}.140.part").write_bytes(b"half")
    (run_dir / f"manifest.json.{os.getpid()}.1.part").write_bytes(b"being written")
    (run_dir / "mine.part").write_bytes(b"the user's own")
    (run_dir / f"link.{gone.pid}.part").symlink_to(run_dir / "mine.part")
    assert halves(str(run_dir)) == [f"Group/x.json.{gone.pid}.140.part", f"timeline.json.gz.{gone.pid}.part"]
    (said,) = [text for text in open_run(run_dir).problems if "half-written" in text]
    assert "timeline.json.gz" in said


def test_pages_come_by_a_hook_and_what_goes_wrong_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who draws pages is told where the run lies; one that fails keeps neither the others' from being made nor the run from ending."""
    seen: list[str] = []

    class Pages:
        @staticmethod
        @hookimpl
        def accelprof_run_pages(run_dir: str) -> None:
            seen.append(run_dir)

    def finish_run(run_dir: str) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setattr("accelprof.analysis.finish_run", finish_run)
    catalogue = make_catalogue(entry_points=False)
    catalogue.register(Pages, "pages", distribution="pages")
    config = catalogue.load({"steps": [1]}).config
    facts = EndedRun(str(tmp_path), catalogue, config, catalogue.plan(config), draw)
    manifest = Manifest()
    finish(facts, manifest)
    assert seen == [str(tmp_path)]
    assert manifest.problems == facts.problems == ["timeline and report could not be made: RuntimeError: no ink"]


def test_our_page_is_there_when_plugins_draw_and_their_wrappers_hear_of_it(tmp_path: Path) -> None:
    """It takes part in the hook's call: made before those of plug-ins, inside their wrappers, which have the last word."""
    seen: list[object] = []

    class Draws:
        @staticmethod
        @hookimpl
        def accelprof_run_pages(run_dir: str) -> str:
            seen.append("plug-in draws")
            return "no ink"

    class Wraps:
        @staticmethod
        @hookimpl(wrapper=True)
        def accelprof_run_pages(run_dir: str) -> Generator[None, list[str], list[str]]:
            seen.append("wrapper begins")
            answer = yield
            seen.append(answer)
            return ["changed"]

    def ours(run_dir: str) -> str:
        seen.append("ours draws")
        return "no paper"

    catalogue = make_catalogue(entry_points=False)
    catalogue.register(Wraps, "wraps")
    catalogue.register(Draws, "draws")
    config = catalogue.load({"steps": [1]}).config
    facts = EndedRun(str(tmp_path), catalogue, config, catalogue.plan(config), ours)
    manifest = Manifest()
    assert finish(facts, manifest)
    assert seen == ["wrapper begins", "ours draws", "plug-in draws", ["no paper", "no ink"]]
    assert manifest.problems == ["changed"]
