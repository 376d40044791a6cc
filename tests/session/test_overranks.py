"""Steps over ranks for exporters: each row of another rank counts for the step that it is of, or for none, and that is said."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time

import pytest

from accelprof.contracts.targets import Target, in_group, peers_in
from accelprof.output import presence, tail
from accelprof.output.presence import Presence, at_work
from accelprof.output.records import MetricsRow, TargetRow
from accelprof.output.tail import Tail
from accelprof.session import overranks
from accelprof.session.overranks import OverRanks
from accelprof.voice import Voice

S = 1_000_000_000


def row_of(rank, step, seconds, at):
    return MetricsRow(f"g/rank{rank}", step, {"work": {"seconds": seconds, "count": 1}}, int(at * S), S // 100, "g")


class Exported:
    """What an exporter would get."""

    def __init__(self):
        self.steps = []

    def step(self, figures):
        self.steps.append(figures)

    def figures(self):
        return [(figures.step, figures.phases["work"].max, figures.phases["work"].ranks) for figures in self.steps]

    def wait_for(self, count):
        until = time.monotonic() + 10
        while len(self.steps) < count:
            assert time.monotonic() < until, self.steps
            time.sleep(0.005)


class There:
    """Who is at work, by key."""

    def __init__(self, *keys):
        self.at_work = set(keys)

    def there(self, keys):
        return self.at_work & set(keys)


class Job:
    """Rank 0 of a job, and a journal for each other one."""

    def __init__(self, run_dir, monkeypatch):
        self.run_dir, self.exported, self.voice = run_dir, Exported(), Voice()
        (run_dir / ".workers").mkdir()
        monkeypatch.setattr(overranks, "POLL_S", 0.01)
        monkeypatch.setattr(overranks, "PATIENCE_S", 0.2)

    def write(self, key, *rows):
        with open(self.run_dir / f".workers/{key}.jsonl", "a", encoding="utf-8") as file:
            file.writelines(json.dumps(row.to_journal()) + "\n" for row in rows)

    def begin(self, at_work=(), world=2):
        target = Target("g", (), 0, world)
        return OverRanks(self.exported, target, "k0", str(self.run_dir), There(*at_work), self.voice)


@pytest.fixture
def job(tmp_path, monkeypatch):
    return Job(tmp_path, monkeypatch)


def test_rows_of_an_earlier_attempt_are_nobodys(job):
    """A job that begins again in the same directory: the dead ranks' times are not this attempt's, and the new rank is waited for."""
    job.write("dead1", *(row_of(1, step, 0.5, step) for step in range(1, 4)))
    over = job.begin()
    time.sleep(0.05)
    over.step(row_of(0, 2, 0.05, 100), False)
    time.sleep(0.05)
    assert job.exported.steps == []
    job.write("new1", row_of(1, 2, 0.01, 100))
    job.exported.wait_for(1)
    over.finish(1.0)
    assert job.exported.figures() == [(2, 0.05, 2)]


def test_rows_of_a_rank_that_began_sooner_count(job):
    """Whoever is at work has written for this attempt, before rank 0 looked too."""
    job.write("k1", row_of(1, 1, 0.5, 100))
    over = job.begin(at_work=["k1"])
    over.step(row_of(0, 1, 0.05, 100), False)
    over.finish(1.0)
    assert job.exported.figures() == [(1, 0.5, 2)]


def test_a_row_that_comes_too_late_is_not_the_next_loops(job):
    """Rank 1's first step comes when rank 0's went out alone; then numbers begin anew."""
    over = job.begin()
    over.step(row_of(0, 1, 0.1, 100), False)
    job.exported.wait_for(1)
    job.write("k1", row_of(1, 1, 9.0, 100))
    over.step(row_of(0, 2, 0.1, 200), False)
    job.write("k1", row_of(1, 2, 0.2, 200))
    job.exported.wait_for(2)
    over.step(row_of(0, 1, 0.1, 300), False)
    time.sleep(0.03)
    job.write("k1", row_of(1, 1, 0.3, 300))
    job.exported.wait_for(3)
    over.finish(1.0)
    assert job.exported.figures() == [(1, 0.1, 1), (2, 0.2, 2), (1, 0.3, 2)]


@pytest.mark.parametrize("seed", range(8))
def test_each_step_has_its_own_rows_or_none(job, monkeypatch, seed):
    """Loops of any lengths, ranks that lose rows, are ahead or behind by less than a step: by a model that knows which row is whose."""
    chance = random.Random(seed)
    monkeypatch.setattr(overranks, "started", lambda work, name: None)  # all at once, at the end
    mine, theirs, at, expected = [], {1: [], 2: []}, 1000.0, []
    for _ in range(chance.randint(2, 6)):
        for step in range(chance.randint(1, 9)):
            at += 1.0
            identity = float(len(mine) + 1)
            mine.append(row_of(0, step, 0.0, at))
            came = [rank for rank in theirs if chance.random() < 0.7]
            for rank in came:
                theirs[rank].append(row_of(rank, step, identity, at + chance.uniform(-0.4, 0.4)))
            expected.append((step, identity if came else 0.0, 1 + len(came)))
    over = job.begin(at_work=["k1", "k2"], world=3)
    for rank, rows in theirs.items():
        job.write(f"k{rank}", *rows)
    for row in mine:
        over.step(row, False)
    monkeypatch.setattr(over, "_there", lambda keys: {*keys} if not over._last else set())
    over.finish(5.0)
    assert job.exported.figures() == expected


def test_a_window_marks_the_step_that_it_held_alone(job):
    """Of steps with one number, the one in whose time another rank's window was open."""
    over = job.begin(at_work=["k1"])
    moment = {"epoch_ns": 99 * S, "monotonic_ns": 1}, {"epoch_ns": 101 * S, "monotonic_ns": 2}
    window = {"kind": "window", "id": "w", "target": "k1", "steps": [1], "opened": moment[0], "closed": moment[1]}
    (job.run_dir / ".workers/k1.jsonl").write_text(json.dumps(window) + "\n")
    job.write("k1", row_of(1, 1, 0.2, 100), row_of(1, 1, 0.3, 300))
    over.step(row_of(0, 1, 0.1, 100), False)
    over.step(row_of(0, 1, 0.1, 300), False)
    over.finish(1.0)
    assert [figures.window for figures in job.exported.steps] == [True, False]


