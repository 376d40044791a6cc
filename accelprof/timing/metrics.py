"""What timers record: durations per instance and tag, without a lock on the path of a call.

A :class:`State` is a list that holds one token, its buffer. A call takes the token (``list.pop`` is atomic), appends
its duration to the buffer and puts the token back. No token means: the tag is running, on this thread (recursion,
counted once) or on another (counted in ``others``). Buffers are folded into totals when read, or when they grow.

A state knows its instance, weakly: a copy of an instance carries the original's states along, and makes its own at its
first call.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import nullcontext

from accelprof.errors import UserError, failures, nearest
from accelprof.timing import labels
from accelprof.timing.gate import gate
from accelprof.timing.phase import PhaseSpec

TYPE_CHECKING = False  # as typing has it, whose import would be a fifth of ours
if TYPE_CHECKING:
    from typing import Any

    from accelprof.contracts.timings import Timing

#: durations a buffer holds before it is folded, and durations kept for percentiles
FOLD_AT = 4096
KEPT = 4096

_fold_lock = threading.RLock()
_inside_lock = threading.RLock()
_slot_ids: dict[str, str] = {}
#: states of instances that take no attribute, by the instance's id: with the reference whose callback forgets them
_apart: dict[int, tuple[object, dict[str, State]]] = {}


class FreeStates(dict[str, "State"]):
    """States of plain functions by tag, as far as nobody is inside them. Pickled as the one of the process that unpickles it."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "free_states"


#: all states of plain functions by tag
process_states: dict[str, State] = {}
free_states = FreeStates()


class UnknownTagError(UserError, KeyError):
    """``pop_execution_time`` was asked for a tag that nothing recorded since the last pop."""

    __str__ = Exception.__str__


class State(list[list[int]]):
    """Durations of one tag on one instance (or of the process), in nanoseconds."""

    __slots__ = (
        "__weakref__",
        "buffer",
        "calls",
        "device_count",
        "device_pending",
        "device_total",
        "held",
        "inside",
        "kept",
        "last",
        "max",
        "min",
        "number",
        "others",
        "owner",
        "pending",
        "pending_count",
        "plain_calls",
        "ref",
        "since",
        "spec",
        "tag",
        "thread",
        "total",
    )

    def __init__(self, tag: str, spec: PhaseSpec | None = None, owner: object = None) -> None:
        self.tag = tag
        #: the first timer that uses it
        self.spec = spec or PhaseSpec(tag)
        #: answers the instance it belongs to; of the process, or of an instance that cannot be referred to weakly, ``None``
        self.ref: Callable[[], object] = _nobody if owner is None else _weak(owner)
        #: the same for wrappers, but nothing while somebody is inside
        self.owner = self.ref
        #: the id of an instance that cannot be referred to weakly
        self.number = id(owner) if owner is not None and self.ref is _nobody else 0
        #: while its token is taken by a plain call inside an open window: when that began, and on which thread; else 0
        self.since = self.thread = 0
        #: which tasks, greenlets or threads are inside a call that did not take the token by the wrapper's own path
        self.inside: set[int] = set()
        self.buffer: list[int] = []
        self.others: list[int] = []
        self.held: list[list[int]] = []
        self.calls = self.total = self.max = self.last = self.pending = self.pending_count = 0
        #: calls that could not be suspended, as far as they are folded
        self.plain_calls = 0
        self.min = 0
        self.kept: deque[int] = deque(maxlen=KEPT)
        self.device_pending: deque[Any] = deque()
        self.device_total = self.device_count = 0
        super().__init__([self.buffer])
        _tags.add(tag)
        with _fold_lock:
            _alive.add(weakref.ref(self, _alive.discard))

    def enter(self, me: int) -> None:
        """``me`` (see :func:`accelprof.timing.loops.runner`) is inside a call that did not come by the wrapper's own way, so
        nobody may take that way meanwhile: it could not be told from recursion."""
        with _inside_lock:
            self.inside.add(me)
            self.owner = _nobody
            if process_states.get(self.tag) is self:
                free_states.pop(self.tag, None)

    def leave(self, me: int) -> None:
        """The call is over; the last one to leave puts back a token that was held for all of them."""
        with _inside_lock:
            self.inside.discard(me)
            if self.inside:
                return
            self.owner = self.ref
            if self.held:
                self.append(self.held.pop())
            if process_states.get(self.tag) is self:
                free_states[self.tag] = self

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __reduce__(self) -> tuple[object, ...]:
        return (_state_elsewhere, (self.tag,))  # a copy or a pickled worker starts counting anew

    def __del__(self) -> None:
        """The instance is gone: what it did still counts for the process."""
        try:
            self.fold()
            if self.calls:
                with _fold_lock:
                    total, count = _retired.get(self.tag, (0, 0))
                    _retired[self.tag] = (total + self.total, count + self.calls)
        except (AttributeError, TypeError):
            pass  # the interpreter is shutting down

    def fold(self) -> None:
        """Move what the buffers hold into the totals; calls may go on meanwhile."""
        with _fold_lock:
            for buffer in (self.buffer, self.others):
                size = len(buffer)
                if not size:
                    continue
                values = buffer[:size]
                del buffer[:size]
                if buffer is self.buffer:
                    self.plain_calls += size
                low, high = self.min if self.calls else values[0], self.max
                for value in values:  # a third of what min() and max() take, which compare in general
                    if value > high:
                        high = value
                    if value < low:
                        low = value
                self.min, self.max = low, high
                self.calls += size
                self.pending_count += size
                taken = sum(values)
                self.total += taken
                self.pending += taken
                self.last = values[-1]
                self.kept.extend(values)

    def resolve_device(self) -> None:
        """Add device times whose end the device has passed."""
        with _fold_lock:
            if not self.device_pending:
                return
            try:
                # a timer of somebody who did not inherit the contract's may have begin, finish and resolve alone
                with getattr(self.device_pending[0], "reading", nullcontext)():
                    self._read_pending()
            except failures() as error:  # said once by the session; lost times cost no caller anything
                self.device_pending.clear()
                if gate.always is not None:
                    gate.always.device_timer_failed(error)

    def _read_pending(self) -> None:
        while self.device_pending:
            try:
                taken = self.device_pending[0].resolve()
            except failures() as error:  # said once by the session; a lost time costs no caller anything
                self.device_pending.popleft()
                if gate.always is not None:
                    gate.always.device_timer_failed(error)
                continue
            if taken is None:
                return
            self.device_pending.popleft()
            self.device_total += taken
            self.device_count += 1


