"""Every fact of a session has one owner: the gate, the lock with what waits for it, what hooks get to see, the ends of a process."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import accelprof
from accelprof import Worker
from accelprof.session.captures import Ask
from accelprof.session.lock import SIGNALS, SessionLock
from accelprof.testing import RecordingTool, capture
from accelprof.timing.gate import gate

SOURCES = Path(accelprof.__file__).parent


class Job(Worker):
    @Worker.timer("outer")
    def outer(self, inside=lambda: None):
        return inside()

    @Worker.timer("inner")
    def inner(self):
        return gate.direct is not None


# --- the gate -----------------------------------------------------------------------------------------------------------


def test_nobody_but_the_gate_writes_the_gate():
    """No module assigns an attribute of the gate; who needs it changed asks the gate."""
    wrong = []
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets:
                if (
                    isinstance(target, ast.Attribute)
                    and isinstance(target.value, ast.Name)
                    and target.value.id == "gate"
                ):
                    wrong.append(f"{path.relative_to(SOURCES)}:{node.lineno}")
    assert wrong == []


def test_an_armed_window_keeps_the_direct_way():
    """A window that opened where a phase began emits plain calls directly, as one that opened at once does."""
    with capture(on_demand=True) as run:
        assert gate.entrance is None
        with run.session.lock:
            run.session.pending.put(Ask("on_demand"))
        assert gate.entrance is not None
        assert gate.direct is None
        assert Job().outer(Job().inner)
        assert gate.direct is run.session.window.plain
        run.session.close_window("over")
        assert gate.entrance is None
        assert gate.direct is None


def test_phases_inside_a_discrete_window_take_the_direct_way():
    """Only where the window opens and closes somebody has to listen; what is called inside is emitted directly, and is there."""
    with capture(steps=[1], discrete=True) as run:
        with run.session.step(1):
            assert gate.direct is None
            assert Job().outer(Job().inner)
            assert gate.direct is None
        assert run.backend.labels() == ["outer", "inner"]
        assert run.backend.balanced()


def test_a_schedule_hears_of_every_call_while_it_counts():
    """While calls are counted plain calls do not go past the schedule; once it is done they may."""
    with capture(schedule={"phase": "inner", "wait": 1, "active": 2}, on_demand=True):
        job = Job()
        assert [job.inner() for _ in range(4)] == [False] * 4
        assert gate.entrance is None


def test_old_names_of_the_gate_answer_and_warn():
    """``gate.lane`` and ``gate.hot`` are there for one more release."""
    with capture(steps=[1]) as run, run.session.step(1):
        with pytest.warns(DeprecationWarning, match=r"gate\.lane is gate\.direct now"):
            assert gate.lane is gate.direct
        with pytest.warns(DeprecationWarning, match=r"gate\.hot is gate\.entrance now"):
            assert gate.hot is gate.entrance
        with pytest.raises(AttributeError):
            _ = gate.nothing_of_this_name


# --- the lock, and signals ----------------------------------------------------------------------------------------------


def test_what_has_to_follow_happens_once_when_the_outermost_holder_leaves():
    """However often the lock is taken within itself, the gate is asked once, while the lock is still held."""
    left = []
    lock = SessionLock(lambda: left.append(threading.Thread(target=lambda: None)))
    with lock, lock:
        with lock:
            pass
        assert left == []
    assert len(left) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM])
def test_a_signal_waits_until_the_outermost_holder_has_left(number):
    """A handler that raises does so after the lock, once, and is in its place again."""
    lock, log = SessionLock(lambda: log.append("left")), []

    def handler(signum, frame):
        log.append(signum)
        raise InterruptedError

    def write():
        with lock:
            with lock:
                lock.hold_signals()
                os.kill(os.getpid(), number)
                os.kill(os.getpid(), number)
                log.append("written")
            log.append("still inside")

    before = signal.signal(number, handler)
    try:
        with pytest.raises(InterruptedError):
            write()
        assert log == ["written", "still inside", "left", number]
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


def test_signals_of_which_one_raises_all_come():
    """The handler of the first raises; the second signal is not lost."""
    lock, came = SessionLock(lambda: None), []

    def raising(signum, frame):
        came.append(signum)
        raise InterruptedError

    def write():
        with lock:
            lock.hold_signals()
            for number in before:
                os.kill(os.getpid(), number)

    before = {n: signal.signal(n, raising) for n in (signal.SIGUSR1, signal.SIGUSR2)}
    try:
        with pytest.raises(InterruptedError):
            write()
        assert sorted(came) == sorted(before)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_ignored_signals_stay_ignored():
    """What the process ignores is not touched."""
    lock, before = SessionLock(lambda: None), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with lock:
            lock.hold_signals()
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signal.SIGHUP in SIGNALS


END = """
    import os, signal, sys, threading, time, accelprof
    from accelprof.testing import RecordingTool

    class Slow(RecordingTool):
        name = "slow"
        def close(self, window):
            {when_written}
            time.sleep(0.3)
            return super().close(window)

    accelprof.register(type("P", (), {{"accelprof_tools": accelprof.hookimpl(lambda self: [Slow])}})())
    s = accelprof.configure(steps=[1], tool="slow", output_dir="o", run="r", group="G", rank=0)
    {before}
    with s.step(1):
        pass
    os.write(1, b"went on\\n")
