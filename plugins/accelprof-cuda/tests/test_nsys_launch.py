"""How a worker is started under nsys: argv, quoting, interpreters, no second wrap; and which files are expected."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from accelprof_cuda import installation, nsys_files
from accelprof_cuda import nsys as nsys_tool
from accelprof_cuda.backend import CudaBackend
from accelprof_cuda.nsys import NsysTool

from accelprof.contracts.targets import Assignment, WindowInfo
from accelprof.errors import CaptureError
from accelprof.launch.command import assemble, program, to_shell
from accelprof.testing import Captured, ToolConformance

Make = Callable[..., Assignment]


class TestNsysConforms(ToolConformance):
    """The conformance kit; windows under the real nsys are in test_nsys_real.py."""

    def make(self) -> NsysTool:
        return NsysTool()

    @contextlib.contextmanager
    def stand_in(self) -> Iterator[None]:
        """A process under nsys, and a CUDA runtime that notes what it is asked."""
        self.calls: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(installation, "session_here", lambda: "profile-1")
            patch.setattr(CudaBackend, "capture_start", lambda _: self.calls.append("start"))
            patch.setattr(CudaBackend, "capture_stop", lambda _: self.calls.append("stop"))
            patch.setenv("ACCELPROF_NSYS_GATE", "api")
            patch.setattr(NsysTool, "_collect", lambda *_: [])
            patch.setattr(NsysTool, "_settle_trigger", lambda *_: None)
            patch.setattr(nsys_tool, "hide_cuda_injection", lambda **_: None)
            patch.setattr(nsys_tool, "leave_children_alone", lambda: None)
            patch.setattr(NsysTool, "_silent", staticmethod(lambda: ""))
            yield

    def trigger_calls(self, run: Captured) -> list[str]:
        return self.calls


def argv_of(assignment: Assignment, directory: str = "/out/ActorGroup", **options: Any) -> list[str]:
    made = NsysTool(NsysTool.normalise(options)).launch(assignment, directory)
    assert made.mode == "prefix"
    return list(made.argv)


def test_windows_of_a_device_process(assignment: Make) -> None:
    """Two listed windows: cudaProfilerApi, exactly two captures, no killing, a name with host and pid."""
    assert argv_of(assignment([3, 10])) == [
        "nsys", "profile", "-t", "cuda,nvtx", "--sample=none", "--cpuctxsw=none",
        "--capture-range=cudaProfilerApi", "--capture-range-end=repeat:2", "--kill=none",
        "-o", "/out/ActorGroup/ActorGroup-r0-%h-%p",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("devices", "trigger"), [([{"index": 0}], "api"), ([], "range"), (CaptureError("no answer"), "range")]
)
def test_a_command_started_here_has_the_devices_of_here(
    assignment: Make, monkeypatch: pytest.MonkeyPatch, devices: Any, trigger: str
) -> None:
    """``accelprof run`` and ``config show``: the API trigger call where this machine and environment show a device, else the range."""
    from accelprof_cuda.backend import CudaBackend

    from accelprof.catalogue import get_catalogue
    from accelprof.contracts.tool import ToolUse
    from accelprof.launch.devices import as_seen_here

    def listed(self: CudaBackend) -> Any:
        if isinstance(devices, Exception):
            raise devices
        return devices

    monkeypatch.setattr(CudaBackend, "devices", listed)
    uses = (ToolUse("nsys", {}, NsysTool()),)
    row = as_seen_here(get_catalogue(), assignment(has_devices=None), uses)
    assert NsysTool().trigger_of(row) == trigger
    for said in (True, False):  # somebody knows: nobody looks
        assert as_seen_here(get_catalogue(), assignment(has_devices=said), uses).target.has_devices is said


@pytest.mark.parametrize("launch", ["own", "shared"])
def test_a_process_without_a_device_under_the_api_gate_says_so(
    assignment: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, launch: str
) -> None:
    """A launch that expected a device: refused at once with the mend; where others share the launch, recorded with theirs."""
    from accelprof_cuda import vendor
    from accelprof_cuda.backend import CudaBackend

    from accelprof.contracts.tool import ToolContext

    monkeypatch.setattr(installation, "session_here", lambda: "4711")
    monkeypatch.setattr(vendor, "visible_devices", list)
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    monkeypatch.setenv("ACCELPROF_NSYS_GATE", "api")
    monkeypatch.setenv("ACCELPROF_LAUNCH", launch)
    row = assignment([2], has_devices=False)
    tool, said = NsysTool({"children": "follow", "trace": "cuda"}), []
    context = ToolContext(row.target, row, CudaBackend(), str(tmp_path), said.append)
    if launch == "own":
        with pytest.raises(CaptureError, match="capture-range to nvtx"):
            tool.attach(context)
        return
    tool.attach(context)
    window = windows_of(os.getpid(), [2])[0]
    tool.open(window)  # makes no trigger call, which this process does not have
    assert tool.close(window) == []
    assert any("no device in this process" in text for text in said)


def test_nsys_outside_the_path_is_started_by_its_own_path(
    assignment: Make, program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nsys that doctor finds in a CUDA installation is the one that starts workers; on PATH its bare name stays."""
    found = program("nsys", "print('here')\n")
    monkeypatch.setattr(installation, "NSYS_GLOBS", (str(found),))
    monkeypatch.setenv("PATH", "/nonexistent")
    launch = NsysTool().launch(assignment(), "/out")
    assert (launch.argv[0], launch.preflight[0]) == (str(found), str(found))
    monkeypatch.setenv("PATH", str(found.parent))
    launch = NsysTool().launch(assignment(), "/out")
    assert (launch.argv[0], launch.preflight[0]) == ("nsys", "nsys")


