"""Reading nsys exports: the sums of real reports, tables that are missing or renamed, broken and stale files."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from accelprof_cuda import installation, reader, tables
from accelprof_cuda.nsys import NsysTool

from accelprof.analysis.attribution import attribute
from accelprof.analysis.reading import load_any
from accelprof.analysis.timeline import merge_files
from accelprof.analysis.tracks import arguments
from accelprof.contracts.spans import Clock, Kind, Span, Trace
from accelprof.errors import ReadError
from accelprof.reading.columns import Columns, columns_of
from accelprof.testing import ToolConformance
from accelprof.testing.files import union_ns

KERNELS = (Kind.KERNEL, Kind.COMMUNICATION)


@pytest.fixture(scope="module")
def samples(shared: Path) -> Path:
    place = shared / "samples" / "nsys-ai"
    if not place.is_dir():
        pytest.skip(f"no sample reports at {place}")
    return place


@pytest.fixture(scope="module")
def before(samples: Path) -> Trace:
    return reader.read(str(samples / "mfu_2gpu_before.sqlite"))


def kernels(trace: Trace, device: int) -> list[Span]:
    return [span for span in trace.of_kind(*KERNELS) if span.device == device]


def edited(source: Path, target: Path, *statements: str) -> str:
    shutil.copyfile(source, target)
    with closing(sqlite3.connect(target)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
    return str(target)


def test_kernels_of_two_devices(before: Trace) -> None:
    """Counts, sums and unions per device of a real two-GPU report."""
    first, second = kernels(before, 0), kernels(before, 1)
    assert (len(first), len(second)) == (1993, 2017)
    assert sum(span.duration_ns for span in first) == 270_875_926
    assert union_ns((span.start_ns, span.end_ns) for span in first) == 270_863_484
    assert union_ns((span.start_ns, span.end_ns) for span in second) == 264_324_724


def test_the_other_run(samples: Path) -> None:
    """The same of the run after the change."""
    after = reader.read(str(samples / "mfu_2gpu_after.sqlite"))
    found = {device: union_ns((span.start_ns, span.end_ns) for span in kernels(after, device)) for device in (0, 1)}
    assert found == {0: 237_473_368, 1: 251_362_038}


def test_busy_never_exceeds_the_span(before: Trace) -> None:
    """Busy time per device, copies included, is a union: never more than from first start to last end."""
    extent = max(span.end_ns for span in before.spans) - min(span.start_ns for span in before.spans)
    assert all(0 < busy <= extent for busy in [row.busy_ns for row in attribute(before).devices])


def test_every_range_has_a_name(before: Trace) -> None:
    """19,118 ranges, 462 of them named through textId only."""
    ranges = list(before.of_kind(Kind.RANGE, Kind.PHASE))
    assert len(ranges) == 19_118
    assert all(span.name for span in ranges)
    assert sum(span.domain != "" for span in ranges) == 462  # NCCL registers its strings, torch does not


def test_communication_stands_apart(before: Trace) -> None:
    """NCCL's kernels are communication, not compute."""
    found = list(before.of_kind(Kind.COMMUNICATION))
    assert len(found) == 66
    assert sum(span.duration_ns for span in found) == 25_401_752


def test_device_work_names_its_launch(before: Trace) -> None:
    """Kernels carry the number of the call that launched them, unique though two processes share the report."""
    launches = {
        span.args["correlation"]: span
        for span in before.of_kind(Kind.RUNTIME, Kind.SYNC)
        if span.args.get("correlation")
    }
    matched = [
        (launches[span.args["correlation"]], span)
        for span in before.of_kind(*KERNELS)
        if span.args["correlation"] in launches
    ]
    assert len(matched) > 3900  # the sample was cut out of a longer report; the first launches lie before the cut
    assert all(launch.pid == kernel.pid and launch.start_ns <= kernel.start_ns for launch, kernel in matched)


def test_times_are_epoch_times(before: Trace) -> None:
    """Times stand on the epoch clock: 2026-05-26 07:59 UTC, 32 s after the session began, with nothing rounded."""
    assert before.clock is Clock.EPOCH
    assert min(span.start_ns for span in before.spans) == 1779782330176752435 - 28254349605 + 60111430336
    assert max(span.start_ns for span in before.spans) % 1000 != 0


def test_reading_is_quick(samples: Path) -> None:
    """The 2.7 MB report is read in a second of processor time (other load on the machine does not count)."""
    began = time.process_time()
    reader.read(str(samples / "mfu_2gpu_before.sqlite"))
    assert time.process_time() - began < 1.0


