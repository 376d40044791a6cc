"""Text that no file can have, and text without end: one rule wherever it leaves, in files of plug-ins, Chrome traces and our own."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

import accelprof
from accelprof import texts
from accelprof.analysis.files import summarise_files
from accelprof.analysis.reading import read_any
from accelprof.analysis.timeline import merge_files
from accelprof.contracts.spans import Kind, Mark, Span, Trace
from accelprof.testing import RecordingTool, capture

HALF = "a\ud800b"
LONG = "n" * 5_000_000


@pytest.mark.parametrize(
    "value",
    [
        "\ud800",
        "\udfff x",
        "\ud83d\ude00",
        "ü€😀",
        "\\ud800",
        "\\\ud800",
        "\\\\\udc00\\",
        "\ud800\ud800\udc00",
        '"\ud800"',
        {"\ud800": ["\udc01"]},
    ],
)
def test_dumps_is_strict_json(value: Any) -> None:
    """A strict reader takes it; what had no half of a pair comes back as it was."""
    text = texts.dumps(value)
    found = msgspec.json.decode(text)
    assert text.isascii()
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    assert found == value


def test_bounded_names_stay_two() -> None:
    """Names that differ where they are cut are still two, and short ones are left alone."""
    first, second = texts.bounded(LONG), texts.bounded(LONG[:2_000_000] + "x" + LONG[2_000_001:])
    assert first != second
    assert len(first) < texts.LONGEST
    assert "5,000,000 characters" in first
    assert texts.bounded("päth") == "päth"
    assert texts.encodable(HALF) == "a\\ud800b"


class Odd(RecordingTool):
    """Its files hold what a test says."""

    name = "odd"
    text = ""

    @classmethod
    def can_read(cls, path: str) -> bool:
        return path.endswith(".odd")

    def read(self, path: str) -> Trace:
        text = self.text
        trace = Trace(
            path,
            self.name,
            problems=[f"odd: {text[:50]}"],
            metadata={"process_names": {1: text}, "thread_names": {1: {2: text}}},
        )
        args: dict[str, Any] = {text[:9]: [text[:9], {text[:9]: text[:9]}]}
        trace.spans.extend(
            [
                Span(text, Kind.PHASE, 1000, 9000, 1, 2, text, text, text, text, args=args),
                Span(text, Kind.KERNEL, 2000, 3000, 1, 2, device=text, stream=text, args=args),
                Span(text, Kind.RANGE, 2000, 3000, text, text, args=args),
            ]
        )
        trace.marks.append(Mark(text, 2500, text, text, text, text, text, args))
        return trace


@pytest.mark.parametrize("text", [HALF, LONG], ids=["half", "long"])
@pytest.mark.parametrize("end", [".json", ".json.gz", ".pftrace"])
def test_a_plugins_reader(text: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its names are in the table, the timeline and Perfetto's packets, as a file can have them, within seconds."""
    from accelprof.analysis.perfetto import PerfettoWriter

    monkeypatch.setattr(Odd, "text", text)
    path = tmp_path / "x.odd"
    path.write_text("x")
    out = tmp_path / f"merged{end}"
    began = time.process_time()
    with capture(tool="odd", tools=(Odd,)):
        trace = read_any(path)
        merged = merge_files([str(path)], str(out), writer=PerfettoWriter if end == ".pftrace" else None)
        found = summarise_files([str(path)])
    assert time.process_time() - began < 20
    assert (merged.read, merged.left_out) == (4, 0)
    assert {span.name for span in trace.spans} == {texts.bounded(text)}
    assert any("more than 10,000 characters" in line for line in trace.problems) == (text is LONG)
    assert "\ud800" not in repr(found)
    if end != ".pftrace":
        data = gzip.decompress(out.read_bytes()) if end.endswith("gz") else out.read_bytes()
        msgspec.json.decode(data)
        assert len(data) < 1_000_000


def test_our_own_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A label, a group and a run with half a pair leave a timeline, journal, manifest and log that strict readers take."""
    with capture(steps=[1], tool=None, directory=str(tmp_path), identity={"group": "G"}) as run:
        with run.session.step(1), accelprof.profiling_range(HALF, domain="\udc00", category="\udfff"):
            accelprof.mark(HALF)
        run.session.say(f"about {HALF}")
        manifest = run.session.close()
        place = Path(run.run_dir)
    assert manifest["problems"]
    assert "about a\\ud800b" in caplog.text.encode().decode()
    read = 0
    for path in place.rglob("*"):
        if path.name.endswith(".jsonl"):
            for line in path.read_bytes().splitlines():
                msgspec.json.decode(line)
            read += 1
        elif ".json" in path.name:
            data = path.read_bytes()
            msgspec.json.decode(gzip.decompress(data) if path.suffix == ".gz" else data)
            read += 1
    assert read >= 3
    (trace,) = place.glob("G/*.trace.json.gz")
    held = read_any(trace)
    assert "a\\ud800b" in {span.name for span in held.spans}
    assert not held.problems


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux takes any bytes as a name")
def test_commands_on_a_path_that_is_no_text(tmp_path: Path) -> None:
    """A file whose name is no UTF-8 is reported, merged and refused without an error of Python."""
    name = os.fsencode(tmp_path) + b"/\xff\xfe.json"
    with open(name, "w") as file:
        json.dump(
            {"traceEvents": [{"ph": "X", "name": "k", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}, file
        )
    absent = os.fsencode(tmp_path) + b"/\xff.absent"
    program = [os.fsencode(sys.executable), b"-m", b"accelprof"]
    out = os.fsencode(tmp_path / "o.json")
    for arguments, status in (
        ([b"report", name], 0), ([b"report", b"--json", name], 0), ([b"report", b"--html", os.fsencode(tmp_path / "o.html"), name], 0),
        ([b"report", b"--csv", os.fsencode(tmp_path / "csv"), name], 0),
        ([b"timeline", name, b"-o", out], 0), ([b"timeline", b"--json", name, b"-o", out], 0), ([b"report", absent], 2), ([b"timeline", absent, b"-o", out], 2),
    ):  # fmt: skip
        for encoding in ("utf-8", "ascii"):
            env = {**os.environ, "PYTHONIOENCODING": f"{encoding}:strict", "PYTHONUTF8": "1"}
            done = subprocess.run([*program, *arguments], capture_output=True, env=env, timeout=120)
            assert done.returncode == status, (arguments, encoding, done.stderr.decode("utf-8", "replace"))
            assert b"internal error" not in done.stderr + done.stdout
            assert b"Traceback" not in done.stderr
