"""Launches whose work is not in the file, beside a slow model; a launch that puts nothing on a device is none of them."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from accelprof.analysis.attribution import attribute
from accelprof.analysis.compare import compare
from accelprof.analysis.reading import read_any
from accelprof.analysis.timeline import merge_files
from accelprof.catalogue import get_catalogue, reset_catalogue
from accelprof.contracts.spans import HostCalls, Kind, Span, Trace
from accelprof.contracts.tool import Tool
from accelprof.errors import NotComparableError

LAUNCHES = (
    "cudaLaunchKernel", "cudaLaunchKernelExC_v11060", "cudaLaunch", "cuLaunchGridAsync", "cudaGraphLaunch_v10000",
    "cudaLaunchCooperativeKernelMultiDevice", "hipLaunchByPtr", "hipExtLaunchMultiKernelMultiDevice", "hipGraphLaunch",
    "hipExtModuleLaunchKernel", "urEnqueueKernelLaunch", "urEnqueueCooperativeKernelLaunchExp",
    "urEnqueueCommandBufferExp", "zeCommandListAppendLaunchKernel", "zeCommandListAppendLaunchCooperativeKernel",
    "aclrtLaunchKernelWithConfig",
)  # fmt: skip
OTHERS = ("cudaLaunchHostFunc", "cudaEventRecord", "cudaMemcpyAsync", "urCommandBufferAppendKernelLaunchExp")


#: tool -> what begins the names of its vendor's calls
VENDORS = {
    "nsys": "cu",
    "rocprofv3": "hip",
    "rocprof_sys": "hip",
    "npu": "acl",
    "msprof": "acl",
    "unitrace": ("ur", "ze"),
}


def launch(number: int, at: int, pid: int = 1, tid: int = 1, name: str = "cudaLaunchKernel", ns: int = 2) -> Span:
    return Span(name, Kind.RUNTIME, at, at + ns, pid, tid, args={"correlation": number})


def kernel(number: int, at: int, pid: int = 1) -> Span:
    return Span("gemm", Kind.KERNEL, at, at + 5, pid, device=0, stream=7, args={"correlation": number})


def lost(spans: list[Span]) -> tuple[int, int]:
    found = attribute(Trace("x", "torch", spans=spans))
    return found.launches, found.launches_without_work


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_launch_of_every_vendor_counts(name: str) -> None:
    """One of two has its kernel."""
    assert lost([launch(1, 0, name=name), launch(2, 10, name=name), kernel(2, 20)]) == (2, 1)


@pytest.mark.parametrize("tool", VENDORS)
def test_a_vendors_tool_says_what_its_files_call_launches(tool: str) -> None:
    """Each of its vendor's, and nothing that is none; those of others are not asked for in its files."""
    if tool not in get_catalogue().tool_names():
        pytest.skip(f"no tool {tool}: its distribution is not installed")
    said = get_catalogue().tool_class(tool).host_calls
    found = {name for name in (*LAUNCHES, *OTHERS) if re.search(said.launches, name)}
    mine = {name for name in LAUNCHES if name.startswith(VENDORS[tool])}
    assert mine <= found <= set(LAUNCHES)
    assert found == mine or VENDORS[tool] == "acl", "whose expression is not bound to a beginning"
    assert said.fault() == ""


def test_a_third_partys_tool_says_its_own(tmp_path: Path) -> None:
    """Its word decides in its own files; in a merged timeline every tool's counts; a word that is none is said and harms nobody."""

    class Acme(Tool):
        name = "acme"
        host_calls = HostCalls(launches=r"^acmeDispatch$")

        @classmethod
        def can_read(cls, path: str) -> bool:
            return path.endswith(".acme")

        def read(self, path: str) -> Trace:
            names = ("acmeDispatch", "acmeDispatch", "cudaLaunchKernel")
            return Trace(
                path, "acme", spans=[*(launch(n, 10 * n, name=name) for n, name in enumerate(names)), kernel(0, 5)]
            )

    path = tmp_path / "x.acme"
    path.write_text("x")
    try:
        get_catalogue().put(tools=[Acme])
        found = attribute(read_any(path))
        assert (found.launches, found.launches_without_work) == (2, 1)
        found = attribute(Trace("x", "merged", spans=read_any(path).spans))
        assert (found.launches, found.launches_without_work) == (3, 2)
        for odd in (r"(?i)ACMEDISPATCH", r"^acme(?P<what>Dispatch)$", r"^(a)cmeDispatch$", r"(?x) ^ acmeDispatch $"):
            Acme.host_calls = HostCalls(odd)  # flags and groups are its own: names of others mean what they meant
            found = attribute(Trace("x", "merged", spans=read_any(path).spans))
            assert (found.launches, found.launches_without_work) == (3, 2), odd
        for wrong in (HostCalls("("), "acmeDispatch"):
            Acme.host_calls = wrong
            trace = read_any(path)
            assert any("tool 'acme': host_calls" in line for line in trace.problems)
            assert attribute(trace).launches == 1
    finally:
        reset_catalogue()


