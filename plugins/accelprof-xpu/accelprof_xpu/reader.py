"""Reader of unitrace's Chrome trace: device work has the category ``gpu_op``, host calls and ITT tasks ``cpu_op``.

A kernel and the call that submitted it are joined by a flow whose category ends in the kernel's number (``Flow_H2D_7_0``).
Names and categories: tools/unitrace/src/chromelogger.h of intel/pti-gpu.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from accelprof.contracts.spans import Clock, Completeness, Kind, Span, Trace
from accelprof.reading.chrome_file import FLOWS, Event, arguments_of, exact_ns, flow_of, load
from accelprof.reading.columns import place
from accelprof.reading.gzipped import edges
from accelprof.reading.kernels import kernel_kind
from accelprof.texts import unquoted

HEAD = 1 << 16
#: what stands near the beginning of a torch trace, which has the category ``cpu_op`` too, and never in one of unitrace
_KINETO = (
    b'"schemaVersion"', b'"deviceProperties"', b'"user_annotation"', b'"External id"', b'"Ev Idx"', b'"Record function id"',
    b'"cuda_runtime"',
)  # fmt: skip
_CALL = re.compile(r"^(?:ze[A-Z]|zet[A-Z]|zes[A-Z]|cl[A-Z]|ur[A-Z]|pi[A-Z])\w*")
_WAIT = re.compile(
    r"^(?:zeCommandQueueSynchronize|zeFenceHostSynchronize|zeEventHostSynchronize|clFinish|clWaitForEvents)"
)
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
    named = [(event, str(arguments_of(event).get("name", ""))) for event in file.events if event.ph == "M"]
    names = {_at(event)[0]: name for event, name in named if event.name == "process_name"}
    threads = {_at(event): name for event, name in named if event.name == "thread_name"}
    bad: Counter[str] = Counter()
    begins: dict[tuple[Any, Any, int], str] = {}
    spans: list[Span] = []
    others: Counter[str] = Counter()
    for event in file.events:
        try:
            if event.ph == "X":
                spans.append(_span(event, exact_ns(bytes(event.ts)), exact_ns(bytes(event.dur)), names, threads))
            elif event.ph in FLOWS:
                flow = flow_of(event, *_at(event))
                trace.flows.append(flow)
                if flow.step == "s" and (number := _FLOW.match(flow.category)):
                    begins[flow.pid, flow.tid, flow.at_ns] = number[1]
            elif event.ph != "M":
                others[str(event.ph)] += 1
        except ValueError as error:
            bad[f"time {error}"] += 1
    for span in spans:
        if span.duration_ns < 0:
            bad["negative duration"] += 1
            continue
        launched = begins.get((span.pid, span.tid, span.start_ns)) if span.kind is Kind.RUNTIME else None
        if launched is not None:
            span.args = {**span.args, "correlation": launched}
        trace.spans.append(span)
    for reason, count in bad.items():
        trace.completeness.leave_out(reason, count)
    trace.problems += Completeness(left_out=dict(bad)).lacks()
    if others:
        trace.metadata["other_events"] = dict(others)
    return trace


def _span(event: Event, start: int, length: int, names: dict[Any, str], threads: dict[tuple[Any, Any], str]) -> Span:
    name, args, (pid, tid) = unquoted(str(event.name)), arguments_of(event), _at(event)
    device: int | str | None = None
    if event.cat == "gpu_op":
        kind = (
            Kind.COPY if _COPY.match(name) else Kind.COMMUNICATION if _COMMUNICATION.match(name) else kernel_kind(name)
        )
        device = names.get(pid, "") if _DEVICE.search(names.get(pid, "")) else "xpu"
        args = {**args, "correlation": str(args["id"])} if "id" in args else args
    elif _CALL.match(name):
        kind = Kind.SYNC if _WAIT.match(name) else Kind.RUNTIME
    else:
        kind = Kind.RANGE  # an ITT task
    stream = threads.get((pid, tid), tid) if device is not None else None
    return Span(name, kind, start, start + length, pid, tid, device=device, stream=stream, args=args)


def _at(event: Event) -> tuple[int | str, int | str]:
    """Process and thread; what is neither a number nor text, by how it is written."""
    pid, tid = (place(value) if value else 0 for value in (event.pid, event.tid))
    return pid, tid
