"""Chrome trace files as they lie on disk: events with exact times, whatever the container is like.

Format: "Trace Event Format" (chrome://tracing), as PyTorch's Kineto, torch_npu, viztracer and our own timeline write
it. The top level is an object with ``traceEvents`` or the array itself; gzip is recognised by content. Kineto's
``baseTimeNanoseconds`` is added to every ``ts``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from accelprof import texts
from accelprof.contracts.spans import FURTHEST_NS, Completeness, Flow
from accelprof.errors import ReadError
from accelprof.reading.gzipped import GZIP as GZIP
from accelprof.reading.gzipped import parts
from accelprof.reading.lenient import Repairs, objects
from accelprof.reading.numbers import identities, place, whole_number

#: what stands in place of a list, by how it begins
_VALUES = {b"{": "an object", b"n": "null", b'"': "text", b"t": "true", b"f": "false"}
#: phase letters of the ends of arrows
#: all letters of the format, those of what has no time included
_LETTERS = frozenset("BEXiIRCbnestfPNODMVvc(),")
FLOWS = ("s", "t", "f")
MARK = b"\xef\xbb\xbf"
#: places that may be the end of an event and are none (arrays of objects in arguments) before the rest is read whole
TRIES = 8
_HEAD = re.compile(rb"(?<!\\)\"traceEvents\"\s*:\s*\[")
_SCALE = (1000, 100, 10)
_ARRAY = re.compile(r"\"traceEvents\"\s*:\s*\[")
_BASE = re.compile(r"\"baseTimeNanoseconds\"\s*:\s*(\d{1,19})(?!\d)")
#: times beyond this many ns either way are no times (a signed 64-bit count of ns ends in the year 2262)
ENDLESS_NS = 1 << 63


#: a time that an event does not have; msgspec leaves a default out only when it is this very object
ABSENT = msgspec.Raw()


class Event(msgspec.Struct, omit_defaults=True, gc=False):
    """One event; times and arguments stay as the bytes of the file, so that nothing is lost on the way through."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = ABSENT
    dur: msgspec.Raw = msgspec.Raw()
    id: Any = None
    id2: Any = None
    bind_id: Any = None
    bp: Any = None
    s: Any = None
    scope: Any = None
    flow_in: Any = None
    flow_out: Any = None
    cname: Any = None
    sf: Any = None
    stack: Any = None
    esf: Any = None
    estack: Any = None
    tts: msgspec.Raw = msgspec.Raw()
    tdur: msgspec.Raw = msgspec.Raw()
    args: msgspec.Raw = msgspec.Raw()


@dataclass
class ChromeFile:
    """What a file holds.

    Attributes:
        events: in the file's order.
        top: the other keys of the top-level object.
        base_ns: to be added to every ``ts`` (0 when the file has none).
        problems: what was repaired or left out, one line each, with positions.
        completeness: the same as fields.
    """

    path: str
    events: list[Event] = field(default_factory=list)
    top: dict[str, Any] = field(default_factory=dict)
    base_ns: int = 0
    problems: list[str] = field(default_factory=list)
    completeness: Completeness = field(default_factory=Completeness)

    @property
    def state(self) -> str:
        """``complete`` | ``repaired`` | ``truncated``."""
        return "truncated" if self.completeness.cut else "repaired" if self.completeness.repaired else "complete"


def is_letter(phase: object) -> bool:
    """Whether an event's ``ph`` is one of the format's."""
    return isinstance(phase, str) and phase in _LETTERS


def hashable(value: object) -> object:
    """What stands in a file where a number or text should, as a key: lists, mappings and truth values by how they are written."""
    return value if isinstance(value, (str, int, float, type(None))) and not isinstance(value, bool) else place(value)


def load(path: str) -> ChromeFile:
    """Read one file whole. Where its events lie (``pid``, ``tid``, ``id``) can be keys, whatever stands there.

    Raises:
        ReadError: empty, not there, not JSON at all, or JSON without events; the message has the reason and the position.
    """
    stream = Stream(path, Event)
    for events in stream.blocks():
        for event in events:
            event.pid, event.tid, event.id = hashable(event.pid), hashable(event.tid), hashable(event.id)
        stream.file.events.extend(events)
    return stream.file


