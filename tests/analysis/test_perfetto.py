"""Perfetto's packets, read back with Perfetto's own Python package: no event lost, exact times, nesting, arrows, counters."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelprof.analysis.perfetto import PerfettoWriter
from accelprof.analysis.timeline import merge_files, write_timeline
from accelprof.cli.timeline import timeline
from accelprof.errors import UserError
from accelprof.reading.chrome import read_chrome

protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="perfetto is not installed")
Row = dict[str, Any]


class Read:
    """A trace read as a viewer reads it: slices by nesting, with names and tracks."""

    def __init__(self, path: str | Path) -> None:
        data = Path(path).read_bytes()
        trace = protos.Trace()
        trace.ParseFromString(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        packets = []
        for packet in trace.packet:  # a viewer puts what is in a compressed packet in its place
            inner = protos.Trace()
            if packet.HasField("compressed_packets"):
                inner.ParseFromString(zlib.decompress(packet.compressed_packets))
            packets.extend(inner.packet if packet.HasField("compressed_packets") else [packet])
        self.slices: list[tuple[str, int, int]] = []
        self.instants: list[tuple[str, int]] = []
        self.counters: list[tuple[str, int, float]] = []
        self.begins: dict[int, str] = {}
        self.ends: dict[int, str] = {}
        self.names: dict[int, Any] = {}
        self.base = 0
        tracks: dict[int, int] = {}
        interned: dict[int, dict[int, str]] = defaultdict(dict)
        events = []
        clocks: dict[int, int] = {}  # of a sequence: its default clock; and the time of the incremental one so far
        since: dict[tuple[int, int], int] = {}
        for packet in packets:
            sequence = packet.trusted_packet_sequence_id
            if packet.sequence_flags & 1:
                interned.pop(sequence, None)
            if packet.HasField("track_descriptor"):
                self.names[packet.track_descriptor.uuid] = packet.track_descriptor
            if packet.HasField("trace_packet_defaults"):
                tracks[sequence] = packet.trace_packet_defaults.track_event_defaults.track_uuid
                clocks[sequence] = packet.trace_packet_defaults.timestamp_clock_id
            for name in packet.interned_data.event_names:
                interned[sequence][name.iid] = name.name
            here = {clock.clock_id: clock for clock in packet.clock_snapshot.clocks}
            if 1 in here:
                self.base = here[1].timestamp - here[6].timestamp
            for number, clock in here.items():
                if clock.is_incremental:
                    assert (clock.timestamp, clock.unit_multiplier_ns, sequence > 0) == (here[6].timestamp, 1, True)
                    since[sequence, number] = clock.timestamp
            if packet.HasField("track_event"):
                clock_id = packet.timestamp_clock_id or clocks.get(sequence, 6)
                if clock_id == 6:
                    at = packet.timestamp
                else:
                    at = since[sequence, clock_id] = since[sequence, clock_id] + packet.timestamp
                events.append((at, packet.track_event, sequence))
        events.sort(key=lambda row: row[0])  # stable, as trace_processor's
        open_: dict[int, list[tuple[str, int]]] = defaultdict(list)
        kinds = protos.TrackEvent
        for at, event, sequence in events:
            track = event.track_uuid or tracks[sequence]
            assert track in self.names
            name = event.name or interned[sequence].get(event.name_iid, "")
            if event.type == kinds.TYPE_SLICE_BEGIN:
                open_[track].append((name, at))
                self.begins.update(dict.fromkeys(event.flow_ids, name))
                self.ends.update(dict.fromkeys(event.terminating_flow_ids, name))
            elif event.type == kinds.TYPE_SLICE_END:
                name, begun = open_[track].pop()
                self.slices.append((name, begun + self.base, at - begun))
            elif event.type == kinds.TYPE_COUNTER:
                self.counters.append((self.names[track].name, at, event.double_counter_value))
            else:
                self.instants.append((name, at + self.base))
                self.begins.update(dict.fromkeys(event.flow_ids, name))
                self.ends.update(dict.fromkeys(event.terminating_flow_ids, name))
        assert not any(open_.values())


def convert(folder: Path, *files: list[Row]) -> tuple[Any, Read]:
    paths = []
    for number, events in enumerate(files):
        paths.append(str(folder / f"{number}.json"))
        Path(paths[-1]).write_text(json.dumps(events))
    merged = merge_files(paths, str(folder / "all.pftrace"), PerfettoWriter)
    return merged, Read(merged.path)


@pytest.mark.parametrize(
    "sample",
    [
        "tracelens/b200/eager_trace.json.gz",
        "hta/trace_filter/sampled_rank-0.json.gz",
        "hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    ],
)
def test_no_event_of_a_real_trace_is_lost(shared: Path, tmp_path: Path, sample: str) -> None:
    """Every slice of the file comes back with its name, start and length to the ns, also those that overlap on a row."""
    path = shared / "samples" / sample
    merged = merge_files([str(path)], str(tmp_path / "all.pftrace"), PerfettoWriter)
    read = Read(merged.path)
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    back = read_chrome(str(path), "torch")
    assert Counter(read.slices) == Counter(
        (span.name, span.start_ns, span.end_ns - span.start_ns) for span in back.spans
    )
    assert (merged.read, merged.left_out) == (len(events), 0)
    assert merged.written == len(events)
    ids = {(e["cat"], e["id"]) for e in events if e["ph"] == "s"} & {
        (e["cat"], e["id"]) for e in events if e["ph"] == "f"
    }
    assert len(read.begins.keys() & read.ends.keys()) == len(ids)


def test_it_is_smaller_than_the_json(shared: Path, tmp_path: Path) -> None:
    """Of a real trace the packets take at most a fifth of our JSON's bytes."""
    path = str(shared / "samples/tracelens/b200/eager_trace.json.gz")
    packets = merge_files([path], str(tmp_path / "all.pftrace"), PerfettoWriter)
    text = merge_files([path], str(tmp_path / "all.json"))
    assert 5 * Path(packets.path).stat().st_size <= Path(text.path).stat().st_size