def test_a_report_without_nvtx(samples: Path) -> None:
    """No NVTX table: the kernels count, the missing part is named, times stay the file's own."""
    trace = reader.read(str(samples / "healthy_1pct.sqlite"))
    assert len(kernels(trace, 0)) == 400
    assert union_ns((span.start_ns, span.end_ns) for span in kernels(trace, 0)) == 400_000_000
    assert any("NVTX_EVENTS" in problem for problem in trace.problems)
    assert trace.clock is Clock.RELATIVE


def small_export(path: Path) -> str:
    """A range whose thread launched a kernel, a copy and a set, and waited for them."""
    thread, process = 7 << 24 | 7, 7 << 24
    tables = {
        "StringIds": ("id, value", [(1, "gemm"), (2, "cudaLaunchKernel_v7000"), (3, "cudaMemcpyAsync_v3020"), (4, "cudaDeviceSynchronize_v3020")]),
        "NVTX_EVENTS": ("start, end, eventType, text, globalTid, domainId", [(0, 1000, 59, "actor/update", thread, 0)]),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (
            "start, end, correlationId, globalTid, nameId",
            [(10, 20, 1, thread, 2), (30, 40, 2, thread, 3), (50, 60, 3, thread, 3), (70, 900, 4, thread, 4)],
        ),
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            "start, end, deviceId, streamId, correlationId, globalPid, demangledName, shortName", [(100, 400, 0, 7, 1, process, 1, 1)]
        ),
        "CUPTI_ACTIVITY_KIND_MEMCPY": (
            "start, end, deviceId, streamId, correlationId, globalPid, bytes, copyKind", [(400, 500, 0, 7, 2, process, 64, 1)]
        ),
        "CUPTI_ACTIVITY_KIND_MEMSET": ("start, end, deviceId, streamId, correlationId, globalPid, bytes", [(500, 550, 0, 7, 3, process, 8)]),
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": ("start, end, streamId, correlationId, globalPid, syncType", [(80, 890, 0, 4, process, 4)]),
    }  # fmt: skip
    with closing(sqlite3.connect(path)) as database:
        for name, (columns, values) in tables.items():
            database.execute(f"CREATE TABLE {name} ({columns})")
            marks = ",".join("?" * len(values[0]))
            database.executemany(f"INSERT INTO {name} VALUES ({marks})", values)
        database.commit()
    return str(path)


def test_copies_waits_and_ranges_are_read(tmp_path: Path) -> None:
    """Kernels, copies, sets, the host's waits and NVTX ranges of one small export, each under its own kind, and in its phase."""
    path = small_export(tmp_path / "r.sqlite")
    trace = reader.read(str(path))
    found = {
        kind: [span.duration_ns for span in trace.of_kind(kind)]
        for kind in (Kind.KERNEL, Kind.COPY, Kind.MEMSET, Kind.SYNC)
    }
    assert found == {Kind.KERNEL: [300], Kind.COPY: [100], Kind.MEMSET: [50], Kind.SYNC: [810]}
    (phase,) = attribute(trace).phases
    assert (phase.name, phase.wall_ns, phase.busy_ns) == ("actor/update", 1000, {0: 450})


def test_a_range_on_autograds_thread_is_inside_the_phase(tmp_path: Path) -> None:
    """The report's names of threads show whose thread a range of the user stands on: checkpointing runs them on autograd's."""
    thread = 7 << 24 | 9
    statements = [
        "CREATE TABLE ThreadNames (nameId, priority, globalTid)",
        f"INSERT INTO NVTX_EVENTS VALUES (5, 500, 59, 'block', {thread}, 0)",
        f"UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET globalTid = {thread} WHERE correlationId = 1",
    ]
    path = edited(Path(small_export(tmp_path / "r.sqlite")), tmp_path / "plain.sqlite", *statements)
    assert {row.name: row.kernels for row in attribute(reader.read(path)).phases} == {"actor/update": 0, "block": 1}
    statements = [
        "INSERT INTO StringIds VALUES (9, 'pt_autograd_0')",
        f"INSERT INTO ThreadNames VALUES (9, 20, {thread})",
    ]
    path = edited(Path(path), tmp_path / "named.sqlite", *statements)
    trace = reader.read(path)
    assert {row.name: row.kernels for row in attribute(trace).phases} == {"actor/update": 1, "block": 1}
    assert trace.metadata["thread_names"] == {7: {9: "thread 9 (pt_autograd_0)"}}


