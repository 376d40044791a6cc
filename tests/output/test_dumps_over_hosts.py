"""The flight recorder's dumps where hosts have disks of their own: asked for everywhere, and brought together at the end."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from accelprof.output import dumps
from accelprof.output.dumps import Cause
from accelprof.output.ring import Ring


class Disks:
    """Hosts by name, ``None`` for this one, each with a directory where all say the run's is."""

    def __init__(self, here: Path, *others: str) -> None:
        self.here, self.others, self.gone = here / "run", others, set()
        self.places = {None: self.here, **{name: here / name for name in others}}
        for place in self.places.values():
            (place / dumps.RINGS).mkdir(parents=True)

    def call(self, node, function, *args):
        if node in self.gone:
            raise ConnectionError("the node is gone")
        there = [
            str(self.places[node]) + arg[len(str(self.here)) :] if str(arg).startswith(str(self.here)) else arg
            for arg in args
        ]
        return function(*there)

    def on_each(self, calls, function, timeout):
        results, errors = {}, {}
        for node, args in calls.items():
            try:
                results[node] = self.call(node, function, *args)
            except Exception as error:
                errors[node] = str(error)
        return results, errors

    def part(self, node, name, worker):
        """What a worker of that host puts there."""
        path = self.places[node] / dumps.PLACE / name / ".workers" / f"{worker}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text(worker)

    def begin(self, node, reason="slow", step=7):
        return dumps.begin(str(self.places[node]), Cause(reason, step, "why"), str(node), 9)


@pytest.fixture
def disks(tmp_path):
    return Disks(tmp_path, "b", "c")


def everywhere(disks):
    return [dumps.names(str(place)) for place in disks.places.values()]


def test_what_one_host_began_all_are_asked_for_once(disks):
    """The other hosts have it under the same name and with the same request; a second look tells nobody again."""
    name, told = disks.begin("b"), set()
    assert dumps.spread(str(disks.here), disks, [None, "b", "c"], told, 1) == {}
    assert everywhere(disks) == [[name]] * 3
    assert [dumps.request_of(str(place), name) for place in disks.places.values()] == [
        dumps.request_of(str(disks.places["b"]), name)
    ] * 3
    dumps_of_c = disks.places["c"] / dumps.PLACE / name
    (dumps_of_c / dumps.REQUEST).unlink()
    dumps_of_c.rmdir()
    dumps.spread(str(disks.here), disks, [None, "b", "c"], told, 1)
    assert everywhere(disks) == [[name], [name], []]


def test_two_that_begin_at_one_moment_are_one(disks):
    """Both hosts saw the same step: each keeps its request, and the parts lie in one directory at the end."""
    name = disks.begin(None)
    assert disks.begin("b") == name
    disks.part(None, name, "w0")
    disks.part("b", name, "w1")
    dumps.spread(str(disks.here), disks, [None, "b"], set(), 1)
    assert dumps.bring("copy", str(disks.here), disks, "b") == [f"recorder/{name}/.workers/w1.jsonl"]
    assert dumps.parts(str(disks.here), name) == {"w0", "w1"}
    assert (disks.places["b"] / "recorder" / name / ".workers" / "w1.jsonl").exists()
    assert dumps.bring("copy", str(disks.here), disks, "b") == []


def test_one_name_for_two_moments_becomes_two(disks, monkeypatch):
    """Begun a minute apart and never spread: the other host's gets the next free number of its reason."""
    name = disks.begin(None)
    now = time.time()
    monkeypatch.setattr(dumps.time, "time", lambda: now + 60)
    assert disks.begin("b") == disks.begin("c") == name
    disks.part("b", name, "w1")
    disks.part("c", name, "w2")
    for host in ("b", "c"):
        dumps.bring("move", str(disks.here), disks, host)
    assert dumps.names(str(disks.here)) == ["slow-1", "slow-2"]
    assert dumps.parts(str(disks.here), "slow-1") == set()
    assert dumps.parts(str(disks.here), "slow-2") == {"w1", "w2"}
    assert not list(disks.places["b"].glob("recorder/*/*/*"))


def test_rings_of_killed_workers_come_too(disks):
    """A ring that is still there at the end is of a worker that was killed; it can be dumped here then."""
    ring = Ring(
        str(disks.places["b"] / dumps.RINGS / "G-r1-b-7.ring"), {"group": "G", "rank": 1, "host": "b", "pid": 7}
    )
    ring.add(3, 100, 200, [])
    ring.close()
    assert dumps.bring("copy", str(disks.here), disks, "b") == [f"{dumps.RINGS}/G-r1-b-7.ring"]
    name = dumps.ask(str(disks.here), 0, 5, print)
    assert dumps.parts(str(disks.here), name) == {"G-r1-b-7"}


def test_rings_that_were_put_aside_come_too(disks):
    """One whose name another process has had since is in no dump, and is named here as on its own host."""
    for _ in range(2):
        Ring(str(disks.places["b"] / dumps.RINGS / "G-r1-b-7.ring"), {}).close()
    assert len(dumps.bring("copy", str(disks.here), disks, "b")) == 2
    [line] = dumps.aside(str(disks.here))
    assert "G-r1-b-7.ring" in line


def test_a_host_that_is_gone_and_one_without_a_recorder(disks):
    """The first is named and keeps nobody else; on the second, whose disk has no worker's ring, nothing is made."""
    disks.gone.add("b")
    (disks.places["c"] / dumps.RINGS).rmdir()
    disks.begin(None)
    assert dumps.spread(str(disks.here), disks, [None, "b", "c"], set(), 1) == {"b": "the node is gone"}
    assert os.listdir(disks.places["c"]) == []
    assert dumps.bring("copy", str(disks.here), disks, "c") == []
    with pytest.raises(ConnectionError):
        dumps.bring("copy", str(disks.here), disks, "b")


def test_a_half_written_request_is_left_for_the_next_look(disks):
    """A dump whose request is not there yet is no word to pass on."""
    told: set[str] = set()
    (disks.places["b"] / dumps.PLACE / "hang-1").mkdir(parents=True)
    dumps.spread(str(disks.here), disks, [None, "b"], told, 1)
    assert (everywhere(disks)[0], told) == ([], set())
