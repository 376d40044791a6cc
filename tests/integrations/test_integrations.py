"""Runs the trainings of other frameworks' loops, under the interpreter that has them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import accelprof
from accelprof.integrations.loop import INNER, Loop
from accelprof.session.configure import current_session

pytestmark = pytest.mark.frameworks
ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-frameworks/bin/python"


def run(name, *modules):
    # found and not imported: that takes as long as a test, and the tests do it
    find = f"import importlib.util as u; raise SystemExit(not all(map(u.find_spec, {modules})))"
    if not PYTHON.exists() or subprocess.run([PYTHON, "-c", find], check=False).returncode:
        pytest.skip(f"{' and '.join(modules)} are not installed beside verl and rlinf; .ci/install-frameworks does it")
    done = subprocess.run(
        [PYTHON, "-m", "pytest", "-q", "-W", "ignore", "-o", "timeout=280", "-p", "no:cacheprovider", name],
        cwd=Path(__file__).parent,
        env={key: value for key, value in os.environ.items() if key != "ACCELPROF_CI_NO_SKIP"},
        capture_output=True,
        text=True,
        timeout=340,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


class Owner:
    """What a loop wraps."""

    def work(self):
        return 1


@pytest.mark.torch
@pytest.mark.timeout(400)
def test_trainers():
    """Transformers, TRL's GRPO and Lightning, each trained for a few steps on the CPU."""
    assert "36 passed" in run("with_trainers.py", "transformers", "trl", "lightning")


@pytest.mark.ray
@pytest.mark.torch
@pytest.mark.timeout(400)
def test_ray_train():
    """Two workers of Ray Train, trained together, and one of them failing; as many steps as batches."""
    assert "5 passed" in run("with_ray_train.py", "ray", "torch")


def test_what_a_session_that_is_there_leaves_unused_is_said(caplog, tmp_path):
    """A second callback, or one beside a session of the user's, says which of its words are not used; the session stays as it is."""
    first = Loop(None, "Trainer", {"steps": [1], "output_dir": str(tmp_path)})
    second = Loop(None, "Trainer", {"steps": [2], "tool": None, "rank": 3})
    silent = Loop(None, "Trainer", {})
    try:
        for loop in (first, second, silent, first):
            loop.begin(rank=0, world_size=1)
        assert list(current_session().assignment.steps) == [1]
        said = [record.getMessage() for record in caplog.records if "not used" in record.getMessage()]
        assert len(said) == 1
        assert said[0].endswith("not used: steps, tool")
        for loop in (second, silent):
            loop.end()
        assert not current_session().closed
        first.end()
        assert current_session() is None
    finally:
        accelprof.reset()


def test_an_objects_own_method_is_a_phase_and_given_back():
    """A method that the user put on the object is a phase like the class's, and stands there again however often a training ran."""

    owner = Owner()

    def mine():
        return 2

    owner.work = mine
    called = []
    for number in (1, 2, 3):
        loop = Loop(None, "Trainer", {"rank": 0})
        loop.begin()
        loop.wrap(owner, {"work": "train/step"})
        loop.before(owner, "work", lambda: called.append(1))
        assert owner.work is not mine
        assert (owner.work(), len(called)) == (2, number)
        loop.end()
        assert vars(owner)["work"] is mine
    accelprof.reset()


def test_two_loops_on_one_object():
    """A second loop on an object that has one already adds nothing; afterwards the object is as before, whichever ends first."""

    for order in (1, -1):
        owner, called = Owner(), []
        loops = [Loop(None, "Trainer", {}), Loop(None, "Trainer", {})]
        for loop in loops:
            loop.begin()
            loop.wrap(owner, {"work": "train/step"})
            loop.before(owner, "work", lambda: called.append(1))
        owner.work()
        assert len(called) == 1
        for loop in loops[::order]:
            loop.end()
        assert vars(owner) == {}
    accelprof.reset()


class Training:
    """One that calls its parts, and catches what an inner one raises."""

    def epoch(self):
        for error in (ValueError, KeyboardInterrupt):
            try:
                self.part(error)
            except ValueError:
                pass

    def part(self, error):
        raise error


def test_an_exception_that_leaves_the_training_ends_it():
    """One that is caught inside does not, any that leaves the outermost call does; the object is its own again, each time anew."""

    training = Training()
    loop = Loop(None, "Trainer", {})
    for _ in range(2):
        loop.begin()
        loop.step(1)
        loop.ends([(training, "epoch"), (training, "part"), (training, "absent")])
        session, seen = current_session(), []
        loop.before(training, "part", lambda seen=seen, session=session: seen.append(session.closed))
        with pytest.raises(KeyboardInterrupt):
            training.epoch()
        assert seen == [False, False]
        assert (session.closed, session.step_now, current_session()) == (True, None, None)
        assert vars(training) == {}
    accelprof.reset()


def test_what_raised_passes_unchanged_whatever_becomes_of_the_end(monkeypatch, caplog):
    """The caller gets its own exception, with nothing chained to it, also where ending the training fails; that is said once."""
    mine = ZeroDivisionError("mine")

    class Training:
        def run(self):
            raise mine

    loop, training = Loop(None, "G", {}), Training()
    loop.begin()
    loop.ends([(training, "run")])
    monkeypatch.setattr(loop, "unwrap", lambda: [][0])
    try:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError) as caught:
                training.run()
            assert caught.value is mine
            assert (mine.__context__, mine.__cause__) == (None, None)
        assert sum("ending a training that raised" in record.getMessage() for record in caplog.records) == 1
    finally:
        monkeypatch.undo()
        loop.end()
        accelprof.reset()


def test_a_training_that_raised_ends_when_the_next_begins():
    """Its session is closed and its object given back; one that runs still keeps both."""

    owner = Owner()
    runs = True
    first, second = Loop(None, "Trainer", {}), Loop(None, "Trainer", {})
    first.begin(lambda: runs)
    first.wrap(owner, {"work": "train/step"})
    session = current_session()
    second.begin()
    assert (current_session(), session.closed) == (session, False)
    second.end()
    runs = False
    second.begin()
    assert session.closed
    assert vars(owner) == {}
    assert current_session() not in (None, session)
    second.end()
    assert current_session() is None
    accelprof.reset()


def test_a_loop_inside_another_counts_nothing():
    """A phase of the outer one's step from begin to end, whoever forgets to say that it is over; the outer one goes on alone."""
    owner, runs = Owner(), True
    outer, inner = Loop(None, "Trainer", {}), Loop(None, "Trainer", {"steps": [1]})
    mine, theirs = type("Training", (), {})(), type("Training", (), {})()
    outer.begin(training=mine)
    session = current_session()
    outer.step(1)
    inner.begin(lambda: runs, theirs)
    inner.wrap(owner, {"work": "train/step"})
    inner.step(7)
    inner.enter("data")
    assert (session.step_now, vars(owner), list(inner._open)) == (1, {}, [INNER])
    outer.step(2)
    assert list(inner._open) == [INNER]
    runs = False
    outer.step(3)
    assert (inner._open, list(session.steps_seen)) == ({}, [1, 2, 3])
    outer.end()
    assert session.closed
    inner.begin(training=theirs)
    inner.step(1)
    assert current_session().step_now == 1
    inner.end()
    accelprof.reset()
