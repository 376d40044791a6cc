"""Perfetto traces of rocprof-sys (``perfetto-trace-*.proto``) and rocprofv3 (``*.pftrace``), through the protos from PyPI.

Packets are taken one by one, so that a file that was cut off gives what it has and says where it ends. Names, categories and
annotations may be interned per sequence, and times may be increments on a clock of the sequence's own.
"""

from __future__ import annotations

import importlib
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from accelprof.contracts.spans import UNKNOWN, Clock, Kind, Mark, Origin, Trace
from accelprof.errors import ReadError
from accelprof.reading.gzipped import MAX_RATIO, allowed
from accelprof.reading.kernels import kernel_kind
from accelprof.reading.numbers import identities, place, whole_number
from accelprof.texts import unquoted
from accelprof_rocm.readers.building import (
    CONTROL_NAMES,
    MARK_NAMES,
    OPEN,
    Builder,
    call_kind,
    copy_name,
    launch_number,
)
from accelprof_rocm.readers.packed import content

PACKET = 0x0A  # field 1, length-delimited: TracePacket
BEGIN, END, INSTANT = 1, 2, 3
#: how a timeline that accelprof merged names who wrote it
OURS = "accelprof "
CLEARED = 1  # SEQ_INCREMENTAL_STATE_CLEARED
#: clocks from here to 127 belong to one sequence
OWN_CLOCKS = range(64, 128)
BOOTTIME = 6
#: category -> what a slice of it is
DEVICE = frozenset({"rocm_kernel_dispatch", "kernel_dispatch", "rocm_hip_stream"})
COPY = frozenset({"rocm_memory_copy", "memory_copy"})
MARKER = frozenset({"rocm_marker_api", "marker_api", "rocm_roctx"})
CALLS = frozenset(
    {
        "rocm_hip_api", "rocm_hsa_api", "rocm_rccl_api", "hip_api", "hsa_api", "rccl_api", "rocm_hip", "rocm_hsa", "hip", "hsa",
        "rocm_hip_runtime_api", "hip_runtime_api",
    }
)  # fmt: skip
HOST = {"python": Kind.OPERATOR, "user": Kind.RANGE, "host": Kind.OPERATOR}
#: where a slice names its device, stream and launch
DEVICE_KEYS = ("device", "agent", "gpu", "device_id", "agent_id", "agent_abs_index")
STREAM_KEYS = ("stream", "stream_id", "queue", "queue_id")
CORRELATION_KEYS = ("corr_id", "correlation_id", "corr", "stack_id")
_TRACK_DEVICE = re.compile(r"\[(\d+)\]|(?:GPU|Device|Agent)\D{0,3}(\d+)", re.IGNORECASE)
_TRACK_STREAM = re.compile(r"(?:Stream|Queue)\D{0,3}(\d+)", re.IGNORECASE)


def read(path: str, tool: str) -> Trace:
    try:
        protos: Any = importlib.import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    except ImportError as error:
        raise ReadError(path, f"needs the package perfetto (pip install perfetto): {error}") from None
    reader = _Reader(path, tool)
    data = content(path, reader.build.trace)
    left = allowed(len(data))
    if not data.startswith(bytes([PACKET])):
        raise ReadError(path, "not a Perfetto trace: it does not begin with a packet")
    for offset, body in _packets(data, reader):
        packet = _decoded(protos, body, reader, f"byte {offset}")
        if packet is None:
            continue
        if not packet.HasField("compressed_packets"):
            reader.packet(packet)
            continue
        inflater = zlib.decompressobj()
        try:
            inside = inflater.decompress(packet.compressed_packets, left + 1)
        except zlib.error as error:
            reader.build.bad(f"compressed packets that cannot be inflated ({error})", f"byte {offset}")
            continue
        left -= len(inside)
        if left < 0:
            raise ReadError(path, f"its compressed packets inflate to more than {MAX_RATIO} times its size; not read")
        if not inflater.eof:
            reader.cut(f"cut off: the compressed packets at byte {offset} end early; what came before counts")
        for at, inner in _packets(inside, reader, f"in the compressed packets at byte {offset}, "):
            packet = _decoded(protos, inner, reader, f"byte {at} of those compressed at byte {offset}")
            if packet is not None:
                reader.packet(packet)
    return reader.finish()


