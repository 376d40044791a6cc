"""Whether figures are true on a GPU: each scenario says what was expected and what was seen (run by ``h100.py``, or alone).

    python benchmarks/cuda/truth.py                       # all of them
    python benchmarks/cuda/truth.py kernels,ddp           # some

``kernels`` (whole windows by every gate), ``ddp`` and ``checkpoint`` (backward's device work against SQL on the same report),
``shared`` (one nsys around two ranks of torchrun, each rank's kernels its own), ``second`` (where each nanosecond of a step went),
``capture`` (CUDA graphs), ``costs``. With two cards the two ranks have one each and NCCL, otherwise they share one with gloo.
The programs wait for the device where users do: before the first step and after the last.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accelprof_cuda import installation, reader
from results import Result, attempt

from accelprof.contracts.spans import Kind

HERE = Path(__file__).parent
TIMEOUT_S = 240
KERNELS = 100
NEAR = 0.02


def expect(result: Result, name: str, expected: Any, seen: Any, holds: bool | None = None) -> None:
    """One check, printed with both sides."""
    good = expected == seen if holds is None else holds
    print(f"{'ok  ' if good else 'FAIL'} {name}: expected {expected}, seen {seen}", file=sys.stderr, flush=True)
    result.check(f"truth, {name}", good, {"expected": expected, "seen": seen})


def run(place: Path, nsys: str, program: str, config: dict[str, Any], ranks: int = 0) -> tuple[Path, str, int]:
    """``accelprof run`` around a program of ``truth_worker.py``; the run directory, what was said, and the status."""
    place.mkdir(parents=True, exist_ok=True)
    whole = {"tool": "nsys", "output_dir": str(place), "run": "run", "report_timeout": 60, **config}
    if whole["tool"] == "nsys":
        whole["tools"] = {"nsys": {"nsys": nsys, **config.get("tools", {}).get("nsys", {})}}
    (place / "config.yaml").write_text(json.dumps(whole))  # JSON is YAML
    argv = [sys.executable, "-m", "accelprof", "run", "-c", str(place / "config.yaml"), "--", sys.executable]
    if ranks:
        argv += ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", "29533"]
    argv += [str(HERE / "truth_worker.py"), program]
    done = subprocess.run(
        argv, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, cwd=place, check=False
    )
    return place / "run", (done.stdout + done.stderr)[-3000:], done.returncode


def told_by(run_dir: Path) -> dict[str, Any]:
    """``accelprof report --json``."""
    argv = [sys.executable, "-m", "accelprof", "report", str(run_dir), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return found


def manifest_of(run_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run_dir / "manifest.json").read_text())
    return found


def reports_of(run_dir: Path, manifest: dict[str, Any], suffix: str = ".nsys-rep") -> list[Path]:
    return [run_dir / row["path"] for row in manifest["artifacts"] if row["path"].endswith(suffix)]


# --- whole windows ------------------------------------------------------------------------------------------------------------


VARIANTS: dict[str, tuple[dict[str, Any], list[int], bool | None]] = {
    "default gate, steps 2, 4": ({"steps": [2, 4]}, [KERNELS] * 2, True),
    "default gate, discrete": ({"steps": [2, 4], "discrete": True}, [KERNELS] * 2, True),
    "default gate, merged 2-3": ({"steps": [2, 3], "merge_steps": True}, [2 * KERNELS], True),
    "default gate, drain off": ({"steps": [2, 4], "drain": False}, [KERNELS] * 2, False),
    "NVTX range as gate": ({"steps": [2, 4], "tools": {"nsys": {"capture-range": "nvtx"}}}, [KERNELS] * 2, True),
    "steps: process": ({"steps": "process"}, [6 * KERNELS], None),
    "tool torch": ({"tool": "torch", "steps": [2, 4]}, [KERNELS] * 2, True),
}


def products(path: Path) -> int:
    """Matrix products in a report: the program launches no other kernel as often."""
    if path.name.endswith(".gz"):
        from accelprof.reading.chrome import read_chrome

        trace = read_chrome(str(path), "torch")
    else:
        trace = reader.read(str(path))
    names = Counter(span.name for span in trace.of_kind(Kind.KERNEL))
    return names.most_common(1)[0][1] if names else 0


def kernels(result: Result, place: Path, nsys: str) -> None:
    """The script of the first finding: a hundred kernels a step, nobody waits for them, every window has them all."""
    for name, (config, wanted, drained) in VARIANTS.items():
        run_dir, said, status = run(place / name.replace(" ", "-").replace(",", ""), nsys, "kernels", config)
        expect(result, f"{name}: status", 0, status if status == 0 else (status, said))
        if not (run_dir / "manifest.json").exists():
            continue
        manifest = manifest_of(run_dir)
        suffix = ".pt.trace.json.gz" if config.get("tool") == "torch" else ".nsys-rep"
        seen = [products(path) for path in reports_of(run_dir, manifest, suffix)]
        if name.endswith("drain off"):  # the gate of the driver may wait by itself; what counts is that it is said
            result.numbers[f"kernels, {name}"] = seen
        else:
            expect(result, f"{name}: kernels in each window", wanted, seen)
        if drained is not None:
            waited = all(window.get("drained") for window in manifest["windows"])
            expect(result, f"{name}: the device was waited for", drained, waited)
        # nsys takes about 3 s to write a report, which is said of every close over 1 s
        problems = [said for said in manifest["problems"] if ": closing window" not in said]
        expect(result, f"{name}: problems", [], problems)
        took = [round(window.get("drain_ns", 0) / 1e6, 2) for window in manifest["windows"]]
        result.numbers[f"waiting for the device, ms, {name}"] = took


# --- whose kernels ------------------------------------------------------------------------------------------------------------

RANGES = """
select n.start, n.end, n.globalTid >> 24 from NVTX_EVENTS n left join StringIds s on s.id = n.textId
where coalesce(n.text, s.value) = ? and n.end is not null
"""
LAUNCHES = """
select r.start, r.globalTid >> 24, k.start, k.end from {table} k join CUPTI_ACTIVITY_KIND_RUNTIME r
on r.correlationId = k.correlationId and (r.globalTid >> 24) = (k.globalPid >> 24)
"""
WORK = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")


def covered(intervals: list[tuple[int, int]]) -> int:
    """Length of the union, ns: a device that copies while a kernel runs is busy once."""
    total, until = 0, None
    for start, end in sorted(intervals):
        if until is None or start > until:
            total, until = total + end - start, end
        elif end > until:
            total, until = total + end - until, end
    return total


def launched_in(connection: sqlite3.Connection, phase: str, pids: list[int]) -> tuple[int, int]:
    """``(kernels, ns in which they or copies ran)`` of what these processes launched, on whichever thread, while in ``phase``."""
    around = [row for row in connection.execute(RANGES, (phase,)) if row[2] & 0xFFFFFF in pids]
    present = {row[0] for row in connection.execute("select name from sqlite_master")}
    found = {
        table: [
            (start, end)
            for at, process, start, end in connection.execute(LAUNCHES.format(table=table))
            if any(low <= at <= high and process == of for low, high, of in around)
        ]
        for table in WORK
        if table in present
    }
    return len(found.get(WORK[0], ())), covered([piece for pieces in found.values() for piece in pieces])


def truth_of(report: Path, phase: str, pids: list[int]) -> tuple[int, int]:
    """The same by SQL on nsys's own export of a report."""
    with tempfile.TemporaryDirectory() as scratch:
        exported = Path(scratch) / "report.sqlite"
        installation.export_sqlite(str(report), str(exported))
        connection = sqlite3.connect(exported)
        try:
            return launched_in(connection, phase, pids)
        finally:
            connection.close()


