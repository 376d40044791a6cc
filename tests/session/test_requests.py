"""Windows on demand: asked for through a directory that only its owner can write, on live processes, by the run's own selection."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner

from accelprof import Worker
from accelprof.cli.window import window as window_command
from accelprof.errors import ConfigError, IncompleteError, UserError
from accelprof.output.manifest import read_journals
from accelprof.output.requests import DIRECTORY, REQUEST, ask, status
from accelprof.testing import RecordingTool, capture


class Job(Worker):
    @Worker.timer("phase")
    def phase(self, inside=lambda: None):
        inside()


class Exact(RecordingTool):
    name = "exact"
    count: ClassVar[str] = "exact"


class Outside(RecordingTool):
    """A third party's, which records a held process from outside it."""

    name = "outside"
    records_from_outside = True
    withdrawn: ClassVar[list[tuple[str, int]]] = []
    trouble: ClassVar[BaseException | None] = None

    @classmethod
    def record_from_outside(cls, run_dir, pid, name, seconds, say):
        if cls.trouble is not None:
            raise cls.trouble
        return f"process {pid} for {seconds} s in {name.partition('-')[0]}"

    @classmethod
    def withdraw(cls, run_dir, pids):
        cls.withdrawn.extend((run_dir, pid) for pid in pids)


class Starter(RecordingTool):
    name = "starter"
    thread = "starter"


def until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.005)


def quick(run):
    """Let the session listen often."""
    run.session.requests._interval = 0.01
    return run.session


def looking_on_request(run):
    """Let the session look only where the test polls: the look that is going on, or waited for by the old interval, is over."""
    control, over = run.session.requests, threading.Event()
    control._interval = 1000.0
    control.poll = over.set
    assert over.wait(10)
    del control.poll
    return control


def test_open_and_close_on_a_live_session():
    """A window opens without any step, is closed again, and both are in the journal; ``steps`` may be off."""
    with capture(on_demand=True) as run:
        session = quick(run)
        [answer] = ask(run.run_dir, "open")
        assert answer.state == "open", answer
        assert session.window.info.kind == "on_demand"
        Job().phase()
        [answer] = ask(run.run_dir, "open")
        assert (answer.state, answer.text) == ("refused", "window 1 is open already")
        [answer] = ask(run.run_dir, "close")
        assert (answer.state, answer.text) == ("listening", "closed")
        assert session.window is None
        assert [row["window_kind"] for row in session.windows] == ["on_demand"]
        assert run.backend.names("capture_start", "capture_stop") == ["capture_start", "capture_stop"]
        [answer] = ask(run.run_dir, "close")
        assert answer.text == "no window was open"


def test_a_window_ends_by_itself():
    """Nobody closes it: it closes after the seconds that were asked for."""
    with capture(on_demand=True) as run:
        session = quick(run)
        ask(run.run_dir, "open", seconds=0.1)
        until(lambda: session.windows and session.windows[0]["closed"] is not None)
        assert session.windows[0]["reason"] == "on demand: its time is over"


def test_selection_rules_hold():
    """A process that the plan does not select does not listen; --group, --role and --rank choose among those that do."""
    with capture(on_demand=True, ranks=[3], identity={"rank": 0}) as run:
        assert run.session.requests is None
        with pytest.raises(UserError):
            ask(run.run_dir, "open")
    with capture(on_demand=True, ranks=[3], identity={"rank": 3, "role": "actor"}) as run:
        session = quick(run)
        assert ask(run.run_dir, "open", rank="0-2") == []
        assert ask(run.run_dir, "open", group="Other*") == []
        assert ask(run.run_dir, "open", role="ref") == []
        assert session.window is None
        [answer] = ask(run.run_dir, "open", group="Gr*", role="actor", rank="2-4")
        assert answer.state == "open"
        with pytest.raises(ConfigError, match="--rank: 'x' is neither a number nor a range"):
            ask(run.run_dir, "open", rank="x")


def test_off_means_off():
    """Without ``on_demand`` and without steps nobody is selected, and nobody listens."""
    with capture() as run:
        assert run.session.requests is None
        assert not os.path.exists(os.path.join(run.run_dir, DIRECTORY))


