"""``accelprof run``: any command under the plan, its own exit status, and a manifest of what its processes left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import accelprof
from accelprof import hookimpl, register
from accelprof.analysis.first import sentences
from accelprof.analysis.run import open_run
from accelprof.analysis.summary import summarise
from accelprof.catalogue import get_catalogue
from accelprof.contracts.targets import Assignment, Expectation, Launch
from accelprof.contracts.tool import Tool, ToolOptions
from accelprof.errors import ConfigError, UserError
from accelprof.launch import run as launch_run
from accelprof.launch.preview import preview
from accelprof.launch.run import split_python
from accelprof.planning.names import nothing_profiled

SCRIPT = """
import os, sys, time
import accelprof

@accelprof.timer("train/step")
def work():
    time.sleep(0.002)

session = accelprof.configure(group="Workers")
for step in range(int(sys.argv[1])):
    with session.step(step):
        work()
if len(sys.argv) > 2:
    print("ready", flush=True)
    time.sleep(float(sys.argv[2]))
sys.exit(int(os.environ.get("END", 0)))
"""

#: goes on behind the command that started it, between its two windows, until it may go
BEHIND = """
import os, time
import accelprof

session = accelprof.configure(group="Workers")
for step in (1, 6):
    while step == 6 and not os.path.exists("go"):
        time.sleep(0.02)
    with session.step(step):
        pass
    open(f"step{step}", "w").close()
"""

#: starts two ranks, as a launcher such as torchrun does
LAUNCHER = """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, *sys.argv[1:]], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"})
         for rank in range(2)]
sys.exit(max(rank.wait() for rank in ranks))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    (tmp_path / "profile.yaml").write_text("steps: [1]\noutput_dir: out\nrun: run\n")
    return tmp_path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "accelprof.cli.main", "run", "-c", "profile.yaml", *words]


def start(place: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), cwd=place, capture_output=True, text=True, timeout=100, env={**os.environ, **env}, check=False
    )


def manifest(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / "out" / "run" / "manifest.json").read_text())
    return found


def test_every_step_has_its_wall_time(place: Path) -> None:
    """Also those without a window, as in every other way to run: what a window costs can be told."""
    assert start(place, "--", sys.executable, "train.py", "6").returncode == 0
    rows = manifest(place)["metrics"]["steps"]
    assert [(row["step"], row["window"]) for row in rows] == [(step, step == 1) for step in range(6)]
    assert all(row["wall_ns"] >= 2_000_000 and "train/step" in row["seconds"] for row in rows)


