"""Calls to many actors at once: all sent first, then awaited together; who is dead or hung is named, the others answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayError

from accelprof.contracts.targets import Assignment, Target
from accelprof.output.records import ClockRow
from accelprof.session import remote

log = logging.getLogger("accelprof")
READY, DEAD, SILENT = "ready", "dead", "silent"
#: how long after an answer its own callback may come
CALLBACK_S = 1.0


@dataclass(eq=False)
class Member:
    """One attached actor.

    Attributes:
        invoke: ``invoke(command, *args)`` sends a command and returns the reference of its answer.
        next, done: begin a step (the following one, or the one that is given), end the running one; ``None`` where the class
            lacks the mixin.
        state: ``ready`` | ``dead`` | ``silent`` (an earlier call has not been answered yet).
        facts: what the worker answered when it was configured: key, host, pid, node_id, selected.
        announced: the step that the worker is known to have heard of last.
        handed_over: what the worker gave when its session was closed; ``None`` = nothing so far.
        since: the step before which the worker's timings were last read as a whole; ``None`` = unknown.
    """

    assignment: Assignment
    actor: Any
    invoke: Callable[..., Any]
    next: Callable[..., object] | None = None
    done: Callable[[], Any] | None = None
    state: str = READY
    facts: dict[str, Any] = field(default_factory=dict)
    pending: Any = None
    since: int | None = None
    announced: int | None = None
    clock: ClockRow | None = None
    handed_over: dict[str, Any] | None = None

    @property
    def target(self) -> Target:
        return self.assignment.target

    @property
    def label(self) -> str:
        return self.target.label

    @property
    def key(self) -> str:
        return str(self.facts.get("key", self.label))


@dataclass(frozen=True, slots=True)
class Answer:
    """What one member said: ``value`` when ``ok``, else ``error`` in one line.

    Attributes:
        sent_ns, trip_ns: when it was asked on the driver's epoch clock, and how long its answer took; of :func:`ask_timed`.
    """

    member: Member
    ok: bool
    value: Any = None
    error: str = ""
    sent_ns: int = 0
    trip_ns: int = 0


def member_of(assignment: Assignment, actor: Any) -> Member:
    """How commands reach ``actor``: the mixin's methods, else Ray's ``__ray_call__``, which works on any class."""
    if all(hasattr(actor, name) for name in ("accelprof_call", "accelprof_next", "accelprof_done")):
        call, following, done = actor.accelprof_call.remote, actor.accelprof_next.remote, actor.accelprof_done.remote
        return Member(assignment, actor, call, following, done)
    ray_call = actor.__ray_call__.remote

    def send_plain(command: str, *args: object) -> Any:
        return ray_call(remote.call, command, *args)

    return Member(assignment, actor, send_plain)


def begin(members: Iterable[Member], number: int, *, timeout: float) -> list[Answer]:
    """Announce a step; the value is ``False`` where there is no session.

    Arguments cost Ray a quarter of a call, so a worker that has heard of the step before is only told "the next one".
    """

    def send(member: Member) -> Any:
        if member.next is None:
            return member.invoke("begin_step", number)
        return member.next() if member.announced is not None and number == member.announced + 1 else member.next(number)

    answers = _ask([(member, send) for member in members], timeout)
    for answer in answers:
        answer.member.announced = number if answer.ok and answer.value is True else None
    return answers


def end(members: Iterable[Member], number: int, *, timeout: float) -> list[Answer]:
    """The step ended; the value is the step's timings, ``None`` where there is no session."""

    def send(member: Member) -> Any:
        if member.done is not None and member.announced == number:
            return member.done()
        return member.invoke("end_step", number)

    return _ask([(member, send) for member in members], timeout)


def identity(actor: Any) -> Any:
    """What tells two handles of one actor from handles of two."""
    return actor._actor_id


def ask(members: Iterable[Member], command: str, *args: object, timeout: float) -> list[Answer]:
    """Send ``command`` with the same arguments to every member that can answer; waits at most ``timeout`` seconds in all."""
    return ask_each([(member, args) for member in members], command, timeout=timeout)


def ask_timed(members: Iterable[Member], command: str, *, timeout: float) -> list[Answer]:
    """As :func:`ask`, with ``sent_ns`` and ``trip_ns`` of each answer that came, however many are asked at once."""
    arrived: SimpleQueue[tuple[Member, int]] = SimpleQueue()
    sent: dict[Member, tuple[int, int]] = {}

    def send(member: Member) -> Any:
        epoch, began = time.time_ns(), time.perf_counter_ns()
        ref = member.invoke(command)
        # called by Ray's own thread as the answer comes in; waiting for each in turn would count the others' time too
        ref.future().add_done_callback(lambda _: arrived.put((member, time.perf_counter_ns())))
        sent[member] = epoch, began
        return ref

    answers = _ask([(member, send) for member in members], timeout)
    came: dict[Member, int] = {}
    open_ones = {answer.member for answer in answers if answer.ok}
    while open_ones:
        try:
            member, came[member] = arrived.get(timeout=CALLBACK_S)
        except Empty:
            break
        open_ones.discard(member)
    return [
        replace(answer, sent_ns=sent[answer.member][0], trip_ns=came[answer.member] - sent[answer.member][1])
        if answer.ok and answer.member in came
        else answer
        for answer in answers
    ]


