"""Steps and phases against a slow, obvious model: what is announced, called and left, in any order and nesting."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from hypothesis import example, given, settings
from hypothesis import strategies as st

import accelprof
from accelprof.testing import RecordingTool, capture

TAGS = ("outer", "inner", "other")


class Stop(Exception):
    """What a step or call of the program leaves with."""


@dataclass(frozen=True)
class Call:
    """A call of ``tag`` that does ``body`` and raises at its end when ``raises``."""

    tag: str
    body: tuple[Call | Step, ...] = ()
    raises: bool = False
    id: int = 0


@dataclass(frozen=True)
class Step:
    """Step ``number`` with ``body`` in it.

    ``how``: ``with`` a block; ``begin`` without an end; ``both`` calls; ``control`` both from a thread that does not work.
    """

    number: int
    how: str = "with"
    body: tuple[Call | Step, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What the configuration says, and how the tool is bound to its threads."""

    steps: frozenset[int] | str
    merge: bool = False
    discrete: bool = False
    phases: tuple[str, ...] = ()
    thread: str = "any"


@dataclass
class Seen:
    """A window: whose it is, its steps, the calls that began in it, and why it closed."""

    kind: str
    steps: list[int]
    phase: str | None = None
    calls: list[int] = field(default_factory=list)
    reason: str = ""


def run_program(program, begin, end, block, call):
    """Run it; ``block(number, body)`` is a ``with`` block of a step, ``call(item, body)`` a timed call."""

    def run(item):
        def body():
            for inner in item.body:
                run(inner)
            if getattr(item, "raises", False):
                raise Stop

        if isinstance(item, Call):
            try:
                call(item, body)
            except Stop:
                if item.id % 2:  # every other one reaches the caller
                    raise
        elif item.how == "with":
            block(item.number, body)
        else:
            begin(item.number, item.how == "control")
            try:
                body()
            finally:
                if item.how != "begin":
                    end(item.number, item.how == "control")

    for item in program:
        try:
            run(item)
        except Stop:
            pass


# --- the slow model -----------------------------------------------------------------------------------------------------


class Model:
    """Every question is answered from what was announced so far; nothing is remembered but the windows themselves."""

    def __init__(self, plan):
        self.plan, self.windows, self.open, self.owner = plan, [], None, None
        self.step = None  # the running step
        self.waiting = None  # the planned window of which the working thread opens a part
        self.running = []
        self.had = set()

    def identity(self, step):
        """The planned window that ``step`` belongs to: itself, or under ``merge`` the run of adjacent steps around it."""
        if self.plan.steps != "all" and step not in self.plan.steps:
            return None
        low = high = step
        while self.plan.merge and low - 1 in self.plan.steps:
            low -= 1
        while self.plan.merge and high + 1 in self.plan.steps:
            high += 1
        return low, high

    def close(self, reason):
        if self.open is not None:
            self.open.reason, self.open, self.owner = reason, None, None

    def start(self, kind, step, phase=None):
        self.open = Seen(kind, [step], phase)
        self.windows.append(self.open)

    def begin(self, number, control):
        mine = self.identity(number)
        if self.open is not None:
            last = self.open.steps[-1]
            in_run = self.open.kind == "step" and self.plan.merge and self.identity(last) == mine
            if last != number and not in_run:
                self.close("a step outside it was announced")
        if self.step != number and (self.waiting is None or self.waiting[0] != mine):
            self.waiting = None
        self.step = number
        if self.open is not None:
            if number not in self.open.steps:
                self.open.steps.append(number)
        elif mine is not None and self.plan.discrete:
            self.waiting = mine, number, "discrete"
        elif mine is not None and mine not in self.had:
            if control and self.plan.thread != "any":
                self.waiting = mine, number, self.plan.thread
            else:
                self.start("step", number)
                self.had.add(mine)
                self.waiting = None

    def end(self, number, control=False):
        if number != self.step:
            return
        self.step = None
        mine = self.identity(number)
        goes_on = self.plan.merge and mine is not None and number < mine[1]
        if not goes_on:
            self.close("step ended")
        if not goes_on or (self.waiting is not None and self.waiting[2] == "discrete"):
            self.waiting = None

    def block(self, number, body):
        self.begin(number, False)
        try:
            body()
        except Stop:
            self.close("exception")
            self.end(number)
            raise
        self.end(number)

    def call(self, item, body):
        outermost = item.tag not in self.running
        mine = None
        if outermost and self.open is None and self.waiting is not None:
            identity, number, how = self.waiting
            patterns = self.plan.phases
            if how == "discrete" and (not patterns or any(fnmatchcase(item.tag, pattern) for pattern in patterns)):
                self.start("phase", number, item.tag)
                mine = self.open
            elif how == "starter":
                self.start("step", number, item.tag)
                self.had.add(identity)
                mine = self.open
            elif how == "work":
                self.start("step", number)
                self.had.add(identity)
                self.waiting = None
        if self.open is not None:
            self.open.calls.append(item.id)
        self.running.append(item.tag)
        try:
            body()
        finally:
            self.running.pop()
            if mine is not None and self.open is mine:
                self.close("phase ended")