def test_kernels_that_do_not_say_their_process(tmp_path: Path) -> None:
    """With one process that calls CUDA they are its own; with several they are in no phase, for the reason that holds, and the
    column is named."""
    source = Path(small_export(tmp_path / "r.sqlite"))
    drop = "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid"
    for statement in (drop, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = NULL"):
        trace = reader.read(edited(source, tmp_path / "one.sqlite", statement))
        found = attribute(trace)
        assert ([row.kernels for row in found.phases], found.left_over()) == ([1], [])
        assert trace.completeness.complete
        assert any(
            "no column globalPid; its kernels are taken for those of process 7" in line for line in trace.problems
        ) == (statement == drop)
    other = f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 20, 1, {8 << 24 | 8}, 2)"
    trace = reader.read(edited(source, tmp_path / "two.sqlite", drop, other))
    found = attribute(trace)
    assert found.left_over() == [("the file does not say which launch", 1)]
    assert not trace.completeness.complete
    assert any(
        "KERNEL has no column globalPid; its kernels do not say their process" in line for line in trace.problems
    )


@pytest.mark.parametrize(
    "evidence",
    [
        f"INSERT INTO NVTX_EVENTS VALUES (0, 1000, 59, 'critic/update', {8 << 24 | 8}, 0)",
        "CREATE TABLE TARGET_INFO_CUDA_DEVICE AS SELECT 0 AS gpuId, 0 AS cudaId, 7 AS pid UNION SELECT 1, 0, 8",
        "CREATE TABLE TARGET_INFO_CUDA_CONTEXT_INFO AS SELECT 7 AS processId, 1 AS contextId UNION SELECT 8, 1",
        f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (400, 500, 0, 7, 2, {8 << 24}, 64, 1)",
        f"INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (80, 890, 0, 4, {8 << 24}, 4)",
    ],
)
@pytest.mark.parametrize("how", ["ALTER TABLE {} DROP COLUMN globalPid", "UPDATE {} SET globalPid = NULL"])
def test_work_of_a_process_whose_calls_are_lost_is_no_other_ones(tmp_path: Path, how: str, evidence: str) -> None:
    """One process of two has calls in the file: kernels that do not say their process may be the other's as well, and are given to
    neither; with their process said they are in no phase, because their launch is not in the file."""
    source = Path(small_export(tmp_path / "r.sqlite"))
    path = edited(source, tmp_path / "x.sqlite", evidence, how.format("CUPTI_ACTIVITY_KIND_KERNEL"))
    found = attribute(reader.read(path))
    assert (found.left_over(), sum(row.kernels for row in found.phases)) == (
        [("the file does not say which launch", 1)],
        0,
    )
    path = edited(
        source, tmp_path / "y.sqlite", evidence, f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = {8 << 24}"
    )
    found = attribute(reader.read(path))
    assert (found.left_over(), sum(row.kernels for row in found.phases)) == ([("launch not in the file", 1)], 0)


def test_columns_without_anything_read_as_those_that_are_not_there(tmp_path: Path) -> None:
    """Also where the first value comes late, and where no column asked for has any."""
    path = small_export(tmp_path / "r.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE NVTX_EVENTS ADD COLUMN color")
        database.execute("ALTER TABLE NVTX_EVENTS ADD COLUMN category")
        rows = [(at, at + 1, 59, "x", 7 << 24 | 7, 0, None) for at in range(2000, 2000 + 2 * tables.SAMPLE)]
        database.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", [*rows, (*rows[-1][:-1], 5)])
        database.execute("CREATE TABLE hollow (a, b, t)")
        database.execute("INSERT INTO hollow VALUES (NULL, NULL, 'x'), (NULL, NULL, NULL)")
        found = tables.Tables(database)
        [(part, texts)] = found.parts("NVTX_EVENTS", ("start", "color", "category", "gone"), "text")
        assert set(part["color"].tolist()) == {tables.MISSING, 5}
        assert set(part["category"].tolist()) == set(part["gone"].tolist()) == {tables.MISSING}
        assert (len(texts), set(texts)) == (2 * tables.SAMPLE + 2, {"actor/update", "x"})
        for text in ("t", ""):
            [(part, texts)] = found.parts("hollow", ("a", "b", "c"), text)
            assert {name: part[name].tolist() for name in "abc"} == dict.fromkeys("abc", [tables.MISSING] * 2)
            assert texts == (["x", None] if text else [])


