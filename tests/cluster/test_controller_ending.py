"""What a controller owes whatever goes wrong: a manifest, the caller's own exception, a refusal before anything is made."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from accelprof import Worker, hookimpl, register, unregister
from accelprof.contracts.targets import Assignment, Expectation, Launch, Target
from accelprof.contracts.tool import Tool
from accelprof.errors import CaptureError, ConfigError, IncompleteError

ray = pytest.importorskip("ray", reason="ray is not installed")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.second_try("a cluster of processes starts and ends on a machine that may be busy"),
]
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Trainer(Worker):
    """A worker whose answer to ``clock`` takes ``seconds``."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def accelprof_call(self, command: str, *args: Any, **kwargs: Any) -> Any:
        if command == "clock":
            time.sleep(self.seconds)
        return super().accelprof_call(command, *args, **kwargs)


class NotedTool(Tool):
    """Needs a variable at launch, and has something to say of it."""

    name = "noted"

    def launch(self, assignment: Assignment, directory: str) -> Launch:
        return Launch("env", env={"NOTED": "1"}, notes=("reports come late",))


class BrokenTool(Tool):
    """Its expectations are a bug."""

    name = "broken"

    def expects(self, assignment: Assignment, directory: str) -> list[Expectation]:
        raise ValueError("a bug of the plug-in")


@pytest.fixture
def tools() -> Any:
    plugin = SimpleNamespace(accelprof_tools=hookimpl(lambda: [NotedTool, BrokenTool], specname="accelprof_tools"))
    register(plugin, "ending-tests")
    yield
    unregister("ending-tests")


def controller(tmp_path: Path, **config: Any) -> Any:
    from accelprof.cluster import Controller

    return Controller({"output_dir": str(tmp_path), "report_timeout": 2, **config})


def start(*args: Any) -> Any:
    return ray.remote(num_cpus=0)(Trainer).remote(*args)


def kill(ctl: Any, rank: int) -> None:
    """At once: Ray's own kill now and then lets a worker end in order, and then nothing is lost."""
    [member] = [member for member in ctl.roster.members if member.target.rank == rank]
    os.kill(member.facts["pid"], signal.SIGKILL)


def test_close_writes_the_manifest_although_the_running_step_cannot_be_ended(ray_cluster: Any, tmp_path: Path) -> None:
    """The worker died inside the step: with ``on_error: raise`` close raises that, and the manifest is on disk."""
    ctl, actor = controller(tmp_path, steps=[1], on_error="raise"), start()
    ctl.attach("Actors", actor)
    ctl.begin_step(1)
    kill(ctl, 0)
    with pytest.raises(CaptureError, match="Actors/rank0: was not told that the step ended"):
        ctl.close()
    manifest = json.loads(Path(ctl.run_dir, "manifest.json").read_text())
    assert manifest["status"] == "incomplete"
    assert ctl.close()["status"] == "incomplete"


def test_a_worker_of_which_nothing_is_left_is_named(ray_cluster: Any, tmp_path: Path) -> None:
    """It can neither be asked nor read of, as when its host is gone: the run is incomplete, and says whose windows are lost."""
    ctl, actors = controller(tmp_path, steps=[1], ranks="all"), [start(), start()]
    ctl.attach("Actors", actors)
    with ctl.step(1):
        pass
    kill(ctl, 1)
    time.sleep(0.5)
    for journal in Path(ctl.run_dir, ".workers").glob("Actors-r1-*.jsonl"):
        journal.unlink()
    manifest = ctl.close()
    assert manifest["status"] == "incomplete"
    [lost] = manifest["undelivered"]
    assert lost.startswith("Actors/rank1: its session could not be closed and no window stands in a journal of it")