def test_who_was_not_asked_is_told_by_more_than_words(monkeypatch):
    """An answer counts by what it says of the request, whatever its text is; one that was for another worker is none."""
    with capture(on_demand=True, ranks="all", identity={"group": "G", "rank": 1}) as run:
        session = quick(run)
        assert ask(run.run_dir, "open", rank="0") == []
        with monkeypatch.context() as patch:
            patch.setattr(session.demand, "open", lambda seconds: ("refused", "not asked for"))
            [answer] = ask(run.run_dir, "open", rank="1")
        assert (answer.state, answer.text) == ("refused", "not asked for")


def test_a_planned_window_is_not_disturbed():
    """While a planned window is open, open and close on demand say no, by its name."""
    with capture(steps=[1]) as run:
        session = quick(run)
        with session.step(1):
            assert ask(run.run_dir, "open")[0].text == "window 1 is open already"
            [answer] = ask(run.run_dir, "close")
            assert answer.text == "window 1 was planned (step); it closes as planned"
        assert len(session.windows) == 1


def test_steps_go_on_inside():
    """Steps that are announced while a window on demand is open are noted in it and do not close it."""
    with capture(on_demand=True) as run:
        session = quick(run)
        ask(run.run_dir, "open")
        for step in (7, 8):
            with session.step(step):
                Job().phase()
        ask(run.run_dir, "close")
        assert session.windows[0]["steps"] == [7, 8]


def test_a_tool_told_its_count_says_no():
    """A tool whose number of windows was fixed at launch refuses by name."""
    with capture(tool="exact", tools=(Exact,), steps=[1]) as run:
        quick(run)
        [answer] = ask(run.run_dir, "open")
        assert answer.state == "refused"
        assert (
            answer.text
            == "tool exact was told its number of windows at launch; plan the window with steps or a schedule"
        )
        assert status(run.run_dir)[0].text == answer.text
        assert run.session.window is None


def test_a_tool_bound_to_its_thread_opens_and_closes_there():
    """The listening thread only arms: the next phase opens, a later one closes, both on the thread that works."""
    with capture(tool="starter", tools=(Starter,), on_demand=True, steps=[50]) as run:
        session = quick(run)
        [answer] = ask(run.run_dir, "open")
        assert answer.state == "armed"
        assert session.window is None
        with session.step(1):
            Job().phase()
        assert session.window is not None
        [answer] = ask(run.run_dir, "close")
        assert answer.text == "closes where its thread comes by next"
        Job().phase()
        assert session.window is None
        assert {call.thread for call in run.tool.calls if call.name in ("open", "close")} == {threading.get_ident()}


def test_a_planned_window_takes_the_place_of_an_armed_one():
    """Both would open at the next phase: the planned one does, and who asked is told so."""
    with capture(tool="starter", tools=(Starter,), on_demand=True, steps=[1]) as run:
        session = quick(run)
        assert ask(run.run_dir, "open")[0].state == "armed"
        thread = threading.Thread(target=session.begin_step, args=(1,), kwargs={"outside": True})
        thread.start()
        thread.join()
        until(lambda: status(run.run_dir)[0].text == "a planned window opens where this one would have")
        Job().phase()
        session.end_step(1)
        assert [row["window_kind"] for row in session.windows] == ["step"]
        assert ask(run.run_dir, "open")[0].state == "armed"


def test_armed_and_closed_before_any_phase():
    """A request that is taken back before a phase began opens nothing."""
    with capture(tool="starter", tools=(Starter,), on_demand=True) as run:
        quick(run)
        ask(run.run_dir, "open")
        ask(run.run_dir, "close")
        Job().phase()
        assert run.session.windows == []