def test_raw_data_without_its_importer_is_said_at_once(assignment: Make, tmp_path: Path) -> None:
    """Two of two windows left .qdstrm and nobody makes reports of them: nobody waits the whole limit, and they are listed."""
    from accelprof.output.expected import Wanted, wait_and_match

    row = assignment([2, 4])
    (expected,) = NsysTool().expects(row, str(tmp_path))
    names = [f"ActorGroup-r0-{os.uname().nodename}-7.{number}" for number in (1, 2)]
    (tmp_path / f"{names[0]}.qdstrm").write_bytes(b"raw")
    (tmp_path / f"{names[0]}.nsys-rep").write_bytes(b"report")
    (tmp_path / f"{names[1]}.qdstrm").write_bytes(b"raw")
    wanted = Wanted(expected.pattern, 2, 60.0, expected.instead)
    began = time.monotonic()
    [(files, why)] = wait_and_match([wanted], [("nsys", {}, windows_of(7, [2, 4]))])
    assert time.monotonic() - began < 20
    assert why == ""
    assert [(os.path.basename(row.path), tuple(row.windows), row.state) for row in files] == [
        (f"{names[0]}.nsys-rep", ("7-w1",), "complete"),
        (f"{names[1]}.qdstrm", ("7-w2",), "partial"),
    ]


def test_a_report_that_is_being_made_is_waited_for(assignment: Make, tmp_path: Path) -> None:
    """While a program works on the raw data the report may still come; it is the one that counts."""
    from accelprof.output.expected import Wanted, wait_for

    row = assignment([2])
    (expected,) = NsysTool().expects(row, str(tmp_path))
    raw = tmp_path / f"ActorGroup-r0-{os.uname().nodename}-7.qdstrm"
    raw.write_bytes(b"raw")
    code = (
        "import os, sys, time; time.sleep(3); open(os.path.splitext(sys.argv[1])[0] + '.nsys-rep', 'w').write('report')"
    )
    importer = subprocess.Popen([sys.executable, "-c", code, str(raw)])
    try:
        [files] = wait_for([Wanted(expected.pattern, 1, 60.0, expected.instead)])
    finally:
        importer.wait(30)
    assert [os.path.splitext(path)[1] for path in files] == [".nsys-rep"]