def test_arguments_as_columns_say_the_same(tmp_path: Path) -> None:
    """In any order and number, what a row has by itself."""
    columns = columns_of(reader.read(small_export(tmp_path / "r.sqlite")))
    rows = np.array([5, 0, 3, 3, 6, 1])
    said: list[dict[str, object]] = [{} for _ in rows]
    for places, held in columns.args_by_column(rows) or ():
        for at, *values in zip(places.tolist(), *held.values(), strict=True):
            said[at] = dict(zip(held, values, strict=True))
    assert said == [dict(columns.args(row)) for row in rows.tolist()]
    assert any(said)
    written = [json.loads(bytes(one)) for one in arguments(columns, rows)]
    for row, args, one in zip(rows.tolist(), said, written, strict=True):
        span = columns.span(row)
        more = {
            "domain": span.domain,
            "category": span.category,
            "color": span.color,
            "device": span.device,
            "stream": span.stream,
        }
        want = {
            **span.args,
            **{key: value for key, value in more.items() if value not in ("", None) and key not in args},
        }
        assert one == want


def test_one_process_with_devices_beside_others_with_ranges_is_meant(tmp_path: Path) -> None:
    """Where the file says who has devices, a parent that only has ranges launched nothing."""
    source = Path(small_export(tmp_path / "r.sqlite"))
    statements = (
        f"INSERT INTO NVTX_EVENTS VALUES (0, 1000, 59, 'launcher', {8 << 24 | 8}, 0)",
        "CREATE TABLE TARGET_INFO_CUDA_DEVICE AS SELECT 0 AS gpuId, 0 AS cudaId, 7 AS pid",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = NULL",
    )
    found = attribute(reader.read(edited(source, tmp_path / "x.sqlite", *statements)))
    assert {row.name: row.kernels for row in found.phases} == {"actor/update": 1, "launcher": 0}


@pytest.mark.parametrize("table", ["KERNEL", "RUNTIME"])
@pytest.mark.parametrize("column", sorted(reader.LACKING))
def test_a_column_that_is_missing_is_named(tmp_path: Path, table: str, column: str) -> None:
    """Whichever it is, with what that means for the rows; nothing else is to blame."""
    path = Path(small_export(tmp_path / "r.sqlite"))
    with closing(sqlite3.connect(path)) as database:
        there = [row[1] for row in database.execute(f"PRAGMA table_info(CUPTI_ACTIVITY_KIND_{table})")]
    if column not in there:
        return
    trace = reader.read(
        edited(path, tmp_path / "x.sqlite", f"ALTER TABLE CUPTI_ACTIVITY_KIND_{table} DROP COLUMN {column}")
    )
    assert any(f"CUPTI_ACTIVITY_KIND_{table} has no column {column}" in line for line in trace.problems)


def test_renamed_tables_read_alike(samples: Path, tmp_path: Path, before: Trace) -> None:
    """``NVTX_EVENTS_V2`` is NVTX_EVENTS."""
    path = edited(
        samples / "mfu_2gpu_before.sqlite", tmp_path / "r.sqlite", "ALTER TABLE NVTX_EVENTS RENAME TO NVTX_EVENTS_V2"
    )
    trace = reader.read(path)
    assert trace.spans == before.spans
    assert trace.problems == before.problems