class Stream:
    """Reads one file once, in blocks of events, so that a file of any size takes the memory of one block.

    A block ends at a place that looks like the end of an event; that it is one is proven by decoding: what begins where
    an event begins and is a list of whole events ends where one ends. Where no such place is found, and where the text is
    no strict JSON, the rest is read whole.

    Attributes:
        file: what is not events, complete after the last block: the other keys of the top level, problems, ``base_ns``.
        head: the text before the events, known with the first block.
    """

    def __init__(self, path: str, record: type[msgspec.Struct]) -> None:
        self.file = ChromeFile(path)
        self.head = b""
        self._decoder = msgspec.json.Decoder(list[record])  # type: ignore[valid-type]

    def blocks(self) -> Iterator[list[Any]]:
        """Lists of events, in the file's order.

        Raises:
            ReadError: empty, not there, not JSON at all, or JSON without events.
        """
        yield from self._blocks()
        self.file.base_ns = _base(self.file)

    def _blocks(self) -> Iterator[list[Any]]:
        source = parts(self.file.path, self.file.problems, self.file.completeness)
        buffer = bytearray(next(source, b""))
        if buffer.startswith(MARK):
            del buffer[: len(MARK)]
        first = bytes(buffer[:4096]).lstrip()[:1]
        if first not in (b"{", b"["):
            shown = bytes(buffer[:16])
            why = f"not JSON: it begins with {shown!r}" if shown else "nothing could be decompressed"
            raise ReadError(self.file.path, why)
        head = _head(buffer, first)
        while head is None:  # the keys before the events are longer than a part
            more = next(source, None)
            if more is None:
                break
            buffer += more
            head = _head(buffer, first)
        self.head = head or b""
        skipped = len(self.head)
        del buffer[:skipped]
        splitting = True
        for part in source:
            if splitting:
                events, used = self._split(buffer)
                splitting = events is not None
                if events:
                    yield events
                    skipped += used
                    del buffer[:used]
            buffer += part
        yield self._last(bytes(buffer), self.head, skipped)

    def _split(self, buffer: bytearray) -> tuple[list[Any] | None, int]:
        """``(events, bytes used)`` of the whole events at the beginning; ``None`` when none of the tried places ends one."""
        until = len(buffer)
        for _ in range(TRIES):
            comma = -1
            while until > 0 and comma < 0:
                until = buffer.rfind(b"{", 0, until)
                before = bytes(buffer[max(until - 64, 0) : max(until, 0)]).rstrip()
                if before.endswith(b",") and before[:-1].rstrip().endswith(b"}"):
                    comma = buffer.rfind(b",", 0, until)
            if comma <= 0:
                return None, 0
            try:
                return self._events(b"".join((b"[", memoryview(buffer)[:comma], b"]"))), comma + 1
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue
        return None, 0

    def _events(self, text: bytes) -> list[Any]:
        if not text.isascii():
            text.decode("utf-8")  # raw parts are not checked by the parser
        found: list[Any] = self._decoder.decode(text)
        return found

    def _last(self, data: bytes, head: bytes, skipped: int) -> list[Any]:
        """The rest of the file: the last events, and the keys behind them."""
        file = self.file
        text = head + data
        try:
            if text.lstrip()[:1] == b"[":
                return self._events(text)
            if not text.isascii():
                text.decode("utf-8")
            top = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            raw = top.pop("traceEvents", None)
            if raw is None:
                keys = ", ".join(sorted(top)[:6])
                raise ReadError(file.path, f"JSON, but no trace: there is no traceEvents (keys: {keys or 'none'})")
            listed = bytes(raw)
            found = listed[:1]
            if found != b"[":
                raise ReadError(
                    file.path,
                    f"JSON, but no trace: traceEvents is {_VALUES.get(found, 'a number')}, not a list of events",
                )
            events = self._events(listed)
            file.top = {key: msgspec.json.decode(value) for key, value in top.items()}
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return _repair(text, file, str(error), skipped - len(head))
        return events