def test_arrows_counters_marks_and_asynchronous_events(tmp_path: Path) -> None:
    """Arrows join the slices they joined, counters have a track a value, instants and asynchronous events stay."""
    rows: list[Row] = [
        {"ph": "X", "cat": "cpu", "name": "launch", "pid": 1, "tid": 1, "ts": 0, "dur": 5},
        {"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 7, "ts": 10, "dur": 100},
        {"ph": "X", "cat": "kernel", "name": "b", "pid": 0, "tid": 7, "ts": 50, "dur": 100},
        {"ph": "s", "cat": "ac2g", "name": "f", "id": 9, "pid": 1, "tid": 1, "ts": 0},
        {"ph": "f", "cat": "ac2g", "name": "f", "id": 9, "pid": 0, "tid": 7, "ts": 50, "bp": "e"},
        {"ph": "f", "cat": "ac2g", "name": "f", "id": 9, "pid": 3, "tid": 7, "ts": 50, "bp": "e"},
        {"ph": "C", "name": "memory", "pid": 1, "ts": 3, "args": {"allocated": 5, "reserved": 7.5}},
        {"ph": "i", "name": "mark", "pid": 1, "tid": 1, "ts": 2, "s": "t"},
        {"ph": "b", "cat": "req", "id": 1, "name": "request", "pid": 1, "tid": 1, "ts": 1},
        {"ph": "e", "cat": "req", "id": 1, "name": "request", "pid": 1, "tid": 1, "ts": 99},
        {"ph": "N", "name": "object", "id": 1, "pid": 1, "tid": 1, "ts": 1},
    ]
    merged, read = convert(tmp_path, rows)
    assert sorted(read.slices) == [
        ("a", 10_000, 100_000),
        ("b", 50_000, 100_000),
        ("launch", 0, 5000),
        ("request", 1000, 98_000),
    ]
    assert {read.begins[flow]: read.ends[flow] for flow in read.begins} == {"launch": "b"}
    assert sorted(read.counters) == [("memory allocated", 3000, 5.0), ("memory reserved", 3000, 7.5)]
    assert read.instants == [("mark", 2000)]
    assert (merged.read, merged.written, merged.left_out, merged.moved) == (11, 9, 2, 1)
    assert [problem.rpartition("left out: ")[2] for problem in merged.problems] == [
        "arrows without a slice at their end",
        "of a kind that Perfetto's packets do not have",
    ]


def test_events_long_before_the_first_file(tmp_path: Path) -> None:
    """Files days apart keep their distance, and no packet has a negative time."""
    row: Row = {"ph": "X", "cat": "c", "name": "late", "pid": 1, "tid": 1, "ts": 1_795_852_566_000_000, "dur": 5}
    _, read = convert(tmp_path, [row], [{**row, "name": "early", "ts": row["ts"] - 3 * 86_400_000_000}])
    assert {name: start for name, start, _ in read.slices} == {
        "late": 1_795_852_566_000_000_000,
        "early": 1_795_593_366_000_000_000,
    }


def test_rows_have_their_names(tmp_path: Path) -> None:
    """Processes and threads are named as in the JSON, with control characters made visible."""
    names = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "main\x1b[2J"}},
    ]
    _, read = convert(tmp_path, [*names, {"ph": "X", "name": "x\x00", "pid": 1, "tid": 1, "ts": 0, "dur": 1}])
    assert {row.thread.thread_name for row in read.names.values()} == {"", "main\\x1b[2J [0.json (1)]"}
    assert {row.process.process_name for row in read.names.values()} == {"", "0.json (1): chrome, python 1"}
    assert [name for name, _, _ in read.slices] == ["x\\x00"]


