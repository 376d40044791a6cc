"""How a worker is started under AMD's tools: argv, interpreters, quoting, no second wrap, trials, files; over stand-ins."""

from __future__ import annotations

import fnmatch
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from accelprof_rocm import artifacts, children
from accelprof_rocm.rocprof_sys import RocprofSysTool
from accelprof_rocm.rocprofv3 import Rocprofv3Tool

from accelprof.contracts.targets import WRAPPED_ENV, Assignment, WindowInfo
from accelprof.contracts.tool import ToolContext
from accelprof.errors import CaptureError, ConfigError
from accelprof.launch.command import assemble, program, to_shell

Make = Callable[..., Assignment]


def start(launch: Any, interpreter: list[str], *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """As Ray does: one shell string, the worker's arguments behind it, the environment set before."""
    command = f"exec {to_shell(assemble(launch, interpreter))} {shlex.join(arguments)}"
    return subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, **launch.env, **env},
        capture_output=True,
        text=True,
        timeout=120,
    )


def tools(place: Any, *names: str) -> list[Any]:
    """Every way of launching that ``place`` has, with its programs."""
    prefix = "omnitrace" if place.release < (6, 3) else "rocprof-sys"
    made: list[Any] = [
        RocprofSysTool({"variant": variant, "program": place.program(f"{prefix}-{variant}")})
        for variant in ("python", "run", "sample")
    ]
    return [*made, Rocprofv3Tool({"program": place.program("rocprofv3"), "format": ["json"]})]


def test_the_python_launcher_has_no_interpreter_behind_its_dashes(assignment: Make) -> None:
    """It would be compiled as source; it goes into the environment, and Python calls are not traced."""
    row = assignment("rocprof_sys", interpreter=("/venv/bin/python", "-u"))
    launch = RocprofSysTool({"rocm": "7.0"}).launch(row, "/run/ActorGroup")
    assert launch.mode == "replace"
    assert assemble(launch, ["/venv/bin/python", "-u"])[-3:] == ["rocprof-sys-python", "-b", "--"]
    assert launch.env["PYTHON_EXECUTABLE"] == "/venv/bin/python -u"
    assert launch.env["ROCPROFSYS_TIME_OUTPUT"] == "false"
    assert launch.env["ROCPROFSYS_OUTPUT_PATH"] == "/run/ActorGroup"
    assert launch.env["ROCPROFSYS_OUTPUT_PREFIX"] == "ActorGroup-r0-%pid%-"
    assert launch.make_dirs == ("/run/ActorGroup",)
    assert any("ends with status 0" in note for note in launch.notes)


