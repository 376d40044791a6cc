"""Collective kernels of all ranks: matched, split into waiting and transfer, charged to the last, with what clocks are worth."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelprof.analysis import collectives as module
from accelprof.analysis.collectives import FileCollectives, collectives_of, device_stragglers, kinship_of
from accelprof.analysis.first import sentences
from accelprof.analysis.run import WorkerId
from accelprof.analysis.summary import summarise
from accelprof.contracts.spans import Kind, Span
from accelprof.reading.columns import NONE, Columns

RUN = Path(__file__).parent / "two_gpus"
relaxed = settings(deadline=None, max_examples=80)
US = 1000


def called(name: str, ranks: int, group: str = "0", seq: int | None = None) -> dict[str, Any]:
    args = {
        "Collective name": name, "Process Group Name": group, "Group size": ranks,
        "Process Group Ranks": str(list(range(ranks))),
    }  # fmt: skip
    return args if seq is None else {**args, "Seq": seq}


class Rank:
    """One rank's file in the making: phases on the host, kernels with their launches; times in µs on its own clock."""

    def __init__(self, rank: int, host: str | None = "a", shift: int = 0, error: int | None = 0) -> None:
        self.worker = WorkerId(f"k{rank}", f"G/rank{rank}", "G", rank, None, host)
        self.shift, self.error = shift, error
        self.spans: list[Span] = []

    def phase(self, name: str, start: int, end: int) -> Rank:
        self.spans.append(Span(name, Kind.RANGE, start * US + self.shift, end * US + self.shift, 1, 1))
        return self

    def kernel(self, name: str, start: int, end: int, launch: int | None = None, stream: int = 7, **args: Any) -> Rank:
        number = len(self.spans)
        at = (start - 1 if launch is None else launch) * US + self.shift
        self.spans.append(Span("cudaLaunchKernel", Kind.RUNTIME, at, at + 1, 1, 1, args={"correlation": number}))
        kind = Kind.COMMUNICATION if args else Kind.KERNEL
        whole = {**args.get("args", {}), "correlation": number}
        times = (start * US + self.shift, end * US + self.shift)
        self.spans.append(Span(name, kind, *times, 1, device=0, stream=stream, args=whole))
        return self

    def file(self, step: int = 1) -> FileCollectives:
        columns = Columns.from_spans(self.spans)
        windows = [((step,), int(columns.start.min()), int(columns.end.max()))]
        found = collectives_of(columns, self.worker, windows, (self.shift, self.error), self.worker.rank)
        assert found is not None
        return found


def test_a_real_run_of_two_gpus_names_who_was_late() -> None:
    """DDP over NCCL on two GPUs: rank 1 slept 60 ms in rollout in step 2; rank 0's device was busy for a spin of 34 ms and more
    in update in step 4. Both stand at the top, with the phase, within 1 % of what was built in and measured."""
    found = summarise(RUN).report()
    rows = sorted(found.stragglers, key=lambda row: -row.waited_ns)
    first, second = rows[:2]
    assert (first.step, first.worker, first.waited_by, first.late_in) == (
        2, "ActorGroup/rank1", ["ActorGroup/rank0"], "rollout",
    )  # fmt: skip
    assert (second.step, second.worker, second.waited_by, second.late_in) == (
        4, "ActorGroup/rank0", ["ActorGroup/rank1"], "update",
    )  # fmt: skip
    assert abs(first.waited_ns / 60e6 - 1) < 0.01
    assert 34e6 < second.waited_ns < 43e6
    assert all(row.low_ns <= row.waited_ns <= row.high_ns for row in rows)
    # what it waited and what it transferred are the kernel that ran on the rank that waited, as far as the clocks are known
    assert abs(first.waited_ns + first.transfer_ns - 60_536_081) < 2 * (first.high_ns - first.low_ns)
    assert {row.process_group for row in rows} == {"1", "default_pg"}
    assert {row.worker for row in rows if row.step == 2} == {"ActorGroup/rank1"}
    [late] = [
        row for row in found.stragglers if row.step == 2 and row.late_in == "rollout" and row.phase == "allreduce"
    ]
    assert round(late.waited_ns / 1e6, 1) == 60.3
    assert "waited 60.3 ms for ActorGroup/rank1 in allreduce (late in rollout)" in sentences(found)[0]


