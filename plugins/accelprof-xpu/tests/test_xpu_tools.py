"""``vtune`` and ``unitrace``: launches rendered from tables, stand-ins that follow their documentation, a trace read."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from accelprof.analysis.attribution import attribute
from accelprof.contracts.spans import Kind
from accelprof.contracts.targets import WRAPPED_ENV, Assignment, CaptureCount, Target, WindowInfo
from accelprof.launch.command import assemble
from accelprof.numberset import NumberSet
from accelprof.testing import ToolConformance

pytest.importorskip("accelprof_xpu", reason="accelprof-xpu is not installed")

from accelprof_xpu.reader import read_unitrace
from accelprof_xpu.tools import UnitraceTool, VtuneTool


class _Launched(ToolConformance):
    """The trigger call in a process that looks started under the tool's program."""

    @contextlib.contextmanager
    def stand_in(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(WRAPPED_ENV, self.make().name)
            yield


class TestVtune(_Launched):
    """The kit."""

    def make(self) -> VtuneTool:
        return VtuneTool()


class TestUnitrace(_Launched):
    """The kit."""

    def make(self) -> UnitraceTool:
        return UnitraceTool()

    def device_file(self, directory: str) -> str:
        path = Path(directory) / "python.4711.json"
        path.write_text(json.dumps({"traceEvents": [event for event in EVENTS if event.get("dur", 0) != 4.0]}))
        return str(path)


def row(mode: str = "steps") -> Assignment:
    steps = NumberSet.parse([2, 4] if mode == "steps" else [])
    return Assignment(Target("ActorGroup", ("actor",), 0, 2), True, mode=mode, steps=steps, count=CaptureCount(2))


@pytest.mark.parametrize(
    ("tool", "mode", "expected"),
    [
        (VtuneTool(), "steps", ["vtune", "-collect", "hotspots", "-result-dir", "/run/ActorGroup-r0-vtune/r@@@{at}", "-start-paused", "-quiet", "--"]),
        (VtuneTool(), "process", ["vtune", "-collect", "hotspots", "-result-dir", "/run/ActorGroup-r0-vtune/r@@@{at}", "-quiet", "--"]),
        (
            VtuneTool({"args": {"c": "gpu-hotspots", "knob": ["a=1", "b=2"]}, "flags": ["follow-child"], "extra_args": ["-x"]}), "steps",
            ["vtune", "-collect", "gpu-hotspots", "-result-dir", "/run/ActorGroup-r0-vtune/r@@@{at}", "-start-paused", "-quiet",
             "-knob", "a=1", "-knob", "b=2", "-follow-child", "-x", "--"],
        ),
        (
            UnitraceTool(), "steps",
            ["unitrace", "--chrome-kernel-logging", "--chrome-itt-logging", "--conditional-collection", "--output-dir-path",
             "/run/ActorGroup-r0-unitrace"],
        ),
        (
            UnitraceTool({"args": {"chrome-itt-logging": False}, "flags": ["-d"]}), "process",
            ["unitrace", "--chrome-kernel-logging", "--output-dir-path", "/run/ActorGroup-r0-unitrace", "--device-timing"],
        ),
    ],
)  # fmt: skip
def test_the_launch_stands_before_the_workers_own_command(tool: Any, mode: str, expected: list[str]) -> None:
    """Paused where windows are planned; the user's options by either spelling, theirs over ours."""
    assert tool.check([row(mode)]) == []
    launch = tool.launch(row(mode), "/run")
    argv = assemble(launch, ["/venv/bin/python", "-u"])
    assert argv[argv.index(expected[0]) :] == [*expected, "/venv/bin/python", "-u"]
    assert launch.make_dirs == (f"/run/ActorGroup-r0-{tool.name}",)


@pytest.mark.parametrize(
    ("tool", "options", "said"),
    [
        (VtuneTool, {"args": {"collect": "gpu-hotspot"}}, "Mend: did you mean 'gpu-hotspots'"),
        (VtuneTool, {"args": {"colect": "hotspots"}}, "did you mean 'collect'"),
        (VtuneTool, {"args": {"start-paused": 3}}, "it is a switch"),
        (VtuneTool, {"flags": ["knob"]}, "it takes a value"),
        (UnitraceTool, {"flags": ["chrome-kernel-loging"]}, "did you mean 'chrome-kernel-logging'"),
        (UnitraceTool, {"args": {"o": "a", "output": "b"}}, "given twice"),
    ],
)
def test_what_is_refused(tool: Any, options: dict[str, Any], said: str) -> None:
    """An option that the program does not have, with the nearest it has."""
    [problem] = tool(options).check([row()])
    assert said in str(problem)
    assert str(problem).startswith(f"tools.{tool.name}.args")


#: unitrace as its README has it: with --conditional-collection nothing is collected until ITT resumes; one file a process,
#: <application>.<pid>.json, when the process ends
UNITRACE = """#!{python}
import os, sys
args = sys.argv[1:]
flags = [a for a in args if a.startswith("--")]
place = args[args.index("--output-dir-path") + 1]
command = args[args.index("--output-dir-path") + 2:]
os.environ.update(STANDIN_DIR=place, STANDIN_PAUSED=str(int("--conditional-collection" in flags)),
                  INTEL_LIBITTNOTIFY64="{collector}", INTEL_ITTNOTIFY_GROUPS="all", ITT_LOG=place + "/itt.log")
os.execvp(command[0], command)
"""
WORKER = """
import os, sys
import accelprof
class Actor(accelprof.Worker):
    @accelprof.Worker.timer("actor/update")
    def update(self): pass
session = accelprof.configure({config!r}, group="ActorGroup", rank=0)
actor = Actor()
for step in range(6):
    with session.step(step): actor.update()
report = session.close()
assert report["problems"] == [], report["problems"]
"""


@pytest.mark.itt
def test_a_worker_under_unitrace(tmp_path: Path) -> None:
    """The whole way: the launch starts the worker, and ITT resumes and pauses around each window's phases."""
    import shutil

    pytest.importorskip("ittapi", reason="ittapi is not installed (.ci/install-wings)")
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    collector = tmp_path / "libcollector.so"
    source = Path(__file__).parent / "collector.c"
    subprocess.run(["gcc", "-O1", "-w", "-shared", "-fPIC", str(source), "-o", str(collector)], check=True, timeout=60)
    program = tmp_path / "unitrace"
    program.write_text(UNITRACE.format(python=sys.executable, collector=collector))
    program.chmod(0o755)
    config = {"tool": "unitrace", "accelerator": "xpu", "steps": [2, 4], "output_dir": str(tmp_path / "out"),
              "tools": {"unitrace": {"program": str(program)}}}  # fmt: skip
    tool = UnitraceTool({"program": str(program)})
    launch = tool.launch(row(), str(tmp_path))
    os.makedirs(launch.make_dirs[0])
    argv = assemble(launch, [sys.executable])
    done = subprocess.run(
        [*argv, "-c", WORKER.format(config=config)],
        env={**os.environ, **launch.env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    heard = [line.split("\t")[2:5] for line in Path(launch.make_dirs[0], "itt.log").read_text().splitlines()]
    assert (
        heard
        == [["resume", "", ""], ["begin", "accelprof", "actor/update"], ["end", "accelprof", ""], ["pause", "", ""]] * 2
    )


def x(name: str, cat: str, pid: int, tid: int, ts: str, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": cat, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


EVENTS = [
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "HOST<node7>"}},
    {"ph": "M", "name": "process_name", "pid": 2, "args": {"name": "DEVICE<node7>0"}},
    {"ph": "M", "name": "thread_name", "pid": 2, "tid": 9, "args": {"name": "Engine<0,0> Thread 11"}},
    x("actor/update", "cpu_op", 1, 11, "1795887644997523.001", 100.5),
    x("zeCommandListAppendLaunchKernel", "cpu_op", 1, 11, "1795887644997524.000", 2.25, id="7"),
    {"ph": "s", "name": "dep", "cat": "Flow_H2D_7_0", "pid": 1, "tid": 11, "id": 7, "ts": "1795887644997524.000"},
    {"ph": "t", "name": "dep", "cat": "Flow_H2D_7_0", "pid": 2, "tid": 9, "id": 7, "ts": "1795887644997900.000"},
    x("zeCommandQueueSynchronize", "cpu_op", 1, 11, "1795887644997527.000", 20.0),
    x("gemm_kernel[SIMD16]", "gpu_op", 2, 9, "1795887644997900.000", 50.125, id="7"),
    x("zeCommandListAppendMemoryCopy(H2D)[64 bytes]", "gpu_op", 2, 9, "1795887644998000.000", 4.0, id="8"),
    x("broken", "gpu_op", 2, 9, "1795887644998000.000", -4.0, id="9"),
]


def test_a_trace_of_unitrace(tmp_path: Path) -> None:
    """Kernels, copies, calls, waits and ITT ranges; a kernel that runs later belongs to the phase that launched it."""
    path = tmp_path / "python3.4711.json"
    path.write_text(json.dumps({"traceEvents": EVENTS}))
    assert UnitraceTool.can_read(str(path))
    trace = read_unitrace(str(path))
    assert {span.name.split("(")[0]: span.kind for span in trace.spans} == {
        "actor/update": Kind.RANGE,
        "zeCommandListAppendLaunchKernel": Kind.RUNTIME,
        "zeCommandQueueSynchronize": Kind.SYNC,
        "gemm_kernel[SIMD16]": Kind.KERNEL,
        "zeCommandListAppendMemoryCopy": Kind.COPY,
    }
    kernel = next(trace.of_kind(Kind.KERNEL))
    assert (kernel.start_ns, kernel.duration_ns, kernel.device, kernel.stream) == (
        1795887644997900000, 50125, "DEVICE<node7>0", "Engine<0,0> Thread 11",
    )  # fmt: skip
    [phase] = attribute(trace).phases
    assert (phase.name, phase.kernels, sum(phase.busy_ns.values())) == ("actor/update", 1, 50125)
    assert trace.completeness.left_out == {"negative duration": 1}


@pytest.mark.parametrize(
    "head",
    [{"schemaVersion": 1}, {"deviceProperties": []}, {"distributedInfo": {}}, {}],
    ids=lambda head: "".join(head) or "bare",
)
def test_a_torch_trace_of_any_name_is_none_of_unitrace(tmp_path: Path, head: dict[str, Any]) -> None:
    """Both have the category cpu_op; read as unitrace's, the kernels of a torch trace would be no work of a device."""
    operator = x("aten::mm", "cpu_op", 1, 1, "1795887644997523.001", 5.0, **{"External id": 1, "Ev Idx": 1})
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**head, "traceEvents": [operator]}))
    assert not UnitraceTool.can_read(str(path))