def truth_of_torch(path: Path, phase: str) -> tuple[int, int]:
    """The same of a trace of torch's profiler, by its correlation numbers."""
    import gzip

    events = [e for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if e.get("ph") == "X"]
    around = [
        (e["ts"], e["ts"] + e["dur"]) for e in events if e.get("name") == phase and e.get("cat") == "user_annotation"
    ]
    launched = {
        e["args"]["correlation"]
        for e in events
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and any(low <= e["ts"] <= high for low, high in around)
    }
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    work = [e for e in events if e.get("cat") in kinds and e["args"].get("correlation") in launched]
    pieces = [(round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000)) for e in work]
    return sum(e["cat"] == "kernel" for e in work), covered(pieces)


def figures(report: dict[str, Any], path: Path) -> dict[str, dict[str, Any]]:
    """``worker -> phases by name`` that the report says of one file."""
    return {
        row["worker"]: {phase["name"]: phase for phase in row["phases"]}
        for row in report["devices"]
        if Path(row["path"]).name == path.name
    }


def compare(result: Result, name: str, phase: dict[str, Any] | None, truth: tuple[int, int]) -> None:
    kernels_, taken = truth
    busy = sum((phase or {}).get("busy_ns", {}).values())
    expect(result, f"{name}: kernels", kernels_, (phase or {}).get("kernels", 0))
    expect(result, f"{name}: device time within 2 %", taken, busy, taken > 0 and abs(busy - taken) <= NEAR * taken)


