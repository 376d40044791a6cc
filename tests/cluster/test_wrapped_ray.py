"""Wrapped starts over real Ray, with a launcher that behaves as the public ones do: it writes when its child ends, not when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from accelprof import Worker, hookimpl, register, unregister
from accelprof.contracts.backend import Probe
from accelprof.contracts.targets import ArtifactFile, Assignment, Expectation, Launch, Target, WindowInfo
from accelprof.contracts.tool import Tool, ToolContext, ToolOptions
from accelprof.errors import CaptureError, ConfigError, UnavailableError

ray = pytest.importorskip("ray", reason="ray is not installed")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.second_try("a cluster of processes starts and ends on a machine that may be busy"),
]
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

LAUNCHER = """#!/bin/sh
# fakeprof profile [--trial] [--bad] -o OUT COMMAND...
out=; trial=
shift
while :; do case $1 in
  --trial) trial=1; shift;;
  --bad) echo "fakeprof: unknown option --bad" >&2; exit 2;;
  -o) out=$2; shift 2;;
  *) break;; esac; done
[ "$trial" ] || { mkdir -p "$FAKEPROF_LOG"; printf '%s\\n' "$out" "$@" >"$FAKEPROF_LOG/$$"; }
FAKEPROF_SESSION=$$ "$@"
status=$?
[ "$trial" ] || [ $status -ge 128 ] || echo report >"$out-$(uname -n)-$$.report"
exit $status
"""


class FakeOptions(ToolOptions):
    program: str = "fakeprof"
    bad: bool = False


class FakeTool(Tool):
    """Wraps from outside, writes one report when the process ends in order."""

    name: ClassVar[str] = "fakeprof"
    Options: ClassVar[type[ToolOptions]] = FakeOptions

    def probe(self) -> Probe:
        return Probe(0, "a test's launcher")

    def launch(self, assignment: Assignment, directory: str) -> Launch:
        head = (self.options.program, "profile", *(["--bad"] if self.options.bad else []))
        out = os.path.join(directory, f"r{assignment.target.rank}")
        interpreter = assignment.target.interpreter or (sys.executable,)
        return Launch(
            "prefix",
            (*head, "-o", out),
            env={"FAKEPROF": "1", "LD_PRELOAD": ""},
            unset_in_children=("FAKEPROF",),
            make_dirs=(directory,),
            preflight=(*head, "--trial", "-o", "x", *interpreter, "-c", "pass"),
        )

    def trigger(self, target: Target) -> str:
        return "none"

    def attach(self, context: ToolContext) -> None:
        super().attach(context)
        if not os.environ.get("FAKEPROF_SESSION"):
            raise CaptureError("this process was not started under fakeprof")

    def open(self, window: WindowInfo) -> None:
        pass

    def close(self, window: WindowInfo) -> list[ArtifactFile]:
        return []

    def expects(self, assignment: Assignment, directory: str) -> list[Expectation]:
        return [Expectation(os.path.join(directory, f"r{assignment.target.rank}-*.report"), 1, "process_exit")]

    def match(self, files: Sequence[str], windows: Sequence[WindowInfo]) -> list[ArtifactFile]:
        held = tuple(window.id for window in windows)
        return [ArtifactFile(path, self.name, held, os.path.getsize(path)) for path in files]


def plugin() -> SimpleNamespace:
    return SimpleNamespace(accelprof_tools=hookimpl(lambda: [FakeTool], specname="accelprof_tools"))


class Engine(Worker):
    """A worker that may start a child actor and a child process of its own, as inference engines do."""

    def __init__(self) -> None:
        register(plugin(), "fakeprof")

    @Worker.timer("rollout/generate")
    def generate(self) -> int:
        return os.getpid()

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def argv(self) -> list[str]:
        return [sys.executable, *sys.orig_argv[1:]]

    def child_actor(self, runtime_env: dict[str, Any] | None) -> dict[str, str]:
        options = {} if runtime_env is None else {"runtime_env": runtime_env}
        self.child = ray.remote(num_cpus=0)(Engine).options(**options).remote()
        found: dict[str, str] = ray.get(self.child.environment.remote())
        return found

    def child_process(self) -> str:
        code = "import os; print(os.environ.get('FAKEPROF', 'unset'))"
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def place(ray_cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with the launcher, in a path that shells take apart when it is not quoted."""
    home = tmp_path / "a dir named `a b" / "it's (1) $HOME"
    (home / "bin").mkdir(parents=True)
    launcher = home / "bin" / "fakeprof"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    register(plugin(), "fakeprof")
    yield home
    unregister("fakeprof")


