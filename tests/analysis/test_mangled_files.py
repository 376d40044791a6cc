"""Whatever stands in a file, its reader returns a trace or a ReadError, and the figures of a trace can be made."""

from __future__ import annotations

import gzip
import os
import pickle
import random
import re
import sqlite3
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from accelprof.analysis.attribution import attribute
from accelprof.analysis.reading import load_any
from accelprof.analysis.seconds import divisions
from accelprof.analysis.summary import summarise
from accelprof.analysis.timeline import merge_files
from accelprof.catalogue import get_catalogue
from accelprof.errors import ReadError
from accelprof.reading.columns import columns_of, whole_number
from accelprof.reading.lenient import fraction
from accelprof.reading.snapshot import read_snapshot
from tests.fuzz import files as fuzzed
from tests.fuzz.files import a_trace, an_export, mangled

#: format -> ``(name, tool, content)``, of the program behind ``make fuzz``, of which a short part runs here
FORMATS = fuzzed.seeds()


def read_and_report(path: Path) -> None:
    try:
        trace = load_any(str(path)).trace()
    except ReadError as error:
        assert str(path) in str(error)
        assert " failed: " not in str(error), "the reader ended by an error of Python"
        return
    found = attribute(trace)
    kernels = sum(row.own_kernels for row in found.phases) + found.unattributed + found.unlaunched
    assert kernels == found.kernels
    for second in divisions(columns_of(trace), "w")[0]:
        assert sum(second.parts.values()) == second.window_ns
    trace.completeness.lacks()
    assert len(trace.spans) == len(columns_of(trace))


@pytest.mark.parametrize("seed", range(4))
def test_mangled_traces(tmp_path: Path, seed: int) -> None:
    """Plain and compressed traces with anything in them: a trace whose sums hold, or an error with the file's name."""
    rng = random.Random(seed)
    plain = a_trace()
    for turn in range(150):
        data = mangled(plain, rng)
        path = tmp_path / "t.json"
        path.write_bytes(data if turn % 3 else mangled(gzip.compress(data), rng) if turn % 2 else gzip.compress(data))
        read_and_report(path)


def test_mangled_exports(tmp_path: Path) -> None:
    """Databases with flipped bytes, odd values and missing halves."""
    if "nsys" not in get_catalogue().tool_names():
        pytest.skip("no tool nsys: accelprof-cuda is not installed")
    rng = random.Random(7)
    plain = an_export(tmp_path / "plain.sqlite")
    path = tmp_path / "t.sqlite"
    for _ in range(100):
        path.write_bytes(mangled(plain, rng))
        read_and_report(path)
    for table, column in (
        ("NVTX_EVENTS", "start"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "deviceId"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId"),
    ):
        for value in ("'text'", "1e300", "NULL", "x'00ff'", str(2**63 - 1), str(-(2**62))):
            path.write_bytes(plain)
            database = sqlite3.connect(path)
            database.execute(f"UPDATE {table} SET {column} = {value}")
            database.commit()
            database.close()
            read_and_report(path)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04r\x00\x00\x00\x10.", b"\x80\x04Nr\xff\xff\xff\x1f.", b"\x80\x04\x8d\xff\xff\xff\x7f\x00\x00\x00\x00.",
        b"\x80\x05\x96\xff\xff\xff\xff\x00\x00\x00\x00.", b"(" * 100_000, b"]" * 50, b"\x80\xff", b"cos\nsystem\n(S'x'\ntR.",
    ],
)  # fmt: skip
def test_a_pickle_that_asks_for_memory_is_refused(tmp_path: Path, data: bytes) -> None:
    """A few bytes that ask for gigabytes, or for code, are an error with the file's name, and take no memory here."""
    path = tmp_path / "m.memory.pickle"
    path.write_bytes(data)
    with pytest.raises(ReadError, match=r"m\.memory\.pickle"):
        read_snapshot(str(path))


