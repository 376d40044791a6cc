"""Reader of ``trace_view.json``: a Chrome trace whose times are text, whose top level is a list, and whose device rows
have no category; the process they stand under says what they are.
"""

from __future__ import annotations

import re
from collections import Counter

from accelprof.contracts.spans import DEVICE_WORK, Kind, Mark, Span, Trace
from accelprof.reading import sqlite
from accelprof.reading.chrome_file import FLOWS, Event, arguments_of, exact_ns, flow_of, is_letter, load
from accelprof.reading.gzipped import edges
from accelprof.texts import unquoted
from accelprof_ascend import kinds
from accelprof_ascend.times import clock_of, leave_out

_LABEL = re.compile(r"NPU\s*(\d+)")
_FLOW = "async_npu"
#: what only such a trace has: names of its processes, arrows, arguments
_DEVICE = re.compile(rb'"name": ?"(?:Ascend Hardware|CANN|Overlap Analysis)"')
_MARKS = re.compile(
    rb'"(?:Ascend Hardware|CANN|Overlap Analysis|async_npu|HostToDevice|async_task_queue|Task Type|msproftx)"'
)
#: categories that only Kineto has
_KINETO = re.compile(rb'"cat": ?"(?:kernel|(?:cuda|hip|xpu)_(?:runtime|driver)|gpu_\w+|ac2g)"')
Place = tuple[object, object]


def is_one(path: str, called: bool) -> bool:
    """Whether a file is such a trace, by what stands at its ends. ``called``: it has the name of one, which decides where they
    say nothing and it is a list, as torch_npu and msprof write it."""
    if sqlite.is_one(path):
        return False
    head, tail = edges(path)
    first = head.lstrip()[:1]
    if first == b"{":  # a merged timeline has the arrows of such a trace
        return any(_DEVICE.search(text) for text in (head, tail)) and b'"accelprof"' not in head + tail
    if first == b"[" and any(_MARKS.search(text) for text in (head, tail)):
        return True
    return called and not any(_KINETO.search(text) for text in (head, tail))


def read_trace_view(path: str, tool: str = "npu") -> Trace:
    """Spans of one file. ``Trace.metadata`` has ``state``, ``events`` by phase letter and ``processes``.

    A kernel and the host row that launched it carry the same ``args["correlation"]``.

    Raises:
        ReadError: empty, not there, or no trace.
    """
    file = load(path)
    trace = Trace(source=path, tool=tool, problems=list(file.problems), completeness=file.completeness)
    names, threads, labels = _names(file.events)
    events: Counter[str] = Counter(str(event.ph) for event in file.events)
    bad: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for event in file.events:
        if event.ph == "X":
            try:
                start, length = exact_ns(bytes(event.ts)), exact_ns(bytes(event.dur))
            except ValueError as error:
                bad[f"time {error}"] += 1
                continue
            if length < 0:
                bad["negative duration"] += 1
                continue
            trace.spans.append(_span(event, start, start + length, names, threads, labels))
        elif event.ph in ("i", "I", "R"):
            try:
                trace.marks.append(
                    Mark(unquoted(str(event.name)), exact_ns(bytes(event.ts)), event.pid or 0, event.tid or 0)
                )
            except ValueError as error:
                bad[f"time {error}"] += 1
        elif event.ph in FLOWS:
            try:
                trace.flows.append(flow_of(event, event.pid or 0, event.tid or 0))
            except ValueError as error:
                bad[f"time {error}"] += 1
        elif not is_letter(event.ph):
            bad["of no kind (ph)"] += 1
        elif event.ph != "M":
            others[event.ph] += 1
    unnamed = sum(event.ph == "X" and event.pid not in names for event in file.events) if names else 0
    if unnamed:
        line = f"{unnamed} events are of processes that the file does not name; whether they are work of a device it does not say"
        trace.unread(line)
    _launches(file.events, trace.spans)
    leave_out(trace, bad, "event")
    if others:
        trace.metadata["other_events"] = dict(others)
    if not trace.spans:
        trace.problems.append("the file holds no intervals")
    trace.clock = clock_of(span.start_ns for span in trace.spans)
    trace.metadata.update(
        state=file.state,
        events=dict(sorted(events.items())),
        event_count=len(file.events),
        processes=sorted(set(names.values())),
        process_names=names,
        thread_names={pid: {row[1]: name for row, name in threads.items() if row[0] == pid} for pid, _ in threads},
    )
    return trace


