"""Files of every format that a reader knows, with bytes, values, rows and tables changed: each is read or refused by name.

``python tests/fuzz/files.py --count 12000 --seed 1`` (``make fuzz``); a failure prints format and seed, and ``--only FORMAT:SEED
--keep PATH`` makes that file again. :func:`trial` is what the tests in CI run, some times for each format. Of a trace that was
read all figures are made, and the kernels of phases, unattributed and unlaunched ones must be all kernels.
"""

from __future__ import annotations

import argparse
import copy
import functools
import gzip
import importlib.util
import io
import json
import random
import resource
import shutil
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from accelprof.analysis.attribution import attribute
from accelprof.analysis.files import summarise_files
from accelprof.analysis.operators import operators
from accelprof.analysis.reading import load_any
from accelprof.analysis.seconds import divisions
from accelprof.analysis.timeline import merge_files
from accelprof.catalogue import get_catalogue
from accelprof.errors import AccelprofError
from accelprof.reading.columns import columns_of

ROOT = Path(__file__).parents[2]
SECONDS = 10.0
MEMORY = 4 << 30
ODD = (
    b"NaN", b"1e400", b"-1e999999", b"null", b"[]", b"[[0]]", b"{}", b'"x"', b"9" * 40, b"-1", b"0.5", b"true", b'"\\ud800"',
    b"\x00", b"\xff\xfe", b"}", b"]", b'"', b"\\", b",,", b'{"ph":"X"}', b"1" * 5000, b"", b"inf", b"1_000", b"\xd9\xa3", b"\n",
)  # fmt: skip
VALUES = (
    "'text'",
    "1e300",
    "NULL",
    "x'00ff'",
    str(2**63 - 1),
    str(-(2**62)),
    "''",
    "-1",
    "0",
    "'9e999'",
    "'1.5'",
    "'\u0663'",
)