@pytest.mark.parametrize("name", OTHERS)
def test_a_call_that_puts_no_kernel_on_a_device_is_no_launch(name: str) -> None:
    """Host functions, events, copies, and what is only appended to a command buffer."""
    assert lost([launch(1, 0, name=name), launch(2, 10), kernel(2, 20)]) == (1, 0)


def test_a_driver_call_inside_a_runtime_call_is_one_launch_with_it() -> None:
    """The kernel may have the number of either."""
    for number in (1, 2):
        spans = [
            launch(1, 0, ns=10, name="urEnqueueKernelLaunch"),
            launch(2, 3, name="zeCommandListAppendLaunchKernel"),
        ]
        assert lost([*spans, kernel(number, 20)]) == (1, 0)
        assert lost([*spans, kernel(3, 20)]) == (1, 1)


@pytest.mark.parametrize(
    ("begin", "end"),
    [("cudaStreamBeginCapture_v10000", "cudaStreamEndCapture_v10000"), ("hipStreamBeginCapture", "hipStreamEndCapture"),
     ("cuStreamBeginCapture_v2", "cuStreamEndCapture"), ("aclmdlRICaptureBegin", "aclmdlRICaptureEnd")],
)  # fmt: skip
def test_what_a_capture_records_is_no_launch(begin: str, end: str) -> None:
    """Neither on the thread that captures nor on autograd's; also where one edge of the capture is not in the file."""
    edges = [launch(100, 10, name=begin), launch(101, 50, name=end)]
    recorded = [launch(1, 20), launch(2, 30, tid=2)]
    after = [launch(3, 60), launch(4, 70, name="cudaGraphLaunch"), kernel(4, 80), kernel(4, 90)]
    assert lost([*edges, *recorded, *after]) == (2, 1)
    assert lost([edges[1], *recorded, *after]) == (2, 1)
    assert lost([edges[0], *recorded]) == (0, 0)
    assert lost([*edges, launch(5, 20, pid=2), launch(5, 70)]) == (2, 2), "another process captures nothing"
    assert lost([*edges, launch(5, 20), kernel(5, 30), launch(6, 70)]) == (2, 1), "a stream that nobody captures"


