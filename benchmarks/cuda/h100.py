"""What must hold on a machine with NVIDIA GPUs, tried with plain processes under the nsys that is found there.

    python benchmarks/cuda/h100.py --output result.json            # one GPU
    python benchmarks/cuda/h100.py --output result.json --gpus 2   # rank 1 of two selected, with NCCL between them

Needs torch, nvtx and Nsight Systems. Prints one JSON object: machine, versions, a truth value per check, and numbers.
Ends with status 1 when a check does not hold.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import truth
from accelprof_cuda import installation, reader, vendor
from results import Result, attempt

from accelprof.catalogue import get_catalogue
from accelprof.contracts.spans import DEVICE_WORK, Kind, Span, Trace
from accelprof.contracts.targets import Launch, Target
from accelprof.launch.command import assemble
from accelprof.output.layout import Layout
from accelprof.testing.files import union_ns

HERE = Path(__file__).parent
TIMEOUT_S = 170
ALL = "step by step,merged,discrete,range gate,whole process,fewer,shared,without torch,torch windows,overhead,truth"


@dataclass
class Run:
    """What one process left."""

    directory: Path
    left: dict[str, Any]
    seconds: float
    output: str
    returncode: int

    @property
    def reports(self) -> list[Path]:
        return sorted(self.directory.glob("*.nsys-rep"))

    @property
    def records(self) -> list[dict[str, Any]]:
        return [
            row for row in self.left.get("summary", {}).get("journal", []) if row["kind"] == "window" and row["closed"]
        ]

    def costs(self) -> dict[str, list[float]]:
        return {
            "open_ms": [row["open_ms"] for row in self.records],
            "close_ms": [row["close_ms"] for row in self.records],
        }


def run_worker(
    place: Path,
    config: dict[str, Any],
    nsys: str,
    rank: int = 0,
    world: int = 1,
    has_devices: bool | None = True,
    **options: Any,
) -> Callable[[], Run]:
    """Start one worker as the plan says; the returned call waits for it."""
    catalogue = get_catalogue()
    config = {"tool": "nsys", **config}
    if config["tool"] == "nsys":
        config["tools"] = {"nsys": {"nsys": nsys, **config.get("tools", {})}}
    target = Target("ActorGroup", (), rank, world, has_devices=has_devices, interpreter=(sys.executable,))
    row = catalogue.plan(catalogue.load(config).config).assign(target)
    directory = Layout(str(place)).target_dir(target)
    launch = Launch()
    if row.selected and row.tool:
        launch = catalogue.make_tool(row.tool, row.options).launch(row, directory)
    argv = assemble(launch, target.interpreter)
    argv += [str(HERE / "gpu_worker.py"), json.dumps(config), str(place), json.dumps(options)]
    joined = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    env = {**os.environ, **launch.env, **joined}
    if world > 1:
        env["CUDA_VISIBLE_DEVICES"] = str(rank)
    began = time.monotonic()
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", cwd=place, env=env
    )

    def wait() -> Run:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            output = f"no end after {TIMEOUT_S} s\n" + process.communicate()[0]
        left = place / f"left-{rank}.json"
        told = json.loads(left.read_text()) if left.exists() else {}
        return Run(Path(directory), told, round(time.monotonic() - began, 2), output, process.returncode)

    return wait


def named(spans: Iterable[Span], word: str) -> int:
    return sum(word in span.name for span in spans if span.kind is Kind.KERNEL)


def steps_in(trace: Trace, kind: Kind = Kind.PHASE) -> list[int]:
    return sorted({span.args["payload"] for span in trace.of_kind(kind) if "payload" in span.args})


def inside(trace: Trace, phase: str) -> dict[str, Any]:
    """Device work launched by ``phase``'s thread while it ran: kernels, busy time (union), and the phase's own wall time."""
    phases = [span for span in trace.spans if span.kind in (Kind.PHASE, Kind.RANGE) and span.name == phase]
    launches = {
        span.args["correlation"]
        for span in trace.of_kind(Kind.RUNTIME, Kind.SYNC)
        if "correlation" in span.args
        and any(p.tid == span.tid and p.start_ns <= span.start_ns <= p.end_ns for p in phases)
    }
    work = [span for span in trace.spans if span.kind in DEVICE_WORK and span.args.get("correlation") in launches]
    return {
        "wall_ns": sum(span.duration_ns for span in phases),
        "gpu_busy_ns": union_ns((span.start_ns, span.end_ns) for span in work),
        "kernels": sum(span.kind is Kind.KERNEL for span in work),
    }


def stats(nsys: str, report: Path, name: str) -> list[dict[str, str]]:
    done = installation.run(
        [nsys, "stats", "--report", name, "--format", "csv", "--quiet", "--force-export=true", str(report)], 120
    )
    lines = done.stdout.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith(("Time (%)", "Range,"))), None)
    return [] if start is None else list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))


def expect_windows(result: Result, name: str, run: Run, wanted: list[list[int]]) -> list[Trace]:
    """One report a window, of exactly the steps wanted, and there while the process lived."""
    result.check(f"{name}: worker ended well", run.returncode == 0 and bool(run.left), run.output[-1500:])
    traces = [reader.read(str(path)) for path in run.reports]
    result.check(f"{name}: {len(wanted)} reports", len(traces) == len(wanted), [path.name for path in run.reports])
    for trace, steps in zip(traces, wanted, strict=False):
        kernels = (named(trace.spans, "sin_kernel"), named(trace.spans, "cos_kernel"))
        right = sum(step + 1 for step in steps)
        result.check(f"{name}: report of {steps} has its ranges only", steps_in(trace) == steps, steps_in(trace))
        result.check(f"{name}: report of {steps} has its kernels only", kernels == (right, right), (kernels, right))
    there = [file for file in run.left.get("seen", []) if file.endswith(".nsys-rep")]
    result.check(f"{name}: reports are there when the session has closed", len(there) == len(wanted), there)
    problems = run.left.get("summary", {}).get("problems", ["no summary"])
    known = ("never opened; steps seen", "closing window")  # steps beyond the loop's end; what nsys takes to write
    problems = [text for text in problems if not any(word in text for word in known)]
    result.check(f"{name}: no problems", not problems, problems)
    result.numbers[name] = {
        "seconds": run.seconds,
        **run.costs(),
        "report_bytes": [path.stat().st_size for path in run.reports],
    }
    return traces


def one_gpu(result: Result, scratch: Path, nsys: str, keep: Path | None, chosen: set[str]) -> None:
    """The scenarios that were chosen, each in a directory of its own; one that breaks is named and the others go on."""

    def step_by_step(place: Path) -> None:
        run = run_worker(place, {"steps": [2, 4, 6]}, nsys)()
        pause = result.numbers["longest pause of another Python thread, s"] = run.left.get("longest_pause_s")
        goes_on = pause is not None and pause < 0.5
        result.check("other Python threads go on while windows open and close", goes_on, pause)
        result.numbers["environment under nsys"] = run.left.get("injected")
        result.numbers["phase stats"] = run.left.get("stats")
        result.numbers["step seconds"] = run.left.get("step_seconds")
        traces = expect_windows(result, "steps 2, 4, 6", run, [[2], [4], [6]])
        if keep is not None and run.reports:
            installation.export_sqlite(str(run.reports[0]), str(keep / "h100_step2.sqlite"))
        if traces and run.records:
            details(result, run, traces[0], nsys)

    def merged(place: Path) -> None:
        run = run_worker(place, {"steps": [2, 3], "merge_steps": True}, nsys)()
        expect_windows(result, "steps 2, 3 merged", run, [[2, 3]])

    def range_gate(place: Path) -> None:
        run = run_worker(place, {"steps": [2, 4]}, nsys, has_devices=None, child_at=2)()
        pause = run.left.get("longest_pause_s")
        result.numbers["longest pause of another Python thread, NVTX range as gate, s"] = pause
        traces = expect_windows(result, "range gate, child process in the window", run, [[2], [4]])
        found = [named(trace.spans, "tan_kernel") for trace in traces]
        result.check("range gate: the child's kernels are not in the report", not any(found), found)

    def whole_process(place: Path) -> None:
        run = run_worker(place, {"steps": "process"}, nsys, steps=3, warm_up=False)()
        expect_windows(result, "whole process", run, [[0, 1, 2]])

    def fewer(place: Path) -> None:
        run = run_worker(place, {"steps": [2, 4, 60]}, nsys)()
        expect_windows(result, "two of three windows", run, [[2], [4]])

    def shared(place: Path) -> None:
        """Two ranks on one GPU below torchrun, which one nsys surrounds: a capture holds both, and the manifest says so."""
        config = {
            "tool": "nsys",
            "tools": {"nsys": {"nsys": nsys}},
            "steps": [2, 4, 6],
            "groups": {"ActorGroup": {"ranks": [0, 1]}},
            "output_dir": str(place),
            "run": "shared",
        }
        (place / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
        argv = [sys.executable, "-m", "accelprof", "run", "-c", str(place / "config.yaml"), "--"]
        argv += [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        argv += [str(HERE / "gpu_worker.py"), "null", ""]  # the run's own configuration
        argv += [json.dumps({"one_gpu": True})]
        done = installation.run(argv, TIMEOUT_S)
        said = done.stdout[-1500:] + done.stderr[-1500:]
        result.check("shared launcher: ended well", done.returncode == 0, said)
        manifest = json.loads((place / "shared" / "manifest.json").read_text())
        steps = {window["id"]: (window["steps"], window["target"]) for window in manifest["windows"]}
        reports = [row for row in manifest["artifacts"] if row["tool"] == "nsys"]
        held = [[steps[name][0] for name in row["windows"]] for row in reports]
        result.check(
            "shared launcher: a report holds both ranks' windows", held == [[[n], [n]] for n in (2, 4, 6)], held
        )
        traces = [reader.read(str(place / "shared" / row["path"])) for row in reports]
        found = [named(trace.spans, "sin_kernel") for trace in traces]
        result.numbers["shared launcher: kernels, of 6, 10, 14"] = found
        result.numbers["shared launcher: problems"] = manifest["problems"]
        # the capture ends with the last rank's window, so it may hold what the other did meanwhile
        whole = len(found) == 3 and all(got >= want for got, want in zip(found, (6, 10, 14), strict=True))
        result.check("shared launcher: the kernels of both ranks are whole", whole, found)

    scenarios: dict[str, Callable[[Path], None]] = {
        "step by step": step_by_step,
        "merged": merged,
        "discrete": lambda place: discrete(result, run_worker(place, {"steps": [2, 4], "discrete": True}, nsys)()),
        "range gate": range_gate,
        "whole process": whole_process,
        "fewer": fewer,
        "shared": shared,
        "without torch": lambda place: without_torch(
            result, run_worker(place, {"steps": [2, 4]}, nsys, without_torch=True)()
        ),
        "torch windows": lambda place: torch_windows(
            result, run_worker(place, {"tool": "torch", "steps": [2, 4, 6]}, nsys)()
        ),
        "overhead": lambda place: overhead(result, place, nsys),
    }
    for name, scenario in scenarios.items():
        if name in chosen:
            attempt(result, name, scenario, scratch / name.replace(" ", "-"))
    if "truth" in chosen:
        for name in truth.SCENARIOS:
            attempt(result, f"truth, {name}", truth.scenario(name, result, nsys), scratch / f"truth-{name}")


def details(result: Result, run: Run, trace: Trace, nsys: str) -> None:
    """Clock, sums against nsys's own, device time of phases."""
    record = min(run.records, key=lambda row: row["sequence"])
    early = min(span.start_ns for span in trace.of_kind(Kind.PHASE)) - record["opened"]["epoch_ns"]
    late = record["closed"]["epoch_ns"] - max(span.end_ns for span in trace.of_kind(Kind.PHASE))
    result.numbers["clock: first phase after opening, last before closing, ns"] = [early, late]
    result.check("ranges lie inside their window on the epoch clock", early > -5e6 and late > -5e6, (early, late))
    ours: dict[str, list[int]] = {}
    for span in trace.of_kind(Kind.PHASE, Kind.RANGE, Kind.WINDOW):
        row = ours.setdefault(f"{span.domain}:{span.name}", [0, 0])
        row[0], row[1] = row[0] + 1, row[1] + span.duration_ns
    theirs = {
        row["Range"]: [int(row["Instances"]), int(row["Total Time (ns)"])]
        for row in stats(nsys, run.reports[0], "nvtx_sum")
    }
    result.check("ranges equal nsys stats nvtx_sum", ours == theirs and bool(ours), (ours, theirs))
    kernels = [span for span in trace.spans if span.kind in (Kind.KERNEL, Kind.COMMUNICATION)]
    told = stats(nsys, run.reports[0], "cuda_gpu_kern_sum")
    counted = [sum(int(row["Instances"]) for row in told), sum(int(row["Total Time (ns)"]) for row in told)]
    mine = [len(kernels), sum(span.duration_ns for span in kernels)]
    result.check("kernels equal nsys stats cuda_gpu_kern_sum", counted == mine, (counted, mine))
    update = next(span for span in trace.of_kind(Kind.PHASE) if span.name == "actor/update")
    result.check("colour arrives", update.color == "#008000", update.color)
    result.numbers["inside phases of step 2"] = {
        name: inside(trace, name) for name in ("actor/update", "actor/inner", "actor/rollout")
    }
    result.numbers["trace problems"] = trace.problems
    result.numbers["trace metadata"] = trace.metadata
    result.numbers["projection by nsys"] = stats(nsys, run.reports[0], "nvtx_gpu_proj_sum")
    device = run.left.get("stats", {}).get("actor/update", {})
    # events lie around the host's two clock readings, so the device's time may be a little longer
    near = 0 < device.get("device_total", 0) <= device.get("total", 0) + 0.001 * device.get("count", 0)
    result.check("Worker.timer(device=True) has a device time", near, device)


