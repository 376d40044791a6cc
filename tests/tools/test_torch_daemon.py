"""Tool torch_daemon: Kineto of a real torch, started with ``KINETO_USE_DAEMON=1``, gets its windows from ``accelprof window open``."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from accelprof.cli.window import window as window_command
from accelprof.output.manifest import read_journals
from accelprof.tools.torch_daemon import DAEMON_ENV, SOCKETS_ENV, TorchDaemonTool

pytest.importorskip("torch", reason="torch is not installed")

JOB = """
import sys, time, torch
from accelprof import Worker
from accelprof.config.model import Config
from accelprof.session.configure import configure

class Job(Worker):
    @Worker.timer("actor/forward")
    def forward(self):
        (x @ x).sum()
        time.sleep(0.005)

x = torch.rand(64, 64)
config = Config.model_validate({"tool": "torch_daemon", "on_demand": True, "ranks": "all"})
session = configure(config, run_dir=sys.argv[1] + "/live", group="Actors", rank=int(sys.argv[2]))
print("ready", flush=True)
job, end = Job(), time.monotonic() + 90
while not session.windows or session.windows[-1]["closed"] is None:
    job.forward()
    if time.monotonic() > end: sys.exit("no window came")
session.close()
"""


@pytest.fixture
def jobs(tmp_path):
    """Start jobs whose Kineto asks in a directory of this test; all are ended."""
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "s").symlink_to(short := tempfile.mkdtemp(prefix="ap"))  # a socket's path has 108 characters at most
    running = []

    def start(rank, **env):
        given = {**os.environ, DAEMON_ENV: "1", SOCKETS_ENV: short, **env}
        given = {key: value for key, value in given.items() if value is not None}
        argv = [sys.executable, str(tmp_path / "job.py"), str(tmp_path / "out"), str(rank)]
        job = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=given)
        running.append(job)
        assert job.stdout.readline().strip() == "ready", job.stderr.read()
        return job

    yield start
    for job in running:
        job.kill()
        job.communicate()
    shutil.rmtree(short)


def opened(tmp_path, seconds):
    argv = ["open", "--run", str(tmp_path / "out" / "live"), "--seconds", str(seconds)]
    return CliRunner().invoke(window_command, argv)


@pytest.mark.timeout(240)
@pytest.mark.second_try("Kineto asks by its own clock, on a machine that may be busy")
def test_window_open_uses_kineto_of_each_worker(jobs, tmp_path):
    """Two workers of a host, one endpoint: each gets a trace of its own with its phases and operators, and the journal has it."""
    started = [jobs(0), jobs(1)]
    result = opened(tmp_path, 12)
    assert result.exit_code == 0, result.output
    for job in started:
        assert job.wait(120) == 0, job.stderr.read()
    rows = [row for journal in read_journals(str(tmp_path / "out" / "live")) for row in journal]
    files = {row["rank"]: row["path"] for row in rows if row["kind"] == "artifact" and row["tool"] == "torch_daemon"}
    assert sorted(files) == [0, 1], rows
    for path in files.values():
        spans = TorchDaemonTool().read(str(tmp_path / "out" / "live" / path)).spans
        names = [span.name for span in spans]
        assert names.count("actor/forward") > 20
        assert names.count("aten::matmul") > 20
    assert not list((tmp_path / "out" / "live" / ".kineto").iterdir())
    assert not list((tmp_path / "s").glob("dynolog"))


@pytest.mark.timeout(240)
def test_a_window_that_kineto_never_heard_of_is_named(jobs, tmp_path):
    """Another process answers in our place, as a dynolog daemon does: the window has no trace, says why, and the job goes on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(str((tmp_path / "s").resolve() / "dynolog"))
        job = jobs(0)
        assert opened(tmp_path, 0.5).exit_code == 0
        assert job.wait(60) == 0
    said = job.stderr.read()
    assert "another process of this host answers as dynolog" in said
    assert "dyno gputrace" in said


def test_a_process_started_without_it_is_refused_by_name(jobs, tmp_path):
    """The tool is disabled there, and says how such a process is started."""
    job = jobs(0, **{DAEMON_ENV: None})
    opened(tmp_path, 0.5)
    assert job.wait(60) == 0
    assert "without KINETO_USE_DAEMON=1, so its Kineto asks nobody; start it through accelprof" in job.stderr.read()


def test_the_launch_sets_what_it_needs(tmp_path):
    """A worker that is started through a plan has the variable; options name Kineto's words."""
    tool = TorchDaemonTool({"contents": "shapes"})
    launch = tool.launch(None, str(tmp_path))
    assert (launch.mode, dict(launch.env)) == ("env", {DAEMON_ENV: "1", "KINETO_LOG_LEVEL": "5"})
    with pytest.raises(ValidationError):
        TorchDaemonTool({"contents": ["cpu"]})
