"""Reader of Chrome traces (Kineto and others) into spans. Categories become kinds by the tables below."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec

from accelprof.analysis.chrome_file import BadTimeError, ChromeFile, Event, exact_ns, load
from accelprof.spans import DEVICE_WORK, Clock, Kind, Mark, Origin, Span, Trace

#: category of an event, case-folded -> kind. Kineto's are those of ``libkineto/include/ActivityType.h``; the capitalised
#: ones without underscore are older (torch up to 1.11).
KINDS: dict[str, Kind] = {
    **{kind.value: kind for kind in (Kind.PHASE, Kind.RANGE, Kind.STEP, Kind.WINDOW)},
    "cpu_op": Kind.OPERATOR,
    "operator": Kind.OPERATOR,
    "python_function": Kind.OPERATOR,
    "fee": Kind.OPERATOR,
    "user_annotation": Kind.RANGE,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.COPY,
    "memcpy": Kind.COPY,
    "gpu_memset": Kind.MEMSET,
    "memset": Kind.MEMSET,
    "runtime": Kind.RUNTIME,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "hip_runtime": Kind.RUNTIME,
    "hip_driver": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "xpu_driver": Kind.RUNTIME,
    "mtia_runtime": Kind.RUNTIME,
    "glow_runtime": Kind.RUNTIME,
    "privateuse1_runtime": Kind.RUNTIME,
    "privateuse1_driver": Kind.RUNTIME,
    "overhead": Kind.RUNTIME,
    "cuda_sync": Kind.SYNC,
    "trace": Kind.WINDOW,
}
#: kernels that move data between devices, by the beginning of their name (arguments and namespaces are skipped)
COMMUNICATION = re.compile(
    r"^(?:void )?(?:\w+::)*(?:mscclpp?|nccl|rccl|hccl|hcom_|nvshmem|oneccl|cross_device_reduce|multimem_|"
    r"(?:one|two)_?shot_?all_?reduce|allreduce_fusion)",
    re.IGNORECASE,
)
#: host calls that wait for the device
WAITING = re.compile(r"^(?:cu(?:da)?|hip)(?:Device|Stream|Event|Ctx|Thread)Synchronize|^aclrtSynchronize")
PROFILER_STEP = re.compile(r"^ProfilerStep\*?#(\d+)$")
#: Unix-epoch times of 2005 to 2100, in ns
_EPOCH_NS = (1_104_537_600_000_000_000, 4_102_444_800_000_000_000)
_SHOWN = ("deviceProperties", "distributedInfo", "traceName", "schemaVersion", "cuda_runtime_version",
          "cuda_driver_version", "hip_runtime_version", "hip_driver_version", "metadata")  # fmt: skip


def read_chrome(path: str, tool: str) -> Trace:
    """Read a Chrome trace, ``.json`` or gzip by content, as the file of ``tool``.

    ``Trace.metadata`` has ``state`` (complete | repaired | truncated), ``events`` (count by phase letter), ``event_count``.

    Raises:
        ReadError: empty, not there, or no trace; the message has the reason and the position.
    """
    return to_trace(load(path), tool)


def to_trace(file: ChromeFile, tool: str) -> Trace:
    """Spans and marks of a loaded file; events whose times are no times are counted, named and left out."""
    reading = _Reading(file, tool)
    reading.all()
    return reading.trace


class _Reading:
    def __init__(self, file: ChromeFile, tool: str) -> None:
        self.file, self.base = file, file.base_ns
        self.trace = Trace(source=file.path, tool=tool, problems=list(file.problems))
        self.bad: Counter[str] = Counter()
        self.open: dict[tuple[Any, Any], list[tuple[Event, int]]] = {}
        self.pending: dict[tuple[Any, Any, Any], list[tuple[Event, int]]] = {}
        self.unmatched: Counter[str] = Counter()
        self.kinds: dict[Any, Kind] = {}
        self.first: int | None = None

    def all(self) -> None:
        counts: Counter[str] = Counter()
        for event in self.file.events:
            phase = event.ph
            counts[str(phase)] += 1
            if phase == "X":
                self._complete(event)
            elif phase in ("B", "E", "b", "e", "i", "I", "R"):
                self._other(event, str(phase))
        self._finish(counts)

    def _complete(self, event: Event) -> None:
        try:
            start = exact_ns(bytes(event.ts)) + self.base
        except BadTimeError as bad:
            self.bad[f"start {bad}"] += 1
            return
        try:
            duration = exact_ns(bytes(event.dur))
        except BadTimeError as bad:
            self.bad[f"duration {bad}"] += 1
            return
        if duration < 0:
            self.bad["negative duration"] += 1
            return
        self._span(event, start, start + duration)

    def _other(self, event: Event, phase: str) -> None:
        try:
            at = exact_ns(bytes(event.ts)) + self.base
        except BadTimeError as bad:
            self.bad[f"time {bad}"] += 1
            return
        if phase == "B":
            self.open.setdefault((event.pid, event.tid), []).append((event, at))
        elif phase == "E":
            stack = self.open.get((event.pid, event.tid))
            self._ended(stack, at, "ends without a begin")
        elif phase == "b":
            self.pending.setdefault(self._async_key(event), []).append((event, at))
        elif phase == "e":
            self._ended(self.pending.get(self._async_key(event)), at, "asynchronous ends without a begin")
        else:
            args = _args(event)
            self.trace.marks.append(
                Mark(
                    str(event.name),
                    at,
                    _place(event.pid),
                    _place(event.tid),
                    str(args.get("domain", "")),
                    str(event.cat or ""),
                    str(args.get("color", "")),
                    args,
                )
            )

    @staticmethod
    def _async_key(event: Event) -> tuple[Any, Any, Any]:
        return (
            event.cat,
            str(event.id if event.id is not None else event.id2),
            event.pid if event.id is None else None,
        )

    def _ended(self, stack: list[tuple[Event, int]] | None, at: int, otherwise: str) -> None:
        if not stack:
            self.unmatched[otherwise] += 1
            return
        event, start = stack.pop()
        if at < start:
            self.bad["negative duration"] += 1
            return
        self._span(event, start, at)

    def _span(self, event: Event, start: int, end: int) -> None:
        name = event.name if isinstance(event.name, str) else str(event.name)
        category = event.cat if isinstance(event.cat, str) else "" if event.cat is None else str(event.cat)
        kind = self.kinds.get(category)
        if kind is None:
            kind = self.kinds[category] = KINDS.get(category.casefold(), Kind.RANGE)
        args = _args(event)
        device = stream = None
        if kind in DEVICE_WORK or kind is Kind.DEVICE_ANNOTATION:
            device = args.get("device", event.pid)
            stream = args.get("stream", event.tid)
            if kind is Kind.KERNEL and COMMUNICATION.match(name):
                kind = Kind.COMMUNICATION
        elif kind is Kind.RUNTIME and WAITING.match(name):
            kind = Kind.SYNC
        elif PROFILER_STEP.match(name):
            kind = Kind.STEP
        if self.first is None or start < self.first:
            self.first = start
        self.trace.spans.append(
            Span(
                name,
                kind,
                start,
                end,
                _place(event.pid),
                _place(event.tid),
                str(args.get("task", "")),
                str(args.get("domain", "")),
                str(args.get("category", category)),
                str(args.get("color", "")),
                device,
                stream,
                args,
            )
        )

    def _finish(self, counts: Counter[str]) -> None:
        trace, top = self.trace, self.file.top
        unclosed = sum(map(len, self.open.values())) + sum(map(len, self.pending.values()))
        if unclosed:
            self.unmatched["begins without an end"] = unclosed
        for what, count in [*self.bad.items(), *self.unmatched.items()]:
            trace.problems.append(f"left out: {count} event{'s' * (count != 1)}, {what}")
        if not self.file.events:
            trace.problems.append("the file holds no events")
        trace.metadata.update(
            state=self.file.state, events=dict(sorted(counts.items())), event_count=len(self.file.events)
        )
        trace.metadata.update({key: top[key] for key in _SHOWN if key in top})
        starts = [mark.at_ns for mark in trace.marks[:1]]
        first = self.first if self.first is not None else (starts[0] if starts else None)
        if first is not None and _EPOCH_NS[0] <= first <= _EPOCH_NS[1]:
            trace.clock = Clock.EPOCH
        trace.origin = _origin(top)
        other = top.get("otherData")
        if isinstance(other, dict) and isinstance(other.get("accelprof"), dict):
            trace.metadata["accelprof"] = other["accelprof"]


def _args(event: Event) -> dict[str, Any]:
    raw = bytes(event.args)
    if not raw or raw == b"{}":
        return {}
    value = msgspec.json.decode(raw)
    return value if isinstance(value, dict) else {"value": value}


def _place(value: Any) -> int | str:
    """A pid or tid: a number, or text such as ``Spans``."""
    return (
        value if isinstance(value, (int, str)) and not isinstance(value, bool) else "" if value is None else str(value)
    )


def _origin(top: dict[str, Any]) -> Origin:
    other = top.get("otherData")
    ours = other.get("accelprof") if isinstance(other, dict) else None
    if isinstance(ours, dict):
        roles, window = ours.get("roles") or [], ours.get("window")
        return Origin(
            group=ours.get("group"),
            role="+".join(map(str, roles)) or None,
            rank=ours.get("rank"),
            replica=ours.get("replica"),
            host=ours.get("host"),
            pid=ours.get("pid"),
            windows=(window,) if isinstance(window, str) else (),
            steps=tuple(step for step in ours.get("steps") or () if isinstance(step, int)),
        )
    distributed = top.get("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    host = top.get("host_name")
    return Origin(rank=rank if isinstance(rank, int) else None, host=host if isinstance(host, str) else None)
