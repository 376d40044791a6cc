"""What a plug-in answers is looked at where it is first used: a wrong answer is named, and training goes on."""

from __future__ import annotations

import asyncio

import pytest

import accelprof
from accelprof.catalogue import make_catalogue
from accelprof.contracts.answers import probe_of
from accelprof.contracts.backend import Backend, BoundRange, Probe
from accelprof.contracts.hookspecs import hookimpl
from accelprof.contracts.targets import Assignment, Target
from accelprof.contracts.tool import Tool, ToolUse
from accelprof.errors import PluginError, UnavailableError
from accelprof.launch.compose import compose
from accelprof.testing import RecordingBackend, RecordingTool, capture


def nothing(*_):
    return None


class Work(accelprof.Worker):
    @accelprof.Worker.timer("plain")
    def plain(self):
        return 7

    @accelprof.Worker.timer("other")
    def other(self):
        return self.plain()

    @accelprof.Worker.timer("suspended")
    async def suspended(self):
        await asyncio.sleep(0)
        return 8


BOUND = {
    "a tuple": lambda self, spec: (nothing, nothing, nothing, nothing),
    "nothing": lambda self, spec: None,
    "a text": lambda self, spec: "push",
    "no callable": lambda self, spec: BoundRange(nothing, nothing, None, nothing),
    "too late": lambda self, spec: self.late(spec),
    "an error": lambda self, spec: {}["nobody"],
}


def late(self, spec):
    return 5 if spec.label == "plain" else BoundRange(nothing, nothing, nothing, nothing)


@pytest.mark.parametrize("kind", BOUND)
def test_bind_that_answers_wrongly_disables_the_backend(kind):
    """Four plain callables, nothing, a text, a range with a hole, an error, in plain and suspended code: named once, no call is lost."""
    wrong = type("Wrong", (RecordingBackend,), {"name": "wrong", "bind": BOUND[kind], "late": late})
    with capture(backend=wrong, steps=[1, 2]) as run:
        worker = Work()
        for step in (1, 2):
            with run.session.step(step), accelprof.profiling_range("block"):
                assert worker.other() == 7
                assert asyncio.run(worker.suspended()) == 8
        assert worker.timing_stats()["plain"]["count"] == 2
        said = [text for text in run.session.close()["problems"] if "bind()" in text]
    assert len(said) == 1
    assert "bind() of backend wrong" in said[0]
    assert ("KeyError: 'nobody'" if kind == "an error" else "expected") in said[0]


@pytest.mark.parametrize("answer", [None, 3, BoundRange(nothing, nothing, nothing, nothing)])
def test_an_emitter_that_is_none_is_named(answer):
    """A tool whose ``emitter`` answers no Emitter gets no ranges; it still records, and its name is said."""

    class Odd(RecordingTool):
        name = "odd"

        def emitter(self, backend):
            return answer

    with capture(tool="odd", tools=(Odd,), steps=[1]) as run:
        with run.session.step(1):
            assert Work().plain() == 7
        report = run.session.close()
    assert [text for text in report["problems"] if "emitter() of tool odd" in text]
    assert [row for row in report["journal"] if row["kind"] == "artifact" and row["tool"] == "odd"]


PROBES = {
    "nothing": lambda self: None,
    "a truth value": lambda self: True,
    "a priority that is a text": lambda self: Probe("high", "here"),
    "a priority that is a truth value": lambda self: Probe(True, "here"),
    "a reason that is none": lambda self: Probe(100, None),
    "facts that are a text": lambda self: Probe(100, "here", "facts"),
    "raises": lambda self: 1 / 0,
}


@pytest.mark.parametrize("kind", PROBES)
def test_a_probe_that_answers_wrongly_is_unavailable(kind, monkeypatch):
    """Whatever a probe answers, detection goes on without it, and asking for it by name gives the reason."""
    monkeypatch.delenv("ACCELPROF_ACCELERATOR", raising=False)
    wrong = type("Wrong", (Backend,), {"name": "wrong", "probe": PROBES[kind]})

    class Brings:
        @hookimpl
        def accelprof_backends(self):
            return [wrong]

    catalogue = make_catalogue(entry_points=False)
    catalogue.register(Brings(), "brings")
    assert catalogue.detect().backend.name == "cpu"
    with pytest.raises(UnavailableError, match="'wrong'.*unavailable: "):
        catalogue.detect("wrong")
    tool = type("WrongTool", (Tool,), {"name": "wrong", "probe": PROBES[kind]})
    assert not probe_of(tool()).available


def test_a_launch_that_is_none_is_refused_on_the_driver():
    """A tool whose ``launch`` answers no Launch is named before anything starts."""

    class Odd(Tool):
        name = "odd"

        def launch(self, assignment, directory):
            return ["nsys", "profile"]

    row = Assignment(Target("G", rank=0), True, "odd")
    with pytest.raises(PluginError, match=r"launch\(\) of tool odd returned a list"):
        compose(make_catalogue(entry_points=False), [ToolUse("odd", {}, Odd())], row, "/out")
