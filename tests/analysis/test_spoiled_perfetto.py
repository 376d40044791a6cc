"""The generator of spoiled rows for Perfetto traces of rocprof-sys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.test_spoiled_rows import figures, skip_without
from tests.fuzz.files import module_of

#: field of an annotation -> a value that names no device and no launch
ODD = {"string_value": "text", "int_value": -1, "double_value": 1.5, "bool_value": True, "uint_value": 2**64 - 1}


def a_trace(protos: Any) -> Any:
    """A range with two launches, two kernels, a collective and a copy."""
    writer = module_of("plugins/accelprof-rocm/tests/test_rocm_readers.py").Writer(protos)
    writer.begin()
    writer.event(3, 5, 2, "accelprof window begin w1", "rocm_marker_api")
    writer.event(1, 10, 2, "actor/update", "rocm_marker_api")
    for at, number in enumerate((21, 22, 23, 24), 12):
        writer.slice(at, at, 2, "hipLaunchKernel", "rocm_hip_api", corr_id=number)
    writer.slice(20, 30, 3, "gemm.kd", "rocm_hip_stream", corr_id=21, device=1, stream=5)
    writer.slice(31, 50, 3, "other.kd", "rocm_hip_stream", corr_id=22, device=1, stream=5)
    writer.slice(51, 55, 3, "ncclDevKernel_Generic", "rocm_hip_stream", corr_id=23, device=0, stream=5)
    writer.slice(61, 63, 5, "MEMORY_COPY_HOST_TO_DEVICE", "rocm_memory_copy", corr_id=24, device=1, stream=3)
    writer.event(2, 70, 2)
    writer.event(3, 80, 2, "accelprof window end w1", "rocm_marker_api")
    return writer.trace


def spoiled(protos: Any) -> Iterator[tuple[object, Any]]:
    """What was spoiled, and the trace."""
    for at, packet in enumerate(a_trace(protos).packet):
        event, descriptor = packet.track_event, packet.track_descriptor
        for owner in ("thread", "process") if packet.HasField("track_descriptor") else ():
            for field in ("pid", "tid") if owner == "thread" else ("pid",):
                for value in (-1, 0) if descriptor.HasField(owner) else ():
                    trace = a_trace(protos)
                    setattr(getattr(trace.packet[at].track_descriptor, owner), field, value)
                    yield (at, owner, field, value), trace
        for number, note in enumerate(event.debug_annotations):
            for kind, value in ODD.items():
                trace = a_trace(protos)
                setattr(trace.packet[at].track_event.debug_annotations[number], kind, value)
                yield (at, note.name, value), trace
            if note.name != "corr_id" or event.categories[0] == "rocm_hip_stream":
                trace = a_trace(protos)
                del trace.packet[at].track_event.debug_annotations[number]
                yield (at, note.name, "gone"), trace
        for field in ("type", "track_uuid", "categories") if packet.HasField("track_event") else ():
            trace = a_trace(protos)
            trace.packet[at].track_event.ClearField(field)
            yield (at, field, "gone"), trace


def test_a_value_of_a_perfetto_trace(tmp_path: Path) -> None:
    """Gone, text, negative, a fraction or endless: what runs on a device is in the figures as it was, or the file says what is not."""
    skip_without("rocprof_sys")
    protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    path = tmp_path / "x-perfetto-trace-41.proto"
    path.write_bytes(a_trace(protos).SerializeToString())
    good = figures(path, "rocprof_sys")
    assert good[1:] == ([("actor/update", 3, 3)], True)
    assert len(good[0]) == 4
    unsaid, count = [], 0
    for what, trace in spoiled(protos):
        path.write_bytes(trace.SerializeToString())
        found, count = figures(path, "rocprof_sys"), count + 1
        if found != good and found[2]:
            unsaid.append((what, found))
    assert count > 100
    assert unsaid == []
