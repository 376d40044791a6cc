"""A label reaches the report as the user gave it, whatever the tool's own format spoils."""

from __future__ import annotations

import json
import random
import re
from typing import ClassVar

import pytest

import accelprof
from accelprof.analysis.attribution import attribute
from accelprof.analysis.perfetto import PerfettoWriter
from accelprof.analysis.reading import load_any
from accelprof.analysis.summary import summarise
from accelprof.analysis.timeline import merge_files, write_timeline
from accelprof.contracts.backend import BoundRange, Emitter
from accelprof.testing import RecordingBackend, capture
from accelprof.texts import C_TEXT, PLAIN_C_TEXT, bounded, encodable, quoted, unquoted

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
    for spoilt in (re.compile(r'[^\x20-\x7e]|["\\]'), re.compile(r"[#\0]|^\s+|\s+$"), C_TEXT, PLAIN_C_TEXT):
        for _ in range(3000):
            text = "".join(draw.choice(alphabet) for _ in range(draw.randrange(9)))
            sent = quoted(text, spoilt)
            assert not spoilt.search(sent)
            assert unquoted(sent) == encodable(text)
    assert [unquoted(text) for text in ("done 50%%", "%s%%", "100 %%%")] == ["done 50%%", "%s%%", "100 %%%"]  # not ours


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
    merged = str(tmp_path / "merged.json.gz")
    write_timeline(tmp_path / "r", merged)
    shown = {row.name: row.calls for row in attribute(load_any(merged).trace()).phases}
    assert shown == {label: calls * (1 + len(found.files)) for label, calls in wanted.items()}


class Noting(PerfettoWriter):
    """Keeps the names that it draws."""

    names: ClassVar[set[str]] = set()

    def _track(self, place, names, name, cats, cat, first):
        self.names.update(names[code] for code in name.tolist())
        return super()._track(place, names, name, cats, cat, first)


@pytest.mark.parametrize("ending", ["%%", "%41%%", "plain"])
def test_a_merged_timeline_has_labels_as_they_were_given_however_often_it_is_merged(tmp_path, ending):
    """Another tool's are unquoted once, our own never; those of instants too, and in Perfetto's own format."""
    Noting.names.clear()
    label = f'grad "norm" {ending}'
    sent = quoted(label, re.compile('"'))
    path = str(tmp_path / "1.pt.trace.json")
    span = {"cat": "user_annotation", "pid": 1, "tid": 1, "ts": 10, "dur": 5}
    events = [{**span, "ph": "X", "name": sent}, {**span, "ph": "i", "s": "t", "name": sent}]
    (tmp_path / "1.pt.trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    for number in range(3):
        trace = load_any(path).trace()
        assert [span.name for span in trace.spans] == [label], number
        assert [mark.name for mark in trace.marks] == [label]
        merge_files([path], str(tmp_path / f"{number}.pftrace"), Noting)
        assert Noting.names == {label}
        merged = str(tmp_path / f"merged{number}.json")
        merge_files([path], merged)
        path = merged


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
