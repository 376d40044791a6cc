"""Tool ``nsys_session`` under the real nsys: windows that nobody planned, on a process that is not restarted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from accelprof_cuda import reader
from accelprof_cuda.nsys_sessions import SESSION_ENV, NsysSessionTool

from accelprof.catalogue import get_catalogue
from accelprof.contracts.spans import Kind
from accelprof.contracts.targets import Assignment, Target
from accelprof.launch.command import assemble
from accelprof.output.layout import Layout
from accelprof.testing import ToolConformance


class TestConformance(ToolConformance):
    """The kit."""

    def make(self) -> NsysSessionTool:
        return NsysSessionTool()


def test_launch_and_start_get_their_own_options() -> None:
    """What is the application's goes to ``nsys launch``; sampling is chosen at each start; one session a worker."""
    tool = NsysSessionTool({"trace": "nvtx", "sample": "none", "cuda-memory-usage": "true"})
    rows = [Assignment(Target("G", rank=rank), True) for rank in (0, 1)]
    launches = [tool.launch(row, "/run/G") for row in rows]
    assert launches[0].argv[1:] == (
        "launch", f"--session-new={launches[0].env[SESSION_ENV]}", "-t", "nvtx", "--cuda-memory-usage=true",
    )  # fmt: skip
    assert launches[0].env != launches[1].env
    assert tool.launch(rows[0], "/run/G") == launches[0]
    assert launches[0].env != tool.launch(rows[0], "/other/G").env
    assert tool._options(True) == ["--sample=none", "--cpuctxsw=none"]
    assert tool.check(rows) == []


@pytest.mark.parametrize("name", ["capture-range", "capture-range-end", "output", "delay", "session-new"])
def test_what_decides_when_to_collect_is_refused(name: str) -> None:
    """Windows do, and reports lie where their windows are."""
    [problem] = NsysSessionTool({name: "5"}).check([])
    assert str(problem).startswith(f"tools.nsys_session.{name}: windows decide")


WORKER = """
import json, os, subprocess, sys, threading, time
import accelprof

config, place = json.loads(sys.argv[1]), sys.argv[2]

class Actor(accelprof.Worker):
    @accelprof.Worker.timer("actor/update")
    def update(self):
        time.sleep(0.002)

session = accelprof.configure(config, group="ActorGroup", rank=0)
actor, asked = Actor(), []

def ask():
    for number in (1, 2):
        for command in (["open", "--seconds", "60"], ["close"]):
            done = subprocess.run([sys.executable, "-m", "accelprof", "window", *command, "--run", session.layout.run_dir, "--timeout", "60"],
                                  capture_output=True, text=True, timeout=120)
            asked.append([command[0], done.returncode, done.stdout + done.stderr])
            time.sleep(0.3)

if "on_demand" in config:
    thread = threading.Thread(target=ask); thread.start()
    step = 0
    while thread.is_alive():
        with session.step(step): actor.update()
        step += 1
else:
    for step in range(6):
        with session.step(step): actor.update()
report = session.close()
json.dump({"asked": asked, "problems": report["problems"], "journal": report["journal"], "pid": os.getpid()},
          open(os.path.join(place, "saw.json"), "w"))
"""


@pytest.mark.nsys
@pytest.mark.timeout(300)
@pytest.mark.parametrize("plan", [{"steps": [2, 4]}, {"on_demand": True}])
def test_windows_on_a_process_that_was_only_made_ready(nsys: str, tmp_path: Path, plan: dict[str, Any]) -> None:
    """Two windows, planned or through ``accelprof window``: each leaves its own report with its own phases, and the process goes on."""
    (tmp_path / "worker.py").write_text(WORKER)
    config = {"tool": "nsys_session", "output_dir": str(tmp_path), "run": "r", **plan,
              "tools": {"nsys_session": {"nsys": nsys, "trace": "nvtx", "sample": "none", "cpuctxsw": "none"}}}  # fmt: skip
    catalogue = get_catalogue()
    target = Target("ActorGroup", (), 0, 1, has_devices=False, interpreter=(sys.executable,))
    row = catalogue.plan(catalogue.load(config).config).assign(target)
    tool = catalogue.make_tool(str(row.tool), row.options)
    launch = tool.launch(row, Layout(str(tmp_path / "r")).target_dir(target))
    argv = [*assemble(launch, target.interpreter), str(tmp_path / "worker.py"), json.dumps(config), str(tmp_path)]
    done = subprocess.run(
        argv, capture_output=True, text=True, errors="replace", timeout=240, env={**os.environ, **launch.env}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    saw = json.loads((tmp_path / "saw.json").read_text())
    assert [row[:2] for row in saw["asked"]] == ([] if "steps" in plan else [["open", 0], ["close", 0]] * 2), saw[
        "asked"
    ]
    assert [
        line for line in saw["problems"] if "closing window" not in line
    ] == []  # that stopping takes its time is said
    windows = {row["id"]: row for row in saw["journal"] if row["kind"] == "window"}
    artifacts = [row for row in saw["journal"] if row["kind"] == "artifact" and row["tool"] == "nsys_session"]
    assert [row["state"] for row in artifacts] == ["complete"] * 2
    assert {window for row in artifacts for window in row["windows"]} == set(windows)
    base = tmp_path / "r"
    for row in artifacts:
        trace = reader.read(os.path.join(base, row["path"]))
        phases = list(trace.of_kind(Kind.PHASE))
        assert {span.name for span in phases} == {"actor/update"}
        opened, closed = (windows[row["windows"][0]][key]["epoch_ns"] for key in ("opened", "closed"))
        assert all(opened - 2_000_000_000 <= span.start_ns <= closed for span in phases)
        [window] = trace.of_kind(Kind.WINDOW)  # a phase that runs when a window is asked to end reaches out of it
        assert all(window.start_ns <= span.start_ns <= window.end_ns for span in phases)
        assert "steps" not in plan or all(span.end_ns <= window.end_ns for span in phases)
        assert len(phases) == 1 if "steps" in plan else len(phases) > 3