# --- the real thing -----------------------------------------------------------------------------------------------------


class Anywhere(RecordingTool):
    name = "anywhere"
    thread = "any"


class Starter(RecordingTool):
    name = "starting"
    thread = "starter"


class Working(RecordingTool):
    name = "working"
    thread = "work"


TOOLS = {tool.thread: tool for tool in (Anywhere, Starter, Working)}


def elsewhere(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def real(program, plan):
    steps = "all" if plan.steps == "all" else sorted(plan.steps)
    tool = TOOLS[plan.thread]
    with capture(
        tool=tool.name, tools=(tool,), timeline=False, steps=steps, merge_steps=plan.merge, discrete=plan.discrete,
        phases=list(plan.phases) if plan.discrete else [], budget={"free_space": None}, on_error="raise",
    ) as run:  # fmt: skip
        session, calls = run.session, {}

        def begin(number, control):
            if control:
                elsewhere(lambda: session.begin_step(number, outside=True))
            else:
                session.begin_step(number)

        def end(number, control):
            elsewhere(lambda: session.end_step(number)) if control else session.end_step(number)

        def block(number, body):
            with session.step(number):
                body()

        def inside(item, body):
            if session.window is not None:
                calls.setdefault(session.window.info.sequence, []).append(item.id)
            body()

        timed = {tag: accelprof.timer(tag)(inside) for tag in TAGS}
        run_program(program, begin, end, block, lambda item, body: timed[item.tag](item, body))
        session.close()
        assert session.window is None
        assert run.backend.balanced()
        asked = [call.name for call in (run.tool.calls if run.tool else ()) if call.name in ("open", "close")]
        assert asked == ["open", "close"] * len(session.windows)
        return [
            Seen(row["window_kind"], row["steps"], row["phase"], calls.get(row["sequence"], []), row["reason"])
            for row in session.windows
        ]


def expected(program, plan):
    model = Model(plan)
    run_program(program, model.begin, model.end, model.block, model.call)
    model.close("closed")
    return model.windows


def numbered(program):
    ids = itertools.count(1)

    def number(item):
        body = tuple(map(number, item.body))
        return replace(item, body=body, id=next(ids)) if isinstance(item, Call) else replace(item, body=body)

    return [number(item) for item in program]


leaves = st.one_of(
    st.builds(Call, st.sampled_from(TAGS), raises=st.booleans()),
    st.builds(Step, st.integers(0, 4), st.sampled_from(["with", "begin", "both", "control"])),
)
items = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Call, st.sampled_from(TAGS), st.lists(inner, max_size=3).map(tuple), st.booleans()),
        st.builds(
            Step,
            st.integers(0, 4),
            st.sampled_from(["with", "begin", "both", "control"]),
            st.lists(inner, max_size=4).map(tuple),
        ),
    ),
    max_leaves=10,
)
programs = st.lists(items, max_size=6).map(numbered)
plans = st.builds(
    Plan,
    st.one_of(st.just("all"), st.frozensets(st.integers(0, 4), max_size=4)),
    st.booleans(),
    st.booleans(),
    st.sampled_from([(), ("inner",), ("o*",)]),
    st.sampled_from(["any", "starter", "work"]),
).filter(lambda plan: not (plan.merge and (plan.discrete or plan.steps == "all")))


@settings(max_examples=200, deadline=None)
@given(program=programs, plan=plans)
@example(
    program=numbered([Step(1, "control", (Call("outer", (Call("inner"),)), Call("inner"))), Step(2, "control")]),
    plan=Plan(frozenset({1, 2}), merge=True, thread="starter"),
)
@example(
    program=numbered([Step(1, "control", (Call("outer", (Step(2, "control", (Call("inner"),)),)),))]),
    plan=Plan(frozenset({1, 2}), merge=True, thread="work"),
)
def test_steps_and_phases_agree_with_the_slow_model(program, plan):
    """Same windows, same steps and calls in each, closed for the same reason; every tool opens and closes in turn."""
    assert real(program, plan) == expected(program, plan)
