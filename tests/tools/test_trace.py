"""Our own timeline: strict JSON, exact to the nanosecond, bounded, with rows per thread and task."""

from __future__ import annotations

import ast
import asyncio
import gzip
import json
import threading
import time

import pytest

import accelprof
from accelprof import Worker, mark, profiling_range
from accelprof.analysis.phases import WorkerTimeline
from accelprof.analysis.run import WorkerId
from accelprof.contracts.spans import CALL, QUICK_ROW, ROW_COLUMNS, Kind, TimelineRow
from accelprof.contracts.targets import Target, WindowInfo
from accelprof.output import ring
from accelprof.reading.chrome import read_chrome
from accelprof.reading.columns import NONE, Columns
from accelprof.session import recorder
from accelprof.testing import FakeClock, ToolConformance, capture
from accelprof.timing.phase import PhaseSpec
from accelprof.timing.timer import row_text
from accelprof.tools import trace as trace_module
from accelprof.tools.trace import SUFFIX, TimelineFile


class Actor(Worker):
    @Worker.timer("actor/update", color="green", domain="model", category="train")
    def update(self, clock, seconds):
        clock.advance(seconds)

    @Worker.timer("actor/wait")
    async def wait(self, event):
        await event.wait()

    @Worker.timer("actor/items")
    def items(self, clock):
        for _ in range(3):
            clock.advance(0.05)
            yield


class TestConformance(ToolConformance):
    """The timeline passes the conformance kit."""

    device_work_in_files = False

    def make(self):
        return trace_module.TraceTool()


def files(run):
    return [record["path"] for record in run.session.journal.records if record["kind"] == "artifact"]


def load(path):
    def refuse(constant):
        raise ValueError(constant)

    with gzip.open(path, "rt", encoding="utf-8") as file:
        text = file.read()
    return json.loads(text, parse_constant=refuse), text


def test_spans_are_exact_to_the_nanosecond():
    """Times are epoch microseconds with three decimals: no nanosecond is lost to a float."""
    with FakeClock(start_ns=1_000_000_123) as clock, capture(steps=[1], tool=None) as run:
        run.session.begin_step(1)
        clock.advance(0.000000001)
        Actor().update(clock, 0.000001001)
        offset = run.session.captures.trace._epoch_offset
        run.session.end_step(1)
        _, text = load(files(run)[0])
        line = next(line for line in text.splitlines() if '"actor/update"' in line)
        start = offset + 1_000_000_124
        assert f'"ts":{start // 1000}.{start % 1000:03d},"dur":1.001' in line


def test_attributes_and_header():
    """A span carries its domain, colour and category; the header says whose window it is."""
    with (
        FakeClock() as clock,
        capture(steps=[7], tool=None, identity={"role": "actor", "rank": 3, "world_size": 4}, ranks="all") as run,
    ):
        with run.session.step(7):
            Actor().update(clock, 1)
            mark("here", color="red")
        data, _ = load(files(run)[0])
        header = data["otherData"]["accelprof"]
        assert (header["group"], header["roles"], header["rank"], header["steps"], header["clock"]) == (
            "Group",
            ["actor"],
            3,
            [7],
            "epoch",
        )
        span = next(event for event in data["traceEvents"] if event.get("cat") == "phase")
        assert span["args"] == {"domain": "model", "color": "green", "category": "train"}
        assert [event["name"] for event in data["traceEvents"] if event["ph"] == "i"] == ["here"]
        names = {event["args"]["name"] for event in data["traceEvents"] if event["ph"] == "M"}
        assert {"Group/rank3", "MainThread", "accelprof windows"} <= names


def test_epoch_times_are_true():
    """A span's start, as written, lies between the wall clock readings around it."""
    with capture(steps=[1], tool=None) as run:
        with run.session.step(1):
            before = time.time_ns()
            with profiling_range("r"):
                pass
            after = time.time_ns()
        data, _ = load(files(run)[0])
        span = next(event for event in data["traceEvents"] if event["name"] == "r")
        assert before // 1000 - 200 <= span["ts"] <= after // 1000 + 200