def _decoded(protos: Any, body: bytes, reader: _Reader, where: str) -> Any:
    try:
        return protos.TracePacket.FromString(body)
    except Exception as error:  # noqa: BLE001 - protobuf's DecodeError differs between its implementations
        reader.build.bad(f"packet that cannot be decoded ({error})", where)
        return None


def _packets(data: bytes, reader: _Reader, where: str = "") -> Iterator[tuple[int, bytes]]:
    """``(offset, bytes)`` of each packet; ``where``: said before the offset of what is wrong."""
    at = 0
    while at < len(data):
        offset = at
        if data[at] != PACKET:
            reader.cut(f"{where}byte {at}: no packet begins here; what follows is left out")
            return
        size, at = _varint(data, at + 1)
        if size is None or at + size > len(data):
            reader.cut(f"cut off: {where}the packet at byte {offset} does not end; what came before counts")
            return
        yield offset, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int | None, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if not byte & 0x80:
            return value, at
        shift += 7
    return None, at


class _Sequence:
    """What packets of one sequence lean on."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.categories: dict[int, str] = {}
        self.keys: dict[int, str] = {}
        self.texts: dict[int, str] = {}
        self.track = 0
        self.clock: int | None = None
        #: own clock -> [increments?, ns per unit, value at the snapshot, BOOTTIME at the snapshot, last value]
        self.clocks: dict[int, list[int]] = {}


class _Reader:
    def __init__(self, path: str, tool: str) -> None:
        self.build = Builder(path, tool, Clock.BOOTTIME)
        self.sequences: dict[int, _Sequence] = {}
        self.tracks: dict[int, Any] = {}
        #: track -> open slices, innermost last: (name, category, start, annotations)
        self.open: dict[int, list[tuple[str, str, int, dict[str, Any]]]] = {}
        #: finished ones wait until all tracks are known
        self.slices: list[tuple[int, str, str, int, int, dict[str, Any]]] = []
        self.instants: list[tuple[int, str, str, int, dict[str, Any]]] = []
        #: what slices call their devices -> which device that is
        self.devices: dict[object, int | str] = {}
        #: categories whose slices have the number of a launch
        self.numbered: set[str] = set()
        self.lost = 0
        self.orphans = 0

    def cut(self, how: str) -> None:
        """The file ends before its time."""
        self.build.trace.problems.append(how)
        self.build.trace.completeness.cut = how

    # --- packets ----------------------------------------------------------------------------------------------------

    def packet(self, packet: Any) -> None:
        if packet.HasField("system_info") and packet.system_info.tracing_service_version.startswith(OURS):
            said = "a merged timeline that accelprof wrote for Perfetto, which is not read back: give the files it was made of, "
            raise ReadError(self.build.trace.source, f"{said}or a timeline in JSON (accelprof timeline --format json)")
        sequence = self.sequences.setdefault(packet.trusted_packet_sequence_id, _Sequence())
        if packet.incremental_state_cleared or packet.sequence_flags & CLEARED:
            sequence = self.sequences[packet.trusted_packet_sequence_id] = _Sequence()
        if packet.previous_packet_dropped:
            self.lost += 1
        if packet.HasField("trace_packet_defaults"):
            defaults = packet.trace_packet_defaults
            sequence.clock = defaults.timestamp_clock_id or sequence.clock
            sequence.track = defaults.track_event_defaults.track_uuid or sequence.track
        if packet.HasField("interned_data"):
            self._intern(packet.interned_data, sequence)
        if packet.HasField("clock_snapshot"):
            self._snapshot(packet.clock_snapshot, sequence)
        if packet.HasField("track_descriptor"):
            self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("track_event"):
            self._event(packet, sequence)

    @staticmethod
    def _intern(data: Any, sequence: _Sequence) -> None:
        for item in data.event_names:
            sequence.names[item.iid] = _text(item.name)
        for item in data.event_categories:
            sequence.categories[item.iid] = _text(item.name)
        for item in data.debug_annotation_names:
            sequence.keys[item.iid] = _text(item.name)
        for item in data.debug_annotation_string_values:
            sequence.texts[item.iid] = _text(item.str)

    @staticmethod
    def _snapshot(snapshot: Any, sequence: _Sequence) -> None:
        clocks = {clock.clock_id: clock for clock in snapshot.clocks}
        boot = clocks[BOOTTIME].timestamp if BOOTTIME in clocks else 0
        for number, clock in clocks.items():
            if number in OWN_CLOCKS:
                unit = clock.unit_multiplier_ns or 1
                value = clock.timestamp * unit
                sequence.clocks[number] = [int(clock.is_incremental), unit, value, boot, value]

    def _time(self, packet: Any, sequence: _Sequence) -> int:
        number = packet.timestamp_clock_id or sequence.clock
        clock = sequence.clocks.get(number) if number is not None else None
        if clock is None:
            return int(packet.timestamp)
        incremental, unit, base, boot, last = clock
        value = packet.timestamp * unit + (last if incremental else 0)
        clock[4] = value
        return int(boot + value - base)

    def _event(self, packet: Any, sequence: _Sequence) -> None:
        event = packet.track_event
        at = self._time(packet, sequence)
        track = event.track_uuid or sequence.track
        notes = {
            (_text(note.name) or sequence.keys.get(note.name_iid, "")): _value(note, sequence)
            for note in event.debug_annotations
        }
        if event.type == END:
            stack = self.open.get(track)
            if not stack:
                self.orphans += 1
                return
            name, category, start, before = stack.pop()
            self.slices.append((track, name, category, start, at, {**before, **notes}))
            return
        name = _text(event.name) or sequence.names.get(event.name_iid, "")
        interned = sequence.categories.get(next(iter(event.category_iids), 0), "")
        category = _text(next(iter(event.categories), "")) or interned
        if event.type == BEGIN:
            self.open.setdefault(track, []).append((name, category, at, notes))
        elif event.type == INSTANT:
            self.instants.append((track, name, category, at, notes))

    # --- the end ----------------------------------------------------------------------------------------------------

    def finish(self) -> Trace:
        for track, _, category, _, _, notes in self.slices:
            if category in DEVICE or category in COPY:
                self.devices[self._said(track, notes, DEVICE_KEYS, _TRACK_DEVICE)] = UNKNOWN
            if any(key in notes for key in CORRELATION_KEYS):
                self.numbered.add(category)
        self.devices = identities(self.devices)
        for track, name, category, start, end, notes in self.slices:
            self._slice(track, name, category, start, end, notes)
        for track, name, category, at, notes in self.instants:
            if category in MARKER or category == "user":
                pid, tid = self._thread(track)
                self.build.trace.marks.append(Mark(unquoted(name), at, pid, notes.get("tid", tid), category=category))
        problems, lacks = self.build.trace.problems, self.build.trace.completeness
        unfinished = 0
        for track, stack in self.open.items():
            for name, category, start, notes in stack:
                if category in MARKER or category in HOST:
                    self._slice(track, name, category, start, OPEN, notes)
                else:
                    unfinished += category in DEVICE or category in COPY or category in CALLS
        if unfinished:
            problems.append(f"{unfinished} slice(s) without an end are left out")
            lacks.leave_out("slices without an end", unfinished)
        if self.orphans:
            problems.append(f"{self.orphans} end(s) without a beginning are left out")
            lacks.leave_out("ends without a beginning", self.orphans)
        if self.lost:
            problems.append(f"packets were dropped {self.lost} time(s): the trace buffer was full (policy discard)")
            lacks.unread.append(problems[-1])
        processes = {
            item.process.pid: _text(item.process.process_name)
            for item in self.tracks.values()
            if item.HasField("process")
        }
        trace = self.build.finish({"format": "perfetto", "processes": processes})
        if len(processes) == 1:
            trace.origin = Origin(pid=next(iter(processes)))
        return trace

    def _slice(self, track: int, name: str, category: str, start: int, end: Any, notes: dict[str, Any]) -> None:
        pid, tid = self._thread(track)
        start, end = notes.get("begin_ns", start), notes.get("end_ns", end)
        where = f"slice {name!r} at {start}"
        absent = UNKNOWN if category in self.numbered else None
        correlation = next((launch_number(notes[key]) for key in CORRELATION_KEYS if key in notes), absent)
        host = {"pid": pid, "tid": notes.get("tid", tid)}
        build = self.build
        if category in DEVICE or category in COPY:
            copy = category in COPY or name.upper().startswith("MEMORY_COPY")
            label = copy_name(name) if copy else name.removesuffix(".kd")
            kind = Kind.COPY if copy else kernel_kind(label)
            device, stream = self._place(track, notes)
            args = {"correlation": correlation}
            build.span(label, kind, start, end, where, device=device, stream=stream, args=args, **host)
        elif category in MARKER:
            operation = name if name in CONTROL_NAMES or name in MARK_NAMES else "roctxRange"
            build.marker(operation, str(notes.get("message", name)), start, end, where, **host)
        elif category in CALLS:
            args = {"correlation": correlation}
            build.span(name, call_kind(name), start, end, where, category=category, args=args, **host)
        elif category in HOST:
            build.span(name, HOST[category], start, end, where, category=category, **host)
        elif category:
            build.skipped[category] += 1
        else:
            build.lack("do not say what they are", where)

    def _thread(self, track: int) -> tuple[int | str, int | str]:
        """``(pid, tid)`` of a track, from itself or what it lies in."""
        pid = tid = 0  # which are no process's and no thread's
        seen = set()
        while track in self.tracks and track not in seen:
            seen.add(track)
            item = self.tracks[track]
            if item.HasField("thread"):
                pid, tid = pid or max(item.thread.pid, 0), tid or max(item.thread.tid, 0)
            if item.HasField("process"):
                pid = pid or max(item.process.pid, 0)
            track = item.parent_uuid
        if not pid:
            pids = {item.process.pid for item in self.tracks.values() if item.HasField("process")}
            pid = pids.pop() if len(pids) == 1 else 0
        return max(pid, 0) or UNKNOWN, tid

    def _place(self, track: int, notes: dict[str, Any]) -> tuple[int | str, int | str | None]:
        """Device and stream: from the slice, else from its track's name."""
        device = self.devices.get(self._said(track, notes, DEVICE_KEYS, _TRACK_DEVICE), UNKNOWN)
        stream = self._said(track, notes, STREAM_KEYS, _TRACK_STREAM)
        return "gpu" if device == "" else device, None if stream is None else whole_number(str(stream))

    def _said(self, track: int, notes: dict[str, Any], keys: Sequence[str], title: re.Pattern[str]) -> int | str | None:
        """What a slice calls its device or stream, else what its track's name has of it."""
        found = next((notes[key] for key in keys if key in notes), None)
        if found is not None:
            return place(found)
        hit = title.search(_text(self.tracks[track].name)) if track in self.tracks else None
        return whole_number(next(filter(None, hit.groups()))) if hit else None


def _value(note: Any, sequence: _Sequence) -> Any:
    which = note.WhichOneof("value")
    if which == "string_value_iid":
        return sequence.texts.get(note.string_value_iid, "")
    found = getattr(note, which) if which else None
    return _text(found) if isinstance(found, bytes) else found


def _text(value: Any) -> str:
    """Text as it is; protobuf gives a string that is no UTF-8 as its bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