def test_a_worker_that_is_held_is_recorded_by_any_tool_that_can(monkeypatch):
    """By its declaration, not by its name; what it raises is that worker's, and an interrupt takes back what was asked of it."""
    with capture(tool="outside", tools=(Outside,), on_demand=True) as run:
        looking_on_request(run)
        [answer] = ask(run.run_dir, "open", seconds=3.0, timeout=0.1)
        said = f"no answer in 0.1 s; process {os.getpid()} for 3.0 s in Group"
        assert (answer.state, answer.text) == ("recorded", said)
        monkeypatch.setattr(Outside, "trouble", KeyError("x"))
        [answer] = ask(run.run_dir, "open", timeout=0.1)
        assert (answer.state, answer.text) == ("silent", "no answer in 0.1 s; KeyError: 'x'")
        [answer] = ask(run.run_dir, "close", timeout=0.1)
        assert (answer.state, answer.text) == ("silent", "no answer in 0.1 s")
        monkeypatch.setattr(Outside, "trouble", KeyboardInterrupt())
        monkeypatch.setattr(Outside, "withdrawn", [])
        with pytest.raises(KeyboardInterrupt):
            ask(run.run_dir, "open", timeout=0.1)
        assert Outside.withdrawn == [(run.run_dir, os.getpid())]
        assert not Path(run.run_dir, DIRECTORY, REQUEST).exists()


def test_an_interrupt_passes_whatever_a_tool_does_with_it(monkeypatch, caplog):
    """What a tool raises while it takes back what was asked of it is said once, and is not what the user gets."""
    interrupt = KeyboardInterrupt()

    def withdraw(run_dir, pids):
        raise KeyError("gone")

    with capture(tool="outside", tools=(Outside,), on_demand=True) as run:
        looking_on_request(run)
        monkeypatch.setattr(Outside, "trouble", interrupt)
        monkeypatch.setattr(Outside, "withdraw", withdraw)
        with pytest.raises(KeyboardInterrupt) as caught:
            ask(run.run_dir, "open", timeout=0.1)
        assert caught.value is interrupt
    said = [record.getMessage() for record in caplog.records if "gone" in record.getMessage()]
    assert said == ["tool outside: what was asked of it was not taken back: KeyError: 'gone'"]


def test_a_held_worker_is_recorded_for_as_long_as_its_configuration_says():
    """It cannot be asked, and its file says how long its windows are."""
    with capture(tool="outside", tools=(Outside,), on_demand={"seconds": 7}) as run:
        looking_on_request(run)
        [answer] = ask(run.run_dir, "open", timeout=0.1)
        assert answer.text == f"no answer in 0.1 s; process {os.getpid()} for 7.0 s in Group"


def test_a_request_that_lay_there_is_not_answered_by_a_worker_that_came_later(tmp_path):
    """Who waits for a worker that was started again does not take its first word for the answer."""
    with capture(on_demand=True, output_dir=str(tmp_path), run="r") as run:
        quick(run)
        ask(run.run_dir, "open")
    with capture(on_demand=True, output_dir=str(tmp_path), run="r") as run:
        data = json.loads(Path(run.session.requests._answer_path).read_text())
        assert (data["state"], data["request"]) == ("listening", None)


@pytest.mark.parametrize("mode", [0o666, 0o620])
def test_a_request_that_others_could_write_is_not_followed(mode):
    """A request file that group or others can write is reported and not followed."""
    with capture(on_demand=True) as run:
        session = quick(run)
        path = Path(run.run_dir, DIRECTORY, REQUEST)
        path.touch()
        path.chmod(mode)
        path.write_text(json.dumps({"id": "x", "action": "open"}))
        until(lambda: any("can be written by others" in text for text in session.problems))
        assert session.window is None


def test_links_and_foreign_directories_are_not_followed(tmp_path, monkeypatch):
    """A request that is a link is not opened; a directory of another user's, or open to others, is not listened to."""
    with capture(on_demand=True) as run:
        session = quick(run)
        (tmp_path / "real.json").write_text(json.dumps({"id": "x", "action": "open"}))
        os.symlink(tmp_path / "real.json", Path(run.run_dir, DIRECTORY, REQUEST))
        until(lambda: any("is not followed" in text for text in session.problems))
        assert session.window is None
        os.unlink(Path(run.run_dir, DIRECTORY, REQUEST))
        os.chmod(Path(run.run_dir, DIRECTORY), 0o777)
        with pytest.raises(UserError, match="can be written by others"):
            ask(run.run_dir, "open")
        os.chmod(Path(run.run_dir, DIRECTORY), 0o700)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(UserError, match="belongs to user"):
            ask(run.run_dir, "open")