def test_overlapping_tasks_have_rows_of_their_own():
    """Interleaved coroutines never share a row, so that no viewer nests them into each other; threads have their rows."""

    async def main(actor):
        events = [asyncio.Event() for _ in range(3)]
        tasks = [asyncio.ensure_future(actor.wait(event)) for event in events]
        await asyncio.sleep(0)
        for index in (1, 0, 2):
            events[index].set()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    def on_thread():
        with profiling_range("threaded"):
            pass

    with capture(steps=[1], tool=None) as run:
        with run.session.step(1):
            asyncio.run(main(Actor()))
            thread = threading.Thread(target=on_thread, name="helper")
            thread.start()
            thread.join()
            with profiling_range("here"):
                pass
        data, _ = load(files(run)[0])
        rows = [event["tid"] for event in data["traceEvents"] if event["name"] == "actor/wait"]
        assert len(set(rows)) == 3
        by_name = {event["name"]: event["tid"] for event in data["traceEvents"] if event.get("cat") == "range"}
        assert by_name["threaded"] != by_name["here"]


def test_of_a_generator_only_the_time_inside_it_counts():
    """Each time it goes on is a span of its own, and all of them say that they are one call."""
    with FakeClock() as clock, capture(steps=[1], tool=None) as run:
        with run.session.step(1):
            for _ in Actor().items(clock):
                clock.advance(1.0)
        data, _ = load(files(run)[0])
        spans = [event for event in data["traceEvents"] if event["name"] == "actor/items"]
        assert sum(span["dur"] for span in spans) == pytest.approx(150e3)
        assert len(spans) == 4  # to each of its three items, and to its end
        assert len({span["args"]["call"] for span in spans}) == 1
        assert len({span["tid"] for span in spans}) == 1


def test_a_generator_with_very_many_items_keeps_the_others_rows():
    """After a thousand pieces the rest of the call shares one span where nothing else is recorded between them, which says how much of
    it counts."""
    from accelprof.timing.entry import MAX_PIECES

    with FakeClock() as clock, capture(steps=[1], tool=None, options={"trace": {"max_spans": 1500}}) as run:

        @accelprof.timer("stream")
        def stream():
            for _ in range(5 * MAX_PIECES):
                clock.advance(0.001)
                yield

        with run.session.step(1):
            for _ in stream():
                clock.advance(0.002)
        data, _ = load(files(run)[0])
        spans = [event for event in data["traceEvents"] if event["name"] == "stream"]
        assert len(spans) == MAX_PIECES + 1
        own = sum(span["args"].get("own_ns", span["dur"] * 1e3) for span in spans)
        assert own == pytest.approx(5 * MAX_PIECES * 1e6)
        assert data["otherData"]["accelprof"]["dropped"] == 0


def test_very_many_items_take_no_time_from_what_is_done_with_them():
    """Of 3,000 items each takes 1 ms to make, of which 0.25 to pack, and 2 to train: self time is what each really was, and what is
    made after the window was closed is not in it."""
    from accelprof.timing.entry import MAX_PIECES

    many = 3 * MAX_PIECES
    with FakeClock() as clock, capture(steps=[1], tool=None) as run:

        @accelprof.timer("stream")
        def stream():
            while True:
                clock.advance(0.0005)
                pack()
                clock.advance(0.00025)
                yield

        @accelprof.timer("pack")
        def pack():
            clock.advance(0.00025)

        @accelprof.timer("train")
        def train():
            clock.advance(0.002)

        items = stream()
        with run.session.step(1):
            for _ in range(many):
                next(items)
                train()
        next(items)
        items.close()
        timeline = WorkerTimeline(WorkerId("w", "w", "G"))
        timeline.add(read_chrome(files(run)[0], "trace"))
        timeline.finish()
    phases = timeline.phases
    own = {phase: round(row.self_ns / 1e6, 3) for phase, row in phases.items()}
    assert own == {"stream": 0.75 * many, "pack": 0.25 * many, "train": 2.0 * many}
    assert phases["stream"].total_ns / 1e6 == pytest.approx(1.0 * many)


def test_the_rows_of_the_wrapper_are_those_of_the_definition():
    """What generated wrappers, ranges and the slow path append has the fields of a row, each of its kind."""

    class Done:
        async def wait(self): ...

    with FakeClock() as clock, capture(steps=[1], tool=None) as run:
        clock.advance(1)
        with run.session.step(1):
            Actor().update(clock, 0.001)
            with profiling_range("here"):
                pass
            asyncio.run(Actor().wait(Done()))
            rows = [TimelineRow(*row) for row in run.session.window.trace.rows]
        assert [row.kind for row in rows] == ["phase", "range", "phase"]
        for row in rows:
            assert 0 < row.start_ns <= row.end_ns
            assert row.thread == threading.get_ident()
            assert (row.own_ns, row.in_progress, row.call) == (None, False, 0)
        assert rows[2].task
        assert not any(row.task for row in rows[:2])