def test_files_of_a_process_hold_its_windows(tmp_path: Path) -> None:
    """The pid in unitrace's name tells the process; VTune's directory is its target's."""
    windows = [
        WindowInfo(f"w{n}", n, (n,), None, "step", str(tmp_path / f"ActorGroup-r0-s{n}-host-4711")) for n in (2, 4)
    ]
    for name in ("python3.4711.json", "python3.99.json", "python3.4711.2.json"):
        (tmp_path / name).write_text("" if ".2." in name else "{}")
    found = {
        os.path.basename(file.path): file
        for file in UnitraceTool().match([str(p) for p in tmp_path.iterdir()], windows)
    }
    assert found["python3.4711.json"].windows == ("w2", "w4")
    assert found["python3.99.json"].windows == ()
    assert found["python3.4711.2.json"].state == "truncated"
    (tmp_path / "r000hs" / "data.0").mkdir(parents=True)
    (tmp_path / "r000hs" / "data.0" / "1.trace").write_bytes(bytes(70))
    [result] = VtuneTool().match([str(tmp_path / "r000hs")], windows)
    assert (result.windows, result.state, result.bytes) == (("w2", "w4"), "complete", 70)


def test_a_process_that_was_not_wrapped_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """No silent success without the launcher."""
    from accelprof_xpu.backend import XpuBackend

    from accelprof.contracts.tool import ToolContext
    from accelprof.errors import CaptureError

    monkeypatch.delenv(WRAPPED_ENV, raising=False)
    context: Callable[[], ToolContext] = lambda: ToolContext(row().target, row(), XpuBackend(), "/run", print)  # noqa: E731
    for tool in (VtuneTool(), UnitraceTool()):
        with pytest.raises(CaptureError, match="was not started under"):
            tool.attach(context())


@pytest.mark.parametrize("argument", ['"External id": 1', '"Ev Idx": 3', '"Record function id": 7'])
def test_a_trace_of_torch_is_not_unitraces(tmp_path: Path, argument: str) -> None:
    """A plain torch trace that begins with operators, before any annotation, is read as torch's, whatever its name: its kernels are
    there."""
    from accelprof.analysis.attribution import attribute
    from accelprof.analysis.reading import read_any

    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 2, "dur": 1}
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 4, "dur": 5}
    operators = ",".join(
        f'{{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": {n}, "dur": 1, "args": {{{argument}}}}}'
        for n in range(900)
    )
    device = [{**row, "args": {"correlation": 9, "device": 0, "stream": 7}} for row in (launch, kernel)]
    path = tmp_path / "64.json"
    path.write_text(f'{{"traceEvents": [{operators}, {json.dumps(device)[1:-1]}]}}')
    for tool in ("torch", None):
        trace = read_any(path, tool)
        assert attribute(trace).kernels == 1
        assert trace.problems == []
