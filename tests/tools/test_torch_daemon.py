"""Tool torch_daemon: Kineto of a real torch, started with ``KINETO_USE_DAEMON=1``, gets its windows from ``accelprof window open``."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from accelprof.cli.window import window as window_command
from accelprof.errors import CaptureError
from accelprof.output.manifest import read_journals
from accelprof.tools import torch_daemon
from accelprof.tools.torch_daemon import DAEMON_ENV, SOCKETS_ENV, Asked, TorchDaemonTool, _serve, directory_of

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


HELD = """
import ctypes, sys, torch
from accelprof.config.model import Config
from accelprof.session.configure import configure

config = Config.model_validate({"tool": "torch_daemon", "on_demand": True, "ranks": "all"})
session = configure(config, run_dir=sys.argv[1] + "/live", group="Actors", rank=int(sys.argv[2]))
torch.rand(8)
print("ready", flush=True)
ctypes.PyDLL(None).sleep(200)  # a call that keeps the interpreter's lock
"""


@pytest.mark.timeout(240)
@pytest.mark.second_try("Kineto asks by its own clock, on a machine that may be busy")
def test_a_worker_whose_interpreter_is_held_is_recorded_from_outside(jobs, tmp_path):
    """It answers nobody, but its Kineto asks: the command answers, waits for the trace and names it."""
    (tmp_path / "job.py").write_text(HELD)
    held = jobs(3)
    run = tmp_path / "out" / "live"
    argv = ["open", "--run", str(run), "--seconds", "12", "--timeout", "1", "--rank", "3", "--json"]
    result = CliRunner().invoke(window_command, argv)
    assert result.exit_code == 0, result.output
    (answer,) = json.loads(result.stdout)
    assert (answer["pid"], answer["state"]) == (held.pid, "recorded")
    path = answer["text"].partition("Kineto wrote ")[2].partition(" by itself")[0]
    assert TorchDaemonTool.can_read(path)
    TorchDaemonTool().read(path)
    assert held.poll() is None
    assert not list((run / ".kineto").iterdir())


@pytest.fixture
def place():
    """A directory whose name leaves room for a socket's."""
    made = tempfile.mkdtemp(prefix="a", dir="/tmp")
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize(
    ("directory", "said"),
    [
        ("/" + "d" * 54, "has 55 bytes, and Kineto writes over its own memory from 55 on"),
        ("relative", "is no absolute path"),
        ("{place}/absent", "No such file or directory"),
        ("{place}/open", "can be written by others (mode 777)"),
        ("{place}/file", "is no directory"),
    ],
)
def test_a_directory_that_is_not_safe_is_refused_by_name(place, directory, said, monkeypatch):
    """The launch goes without, and says why: a Kineto that does not ask does no harm. A process that has it already is refused."""
    os.mkdir(f"{place}/open")
    os.chmod(f"{place}/open", 0o777)
    open(f"{place}/file", "w").close()
    directory = directory.format(place=place)
    with pytest.raises(CaptureError, match=re.escape(said)) as refused:
        directory_of(directory)
    assert f"{SOCKETS_ENV}={directory}" in str(refused.value)
    assert "allowed: an absolute path of up to 54 bytes" in str(refused.value)
    monkeypatch.setenv(SOCKETS_ENV, directory)
    launch = TorchDaemonTool({}).launch(None, place)
    assert (launch.mode, dict(launch.env)) == ("none", {})
    assert said in launch.notes[0]


def test_directories_that_are_safe_are_taken(place):
    """One of its own, one that all may write but only owners tidy up, and none at all."""
    for directory in ("", "/tmp", place):
        assert directory_of(directory) == directory


ASKS = """
import os, socket, struct, sys
place, user, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
end.bind(f"{place}/{user}")
os.chmod(f"{place}/{user}", 0o777)
os.setuid(user)
end.settimeout(seconds)
for number in range(3):
    try:
        end.sendto(struct.pack("=Q32siiqi", 20, b"req", 0, 1, 0, 77), f"{place}/dynolog")
    except OSError:  # who answered the first has gone
        if not number:
            raise
try:
    print(end.recv(4096)[40:].decode())
except TimeoutError:
    print("no answer")
"""


def asks(place, user, seconds):
    argv = [sys.executable, "-c", ASKS, place, str(user), str(seconds)]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may speak as somebody else")
def test_another_users_messages_get_no_answer(place, tmp_path):
    """The kernel says who sent: others are ignored, which is said once; one of this user is answered."""
    said = []
    os.chmod(place, 0o755)
    asked = Asked(str(tmp_path), 77, str(tmp_path / "t"), 60.0, (), said.append)
    thread = threading.Thread(target=_serve, args=(asked, place))
    thread.start()
    while not os.path.exists(f"{place}/dynolog"):
        time.sleep(0.01)
    os.chmod(f"{place}/dynolog", 0o777)
    assert asks(place, 65534, 1) == "no answer\n"
    assert not asked.told
    assert "ACTIVITIES_LOG_FILE" in asks(place, 0, 20)
    thread.join(20)
    assert asked.told
    assert said == ["a process of user 65534 asks for Kineto's windows here; this is user 0, it gets no answer"]


def test_the_socket_of_a_killed_worker_is_taken_over(place, tmp_path):
    """Its file is still there, but nobody listens: that is no other process that answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left:
        left.bind(f"{place}/dynolog")
    asked = Asked(str(tmp_path), 77, str(tmp_path / "t"), 60.0, (), print)
    thread = threading.Thread(target=_serve, args=(asked, place))
    thread.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(f"{place}/me")
        end.settimeout(5)
        for _ in range(200):
            try:
                end.sendto(struct.pack("=Q32siiqi", 20, b"req", 0, 1, 0, 77), f"{place}/dynolog")
                break
            except OSError:
                time.sleep(0.05)
        assert b"ACTIVITIES_LOG_FILE" in end.recv(4096)
    thread.join(20)
    assert asked.told


def test_of_two_that_find_a_deserted_socket_one_answers(place, tmp_path, monkeypatch):
    """One looks, and is slow to remove what it found: the other's socket is not taken from it, and the loser says who answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left:
        left.bind(f"{place}/dynolog")
    looked, deserted = threading.Event(), torch_daemon._deserted

    def slowly(address):
        found = deserted(address)
        if threading.current_thread().name == "slow":
            looked.set()
            time.sleep(0.5)
        return found

    monkeypatch.setattr(torch_daemon, "_deserted", slowly)
    both = [Asked(str(tmp_path / name), 77, str(tmp_path / name), 60.0, (), print) for name in ("slow", "quick")]
    threads = [threading.Thread(target=_serve, args=(asked, place), name=name) for asked, name in zip(both, ("slow", "quick"))]
    threads[0].start()
    assert looked.wait(10)
    threads[1].start()
    time.sleep(2.0)
    try:
        assert sorted("another process of this host answers" in asked.why for asked in both) == [False, True]
    finally:
        for asked in both:
            asked.over.set()
        for thread in threads:
            thread.join(10)


def test_the_launch_sets_what_it_needs(tmp_path):
    """A worker that is started through a plan has the variable; options name Kineto's words."""
    tool = TorchDaemonTool({"contents": "shapes"})
    launch = tool.launch(None, str(tmp_path))
    assert (launch.mode, dict(launch.env)) == ("env", {DAEMON_ENV: "1", "KINETO_LOG_LEVEL": "5"})
    with pytest.raises(ValidationError):
        TorchDaemonTool({"contents": ["cpu"]})