def _names(events: list[Event]) -> tuple[dict[object, str], dict[Place, str], dict[object, str]]:
    """Names of processes and threads, and labels of processes, from the metadata events."""
    names: dict[object, str] = {}
    threads: dict[Place, str] = {}
    labels: dict[object, str] = {}
    for event in events:
        if event.ph != "M":
            continue
        args = arguments_of(event)
        if event.name == "process_name":
            if isinstance(args.get("name"), str) and args["name"]:
                names[event.pid] = args["name"]
        elif event.name == "thread_name":
            threads[event.pid, event.tid] = str(args.get("name", ""))
        elif event.name == "process_labels":
            labels[event.pid] = str(args.get("labels", ""))
    return names, threads, labels


def _span(
    event: Event, start: int, end: int, names: dict[object, str], threads: dict[Place, str], labels: dict[object, str]
) -> Span:
    name, args = unquoted(str(event.name)), arguments_of(event)
    category = event.cat if isinstance(event.cat, str) else ""
    process = names.get(event.pid, "")
    kind = kinds.PROCESSES.get(process.casefold(), Kind.RANGE)
    if kind is Kind.OPERATOR:
        kind = kinds.CATEGORIES.get(category, Kind.OPERATOR)
    device: int | str | None = None
    stream: int | str | None = None
    if kind in DEVICE_WORK or kind is Kind.DEVICE_ANNOTATION:
        label = _LABEL.search(labels.get(event.pid, ""))
        device = int(label.group(1)) if label else "npu"
        stream = args.get("Stream Id", event.tid)
        if kind is Kind.KERNEL:
            kind = kinds.device_kind(name, str(args.get("Task Type", "")))
        elif kind is Kind.COMMUNICATION and threads.get((event.pid, event.tid), "").startswith("Plane"):
            kind = Kind.DEVICE_ANNOTATION  # the tasks a collective is made of; the group's own row holds the collective
    else:
        kind = kinds.host_kind(name, kind)
    return Span(
        name, kind, start, end, event.pid or 0, event.tid or 0, category=category or process,
        domain=str(args.get("domain", args.get("Domain", ""))), device=device, stream=stream, args=args,
    )  # fmt: skip


def _launches(events: list[Event], spans: list[Span]) -> None:
    """Tie kernels to the host row where the flow ``async_npu`` (torch's thread) begins.

    CANN's own rows run on the thread of torch_npu's task queue, which no phase runs on.
    """
    begins: dict[object, tuple[object, object, int]] = {}
    ends: list[tuple[object, tuple[object, object, int]]] = []
    for event in events:
        if event.cat == _FLOW and event.ph in ("s", "f"):
            try:
                place = (event.pid, event.tid, exact_ns(bytes(event.ts)))
            except ValueError:
                continue
            if event.ph == "s":
                begins[event.id] = place
            else:
                ends.append((event.id, place))
    at: dict[tuple[object, object, int], Span] = {}
    for span in spans:
        place = (span.pid, span.tid, span.start_ns)
        known = at.get(place)
        if known is None or span.end_ns < known.end_ns:  # the innermost of those that begin together
            at[place] = span
    for flow, place in ends:
        launch, work = at.get(begins.get(flow, place)), at.get(place)
        if launch is None or work is None or launch is work:
            continue
        correlation = f"{launch.pid}:{launch.tid}:{launch.start_ns}"
        work.args = {**work.args, "correlation": correlation}
        if launch.args.get("correlation") != correlation:
            launch.args = {**launch.args, "correlation": correlation}
            launch.kind = Kind.RUNTIME