def mangled(data: bytes, rng: random.Random) -> bytes:
    """``data`` with a few bytes, numbers or stretches changed, doubled or gone."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        if not out:
            break
        at = rng.randrange(len(out))
        how = rng.randrange(7)
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
        elif how == 5:
            out[at:at] = out[at : at + 200]
        else:  # a field or a value of another place
            start = rng.randrange(len(out))
            out[at : at + 12] = out[start : start + rng.choice((3, 12, 60))]
    return bytes(out)


def altered(path: Path, rng: random.Random) -> None:
    """A database with values, columns or tables that are not as expected."""
    database = sqlite3.connect(path)
    try:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(rng.choice((1, 1, 2, 4))):
            table = rng.choice(tables)
            columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
            if not columns:
                continue
            column, how = rng.choice(columns), rng.randrange(6)
            if how < 3:
                some = "" if rng.random() < 0.5 else " WHERE rowid % 2 = 0"
                database.execute(f'UPDATE "{table}" SET "{column}" = {rng.choice(VALUES)}{some}')
            elif how == 3:
                database.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{column}x"')
            elif how == 4:
                database.execute(f'DELETE FROM "{table}"')
            else:
                database.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}"')
        database.commit()
    except sqlite3.Error:  # a key is there already, a view stands on the column
        pass
    finally:
        database.close()


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


def module_of(path: str) -> ModuleType:
    """Makers of small files, from where the readers' own tests have them."""
    spec = importlib.util.spec_from_file_location(f"makers_{Path(path).stem}", ROOT / path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _written(make: Callable[[Path], Any]) -> bytes:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "made"
        make(path)
        return path.read_bytes()


def _csv(header: list[str], *rows: list[Any]) -> bytes:
    return "".join(",".join(f'"{value}"' for value in row) + "\n" for row in (header, *rows)).encode()


@functools.cache
def seeds() -> dict[str, tuple[str, str, bytes]]:
    """Format -> ``(file name, tool, a whole file)``, of what is installed and there."""
    made: dict[str, tuple[str, str, bytes]] = {"torch": ("t.pt.trace.json", "torch", a_trace())}
    facts = {"format": 1, "group": "A", "roles": ["a"], "window": "w1", "steps": [2], "dropped": 0}
    events = [
        {"ph": "X", "cat": "window", "name": "window 1", "pid": 7, "tid": 99, "ts": "1795852566000000", "dur": 1000},
        *({"ph": "X", "cat": "phase", "name": f"p{n}", "pid": 7, "tid": 1, "ts": f"1795852566000{n}00.25", "dur": 90.5, "args": {"own_ns": 70, "call": n}} for n in range(6)),
    ]  # fmt: skip
    made["timeline"] = (
        "w.timeline.json",
        "trace",
        json.dumps({"otherData": {"accelprof": facts}, "traceEvents": events}).encode(),
    )
    tools = get_catalogue().tool_names()
    if "nsys" in tools:
        made["nsys"] = ("n.sqlite", "nsys", _written(an_export))
    if "unitrace" in tools:
        made["unitrace"] = (
            "python.41.json",
            "unitrace",
            json.dumps({"traceEvents": module_of("plugins/accelprof-xpu/tests/test_xpu_tools.py").EVENTS}).encode(),
        )
    if "rocprofv3" in tools:
        rocm = module_of("plugins/accelprof-rocm/tests/test_rocm_readers.py")
        made["rocprofv3 json"] = ("41_results.json", "rocprofv3", json.dumps(rocm.sdk_json()).encode())
        made["rocprofv3 db"] = ("41_results.db", "rocprofv3", _written(rocm.rocpd))
        times = (rocm.BOOT + 50, rocm.BOOT + 80)
        kernel = {
            "Kind": "KERNEL_DISPATCH",
            "Agent_Id": "Agent 4",
            "Queue_Id": 3,
            "Stream_Id": 8,
            "Thread_Id": 11,
            "Kernel_Name": "gemm",
            "Correlation_Id": 5,
        }
        row = [
            {**kernel, "Start_Timestamp": times[0], "End_Timestamp": times[1]}.get(name, 0) for name in rocm.KERNEL_70
        ]
        made["rocprofv3 csv"] = ("g-r0-h-41_kernel_trace.csv", "rocprofv3", _csv(rocm.KERNEL_70, row, row))
        call = ["MARKER_CORE_RANGE_API", "actor/update", 41, 11, 0, *times]
        made["rocprofv3 markers"] = ("g-r0-h-41_marker_api_trace.csv", "rocprofv3", _csv(rocm.CALL, call, call))
        try:
            from perfetto.protos.perfetto.trace import perfetto_trace_pb2
        except ImportError:
            pass
        else:
            made["perfetto"] = ("x-perfetto-trace-41.proto", "rocprof_sys", rocm.sys_trace(perfetto_trace_pb2))
    if "npu" in tools:
        ascend = module_of("plugins/accelprof-ascend/tests/test_ascend_readers.py")
        made["ascend db"] = ("ascend_pytorch_profiler_0.db", "npu", _written(ascend.make_database))
        made["ascend memory"] = ("memory_record.csv", "npu", ascend.MEMORY_RECORD.encode())
        made["ascend operators"] = ("operator_memory.csv", "npu", ascend.OPERATOR_MEMORY.encode())
        head = [
            "Name",
            "Type",
            "Accelerator Core",
            "Start Time(us)",
            "Duration(us)",
            "Wait Time(us)",
            "Stream ID",
            "Task ID",
            "Step Id",
        ]
        row = ["MatMul", "MatMul", "AI_CORE", "1704161511420289.011\t", "10.5", "1.0", "2", "7", ""]
        made["ascend kernels"] = ("kernel_details.csv", "npu", _csv(head, row, row))
        view = [
            {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "Python"}},
            {"ph": "M", "name": "process_name", "pid": 2, "args": {"name": "Ascend Hardware"}},
            {"ph": "X", "name": "aten::mm", "pid": 1, "tid": 1, "ts": "1704161511420289.011", "dur": 50.0, "cat": "cpu_op", "args": {}},
            {"ph": "s", "name": "async_npu", "pid": 1, "tid": 1, "ts": "1704161511420290.011", "id": "9", "cat": "async_npu"},
            {"ph": "X", "name": "MatMul", "pid": 2, "tid": 3, "ts": "1704161511420300.011", "dur": 20.5, "args": {"Task Type": "AI_CORE", "connection_id": 9}},
            {"ph": "f", "name": "async_npu", "pid": 2, "tid": 3, "ts": "1704161511420300.011", "id": "9", "cat": "async_npu", "bp": "e"},
        ]  # fmt: skip
        made["ascend view"] = ("trace_view.json", "npu", json.dumps(view).encode())
        made["msprof"] = ("msprof_20260101.json", "msprof", json.dumps(view).encode())
    return made