FAILING = """
import os, signal, sys
import accelprof
session = accelprof.configure(group="Workers")
for step in range(4):
    if sys.argv[1] == "plain":
        session.begin_step(step)
        if step == 2:
            raise ValueError("in the middle")
        session.end_step(step)
        continue
    with session.step(step):
        with accelprof.profiling_range("work"):
            if step == 2 and sys.argv[1] == "body":
                raise ValueError("in the middle")
            if step == 2 and sys.argv[1] == "signal":
                os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize("how", ["body", "signal", "plain"])
@pytest.mark.parametrize("launched", [True, False])
def test_a_step_that_never_ended_is_no_short_step(place: Path, how: str, launched: bool) -> None:
    """Of a step in which the process failed, or was told to end, no length is told, whether a window held it or not."""
    (place / "fails.py").write_text(
        FAILING.replace('group="Workers"', 'group="Workers"' if launched else '"profile.yaml", group="Workers"')
    )
    (place / "profile.yaml").write_text("steps: [2]\noutput_dir: out\nrun: run\n")
    words = command("--", sys.executable, "fails.py", how) if launched else [sys.executable, "fails.py", how]
    ended = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode != 0
    found = summarise(place / "out" / "run").report()
    assert [(row.step, row.wall_ns is None) for row in found.steps] == [(0, False), (1, False), (2, True)]
    first = sentences(found)
    assert not any("Step 2 took" in line for line in first), first
    if found.critical_path and found.critical_path[-1].segments:
        assert found.critical_path[-1].ended is False
        assert first[0].startswith("Step 2 did not end")


def test_the_command_runs_under_the_plan_and_the_run_is_whole(place: Path) -> None:
    """The script says nothing of configuration; its window is in the manifest, timeline and page lie beside it."""
    done = start(place, "--", sys.executable, "train.py", "3")
    assert done.returncode == 0, done.stderr
    assert manifest(place)["status"] == "complete"
    assert [window["steps"] for window in manifest(place)["windows"]] == [[1]]
    assert "train/step" in done.stdout
    for name in ("timeline.json.gz", "report.html", "config.json"):
        assert (place / "out" / "run" / name).stat().st_size > 0


def test_ranks_of_a_launcher_share_one_run_and_only_the_selected_record(place: Path) -> None:
    """Two processes with RANK 0 and 1: rank 1 alone has a window, by an override on the command line."""
    done = start(place, "ranks=[1]", "--", sys.executable, "launcher.py", "train.py", "2")
    assert done.returncode == 0, done.stderr
    assert [(target["group"], target["rank"]) for target in manifest(place)["targets"]] == [("Workers", 1)]
    assert len(manifest(place)["windows"]) == 1


def test_the_exit_status_is_the_commands_own(place: Path) -> None:
    """Status 3 of the command comes through, and what it recorded is there."""
    done = start(place, "--", sys.executable, "train.py", "2", END="3")
    assert done.returncode == 3
    assert manifest(place)["status"] == "complete"


def test_armed_and_never_opened_makes_a_successful_command_fail(place: Path) -> None:
    """Step 1 never came: status 1, said with the steps that were seen."""
    done = start(place, "--", sys.executable, "train.py", "1")
    assert done.returncode == 1
    assert "armed, 0 windows opened; steps seen: 0" in done.stderr
    assert manifest(place)["status"] == "incomplete"


@pytest.mark.parametrize("how", ["it ends in order", "it is killed"])
def test_what_goes_on_behind_the_command_is_judged_when_it_is_over(place: Path, how: str) -> None:
    """Its windows may yet come when the manifest is written, which says that it runs; later its journal says what came."""
    (place / "behind.py").write_text(BEHIND)
    (place / "profile.yaml").write_text("steps: [1, 6]\noutput_dir: out\nrun: run\n")
    behind = f"{sys.executable} behind.py > log 2>&1 & while ! [ -e step1 ]; do sleep 0.05; done"
    done = start(place, "--no-table", "--", "sh", "-c", behind)
    [key] = manifest(place)["running"]
    run = open_run(place / "out" / "run")
    pid = run.manifest.targets[key].pid
    assert pid is not None
    try:
        assert (done.returncode, manifest(place)["undelivered"], run.lacks) == (0, [], []), done.stderr
        (place / "go").touch() if how == "it ends in order" else os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + 60
        while open_run(place / "out" / "run").running and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        (place / "go").touch()
    run = open_run(place / "out" / "run")
    steps = [window.steps for window in run.manifest.windows.values()]
    missing = [] if how == "it ends in order" else ["never_opened"]
    assert ([lack.code for lack in run.lacks], steps) == (missing, [[1], [6]] if not missing else [[1]])


def test_a_command_without_a_session_is_not_shown_as_a_result(place: Path) -> None:
    """A command that knows nothing of accelprof ends with status 1 and the reason."""
    done = start(place, "--", sys.executable, "-c", "pass")
    assert done.returncode == 1
    assert "made a session" in done.stderr


def test_a_users_mistake_shows_no_traceback(place: Path) -> None:
    """No command, a program that is not there, a misspelt key: status 2 and one line."""
    for words, said in (
        ([], "no command"),
        (["--", "no-such-program"], "no such program"),
        (["stpes=[1]", "--", "true"], "did you mean 'steps'"),
    ):
        done = start(place, *words)
        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["true", "a\0b"], ["tr\0ue"], ["\0"], ["true", "\ud800"], [""], ["/"]])
def test_a_command_that_no_system_takes_is_a_users_mistake(command: list[str]) -> None:
    """A null byte, half a surrogate pair, no name, a directory: said of the command, and nothing was started."""
    with pytest.raises(UserError, match="^run: "):
        launch_run.start(command, dict(os.environ))
    with pytest.raises(UserError, match="null byte"):
        launch_run.start(["true"], {**os.environ, "A": "b\0c"})


def test_signals_are_handed_on_and_the_run_is_finished(place: Path) -> None:
    """SIGTERM reaches the command, which ends by it; the manifest is written all the same."""
    words = command("--", sys.executable, "train.py", "2", "60")
    process = subprocess.Popen(words, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 128 + signal.SIGTERM
    process.stdout.close()
    assert time.monotonic() - began < 50
    assert len(manifest(place)["windows"]) == 1


class Launcher(Tool):
    """Starts the command as ``env`` does, and has something to say of it."""

    name = "launcher"

    class Options(ToolOptions):
        flag: str = ""

    def launch(self, assignment: Assignment, directory: str) -> Launch:
        return Launch("prefix", ("env", "LAUNCHED=1"), notes=("reports come late",))

    def expects(self, assignment: Assignment, directory: str) -> list[Expectation]:
        raise ValueError("a bug of the plug-in")


@pytest.fixture
def launcher() -> Any:
    register(SimpleNamespace(accelprof_tools=hookimpl(lambda: [Launcher], specname="accelprof_tools")), "launcher")
    yield
    accelprof.reset()


def planned(**config: Any) -> tuple[Any, Any, Any]:
    registry = get_catalogue()
    loaded = registry.load({"tool": "launcher", "steps": [1], **config}).config
    return registry, loaded, registry.plan(loaded)


def test_a_plan_that_one_command_cannot_have_is_refused_before_anything_is_made(tmp_path: Path, launcher: None) -> None:
    """Two groups want two launchers: no run directory is left behind."""
    groups = {"A": {}, "B": {"options": {"flag": "other"}}}
    with pytest.raises(ConfigError, match="one launcher"):
        launch_run.run(*planned(groups=groups, output_dir=str(tmp_path / "out")), ["true"])
    assert list(tmp_path.iterdir()) == []


def test_a_bug_in_the_launchers_tool_does_not_lose_the_manifest(tmp_path: Path, launcher: None) -> None:
    """``expects`` raises ValueError after the command: its reports are said to be lacking, by the tool's name and reason."""
    run_dir = tmp_path / "out" / "run"
    code = f"""
import json, os
os.makedirs({str(run_dir / ".workers")!r}, exist_ok=True)
rows = [{{"kind": "target", "key": "G-r0", "group": "G", "rank": 0}},
        {{"kind": "window", "id": "w1", "sequence": 1, "target": "G-r0", "tools": ["launcher"], "steps": [1], "closed": {{"epoch_ns": 1}}}}]
with open({str(run_dir / ".workers" / "a.jsonl")!r}, "w") as file:
    file.writelines(json.dumps(row) + chr(10) for row in rows)
"""
    outcome = launch_run.run(
        *planned(output_dir=str(tmp_path / "out"), run="run"), [sys.executable, "-c", code], lambda text: None
    )
    assert outcome.status == 0
    assert any("what launcher leaves is not known: ValueError: a bug" in text for text in outcome.undelivered)
    found = json.loads((run_dir / "manifest.json").read_text())
    assert [window["id"] for window in found["windows"]] == ["w1"]
    assert found["notes"] == ["reports come late"]
    assert not [text for text in found["problems"] if "late" in text]