def backward(result: Result, place: Path, nsys: str, program: str, ranks: int, tool: str) -> None:
    config: dict[str, Any] = {"tool": tool, "steps": [3], "groups": {"ActorGroup": {"ranks": [0]}}}
    run_dir, said, status = run(place, nsys, program, config, ranks)
    expect(result, f"{program}, {tool}: status", 0, status if status == 0 else (status, said))
    manifest, report = manifest_of(run_dir), told_by(run_dir)
    [path] = reports_of(run_dir, manifest, ".nsys-rep" if tool == "nsys" else ".pt.trace.json.gz")
    pids = [target["pid"] for target in manifest["targets"] if target.get("rank") == 0]
    for phase in ("train/forward", "train/backward", "train/optimizer"):
        truth = truth_of(path, phase, pids) if tool == "nsys" else truth_of_torch(path, phase)
        [mine] = [rows for worker, rows in figures(report, path).items() if "rank0" in worker or len(pids) == 1]
        compare(result, f"{program}, {tool}, {phase}", mine.get(phase), truth)
    result.numbers[f"notices, {program}, {tool}"] = report["notices"]


def ddp(result: Result, place: Path, nsys: str) -> None:
    """Two ranks: DDP's hooks put ranges on autograd's thread, and backward keeps its kernels."""
    backward(result, place / "torch", nsys, "backward", 2, "torch")


def checkpoint(result: Result, place: Path, nsys: str) -> None:
    """Activation checkpointing with a range inside the block: it is entered again on autograd's thread."""
    backward(result, place / "nsys", nsys, "checkpoint", 0, "nsys")
    backward(result, place / "torch", nsys, "checkpoint", 0, "torch")


def shared(result: Result, place: Path, nsys: str) -> None:
    """One nsys around torchrun's two ranks: each rank's figures are of its own kernels, with one rank selected and with all."""
    for name, ranks in (("[1]", [1]), ("all", "all")):
        config = {"steps": [2, 4], "groups": {"ActorGroup": {"ranks": ranks}}}
        run_dir, said, status = run(place / f"ranks-{name.strip('[]')}", nsys, "backward", config, 2)
        expect(result, f"one nsys, ranks {name}: status", 0, status if status == 0 else (status, said))
        manifest, report = manifest_of(run_dir), told_by(run_dir)
        wanted = [1] if name == "[1]" else [0, 1]
        paths = reports_of(run_dir, manifest)
        expect(result, f"one nsys, ranks {name}: reports", 2, len(paths))
        for path in paths:
            rows = figures(report, path)
            for rank in wanted:
                pids = [target["pid"] for target in manifest["targets"] if target.get("rank") == rank]
                mine = next((found for worker, found in rows.items() if f"rank{rank}" in worker), {})
                where = f"one nsys, ranks {name}, {path.name[-12:]}, rank {rank}, train/backward"
                compare(result, where, mine.get("train/backward"), truth_of(path, "train/backward", pids))