def discrete(result: Result, run: Run) -> None:
    """Two outermost phases in each of two steps: four windows, one phase each."""
    traces = [reader.read(str(path)) for path in run.reports]
    # a phase of another domain is a range of that domain
    steps = [steps_in(trace) or steps_in(trace, Kind.RANGE) for trace in traces]
    kernels = [(named(trace.spans, "sin_kernel"), named(trace.spans, "cos_kernel")) for trace in traces]
    found = [(mine, *counted) for mine, counted in zip(steps, kernels, strict=True)]
    expected = [([2], 3, 0), ([2], 0, 3), ([4], 5, 0), ([4], 0, 5)]
    said = (found, run.output[-800:])
    result.check("discrete: a report for each outermost phase, with its kernels only", found == expected, said)
    there = [file for file in run.left.get("seen", []) if file.endswith(".nsys-rep")]
    result.check("discrete: reports are there when the session has closed", len(there) == 4, there)
    result.numbers["discrete, steps 2 and 4"] = {"seconds": run.seconds, **run.costs()}


def without_torch(result: Result, run: Run) -> None:
    traces = [reader.read(str(path)) for path in run.reports]
    found = [(steps_in(trace), sum("sin" in span.name for span in trace.of_kind(Kind.KERNEL))) for trace in traces]
    works = found == [([2], 3), ([4], 5)]
    result.check("without torch: the gate works through the runtime library", works, (found, run.output[-1500:]))
    imported = run.left.get("torch_imported")
    result.check("without torch: torch was not imported", imported is False, imported)