def test_counted_on_paper() -> None:
    """Rank 0 runs 40–80, rank 1 70–80: 30 µs of waiting for rank 1, whose host was in ``data`` until 69, 10 of transfer. With a third
    rank in the group, of which there is no file, both may have waited for that in these 10."""
    args = called("allreduce", 2)
    one = Rank(0).phase("data", 0, 39).kernel("nccl", 40, 80, args=args)
    other = Rank(1).phase("data", 0, 69).kernel("nccl", 70, 80, args=args)
    [row] = device_stragglers([one.file(), other.file()])
    assert row.to_json() == {
        "step": 1, "phase": "allreduce", "number": 0, "group": "G", "worker": "G/rank1", "waited_ns": 30 * US,
        "low_ns": 30 * US, "high_ns": 30 * US, "waited_by": ["G/rank0"], "late_in": "data", "missing": [],
        "without_ns": 0, "transfer_ns": 10 * US, "on": "device", "process_group": "0",
        "after": "G/rank0", "alone_ns": 30 * US,
    }  # fmt: skip
    for span in (one.spans[-1], other.spans[-1]):
        span.args.update(called("allreduce", 3))
    [part] = device_stragglers([one.file(), other.file()])
    assert part == replace(row, missing=["rank 2"], without_ns=20 * US, transfer_ns=None)


def test_late_on_the_device() -> None:
    """Both hosts launch at the same time; rank 1's device is still at work for ``update``, which is what it is late in."""
    args = called("allreduce", 2)
    one = Rank(0).phase("score", 0, 10).phase("update", 10, 30).kernel("gemm", 12, 20, 11)
    other = Rank(1).phase("score", 0, 10).phase("update", 10, 30).kernel("gemm", 12, 90, 11)
    one.kernel("nccl", 25, 95, 24, args=args)
    other.kernel("nccl", 90, 95, 24, args=args)
    [row] = device_stragglers([one.file(), other.file()])
    assert (row.worker, row.waited_ns, row.late_in) == ("G/rank1", 65 * US, "update")


@relaxed
@given(st.integers(0, 2**30), st.integers(2, 5), st.booleans(), st.booleans())
def test_whatever_was_simulated_comes_out(seed: int, ranks: int, numbered: bool, behind: bool) -> None:
    """Ranks arrive when they like at collectives of two groups, on clocks that are hours apart and known: who was last and what
    the others waited for it is what was simulated; of numbered collectives also where some ranks lack some."""
    rng = random.Random(seed)
    files = [Rank(rank, shift=rng.randrange(-(10**13), 10**13)) for rank in range(ranks)]
    at = [0] * ranks
    expected = {}
    number = {"0": 0, "1": 0}
    for _ in range(rng.randrange(1, 8)):
        group = rng.choice("01")
        arrives = [moment + rng.randrange(1, 100) for moment in at]
        end = max(arrives) + rng.randrange(1, 30)
        there = [rank for rank in range(ranks) if not numbered or rng.random() < 0.8]
        last = max(there, key=lambda rank: arrives[rank], default=0)
        waits = {rank: arrives[last] - arrives[rank] for rank in there}
        if len(there) > 1 and sum(waits.values()):
            lost = ranks - len(there)
            transfer = None if lost else (end - arrives[last]) * US
            expected[group, number[group]] = (arrives[last], sum(waits.values()) * US, transfer, lost)
        for rank in there:
            args = called("allreduce", ranks, group, number[group] if numbered else None)
            # behind: launched while the one before still ran
            files[rank].kernel("nccl", arrives[rank], end, at[rank] if behind else None, args=args)
        number[group] += 1
        at = [end] * ranks
    made = [rank.file() for rank in files if rank.spans]
    rows = device_stragglers(made)
    found = {}
    for row in rows:
        last = int(row.worker[-1])
        starts = [
            (span.start_ns - files[last].shift) // US
            for span in files[last].spans
            if span.kind is Kind.COMMUNICATION and span.args["Process Group Name"] == row.process_group
        ]
        assert row.low_ns == row.waited_ns == row.high_ns
        place = row.number if not numbered else [
            span.args["Seq"] for span in files[last].spans
            if span.kind is Kind.COMMUNICATION and span.args["Process Group Name"] == row.process_group
        ].index(row.number)  # fmt: skip
        found[row.process_group, row.number] = (
            starts[place], row.waited_ns, row.transfer_ns, len(row.missing),
        )  # fmt: skip
    assert found == expected


def test_a_head_that_one_rank_lacks() -> None:
    """Rank 1's window opened one collective later: its first is rank 0's second, because those two ran at the same time."""
    args = called("allreduce", 2)
    one, other = Rank(0), Rank(1)
    for number in range(4):
        one.kernel("nccl", 100 * number, 100 * number + 40, args=args)
        if number:
            other.kernel("nccl", 100 * number + 30, 100 * number + 40, args=args)
    rows = device_stragglers([one.file(), other.file()])
    assert [(row.number, row.worker, row.waited_ns) for row in rows] == [
        (number, "G/rank1", 30 * US) for number in (1, 2, 3)
    ]


