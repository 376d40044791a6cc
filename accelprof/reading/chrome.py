"""Reader of Chrome traces (Kineto and others) into spans. Categories become kinds by the tables below."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from accelprof.contracts.spans import DEVICE_WORK, Clock, Kind, Mark, Origin, Span, Trace
from accelprof.reading.chrome_file import BadTimeError, ChromeFile, Event, exact_ns, load

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
        self.trace = Trace(source=file.path, tool=tool, problems=list(file.problems), completeness=file.completeness)
        self.bad: Counter[str] = Counter()
        self.open: dict[tuple[Any, Any], list[tuple[Event, int]]] = {}
        self.pending: dict[tuple[Any, Any, Any], list[tuple[Event, int]]] = {}
        self.unmatched: Counter[str] = Counter()
        self.kinds: dict[Any, Kind] = {}
        self.first: int | None = None
        #: the fields that our own timeline keeps in the arguments are looked for in our own files only
        self.ours = _facts(file.top) is not None

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
            mark = Mark(
                str(event.name), at, _place(event.pid), _place(event.tid), category=str(event.cat or ""), args=args
            )
            if self.ours:
                mark.domain, mark.color = str(args.get("domain", "")), str(args.get("color", ""))
                mark.category = str(args.get("category", ""))
            self.trace.marks.append(mark)

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
        if self.first is None or start < self.first:
            self.first = start
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
        span = Span(
            name, kind, start, end, _place(event.pid), _place(event.tid), "", "", category, "", device, stream, args
        )
        if self.ours and args:
            span.task, span.domain = str(args.get("task", "")), str(args.get("domain", ""))
            span.category, span.color = str(args.get("category", "")), str(args.get("color", ""))
        self.trace.spans.append(span)

    def _finish(self, counts: Counter[str]) -> None:
        trace, top = self.trace, self.file.top
        unclosed = sum(map(len, self.open.values())) + sum(map(len, self.pending.values()))
        if unclosed:
            self.unmatched["begins without an end"] = unclosed
        for what, count in [*self.bad.items(), *self.unmatched.items()]:
            trace.problems.append(f"left out: {count} event{'s' * (count != 1)}, {what}")
            trace.completeness.leave_out(what, count)
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
        ours = _facts(top)
        if ours is not None:
            trace.metadata["accelprof"] = ours
            dropped = ours.get("dropped")
            trace.completeness.dropped = dropped if isinstance(dropped, int) else 0


class Arguments(Mapping[str, Any]):
    """Arguments of an event, decoded when first looked at: most events of a large file are never asked for theirs."""

    __slots__ = ("_raw", "_values")

    def __init__(self, raw: msgspec.Raw) -> None:
        self._raw = raw
        self._values: dict[str, Any] | None = None

    def _decoded(self) -> dict[str, Any]:
        if self._values is None:
            value = msgspec.json.decode(self._raw)
            self._values = value if isinstance(value, dict) else {"value": value}
        return self._values

    def __getitem__(self, key: str) -> Any:
        return self._decoded()[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self._decoded().get(key, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __len__(self) -> int:
        return len(self._decoded())

    def __repr__(self) -> str:
        return repr(self._decoded())

    def __reduce__(self) -> tuple[Any, ...]:
        return (dict, (self._decoded(),))


NO_ARGUMENTS: Mapping[str, Any] = MappingProxyType({})


def _args(event: Event) -> Mapping[str, Any]:
    raw = event.args
    return Arguments(raw) if bytes(raw) not in (b"", b"{}") else NO_ARGUMENTS


def _place(value: Any) -> int | str:
    """A pid or tid: a number, or text such as ``Spans``."""
    return (
        value if isinstance(value, (int, str)) and not isinstance(value, bool) else "" if value is None else str(value)
    )


def _facts(top: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What our own timeline says of itself, ``None`` for other files."""
    other = top.get("otherData")
    ours = other.get("accelprof") if isinstance(other, dict) else None
    return ours if isinstance(ours, dict) else None


def _origin(top: dict[str, Any]) -> Origin:
    ours = _facts(top)
    if ours is not None:
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