def test_a_large_snapshot_is_read(tmp_path: Path) -> None:
    """The limit leaves room for what a snapshot of this size really holds."""
    event = {
        "action": "alloc",
        "addr": 1,
        "size": 512,
        "stream": 0,
        "frames": [{"filename": "a.py", "line": 3, "name": "f"}],
    }
    path = tmp_path / "m.memory.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[dict(event, addr=at) for at in range(50_000)]]}))
    assert read_snapshot(str(path)).events == 50_000


def test_entries_of_a_run_that_are_no_files(run_maker: Any) -> None:
    """A FIFO, a link to itself and a directory in place of files are named, keep nobody waiting, and the others count."""
    key = run_maker.target(0)
    run_maker.timeline(key, [], steps=(2,))
    target = run_maker.manifest["targets"][0]
    run_maker.directory.mkdir(parents=True, exist_ok=True)
    os.mkfifo(run_maker.directory / "fifo.json")
    os.symlink("loop.json", run_maker.directory / "loop.json")
    (run_maker.directory / "dir.json").mkdir()
    os.mkfifo(run_maker.directory / "f.memory.pickle")
    for name in ("fifo.json", "loop.json", "dir.json", "f.memory.pickle"):
        run_maker.artifact(name, "torch", target)
    summary = summarise(run_maker.write())
    for name in ("fifo.json", "loop.json", "dir.json", "f.memory.pickle"):
        assert any(name in line for line in summary.problems + summary.undelivered), name
    assert len(summary.timelines) == 1


def test_reading_a_snapshot_loads_nothing_of_ours(tmp_path: Path) -> None:
    """The process that unpickles has the standard library only."""
    from accelprof.reading import snapshot_child

    code = f"import runpy, sys; runpy.run_path({snapshot_child.__file__!r}); assert not [m for m in sys.modules if 'accelprof' in m]"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=60)


def test_files_of_every_format_mangled(tmp_path: Path) -> None:
    """Each is read, with sums that hold, or refused with its name, in time; ``make fuzz`` tries thousands."""
    whole = {
        "torch",
        "timeline",
        "nsys",
        "unitrace",
        "rocprofv3 json",
        "rocprofv3 db",
        "rocprofv3 csv",
        "ascend db",
        "ascend view",
    }
    if not whole <= set(FORMATS):
        pytest.skip(f"not installed: readers of {', '.join(sorted(whole - set(FORMATS)))}")
    outcomes = {fuzzed.trial(tmp_path, seed, number) for seed in FORMATS.values() for number in range(1, 21)}
    assert outcomes <= {"read", "refused"}, outcomes
    assert "read" in outcomes


#: what ``make fuzz`` found: format and number of a file whose reader ended with an error of Python
FOUND = [
    ("rocprofv3 json", 1), ("rocprofv3 json", 23), ("rocprofv3 json", 5106), ("rocprofv3 db", 5160), ("perfetto", 2), ("perfetto", 42),
    ("ascend db", 8), ("ascend db", 59), ("ascend db", 66), ("ascend db", 96), ("ascend db", 102), ("ascend operators", 8),
    ("ascend memory", 5155), ("ascend view", 1020), ("unitrace", 1250), ("ascend view", 282), ("torch", 397), ("unitrace", 795), ("ascend operators", 195),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "number"), FOUND)
def test_what_was_found_stays_mended(tmp_path: Path, kind: str, number: int) -> None:
    """One odd value is named and the rest of the file counts."""
    if kind not in FORMATS:
        pytest.skip(f"not installed: the reader of {kind}")
    assert fuzzed.trial(tmp_path, FORMATS[kind], number) in ("read", "refused")


@pytest.mark.parametrize("number", [15, 88, 107, 139, 286, 355, 998, *range(1, 9)])
def test_odd_manifests_go_through_every_command(tmp_path: Path, number: int) -> None:
    """Report, page, tables, timeline and comparison: each comes of it or is refused by name."""
    assert fuzzed.manifest_trial(tmp_path, number) in ("read", "refused")


