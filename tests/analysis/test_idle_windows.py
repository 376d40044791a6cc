"""A window in which a device did nothing is a window all the same, in whichever file it stands."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accelprof.analysis.compare import compare
from accelprof.analysis.files import summarise_files
from accelprof.analysis.frames import devices
from accelprof.analysis.summary import Summary, summarise
from accelprof.analysis.timeline import write_timeline
from tests.analysis.conftest import EPOCH_US

WINDOW_US = 1000


@pytest.fixture
def run_of(tmp_path: Path, run_maker: Any, event: Any) -> Callable[..., str]:
    """``run_of(work, lost=(), odd=(), name="run")``: see :func:`write_run`."""
    return lambda work, lost=(), odd=(), name="run": write_run(type(run_maker)(tmp_path / name), event, work, lost, odd)


def write_run(
    maker: Any, event: Any, work: list[dict[int, int]], lost: tuple[int, ...] = (), odd: tuple[int, ...] = ()
) -> str:
    """A run with a torch trace for each window of 1 ms: kernels of 10 µs by device; windows in ``lost`` launch one more, of those
    in ``odd`` the reader leaves an event out."""
    target = maker.target(0)
    for window, kernels in enumerate(work):
        at = EPOCH_US + window * 2000
        identity = maker.timeline(
            target, [event("a", window * 2000, 500)], steps=(window + 2,), end_us=WINDOW_US, at_us=window * 2000
        )
        maker.manifest["windows"][-1]["kind"] = "step"
        events: list[dict[str, Any]] = [
            {"cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "P", "ts": at, "dur": WINDOW_US},
            {"cat": "user_annotation", "name": "a", "pid": 100, "tid": 1, "ts": at, "dur": 500},
        ]
        places = [device for device, count in kernels.items() for _ in range(count)]
        for number, device in enumerate([*places, *[-1] * (window in lost)], 1):
            start, call = at + number * 20, {"correlation": number}
            events.append(
                {
                    "cat": "cuda_runtime",
                    "name": "cudaLaunchKernel",
                    "pid": 100,
                    "tid": 1,
                    "ts": start,
                    "dur": 1,
                    "args": call,
                }
            )
            if device >= 0:
                args = {**call, "device": device, "stream": 7}
                events.append(
                    {"cat": "kernel", "name": "gemm", "pid": device, "tid": 7, "ts": start + 2, "dur": 10, "args": args}
                )
        if window in odd:
            events.append({"cat": "cpu_op", "name": "odd", "pid": 100, "tid": 1, "ts": at + 5, "dur": -1})
        name = f"x{window}.pt.trace.json"
        (maker.directory / name).write_text(json.dumps({"traceEvents": [{"ph": "X", **event} for event in events]}))
        maker.artifact(name, "torch", maker.manifest["targets"][0], [identity])
    return str(maker.write())


def test_the_device_of_another_window_is_idle_in_one_without_work(run_of: Any) -> None:
    """Ten kernels of 10 µs in the first of two windows of 1 ms: busy 5 %, idle 1,900 µs, and a line says which has none."""
    found = summarise(run_of([{0: 10}, {}]))
    assert [(row.device, row.window_ns, sum(row.parts.values()), row.parts["compute"]) for row in found.seconds] == [
        (0, 1_000_000, 1_000_000, 100_000), (0, 1_000_000, 1_000_000, 0),
    ]  # fmt: skip
    assert found.seconds[1].parts["idle_launching"] == 500_000
    [device] = devices(found)
    assert (device.busy_share, device.idle_ns, device.files) == (0.05, 1_900_000, 2)
    assert any("torch: 1 of 2 windows hold no device work" in line and "(step 3)" in line for line in found.notices)


def test_comparing_counts_windows_without_work(run_of: Any) -> None:
    """Half of the work is half of it, not the same in fewer windows."""
    full, half = run_of([{0: 10}, {0: 10}], name="full"), run_of([{0: 10}, {}], name="half")
    [change] = [row for row in compare(full, half).changes if row.measure == "device"]
    assert (change.before_ns, change.after_ns) == (100_000, 50_000)
    [change] = [row for row in compare(half, full).changes if row.measure == "device"]
    assert (change.before_ns, change.after_ns) == (50_000, 100_000)


def test_a_window_that_lost_work_is_unknown(run_of: Any) -> None:
    """Of which device the work was no file says."""
    found = summarise(run_of([{0: 10}, {}], lost=(1,)))
    assert found.seconds[1].parts["unknown"] == 1_000_000
    [device] = devices(found)
    assert (device.busy_share, device.files) == (0.1, 1), "of the window that says it"
    assert not any("hold no device work" in line for line in found.notices)


@pytest.mark.parametrize("seed", range(20))
def test_a_merged_timeline_says_the_same(tmp_path: Path, run_of: Any, seed: int) -> None:
    """Of windows without work, with lost launches, or with events left out: as the report of its parts, busy shares and the whole second."""
    chance = random.Random(seed)
    work = [{device: chance.choice((0, 0, 3, 7)) for device in range(2)} for _ in range(chance.randint(1, 4))]
    lost, odd = (tuple(window for window in range(len(work)) if chance.random() < 0.3) for _ in range(2))
    directory = run_of(work, lost, odd)
    one = summarise(directory)
    other = summarise_files([write_timeline(directory, str(tmp_path / "merged.json")).path])

    def seconds(found: Summary) -> list[tuple[object, ...]]:
        return sorted((str(row.device), row.window_ns, sorted(row.parts.items())) for row in found.seconds)

    assert seconds(other) == seconds(one)
    share = "busy_share", "window_ns", "idle_ns", "busy_ns"
    of_run, of_merged = (
        {row.device: [getattr(row, key) for key in share] for row in devices(found)} for found in (one, other)
    )
    assert of_merged == of_run


def test_a_file_of_several_windows_that_lost_the_work_of_one(tmp_path: Path, event: Any) -> None:
    """The window is unknown, and in no busy share; a window that launched nothing is idle."""
    events = []
    for window, (launches, kernels) in enumerate([(2, 2), (1, 0), (0, 0)]):
        at = window * 1000
        events.append(event(f"window {window}", at, 500, "window", tid=99))
        for number in range(launches):
            call = {"correlation": at + number}
            events.append(event("cudaLaunchKernel", at + 20 * number, 1, "cuda_runtime", **call))
            if number < kernels:
                events.append(event("gemm", at + 20 * number + 2, 10, "kernel", tid=7, device=0, stream=7, **call))
    path = tmp_path / "t.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    found = summarise_files([str(path)])
    assert [row.parts["unknown"] for row in found.seconds] == [0, 500_000, 0]
    [device] = devices(found)
    assert (device.busy_ns, device.window_ns, device.busy_share) == (20_000, 1_000_000, 0.02)


def test_a_worker_without_any_device_work_has_none(run_of: Any) -> None:
    """Its windows are divided over its phases."""
    found = summarise(run_of([{}, {}]))
    assert [row.device for row in found.seconds] == [None, None]
    assert list(devices(found)) == []


@pytest.mark.parametrize("seed", range(30))
def test_windows_of_every_device_are_all_windows(run_of: Any, seed: int) -> None:
    """Whatever works in which: busy and idle of each device come to the windows, and busy is what was built in."""
    chance = random.Random(seed)
    work = [{device: chance.choice((0, 0, 3, 7)) for device in range(3)} for _ in range(chance.randint(1, 4))]
    found = summarise(run_of(work))
    busy = Counter[int]()
    for kernels in work:
        busy.update({device: count * 10_000 for device, count in kernels.items() if count})
    windows = {int(row.device): (row.busy_ns, row.idle_ns, row.window_ns) for row in devices(found)}
    whole = len(work) * 1_000_000
    assert windows == {device: (ns, whole - ns, whole) for device, ns in busy.items()}
    if busy:
        assert Counter(row.device for row in found.seconds) == Counter(dict.fromkeys(busy, len(work)))
        assert all(sum(row.parts.values()) == row.window_ns == 1_000_000 for row in found.seconds)
