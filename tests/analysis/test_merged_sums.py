"""Figures of a merged timeline are those of its files together, whatever their processes, threads and numbers have in common."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from accelprof.analysis.attribution import attribute
from accelprof.analysis.files import summarise_files
from accelprof.analysis.reading import load_any
from accelprof.analysis.timeline import Source, TimelineWriter, merge_files
from accelprof.reading.chrome import read_chrome

EPOCH = 1_795_852_566_000_000_000
Event = dict[str, Any]


def a_trace(rng: Random) -> dict[str, Any]:
    """Ranges, whole ones and begins whose ends may be missing, launches and work, with numbers that other files have too."""
    pid, events, number = rng.choice((41, 42, 7)), list[Event](), 0
    for tid in rng.sample((1, 2, 3, 41, -5), k=rng.randint(1, 3)):
        at = rng.randrange(50)
        for _ in range(rng.randint(0, 4)):
            dur, start = rng.randrange(5, 120), at + rng.choice((0, 0.125, 0.5))
            one = {"ph": "X", "name": rng.choice("abc"), "pid": pid, "tid": tid, "ts": start, "dur": dur}
            one |= rng.choice(({"cat": "user_annotation"}, {"cat": "cpu_op"}, {}, {"cat": "foo"}))
            if rng.random() < 0.25:
                events.append({**one, "ph": "B"})
                events += [{"ph": "E", "pid": pid, "tid": tid, "ts": start + dur}] if rng.random() < 0.8 else []
            else:
                events.append(one)
            at += rng.randrange(60)
        for _ in range(rng.randint(0, 6)):
            number += rng.choice((1, 1, 0))
            at = rng.randrange(200)
            launch = {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "pid": pid,
                "tid": tid,
                "ts": at,
                "dur": rng.choice((0, 1, 2.5)),
            }
            events += [{**launch, "args": {"correlation": number}}] if rng.random() < 0.85 else []
            for _ in range(rng.choice((0, 1, 1, 2))):
                device = rng.randrange(2)
                work = {
                    "ph": "X",
                    "cat": rng.choice(("kernel", "gpu_memcpy")),
                    "name": rng.choice(("gemm", "ncclAllReduce")),
                    "pid": device,
                }
                times = {"ts": at + rng.randrange(40) + 0.25, "dur": rng.choice((0, 3, 7.125))}
                events.append(
                    {
                        **work,
                        **times,
                        "tid": rng.choice((7, 8)),
                        "args": {"device": device, "stream": 7, "correlation": number},
                    }
                )
    return {"traceEvents": events, **({"baseTimeNanoseconds": EPOCH} if rng.random() < 0.5 else {})}


def figures(path: str, tool: str) -> Counter[object]:
    """What adds up over files."""
    found = attribute(load_any(path, tool).trace())
    sums: Counter[object] = Counter()
    for row in found.phases:
        sums.update(
            {(row.name, "kernels"): row.kernels, (row.name, "own"): row.own_kernels, (row.name, "wall"): row.wall_ns}
        )
    busy = sum(device.busy_ns for device in found.devices)
    sums.update(
        kernels=found.kernels,
        unattributed=found.unattributed,
        unlaunched=found.unlaunched,
        busy=busy,
        devices=len(found.devices),
    )
    return +sums


def test_what_is_merged_is_the_sum(tmp_path: Path) -> None:
    """Kernels by phase, time on the host, busy time and devices: of one, two and three files, on dates or on clocks of their own."""
    for seed in range(150):
        rng = Random(seed)
        paths, sums = [], Counter[object]()
        for number in range(rng.randint(1, 3)):
            path = tmp_path / f"{number}.pt.trace.json"
            path.write_text(json.dumps({"traceEvents": [{"ph": "M"}], **a_trace(rng)}))
            paths.append(str(path))
            sums += figures(paths[-1], "torch")
        if sums:
            assert figures(merge_files(paths, str(tmp_path / "all.json")).path, "trace") == sums, seed


def by_worker(path: str) -> list[tuple[object, ...]]:
    """What a report has of each worker and device, without their names."""
    found = summarise_files([path]).to_json()
    rows = [
        (one["window_ns"], str(one["device"])[-1:], *sorted(one["parts"].items()))
        for one in found["seconds"]
    ]  # fmt: skip
    return sorted(
        [*rows, *((len(found["workers"]), row["phase"], row["calls"], row["self_ns"]) for row in found["phases"])],
        key=str,
    )


def test_a_merged_timeline_is_merged_as_what_it_was_made_of(tmp_path: Path) -> None:
    """Two timelines in one are their files in one: workers and devices are kept apart, overlapping rows are one thread, each lack is
    said once."""
    for seed in range(40):
        rng = Random(seed)
        paths = [str(tmp_path / f"{number}.pt.trace.json") for number in range(3)]
        for path in paths:
            events = a_trace(rng)["traceEvents"]
            events += [{"ph": "X", "cat": "user_annotation", "name": "a", "pid": 7, "tid": 1, "ts": 3, "dur": 50}] * 2
            Path(path).write_text(json.dumps({"traceEvents": events, "baseTimeNanoseconds": EPOCH}))
        once = merge_files(paths, str(tmp_path / "once.json")).path
        pair = merge_files(paths[:2], str(tmp_path / "pair.json.gz")).path
        twice = merge_files([pair, paths[2]], str(tmp_path / "twice.json")).path
        again = merge_files([twice], str(tmp_path / "again.json")).path
        lost = sum(load_any(once, "trace").trace().completeness.left_out.values())
        for path in (twice, again):
            assert figures(path, "trace") == figures(once, "trace"), seed
            assert by_worker(path) == by_worker(once), seed
            assert sum(load_any(path, "trace").trace().completeness.left_out.values()) == lost, seed


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_the_order_of_files_places_none_of_them(tmp_path: Path, order: tuple[str, ...]) -> None:
    """A file with a clock of its own begins with the first that has dates, also where it comes first, and that is said."""
    for name, base, at in (("a", {}, 5), ("b", {"baseTimeNanoseconds": EPOCH}, 7), ("c", {}, 900)):
        event = {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": 9}
        (tmp_path / f"{name}.json").write_text(json.dumps({"traceEvents": [event], **base}))
    merged = merge_files([str(tmp_path / f"{name}.json") for name in order], str(tmp_path / "all.json"))
    starts = {span.name: span.start_ns - EPOCH for span in read_chrome(merged.path, "trace").spans}
    assert starts["b"] == 7000
    assert all(abs(start) < 1_000_000 for start in starts.values())
    said = [line for line in merged.problems if "has a clock of its own" in line]
    assert sorted(line[0] for line in said) == ["a", "c"]
    for source in merged.sources:
        assert source.begin_ns == EPOCH + starts[Path(source.path).stem]


def test_a_run_that_began_at_no_date_has_its_files_dates(tmp_path: Path) -> None:
    """A manifest whose times are none does not place files that have dates."""
    event = {"ph": "X", "cat": "user_annotation", "name": "b", "pid": 1, "tid": 1, "ts": 7, "dur": 9}
    path = tmp_path / "b.json"
    path.write_text(json.dumps({"traceEvents": [event], "baseTimeNanoseconds": EPOCH}))
    with TimelineWriter(str(tmp_path / "all.json"), 5) as writer:
        writer.read(Source(str(path), "b", "b"))
    assert [span.start_ns for span in read_chrome(writer.merged.path, "trace").spans] == [EPOCH + 7000]