def make(place: Path, **config: Any) -> Any:
    from accelprof.cluster import Controller

    tools = {"fakeprof": {"program": str(place / "bin" / "fakeprof"), **config.pop("options", {})}}
    return Controller(
        {
            "tool": "fakeprof",
            "tools": tools,
            "steps": [1],
            "output_dir": str(place / "out"),
            "report_timeout": 60,
            **config,
        }
    )


def start(ctl: Any, place: Path, rank: int, **options: Any) -> Any:
    env = {"env_vars": {"FAKEPROF_LOG": str(place.parents[1] / "log"), "MINE": "kept"}}
    return (
        ray.remote(num_cpus=0)(Engine).options(**ctl.options("Engines", rank=rank, runtime_env=env, **options)).remote()
    )


def commands(place: Path) -> list[list[str]]:
    """What each launcher that ran was given: output, then the command."""
    return [path.read_text().splitlines() for path in sorted((place.parents[1] / "log").iterdir())]


def test_the_selected_worker_alone_is_wrapped_and_its_children_are_not(place: Path) -> None:
    """Of two ranks one runs under the launcher; an actor it creates, with or without its own runtime_env, does not."""
    ctl = make(place)
    actors = [start(ctl, place, rank) for rank in (0, 1)]
    ctl.attach("Engines", actors)
    first, second = ray.get([actor.environment.remote() for actor in actors])
    assert "FAKEPROF_SESSION" in first
    assert "FAKEPROF_SESSION" not in second
    assert first["MINE"] == second["MINE"] == "kept"
    assert first["ACCELPROF_TARGET"] == "Engines/rank0"
    for runtime_env in (None, {"env_vars": {"OTHER": "1"}}):
        child = ray.get(actors[0].child_actor.remote(runtime_env))
        assert "FAKEPROF_SESSION" not in child
        assert "FAKEPROF" not in child
    assert ray.get(actors[0].child_process.remote()) == "unset"
    [[output, *command]] = commands(place)
    assert output == f"{ctl.run_dir}/Engines/r0"
    assert command[0] == sys.executable
    with ctl.step(1):
        ray.get([actor.generate.remote() for actor in actors])
    manifest = ctl.close(end_workers=True)
    [report] = [artifact for artifact in manifest["artifacts"] if artifact["tool"] == "fakeprof"]
    assert report["state"] == "complete"
    assert report["windows"] == [manifest["windows"][0]["id"]]
    assert manifest["undelivered"] == []


def test_a_role_given_to_options_is_enough_and_one_given_to_attach_names_the_other(place: Path) -> None:
    """The start needs the role: given there it holds for ``attach`` too; given to ``attach`` alone, the worker's own message
    says which call needs it as well."""
    ctl = make(place, groups={"Engines": [{"roles": ["actor"], "ranks": "all"}]}, report_timeout=30)
    one = start(ctl, place, 0, role="actor")
    other = start(ctl, place, 1)
    ctl.attach("Engines", one, ranks=[0])
    ctl.attach("Engines", other, ranks=[1], role="actor")
    with ctl.step(1):
        ray.get([actor.generate.remote() for actor in (one, other)])
    manifest = ctl.close(end_workers=True)
    assert [row["target"] for row in manifest["windows"] if row["opened"]]
    assert len([artifact for artifact in manifest["artifacts"] if artifact["tool"] == "fakeprof"]) == 1
    [said] = [text for text in manifest["problems"] if "not started under fakeprof" in text and "rank1" in text]
    assert "options('Engines', role='actor') needs the role= that attach has" in said


def test_a_killed_worker_leaves_no_report_and_is_named(place: Path) -> None:
    """A SIGKILL right after the window loses what is written at exit: the manifest says for whom, and is incomplete."""
    ctl = make(place, report_timeout=5)
    actor = start(ctl, place, 0)
    ctl.attach("Engines", actor)
    with ctl.step(1):
        ray.get(actor.generate.remote())
    [member] = ctl.roster.members
    os.kill(member.facts["pid"], signal.SIGKILL)
    manifest = ctl.close()
    assert manifest["status"] == "incomplete"
    assert any("Engines/rank0: 1 of 1 reports of fakeprof did not come" in text for text in manifest["undelivered"])
    assert [artifact["state"] for artifact in manifest["artifacts"] if artifact["tool"] == "fakeprof"] == ["missing"]
    assert len(manifest["windows"]) == 1


