"""A label reaches the report as the user gave it, whatever the tool's own format spoils."""

from __future__ import annotations

import random
import re

import pytest

import accelprof
from accelprof.analysis.summary import summarise
from accelprof.contracts.backend import BoundRange, Emitter
from accelprof.testing import RecordingBackend, capture
from accelprof.texts import bounded, encodable, quoted, unquoted

LABELS = [
    "train/opt#1", "#", "a#", "##x#", "\uff03", "a\uff03b#c", "a%23b", "a%23b%%", "a%b#c", "%%", "x:y", "a$b", "k=v,w=x", "[b](c){d}",
    "q\"uo'te\\", "tab\tin", "new\nline", "cr\rx", "ünï☃ 😀", " lead", "trail ", "a//b", "..", "%s %d {0}", "nan", "step 3",
    "a\x00b", "half\ud800", "x" * 300, "y" * 5000, "\x1b[31mred", "<b>&amp;", "a|b;c", "accelprof", "Thunk:#x=1#", "a#k=v#",
    "$main.py:3 f", "void f<int>(float*)",
]  # fmt: skip


def test_what_is_quoted_comes_back():
    """Any text, whatever is spoilt: nothing of that is left in it, and texts that differ stay apart."""
    draw = random.Random(7)
    alphabet = 'ab%#\\"\n\0 é☃😀2FE3\ud800'
    for spoilt in (re.compile(r'[^\x20-\x7e]|["\\]'), re.compile(r"[#\0]|^\s+|\s+$")):
        for _ in range(3000):
            text = "".join(draw.choice(alphabet) for _ in range(draw.randrange(9)))
            sent = quoted(text, spoilt)
            assert not spoilt.search(sent)
            assert unquoted(sent) == encodable(text)


@pytest.mark.parametrize(
    "tool", ["trace", pytest.param("torch", marks=pytest.mark.torch), pytest.param("jax", marks=pytest.mark.jax)]
)
def test_labels_of_the_report_are_those_that_were_given(tmp_path, tool):
    """Phases and ranges, in the timeline and in the tool's own file: each label as often as it was called, and no other."""
    if tool != "trace":
        pytest.importorskip(tool, reason=f"{tool} is not installed")
        pytest.importorskip("accelprof_xla" if tool == "jax" else tool, reason="accelprof-xla is not installed")
    session = accelprof.configure(
        group="A",
        rank=0,
        output_dir=str(tmp_path),
        run="r",
        tool=tool,
        steps=[2],
        accelerator="xla" if tool == "jax" else "cpu",
    )
    timed = [accelprof.timer(label)(int) for label in LABELS]
    for step in (1, 2):
        with session.step(step):
            for call in timed:
                call(), call()
            for label in LABELS:
                with accelprof.profiling_range("r " + label):
                    pass
    session.close()
    accelprof.reset()
    found = summarise(tmp_path / "r")
    wanted = {**{bounded(label): 2 for label in LABELS}, **{bounded("r " + label): 1 for label in LABELS}}
    phases = {row["phase"]: row["calls"] for row in found.to_json()["phases"]}
    assert {label: phases.get(label) for label in map(bounded, LABELS)} == {
        label: wanted[label] for label in map(bounded, LABELS)
    }
    for file in found.files:
        assert {row.name: row.calls for row in file.attribution.phases} == wanted
    assert [line for line in found.notices if "calls are in the file" in line] == []
    assert found.problems == []


class Refuses(Emitter):
    """Cannot begin a range."""

    overlapping_ranges = True

    def bind(self, spec):
        def push():
            raise OSError("no")

        return BoundRange(push, lambda: None, push, lambda handle: None)


def test_time_of_a_range_that_could_not_begin_is_its_own(tmp_path, monkeypatch):
    """A vendor's call that raises costs the tool's range, not the timeline's name: no other phase gets its time."""
    monkeypatch.setattr(RecordingBackend, "bind", Refuses().bind, raising=False)
    with capture(steps=[1], directory=str(tmp_path)) as run:
        first, second = accelprof.timer("first")(int), accelprof.timer("second")(int)
        with run.session.step(1):
            first(), second(), second()
            with accelprof.profiling_range("third"):
                pass
        run.session.close()
    found = summarise(run.session.layout.run_dir)
    calls = {row["phase"]: row["calls"] for row in found.to_json()["phases"]}
    assert calls == {"first": 1, "second": 2, "third": 1}
