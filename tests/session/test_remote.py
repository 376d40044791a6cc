"""What a controller asks of a worker by name: every command has somebody who asks, and no answer raises into the worker's work."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import accelprof
from accelprof.session import remote

PACKAGE = Path(accelprof.__file__).parent
ASKING = (*sorted((PACKAGE / "cluster").glob("*.py")), PACKAGE / "timing" / "worker.py")


@pytest.mark.parametrize("command", sorted(remote.COMMANDS))
def test_somebody_asks_for_every_command(command):
    """A command that neither the controller's side nor a worker's own methods name is dead."""
    texts = {
        node.value
        for path in ASKING
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert command in texts


def test_an_unknown_command_is_answered_with_those_that_are_known():
    """A newer controller's command is refused by name, as data."""
    answer = remote.serve("open_window")
    assert answer["ok"] is False
    assert "unknown command 'open_window'" in answer["error"]
    assert "begin_step" in answer["error"]


def test_what_a_command_raises_is_data():
    """A step that is no number is refused in words; the worker's own call goes on."""
    accelprof.configure(steps=[])
    try:
        answer = remote.serve("begin_step", "one")
        assert answer["ok"] is False
        assert answer["error"].startswith("TypeError: begin_step: step numbers are whole numbers")
    finally:
        accelprof.reset()


def test_timings_are_taken_once():
    """What was taken is not taken again; the next answer has what came since."""

    @accelprof.timer("remote/taken")
    def work():
        return None

    work()
    first = remote.serve("take_timings")["value"]
    work()
    work()
    second = remote.serve("take_timings")["value"]
    third = remote.serve("take_timings")["value"]
    assert [rows.get("remote/taken", {}).get("count") for rows in (first, second, third)] == [1, 2, None]


def test_a_process_without_a_session_answers_so():
    """An actor that was restarted has no session: a step is not taken, its end tells nothing, closing is harmless."""
    accelprof.reset()
    assert remote.serve("begin_step", 1) == {"ok": True, "value": False}
    assert remote.serve("end_step", 1) == {"ok": True, "value": None}
    assert remote.serve("close") == {"ok": True, "value": None}


def test_a_plain_end_ends_the_step_that_runs():
    """A worker that went on to a step by itself: the controller's end, which has no number then, ends it; the timings are of the
    step that the controller announced, from which on it counts."""

    @accelprof.timer("remote/stepped")
    def work():
        return None

    session = accelprof.configure(steps=[])
    try:
        assert remote.serve("begin_step", 1)["value"] is True
        work()
        session.begin_step(2)
        work()
        work()
        timings = remote.serve("end_step")["value"]
        assert session.step_now is None
        assert timings["remote/stepped"]["count"] == 1
        assert remote.serve("next_step")["value"] is True
        assert session.step_now == 2
    finally:
        accelprof.reset()


def test_what_a_controller_announced_goes_with_the_session():
    """After a reset nobody announced a step: there is none to count on from."""
    accelprof.configure(steps=[])
    try:
        assert remote.serve("begin_step", 2)["value"] is True
        accelprof.reset()
        session = accelprof.configure(steps=[])
        assert remote.serve("next_step")["value"] is False
        assert session.step_now is None
    finally:
        accelprof.reset()


def test_timings_of_a_session_that_is_gone_hide_none_of_the_next():
    """A tag that was taken, forgotten and comes again counts from nothing."""

    def work():
        accelprof.timer("remote/again")(lambda: None)()

    for _ in range(3):
        work()
    assert remote.serve("take_timings")["value"]["remote/again"]["count"] == 3
    accelprof.reset()
    assert "remote/again" not in remote.serve("take_timings")["value"]
    work()
    assert remote.serve("take_timings")["value"]["remote/again"]["count"] == 1
    accelprof.reset()