def test_lost_work_of_one_process_hides_behind_no_other(tmp_path: Path) -> None:
    """Numbers are a process's own. In a merged timeline, whose sources use the same numbers, comparing says so too."""
    spans = [launch(n, 10 * n, pid) for pid in (100, 200) for n in range(50)]
    assert lost([*spans, *(kernel(n, 10 * n + 4, 100) for n in range(50))]) == (100, 50)
    assert lost([*spans, *(kernel(n, 10 * n + 4, 0) for n in range(50))]) == (100, 50), "of which process is not said"

    def file(name: str, pid: int, missing: int) -> str:
        events: list[dict[str, Any]] = [
            {"ph": "X", "cat": "user_annotation", "name": "step", "pid": pid, "tid": 1, "ts": 0, "dur": 1000}
        ]
        for number in range(1, 51):
            args = {"correlation": number, "device": 0, "stream": 7}
            at = {"pid": pid, "tid": 1, "ts": number * 10, "dur": 1, "ph": "X"}
            events.append({**at, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": number}})
            if number > missing:
                events.append(
                    {**at, "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": number * 10 + 2, "args": args}
                )
        (tmp_path / name).write_text(json.dumps({"traceEvents": events}))
        return str(tmp_path / name)

    for name, missing in (("before", 0), ("after", 25)):
        files = [file("0.pt.trace.json", 100, 0), file("1.pt.trace.json", 200, missing)]
        merge_files(files, str(tmp_path / f"{name}.json"))
    with pytest.raises(NotComparableError, match="25 of 100 launches have no kernel in this file"):
        compare(str(tmp_path / "before.json"), str(tmp_path / "after.json"))


def test_a_kernel_without_a_number_may_be_any_launchs() -> None:
    """It is in the file: what is counted as missing is missing whichever launch it belongs to."""
    unnumbered = Span("gemm", Kind.KERNEL, 20, 25, 1, device=0, stream=7)
    assert lost([launch(1, 0), launch(2, 10), unnumbered]) == (2, 1)
    assert lost([launch(1, 0), launch(2, 10), unnumbered, unnumbered, unnumbered]) == (2, 0)


def slow(spans: list[Span]) -> tuple[int, int]:
    """The rule over objects: calls of one level, each with the numbers that lie in it."""
    calls = [span for span in spans if span.kind is Kind.RUNTIME and "Capture" not in span.name]
    work = [span for span in spans if span.kind is Kind.KERNEL]

    def inside(one: Span, other: Span) -> bool:
        same = one is not other and (one.pid, one.tid) == (other.pid, other.tid)
        return same and other.start_ns <= one.start_ns and one.end_ns <= other.end_ns

    def recorded(call: Span) -> bool:
        for tid in {span.tid for span in spans if span.pid == call.pid}:
            edges = [span for span in spans if "Capture" in span.name and (span.pid, span.tid) == (call.pid, tid)]
            before = [span for span in edges if span.start_ns <= call.start_ns]
            after = [span for span in edges if span.start_ns > call.start_ns]
            if (before and "Begin" in max(before, key=lambda span: span.start_ns).name) or (
                not before and after and "End" in min(after, key=lambda span: span.start_ns).name
            ):
                return True
        return False

    own = {(span.pid, span.args["correlation"]) for span in work}
    launched = {(call.pid, call.args["correlation"]) for call in calls}
    nobodys = Counter(span.args["correlation"] for span in work if (span.pid, span.args["correlation"]) not in launched)
    pids: dict[int, set[int | str]] = {}
    for call in calls:
        pids.setdefault(call.args["correlation"], set()).add(call.pid)
    total, missing = 0, Counter[int]()
    for call in calls:
        if any(inside(call, other) for other in calls):
            continue
        numbers = {other.args["correlation"] for other in [call, *(o for o in calls if inside(o, call))]}
        if any((call.pid, n) in own or (len(pids[n]) == 1 and nobodys[n]) for n in numbers):
            total += 1
        elif not recorded(call):
            total += 1
            missing[call.args["correlation"]] += 1
    return total, (missing - Counter({n: nobodys[n] for n in nobodys if len(pids.get(n, ())) > 1})).total()


@pytest.mark.parametrize("seed", range(300))
def test_any_file_as_the_slow_model_says(seed: int) -> None:
    """Processes with the same numbers, threads, driver calls in runtime calls, captures, lost kernels, several of one call."""
    chance = random.Random(seed)
    spans: list[Span] = []
    for pid in range(1, chance.choice((2, 3, 4))):
        number = 0
        for tid in (1, 2):
            captures = False
            for slot in range(chance.randrange(12)):
                at = slot * 100 + tid
                kind = chance.random()
                if kind < 0.2 and tid == 1:
                    captures = not captures
                    name = "cudaStreamBeginCapture" if captures else "cudaStreamEndCapture"
                    spans.append(Span(name, Kind.RUNTIME, at, at + 3, pid, tid, args={}))
                    continue
                number += 1
                mine = [number]
                spans.append(launch(number, at, pid, tid, ns=20))
                if kind > 0.8:
                    number += 1
                    mine.append(number)
                    spans.append(launch(number, at + 5, pid, tid, "cuLaunchKernel", 10))
                for one in range(chance.choice((0, 1, 1, 1, 3))):
                    spans.append(kernel(chance.choice(mine), at + 30 + 6 * one, chance.choice((pid, pid, 0))))
    chance.shuffle(spans)
    assert lost(spans) == slow(spans)