def test_ray_kill_ends_with_the_report_or_with_its_name(place: Path) -> None:
    """B11: after ``ray.kill`` right after the window there is either the whole report, or a line that names the worker."""
    ctl = make(place, report_timeout=5)
    actor = start(ctl, place, 0)
    ctl.attach("Engines", actor)
    with ctl.step(1):
        ray.get(actor.generate.remote())
    ray.kill(actor)
    manifest = ctl.close()
    [report] = [artifact for artifact in manifest["artifacts"] if artifact["tool"] == "fakeprof"]
    if report["state"] != "complete":
        assert any("Engines/rank0: 1 of 1 reports of fakeprof did not come" in text for text in manifest["undelivered"])
    assert len(manifest["windows"]) == 1


def test_a_restarted_worker_is_wrapped_again(place: Path) -> None:
    """The claim of a process that is gone does not keep its successor from the tool."""
    ctl = make(place)
    actor = start(ctl, place, 0, max_restarts=1, max_task_retries=2)
    first = ray.get(actor.environment.remote())["FAKEPROF_SESSION"]
    ray.kill(actor, no_restart=False)
    second = first
    until = time.monotonic() + 30
    while second == first and time.monotonic() < until:
        second = ray.get(actor.environment.remote()).get("FAKEPROF_SESSION")
    assert second not in (None, first)
    ctl.attach("Engines", actor)
    ctl.close()


def test_a_launcher_that_does_not_start_is_an_error_here(place: Path) -> None:
    """A wrong path and a refused option raise on the driver, within seconds, with the launcher's own words."""
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="No such file"):
        make(place, options={"program": "/nowhere/fakeprof"}).options("Engines", rank=0)
    with pytest.raises(UnavailableError, match="unknown option --bad"):
        make(place, options={"bad": True}).options("Engines", rank=0)
    assert time.monotonic() - began < 30


def test_options_are_merged_into_what_the_user_has(place: Path) -> None:
    """Resources, env_vars, working_dir and the interpreter's own words stay; a second wrap changes nothing."""
    ctl = make(place, ranks="all")
    env = {
        "env_vars": {"A": "1", "LD_PRELOAD": "/mine.so"},
        "py_executable": f"env B=2 {sys.executable} -u",
        "working_dir": ".",
    }
    base = {"num_cpus": 2, "runtime_env": env}
    once = ctl.options("Engines", rank=3, base=base, num_gpus=0)
    assert (once["num_cpus"], once["num_gpus"], once["runtime_env"]["working_dir"]) == (2, 0, ".")
    assert once["runtime_env"]["env_vars"].items() >= {"A": "1", "LD_PRELOAD": "/mine.so", "FAKEPROF": "1"}.items()
    assert once["runtime_env"]["py_executable"].endswith(f" env B=2 {sys.executable} -u")
    assert once["runtime_env"]["py_executable"].count("profile") == 1
    assert ctl.options("Engines", rank=3, base=once) == once
    assert base["runtime_env"] == env
    unselected = make(place, ranks=[0]).options("Engines", rank=3, base=base)
    assert unselected == base
    ctl.close()


@pytest.mark.parametrize("key", ["nsight", "_rocprof_sys"])
def test_two_profilers_around_one_process_are_refused_by_name(place: Path, key: str) -> None:
    """Ray's own profiler entry with options is refused by its path; its default form gives way to the plan."""
    ctl = make(place)
    with pytest.raises(ConfigError, match=rf"runtime_env\.{key}.*tools\.fakeprof"):
        ctl.options("Engines", rank=0, runtime_env={key: {"t": "cuda"}})
    assert key not in ctl.options("Engines", rank=0, runtime_env={key: "default"})["runtime_env"]
    assert ctl.options("Engines", rank=5, runtime_env={key: {"t": "cuda"}}) == {"runtime_env": {key: {"t": "cuda"}}}
    ctl.close()


def test_plugins_may_change_a_launch(place: Path) -> None:
    """What ``accelprof_launch_modify`` returns is what the worker starts under."""
    from dataclasses import replace

    @hookimpl
    def accelprof_launch_modify(target: Target, launch: Launch) -> Launch:
        return replace(launch, env={**launch.env, "SEEN": target.label})

    register(SimpleNamespace(accelprof_launch_modify=accelprof_launch_modify), "changer")
    try:
        ctl = make(place)
        options = ctl.options("Engines", rank=0)
        assert options["runtime_env"]["env_vars"]["SEEN"] == "Engines/rank0"
        ctl.close()
    finally:
        unregister("changer")