"""


@pytest.mark.parametrize(
    ("before", "when_written", "status"),
    [
        ("", "os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("", "os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
        ("", "threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGTERM)).start()", -signal.SIGTERM),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))", "os.kill(os.getpid(), signal.SIGTERM)", 7),
        ("signal.signal(signal.SIGALRM, lambda *_: sys.exit(8))", "signal.setitimer(signal.ITIMER_REAL, 0.1)", 8),
        ("signal.signal(signal.SIGHUP, signal.SIG_DFL)", "os.kill(os.getpid(), signal.SIGHUP)", -signal.SIGHUP),
    ],
)
def test_an_end_that_comes_while_a_window_is_written(tmp_path, before, when_written, status):
    """The window is written, once, and the process ends as it would have: by its signal, its handler, its status."""
    code = textwrap.dedent(END.format(before=before, when_written=when_written))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    assert "went on" not in done.stdout
    files = sorted(path.name.partition(".")[2] for path in tmp_path.glob("o/r/G/*"))
    assert files == ["recording.txt", "trace.json.gz"]
    (journal,) = tmp_path.glob("o/r/.workers/*.jsonl")
    rows = [json.loads(line) for line in journal.read_text().splitlines()]
    assert len([row for row in rows if row["kind"] == "window" and row["closed"]]) == 1


# --- a forked child -----------------------------------------------------------------------------------------------------

FORK = """
    import accelprof, os, sys, threading, time
    from accelprof import Worker, profiling_range
    class Job(Worker):
        @Worker.timer("p")
        def p(self, inside=lambda: None): inside()
    job = Job()
    s = accelprof.configure(steps=[1, 2], discrete={discrete}, output_dir="o", run="f", group="G", rank=0)
    held, go = threading.Event(), threading.Event()
    def hold():
        with s.lock:
            held.set(); go.wait(30)
    def child():
        {child}
    def fork():
        if {locked}:
            threading.Thread(target=hold, daemon=True).start(); held.wait(10)
        pid = os.fork()
        if pid == 0:
            child()
            return
        go.set()
        assert os.waitpid(pid, 0)[1] == 0
        job.p()
    with s.step(1), profiling_range("r"):
        job.p(fork)
    with s.step(2):
        job.p()
    s.close()
"""


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize(
    "child",
    ["sys.exit(0)", "pass", "s.close(); s.begin_step(2); s.end_step(2); sys.exit(0)", "accelprof.reset(); sys.exit(0)"],
)
def test_an_inherited_session_is_inert(tmp_path, child, locked, discrete):
    """Whatever a forked child unwinds or calls, also while a thread of the parent held the lock: files and journal are the parent's."""
    code = textwrap.dedent(FORK.format(child=child, locked=locked, discrete=discrete))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    (journal,) = tmp_path.glob("o/f/.workers/*.jsonl")
    rows = [json.loads(line) for line in journal.read_text().splitlines()]
    closed = [row["reason"] for row in rows if row["kind"] == "window" and row["closed"]]
    assert closed == (["phase ended"] * 2 if discrete else ["step ended"] * 2)
    assert len({row["path"] for row in rows if row["kind"] == "artifact"}) == len(closed)
    assert len([row for row in rows if row["kind"] == "target"]) == 2