def _nobody() -> None:
    return None


def _weak(owner: object) -> Callable[[], object]:
    try:
        return weakref.ref(owner)
    except TypeError:
        return _nobody


def _state_elsewhere(tag: str) -> None:
    """What a state becomes in a deep copy or another process: nothing, so that the instance there makes its own."""
    return None


def slot_of(tag: str) -> str:
    """Name of the instance attribute that holds the state of ``tag``; the same in every process."""
    slot = _slot_ids.get(tag)
    if slot is None:
        slot = _slot_ids.setdefault(tag, f"_accelprof_{tag.encode('utf-8', 'surrogatepass').hex()}")
    return slot


def tags_seen() -> list[str]:
    """Tags of all timers that ran in this process at least once."""
    return sorted(_tags)


_tags: set[str] = set()
#: a set of references: a step reads it twice, and going over a WeakSet takes some 6 µs
_alive: set[weakref.ref[State]] = set()
_retired: dict[str, tuple[int, int]] = {}
#: the totals when timings were taken last
_taken: dict[str, tuple[int, int]] = {}


def belongs(state: object, instance: object) -> bool:
    """Whether ``state`` is one of this very instance, rather than one that a copy carried along."""
    return type(state) is State and (state.ref() is instance or (state.number != 0 and state.number == id(instance)))


def state_of(instance: object, tag: str, spec: PhaseSpec | None = None) -> State:
    """The state of ``tag`` on ``instance``, made at first use."""
    slot = slot_of(tag)
    with _fold_lock:
        try:
            found = object.__getattribute__(instance, slot)  # a class's own __getattr__ may answer anything
        except AttributeError:
            found = None
        if belongs(found, instance):
            return found  # type: ignore[no-any-return]
        _, by_tag = _apart.get(id(instance), (None, None))
        if by_tag is not None and tag in by_tag:
            return by_tag[tag]
        state = State(tag, spec, instance)
        try:
            object.__setattr__(instance, slot, state)
        except (AttributeError, TypeError):
            if state.number:  # nothing would say when it is gone
                return process_state(tag, spec)
            if by_tag is None:
                number = id(instance)
                _, by_tag = _apart[number] = weakref.ref(instance, lambda _: _apart.pop(number, None)), {}
            by_tag[tag] = state
        return state


def process_state(tag: str, spec: PhaseSpec | None = None) -> State:
    """The process-wide state of ``tag``: plain functions, static and class methods."""
    state = process_states.get(tag)
    if state is None:
        made = State(tag, spec)  # before the lock: it takes another
        with _inside_lock:
            state = process_states.setdefault(tag, made)
            if state is made:
                free_states[tag] = made
    return state


