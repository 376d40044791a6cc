"""Schedules against a slow, obvious model: every count is made anew from the whole log of what happened."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import accelprof
from accelprof.backends.cpu import CpuBackend
from accelprof.catalogue import make_catalogue
from accelprof.config.model import Config
from accelprof.contracts.targets import Assignment, Target
from accelprof.contracts.tool import Tool
from accelprof.numberset import NumberSet
from accelprof.output.layout import Layout
from accelprof.planning.sampling import to_spec
from accelprof.session.session import Session
from accelprof.timing.gate import gate

TAGS = ("outer", "middle", "inner")


class Stop(Exception):
    """What a call of the program leaves with."""


@dataclass(frozen=True)
class Node:
    """A call of ``tag`` that makes ``children``, and raises at its end when ``raises``; ``caught``: its caller goes on."""

    tag: str
    children: tuple[Node, ...] = ()
    raises: bool = False
    caught: bool = True
    id: int = 0


@dataclass(frozen=True)
class Step:
    """Calls in announced step ``number``; outside any step when that is ``None``."""

    number: int | None
    calls: tuple[Node, ...]


@dataclass
class Seen:
    """A window: whose it is, and the calls that began in it."""

    phase: str
    calls: list[int] = field(default_factory=list)


def run_program(program, enter, begin_step=lambda number: None, end_step=lambda number: None):
    """Run ``program``; ``enter(node, body)`` makes one call."""

    def call(node):
        def body():
            for child in node.children:
                try:
                    call(child)
                except Stop:
                    if not child.caught:
                        raise
            if node.raises:
                raise Stop

        enter(node, body)

    for step in program:
        if step.number is not None:
            begin_step(step.number)
        try:
            for node in step.calls:
                call(node)
        except Stop:
            pass
        finally:
            if step.number is not None:
                end_step(step.number)


# --- the slow model -----------------------------------------------------------------------------------------------------


def events_of(program):
    """``("begin" | "end", node)`` and ``("step" | "step over", number)`` in order, by running without accelprof."""
    log = []

    def enter(node, body):
        log.append(("begin", node))
        try:
            body()
        finally:
            log.append(("end", node))

    run_program(program, enter, lambda n: log.append(("step", n)), lambda n: log.append(("step over", n)))
    return log


def running_at(log, at):
    """Calls that have begun before position ``at`` and not ended, outermost first."""
    ended = {event[1].id for event in log[:at] if event[0] == "end"}
    return [(i, event[1]) for i, event in enumerate(log[:at]) if event[0] == "begin" and event[1].id not in ended]


def counts_at(log, at, steps):
    """Whether the call that begins at ``at`` is one at all (recursion is not) and lies in a selected step's first turn."""
    if any(node.tag == log[at][1].tag for _, node in running_at(log, at)):
        return False
    return steps is None or in_turn(log, at, steps)


def in_turn(log, at, steps):
    step = step_at(log, at)
    if step is None or log[step][1] not in steps:
        return False
    return not any(event == ("step over", log[step][1]) for event in log[:step])


def step_at(log, at):
    """Position of the announcement of the step that runs at ``at``."""
    begun = [i for i in range(at) if log[i][0] in ("step", "step over")]
    return begun[-1] if begun and log[begun[-1]][0] == "step" else None


def scope_at(log, at, spec, steps):
    """Where the counting that the call at ``at`` belongs to began; ``None`` = nowhere."""
    if spec.per == "process":
        return 0
    if spec.per == "step":
        return step_at(log, at)
    enclosing = [i for i, node in running_at(log, at) if node.tag == spec.per and counts_at(log, i, steps)]
    return enclosing[-1] if enclosing else None


def action_at(log, at, spec, steps):
    """``(key, active)`` of the call at ``at`` in the series of ``spec``, or ``None`` when it is not counted."""
    if log[at][1].tag != spec.phase or not counts_at(log, at, steps):
        return None
    scope = scope_at(log, at, spec, steps)
    if scope is None:
        return None
    index = sum(
        1
        for i in range(at)
        if log[i][0] == "begin"
        and log[i][1].tag == spec.phase
        and counts_at(log, i, steps)
        and scope_at(log, i, spec, steps) == scope
    )
    kinds = ["skip"] * spec.skip_first
    rounds = spec.repeat or index + 1
    for turn in range(rounds):
        kinds += ["no"] * (spec.wait + spec.warmup) + [f"yes {turn}"] * spec.active
        if len(kinds) > index:
            break
    kind = kinds[index] if index < len(kinds) else "done"
    return ((spec, scope, kind), kind.startswith("yes"))