def test_a_forked_child_may_have_a_session_of_its_own(tmp_path):
    """``configure`` in the child makes another session, whose windows are its own."""
    code = """
        import accelprof, os, sys
        s = accelprof.configure(steps=[1], output_dir="o", run="f", group="G", rank=0)
        s.begin_step(1)
        pid = os.fork()
        if pid == 0:
            mine = accelprof.configure(steps=[1], run_dir=s.layout.run_dir, group="Child", rank=0)
            with mine.step(1): pass
            mine.close()
            sys.exit(len(mine.windows) - 1)
        assert os.waitpid(pid, 0)[1] == 0
        s.close()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("o/f/G/*.gz"))) == len(list(tmp_path.glob("o/f/Child/*.gz"))) == 1


FORKED_WITH_ALL = """
    import os, threading
    import accelprof

    class W(accelprof.Worker):
        @accelprof.Worker.timer("outer")
        def outer(self, f): return f()

    s = accelprof.configure(
        steps=[1], output_dir="o", run="r", rank=0, recorder={}, on_demand=True, tool=None,
        instrument=[{"target": "json.encoder:JSONEncoder.encode"}],
    )
    w, ends = W(), []

    def child():
        assert accelprof.current_session() is None and s.closed and s.inherited and s.tools == []
        w.outer(lambda: 0)
        for call in (s.end_step, s.wait_for_files, s.close, lambda: s.begin_step(5), lambda: s.close_window("x")):
            call()
        own = accelprof.configure(steps=[1], output_dir="o", run="child", group="Child", rank=0, tool=None)
        with own.step(1): w.outer(lambda: 0)
        assert own.close()["problems"] == [] and len(own.windows) == 1

    def fork():
        pid = os.fork()
        if not pid:
            try: child()
            except BaseException as error:
                print(repr(error), flush=True)
                os._exit(1)
            os._exit(0)
        ends.append(os.waitpid(pid, 0)[1])

    s.begin_step(1)
    thread = threading.Thread(target=w.outer, args=(fork,)); thread.start(); thread.join()
    w.outer(fork)
    held, stop = threading.Event(), threading.Event()
    def hold():
        with s.lock: held.set(); stop.wait(60)
    holder = threading.Thread(target=hold); holder.start(); held.wait()
    fork()
    stop.set(); holder.join()
    s.end_step(1)
    assert s.close()["undelivered"] == [] and s.problems == [] and len(s.windows) == 1
    print(ends)
"""


def test_a_child_inherits_none_of_the_sessions_parts(tmp_path):
    """Forked from another thread inside a window, from inside a phase, or while the lock is held: recorder, watch for requests and
    instruments are the parent's, the child has a session of its own in the run that its environment names, and the run is whole."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKED_WITH_ALL)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.returncode) == ("[0, 0, 0]\n", 0), done.stdout + done.stderr


# --- what hooks get -----------------------------------------------------------------------------------------------------


def test_hooks_get_facts_that_cannot_be_changed():
    """Step and window hooks see plain facts of the moment; what they used to reach through the session still answers, and warns."""
    seen = []
    plugin = SimpleNamespace(
        accelprof_step_begin=accelprof.hookimpl(
            lambda session, step: seen.append(("begin", step, session)), specname="accelprof_step_begin"
        ),
        accelprof_step_end=accelprof.hookimpl(
            lambda session, step: seen.append(("end", step, session)), specname="accelprof_step_end"
        ),
        accelprof_window_opened=accelprof.hookimpl(
            lambda session, window: seen.append(("opened", window.sequence, session)),
            specname="accelprof_window_opened",
        ),
        accelprof_window_closed=accelprof.hookimpl(
            lambda session, window: seen.append(("closed", window.sequence, session)),
            specname="accelprof_window_closed",
        ),
    )
    accelprof.reset()
    with capture(steps=[3]) as run:
        run.session.catalogue.register(plugin, "watching")
        run.session.hooks.heard = {
            f"accelprof_{name}" for name in ("step_begin", "step_end", "window_opened", "window_closed")
        }
        with run.session.step(3):
            Job().outer()
        assert [(what, number) for what, number, _ in seen] == [("opened", 1), ("begin", 3), ("closed", 1), ("end", 3)]
        opened, began, closed, ended = (facts for *_, facts in seen)
        assert (opened.window, began.window, closed.window) == (run.session.windows[0].id, opened.window, None)
        assert began.step == 3
        assert ended.step is None
        assert ended.timings["outer"]["count"] == 1
        assert (began.target.group, began.run_dir, began.accelerator) == ("Group", run.run_dir, "recording")
        with pytest.raises(dataclasses.FrozenInstanceError):
            began.step = 4
        with pytest.warns(DeprecationWarning, match="hooks get facts of the session"):
            assert began.metrics_of_step(3)["outer"]["count"] == 1


def test_a_tool_that_is_interrupted_leaves_nothing_open():
    """What is no ordinary exception is raised once the other tools are closed and the row is written."""

    class Interrupted(RecordingTool):
        name = "interrupted"

        def close(self, window):
            super().close(window)
            raise KeyboardInterrupt

    with capture(tool="interrupted", tools=(Interrupted,), steps=[1]) as run:
        run.session.begin_step(1)
        with pytest.raises(KeyboardInterrupt):
            run.session.end_step(1)
        (row,) = run.session.windows
        assert row.closed is not None
        assert row.errors == ["interrupted: KeyboardInterrupt"]
        assert run.session.window is None
        assert gate.entrance is None
        artifacts = [record["tool"] for record in run.session.journal.records if record["kind"] == "artifact"]
        assert artifacts == ["trace"]
