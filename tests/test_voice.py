"""What is said once, and what is raised later; who has a voice of its own."""

from __future__ import annotations

import logging
import os

import pytest

import accelprof
from accelprof.compat.process import ProcessSession
from accelprof.errors import CaptureError, UserError
from accelprof.integrations.loop import Loop
from accelprof.timing.labels import KEPT, bounded
from accelprof.voice import Voice


def test_a_voice_says_once_and_raises_the_first():
    """One message a subject, kept in order and written down; of several failures the first is raised, once."""
    written = []
    voice = Voice("G/rank0", True, lambda message, code: written.append((message, code)))
    assert voice.say("a", code="x")
    assert not voice.say("a")
    assert voice.say("b", about="subject")
    assert not voice.say("c", about="subject")
    for error in (OSError(28, "full: one"), OSError(28, "full: two"), ValueError("other")):
        voice.trouble("writing", error)
    assert voice.problems == [
        "a",
        "b",
        "writing failed: OSError: [Errno 28] full: one",
        "writing failed: ValueError: other",
    ]
    assert [message for message, _ in written] == voice.problems
    assert written[0] == ("a", "x")
    with pytest.raises(accelprof.errors.CaptureError, match=r"G/rank0: writing failed: OSError.*one"):
        voice.raise_deferred()
    voice.raise_deferred()


def test_the_label_is_whose_voice_it_is(caplog):
    """A line begins with whose it is; what a run says has no more than our name, in the log and in what is raised."""
    with caplog.at_level(logging.WARNING, "accelprof"):
        Voice("G/rank0").say("one")
        Voice().say("two")
    assert [record.getMessage() for record in caplog.records] == ["accelprof G/rank0: one", "accelprof: two"]
    run = Voice(raising=True)
    run.defer("G/rank0: lost")
    with pytest.raises(CaptureError, match=r"^G/rank0: lost$"):
        run.raise_deferred()


def test_a_voice_that_forgets_says_again():
    """After ``forget`` everything may be said anew; what was said stays among the problems."""
    voice = Voice()
    assert [voice.say("a"), voice.say("a")] == [True, False]
    voice.forget()
    assert voice.say("a")
    assert voice.problems == ["a", "a"]


def test_a_framework_hears_once_why_nothing_is_profiled(caplog):
    """However often a framework starts its profiler, why there is no session is said once, with the process, and nothing is raised."""

    def refuses():
        raise UserError("no such thing")

    process = ProcessSession()
    with caplog.at_level(logging.WARNING, "accelprof"):
        assert not process.start("one", 1, refuses)
        assert not process.start("two", 2, refuses)
    assert [record.getMessage() for record in caplog.records] == [
        f"accelprof: nothing is profiled in process {os.getpid()}: no such thing"
    ]


def test_a_loop_goes_on_when_a_step_cannot_begin(caplog, tmp_path):
    """An integration's loop says what failed of a step and trains on."""
    loop = Loop({"output_dir": str(tmp_path), "steps": []}, "trainer", {})
    loop.begin()
    with caplog.at_level(logging.WARNING, "accelprof"):
        loop.step("one")
        loop.step(2)
        loop.step("one")
        loop.step(3)
        assert accelprof.current_session().step_now == 3
        loop.end()
        accelprof.reset()
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("accelprof: beginning a step failed: TypeError: begin_step: step numbers are whole numbers")


def test_too_many_labels_are_said_by_the_session(tmp_path):
    """Labels without bound are said in the session's voice, so that they stand in its manifest too."""
    session = accelprof.configure(output_dir=str(tmp_path), steps=[1])
    for number in range(KEPT + 2):
        bounded(f"request {number}")
    (said,) = [text for text in session.problems if "different labels" in text]
    assert "request" in said
    accelprof.reset()