def test_a_report_that_comes_while_it_is_asked_for_is_the_one_that_counts(
    assignment: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program that makes it ends between a look at the files and a look at the programs."""
    from accelprof.output.expected import Wanted, wait_for

    (expected,) = NsysTool().expects(assignment([2]), str(tmp_path))
    raw = tmp_path / f"ActorGroup-r0-{os.uname().nodename}-7.qdstrm"
    raw.write_bytes(b"raw")

    def in_hands(paths: Collection[str]) -> bool:
        raw.with_suffix(".nsys-rep").write_bytes(b"report")
        return False

    monkeypatch.setattr("accelprof.output.expected._in_hands", in_hands)
    [files] = wait_for([Wanted(expected.pattern, 1, 60.0, expected.instead)])
    assert [os.path.splitext(path)[1] for path in files] == [".nsys-rep"]


@pytest.mark.parametrize("has_devices", [False, None])
def test_windows_of_a_host_process(assignment: Make, has_devices: bool | None) -> None:
    """Without a device (or not known to have one) the trigger call is an NVTX range, which opens in either kind of process."""
    argv = argv_of(assignment([3, 10], has_devices=has_devices))
    assert "--capture-range=nvtx" in argv
    assert "--nvtx-capture=window@accelprof" in argv


def test_a_count_that_is_not_certain_is_not_guessed(assignment: Make) -> None:
    """One window a phase: ``repeat`` without a number, and a note that says when reports come."""
    row = assignment(count=None, discrete=True)
    assert "--capture-range-end=repeat" in argv_of(row)
    assert "not known beforehand" in NsysTool().launch(row, "/out").notes[0]


def test_the_whole_process_has_no_gate(assignment: Make) -> None:
    """``steps: process`` starts recording with the process."""
    row = assignment(mode="process")
    assert not [part for part in argv_of(row) if part.startswith("--capture-range")]
    assert NsysTool().trigger_of(row) == "none"


def test_the_api_gate_of_a_whole_process_without_a_device_is_a_range(assignment: Make) -> None:
    """``capture-range: cudaProfilerApi`` without steps never fires in a worker without a device; that one gets the range."""
    triggers = {
        devices: NsysTool({"capture-range": "cudaProfilerApi"}).trigger_of(
            assignment(mode="process", has_devices=devices)
        )
        for devices in (True, None, False)
    }
    assert triggers == {True: "api", None: "api", False: "range"}
    assert "--nvtx-capture=window@accelprof" in argv_of(
        assignment(mode="process", has_devices=False), **{"capture-range": "cudaProfilerApi"}
    )


def test_a_range_of_ones_own_begins_the_capture_where_no_steps_are_planned(assignment: Make) -> None:
    """``nvtx-capture`` stays as it was written, plain strings count, and nothing of the plan is expected before the end."""
    options = {"capture-range": "nvtx", "nvtx-capture": "step@train", "capture-range-end": "stop"}
    row, tool = assignment(mode="process"), NsysTool(options)
    assert {"--capture-range=nvtx", "--nvtx-capture=step@train", "--capture-range-end=stop"} <= set(
        argv_of(row, **options)
    )
    assert tool.check([row]) == []
    del options["capture-range-end"]  # nsys's own default would leave the program behind
    assert "--capture-range-end=stop" in argv_of(row, **options)
    assert tool.launch(row, "/out").env["NSYS_NVTX_PROFILER_REGISTER_ONLY"] == "0"
    assert [expected.count for expected in tool.expects(row, "/out")] == [1]
    (problem,) = tool.check([assignment([3])])
    assert "set steps: process" in str(problem)


def test_rlinf_options_and_flags(assignment: Make) -> None:
    """Options and flags as RLinf's guide shows them: values behind their option, flags bare, the trigger call added."""
    argv = argv_of(
        assignment([3, 10]), t="cuda,nvtx", backtrace="fp", flags=["python-backtrace"], extra_args=["--new-thing=1"]
    )
    text = " ".join(argv)
    assert "-t cuda,nvtx " in text
    assert " --backtrace=fp " in text
    assert argv[-2:] == ["--python-backtrace", "--new-thing=1"]
    assert "--capture-range-end=repeat:2" in argv


def test_every_role_gets_the_same_trace_and_range_end(assignment: Make) -> None:
    """Two ranks and two roles differ in nothing but their output."""
    first, second = argv_of(assignment(rank=0)), argv_of(assignment(rank=1))
    assert [part for part in first if "ActorGroup" not in part] == [part for part in second if "ActorGroup" not in part]


@pytest.mark.parametrize(
    ("given", "expected"),
    [("/data/mine", "/data/mine"), ("mine-%p", "/out/ActorGroup/mine-%p"), ("/data/mine.nsys-rep", "/data/mine")],
)
def test_an_explicit_output_is_respected(assignment: Make, given: str, expected: str) -> None:
    """An absolute ``o`` stands; a relative one lies in our directory, not in the raylet's; its directory is made."""
    launch = NsysTool(NsysTool.normalise({"o": given})).launch(assignment(), "/out/ActorGroup")
    assert launch.argv[launch.argv.index("-o") + 1] == expected
    assert launch.make_dirs == (os.path.dirname(expected),)


@pytest.mark.parametrize(
    "interpreter",
    [
        ("python3", "-u"),
        ("python3", "-m", "pkg"),
        ("uv", "run", "--with", "x", "python"),
        ("conda", "run", "-n", "env", "python"),
        ("env", "A=1", "python"),
        ("/a venv's/bin/python",),
    ],
)
def test_the_workers_interpreter_is_kept(assignment: Make, interpreter: tuple[str, ...]) -> None:
    """nsys goes before the whole command; the trial run uses the very same program."""
    row = assignment(interpreter=interpreter)
    launch = NsysTool().launch(row, "/out")
    argv = assemble(launch, interpreter)
    assert tuple(argv[-len(interpreter) :]) == interpreter
    assert program(argv) == "nsys"
    assert argv.count("nsys") == 1
    assert interpreter[0] in launch.preflight


def test_wrapping_twice_is_wrapping_once(assignment: Make) -> None:
    """A command that runs under nsys already is left as it is."""
    launch = NsysTool().launch(assignment(), "/out")
    once = assemble(launch, ["python3"])
    assert assemble(launch, once) == once
    assert once.count("profile") == 1


def test_odd_paths_reach_nsys_unchanged(assignment: Make, program: Callable[[str, str], Path], tmp_path: Path) -> None:
    """Spaces, quotes, ``$HOME``, ``%`` and commas arrive through a shell as one argument each; the directory is made."""
    echo = program("nsys", "import json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    directory = str(tmp_path / "a b" / "it's (1) $HOME 100%")
    row = assignment(interpreter=(str(tmp_path / "ve nv" / "python"), "-u"))
    options = {"nsys": str(echo), "nvtx-domain-include": 'x,"y" $HOME'}
    launch = NsysTool(options).launch(row, directory)
    command = to_shell(assemble(launch, row.target.interpreter))
    done = subprocess.run(
        ["bash", "-c", f"exec {command} default_worker.py"], capture_output=True, text=True, timeout=30, check=True
    )
    seen = json.loads(done.stdout)
    assert seen == [*shlex.split(to_shell(launch.argv[1:])), *row.target.interpreter, "default_worker.py"]
    assert '--nvtx-domain-include=x,"y" $HOME' in seen
    assert os.path.isdir(directory)
    output = seen[seen.index("-o") + 1]
    assert os.path.dirname(nsys_files.expand(output, 7, {})) == directory


def test_expected_files(assignment: Make) -> None:
    """The expectation's pattern fits the files nsys makes of ``-o``, and not those of another rank."""
    (expected,) = NsysTool().expects(assignment([2, 4, 6], rank=1), "/out/[x] 100%")
    assert (expected.count, expected.when) == (3, "last_window")
    assert fnmatch.fnmatch("/out/[x] 100%/ActorGroup-r1-node-7.2.nsys-rep", expected.pattern)
    assert not fnmatch.fnmatch("/out/[x] 100%/ActorGroup-r10-node-7.2.nsys-rep", expected.pattern)
    (whole,) = NsysTool().expects(assignment(mode="process"), "/out")
    assert (whole.count, whole.when) == (1, "process_exit")
    (uncertain,) = NsysTool().expects(assignment(count=None), "/out")
    assert (uncertain.count, uncertain.when) == (None, "process_exit")


# --- files and windows --------------------------------------------------------------------------------------------------


def windows_of(pid: int, steps: list[int]) -> list[WindowInfo]:
    return [
        WindowInfo(
            f"{pid}-w{number}", number, (step,), None, "step", f"/out/ActorGroup-r0-s{step}-w{number:04d}-node-{pid}"
        )
        for number, step in enumerate(steps, 1)
    ]


def test_numbered_reports_are_windows_in_order(tmp_path: Path) -> None:
    """``.2`` is the second window of the process whose pid the name ends with, in whatever order files are listed."""
    files = [str(tmp_path / f"ActorGroup-r0-node-7.{number}.nsys-rep") for number in (3, 1, 2)]
    for path in files:
        Path(path).write_bytes(b"report")
    other = windows_of(17, [1])
    found = NsysTool().match(files, [*other, *windows_of(7, [2, 4, 6])])
    assert [(artifact.windows, artifact.state) for artifact in found] == [
        (("7-w3",), "complete"),
        (("7-w1",), "complete"),
        (("7-w2",), "complete"),
    ]


def test_reports_of_a_shared_launcher_hold_the_windows_of_all_its_ranks(tmp_path: Path) -> None:
    """The name ends with the pid of torchrun's parent: the Nth file is the Nth stretch of the run, of whichever ranks have it."""
    files = [str(tmp_path / f"ActorGroup-rX-node-5.{number}.nsys-rep") for number in (1, 2, 3)]
    for path in files:
        Path(path).write_bytes(b"report")
    found = NsysTool().match(files, [*windows_of(8, [4, 6]), *windows_of(7, [2, 4, 6])])
    assert [sorted(artifact.windows) for artifact in found] == [["7-w1"], ["7-w2", "8-w1"], ["7-w3", "8-w2"]]


def test_a_lone_report_is_the_first_window(tmp_path: Path) -> None:
    """nsys gives no number to a lone capture, also when more were planned."""
    path = tmp_path / "ActorGroup-r0-node-7.nsys-rep"
    path.write_bytes(b"report")
    (artifact,) = NsysTool().match([str(path)], windows_of(7, [2]))
    assert artifact.windows == ("7-w1",)


def test_files_that_are_not_whole_are_named(tmp_path: Path) -> None:
    """Empty, missing, raw: each has its state and a reason; raw data whose report is there is not listed again."""
    for name in ("a-7.1.nsys-rep", "a-7.2.qdstrm", "a-7.3.qdstrm", "a-7.3.nsys-rep"):
        (tmp_path / name).write_bytes(b"" if name == "a-7.1.nsys-rep" else b"x")
    names = ["a-7.1.nsys-rep", "a-7.2.qdstrm", "a-7.3.qdstrm", "a-7.3.nsys-rep", "a-7.4.nsys-rep"]
    found = NsysTool().match([str(tmp_path / name) for name in names], windows_of(7, [1, 2, 3, 4]))
    assert [(artifact.windows, artifact.state) for artifact in found] == [
        (("7-w1",), "truncated"),
        (("7-w2",), "partial"),
        (("7-w3",), "complete"),
        (("7-w4",), "missing"),
    ]
    assert "QdstrmImporter" in found[1].reason


def test_placeholders() -> None:
    """``%p``, ``%h``, ``%q{NAME}`` and ``%%`` as nsys expands them; an unset variable stays."""
    assert nsys_files.expand("/o/%p-%q{RANK}-%q{NOPE}-100%%", 7, {"RANK": "3"}) == "/o/7-3-%q{NOPE}-100%"
    assert not nsys_files.varies("/o/100%%")


def test_ancestors_include_this_process() -> None:
    """``%p`` may be the pid of ``uv run`` above the worker, so the ancestors are looked at too."""
    chain = list(nsys_files.ancestry())
    assert chain[:2] == [os.getpid(), os.getppid()]


# --- a worker that is not under nsys, and its children -------------------------------------------------------------------


def test_a_process_that_is_not_under_nsys_says_so(assignment: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Using the tool in a process that was started without it is an error with the way to start it, not an empty result."""
    from accelprof_cuda.backend import CudaBackend

    from accelprof.contracts.tool import ToolContext
    from accelprof.errors import CaptureError

    row = assignment()
    for inherited in ("", "4711"):  # a child of a recorded worker inherits the variable, and must not end that session
        monkeypatch.setenv(installation.SESSION_ENV, inherited)
        with pytest.raises(CaptureError, match="not started under nsys"):
            NsysTool().attach(ToolContext(row.target, row, CudaBackend(), "/out", print))


def test_only_nsyss_own_libraries_leave_the_preload() -> None:
    """What the user preloads stays for child processes."""
    value = "/opt/nsight-systems/lib/libToolsInjectionProxy64.so:/usr/lib/libjemalloc.so /x/libLinuxKeyboardInterceptorProxy.so"
    assert installation.other_preloads({"LD_PRELOAD": value}) == "/usr/lib/libjemalloc.so"


def test_only_its_own_session_is_stopped(
    assignment: Make, program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With fewer windows than planned the session's end stops the nsys session of this very process, by id, and no other."""
    from accelprof_cuda.backend import CudaBackend

    from accelprof.contracts.tool import ToolContext

    log = tmp_path / "calls"
    fake = program("nsys", f"import sys\nopen({str(log)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n")
    monkeypatch.setattr(installation, "session_here", lambda: "4711")
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    row = assignment([2, 4], has_devices=True)
    tool = NsysTool({"nsys": str(fake), "children": "follow", "trace": "cuda"})
    said: list[str] = []
    tool.attach(ToolContext(row.target, row, CudaBackend(), str(tmp_path), said.append))
    tool._opened.append(windows_of(os.getpid(), [2])[0])
    report = tmp_path / f"ActorGroup-r0-{os.uname().nodename}-{os.getpid()}.nsys-rep"
    report.write_bytes(b"report")
    (artifact,) = tool.finalise("closed")
    assert (artifact.path, artifact.windows) == (str(report), (f"{os.getpid()}-w1",))
    assert log.read_text().splitlines() == ["stop --session=4711"]
    assert tool.finalise("again") == []
    assert said == []


@pytest.mark.parametrize("launch", ["own", "shared"])
def test_the_launch_and_not_the_session_says_where_reports_lie(
    assignment: Make,
    program: Callable[[str, str], Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    launch: str,
) -> None:
    """Launched for every group with an open count: found under the launch's name; a session that others share is not ended."""
    from dataclasses import replace

    from accelprof_cuda.backend import CudaBackend

    from accelprof.contracts.targets import Target
    from accelprof.contracts.tool import ToolContext

    log = tmp_path / "calls"
    fake = program("nsys", f"import sys\nopen({str(log)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n")
    monkeypatch.setattr(installation, "session_here", lambda: "4711")
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    options = {"nsys": str(fake), "children": "follow", "trace": "cuda"}
    every = assignment([2], count=None, rank=None)
    every = replace(every, target=Target("(every group)", has_devices=True))
    for name, value in NsysTool(options).launch(every, str(tmp_path / "every_group")).env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ACCELPROF_LAUNCH", launch)
    row = assignment([2], has_devices=True)
    tool, said = NsysTool(options), []
    tool.attach(ToolContext(row.target, row, CudaBackend(), str(tmp_path / "ActorGroup"), said.append))
    monkeypatch.setattr(CudaBackend, "capture_start", lambda self: None)
    monkeypatch.setattr(CudaBackend, "capture_stop", lambda self: None)
    first, second = windows_of(os.getpid(), [2, 3])
    place = Path(nsys_files.expand(os.environ["ACCELPROF_NSYS_OUTPUT"], os.getpid(), {}))
    place.parent.mkdir(exist_ok=True)
    for window in (first, second):  # the session's plan says one; the launch said no number
        tool.open(window)
        assert tool.close(window) == []
        Path(f"{place}.{window.sequence}.nsys-rep").write_bytes(b"report")
    found = tool.finalise("closed")
    assert said == []
    assert [artifact.windows for artifact in found] == ([(first.id,), (second.id,)] if launch == "own" else [])
    assert log.exists() == (launch == "own")


def test_a_failed_stop_is_said(
    assignment: Make, program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """When nsys refuses to stop, the user learns that reports come at the end of the process, and why."""
    from accelprof_cuda.backend import CudaBackend

    from accelprof.contracts.tool import ToolContext

    fake = program("nsys", "import sys\nsys.exit('no such session')\n")
    monkeypatch.setattr(installation, "session_here", lambda: "4711")
    row = assignment(count=None, has_devices=True)
    tool = NsysTool({"nsys": str(fake), "children": "follow", "trace": "cuda"})
    said: list[str] = []
    tool.attach(ToolContext(row.target, row, CudaBackend(), str(tmp_path), said.append))
    tool._opened.append(windows_of(os.getpid(), [2])[0])
    assert tool.finalise("closed") == []
    assert said == ["nsys: reports will be written when the process ends (nsys stop: no such session)"]


def test_nsys_is_found_beside_path(
    monkeypatch: pytest.MonkeyPatch, program: Callable[[str, str], Path], tmp_path: Path
) -> None:
    """PATH first, then the newest of the known places; a path that is given is taken or nothing."""
    newer = program("nsys-2025.3", "print('NVIDIA Nsight Systems version 2025.3.1.90-x')\n")
    older = program("nsys-2023.4", "print('NVIDIA Nsight Systems version 2023.4.4.54-x')\n")
    monkeypatch.setattr(installation, "NSYS_GLOBS", (str(tmp_path / "bin" / "nsys-*"),))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert installation.find() == str(newer)
    assert installation.find("/nowhere/nsys") is None
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:/usr/bin:/bin")
    assert installation.version(str(older)) == "2023.4.4.54"