def test_what_was_not_delivered_never_hides_the_bodys_own_exception(
    ray_cluster: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """``with Controller`` raises the body's exception and logs the rest; without one it raises what is lacking."""
    wrong = KeyError("mine")
    with (
        caplog.at_level(logging.WARNING, "accelprof"),
        pytest.raises(KeyError) as caught,
        controller(tmp_path, steps=[1], on_error="raise"),
    ):
        raise wrong
    assert caught.value is wrong
    assert "no worker was attached" in caplog.text
    with (
        pytest.raises(IncompleteError, match="no worker was attached"),
        controller(tmp_path, steps=[1], on_error="raise"),
    ):
        pass


def test_clocks_are_read_all_at_once_and_each_trip_is_its_own(ray_cluster: Any, tmp_path: Path) -> None:
    """Three workers that answer slowly take the time of one, and do not lengthen the round trip of a quick one."""
    from accelprof.cluster import clock

    ctl, actors = controller(tmp_path, steps=[1], ranks="all"), [start(0.3), start(0.3), start(0.3), start()]
    ctl.attach("Actors", actors)
    members = list(ctl.roster.members)
    began = time.monotonic()
    assert clock.measure(members, 10.0) == []
    assert 5 * 0.3 <= time.monotonic() - began < 3 * 5 * 0.3
    trips = [member.clock.round_trip_ns / 1e9 for member in members]
    assert min(trips[:3]) >= 0.3
    assert trips[3] < 0.25
    assert {member.clock.rounds for member in members} == {5}
    ctl.close()


def test_a_wrong_engine_section_fails_on_the_driver(tmp_path: Path) -> None:
    """As ``config check`` says it, and before a directory is made."""
    with pytest.raises(ConfigError, match=r"engines\.vlm"):
        controller(tmp_path, steps=[1], engines={"vlm": {}})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "config",
    [
        {"on_demand": True},
        {"instrument": [{"target": "json.encoder:JSONEncoder.encode", "schedule": {"active": 1}}]},
        {"groups": {"Actors": {}}, "instrument": [{"target": "a:B.c", "schedule": {"active": 1}}]},
    ],
    ids=["on demand", "a scheduled method", "in a group"],
)
def test_workers_have_a_run_for_windows_that_no_step_makes(ray_cluster: Any, tmp_path: Path, config: Any) -> None:
    """Where the plan selects a worker for windows on demand, or of an instrumented method, there is a run to record them in."""
    ctl = controller(tmp_path, **config)
    ctl.attach("Actors", start())
    assert [member.facts["selected"] for member in ctl.roster.members] == [True]
    assert ctl.close()["targets"][0]["group"] == "Actors"


def test_a_driver_hears_once_that_the_plan_is_ready(tmp_path: Path) -> None:
    """Where the plan was made, and not a second time."""
    heard: list[object] = []
    register(SimpleNamespace(told=hookimpl(lambda plan: heard.append(plan), specname="accelprof_plan_ready")), "hears")
    try:
        ctl = controller(tmp_path, steps=[1])
        ctl.close()
    finally:
        unregister("hears")
    assert heard == [ctl.plan]


def test_what_a_launch_has_to_say_is_a_note_and_no_problem(
    ray_cluster: Any, tmp_path: Path, tools: None, caplog: pytest.LogCaptureFixture
) -> None:
    """The note is logged as information and stands under ``notes``; ``problems`` stays free for what went wrong."""
    ctl = controller(tmp_path, steps=[1], tool="noted")
    with caplog.at_level(logging.INFO, "accelprof"):
        ctl.options("Actors", rank=0)
    assert [(row.levelname, row.message) for row in caplog.records if "late" in row.message] == [
        ("INFO", "accelprof: Actors/rank0: reports come late")
    ]
    manifest = ctl.close()
    assert manifest["notes"] == ["Actors/rank0: reports come late"]
    assert not [text for text in manifest["problems"] if "late" in text]


def test_a_bug_in_one_tool_loses_its_own_reports_only(ray_cluster: Any, tmp_path: Path, tools: None) -> None:
    """``expects`` of one worker's tool raises ValueError: that is said with the tool's name, nothing is raised."""
    from accelprof.catalogue import get_catalogue
    from accelprof.output.expected import Expected, await_files
    from accelprof.output.nodes import ThisHost
    from accelprof.output.records import Manifest, TargetRow, WindowRow

    known, expected = Manifest(), []
    for rank, tool in enumerate(("broken", "trace")):
        target = Target("G", rank=rank)
        expected.append(Expected(Assignment(target, True, tool), ("G", rank, None)))
        known.targets[f"G-r{rank}"] = TargetRow(key=f"G-r{rank}", group="G", rank=rank)
        known.windows[f"w{rank}"] = WindowRow(id=f"w{rank}", sequence=1, target=f"G-r{rank}", tools=[tool])
    rows, lacks = await_files(get_catalogue().make_tool, expected, str(tmp_path), known, ThisHost(), 0.0)
    assert rows == []
    [lack] = lacks
    assert lack.words == "G/rank0: what broken leaves is not known: ValueError: a bug of the plug-in"
    assert (lack.code, lack.tool) == ("report_missing", "broken")
