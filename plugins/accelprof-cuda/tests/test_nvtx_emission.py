"""What really leaves the process as NVTX, seen by a tool of our own (no nsys)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accelprof.texts import encodable, unquoted

Recorded = Callable[..., list[Any]]

TIMED = '''
import accelprof, asyncio
from accelprof import Worker

class Actor(Worker):
    @Worker.timer("actor/update", color="green", domain="train", category="opt")
    def update(self, fail=False):
        self.inner()
        if fail:
            raise KeyError("the user's own")
    @Worker.timer("actor/inner")
    def inner(self): ...
    @Worker.timer("actor/wait")
    async def wait(self, turns):
        for _ in range(turns):
            await asyncio.sleep(0)
    @Worker.timer()
    def bare(self): ...

class Critic(Worker):
    @Worker.timer()
    def bare(self): ...

from accelprof.testing import capture
from accelprof.contracts.tool import Tool
from accelprof_cuda.backend import CudaBackend

class Listener(Tool):
    """Stands for the NVTX tool that records already: it needs no gate."""
    name = "listener"
    def open(self, window): ...
    def close(self, window): return []

def windows(**config):
    return capture(backend=CudaBackend, tool="listener", tools=(Listener,), **config)
'''


def test_ranges_only_while_a_window_is_open(recorded: Recorded) -> None:
    """Steps 0 and 2 leave nothing; step 1 leaves nested ranges with domain, colour, category and the step as payload."""
    events = recorded(
        TIMED
        + """
with windows(steps=[1]) as run:
    for step in range(3):
        with run.session.step(step):
            Actor().update()
"""
    )
    category = next(event for event in events if event.kind == "category")
    assert (category.domain, category.message) == ("train", "opt")
    ranges = [event for event in events if event.kind in ("push", "pop")]
    assert [(event.kind, event.domain, event.message) for event in ranges] == [
        ("push", "train", "actor/update"),
        ("push", "accelprof", "actor/inner"),
        ("pop", "accelprof", ""),
        ("pop", "train", ""),
    ]
    assert (ranges[0].argb, ranges[0].category, ranges[0].payload) == (0xFF008000, category.id, 1)
    assert category.id > 0


def test_what_was_pushed_is_popped(recorded: Recorded) -> None:
    """The tool answers -1 to every push, and a phase raises: pops equal pushes all the same."""
    events = recorded(
        TIMED
        + """
with windows(steps=[0, 1]) as run:
    for step in range(2):
        try:
            with run.session.step(step):
                Actor().update(fail=True)
        except KeyError:
            pass
"""
    )
    kinds = [event.kind for event in events]
    assert kinds.count("push") == 4
    assert kinds.count("pop") == 4


def test_coroutines_use_start_and_end(recorded: Recorded) -> None:
    """Interleaved coroutines on one thread are start/end ranges, each ended by its own id."""
    events = recorded(
        TIMED
        + """
a = Actor()
async def both():
    await asyncio.gather(a.wait(5), a.wait(1))
with windows(steps=[0]) as run, run.session.step(0):
    asyncio.run(both())
"""
    )
    started = [event.id for event in events if event.kind == "start" and event.message == "actor/wait"]
    ended = [event.id for event in events if event.kind == "end"]
    assert len(started) == 2
    assert sorted(ended) == started
    assert ended == started[::-1]
    assert not [event for event in events if event.kind == "push" and event.message == "actor/wait"]


def test_the_payload_follows_the_step(recorded: Recorded) -> None:
    """One window over two steps: each range carries the step it ran in, though its attributes were made once."""
    events = recorded(
        TIMED
        + """
with windows(steps=[3, 4], merge_steps=True) as run:
    for step in (3, 4):
        with run.session.step(step):
            Actor().inner()
"""
    )
    assert [event.payload for event in events if event.kind == "push"] == [3, 4]


def test_bare_timers_keep_their_own_names(recorded: Recorded) -> None:
    """Two classes with the same method name and no label leave two names."""
    events = recorded(
        TIMED
        + """
with windows(steps=[0]) as run, run.session.step(0):
    Actor().bare()
    Critic().bare()
"""
    )
    names = [event.message for event in events if event.kind == "push"]
    assert len(set(names)) == 2, names


def test_marks_and_ad_hoc_ranges(recorded: Recorded) -> None:
    """``profiling_range`` and ``mark`` reach the tool inside a window."""
    events = recorded(
        TIMED
        + """
with windows(steps=[0]) as run, run.session.step(0):
    with accelprof.profiling_range("tokenize", color="#ff8800", domain="data"):
        accelprof.mark("checkpoint")
"""
    )
    assert [(event.kind, event.domain, event.message) for event in events] == [
        ("push", "data", "tokenize"),
        ("mark", "accelprof", "checkpoint"),
        ("pop", "data", ""),
    ]


def test_a_dummy_domain_is_worked_round(recorded: Recorded) -> None:
    """Where nvtx hands out a dummy although a tool is there, a real domain is made, and it records."""
    events = recorded(
        """
import nvtx
from nvtx._lib.lib import DummyDomain
nvtx.get_domain = lambda name: DummyDomain()   # what nvtx >= 0.2.12 does under Nsight Systems up to 2023.4
from accelprof.contracts.backend import RangeSpec
from accelprof_cuda import domains
from accelprof_cuda.backend import CudaBackend
bound = CudaBackend().bind(RangeSpec("actor/update"))
bound.push(); bound.pop()
assert domains.forced == ["accelprof"], domains.forced
"""
    )
    assert [event.kind for event in events] == ["push", "pop"]


def test_nvtx_disable_is_respected(recorded: Recorded) -> None:
    """With NVTX_DISABLE the user's word counts: nothing is emitted, and nothing fails."""
    events = recorded(
        TIMED + "with windows(steps=[0]) as run, run.session.step(0):\n    Actor().inner()\n", NVTX_DISABLE="1"
    )
    assert events == []


LABELS = ["a\0b", "a\\0b", "a%00b%%", "half\ud800", "", 'q"uo\\te', "päth/☃", "x" * 5000]


def test_labels_reach_the_tool_whole(recorded: Recorded) -> None:
    """Where C would end one, or UTF-8 has no letter for it; domains and categories too."""
    events = recorded(
        f"""
from accelprof_cuda.backend import CudaBackend
from accelprof.contracts.backend import RangeSpec
backend = CudaBackend()
for label in {LABELS!r}:
    for spec in (RangeSpec(label), RangeSpec("x", "d" + label, category="c" + label)):
        backend.push(spec)
        backend.pop(spec)
"""
    )
    sent = [event for event in events if event.kind == "push"]
    assert [unquoted(event.message) for event in sent[::2]] == [encodable(label) for label in LABELS]
    assert [unquoted(event.domain) for event in sent[1::2]] == ["d" + encodable(label) for label in LABELS]
    categories = [unquoted(event.message) for event in events if event.kind == "category"]
    assert categories == ["c" + encodable(label) for label in LABELS]