def torch_windows(result: Result, run: Run) -> None:
    """The torch profiler's windows on the same machine, with the same counts."""
    import gzip

    found = []
    for path in sorted(run.directory.glob("*.pt.trace.json.gz")):
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        kernels = [event["name"] for event in events if event.get("cat") == "kernel"]
        found.append((sum("sin_kernel" in name for name in kernels), sum("cos_kernel" in name for name in kernels)))
    whole = found == [(3, 3), (5, 5), (7, 7)]
    result.check("torch windows: one trace a step with its kernels only", whole, (found, run.output[-1500:]))
    result.numbers["torch windows"] = {"seconds": run.seconds, **run.costs()}


def overhead(result: Result, place: Path, nsys: str) -> None:
    script = str(HERE / "overhead.py")
    plain, under = place / "plain.json", place / "under.json"
    done = subprocess.run(
        [sys.executable, script, "--output", str(plain)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    argv = [nsys, "profile", "-t", "cuda,nvtx", "--sample=none", "--cpuctxsw=none", "-o", str(place / "o")]
    argv += [sys.executable, script, "--calls", "5000", "--rounds", "5", "--output", str(under)]
    nsys_done = installation.run(argv, TIMEOUT_S)
    for name, path, said in (("without a tool", plain, done), ("under nsys", under, nsys_done)):
        if not path.exists():
            result.check(f"overhead {name} was measured", False, said.stdout[-800:] + said.stderr[-1500:])
            continue
        told = json.loads(path.read_text())
        result.numbers[f"overhead {name}, ns per phase"] = told["ns_per_call"]
        traced, recorded = name == "under nsys", told["recorded"]
        where = "" if traced else "nowhere"
        result.check(f"overhead {name}: ranges are recorded {where}", recorded is traced, recorded)
        if name == "without a tool":
            result.numbers["overhead without a tool, percent of a 10 ms step"] = told["percent_of_10ms_step"]
            said = (told["ns_per_call"], told["limit_ns"])
            result.check("open CUDA range within floor + 1.5 x a raw cached push/pop", told["within_limit"], said)


def two_gpus(result: Result, scratch: Path, nsys: str, keep: Path | None) -> None:
    """Rank 1 of two is selected: rank 0 starts as ever and leaves nothing."""
    config = {"steps": [2, 4, 6], "ranks": [1]}
    place = scratch
    waits = [run_worker(place, config, nsys, rank, 2) for rank in range(2)]
    first, second = (wait() for wait in waits)
    result.check("two GPUs: rank 0 ended well", first.returncode == 0, first.output[-1500:])
    result.check("two GPUs: rank 0 was not wrapped", not first.left.get("injected"), first.left.get("injected"))
    traces = expect_windows(result, "two GPUs, rank 1", second, [[2], [4], [6]])
    reports = [path.name for path in second.reports]
    result.check("two GPUs: reports of rank 1 only", bool(reports) and all("-r1-" in name for name in reports), reports)
    if not traces:
        return
    collective = list(traces[0].of_kind(Kind.COMMUNICATION))
    names = [span.name for span in collective]
    result.check("two GPUs: the all-reduce is a communication kernel", len(collective) == 1, names)
    seen = {"device": sorted({span.device for span in collective}, key=str), "metadata": traces[0].metadata}
    result.numbers["two GPUs: devices in the report of rank 1"] = seen
    result.numbers["two GPUs: inside phases of step 2"] = {
        name: inside(traces[0], name) for name in ("actor/update", "actor/rollout")
    }
    if keep is not None:
        installation.export_sqlite(str(second.reports[0]), str(keep / "h100x2_rank1_step2.sqlite"))


def machine(nsys: str) -> dict[str, Any]:
    import torch

    return {
        "devices": [device["name"] for device in vendor.all_devices()],
        "driver": vendor.driver_version(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "nvtx": version("nvtx"),
        "nsys": installation.version(nsys),
        "nsys at": nsys,
        "importer": installation.importer(nsys),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", help="also write the JSON here")
    parser.add_argument("--keep", type=Path, help="directory for an exported report of step 2")
    parser.add_argument("--gpus", type=int, default=1, choices=(1, 2))
    parser.add_argument("--only", default=ALL, help=f"comma list of: {ALL}")
    parser.add_argument("--nsys", help="nsys to use; default: the one found")
    arguments = parser.parse_args()
    nsys = arguments.nsys or installation.find()
    if nsys is None:
        parser.error("no nsys on PATH or in a CUDA or Nsight installation; give --nsys")
    result = Result()
    with tempfile.TemporaryDirectory(prefix="accelprof-h100-", ignore_cleanup_errors=True) as scratch:
        if arguments.gpus == 2:
            place = Path(scratch) / "two"
            attempt(result, "two GPUs", lambda place: two_gpus(result, place, nsys, arguments.keep), place)
        else:
            one_gpu(result, Path(scratch), nsys, arguments.keep, set(arguments.only.split(",")))
    return result.told(arguments.output, machine=machine(nsys))


if __name__ == "__main__":
    raise SystemExit(main())
