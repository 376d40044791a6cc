"""Tools that attach, with stand-ins of the launchers, written after the documentation of ``rocprofv3 --attach`` (ROCm 7.13, 7.14, 10.2)
and the help of ``rocprof-sys-attach`` (10.2)."""

from __future__ import annotations

import os
import stat
import sys
import textwrap
import time
from pathlib import Path

import pytest
from accelprof_rocm.backend import RocmBackend
from accelprof_rocm.rocprof_attach import ATTACH_ENV, RocprofAttachTool, RocprofSysAttachTool

from accelprof.contracts.targets import WindowInfo
from accelprof.contracts.tool import ToolContext
from accelprof.errors import CaptureError

#: attaches to a process of its user that was started with the variable, traces until a line comes, then writes
LAUNCHER = """\
#!{python}
import argparse, os, sys, time
if "--help" in sys.argv or "--version" in sys.argv:
    sys.exit(0)
parser = argparse.ArgumentParser(prog="rocprofv3")
parser.add_argument("-p", "--pid", "--attach", type=int)
parser.add_argument("-d", "--output-directory")
parser.add_argument("-o", "--output-file")
parser.add_argument("--output-format", nargs="+")
parser.add_argument("--kernel-trace", action="store_true")
mine, rest = parser.parse_known_args()
print("options", rest)
how = os.environ.get("STANDIN", "")
if how == "refused":
    sys.exit("ptrace attach failed: Operation not permitted")
if "{variable}=1" in os.environ.get("STANDIN_TARGET", ""):
    print("attached to", mine.pid, flush=True)
began = time.time_ns()
if how in ("deaf", "stubborn"):
    import signal
    signal.signal(signal.SIGINT, signal.SIG_IGN if how == "stubborn" else signal.default_int_handler)
    time.sleep(60)
sys.stdin.readline()
if how != "nothing":
    with open(f"{{mine.output_directory}}/{{mine.output_file}}_kernel_trace.csv", "w") as file:
        file.write(f"pid,began,ended\\n{{mine.pid}},{{began}},{{time.time_ns()}}\\n")
"""


@pytest.fixture
def attached(tmp_path, monkeypatch, assignment):
    """``attached(**options)``: the tool in this process, with the stand-in on PATH."""
    program = tmp_path / "rocm-7.13.0/bin/rocprofv3"
    program.parent.mkdir(parents=True)
    (tmp_path / "rocm-7.13.0/.info").mkdir()
    (tmp_path / "rocm-7.13.0/.info/version").write_text("7.13.0-1\n")
    program.write_text(textwrap.dedent(LAUNCHER.format(python=sys.executable, variable=ATTACH_ENV)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv(ATTACH_ENV, "1")
    monkeypatch.setenv("STANDIN_TARGET", f"{ATTACH_ENV}=1")

    def make(**options):
        options = {"rocm": "7.13", "settle": 0.3, "format": "csv", "args": {"kernel-trace": True}, **options}
        tool = RocprofAttachTool(options)
        row = assignment("rocprofv3_attach")
        assert tool.check([row]) == []
        tool.attach(ToolContext(row.target, row, RocmBackend(), str(tmp_path), pytest.fail))
        return tool

    return make


def window(tmp_path, number=1):
    return WindowInfo(f"w{number}", number, (number,), None, "on_demand", str(tmp_path / f"G-r0-w{number}"))


def test_each_window_attaches_and_leaves_a_file(attached, tmp_path):
    """Two windows of one process that was started with nothing but the variable: a file each, of this process and that time."""
    tool = attached()
    for number in (1, 2):
        before = time.time_ns()
        tool.open(window(tmp_path, number))
        (file,) = tool.close(window(tmp_path, number))
        pid, began, ended = map(int, Path(file.path).read_text().split()[-1].split(","))
        assert pid == os.getpid()
        assert before < began < ended < time.time_ns()
        assert file.windows == (f"w{number}",)
        assert file.path == f"{tmp_path}/G-r0-w{number}_kernel_trace.csv"
    assert not list(tmp_path.glob("*.log"))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("refused", "Operation not permitted"),
        ("nothing", "left no file"),
        ("deaf", "left no file.*KeyboardInterrupt"),
        ("stubborn", "did not detach within 0.5 s"),
    ],
)
def test_what_goes_wrong_is_said_and_leaves_nobody_attached(attached, tmp_path, monkeypatch, how, says):
    """A kernel that does not allow it, no output, and a launcher that hangs are errors of their window; its child is gone."""
    monkeypatch.setenv("STANDIN", how)
    tool = attached(settle=1.0, detach=0.5)
    children = []

    def whole_window():
        tool.open(window(tmp_path))
        children.append(tool._running)
        tool.close(window(tmp_path))

    with pytest.raises(CaptureError, match=says):
        whole_window()
    assert tool._running is None
    assert all(child.poll() is not None for child in children)