def test_steps_that_cannot_go_out_in_time_are_said(job, monkeypatch):
    """A disk that hangs while the run ends: how many steps the exporters did not get."""
    looked = Tail.look
    monkeypatch.setattr(Tail, "look", lambda self: (time.sleep(1.5), looked(self))[1])
    over = job.begin(at_work=["k1"])
    for step in (1, 2, 3):
        over.step(row_of(0, step, 0.1, step), False)
    over.finish(0.1)
    (said,) = job.voice.problems
    assert "steps left out at the end: 3" in said
    time.sleep(0.6)
    assert job.exported.steps == []


def test_a_look_reads_so_much_of_all_journals_together(job, monkeypatch):
    """The rest comes with the next looks: each row once, and no journal waits for another to end."""
    monkeypatch.setattr(tail, "LOOK", 4000)
    monkeypatch.setattr(tail, "CHUNK", 1000)
    for rank in range(1, 9):
        job.write(f"k{rank}", *(row_of(rank, step, 0.1, step) for step in range(40)))
    reader, seen, looks = Tail(str(job.run_dir), "k0"), [], []
    while not looks or reader.behind:
        looks.append([(row.label, row.step) for row in reader.look().timings])
        seen += looks[-1]
    assert len(seen) == len(set(seen)) == 8 * 40
    assert max(map(len, looks)) * len(json.dumps(row_of(1, 1, 0.1, 1).to_journal())) <= 5000
    assert len({label for look in looks[:2] for label, _ in look}) == 8


HOLDS = """
import sys, time
from accelprof.output import presence
held = presence.Presence(sys.argv[1], "watcher")
held._lock(presence._place(sys.argv[2]))
print("held", flush=True)
time.sleep(0.1)
"""


def test_a_process_that_is_asked_for_as_it_begins_is_there_all_the_same(tmp_path, monkeypatch):
    """Asking takes the process's byte for a moment; who begins in that moment waits for it."""
    monkeypatch.setattr(presence, "PROBED_S", 30.0)  # the holder has to be scheduled too
    command = [sys.executable, "-c", HOLDS, str(tmp_path), "k1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        mine = Presence(str(tmp_path), "k1")
    assert holder.returncode == 0
    ask = (
        "import sys; from accelprof.output.presence import at_work; from accelprof.output.records import TargetRow; "
        "print(at_work(sys.argv[1], {'k1': TargetRow('k1')}))"
    )
    found = subprocess.run([sys.executable, "-c", ask, str(tmp_path)], capture_output=True, text=True, timeout=60)
    mine.close()
    assert found.stdout == "{'k1'}\n", found.stderr
    assert at_work(str(tmp_path), {"k1": TargetRow("k1")}) == set()


def test_who_a_rank_waits_for_is_what_its_rows_say(job):
    """Not how its label reads. Rows of versions that did not say it belong to those that their label names."""
    timings = {"work": {"seconds": 0.5, "count": 1}}
    job.write("k1", MetricsRow("g/rank1", 1, timings, 100 * S, S // 100, "h"))
    job.write("k2", MetricsRow("g/rank2", 1, timings, 100 * S, S // 100))
    job.write("k3", MetricsRow("h/rank2", 1, timings, 100 * S, S // 100))
    over = job.begin(at_work=["k1", "k2", "k3"], world=2)
    over.step(row_of(0, 1, 0.05, 100), False)
    over.finish(1.0)
    assert job.exported.figures() == [(1, 0.5, 2)]


@pytest.mark.parametrize(
    ("target", "label", "peers"),
    [
        (Target("g", rank=3), "g/rank3", "g"),
        (Target("g"), "g/rank?", "g"),
        (Target("a/b", rank=3), "a/b/rank3", "a/b"),
        (Target("g", rank=3, replica=1), "g/replica1/rank3", "g/replica1"),
        (Target("g", rank=3, engine_rank=2), "g/rank3/engine2", "g/rank3"),
        (Target("g", replica=0, engine_rank=0), "g/replica0/rank?/engine0", "g/replica0/rank?"),
    ],
)
def test_a_label_names_the_peers_and_old_rows_are_read_by_it(target, label, peers):
    """What a row says and what is read of an old one's label are the same; of its group the label says the rest."""
    assert (target.label, target.peers, peers_in(target.label)) == (label, peers, peers)
    assert f"{target.group}/{in_group(label, target.group)}" == label