def states_of(instance: object) -> list[State]:
    """All states of an instance; of the process when ``instance`` is ``None``."""
    if instance is None:
        return list(process_states.values())
    found = [value for value in list(getattr(instance, "__dict__", {}).values()) if belongs(value, instance)]
    if id(instance) in _apart:
        found.extend(_apart[id(instance)][1].values())
    return found


def pop_times(states: Iterable[State]) -> dict[str, float]:
    """Seconds per tag since the last pop; tags without a call since then are left out."""
    times: dict[str, float] = {}
    for state in states:
        with _fold_lock:
            state.fold()
            if state.pending_count:
                times[state.tag] = times.get(state.tag, 0.0) + state.pending / 1e9
                state.pending = state.pending_count = 0
    return times


def pop_time(states: Iterable[State], tag: str) -> float:
    """Seconds of one tag since the last pop.

    Raises:
        UnknownTagError: nothing was recorded under ``tag`` since then.
    """
    states = list(states)
    times = pop_times(state for state in states if state.tag == tag)
    if tag not in times:
        known = sorted({state.tag for state in states})
        raise UnknownTagError(
            f"no time was recorded under {tag!r} since the last pop; recorded tags: {', '.join(known) or 'none'}. {nearest(tag, known)}".rstrip(
                ". "
            )
        )
    return times[tag]


def stats(states: Iterable[State]) -> dict[str, dict[str, float]]:
    """Per tag ``count, total, mean, min, max, p50, p95, last`` in seconds since the start.

    Percentiles are of the last 4096 calls. ``device_total`` and ``device_count`` are added for timers with ``device=True``.
    """
    result: dict[str, dict[str, float]] = {}
    for state in states:
        with _fold_lock:
            state.fold()
            state.resolve_device()
            if not state.calls:
                continue
            kept = sorted(state.kept)
            row: dict[str, float] = {
                "count": state.calls,
                "total": state.total / 1e9,
                "mean": state.total / state.calls / 1e9,
                "min": state.min / 1e9,
                "max": state.max / 1e9,
                "p50": percentile(kept, 0.50) / 1e9,
                "p95": percentile(kept, 0.95) / 1e9,
                "last": state.last / 1e9,
            }
            if state.device_count or state.device_pending:
                row["device_total"] = state.device_total / 1e9
                row["device_count"] = state.device_count
        result[state.tag] = row
    return result


def percentile(ordered: list[int], share: float) -> float:
    """Linear interpolation between closest ranks of an ordered list."""
    if not ordered:
        return math.nan
    at = (len(ordered) - 1) * share
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def process_totals() -> dict[str, tuple[int, int]]:
    """``{tag: (total_ns, count)}`` of everything that was timed in this process, also on instances that are gone; differences of
    two calls are exact."""
    with _fold_lock:
        states = all_states()  # held until the end: one that goes meanwhile would count among those that are gone, too
        result = dict(_retired)
        for state in states:
            if state.buffer or state.others:
                state.fold()
            if state.calls:
                total, count = result.get(state.tag, (0, 0))
                result[state.tag] = (total + state.total, count + state.calls)
        return result


def since(before: dict[str, tuple[int, int]]) -> dict[str, Timing]:
    """What was timed in this process since :func:`process_totals` were ``before``; tags without a call since then are left out."""
    rows: dict[str, Timing] = {}
    for tag, (total, count) in process_totals().items():
        was_total, was_count = before.get(tag, (0, 0))
        if count > was_count:
            rows[tag] = {"seconds": (total - was_total) / 1e9, "count": count - was_count}
    return rows


def take_timings() -> dict[str, Timing]:
    """What was timed in this process since this was asked last."""
    with _fold_lock:
        rows = since(_taken)
        _taken.update(process_totals())
        return rows


def all_states() -> list[State]:
    """Every state of this process whose instance is alive."""
    with _fold_lock:
        # copied first: a state that goes meanwhile takes its reference out
        return [state for ref in _alive.copy() if (state := ref()) is not None]


def after_fork() -> None:
    """In a forked child: a lock that another thread of the parent held would never be released here."""
    global _fold_lock, _inside_lock
    _fold_lock, _inside_lock = threading.RLock(), threading.RLock()


def forget_all() -> None:
    """Drop process-wide states and seen tags (``accelprof.reset``); states on instances live with them."""
    with _fold_lock:
        labels.forget()
        process_states.clear()
        free_states.clear()
        _tags.clear()
        _retired.clear()
        _apart.clear()
        _taken.clear()
        _taken.update(process_totals())
