"""Reader of unitrace's Chrome trace: device work has the category ``gpu_op``, host calls and ITT tasks ``cpu_op``.

A kernel and the call that submitted it are joined by a flow whose category ends in the kernel's number (``Flow_H2D_7_0``).
Names and categories: tools/unitrace/src/chromelogger.h of intel/pti-gpu.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from accelprof.contracts.spans import UNKNOWN, Clock, Completeness, Kind, Span, Trace
from accelprof.reading.chrome_file import FLOWS, Event, Places, arguments_of, exact_ns, flow_of, is_letter, load
from accelprof.reading.columns import say_lack
from accelprof.reading.gzipped import edges
from accelprof.reading.kernels import kernel_kind
from accelprof.reading.numbers import identity
from accelprof.texts import unquoted

HEAD = 1 << 16
HOST, DEVICE = "cpu_op", "gpu_op"
#: what stands near the beginning of a torch trace, which has the category ``cpu_op`` too, and never in one of unitrace
_KINETO = (
    b'"schemaVersion"', b'"deviceProperties"', b'"user_annotation"', b'"External id"', b'"Ev Idx"', b'"Record function id"',
    b'"cuda_runtime"',
)  # fmt: skip
_CALL = re.compile(r"^(?:ze[A-Z]|zet[A-Z]|zes[A-Z]|cl[A-Z]|ur[A-Z]|pi[A-Z])\w*")
_WAIT = re.compile(r"^(?:ze(?:CommandQueue|FenceHost|EventHost)Synchronize|clFinish|clWaitForEvents)")
_COPY = re.compile(r"^(?:zeCommandListAppend)?Memory(?:Copy|Fill)|^clEnqueue(?:Read|Write|Copy|Fill)", re.IGNORECASE)
_COMMUNICATION = re.compile(r"(?i)^(?:ccl_|.*(?:allreduce|allgather|reduce_scatter|alltoall))")
_FLOW = re.compile(r"^(?:CL_)?Flow_(?:H2D|D2H)_(\d+)")
_DEVICE = re.compile(r"(?i)\bdevice\b")


def is_unitrace(path: str) -> bool:
    """By the categories that nobody else writes, in the file's beginning."""
    head, tail = edges(path, HEAD)
    if b'"traceEvents"' not in head or any(mark in head for mark in _KINETO):
        return False
    hosts = path.endswith(".json") and not path.endswith(".pt.trace.json") and b'"accelprof"' not in tail
    return b'"gpu_op"' in head or (hosts and b'"cpu_op"' in head)


def read_unitrace(path: str, tool: str = "unitrace") -> Trace:
    """Spans of one file.

    Raises:
        ReadError: it is not there, or no trace.
    """
    file = load(path)
    trace = Trace(path, tool, Clock.EPOCH, problems=list(file.problems), completeness=file.completeness)
    places = Places(file.events)
    numbered = any("id" in arguments_of(event) for event in file.events if event.cat == DEVICE)
    bad: Counter[str] = Counter()
    begins: dict[tuple[Any, Any, int], int | str] = {}
    arrows: set[int | str] = set()
    others: Counter[str] = Counter()
    kindless = 0
    for event in file.events:
        try:
            if event.ph == "X":
                start, length = exact_ns(bytes(event.ts)), exact_ns(bytes(event.dur))
                bad["negative duration"] += length < 0
                if length >= 0:
                    trace.spans.append(_span(event, start, start + length, places, numbered))
                    kindless += event.cat not in (HOST, DEVICE)
            elif event.ph in FLOWS:
                flow = flow_of(event, *places.of(event))
                trace.flows.append(flow)
                if number := _FLOW.match(flow.category):
                    arrows.add(identity(number[1]))
                    if flow.step == "s":
                        begins[flow.pid, flow.tid, flow.at_ns] = identity(number[1])
            elif not is_letter(event.ph):
                bad["its ph is no letter of the format"] += 1
            elif event.ph != "M":
                others[event.ph] += 1
        except ValueError as error:
            bad[f"time {error}"] += 1
    works, calls = {span.args.get("correlation") for span in trace.spans}, set[int | str]()
    for span in trace.spans:
        launched = begins.get((span.pid, span.tid, span.start_ns)) if span.kind is Kind.RUNTIME else None
        if launched is not None:
            calls.add(launched)
            span.args = {**span.args, "correlation": launched}
    # an arrow to work says that its launch was recorded
    say_lack(trace, "correlation", len((arrows & works) - calls - {UNKNOWN}), "device work")
    say_lack(trace, "category", kindless, "the host's ranges")
    for reason, count in (+bad).items():
        trace.completeness.leave_out(reason, count)
    trace.problems += Completeness(left_out=dict(+bad)).lacks()
    if others:
        trace.metadata["other_events"] = dict(others)
    return trace


def _span(event: Event, start: int, end: int, places: Places, numbered: bool) -> Span:
    name, args, (pid, tid) = unquoted(places.name(event)), arguments_of(event), places.of(event)
    device: int | str | None = None
    if event.cat == DEVICE:
        talks = _COMMUNICATION.match(name)
        kind = Kind.COPY if _COPY.match(name) else Kind.COMMUNICATION if talks else kernel_kind(name)
        device = places.processes.get(pid, UNKNOWN if places.processes else "")
        device = device if device == UNKNOWN or _DEVICE.search(device) else "xpu"
        args = {**args, "correlation": identity(args.get("id"))} if numbered else args
    elif _CALL.match(name):
        kind = Kind.SYNC if _WAIT.match(name) else Kind.RUNTIME
    else:
        kind = Kind.RANGE  # an ITT task
    stream = places.threads.get((pid, tid), tid) if device is not None else None
    return Span(name, kind, start, end, pid, tid, device=device, stream=stream, args=args)