@pytest.mark.parametrize(
    ("tool", "beginning"),
    [
        (RocprofSysTool({"variant": "run", "args": {"T": True}, "rocm": "7.0"}), ["rocprof-sys-run", "-T", "--"]),
        (RocprofSysTool({"variant": "sample", "args": {"f": 50}, "rocm": "7.0"}), ["rocprof-sys-sample", "-f", "50", "--"]),
        (
            Rocprofv3Tool({"rocm": "7.0"}),
            ["rocprofv3", "-d", "/run", "-o", "ActorGroup-r0-%hostname%-%pid%", "--runtime-trace", "--selected-regions",
             "--output-format", "rocpd", "--"],
        ),
        (
            Rocprofv3Tool({"rocm": "6.2", "args": {"f": ["csv", "json"]}}),
            ["rocprofv3", "-d", "/run", "-o", "ActorGroup-r0-%hostname%-%pid%", "--hip-trace", "--marker-trace",
             "--kernel-trace", "--memory-copy-trace", "-f", "csv", "json", "--"],
        ),
        (
            Rocprofv3Tool({"rocm": "7.0", "flags": ["kernel-trace"], "windows": "whole"}),
            ["rocprofv3", "-d", "/run", "-o", "ActorGroup-r0-%hostname%-%pid%", "--marker-trace", "--output-format",
             "rocpd", "--kernel-trace", "--"],
        ),
        (
            Rocprofv3Tool({"rocm": "7.0", "args": {"P": ["1:2:3"], "o": "mine"}, "format": "json"}),
            ["rocprofv3", "-d", "/run", "-o", "mine", "--runtime-trace", "--output-format", "json", "-P", "1:2:3", "--"],
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "interpreter",
    [["python3", "-u"], ["python3", "-m", "pkg"], ["uv", "run", "--with", "x", "python"], ["env", "A=1", "python"]],
)
def test_the_other_launchers_stand_before_the_whole_command(
    assignment: Make, tool: Any, beginning: list[str], interpreter: list[str]
) -> None:
    """Whatever the worker's command is, it follows the dashes unchanged."""
    launch = tool.launch(assignment(tool.name, interpreter=tuple(interpreter)), "/run")
    assert launch.mode == "prefix"
    argv = assemble(launch, interpreter)
    assert argv[argv.index(beginning[0]) :] == beginning + interpreter


@pytest.mark.parametrize("interpreter", [("python3", "-m", "pkg"), ("python", "-c", "pass")])
def test_the_python_launcher_refuses_what_is_no_interpreter(assignment: Make, interpreter: tuple[str, ...]) -> None:
    """``python -m pkg`` cannot travel in PYTHON_EXECUTABLE; the launcher that can take it is named."""
    tool = RocprofSysTool({"rocm": "7.0"})
    row = assignment("rocprof_sys", interpreter=interpreter)
    assert [problem.path for problem in tool.check([row])] == ["runtime_env.py_executable"]
    with pytest.raises(ConfigError, match="variant: run"):
        tool.launch(row, "/run")


def test_wrapping_twice_is_wrapping_once(assignment: Make) -> None:
    """The launcher's program appears once, whichever way it stands."""
    for tool in (RocprofSysTool(), RocprofSysTool({"variant": "run"}), Rocprofv3Tool()):
        launch = tool.launch(assignment(tool.name), "/run")
        once = assemble(launch, ["python"])
        assert assemble(launch, once) == once
        assert program(once) == tool.program


def test_a_directory_with_the_tools_own_keys_is_refused(assignment: Make) -> None:
    """They cannot be escaped, so files would lie elsewhere than said."""
    for tool in (RocprofSysTool(), Rocprofv3Tool()):
        for directory in ("/run/%p", "/run/a%hostname%b", "/run/%env{HOME}%"):
            with pytest.raises(ConfigError, match="would replace"):
                tool.launch(assignment(tool.name), directory)
        tool.launch(assignment(tool.name), "/run/100% sure")


SCRIPT = """
import json, os, sys
from accelprof_rocm import roctx
library = roctx.find({legacy})
def range(text):
    library.push(library.message(text)); library.pop()
range("before")
region = library.start(library.message("accelprof_window")) if {region} else None
if library.resume: library.resume(0)
range("work")
if library.pause: library.pause(0)
if region: library.stop(region)
range("after")
json.dump({{"argv": sys.argv[1:], "main": __name__, "pid": os.getpid(), "executable": sys.executable,
           "unbuffered": bool(os.environ.get("PYTHONUNBUFFERED")) or sys.flags.unbuffered}}, open(os.environ["SAW"], "w"))
sys.exit(7)
"""
ODD = ["a b", "it's (1)", "$HOME", "x;y", "--flag=%p", '"q"', ""]


@pytest.mark.parametrize("release", [(6, 2), (6, 3), (7, 0), (7, 13)])
def test_the_real_worker_runs_and_its_file_is_read(
    rocm: Any, assignment: Make, tmp_path: Path, release: tuple[int, int]
) -> None:
    """Under every launcher of every generation: the worker's own interpreter, its arguments, its range in the file."""
    import json

    place = rocm(*release)
    script = tmp_path / "worker script.py" if release >= (6, 3) else tmp_path / "worker.py"
    script.write_text(SCRIPT.format(legacy=release < (6, 4), region=release >= (7, 13)))
    for number, tool in enumerate(tools(place)):
        directory = tmp_path / f"out put {number}"
        interpreter = [sys.executable, "-u"]
        row = assignment(tool.name, interpreter=tuple(interpreter))
        assert tool.check([row]) == []
        launch = tool.launch(row, str(directory))
        arguments = ODD if release >= (6, 3) or launch.mode == "prefix" else ["plain", "--flag=%p"]
        saw = tmp_path / f"saw{number}"
        done = start(launch, interpreter, str(script), *arguments, SAW=str(saw), ROCM_PATH=str(place.root))
        assert saw.exists(), (launch, done.stdout, done.stderr)
        seen = json.loads(saw.read_text())
        assert seen["argv"] == arguments
        assert seen["main"] == "__main__"
        assert seen["executable"] == sys.executable
        assert seen["unbuffered"]
        assert done.returncode == (0 if launch.mode == "replace" else 7)
        [expected] = tool.expects(row, str(directory))
        if tool.name == "rocprofv3" and release < (6, 4):
            continue  # that release's tool hears the SDK's library, and this script chose roctracer's
        [path] = [str(item) for item in directory.iterdir() if fnmatch.fnmatch(str(item), expected.pattern)]
        assert str(seen["pid"]) in os.path.basename(path)
        trace = type(tool)().read(path)
        triggered = release >= ((7, 0) if tool.name == "rocprofv3" else (7, 13))
        heard = ["work"] if triggered else ["before", "work", "after"]
        if tool.name == "rocprofv3" and not triggered:
            heard = ["before", "work"]  # it pauses wherever it is told to
        assert [span.name for span in trace.spans if span.kind.value == "range"] == heard, (path, trace)


WINDOWS = """
import json, os, sys, threading
from accelprof.contracts.targets import Assignment, Target, WindowInfo
from accelprof.contracts.tool import ToolContext
from accelprof_rocm.backend import RocmBackend
from accelprof_rocm.rocprof_sys import RocprofSysTool
from accelprof_rocm import roctx
library = roctx.find()
def range(text):
    library.push(library.message(text)); library.pop()
tool = RocprofSysTool({{"rocm": "7.13"}})
row = Assignment(Target("G", rank=0), True, "rocprof_sys", mode="steps")
tool.attach(ToolContext(row.target, row, RocmBackend(), ".", print))
assert tool.thread == "starter", tool.thread
{body}
"""
TWO_WINDOWS = """
for number in (1, 2):
    range(f"outside {number}")
    window = WindowInfo(f"w{number}", number, (number,), None, "step", "x")
    tool.open(window)
    range(f"inside {number}")
    tool.close(window)
    tool.close(window)
range("after")
"""


@pytest.mark.parametrize("variant", ["python", "run", "sample"])
@pytest.mark.parametrize(
    ("body", "env", "heard", "windows"),
    [
        (TWO_WINDOWS, {}, ["inside 1", "inside 2"], ["w1", "w2"]),
        # a resume starts nothing: the program never paused
        ("library.resume(0); range('resumed'); library.pause(0)", {}, [], []),
        # a region of the user's own is recorded beside windows, and is in none
        (
            "number = library.start(b'mine'); range('mine'); library.stop(number)" + TWO_WINDOWS,
            {"ROCPROFSYS_SELECTED_REGIONS": "mine"}, ["inside 1", "inside 2"], ["w1", "w2"],
        ),
    ],
)  # fmt: skip
def test_rocprof_sys_records_while_the_windows_region_is_open(
    rocm: Any,
    assignment: Make,
    tmp_path: Path,
    variant: str,
    body: str,
    env: dict[str, str],
    heard: list[str],
    windows: list[str],
) -> None:
    """From 7.13: what lies outside the region of a window is not in the file, and the region itself is no range of the user's."""
    place = rocm(7, 13)
    tool = RocprofSysTool({"variant": variant, "program": place.program(f"rocprof-sys-{variant}"), "env": env})
    row = assignment("rocprof_sys", interpreter=(sys.executable,))
    script = tmp_path / "worker.py"
    script.write_text(WINDOWS.format(body=body))
    done = start(tool.launch(row, str(tmp_path / "out")), [sys.executable], str(script), ROCM_PATH=str(place.root))
    [expected] = tool.expects(row, str(tmp_path / "out"))
    [path] = [str(item) for item in (tmp_path / "out").iterdir() if fnmatch.fnmatch(str(item), expected.pattern)]
    trace = tool.read(path)
    assert [span.name for span in trace.spans if span.kind.value in ("range", "phase")] == heard, done.stderr
    assert [span.args["window"] for span in trace.spans if span.kind.value == "window"] == windows


def test_a_region_is_not_ended_by_another_thread(rocm: Any, assignment: Make, tmp_path: Path) -> None:
    """AMD's tool skips a stop on a thread that started none; so the tool says that it must be stopped where it was started."""
    place = rocm(7, 13)
    tool = RocprofSysTool({"variant": "run", "program": place.program("rocprof-sys-run")})
    body = """
number = library.start(library.message("accelprof_window"))
other = threading.Thread(target=library.stop, args=(number,)); other.start(); other.join()
range("still recorded")
library.stop(number)
range("not recorded")
"""
    row = assignment("rocprof_sys", interpreter=(sys.executable,))
    script = tmp_path / "worker.py"
    script.write_text(WINDOWS.format(body=body))
    start(tool.launch(row, str(tmp_path / "out")), [sys.executable], str(script), ROCM_PATH=str(place.root))
    [path] = (tmp_path / "out").iterdir()
    assert [span.name for span in tool.read(str(path)).spans if span.kind.value == "range"] == ["still recorded"]


def test_an_interpreter_whose_path_has_spaces(rocm: Any, assignment: Make, tmp_path: Path) -> None:
    """The Python launcher splits what is in PYTHON_EXECUTABLE; quoted there, one word stays one word."""
    place = rocm(7, 0)
    interpreter = tmp_path / "my venv" / "python"
    interpreter.parent.mkdir()
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    script = tmp_path / "worker.py"
    script.write_text("import os; open(os.environ['SAW'], 'w').close()")
    tool = tools(place)[0]
    launch = tool.launch(assignment(tool.name, interpreter=(str(interpreter),)), str(tmp_path / "out"))
    done = start(launch, [str(interpreter)], str(script), SAW=str(tmp_path / "saw"))
    assert (tmp_path / "saw").exists(), done.stderr


@pytest.mark.parametrize("release", [(6, 2), (7, 0), (7, 13)])
def test_the_trial_starts_the_same_program_with_the_same_interpreter(
    rocm: Any, assignment: Make, tmp_path: Path, release: tuple[int, int]
) -> None:
    """It succeeds where the worker would start, leaves nothing in the run, and fails where the interpreter is not there."""
    for tool in tools(rocm(*release)):
        for interpreter, works in ((sys.executable, True), ("/nowhere/python9", False)):
            row = assignment(tool.name, interpreter=(interpreter,))
            launch = tool.launch(row, str(tmp_path / "out"))
            assert tool.program in launch.preflight
            done = subprocess.run(
                launch.preflight,
                env={**os.environ, **launch.env},
                capture_output=True,
                text=True,
                timeout=60,
                cwd=tmp_path,
            )
            assert (done.returncode == 0) is works, (tool.program, done.stdout, done.stderr)
            assert not (tmp_path / "out").exists()


def test_a_trial_with_an_option_that_the_release_lacks_fails(rocm: Any, assignment: Make, tmp_path: Path) -> None:
    """A driver without the tool assumes a release; the node's own tool has the last word before a worker hangs."""
    tool = Rocprofv3Tool({"rocm": "7.0", "program": rocm(6, 3).program("rocprofv3"), "format": "json"})
    launch = tool.launch(assignment(tool.name), str(tmp_path / "out"))
    done = subprocess.run(launch.preflight, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "--selected-regions" in done.stderr


def test_children_are_left_alone() -> None:
    """AMD's libraries leave what children inherit; what others preload stays."""
    env = {
        "LD_PRELOAD": "/opt/rocm/lib/rocprofiler-sdk/librocprofiler-sdk-tool.so:/usr/lib/libjemalloc.so:/opt/rocm/lib/librocprofiler-sdk-roctx.so",
        "ROCP_TOOL_LIBRARIES": "/opt/rocm/lib/rocprofiler-sdk/librocprofiler-sdk-tool.so",
        "OMP_TOOL_LIBRARIES": "/opt/rocm/lib/librocprof-sys-dl.so.1",
        "ROCPROFILER_LIBRARY_CTOR": "1",
        "ROCPROF_OUTPUT_PATH": "/run",
    }
    children.leave_alone(env)
    assert env == {"LD_PRELOAD": "/usr/lib/libjemalloc.so", "ROCPROF_OUTPUT_PATH": "/run"}
    assert children.leave_alone(env) == []


def _context(tool: Any, assignment: Make, said: list[str]) -> ToolContext:
    from accelprof_rocm.backend import RocmBackend

    row = assignment(tool.name)
    return ToolContext(row.target, row, RocmBackend(), "/run", said.append)


def test_a_process_that_is_not_under_the_tool_says_so(assignment: Make) -> None:
    """A worker that was not wrapped is no silent success."""
    for tool in (RocprofSysTool(), Rocprofv3Tool()):
        with pytest.raises(CaptureError, match="was not started under"):
            tool.attach(_context(tool, assignment, []))


def test_windows_resume_and_pause_with_marks_inside(
    compiled: Callable[..., Path], use: Any, assignment: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under selected regions a window is resume, mark, …, mark, pause, with thread id 0."""
    calls = use(compiled("librocprofiler-sdk-roctx.so.1", "-DSDK"))
    monkeypatch.setenv("ROCPROF_SELECTED_REGIONS", "1")
    tool, said = Rocprofv3Tool({"rocm": "7.0"}), []
    tool.attach(_context(tool, assignment, said))
    window = WindowInfo("ActorGroup-r0-w0001-h-1", 1, (2,), None, "step", "/run/x-1")
    tool.open(window)
    assert tool.close(window) == []
    assert [(call.kind, call.message, call.number) for call in calls()] == [
        ("resume", "", 0),
        ("mark", "accelprof window begin ActorGroup-r0-w0001-h-1", 0),
        ("mark", "accelprof window end ActorGroup-r0-w0001-h-1", 0),
        ("pause", "", 0),
    ]
    assert said == []
    assert tool.emitter(tool.context.backend).overlapping_ranges  # type: ignore[union-attr]
    monkeypatch.setenv("ROCTX_RECORDER_REFUSES", "1")
    with pytest.raises(CaptureError, match=r"roctxProfilerResume\(0\) answered 1"):
        tool.open(window)


def test_a_library_that_cannot_resume_is_refused_under_selected_regions(
    compiled: Callable[..., Path], use: Any, assignment: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recording would wait for ever; where the whole process is recorded the missing ranges are said."""
    use(compiled("libroctx64.so.4"))
    monkeypatch.setenv(WRAPPED_ENV, "rocprofv3")
    tool, said = Rocprofv3Tool({"rocm": "7.0"}), []
    tool.attach(_context(tool, assignment, said))
    assert len(said) == 1
    assert "no ranges in its files: it does not listen to" in said[0]
    monkeypatch.setenv("ROCPROF_SELECTED_REGIONS", "1")
    with pytest.raises(CaptureError, match="recording waits for roctxProfilerResume, and .* has none"):
        Rocprofv3Tool({"rocm": "7.0"}).attach(_context(tool, assignment, said))


def test_files_hold_all_windows_of_their_process(tmp_path: Path) -> None:
    """One file a process, known by the pid in its name; what is cut off is said."""
    windows = [
        WindowInfo(f"G-r0-w000{n}-{pid}", n, (n,), None, "step", str(tmp_path / f"G-r0-s{n}-w000{n}-host-{pid}"))
        for pid in (41, 4242)
        for n in (1, 2)
    ]
    names = [
        "G-r0-host-41_results.json",
        "G-r0-4242-perfetto-trace-4242.proto",
        "G-r0-host-41_kernel_trace.csv",
        "G-r0-host-41_marker_api_trace.csv",
    ]
    contents = [b'{"rocprofiler-sdk-tool": [', b"\x0a\x02\x08\x01", b"a,b\n", b"a,b\n"]
    for name, content in zip(names, contents):
        (tmp_path / name).write_bytes(content)
    found = artifacts.match([str(tmp_path / name) for name in names], windows, "rocprofv3")
    assert [os.path.basename(file.path) for file in found] == names[:3]
    assert found[0].windows == ("G-r0-w0001-41", "G-r0-w0002-41")
    assert (found[0].state, found[0].reason) == ("truncated", "the JSON text does not end")
    assert found[1].windows == ("G-r0-w0001-4242", "G-r0-w0002-4242")
    assert [file.state for file in found[1:]] == ["complete", "complete"]


def test_what_is_expected_follows_the_users_settings(assignment: Make) -> None:
    """Own places, names and kinds of output are waited for where they will be."""
    row = assignment("rocprof_sys")
    tool = RocprofSysTool(
        {
            "rocm": "7.2",
            "env": {
                "ROCPROFSYS_OUTPUT_PATH": "/data/[x]",
                "ROCPROFSYS_PROFILE": "1",
                "ROCPROFSYS_PERFETTO_FILE": "mine.proto",
            },
        }
    )
    assert [expected.pattern for expected in tool.expects(row, "/run")] == [
        "/data/[[]x]/ActorGroup-r0-*mine*",
        "/data/[[]x]/ActorGroup-r0-*wall_clock*",
    ]
    v3 = Rocprofv3Tool({"rocm": "7.0", "format": ["csv", "json"], "args": {"d": "sub"}})
    assert [expected.pattern for expected in v3.expects(row, "/run")] == [
        "/run/sub/ActorGroup-r0-*_*.csv",
        "/run/sub/ActorGroup-r0-*_results.json",
    ]
    assert Rocprofv3Tool({"rocm": "7.0"}).launch(row, "out/<run>").argv[:3] == ("rocprofv3", "-d", "out/<run>")
    moved = assignment("rocprof_sys", node="node7")  # where a worker runs is known only after its start
    assert tool.expects(moved, "/run") == tool.expects(row, "/run")
    assert tool.launch(moved, "/run").env["ROCPROFSYS_OUTPUT_PREFIX"] == "ActorGroup-r0-node7-%pid%-"
    assert {expected.when for expected in v3.expects(row, "/run")} == {"process_exit"}


def test_finalising_in_the_process_gives_the_file_at_once(
    compiled: Callable[..., Path], use: Any, assignment: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Python launcher's library writes when the session closes, not when a further role joins it."""
    use(compiled("librocprofiler-sdk-roctx.so.1", "-DSDK"))
    path = tmp_path / f"ActorGroup-r0-{os.getpid()}-perfetto-trace-{os.getpid()}.proto"
    module = SimpleNamespace(finalize=lambda: path.write_bytes(b"\x0a\x00"))
    monkeypatch.setitem(sys.modules, "rocprofsys", module)
    tool, said = RocprofSysTool({"rocm": "7.0", "finalize_in_process": True}), []
    row = assignment("rocprof_sys")
    tool.attach(ToolContext(row.target, row, _context(tool, assignment, said).backend, str(tmp_path), said.append))
    window = WindowInfo("w", 1, (2,), None, "step", str(tmp_path / f"ActorGroup-r0-w0001-h-{os.getpid()}"))
    assert tool.finalise("closed") == []
    tool.open(window)
    tool.close(window)
    assert tool.finalise("a further role joined") == []
    [file] = tool.finalise("closed")
    assert (file.path, file.windows, file.state) == (str(path), ("w",), "complete")
    assert said == []


def test_files_of_other_processes_are_not_taken_for_the_workers(tmp_path: Path) -> None:
    """A child that wrote under the same target's name holds none of the windows; a name of the user's own is the worker's."""
    window = WindowInfo("w", 1, (1,), None, "step", str(tmp_path / "G-r0-s1-w0001-host-41"))
    for name, held in (
        ("G-r0-host-41_results.json", ("w",)),
        ("G-r0-host-99_results.json", None),
        ("G-r0-41-perfetto-trace-0.proto", ("w",)),
        ("G-r0-99-perfetto-trace-41.proto", None),
        ("mine.json", ("w",)),
        ("G-r0-41-rocpd-41.db", ("w",)),
    ):
        path = tmp_path / name
        path.write_bytes(b"{}")
        found = artifacts.match([str(path)], [window], "rocprofv3")
        assert [file.windows for file in found] == ([] if held is None else [held]), name


def test_a_worker_asks_no_launcher_for_its_help(
    rocm: Any,
    compiled: Callable[..., Path],
    use: Any,
    assignment: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would be started under the tool and leave a file; and a driver's own settings of AMD's tools do not reach it."""
    use(compiled("librocprofiler-sdk-roctx.so.1", "-DSDK"))
    place = rocm(7, 0)
    for name, value in (("ROCPROFSYS_OUTPUT_PATH", str(tmp_path / "out")), ("ROCPROFSYS_TRACE", "true")):
        monkeypatch.setenv(name, value)
    (tmp_path / "out").mkdir()
    tool = RocprofSysTool({"program": place.program("rocprof-sys-python")})
    assert tool.help_options({"PYTHON_EXECUTABLE": sys.executable})
    assert list((tmp_path / "out").iterdir()) == []
    tool.attach(_context(tool, assignment, []))
    assert tool.help_options({"PYTHON_EXECUTABLE": sys.executable}) == {}