def test_clocks_make_an_interval() -> None:
    """With an error of 8 µs each of two hosts 30 µs are between 14 and 46; kernels that seem to end 20 µs apart say that the
    clocks are worse than that; on hosts whose clocks nobody compared the lengths are left, and nothing is sure."""
    args = called("allreduce", 2)

    def row(hosts: str, error: int | None, end: int = 100) -> Any:
        one = Rank(0, hosts[0], 5_000_000, error).kernel("nccl", 40, end, args=args)
        other = Rank(1, hosts[-1], -7_000_000, error).kernel("nccl", 70, 100, args=args)
        [found] = device_stragglers([one.file(), other.file()])
        return [found.low_ns // US, found.waited_ns // US, found.high_ns // US]

    assert row("ab", 8 * US) == [14, 30, 46]
    assert row("a", None) == [30, 30, 30]
    assert row("ab", 2 * US, 120) == [10, 30, 50]
    assert row("ab", None) == [0, 30, 60]


def test_a_sender_that_was_through_did_not_wait() -> None:
    """Of a broadcast the one whose kernel ended before the last began is not counted."""
    args = called("broadcast", 3)
    files = [
        Rank(rank).kernel("nccl", *times, args=args).file() for rank, times in enumerate([(0, 5), (3, 60), (50, 60)])
    ]
    [row] = device_stragglers(files)
    assert (row.worker, row.waited_by, row.waited_ns) == ("G/rank2", ["G/rank1"], 47 * US)


def test_what_a_kernel_says_of_itself() -> None:
    """torch's arguments, HCCL's names; sends, receives and kernels that say nothing are none."""
    kin = kinship_of("ncclDevKernel", {**called("_allgather_base", 2, "7", 5), "Process Group Description": "tp"})
    assert kin is not None
    assert (kin[0].name, kin[0].group, kin[0].shown, kin[0].members, kin[1]) == ("allgather_base", "7", "tp", [0, 1], 5)
    hccl = kinship_of("hcom_allReduce__629_3_1@123", {})
    assert hccl is not None
    assert (hccl[0].group, hccl[0].name, hccl[1]) == ("629", "allReduce", 3)
    assert kinship_of("hcom_send__629_2_1@123", {}) is None
    assert kinship_of("ncclDevKernel_AllReduce", {}) is None
    assert kinship_of("ncclDevKernel_SendRecv", called("send", 2)) is None
    assert kinship_of("x", {"Collective name": "allreduce", "Process Group Name": True}) is None
    many = kinship_of("x", {**called("allreduce", 100), "Process Group Ranks": "[0, 1, ..., 99]", "Seq": -1})
    assert many is not None
    assert (many[0].members, many[0].size, many[1]) == (None, 100, NONE)


def test_many_waits_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest are kept, the others stand in one row a step and rank, with all they waited."""
    monkeypatch.setattr(module, "MAX_ROWS", 2)
    args = called("allreduce", 2)
    one, other = Rank(0), Rank(1)
    for number in range(6):
        one.kernel("nccl", 100 * number, 100 * number + 50, args=args)
        other.kernel("nccl", 100 * number + 10 + number, 100 * number + 50, args=args)
    rows = device_stragglers([one.file(), other.file()])
    assert [(row.phase, row.waited_ns // US) for row in rows] == [
        ("allreduce", 14), ("allreduce", 15), ("(shorter waits)", 10 + 11 + 12 + 13),
    ]  # fmt: skip


def test_files_without_names_are_not_read_again(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that say nothing of their group cost nothing: the file is not read a second time for their arguments."""
    from accelprof.reading import chrome
    from accelprof.reading.columns import columns_of

    columns = columns_of(chrome.read_chrome(str(shared / "samples/hta/trace_filter/sampled_rank-0.json.gz"), "torch"))
    assert columns.rows(Kind.COMMUNICATION).size == 10
    monkeypatch.setattr(chrome, "load", lambda path: pytest.fail(f"{path} is read again"))
    assert collectives_of(columns, WorkerId("k", "G/rank0", "G", 0), [], (0, 0)) is None
    part = columns.take(columns.rows(Kind.COMMUNICATION))
    assert collectives_of(part, WorkerId("k", "G/rank0", "G", 0), [], (0, 0)) is None
