"""The controller's watch over dumps: whom it asks, and that nothing of it reaches training."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="ray is not installed")

from accelprof.cluster import dumping


@pytest.fixture
def watch(monkeypatch):
    """``watch(node ids of the workers, what spreading does)``: the calls it made, and what was said, after some looks."""
    made = []

    def run(nodes, spread, own=None):
        calls, said = [], []

        def spreading(run_dir, where, hosts, told, timeout):
            calls.append(hosts)
            return spread()

        monkeypatch.setattr(dumping.dumps, "spread", spreading)
        monkeypatch.setattr(dumping, "own_node", lambda: own)
        members = [SimpleNamespace(facts={"node_id": node, "host": node}) for node in nodes]
        roster = SimpleNamespace(members=members, config=SimpleNamespace(control_timeout=1.0))
        made.append(dumping.DumpWatch(roster, "/nowhere", said.append, 0.01))
        time.sleep(0.3)
        made[-1].end()
        assert not made[-1]._thread.is_alive()
        return calls, said

    return run


@pytest.mark.parametrize("own", [None, "here"])
def test_hosts_are_the_drivers_and_those_of_workers(watch, own):
    """Also of a driver outside of the cluster, which has no node; each host once."""
    calls, said = watch(["here", "b", "b"] if own else ["b"], dict, own)
    assert len(calls) > 1
    assert all(hosts == {None, "b"} for hosts in calls)
    assert said == []


@pytest.mark.parametrize("nodes", [[], ["here", "here"]])
def test_one_host_alone_is_asked_nothing(watch, nodes):
    """The run's directory does all there."""
    assert watch(nodes, dict, "here") == ([], [])


def test_a_node_that_does_not_answer_is_said(watch):
    """By its name; the others go on being asked."""
    calls, said = watch(["b"], lambda: {"b": "it is gone"})
    assert len(calls) > 1
    assert set(said) == {"dumps of the flight recorder are not asked for on node b: it is gone"}


def test_what_ray_raises_ends_the_watch_alone(watch):
    """Ray was shut down before the controller: said once, with the cause."""

    def spread():
        raise ConnectionError("Ray was shut down")

    calls, said = watch(["b"], spread)
    assert len(calls) == 1
    assert said == ["dumps of the flight recorder are not asked for on other nodes: ConnectionError: Ray was shut down"]