def test_every_field_of_a_row_comes_back(tmp_path):
    """What the definition of a row has beyond its default is an argument in the file, and a column or asked for by the reader."""
    said = {"task": "a task", "own_ns": 7, "in_progress": True, "call": 3}
    plain = TimelineRow._field_defaults
    assert said.keys() == plain.keys()
    assert plain.keys() == {*ROW_COLUMNS.values(), CALL}
    must = {"number": 0, "kind": "phase", "start_ns": 10, "end_ns": 20, "thread": 1}
    rows = [TimelineRow(**must), *(TimelineRow(**must, **{name: value}) for name, value in said.items())]
    spec = PhaseSpec("p", "d", "blue", "c")
    window = WindowInfo("w", 1, (1,), None, "step", str(tmp_path / "w"))
    path = str(tmp_path / f"w{SUFFIX}")
    TimelineFile(window, Target("G"), "h", 1, [spec], rows, [], 0, 30, 0).write(path)
    for read in (read_chrome(path, "trace").columns, Columns.from_spans(read_chrome(path, "trace").columns.spans())):
        assert read.rows(Kind.PHASE).tolist() == list(range(1, 6))
        for at, name in enumerate(said, start=2):
            for column, field in ROW_COLUMNS.items():
                value = getattr(read, column)[at]
                kept = read.tasks[value] if column == "task" else value
                if column == "own" and field != name:
                    assert kept == NONE
                else:
                    assert kept == (said if field == name else plain)[field], (column, name)
            args = dict(read.args(at))
            assert {words: args.pop(words) for words in ("domain", "category", "color")} == {
                "domain": spec.domain, "category": spec.category, "color": spec.color,
            }  # fmt: skip
            assert args == {name: said[name]}


def test_the_cap_is_visible():
    """Beyond ``max_spans`` spans are dropped, and the window's name and header say how many."""
    with capture(steps=[1], tool=None, options={"trace": {"max_spans": 10}}) as run:
        with run.session.step(1):
            for _ in range(25):
                with profiling_range("r"):
                    pass
        data, _ = load(files(run)[0])
        assert sum(event["name"] == "r" for event in data["traceEvents"]) == 10
        assert data["otherData"]["accelprof"]["dropped"] == 15
        assert any("dropped 15" in event["name"] for event in data["traceEvents"])
        assert run.session.windows[0]["dropped"] == 15


def test_odd_labels_are_kept_whole_inside():
    """B36: labels with any character stand in the file as they are; file names stay inside the directory and short."""
    labels = ["a/b:c {'k': 1}\n" * 20, "../../x", "päth", 'say "hi"', "D:\\qa\\z", "\x00\x1f"]
    with capture(steps=[1], tool=None, discrete=True) as run:
        run.session.begin_step(1)
        for label in labels:
            Worker().worker_timer(label).__enter__().__exit__()
        run.session.close()
        found = []
        for path in files(run):
            assert path.startswith(run.run_dir + "/Group/")
            assert len(path.rpartition("/")[2].encode()) < 255
            found.extend(event["name"] for event in load(path)[0]["traceEvents"] if event.get("cat") == "phase")
        assert found == labels


def test_a_full_or_read_only_place_is_said_once(tmp_path):
    """Where nothing can be written, that is reported once and the steps go on."""
    place = tmp_path / "file"
    place.write_text("not a directory")
    with capture(steps="0-5", tool=None, directory=str(place)) as run:
        for step in range(6):
            with run.session.step(step), profiling_range("r"):
                pass
        assert len(run.session.problems) == 1
        assert "output" in run.session.problems[0]


def test_a_short_row_has_what_makes_a_whole_one():
    """The text of a plain call's row, what the recorder sorts by, and what the ring reads back, follow the definition of a row."""
    words = {"number": "1", "start": "2", "end": "3", "thread": "4"}
    whole, short = (ast.literal_eval(row_text(words, "phase", short=short)) for short in (False, True))
    assert short == tuple(value for name, value in zip(TimelineRow._fields, whole) if name in QUICK_ROW)
    assert recorder._end(short) == recorder._end(whole) == 3
    read = TimelineRow(*ring._with_kind([*short]))
    assert read == TimelineRow(*whole)
    assert ring._with_kind([*whole]) == [*whole]