def ask_each(calls: Sequence[tuple[Member, tuple[object, ...]]], command: str, *, timeout: float) -> list[Answer]:
    """As :func:`ask`, with arguments per member."""

    def sender(args: tuple[object, ...]) -> Callable[[Member], Any]:
        return lambda member: member.invoke(command, *args)

    return _ask([(member, sender(args)) for member, args in calls], timeout)


def _ask(calls: Sequence[tuple[Member, Callable[[Member], object]]], timeout: float) -> list[Answer]:
    answers: list[Answer] = []
    members: list[Member] = []
    refs: list[Any] = []
    if not ray.is_initialized():  # any call would start a new cluster
        return [Answer(member, False, error="Ray was shut down") for member, _ in calls]
    for member, send in calls:
        if member.state != READY and not _again(member):
            answers.append(Answer(member, False, error=_why_not(member)))
            continue
        try:
            refs.append(send(member))
        except Exception as error:  # noqa: BLE001 - Ray may be gone, or the handle dead; said with the worker's name
            answers.append(Answer(member, False, error=_one_line(error)))
        else:
            members.append(member)
    if not refs:
        return answers
    try:
        values = ray.get(refs, timeout=timeout)
    except Exception:  # noqa: BLE001 - somebody failed; who, is found below
        answers.extend(_one_by_one(members, refs, timeout))
    else:
        answers.extend(_answer(member, value) for member, value in zip(members, values, strict=True))
    return answers


def _one_by_one(members: Sequence[Member], refs: Sequence[object], timeout: float) -> list[Answer]:
    deadline = time.monotonic() + timeout
    answers = []
    try:
        ready, _ = ray.wait(list(refs), num_returns=len(refs), timeout=timeout)
    except Exception as error:  # noqa: BLE001 - Ray is gone
        return [Answer(member, False, error=_one_line(error)) for member in members]
    there = set(ready)
    for member, ref in zip(members, refs, strict=True):
        if ref not in there:
            member.state, member.pending = SILENT, ref
            answers.append(Answer(member, False, error=f"did not answer within {timeout:g} s (busy or hung)"))
            continue
        try:
            value = ray.get(ref, timeout=max(deadline - time.monotonic(), 1.0))
        except GetTimeoutError:
            member.state, member.pending = SILENT, ref
            answers.append(Answer(member, False, error=f"did not answer within {timeout:g} s (busy or hung)"))
        except ActorUnavailableError as error:
            answers.append(Answer(member, False, error=f"cannot be reached now: {_one_line(error)}"))
        except ActorDiedError as error:
            member.state = DEAD
            answers.append(Answer(member, False, error=f"the actor is dead: {_one_line(error)}"))
        except RayError as error:
            answers.append(Answer(member, False, error=_one_line(error)))
        except Exception as error:  # noqa: BLE001 - a task's own error, as Ray raises it again
            answers.append(Answer(member, False, error=_one_line(error)))
        else:
            answers.append(_answer(member, value))
    return answers


def _answer(member: Member, value: object) -> Answer:
    if isinstance(value, dict) and value.get("ok"):
        return Answer(member, True, value.get("value"))
    error = value.get("error", "no reason given") if isinstance(value, dict) else f"answered {value!r}"
    return Answer(member, False, error=str(error))


def _again(member: Member) -> bool:
    """Whether a silent member has answered its old call meanwhile, so that it may be asked again."""
    if member.state != SILENT or member.pending is None:
        return False
    try:
        ready, _ = ray.wait([member.pending], timeout=0)
    except Exception:  # noqa: BLE001 - Ray is gone: it stays silent
        return False
    if not ready:
        return False
    member.state, member.pending = READY, None
    return True


def withdraw(member: Member) -> None:
    """Take back a call that was never answered, so that it opens nothing when the actor comes to itself later."""
    if member.pending is not None and ray.is_initialized():
        try:
            ray.cancel(member.pending)
        except Exception as error:  # noqa: BLE001 - at worst the call runs after all; Ray or the actor is gone
            log.info("accelprof: a call to %s could not be taken back: %s", member.label, _one_line(error))
        member.pending = None


def _why_not(member: Member) -> str:
    return "the actor is dead" if member.state == DEAD else "still has not answered an earlier call; not asked again"


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:4]) if isinstance(error, RayError) else " ".join(lines)
    return f"{type(error).__name__}: {text[:400]}" if text else type(error).__name__