def _head(buffer: bytearray, first: bytes) -> bytes | None:
    """What stands before the first event; ``None`` while it is not in the buffer whole."""
    if first == b"[":
        return bytes(buffer[: buffer.index(b"[") + 1])
    for found in _HEAD.finditer(buffer):
        head = bytes(buffer[: found.end()])
        try:
            top = msgspec.json.decode(head + b"]}", type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        if bytes(top.get("traceEvents", b"")) == b"[]" or bytes(top.get("traceEvents", b""))[:-1].rstrip() == b"[":
            return head
    return None


def _base(file: ChromeFile) -> int:
    """``baseTimeNanoseconds`` of a file, 0 where it is none."""
    base = file.top.get("baseTimeNanoseconds", 0)
    number = whole_number(base) if isinstance(base, str) else base
    if type(number) is int and 0 <= number < FURTHEST_NS:
        return number
    file.problems.append(f"baseTimeNanoseconds is {str(base)[:80]!r}; taken as 0")
    file.completeness.mend("baseTimeNanoseconds that is no time")
    return 0


def _repair(data: bytes, file: ChromeFile, reason: str, offset: int) -> list[Any]:
    """The events of text that is no strict JSON; ``offset`` is added to positions in messages."""
    text = data.decode("utf-8", "replace").lstrip("\ufeff")
    stripped = len(text) - len(text.lstrip())
    found = None
    if text[stripped] == "[":
        start = stripped + 1
    else:
        found = _ARRAY.search(text)
        if found is None and _is_lines(text):
            raise ReadError(
                file.path, "JSON lines (a document on each line), and no trace: there is no traceEvents in it"
            )
        if found is None:
            raise ReadError(file.path, f"not readable as JSON ({reason}), and no traceEvents in it")
        start = found.end()
    repairs = Repairs(offset)
    found_events = list(objects(text, start, repairs))
    if not found_events and repairs.left_out and not repairs.ended and not offset:
        what = next(iter(repairs.left_out))
        raise ReadError(file.path, f"JSON, but no trace: {what}, and no event at all")
    end = found_events[-1][1] if found_events else start
    close = text.find("]", end)
    rest = text[close + 1 :] if close >= 0 and not repairs.ended else ""
    behind = 0
    if found is not None:
        file.top, behind = _top(text[:start], rest)
    file.problems.append(f"not strictly JSON: {reason}")
    file.problems.extend(repairs.lines())
    whole = file.completeness
    whole.mend("text that is no strict JSON")
    for what, (count, _) in repairs.mended.items():
        whole.mend(what, count)
    for what, (count, _) in repairs.left_out.items():
        whole.leave_out(what, count)
    if repairs.ended and not whole.cut:
        whole.cut = repairs.ended
    extra = rest[behind:].strip(" \t\r\n,")
    if extra:
        at = offset + len(text) - len(rest) + behind
        kind = "a second document" if extra[0] in "{[" else f"{extra[:20]!r}"
        whole.unread.append(f"{len(extra):,} characters behind the trace: {kind} from character {at} on")
        file.problems.append(f"not read: {whole.unread[-1]}")
    return [_event(value) for value, _ in found_events]


def _is_lines(text: str) -> bool:
    """Whether the first two lines that have something are documents of their own."""
    lines = [line for line in text[: 1 << 20].splitlines() if line.strip()][:2]
    try:
        return len(lines) == 2 and all(isinstance(json.loads(line), (dict, list)) for line in lines)
    except (ValueError, RecursionError):
        return False


def _top(before: str, after: str) -> tuple[dict[str, Any], int]:
    """The other keys, and how many characters of ``after`` belong to the object."""
    decoder = json.JSONDecoder(strict=False)
    for rest in (after, "}"):
        try:
            top, end = decoder.raw_decode((before + "]" + rest).lstrip())
        except (ValueError, RecursionError):
            continue
        top.pop("traceEvents", None)
        stripped = len(before) - len(before.lstrip())
        return dict(top), max(end + stripped - len(before) - 1, 0) if rest is after else 0
    base = _BASE.search(before) or _BASE.search(after)
    return {"baseTimeNanoseconds": int(base.group(1))} if base is not None else {}, len(after)


_FIELDS = frozenset(Event.__struct_fields__)
_RAW = frozenset({"ts", "dur", "tts", "tdur"})


def _event(value: dict[str, Any]) -> Event:
    fields: dict[str, Any] = {}
    for key, item in value.items():
        if key in _RAW:
            fields[key] = msgspec.Raw(json.dumps(item).encode() if isinstance(item, str) else str(item).encode())
        elif key == "args":
            fields[key] = msgspec.Raw(json.dumps(_clean(item)).encode())
        elif key in _FIELDS:
            fields[key] = _clean(item)
    return Event(**fields)


def _clean(value: object) -> object:
    """``value`` as strict JSON can hold it: NaN and infinities become their names, halves of surrogate pairs their numbers."""
    if isinstance(value, str):
        return texts.encodable(value)
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and value - value != 0.0:
        return str(value)
    return value


def flow_of(event: Event, pid: int | str, tid: int | str) -> Flow:
    """An event of the letter ``s``, ``t`` or ``f``.

    Raises:
        BadTimeError: its time is none.
    """
    identity = event.id if event.id is not None else event.id2
    category = event.cat if isinstance(event.cat, str) else ""
    following = event.ph == "f" and event.bp != "e"
    return Flow(str(event.name), event.ph, hashable(identity), exact_ns(bytes(event.ts)), pid, tid, category, following)


class Places:
    """Processes and threads of the events of one file, and what it calls them.

    Attributes:
        processes, threads: names by number, of those that have one.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self._pids = identities(event.pid for event in events)
        self._tids = identities((event.tid for event in events if event.ph != "M"), negative=True)
        told = [(event, arguments_of(event).get("name")) for event in events if event.ph == "M"]
        named = [(event, name) for event, name in told if isinstance(name, str) and name]
        self.processes = {self.of(event)[0]: name for event, name in named if event.name == "process_name"}
        self.threads = {self.of(event): name for event, name in named if event.name == "thread_name"}

    def of(self, event: Event) -> tuple[int | str, int | str]:
        """Process and thread of an event."""
        return self._pids[event.pid], self._tids.get(event.tid, place(event.tid))

    @staticmethod
    def name(event: Event) -> str:
        """An event's name; empty where that is no text."""
        return event.name if isinstance(event.name, str) else ""


class BadTimeError(ValueError):
    """A time that is missing, not a number or endless; the message says which."""


def exact_ns(raw: bytes) -> int:
    """A time in µs, number or string, as whole ns (rounded half to even below 1 ns).

    Raises:
        BadTimeError: missing, NaN, infinite, beyond 64 bits, or no number.
    """
    whole, _, fraction = raw.partition(b".")
    digits = whole + fraction
    places = len(fraction)
    if places > 3 or not digits.isdigit() or len(whole) > 16:
        return _slow_ns(raw)
    return int(digits) if places == 3 else int(digits) * _SCALE[places]


def _slow_ns(raw: bytes) -> int:
    word = raw.strip().strip(b'"').strip().decode("ascii", "replace")
    if not word or word == "null":
        raise BadTimeError("missing")
    try:
        value = Decimal(word)
    except InvalidOperation:
        raise BadTimeError("not a number") from None
    if value.is_nan():
        raise BadTimeError("NaN")
    if value.is_infinite() or value.adjusted() > 20 or abs(value) * 1000 >= ENDLESS_NS:
        raise BadTimeError("endless")
    return int((value * 1000).to_integral_value()) if value.adjusted() > -20 else 0


def arguments_of(event: Event) -> dict[str, Any]:
    """An event's arguments; empty where it has none."""
    raw = bytes(event.args)
    return dict(Arguments(raw)) if raw and raw != b"{}" else {}


class Arguments(Mapping[str, Any]):
    """Arguments of an event, decoded when first looked at: most events of a large file are never asked for theirs."""

    __slots__ = ("_raw", "_values")

    def __init__(self, raw: msgspec.Raw | bytes) -> None:
        self._raw = raw
        self._values: dict[str, Any] | None = None

    def _decoded(self) -> dict[str, Any]:
        if self._values is None:
            try:
                value = msgspec.json.decode(self._raw)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                value = {"unreadable": str(error)}
            self._values = value if isinstance(value, dict) else {"value": value}
        return self._values

    def __getitem__(self, key: str) -> Any:
        return self._decoded()[key]

    def get(self, key: str, default: object = None) -> Any:
        return self._decoded().get(key, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __len__(self) -> int:
        return len(self._decoded())

    def __repr__(self) -> str:
        return repr(self._decoded())

    def __reduce__(self) -> tuple[object, ...]:
        return (dict, (self._decoded(),))