@pytest.mark.parametrize("text", ["\u00b2", "9" * 5000, "1_000", "--1", "", " 3"])
def test_digits_that_are_no_number_stay_text(text: str) -> None:
    """Places of files are numbers where they are written as such, and text otherwise."""
    assert whole_number(text) == text
    assert whole_number("-17") == -17


def test_a_merged_file_is_packed_when_its_own_name_says_so(tmp_path: Path) -> None:
    """Not because of a ``.gz`` in the middle of it."""
    path = tmp_path / "t.json"
    path.write_bytes(a_trace())
    for name, packed in (("all.json.gz", True), ("t.json.gz.all.json", False)):
        merged = merge_files([str(path)], str(tmp_path / name))
        assert Path(merged.path).read_bytes().startswith(b"\x1f\x8b") is packed


@pytest.mark.parametrize("kind", [kind for kind, seed in FORMATS.items() if not seed[2].startswith(b"SQLite")])
@pytest.mark.parametrize(
    "number",
    [b"1e99999999999999999999", b"-1e-99999999999999999999", b"9" * 5000],
    ids=["endless", "nothing", "digits"],
)
def test_a_number_beyond_all_exponents(tmp_path: Path, kind: str, number: bytes) -> None:
    """Put in the place of any number of a file, whole or damaged behind it, it ends no reader by an error of Python."""
    name, tool, data = FORMATS[kind]
    places = [found.span() for found in re.finditer(rb"(?<![\w.])-?\d[\d.]*", data)]
    path = tmp_path / name
    for begin, end in places[:: max(1, len(places) // 12)]:
        for tail in (data[end:], data[end : end + 400] + b",,}"):
            path.write_bytes(data[:begin] + number + tail)
            assert fuzzed._read(path, tool, whole=False) in ("read", "refused")


@pytest.mark.parametrize("kind", [kind for kind, seed in FORMATS.items() if seed[2].startswith((b"{", b"["))])
@pytest.mark.parametrize("other", [b"{}", b"[[0]]", b"null", b"true", b"-1", b"1.5", b'""', b'"x"'])
def test_a_value_of_another_kind(tmp_path: Path, kind: str, other: bytes) -> None:
    """A list, a mapping or nothing where a number or a text stands, in any place of a file, ends no reader by an error of Python."""
    name, tool, data = FORMATS[kind]
    path = tmp_path / name
    places = [found.span(1) for found in re.finditer(rb'": ("[^"]*"|-?[\d.]+)', data)]
    assert places
    for begin, end in places[:40]:
        path.write_bytes(data[:begin] + other + data[end:])
        assert fuzzed._read(path, tool, whole=False) in ("read", "refused")


def test_an_exponent_that_decimal_does_not_have() -> None:
    """Infinity or zero, as every reader of JSON says; all others are exact."""
    words = ("1e99999999999999999999", "-1.5e99999999999999999999", "1e-99999999999999999999", "1.25", "1e400")
    found = [fraction(word) for word in words]
    assert found == [float("inf"), float("-inf"), 0.0, Decimal("1.25"), Decimal("1e400")]


@pytest.mark.parametrize("name", ["nsys", "rocprofv3 db", "ascend db"])
def test_a_databases_names_may_be_no_text(name: str, tmp_path: Path) -> None:
    """Each word in what a database says of its tables, with a byte that no text has: the file is read or refused by name."""
    if name not in FORMATS:
        pytest.skip(f"the plug-in that reads {name} is not installed")
    file, _, data = FORMATS[name]
    (tmp_path / file).write_bytes(data)
    database = sqlite3.connect(tmp_path / file)
    said = [sql.encode() for (sql,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
    database.close()
    for word in sorted({word for sql in said for word in re.findall(rb"\w{2,}", sql)}):
        (tmp_path / file).write_bytes(data.replace(word, word[:-1] + b"\x82"))
        read_and_report(tmp_path / file)