#: a worker that knows the tool and none of the driver's hooks, and what a child of it inherits
SPARED = """
import json, os, subprocess, sys
from types import SimpleNamespace
import accelprof
from accelprof.contracts.tool import Tool

class Launcher(Tool):
    name = "launcher"

accelprof.register(SimpleNamespace(
    accelprof_tools=accelprof.hookimpl(lambda: [Launcher], specname="accelprof_tools")), "launcher")
inherited = lambda: json.loads(subprocess.check_output(
    [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]))
before = inherited()
session = accelprof.configure(group="G", rank=0)
during = inherited()
session.close()
accelprof.reset()
with open(sys.argv[1], "w") as file:
    json.dump([before, during, inherited(), session.problems], file)
"""


def test_what_children_do_not_inherit_is_what_the_driver_says(
    tmp_path: Path, launcher: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool's variables and those that a plug-in added to its launch, by the driver's word alone: the worker's plug-ins are not
    asked again. Of a list only what the launch put there goes, and all is back afterwards."""

    def launch(self: Launcher, assignment: Assignment, directory: str) -> Launch:
        return Launch("prefix", ("env",), env={"OF_TOOL": "1"}, unset_in_children=("OF_TOOL",))

    def accelprof_launch_modify(target: object, launch: Launch) -> Launch:
        more = {"OF_PLUGIN": "1", "LD_LIBRARY_PATH": "/ours"}
        unset = (*launch.unset_in_children, *more, "OF_USER", "NOT_THERE")
        return replace(launch, env={**launch.env, **more}, unset_in_children=unset)

    monkeypatch.setattr(Launcher, "launch", launch)
    monkeypatch.setattr(Launcher, "expects", lambda *_: [])
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    monkeypatch.setenv("OF_USER", "1")
    (tmp_path / "worker.py").write_text(SPARED)
    register(SimpleNamespace(accelprof_launch_modify=hookimpl(accelprof_launch_modify)), "changer")
    words = [sys.executable, str(tmp_path / "worker.py"), str(tmp_path / "seen")]
    outcome = launch_run.run(*planned(output_dir=str(tmp_path / "out"), groups={"G": {}}), words, lambda text: None)
    assert outcome.status == 0
    before, during, after, problems = json.loads((tmp_path / "seen").read_text())
    named = set(json.loads(before["ACCELPROF_UNSET"]))
    assert named == {"OF_TOOL", "OF_PLUGIN", "LD_LIBRARY_PATH", "OF_USER", "NOT_THERE"}
    gone = before.keys() - during.keys()
    assert gone == named - {"LD_LIBRARY_PATH", "NOT_THERE"} | {"ACCELPROF_UNSET"}
    assert (before["LD_LIBRARY_PATH"], during["LD_LIBRARY_PATH"]) == ("/ours:/mine", "/mine")
    assert after == before
    assert not [text for text in problems if "children" in text]


@pytest.mark.parametrize("text", ["OF_TOOL", "[1]", "3"])
def test_names_to_unset_that_nobody_wrote_so_end_nothing(
    tmp_path: Path, launcher: None, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """It is said, and the session is there."""
    monkeypatch.setenv("ACCELPROF_UNSET", text)
    session = accelprof.configure(steps=[1], tool="launcher", output_dir=str(tmp_path))
    accelprof.reset()
    assert session.assignment.selected
    assert any("ACCELPROF_UNSET is not what a launch writes" in said for said in session.problems)


@pytest.mark.parametrize(
    ("config", "rank", "count", "shared"),
    [
        ({}, 0, 1, False),
        ({"ranks": [1]}, 1, 1, False),
        ({"ranks": [0, 1]}, None, None, True),
        ({"ranks": "all"}, None, None, True),
    ],
)
def test_a_launcher_around_several_selected_processes_is_told_no_count(
    launcher: None, config: dict[str, Any], rank: int | None, count: int | None, shared: bool
) -> None:
    """Windows of all the selected ranks pass through one launcher, so the count of one process would be too small."""
    registry, _, plan = planned(**config)
    found = launch_run.launcher_of(registry, plan)
    assert found is not None
    assert (found[0].target.rank, found[0].count.exact, found[1]) == (rank, count, shared)


HOST = os.uname().nodename


@pytest.mark.parametrize(
    ("config", "wrapped"),
    [
        ({"nodes": ["*"]}, True),
        ({"nodes": ["elsewhere", HOST]}, True),
        ({"nodes": ["elsewhere*"]}, False),
        ({"nodes": ["elsewhere", "7"]}, True),
        ({"nodes": [HOST], "ranks": [3]}, True),
        ({"groups": {"A": [{"nodes": [HOST], "enabled": False}, {"ranks": [0]}]}}, False),
        ({"groups": {"A": [{"nodes": ["elsewhere"], "enabled": False}, {"ranks": [0]}]}}, True),
        ({"groups": {"A": [{"roles": ["actor"], "enabled": False}, {}]}}, True),
        ({"groups": {"A": {"replicas": [2]}}}, True),
        ({"replicas": [1]}, True),
    ],
)
def test_a_command_is_wrapped_where_one_of_its_processes_may_be_selected(
    launcher: None, config: dict[str, Any], wrapped: bool
) -> None:
    """Rules that choose by node are asked with this host's name; what it cannot tell (a node's number) is wrapped."""
    registry, _, plan = planned(**config)
    found = launch_run.launcher_of(registry, plan)
    assert (found is not None) == wrapped
    assert (nothing_profiled(plan, (), HOST) == "") == wrapped


@pytest.mark.parametrize(
    ("nodes", "said"), [("*", ""), ("elsewhere", f"no rule takes any process on this host ({HOST})")]
)
def test_what_is_said_before_the_start_is_what_happens(place: Path, nodes: str, said: str) -> None:
    """``nodes`` with this host among them: nothing is said and the window is there; without it, that it is for other hosts."""
    done = start(place, f"nodes=['{nodes}']", "--", sys.executable, "train.py", "3")
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stderr.split())
    assert ("nothing to profile" in told) == bool(said)
    assert said in told
    assert len(manifest(place)["windows"]) == (not said)


@pytest.mark.parametrize(
    ("config", "captures"),
    [
        ({"steps": [1, 2, 3, 4, 5], "groups": {"Actor": {"steps": [2], "ranks": 0}}}, 5),
        ({"groups": {"Actor": {"steps": [2, 3, 4, 5, 6], "ranks": 0}}}, 1),
        ({"steps": "process", "groups": {"Actor": {"steps": [2], "ranks": 0}}}, 1),
        ({"steps": [1, 2, 4], "merge_steps": True, "groups": {"Actor": {"merge_steps": False}}}, 2),
        ({"steps": [1, 2], "groups": {"Actor": {"discrete": True, "roles": "trainer"}}}, 2),
        ({"steps": [1, 2], "discrete": True, "groups": {"Actor": {"discrete": False}}}, None),
        ({"steps": [3, 4], "groups": {"Actor": {"replicas": [1], "schedule": {"phase": "p", "active": 2}}}}, 2),
        ({"steps": [1, 2], "ranks": [3], "groups": {"Actor": {"tool": "launcher", "options": {"flag": "own"}}}}, 2),
        ({"steps": [1, 2], "groups": {"Actor": {"tool": None}, "controller": {"steps": [7]}}}, 2),
    ],
)
def test_the_driver_is_started_for_the_windows_that_it_opens(
    tmp_path: Path, launcher: None, config: dict[str, Any], captures: int | None
) -> None:
    """Whatever its workers do: the launcher, ``config show`` and the driver's own session have one assignment for it."""
    registry, loaded, plan = planned(output_dir=str(tmp_path), controller={"tool": "launcher"}, **config)
    found = launch_run.launcher_of(registry, plan)
    assert found is not None
    started, shared = found
    shown = preview(registry, plan)[0]
    run_dir = str(tmp_path / "run")
    opened = accelprof.configure(loaded, group="controller", rank=0, world_size=1, run_dir=run_dir).assignment
    assert (started.count.exact, shared, shown["captures"]) == (captures, False, captures)
    assert (started.mode, started.windows) == (opened.mode, opened.windows)
    assert (started.tool, started.options, started.count) == (opened.tool, opened.options, opened.count)
    assert shown["windows"] == [list(window) for window in opened.windows]