def model(program, specs, steps):
    """Windows that the schedules make."""
    log = events_of(program)
    windows, open_key, owner, dead, begun, ended, active_calls = [], None, None, set(), Counter(), Counter(), {}
    for at, event in enumerate(log):
        if event[0] == "begin":
            for spec in specs:
                found = action_at(log, at, spec, steps)
                if found is None or not found[1]:
                    continue
                key = found[0]
                active_calls.setdefault(event[1].id, []).append(key)
                if key in dead:
                    continue
                begun[key] += 1
                if open_key is None:
                    open_key, owner = key, Seen(spec.phase)
                    windows.append(owner)
            if open_key is not None:
                owner.calls.append(event[1].id)
        elif event[0] == "end":
            for key in active_calls.get(event[1].id, []):
                ended[key] += 1
                if ended[key] == key[0].active and key not in dead:
                    dead.add(key)
                    open_key = None if open_key == key else open_key
            began = next(i for i, e in enumerate(log) if e == ("begin", event[1]))
            for key in list(begun):
                if key[0].per not in ("process", "step") and key[1] == began:
                    dead.add(key)
                    open_key = None if open_key == key else open_key
        elif event[0] == "step over":
            for key in list(begun):
                if key[0].per == "step" or steps is not None:
                    dead.add(key)
                    open_key = None if open_key == key else open_key
    return windows


# --- the real thing -----------------------------------------------------------------------------------------------------


class Notes(Tool):
    """Counts what it is asked, and is angry about a second start or a stop without one."""

    name = "notes"
    schedule = "native"

    def __init__(self, options=None):
        super().__init__(options)
        self.state, self.opened, self.ticks = "closed", 0, 0

    def warm_up(self, window):
        assert self.state == "closed", self.state
        self.state = "warm"

    def abandon(self, window):
        assert self.state == "warm", self.state
        self.state = "closed"

    def tick(self):
        assert self.state != "closed"
        self.ticks += 1

    def open(self, window):
        assert self.state in ("closed", "warm"), self.state
        self.state, self.opened = "open", self.opened + 1

    def close(self, window):
        assert self.state == "open", self.state
        self.state = "closed"
        return []


REGISTRY = make_catalogue(entry_points=False)


def real(program, specs, steps, directory):
    target = Target("Group", rank=0, node="n")
    mode = "off" if steps is None else "steps"
    chosen = NumberSet() if steps is None else NumberSet.parse(sorted(steps))
    assignment = Assignment(target, True, mode=mode, steps=chosen, schedules=specs, timeline=False)
    tool = Notes()
    session = Session(
        Config(on_error="raise"), assignment, CpuBackend(), [tool], None, Layout(str(directory)), "n", REGISTRY,
    )  # fmt: skip
    session.journal.path = None
    windows = {}

    def inside(node, body):
        window = session.window
        if window is not None:
            windows.setdefault(window.info.sequence, Seen(window.info.phase)).calls.append(node.id)
        body()

    timed = {tag: accelprof.timer(tag)(inside) for tag in TAGS}
    gate.take(session)
    try:
        session.start()
        run_program(program, lambda node, body: timed[node.tag](node, body), session.begin_step, session.end_step)
    finally:
        session.close()
        gate.release(session)
    assert session.window is None
    assert (tool.state, tool.opened) == ("closed", len(session.windows))
    return list(windows.values()), session


def numbered(program):
    ids = itertools.count(1)

    def number(node):
        return replace(node, id=next(ids), children=tuple(map(number, node.children)))

    return [replace(step, calls=tuple(map(number, step.calls))) for step in program]


leaves = st.builds(Node, st.sampled_from(TAGS), raises=st.booleans(), caught=st.booleans())
nodes = st.recursive(
    leaves,
    lambda inner: st.builds(
        Node, st.sampled_from(TAGS), st.lists(inner, max_size=5).map(tuple), st.booleans(), st.booleans()
    ),
    max_leaves=12,
)
programs = st.lists(
    st.builds(Step, st.sampled_from([None, 1, 2, 3]), st.lists(nodes, max_size=6).map(tuple)), max_size=5
).map(numbered)
specs = st.builds(
    lambda phase, wait, warmup, active, repeat, skip, per: to_spec(
        _schedule(phase, wait, warmup, active, repeat, skip, per)
    ),
    st.sampled_from(TAGS),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from(["process", "step", "outer", "middle"]),
).filter(lambda spec: spec.per != spec.phase)


def _schedule(phase, wait, warmup, active, repeat, skip_first, per):
    from accelprof.config.model import Schedule

    return Schedule(phase=phase, wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip_first, per=per)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("schedules")


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    program=programs,
    chosen=st.lists(specs, min_size=1, max_size=3, unique=True).map(tuple),
    steps=st.sampled_from([None, frozenset({1}), frozenset({2, 3})]),
)
@example(
    program=numbered([Step(1, (Node("inner"),) * 3), Step(2, (Node("inner"),) * 3)]),
    chosen=(to_spec(_schedule("inner", 1, 0, 3, 1, 0, "process")),),
    steps=frozenset({1, 2}),
)
@example(
    program=numbered([Step(1, (Node("outer", (Node("inner"), Node("inner", raises=True, caught=False))),) * 2)]),
    chosen=(to_spec(_schedule("inner", 0, 1, 3, 0, 0, "outer")),),
    steps=None,
)
def test_schedules_agree_with_the_slow_model(program, chosen, steps, directory):
    """Same windows, same calls in each, whatever is nested, repeated, raised or left early; every tool call is paired."""
    expected = model(program, chosen, steps)
    got, session = real(program, chosen, steps, directory)
    assert got == expected
    for record in session.windows:
        plan = record.get("schedule")
        if plan is not None and plan["partial"]:
            assert any(f"schedule on {plan['phase']}: partial" in text for text in session.problems)