def test_a_missing_kernel_table_is_named(samples: Path, tmp_path: Path) -> None:
    """Without kernels the ranges still count, and the missing table is named: not a run without GPU work."""
    path = edited(samples / "mfu_2gpu_before.sqlite", tmp_path / "r.sqlite", "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
    trace = reader.read(path)
    assert any("CUPTI_ACTIVITY_KIND_KERNEL" in problem for problem in trace.problems)
    assert len(list(trace.of_kind(Kind.RANGE))) == 19_118


def test_backward_ranges_are_counted_out(samples: Path, tmp_path: Path) -> None:
    """A range with its end before its start, or with a time that is no number, is left out and counted."""
    path = edited(
        samples / "mfu_2gpu_before.sqlite",
        tmp_path / "r.sqlite",
        "UPDATE NVTX_EVENTS SET start = 'early', end = NULL WHERE rowid = 1",
        "UPDATE NVTX_EVENTS SET end = start - 1 WHERE rowid = 2",
        "UPDATE NVTX_EVENTS SET end = 'late' WHERE rowid = 3",
    )
    trace = reader.read(path)
    assert len(list(trace.of_kind(Kind.RANGE))) == 19_115
    assert "3 NVTX ranges without a beginning or that ended before it left out" in trace.problems
    assert not trace.completeness.complete


@pytest.mark.parametrize("event", [reader.PUSH_POP, reader.START_END])
def test_a_range_that_was_open_when_recording_stopped_goes_to_the_end_of_the_file(tmp_path: Path, event: int) -> None:
    """It is there, marked as cut, with the work that it launched, and the file is whole; read back from a merged timeline too."""
    path, thread = small_export(tmp_path / "r.sqlite"), 7 << 24 | 7
    opened = f"INSERT INTO NVTX_EVENTS VALUES (5, NULL, {event}, 'epoch', {thread}, 0)"
    last = f"INSERT INTO NVTX_EVENTS VALUES (1200, NULL, {event}, 'last', {thread}, 0)"
    path = edited(Path(path), tmp_path / "open.sqlite", opened, last)
    merged = str(tmp_path / "merged.json.gz")
    merge_files([path], merged)
    for trace in (reader.read(path), load_any(merged).trace()):
        ranges = {span.name: span for span in trace.of_kind(Kind.RANGE)}
        first = ranges["actor/update"].start_ns
        assert {name: (span.start_ns - first, span.end_ns - first) for name, span in ranges.items()} == {
            "actor/update": (0, 1000), "epoch": (5, 1200), "last": (1200, 1200),
        }  # fmt: skip
        columns = columns_of(trace)
        assert {columns.names[columns.name[row]] for row in columns.cut.nonzero()[0].tolist()} == {"epoch", "last"}
        assert Columns.from_spans(columns.spans()).cut.tolist() == columns.cut.tolist()
        assert trace.completeness.complete
        assert not trace.completeness.lacks()
        phase = next(phase for phase in attribute(trace).phases if phase.name == "epoch")
        assert sum(phase.busy_ns.values()) == 450


def test_work_and_calls_without_an_end_are_lost(tmp_path: Path) -> None:
    """What a device did or the host called until then nobody knows: unlike a range, the file is not whole without it."""
    path = small_export(tmp_path / "r.sqlite")
    for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"):
        spoilt = edited(Path(path), tmp_path / f"{table}.sqlite", f"UPDATE {table} SET end = NULL WHERE rowid = 1")
        assert sum(reader.read(spoilt).completeness.left_out.values()) == 1


def test_an_older_export_with_fewer_columns(samples: Path, tmp_path: Path) -> None:
    """Columns that a version lacks read as nothing."""
    path = edited(
        samples / "mfu_2gpu_before.sqlite",
        tmp_path / "r.sqlite",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN graphNodeId",
        "ALTER TABLE NVTX_EVENTS DROP COLUMN domainId",
    )
    assert len(kernels(reader.read(path), 0)) == 1993


@pytest.mark.parametrize("keep", [0, 10, 4096, 100_000])
def test_a_cut_file_is_refused(samples: Path, tmp_path: Path, keep: int) -> None:
    """A truncated export is named with a reason, not read as a shorter run."""
    path = tmp_path / "r.sqlite"
    path.write_bytes(
        (samples / "healthy_1pct.sqlite").read_bytes()[:keep]
        if keep < 5000
        else (samples / "mfu_2gpu_before.sqlite").read_bytes()[:keep]
    )
    with pytest.raises(
        ReadError,
        match=r"r\.sqlite: (the file is empty|not an SQLite file|an export of nsys; the database is cut off: [\d,]+ of its)",
    ):
        reader.read(str(path))


def test_another_programs_database_is_not_ours(tmp_path: Path) -> None:
    """Any SQLite file is not an nsys report."""
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (a)")
        database.commit()
    assert not reader.can_read(str(path))
    with pytest.raises(ReadError, match="not an export of nsys"):
        reader.read(str(path))


def test_what_can_be_read(samples: Path) -> None:
    """Reports, raw data and exports of nsys."""
    assert reader.can_read(str(samples / "healthy_1pct.sqlite"))
    assert reader.can_read("/any/where.nsys-rep")
    assert not reader.can_read("/any/trace.json.gz")


# --- exports ------------------------------------------------------------------------------------------------------------


def test_an_export_beside_the_report_is_never_trusted(
    samples: Path, tmp_path: Path, program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report replaced by another, even with an older date, is exported again; the ``.sqlite`` beside it is left alone."""
    fake = program(
        "nsys",
        """
        import shutil, sys
        if "--version" not in sys.argv:
            shutil.copyfile(open(sys.argv[-1]).read(), sys.argv[sys.argv.index("--output") + 1])
        """,
    )
    monkeypatch.setattr(installation, "find", lambda program="nsys": str(fake))
    report, beside = tmp_path / "r.nsys-rep", tmp_path / "r.sqlite"
    report.write_text(str(samples / "mfu_2gpu_after.sqlite"))
    shutil.copyfile(samples / "healthy_1pct.sqlite", beside)
    os.utime(report, (0, 0))
    assert len(kernels(reader.read(str(report)), 0)) == 1793
    report.write_text(str(samples / "healthy_1pct.sqlite"))
    os.utime(report, (0, 0))
    assert len(kernels(reader.read(str(report)), 0)) == 400
    assert beside.read_bytes() == (samples / "healthy_1pct.sqlite").read_bytes()


def test_a_refused_export_is_named(
    tmp_path: Path, program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """nsys's own last line becomes the reason (a report of a newer version, say)."""
    fake = program(
        "nsys",
        "import sys\nprint('version 2022.4.2.1') if '--version' in sys.argv else sys.exit('File version is newer')\n",
    )
    monkeypatch.setattr(installation, "find", lambda program="nsys": str(fake))
    report = tmp_path / "r.nsys-rep"
    report.write_bytes(b"x")
    with pytest.raises(ReadError, match=r"nsys 2022\.4\.2\.1 export ended with status 1: File version is newer"):
        reader.read(str(report))


def test_without_nsys_a_report_names_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without nsys a report cannot be read; the message says what to do."""
    monkeypatch.setattr(installation, "find", lambda program="nsys": None)
    report = tmp_path / "r.nsys-rep"
    report.write_bytes(b"x")
    with pytest.raises(ReadError, match=r"export it to \.sqlite elsewhere"):
        reader.read(str(report))
    report.write_bytes(b"")
    with pytest.raises(ReadError, match="empty"):
        reader.read(str(report))


def test_raw_data_without_an_importer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ``.qdstrm`` where no importer is: named, with what it is."""
    monkeypatch.setattr(installation, "importer", lambda nsys=None: None)
    raw = tmp_path / "r.qdstrm"
    raw.write_bytes(b"x")
    with pytest.raises(
        ReadError, match=r"raw data of nsys, and its importer \(QdstrmImporter\) is not on this machine"
    ):
        reader.read(str(raw))


def test_device_work_passes_the_kit(tmp_path: Path) -> None:
    """What the kit demands of files with device work."""

    class Kit(ToolConformance):
        def make(self) -> NsysTool:
            return NsysTool()

        def device_file(self, directory: str) -> str:
            return small_export(Path(directory) / "r.sqlite")

    Kit().test_device_work_belongs_to_the_phase_that_launched_it(tmp_path)


@pytest.mark.parametrize(
    ("table", "column", "what"),
    [
        ("NVTX_EVENTS", "globalTid", "ranges"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid", "calls"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId", "calls"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "correlationId", "kernels"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid", "kernels"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "deviceId", "kernels"),
    ],
)
def test_rows_without_a_value_are_counted(samples: Path, tmp_path: Path, table: str, column: str, what: str) -> None:
    """Some rows of a column that is there have nothing in it: how many, and what that means for them; the file is not whole."""
    path = edited(
        samples / "mfu_2gpu_before.sqlite", tmp_path / "r.sqlite", f"CREATE TABLE copied AS SELECT * FROM {table}",
        f"DROP TABLE {table}", f"ALTER TABLE copied RENAME TO {table}", f"UPDATE {table} SET {column} = NULL WHERE rowid <= 1007",
    )  # fmt: skip
    trace = reader.read(path)
    lines = [line for line in trace.problems if f" of {table} have no {column}: {what} " in line]
    assert len(lines) == 1
    assert lines[0].startswith("1,007 ") or table == "NVTX_EVENTS", "which has rows that are no ranges"
    assert lines == trace.completeness.unread


@pytest.mark.parametrize("time", [-(1 << 63), -(1 << 63) + 1, -(1 << 62), 1 << 62, (1 << 63) - 1])
def test_a_time_that_no_sum_holds_is_left_out(samples: Path, tmp_path: Path, time: int) -> None:
    """The least number of all, too, which has no absolute value in 64 bits."""
    statements = [f"UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET start = {time} WHERE rowid = 1"]
    trace = reader.read(edited(samples / "healthy_1pct.sqlite", tmp_path / "r.sqlite", *statements))
    assert trace.completeness.left_out == {"CUDA calls that never ended or ended before they began": 1}
    assert min(span.start_ns for span in trace.spans) >= 0