@pytest.mark.parametrize("controller", [None, {}, {"tool": None}, {"options": {}}])
def test_a_driver_without_a_tool_of_its_own_leaves_the_launcher_to_the_workers(
    launcher: None, controller: dict[str, Any] | None
) -> None:
    """``controller`` that is absent, empty or without a tool means the same."""
    registry, _, plan = planned(controller=controller)
    found = launch_run.launcher_of(registry, plan)
    assert found is not None
    assert (found[0].tool, found[0].target.group) == ("launcher", planned()[2].preview()[0].target.group)


def test_a_driver_that_opens_nothing_is_started_as_it_is(launcher: None) -> None:
    """Its workers have steps of their own, and are started by its controller."""
    registry, _, plan = planned(steps=None, groups={"Actor": {"steps": [2]}}, controller={"tool": "launcher"})
    assert launch_run.launcher_of(registry, plan) is None


@pytest.mark.parametrize(
    ("words", "python", "rest"),
    [
        (["python3", "-u", "-W", "error", "train.py", "-x"], ["python3", "-u", "-W", "error"], ["train.py", "-x"]),
        (["/usr/bin/python3.11", "-m", "pkg"], ["/usr/bin/python3.11"], ["-m", "pkg"]),
        (["torchrun", "--nproc-per-node=2", "train.py"], [], ["torchrun", "--nproc-per-node=2", "train.py"]),
    ],
)
def test_interpreter_and_script_are_told_apart(words: list[str], python: list[str], rest: list[str]) -> None:
    """The interpreter's own options stay with it; other programs have none."""
    assert split_python(words) == (python, rest)


@pytest.mark.parametrize("more", [[], ["--no-table"]])
def test_a_framework_that_is_caught_needs_no_configuration(tmp_path: Path, more: list[str]) -> None:
    """``ACCELPROF_INSTALL=rlinf accelprof run -- CMD``: the command runs with our start-up module, its status is its own."""
    code = "import os, sys; print(os.environ['PYTHONPATH']); sys.exit(3)"
    argv = [sys.executable, "-m", "accelprof", "run", *more, "--", sys.executable, "-c", code]
    env = {**os.environ, "ACCELPROF_INSTALL": "rlinf"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=env, check=False)
    assert (done.returncode, "accelprof" in done.stdout) == (3, True), done.stderr
    assert list(tmp_path.iterdir()) == []
    env.pop("ACCELPROF_INSTALL")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=env, check=False)
    assert done.returncode == 2
    assert "Missing option '-c'" in done.stderr