times = st.integers(0, 12)
slices = st.builds(
    lambda name, at, dur, tid: {"ph": "X", "cat": "c", "name": name, "pid": 0, "tid": tid, "ts": at, "dur": dur},
    st.sampled_from("abc"), times, times, st.sampled_from([7, 8]),
)  # fmt: skip
points = st.builds(lambda at: {"ph": "i", "name": "i", "pid": 0, "tid": 7, "ts": at, "s": "t"}, times)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(slices, slices, points), max_size=25))
def test_whatever_overlaps_comes_back(tmp_path: Path, rows: list[Row]) -> None:
    """Slices of any overlap, of no length, at one moment: each comes back once, as it was."""
    merged, read = convert(tmp_path, rows)
    assert sorted(read.slices) == sorted(
        (row["name"], row["ts"] * 1000, row["dur"] * 1000) for row in rows if row["ph"] == "X"
    )
    assert len(read.instants) == sum(row["ph"] == "i" for row in rows)
    assert (merged.written, merged.left_out) == (len(rows), 0)


def test_the_command(run_maker: Any, event: Any, tmp_path: Path) -> None:
    """``--format perfetto`` writes ``timeline.pftrace`` beside the manifest, gzip where the name says so; an empty directory is no run."""
    run_maker.timeline(run_maker.target(0), [event("update", 100, 600)])
    directory = run_maker.write()
    result = CliRunner().invoke(timeline, [directory, "--format", "perfetto"])
    assert result.exit_code == 0, result.output
    assert sorted(name for name, _, _ in Read(Path(directory, "timeline.pftrace")).slices) == ["update", "window 1"]
    assert (
        CliRunner()
        .invoke(timeline, [directory, "--format", "perfetto", "-o", str(tmp_path / "x.pftrace.gz")])
        .exit_code
        == 0
    )
    assert (tmp_path / "x.pftrace.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert len(Read(tmp_path / "x.pftrace.gz").slices) == 2
    (tmp_path / "none").mkdir()
    assert isinstance(CliRunner().invoke(timeline, [str(tmp_path / "none")]).exception, UserError)


def test_another_reader_agrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader of rocprof-sys's traces, which keeps clocks and names by the format's own rules, finds the same slices in the
    compressed packets: names, threads, ns from the clock's base."""
    other = pytest.importorskip("accelprof_rocm.readers.perfetto_proto")
    monkeypatch.setattr(other, "OURS", "nobody")  # it refuses what says that accelprof wrote it
    rows = [
        {"ph": "X", "cat": "hip_api", "name": f"call {number % 3}", "pid": 1, "tid": number % 2, "ts": 90 + 10 * number, "dur": 7 - number % 5}
        for number in range(40)
    ]  # fmt: skip
    merged, read = convert(tmp_path, rows, [{**row, "ts": row["ts"] + 0.5} for row in rows])
    found = other.read(merged.path, "rocprofv3").spans
    assert Counter((span.name, span.start_ns + read.base, span.duration_ns) for span in found) == Counter(read.slices)
    assert len(found) == 80


def test_packets_are_compressed(tmp_path: Path) -> None:
    """What a plain file has is compressed packets; times in them are since the event before, on a clock of the sequence's own."""
    rows = [{"ph": "X", "cat": "c", "name": "x", "pid": 1, "tid": 1, "ts": 7 * n, "dur": 5} for n in range(1000)]
    merged, read = convert(tmp_path, rows)
    trace = protos.Trace()
    trace.ParseFromString(Path(merged.path).read_bytes())
    assert all(packet.HasField("compressed_packets") for packet in trace.packet)
    inner = protos.Trace()
    inner.ParseFromString(zlib.decompress(trace.packet[0].compressed_packets))
    times = [packet.timestamp for packet in inner.packet if packet.HasField("track_event")]
    assert times == [0, 5000] + [2000, 5000] * 999
    assert len(read.slices) == 1000


def waiting_run(run_maker: Any, event: Any) -> str:
    """A rollout works until 40 ms; the trainer receives from 10 until 41, then both reduce, the rollout from 60, the trainer from 45,
    until 70."""
    rows = {
        "Rollout": [("generate", 0, 40_000, ""), ("pack", 40_000, 20_000, ""), ("all_reduce", 60_000, 10_000, "collective")],
        "Trainer": [("recv", 10_000, 31_000, ""), ("load", 41_000, 4_000, ""), ("all_reduce", 45_000, 25_000, "collective")],
    }  # fmt: skip
    for group, phases in rows.items():
        key = run_maker.target(0, group, host="node0")
        run_maker.timeline(key, [event(n, at, dur, category=c) for n, at, dur, c in phases], end_us=70_000)
    return str(run_maker.write())


def test_an_arrow_leads_from_a_role_to_what_waited_for_it(run_maker: Any, event: Any, tmp_path: Path) -> None:
    """The end of generate let recv end, the rollout's coming to the all-reduce let the trainer's go on: two arrows, whose ends lie
    in these phases, in both formats; every other event is there as without them."""
    run = waiting_run(run_maker, event)
    merged = write_timeline(run, str(tmp_path / "all.json"))
    events = json.loads(Path(merged.path).read_text())["traceEvents"]
    assert merged.written == len(events) == merged.read + merged.added + 2 * merged.arrows
    phases = [row for row in events if row.get("cat") == "phase"]

    def inside(arrow: dict[str, Any]) -> str:
        [name] = [
            row["name"] for row in phases
            if (row["pid"], row["tid"]) == (arrow["pid"], arrow["tid"]) and row["ts"] < arrow["ts"] < row["ts"] + row["dur"]
        ]  # fmt: skip
        whose = next(
            row["args"]["name"] for row in events if row["name"] == "process_name" and row["pid"] == arrow["pid"]
        )
        return f"{whose.partition('/')[0]} {name}"

    arrows = [row for row in events if row.get("cat") == "accelprof"]
    assert {row["name"] for row in arrows} == {"waited for"}
    ends = {row["id"]: row for row in arrows if row["ph"] == "f"}
    begins = {row["id"]: row for row in arrows if row["ph"] == "s"}
    assert begins.keys() == ends.keys()
    found = sorted((inside(begins[key]), inside(ends[key])) for key in begins)
    assert found == [("Rollout all_reduce", "Trainer all_reduce"), ("Rollout generate", "Trainer recv")]
    assert all(begins[key]["ts"] <= ends[key]["ts"] for key in begins)

    packed = write_timeline(run, str(tmp_path / "all.pftrace"), writer=PerfettoWriter)
    read = Read(packed.path)
    assert (packed.arrows, packed.left_out, packed.written) == (2, 0, packed.read + 4)
    assert read.begins.keys() == read.ends.keys()
    assert len(read.begins) == 2
    assert set(read.begins.values()) == set(read.ends.values()) == {"waited for"}
    when = {
        name: [(at, at + ns) for n, at, ns in read.slices if n == name] for name in ("generate", "recv", "all_reduce")
    }
    moments = sorted(at for name, at in read.instants if name == "waited for")
    [generate], [recv] = when["generate"], when["recv"]
    assert generate[0] < moments[0] < generate[1]
    assert recv[0] < moments[1] < recv[1]
    assert all(any(low < at < high for low, high in when["all_reduce"]) for at in moments[2:])


def test_a_run_without_waits_has_no_arrows(run_maker: Any, event: Any, tmp_path: Path) -> None:
    """Two workers that only work: nothing is joined."""
    for rank in range(2):
        run_maker.timeline(run_maker.target(rank, host="node0"), [event("work", 0, 1000)], end_us=1000)
    assert write_timeline(run_maker.write(), str(tmp_path / "all.json")).arrows == 0