def a_file(place: Path, seed: tuple[str, str, bytes], number: int) -> Path:
    """One mangled file of a format."""
    name, _, data = seed
    rng = random.Random(number)
    path = place / name
    database = data.startswith(b"SQLite")
    if database and rng.random() < 0.7:
        path.write_bytes(data)
        altered(path, rng)
        return path
    if name.endswith(".json") and rng.random() < 0.2:
        path = place / f"{name}.gz"
        packed = gzip.compress(mangled(data, rng), mtime=0)
        path.write_bytes(mangled(packed, rng) if rng.random() < 0.5 else packed)
        return path
    path.write_bytes(mangled(data, rng))
    return path


def trial(place: Path, seed: tuple[str, str, bytes], number: int) -> str:
    """``read`` or ``refused``; anything else raises ``AssertionError`` with what was wrong."""
    path = a_file(place, seed, number)
    began = time.process_time()
    try:
        outcome = _read(path, seed[1], whole=number % 10 == 0)
    except (AssertionError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise AssertionError(f"{type(error).__name__}: {str(error)[:300]}\n{traceback.format_exc()[-1800:]}") from None
    finally:
        path.unlink(missing_ok=True)
    took = time.process_time() - began
    if took > SECONDS:
        raise AssertionError(f"{took:.1f} s of processor time")
    return outcome


def _read(path: Path, tool: str, *, whole: bool) -> str:
    try:
        trace = load_any(str(path), tool).trace()
    except AccelprofError as error:
        text = str(error)
        assert str(path) in text, f"an error without the file's name: {text[:300]}"
        assert len(text) < 5000, f"a message of {len(text):,} characters"
        assert " failed: " not in text, f"the reader ended by an error of Python: {text[:300]}"
        return "refused"
    found = attribute(trace)
    kernels = sum(row.own_kernels for row in found.phases) + found.unattributed + found.unlaunched
    assert kernels == found.kernels, f"{kernels} of {found.kernels} kernels"
    columns = columns_of(trace)
    for second in divisions(columns, "w")[0]:
        assert sum(second.parts.values()) == second.window_ns, second
    assert all(row.self_ns <= row.total_ns for row in operators(columns))
    assert len(trace.spans) == len(columns)
    trace.completeness.lacks()
    if whole:
        json.dumps(summarise_files([str(path)]).to_json(), allow_nan=False, default=str).encode()
        merged = merge_files([str(path)], f"{path}.merged.json")
        json.loads(Path(merged.path).read_bytes())
    return "read"


#: what may stand anywhere in a manifest
ODD_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 1e300, 2**70, "", "x", "\x1b[2J", "\ud800", "../../etc", [], {}, [[]], [None], {"": {}}, {"a": [1]}, "9" * 500,
)  # fmt: skip


def a_manifest(place: Path) -> dict[str, Any]:
    """A run of two workers with a timeline each, and its manifest."""
    name, _, data = seeds()["timeline"]
    targets, windows, artifacts = [], [], []
    for rank in (0, 1):
        key = f"A-r{rank}-h-{100 + rank}"
        who = {"group": "A", "rank": rank, "host": "h", "pid": 100 + rank}
        targets.append(
            {
                "key": key,
                **who,
                "role": "actor",
                "armed": True,
                "windows_opened": 1,
                "steps_seen": [2],
                "tools": ["trace"],
            }
        )
        moment = {"epoch_ns": 1_795_852_566_000_000_000, "monotonic_ns": 5, "driver_ns": 1_795_852_566_000_000_000}
        windows.append(
            {"id": f"{key}-1", "target": key, "sequence": 1, "kind": "step", "steps": [2], "state": "closed", "tools": ["trace"], "opened": moment, "closed": moment, "open_ns": 5, "close_ns": 6, "drain_ns": 7, "spans": 6}
        )  # fmt: skip
        path = f"{rank}-{name}"
        (place / path).write_bytes(data)
        artifacts.append(
            {"path": path, "tool": "trace", **who, "windows": [f"{key}-1"], "bytes": len(data), "state": "complete"}
        )
    steps = [
        {
            "step": step,
            "seconds": {"p1": {"max": 0.5, "min": 0.1, "mean": 0.3, "max_rank": 1}},
            "wall_ns": 10**9,
            "began_ns": 10**18,
            "window": step == 2,
        }
        for step in range(1, 5)
    ]
    return {
        "format": 1, "accelprof": "0.1.0", "run": "made", "created": "2026-11-28T07:56:32+00:00", "problems": ["one"],
        "clock_offsets": {targets[0]["key"]: {"offset_ns": 5, "error_ns": 2}}, "targets": targets, "windows": windows,
        "artifacts": artifacts, "metrics": {"steps": steps, "timings": {}}, "plan": {"groups": []}, "config": {"steps": [2]},
    }  # fmt: skip


