"""Chrome trace files as they lie on disk: events with exact times, whatever the container is like.

Format: "Trace Event Format" (chrome://tracing), as PyTorch's Kineto, torch_npu, viztracer and our own timeline write
it. The top level is an object with ``traceEvents`` or the array itself; gzip is recognised by content. Kineto's
``baseTimeNanoseconds`` is added to every ``ts``.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from accelprof.contracts.spans import Completeness
from accelprof.errors import ReadError
from accelprof.reading.lenient import Repairs, objects

GZIP = b"\x1f\x8b"
_CHUNK = 1 << 18
_SCALE = (1000, 100, 10)
_ARRAY = re.compile(r"\"traceEvents\"\s*:\s*\[")
_BASE = re.compile(r"\"baseTimeNanoseconds\"\s*:\s*(\d+)")
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


def load(path: str) -> ChromeFile:
    """Read one file.

    Raises:
        ReadError: empty, not there, not JSON at all, or JSON without events; the message has the reason and the position.
    """
    data, problems = read_bytes(path)
    file = ChromeFile(path, problems=problems, completeness=Completeness(cut="; ".join(problems)))
    begin = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if begin not in (b"{", b"["):
        shown = data[:16]
        raise ReadError(path, f"not JSON: it begins with {shown!r}" if shown else "nothing could be decompressed")
    try:
        _strict(data.removeprefix(b"\xef\xbb\xbf"), file)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _repair(data, file, str(error))
    base = file.top.get("baseTimeNanoseconds", 0)
    try:
        file.base_ns = int(base)
    except (TypeError, ValueError):
        file.problems.append(f"baseTimeNanoseconds is {base!r}; taken as 0")
    return file


def read_bytes(path: str) -> tuple[bytes, list[str]]:
    """The file's content, decompressed when it is gzip inside (any number of members), and what is wrong with it.

    Raises:
        ReadError: the file cannot be read or has 0 bytes.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ReadError(path, error.strerror or str(error)) from None
    if not data:
        raise ReadError(path, "the file is empty (0 bytes)")
    if not data.startswith(GZIP):
        return data, []
    parts: list[bytes] = []
    at = 0
    while data.startswith(GZIP, at):
        member = zlib.decompressobj(31)
        while not member.eof and at < len(data):
            chunk = data[at : at + _CHUNK]
            try:
                parts.append(member.decompress(chunk))
            except zlib.error as error:
                return b"".join(parts), [f"the gzip stream is damaged near byte {at}: {error}"]
            at += len(chunk) - len(member.unused_data)
        if not member.eof:
            parts.append(member.flush())
            return b"".join(parts), [f"the gzip stream is cut off at byte {len(data)}"]
        while data.startswith(b"\0", at):
            at += 1  # padding, as tar and tape drives add it
    extra = len(data) - at
    return b"".join(parts), [f"{extra} bytes after the gzip stream are no gzip (from byte {at})"] if extra > 0 else []


def _strict(data: bytes, file: ChromeFile) -> None:
    if not data.isascii():
        data.decode("utf-8")  # raw parts are not checked by the parser
    if data.lstrip()[:1] == b"[":
        file.events = msgspec.json.decode(data, type=list[Event])
        return
    top = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    raw = top.pop("traceEvents", None)
    if raw is None:
        keys = ", ".join(sorted(top)[:6])
        raise ReadError(file.path, f"JSON, but no trace: there is no traceEvents (keys: {keys or 'none'})")
    file.events = msgspec.json.decode(raw, type=list[Event])
    file.top = {key: msgspec.json.decode(value) for key, value in top.items()}


def _repair(data: bytes, file: ChromeFile, reason: str) -> None:
    text = data.decode("utf-8", "replace").lstrip("\ufeff")
    stripped = len(text) - len(text.lstrip())
    found = None
    if text[stripped] == "[":
        start = stripped + 1
    else:
        found = _ARRAY.search(text)
        if found is None:
            raise ReadError(file.path, f"not readable as JSON ({reason}), and no traceEvents in it")
        start = found.end()
    repairs = Repairs()
    found_events = list(objects(text, start, repairs))
    file.events = [_event(value) for value, _ in found_events]
    end = found_events[-1][1] if found_events else start
    if found is not None:
        close = text.find("]", end)
        file.top = _top(text[:start], text[close + 1 :] if close >= 0 and not repairs.ended else "")
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


def _top(before: str, after: str) -> dict[str, Any]:
    for rest in (after, "}"):
        try:
            top = json.loads(before + "]" + rest, strict=False)
        except ValueError:
            continue
        top.pop("traceEvents", None)
        return dict(top)
    base = _BASE.search(before) or _BASE.search(after)
    return {"baseTimeNanoseconds": int(base.group(1))} if base is not None else {}


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


def _clean(value: Any) -> Any:
    """``value`` as strict JSON can hold it: NaN and infinities become their names, lone surrogates question marks."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and value - value != 0.0:
        return str(value)
    return value


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
    if value.is_infinite() or abs(value) * 1000 >= ENDLESS_NS:
        raise BadTimeError("endless")
    return int((value * 1000).to_integral_value())