def second(result: Result, place: Path, nsys: str) -> None:
    """Products, waiting and sleeps that were built in stand in the parts of the whole second, within 2 % of the window."""
    for tool in ("nsys", "torch"):
        run_dir, said, status = run(place / tool, nsys, "second", {"tool": tool, "steps": [2, 4]})
        expect(result, f"second, {tool}: status", 0, status if status == 0 else (status, said))
        built = json.loads((place / tool / "second.json").read_text())
        told = told_by(run_dir)
        own = {window: sum(row["overhead"].values()) for row in told["devices"] for window in row["windows"]}
        expect(result, f"second, {tool}: windows", 2, len(told["seconds"]))
        for row, step in zip(sorted(told["seconds"], key=lambda row: str(row["window"])), (2, 4), strict=True):
            products, env, recv, rest = built["parts_ns"][step]
            parts, window = row["parts"], row["window_ns"]
            ends = window - (products + env + recv + rest)  # of the window, before and behind what the step does
            expect(result, f"second, {tool}: ends of the window", "at most 2 %", ends, 0 <= ends <= NEAR * window)
            expect(result, f"second, {tool}: the parts are the window", window, sum(parts.values()))
            wanted = {
                "compute": built["products_ns"], "idle_launching": env + own[row["window"]], "idle_waiting": recv, "outside": rest + ends,
                "unknown": 0,
            }  # fmt: skip
            for part, took in wanted.items():
                name = f"second, {tool}, window {row['window']}, {part}: within 2 % of the window"
                expect(result, name, round(took), parts[part], abs(parts[part] - took) <= NEAR * window)


# --- graphs and costs ---------------------------------------------------------------------------------------------------------


def alone(place: Path, program: str) -> dict[str, Any]:
    """A program without nsys; what it printed."""
    place.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, str(HERE / "truth_worker.py"), program],
        capture_output=True, text=True, timeout=TIMEOUT_S, cwd=place, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {"problems": [done.stderr[-1500:]]}
    return found


def capture(result: Result, place: Path, nsys: str) -> None:
    """Fifty captures beside a thread that reads timings, each with a phase that wants device time inside it."""
    found = alone(place, "capture")
    expect(result, "graph captures beside timing_stats", 50, found.get("captured"))
    expect(result, "graph captures: problems", [], found.get("problems"))
    expect(result, "calls: in and outside of captures", 50 * 20 + 50 + 1, found.get("calls"))
    expect(result, "calls with device time: those outside", 50 * 20 + 1, found.get("on the device"))


def costs(result: Result, place: Path, nsys: str) -> None:
    """Ratios in one run: a timed phase against the two events that it records, an open range against torch's own."""
    found = alone(place, "costs")
    result.numbers["costs, ns a call"] = found
    for ours, theirs, limit in (
        ("device=True, closed", "two raw events", 1.3),
        ("profiling_range, open", "torch.cuda.nvtx.range", 1.2),
    ):
        ratio = found.get(ours, float("inf")) / found.get(theirs, 1)
        expect(result, f"{ours} by {theirs}", f"<= {limit}", round(ratio, 3), ratio <= limit)


SCENARIOS: dict[str, Callable[[Result, Path, str], None]] = {
    "kernels": kernels,
    "ddp": ddp,
    "checkpoint": checkpoint,
    "shared": shared,
    "second": second,
    "capture": capture,
    "costs": costs,
}


def scenario(name: str, result: Result, nsys: str) -> Callable[[Path], None]:
    """One of them, to be run in a directory."""
    return lambda place: SCENARIOS[name](result, place, nsys)


def main() -> int:
    nsys = installation.find()
    if nsys is None:
        raise SystemExit("no nsys on PATH or in a CUDA or Nsight installation")
    chosen = sys.argv[1].split(",") if len(sys.argv) > 1 else list(SCENARIOS)
    result = Result()
    with tempfile.TemporaryDirectory(prefix="accelprof-truth-", ignore_cleanup_errors=True) as scratch:
        for name in chosen:
            place = Path(scratch) / name
            attempt(result, f"truth, {name}", scenario(name, result, nsys), place)
    return result.told()


if __name__ == "__main__":
    raise SystemExit(main())
