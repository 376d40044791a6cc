"""Whatever stands in a file, its reader returns a trace or a ReadError, and the figures of a trace can be made."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from accelprof.analysis.attribution import attribute
from accelprof.analysis.reading import load_any
from accelprof.analysis.seconds import device_seconds
from accelprof.analysis.summary import summarise
from accelprof.catalogue import get_registry
from accelprof.errors import ReadError
from accelprof.reading.columns import columns_of
from accelprof.reading.snapshot import read_snapshot

ODD = (
    b"NaN", b"1e400", b"-1e999999", b"null", b"[]", b"[[0]]", b"{}", b'"x"', b"9" * 40, b"-1", b"0.5", b"true", b'"\\ud800"',
    b"\x00", b"\xff\xfe", b"}", b"]", b'"', b"\\", b",,", b'{"ph":"X"}', b"1" * 5000,
)  # fmt: skip


def mangled(data: bytes, rng: random.Random) -> bytes:
    """``data`` with a few bytes, numbers or stretches changed, doubled or gone."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        if not out:
            break
        at = rng.randrange(len(out))
        how = rng.randrange(6)
        if how == 0:
            out[at] = rng.randrange(256)
        elif how == 1:
            del out[at : at + rng.choice((1, 4, 40))]
        elif how == 2:
            out[at:at] = rng.choice(ODD)
        elif how == 3:
            end = at
            while end < len(out) and chr(out[end]) in "0123456789.-":
                end += 1
            out[at : max(end, at + 1)] = rng.choice(ODD)
        elif how == 4:
            del out[at:]
        else:
            out[at:at] = out[at : at + 200]
    return bytes(out)


def a_trace() -> bytes:
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "user_annotation", "name": "update", "pid": 1, "tid": 1, "ts": 10.5, "dur": 100, "args": {}},
        {"ph": "B", "cat": "phase", "name": "p", "pid": 1, "tid": 2, "ts": 11},
        {"ph": "E", "pid": 1, "tid": 2, "ts": 20},
        {"ph": "i", "name": "mark", "pid": 1, "tid": 1, "ts": 15, "s": "t"},
    ]
    for number in range(6):
        where = {"pid": 1, "tid": 1}
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **where, "ts": 12 + number, "dur": 0.5,
             "args": {"correlation": number}},
            {"ph": "X", "cat": "kernel", "name": "nccl" if number == 3 else "gemm", "pid": 0, "tid": 7, "ts": 20 + 3 * number,
             "dur": 2.125, "args": {"device": 0, "stream": 7, "correlation": number}},
        ]  # fmt: skip
    return json.dumps({"baseTimeNanoseconds": 1_795_852_566_000_000_000, "traceEvents": events}).encode()


def an_export(path: Path) -> bytes:
    database = sqlite3.connect(path)
    database.executescript(
        """
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
        INSERT INTO StringIds VALUES (0, 'cudaLaunchKernel'), (1, 'gemm'), (2, 'update');
        CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER,
            domainId INTEGER, category INTEGER, color INTEGER, int64Value INTEGER);
        INSERT INTO NVTX_EVENTS VALUES (0, 1000, 59, NULL, 2, 16777217, 0, NULL, NULL, NULL);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 20, 16777217, 1, 0);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (30, 40, 0, 7, 1, 16777216, 1, 1);
        """
    )
    database.close()
    return path.read_bytes()


def read_and_report(path: Path) -> None:
    try:
        trace = load_any(str(path)).trace()
    except ReadError as error:
        assert str(path) in str(error)
        return
    found = attribute(trace)
    kernels = sum(row.own_kernels for row in found.phases) + found.unattributed + found.unlaunched
    assert kernels == found.kernels
    for second in device_seconds(columns_of(trace), "w"):
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
    if "nsys" not in get_registry().tool_names():
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