def test_modes_of_what_is_made():
    """The directory is its owner's alone, and so is every file in it."""
    with capture(on_demand=True) as run:
        quick(run)
        ask(run.run_dir, "open")
        directory = Path(run.run_dir, DIRECTORY)
        assert directory.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}


def test_an_old_request_is_not_followed_by_a_new_worker(tmp_path):
    """A worker that starts later does not open a window that was asked for before it was there."""
    with capture(on_demand=True, output_dir=str(tmp_path), run="r") as run:
        quick(run)
        ask(run.run_dir, "open")
        run_dir = run.run_dir
    from accelprof.session.configure import configure, reset

    try:
        session = configure({"on_demand": True}, run_dir=run_dir, group="Group", rank=0)
        session.requests._interval = 0.01
        time.sleep(0.6)
        assert session.windows == []
    finally:
        reset()


def test_a_signal_where_it_is_asked_for():
    """``on_demand.signal``: SIGUSR2 opens a window and closes it; without the key the signal's handler stays as it was."""
    before = signal.getsignal(signal.SIGUSR2)
    with capture(on_demand=True):
        assert signal.getsignal(signal.SIGUSR2) is before
    with capture(on_demand={"signal": True, "seconds": 60}) as run:
        session = run.session
        os.kill(os.getpid(), signal.SIGUSR2)
        until(lambda: session.window is not None)
        os.kill(os.getpid(), signal.SIGUSR2)
        until(lambda: session.window is None and session.windows[-1]["closed"] is not None)
        assert session.windows[0]["reason"] == "closed by a signal"
    assert signal.getsignal(signal.SIGUSR2) is before


def test_a_handler_that_came_over_ours_stays():
    """Who takes SIGUSR2 after the session keeps it when the session ends, as its default would end the process."""
    with capture(on_demand={"signal": True}):
        before = signal.signal(signal.SIGUSR2, mine := lambda *_: None)
    try:
        assert signal.getsignal(signal.SIGUSR2) is mine
    finally:
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    assert before is not signal.SIG_DFL  # ours was there


JOB = """
import sys, time, accelprof
from accelprof import Worker

class Job(Worker):
    @Worker.timer("phase")
    def phase(self): time.sleep(0.002)

session = accelprof.configure(on_demand=True, output_dir=sys.argv[1], run="live", group="ActorGroup", rank=0)
print("ready", flush=True)
job, end = Job(), time.monotonic() + 60
while not session.windows or session.windows[-1]["closed"] is None:
    job.phase()
    if time.monotonic() > end: sys.exit("no window came")
"""