def test_a_process_that_was_started_without_the_variable_is_refused(attached, monkeypatch, assignment):
    """Attaching must be allowed from the start: the launch sets the variable, and without it the tool says so."""
    launch = RocprofAttachTool({"rocm": "7.13"}).launch(assignment("rocprofv3_attach"), "/run")
    assert (launch.mode, launch.env, launch.argv) == ("env", {ATTACH_ENV: "1"}, ())
    monkeypatch.delenv(ATTACH_ENV)
    with pytest.raises(CaptureError, match=ATTACH_ENV):
        attached()


@pytest.mark.parametrize(
    ("options", "says"), [({"rocm": "7.0"}, "cannot attach"), ({"rocm": "7.13", "windows": "pause"}, "windows decide")]
)
def test_what_cannot_be_is_refused_where_the_plan_is_made(assignment, options, says):
    """Releases before 7.1 cannot attach; pausing has no meaning here."""
    problems = RocprofAttachTool(options).check([assignment("rocprofv3_attach")])
    assert any(says in str(problem) for problem in problems)


def test_the_worker_is_given_time_to_write(assignment):
    """From 7.14 on the tool is told to wait for the worker's files; what the user says about it stands."""
    row = assignment("rocprofv3_attach")
    argv = {
        rocm: RocprofAttachTool({"rocm": rocm}).attaching(window(Path("/run")), row)
        for rocm in ("7.13", "7.14", "10.2")
    }
    assert [rocm for rocm in argv if "--attach-sync-output" in argv[rocm]] == ["7.14", "10.2"]
    given = RocprofAttachTool({"rocm": "7.14", "args": {"attach-sync-output": True}}).attaching(
        window(Path("/run")), row
    )
    assert given.count("--attach-sync-output") == 1


#: what it is told the first time holds for the process; a directory by time for each, written a moment after it ended
SYS_LAUNCHER = """\
#!{python}
import argparse, os, pathlib, subprocess, sys, time
parser = argparse.ArgumentParser(prog="rocprof-sys-attach")
parser.add_argument("-p", type=int, required=True)
parser.add_argument("-o", "--output", default="rocprof-sys-output")
parser.add_argument("-F", "--format", default="perfetto")
mine = parser.parse_args()
kept = pathlib.Path({memory!r})
if not kept.exists():
    kept.write_text(f"{{mine.output}}\\n{{mine.format}}")
output, formats = kept.read_text().split("\\n")
print(f"[rocprof-sys-attach] Attached to process {{mine.p}}. Press ENTER to detach.", flush=True)
sys.stdin.readline()
place = pathlib.Path(output, str(time.time_ns()))
names = {{"rocpd": f"rocpd-{{mine.p}}.db", "perfetto": f"perfetto-trace-{{mine.p}}.proto"}}
later = "import pathlib, sys, time; time.sleep(0.3); place = pathlib.Path(sys.argv[1]); place.mkdir(parents=True)\\n"
later += "for name in sys.argv[2:]: (place / name).write_text(place.name)"
subprocess.Popen([sys.executable, "-c", later, str(place), *(names[word] for word in formats.split(","))], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""


@pytest.mark.parametrize("format", [["rocpd"], ["rocpd", "perfetto"]])
def test_rocprof_sys_attaches_again_and_again(tmp_path, monkeypatch, assignment, format):
    """Two windows: each has the files of its own attachment under its own name, though the tool keeps the place it was told first."""
    program = tmp_path / "rocm-10.2.0/bin/rocprof-sys-attach"
    program.parent.mkdir(parents=True)
    program.write_text(SYS_LAUNCHER.format(python=sys.executable, memory=str(tmp_path / "kept")))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv(ATTACH_ENV, "1")
    tool = RocprofSysAttachTool({"rocm": "10.2", "settle": 0.3, "format": format})
    row = assignment("rocprof_sys_attach")
    assert tool.check([row]) == []
    assert tool.launch(row, "/run").env == {ATTACH_ENV: "1"}
    assert tool.expects(row, "/run") == []
    tool.attach(ToolContext(row.target, row, RocmBackend(), str(tmp_path), pytest.fail))
    times = []
    for number in (1, 2):
        tool.open(window(tmp_path, number))
        files = tool.close(window(tmp_path, number))
        endings = {"rocpd": ".db", "perfetto": ".proto"}
        assert [file.path for file in files] == [f"{tmp_path}/G-r0-w{number}{endings[word]}" for word in format]
        times += [int(Path(file.path).read_text()) for file in files[:1]]
    assert times[0] < times[1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rocm": "7.11"}, "cannot attach"),
        ({"rocm": "10.2", "windows": "whole"}, "windows decide"),
        ({"rocm": "10.2", "format": ["csv"]}, "rocpd, perfetto"),
        ({"rocm": "10.2", "args": {"T": "hip"}}, "no options of its own but format"),
        ({"rocm": "10.2", "flags": ["x"]}, "no options of its own but format"),
    ],
)
def test_what_rocprof_sys_cannot_attach_with_is_refused(assignment, options, says):
    """Releases before 7.12, formats and options that it does not have, and windows of another kind."""
    assert any(
        says in str(problem) for problem in RocprofSysAttachTool(options).check([assignment("rocprof_sys_attach")])
    )