def manifest_trial(place: Path, number: int) -> str:
    """A run whose manifest has odd values, through report, page, timeline and comparison."""
    from rich.console import Console

    from accelprof.analysis.compare import compare
    from accelprof.analysis.export import write_tables
    from accelprof.analysis.html import render_html
    from accelprof.analysis.summary import summarise
    from accelprof.analysis.table import render
    from accelprof.analysis.timeline import write_timeline

    rng = random.Random(number)
    run = place / f"run{number}"
    run.mkdir()
    manifest: Any = a_manifest(run)
    for _ in range(rng.choice((1, 1, 2, 4))):
        where, key = rng.choice(_places(manifest))
        how = rng.randrange(4)
        if how == 0 and isinstance(where, dict):
            where.pop(key)
        elif how == 1 and isinstance(where, list):
            where.append(copy.deepcopy(where[key]))
        else:
            where[key] = copy.deepcopy(rng.choice(ODD_VALUES))
    (run / "manifest.json").write_text(json.dumps(manifest))
    try:
        for step in (
            lambda: json.dumps(summarise(run).to_json(), allow_nan=False, default=str).encode(),
            lambda: render_html(summarise(run)),
            lambda: render(summarise(run), Console(file=io.StringIO()), everything=True, by_file=True),
            lambda: write_tables(summarise(run), str(run / "tables"), "csv"),
            lambda: write_timeline(run, str(run / "all.json")),
            lambda: compare(run, run, allow_partial=True),
        ):
            try:
                step()
            except AccelprofError as error:
                assert len(str(error)) < 5000, f"a message of {len(str(error)):,} characters"
                outcome = "refused"
            else:
                outcome = "read"
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {str(error)[:300]}\n{traceback.format_exc()[-1800:]}") from None
    finally:
        shutil.rmtree(run)
    return outcome


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a value."""
    found: list[tuple[Any, Any]] = []
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found.append((value, key))
        found.extend(_places(inner))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=12_000)
    parser.add_argument("--manifests", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="FORMAT:SEED")
    parser.add_argument("--keep", type=Path, help="with --only: write the file here instead of trying it")
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    made = seeds()
    numbers = range(asked.seed, asked.seed + -(-asked.count // len(made)))
    tries = [(kind, number) for number in numbers for kind in made]
    if asked.only:
        kind, _, number = asked.only.rpartition(":")
        tries = [(kind, int(number))]
    outcomes: dict[str, Counter[str]] = {kind: Counter() for kind in (*made, "manifest")}
    failures = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        for kind, number in tries:
            if asked.keep:
                print(a_file(Path(place), made[kind], number).rename(asked.keep))
                continue
            try:
                outcomes[kind][trial(Path(place), made[kind], number)] += 1
            except AssertionError as error:
                failures += 1
                outcomes[kind]["wrong"] += 1
                if failures <= 20:
                    print(f"--- {kind}:{number}: {error}\n", flush=True)
        for number in range(asked.seed, asked.seed + asked.manifests) if asked.only is None else ():
            try:
                outcomes["manifest"][manifest_trial(Path(place), number)] += 1
            except AssertionError as error:
                failures += 1
                outcomes["manifest"]["wrong"] += 1
                if failures <= 20:
                    print(f"--- manifest {number}: {error}\n", flush=True)
    for kind, found in outcomes.items():
        print(f"{kind:20s} {sum(found.values()):6d} files  {dict(found)}")
    print(
        f"{len(tries)} files, {failures} failed; {time.monotonic() - began:.0f} s, {time.process_time():.0f} s of processor time"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