def test_command_line_on_another_process(tmp_path):
    """``accelprof window`` opens and closes a window in a process that is running, and says who did what."""
    (tmp_path / "job.py").write_text(textwrap.dedent(JOB))
    job = subprocess.Popen(
        [sys.executable, str(tmp_path / "job.py"), str(tmp_path / "out")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert job.stdout.readline().strip() == "ready"
        run_dir = str(tmp_path / "out" / "live")
        opened = CliRunner().invoke(window_command, ["open", "--run", run_dir, "--seconds", "30"])
        assert opened.exit_code == 0, opened.output
        assert "ActorGroup/rank0" in opened.output
        assert "open: window 1, for 30 s at most" in opened.output
        shown = json.loads(CliRunner().invoke(window_command, ["status", "--run", run_dir, "--json"]).output)
        assert [row["state"] for row in shown] == ["open"]
        time.sleep(0.05)
        closed = CliRunner().invoke(window_command, ["close", "--run", run_dir])
        assert closed.exit_code == 0, closed.output
        assert job.wait(timeout=30) == 0
    finally:
        job.kill()
        job.stdout.close()
    records = [record for journal in read_journals(run_dir) for record in journal]
    assert [r["window_kind"] for r in records if r["kind"] == "window" and r["closed"]] == ["on_demand"]
    assert len(list(Path(run_dir).rglob("*.trace.json.gz"))) == 1
    shown = CliRunner().invoke(window_command, ["status", "--run", run_dir])
    assert "ended" in shown.output
    late = CliRunner().invoke(window_command, ["open", "--run", run_dir])
    assert isinstance(late.exception, UserError)


@pytest.mark.parametrize("how", ["killed", "killed and not waited for", "another process has its number"])
def test_a_dead_worker_does_not_listen(how, tmp_path):
    """A worker that was killed is gone in ``status``, whoever has its number now, and nobody waits for its answer."""
    (tmp_path / "job.py").write_text(textwrap.dedent(JOB))
    argv = [sys.executable, str(tmp_path / "job.py"), str(tmp_path / "out")]
    run_dir = str(tmp_path / "out" / "live")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout.readline().strip() == "ready"
        assert [answer.state for answer in status(run_dir)] == ["listening"]
        job.kill()
        if how == "killed and not waited for":
            until(lambda: Path(f"/proc/{job.pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z")
        else:
            job.wait(30)
        if how == "another process has its number":
            (said,) = Path(run_dir, DIRECTORY).glob("worker-*.json")
            said.write_text(said.read_text().replace(f'"pid": {job.pid}', f'"pid": {os.getpid()}'))
        assert [(answer.state, answer.text) for answer in status(run_dir)] == [("ended", "its process is gone")]
        with pytest.raises(UserError, match="no live worker"):
            ask(run_dir, "open")


@pytest.mark.parametrize(
    "change",
    [
        {"pid": "x"}, {"pid": 10**400}, {"pid": -1}, {"pid": True}, {"pid": None}, {"label": [1]}, {"host": {}}, {"state": 3},
        {"text": None}, {"window": []}, {"request": 1.5}, {"key": None},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_workers_word_is_passed_over(change):
    """An answer with odd fields ends neither ``status`` nor ``open``: the live worker's counts."""
    with capture(on_demand=True) as run:
        quick(run)
        (own,) = Path(run.run_dir, DIRECTORY).glob("worker-*.json")
        odd = own.with_name("worker-odd.json")
        odd.write_text(json.dumps({**json.loads(own.read_text()), "key": "odd", **change}))
        odd.chmod(0o600)
        own.with_name("worker-none.json").write_bytes(b"{")
        os.mkfifo(own.with_name("worker-pipe.json"))
        assert [answer.state for answer in status(run.run_dir)] == ["listening"]
        assert [answer.state for answer in ask(run.run_dir, "open")] == ["open"]


def test_a_failure_is_an_answer(monkeypatch):
    """When opening fails for a reason nobody thought of, whoever asked hears it, and the worker goes on listening."""
    with capture(on_demand=True) as run:
        session = quick(run)
        monkeypatch.setattr(session.captures, "open_or_why", lambda ask: 1 / 0)
        [answer] = ask(run.run_dir, "open")
        assert answer.state == "refused"
        assert "ZeroDivisionError" in answer.text
        monkeypatch.undo()
        ask(run.run_dir, "close")
        assert ask(run.run_dir, "open")[0].state == "open"


def test_status_of_a_command(tmp_path):
    """Nothing that fits is an incomplete result, a directory that is no run the user's mistake."""
    with capture(tool="exact", tools=(Exact,), steps=[1]) as run:
        quick(run)
        refused = CliRunner().invoke(window_command, ["open", "--run", run.run_dir])
        assert isinstance(refused.exception, IncompleteError)
        nobody = CliRunner().invoke(window_command, ["open", "--run", run.run_dir, "--group", "Other"])
        assert "no selected worker fits" in str(nobody.exception)
    wrong = CliRunner().invoke(window_command, ["status", "--run", str(tmp_path)])
    assert isinstance(wrong.exception, UserError)
    assert "has no worker that listens" in str(wrong.exception)


# --- a directory that somebody else plays with ------------------------------------------------------------------------------


def put(run, data, name=REQUEST):
    """Put a request there as ``ask`` does, in one step."""
    path = Path(run.run_dir, DIRECTORY, name)
    part = path.with_suffix(".test")
    part.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    part.chmod(0o600)
    part.replace(path)


def a_pipe(path):
    os.mkfifo(path, 0o600)


def a_socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket may be no longer than 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


def endless(path):
    path.touch(0o600)
    os.truncate(path, 1 << 40)


ODD = {
    "a pipe": a_pipe,
    "a socket": a_socket,
    "a directory": lambda path: path.mkdir(0o700),
    "a terabyte": endless,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "nothing": lambda path: path.touch(0o600),
}


@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_request_is_said_and_the_listener_lives(kind):
    """Whatever lies in the request's place is neither waited for nor read to its end; the next request is followed."""
    with capture(on_demand=True) as run:
        session = quick(run)
        path = Path(run.run_dir, DIRECTORY, REQUEST)
        ODD[kind](path)
        until(lambda: any("is not followed" in text for text in session.problems))
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        assert ask(run.run_dir, "open")[0].state == "open"


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"action": "open", "seconds": float("nan")}, "seconds is no number"),
        ({"action": "open", "seconds": float("inf")}, "seconds is no number"),
        ({"action": "open", "seconds": 1e308}, "seconds is no number"),
        ({"action": "open", "seconds": -1}, "seconds is no number"),
        ({"action": "open", "seconds": 0}, "seconds is no number"),
        ({"action": "open", "seconds": True}, "seconds is no number"),
        ({"action": "open", "seconds": "5"}, "seconds is no number"),
        ({"action": "open", "seconds": 10**400}, "seconds is no number"),
        ({"action": "explode"}, "action is neither"),
        ({}, "action is neither"),
        ({"action": "open", "group": {"a": 1}}, "group is no name"),
        ({"action": "open", "role": [1]}, "role is no name"),
        ({"action": "open", "group": "x" * 1000}, "group is no name"),
        ({"action": "open", "rank": "one"}, "rank is no set"),
        ({"action": "open", "rank": {"a": 1}}, "rank is no set"),
    ],
)
def test_a_request_that_cannot_be_followed_is_refused(request_, why):
    """Who asked hears what is wrong, it is said once, and nothing opens."""
    with capture(on_demand=True) as run:
        session = quick(run)
        for number in range(3):
            put(run, {"id": f"r{number}", **request_})
            until(
                lambda number=number: (
                    json.loads(Path(session.requests._answer_path).read_text())["request"] == f"r{number}"
                )
            )
            [answer] = status(run.run_dir)
            assert answer.state == "refused"
            assert why in answer.text
        assert len([text for text in session.problems if why in text]) == 1
        assert session.windows == []
        assert ask(run.run_dir, "open")[0].state == "open"


@pytest.mark.parametrize(
    "data", [b"[" * 60_000, b"null", b"[]", b'{"id": 5}', b'{"id": ""}', b"\xff\xfe", b"{" * 70_000]
)
def test_a_request_without_a_name_is_said_once(data):
    """What has no id, no end or no sense is said, once however often it is seen, and the memory of the listener is flat."""
    with capture(on_demand=True) as run:
        session = quick(run)
        put(run, data)
        until(lambda: any("is not followed" in text for text in session.problems))
        for _ in range(20):
            put(run, data + b" ")
            session.requests.poll()
        assert len(session.problems) == 1
        assert ask(run.run_dir, "open")[0].state == "open"


def test_a_directory_that_is_opened_to_others_is_left_alone():
    """Its mode changed after the start: no request in it is followed, no answer is written there; when it is mended all is well."""
    with capture(on_demand=True) as run:
        session = quick(run)
        directory = Path(run.run_dir, DIRECTORY)
        before = Path(session.requests._answer_path).read_text()
        directory.chmod(0o777)
        put(run, {"id": "x", "action": "open"})
        until(lambda: any("can be written by others" in text for text in session.problems))
        assert session.windows == []
        assert Path(session.requests._answer_path).read_text() == before
        directory.chmod(0o700)
        until(lambda: session.window is not None)


def test_many_at_once():
    """Of many requests at the same moment every one is answered: followed, refused, or told that another took its place."""
    with capture(on_demand=True) as run:
        quick(run)
        answers = []
        askers = [threading.Thread(target=lambda: answers.extend(ask(run.run_dir, "open"))) for _ in range(12)]
        for thread in askers:
            thread.start()
        for thread in askers:
            thread.join(30)
        assert len(answers) == 12
        assert {answer.state for answer in answers} <= {"open", "refused"}
        assert sum(answer.state == "open" for answer in answers) == 1
        assert len(run.session.windows) == 1


def test_a_full_disk_leaves_no_parts(monkeypatch):
    """An answer that cannot be written leaves nothing half-written behind."""
    with capture(on_demand=True) as run:
        session = quick(run)

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space"):
            session.requests._say("listening")
        monkeypatch.undo()
        assert [path.name for path in Path(run.run_dir, DIRECTORY).iterdir() if ".part" in path.name] == []


def test_a_window_ends_by_a_clock_that_tests_can_turn():
    """The clock of windows on demand is a port: no test of it has to wait."""
    now = [100.0]
    with capture(on_demand=True) as run:
        demand = run.session.demand
        demand._clock = lambda: now[0]
        assert demand.open(3600) == ("open", "window 1, for 3600 s at most")
        now[0] += 3599.9
        assert demand.look() == ""
        assert run.session.window is not None
        now[0] += 0.1
        demand.look()
        assert run.session.window is None
        assert run.session.windows[0].reason == "on demand: its time is over"


class Broken(RecordingTool):
    name = "broken"

    def open(self, window):
        raise RuntimeError("the driver says no")


def test_every_ask_hears_why_no_window_opened(tmp_path, monkeypatch):
    """What fails is said once in the log; whoever asks is told each time: a tool, the directory, the budget, another window."""
    with capture(tool="broken", tools=(Broken,), timeline=False, on_demand=True) as run:
        answers = [run.session.demand.open(5) for _ in range(5)]
        assert all(state == "refused" and "the driver says no" in text for state, text in answers), answers
    with capture(on_demand=True) as run:
        captures = run.session.captures
        with monkeypatch.context() as patch:
            patch.setattr(captures, "_place", "/dev/null/no")
            patch.setattr(captures, "_has_place", False)
            answers = [run.session.demand.open(5) for _ in range(3)]
        assert all(state == "refused" and "Not a directory" in text for state, text in answers), answers
        monkeypatch.setattr(captures, "_refused", lambda: "the run's budget is used up")
        answers = [run.session.demand.open(5) for _ in range(3)]
        assert set(answers) == {("refused", "no further window is opened: the run's budget is used up")}
        monkeypatch.undo()
        assert run.session.demand.open(5)[0] == "open"
        assert run.session.demand.open(5) == ("refused", f"window {run.session.window.info.sequence} is open already")
    assert run.session.demand.open(5) == ("refused", "the session is closed")


def test_who_asks_waits_by_a_clock_that_tests_can_turn():
    """A worker that never answers is silent after an hour of that clock, and it was looked for all the while."""
    now = [0.0]
    with capture(on_demand=True) as run:
        control = run.session.requests
        control.disown()
        control._signalled.set()
        control._thread.join()

        def sleep(seconds):
            now[0] += 600.0

        began = time.monotonic()
        [answer] = ask(run.run_dir, "open", timeout=3600, clock=lambda: now[0], sleep=sleep)
        assert (answer.state, answer.text) == ("silent", "no answer in 3600 s")
        assert now[0] == 3600.0
        assert time.monotonic() - began < 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_request_whose_asker_was_ended_opens_no_window(number):
    """Ctrl-C and SIGTERM take the request back; after SIGKILL it lies there, and the worker refuses it and says why."""
    with capture(on_demand=True) as run:
        session = run.session
        looking_on_request(run)
        place = Path(run.run_dir, DIRECTORY, REQUEST)
        code = "import sys; from accelprof.cli.main import main; main()"
        command = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code, "window", "open", "--run", run.run_dir, "--timeout", "60"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until(place.exists, 60)
        command.send_signal(number)
        command.wait(30)
        assert place.exists() == (number == signal.SIGKILL)
        session.requests.poll()
        assert session.window is None
        said = [text for text in session.problems if "has ended meanwhile" in text]
        assert len(said) == (number == signal.SIGKILL)
