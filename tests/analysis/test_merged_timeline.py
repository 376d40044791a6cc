"""One trace of all workers: strict, every nanosecond kept, clocks brought together, numbers apart."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from accelprof.analysis.files import summarise_files
from accelprof.analysis.perfetto import PerfettoWriter
from accelprof.analysis.reading import Loaded, read_any
from accelprof.analysis.summary import summarise
from accelprof.analysis.timeline import Source, TimelineWriter, merge_files, write_timeline
from accelprof.cli.timeline import timeline
from accelprof.contracts.spans import Flow, Kind, Mark, Span, Trace
from accelprof.errors import ReadError
from accelprof.reading.chrome import read_chrome

Event = Callable[..., dict[str, Any]]


def refuse(word: str) -> Any:
    raise AssertionError(f"{word} is no JSON")


def strict(path: str | Path) -> dict[str, Any]:
    """The file by a parser that takes no NaN; numbers with a fraction as text."""
    data = Path(path).read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    loaded: dict[str, Any] = json.loads(text, parse_constant=refuse, parse_float=str)
    return loaded


def places(events: list[dict[str, Any]]) -> set[tuple[Any, Any]]:
    return {(event["pid"], event["tid"]) for event in events if event["ph"] != "M"}


@pytest.mark.parametrize("second", ["sampled_rank-1.json.gz", "sampled_rank-0.json.gz"])
def test_two_ranks_or_one_file_twice(shared: Path, tmp_path: Path, second: str) -> None:
    """The event count is the sum, process and thread numbers are disjoint (text such as ``Spans`` too), times are kept."""
    folder = shared / "samples/hta/trace_filter"
    paths = [str(folder / "sampled_rank-0.json.gz"), str(folder / second)]
    merged = merge_files(paths, str(tmp_path / "all.json.gz"))
    events = list(strict(merged.path)["traceEvents"])
    originals = [strict(path)["traceEvents"] for path in paths]
    assert merged.read == sum(map(len, originals))
    assert len(events) == merged.read + merged.added == merged.written
    assert merged.problems == []
    cut = len(originals[0])
    first, other = places(events[:cut]), places(events[cut : merged.read])
    assert len(first) == len(places(originals[0]))
    assert not {pid for pid, _ in first} & {pid for pid, _ in other}
    assert not {tid for _, tid in first} & {tid for _, tid in other}
    assert all(isinstance(number, int) for place in first | other for number in place)
    back = read_chrome(merged.path, "merged")
    counts = Counter((span.name, span.start_ns, span.end_ns) for span in back.spans)
    for path in paths:
        counts.subtract((span.name, span.start_ns, span.end_ns) for span in read_chrome(path, "torch").spans)
    assert not any(counts.values())


def test_flow_numbers_are_disjoint_per_file(shared: Path, tmp_path: Path) -> None:
    """Arrows of two files never meet, and each keeps its two ends."""
    sample = str(shared / "samples/hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz")
    merged = merge_files([sample, sample], str(tmp_path / "all.json"))
    events = strict(merged.path)["traceEvents"]
    half = merged.read // 2
    ids = [Counter((e["cat"], e["id"]) for e in part if "id" in e) for part in (events[:half], events[half : 2 * half])]
    original = Counter((e["cat"], e["id"]) for e in strict(sample)["traceEvents"] if "id" in e)
    assert not set(ids[0]) & set(ids[1])
    assert sorted(ids[0].values()) == sorted(original.values()) == sorted(ids[1].values())


def test_clock_offsets_are_applied_and_written(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """A worker whose clock is 3 ms ahead is moved back by that; the shift stands in the metadata, and so does its error."""
    keys = [run_maker.target(rank) for rank in range(2)]
    for key in keys:
        run_maker.timeline(key, [event("update", 100.125, 600)])
    run_maker.manifest["clock_offsets"] = {keys[1]: {"offset_ns": 3_000_000, "error_ns": 40_000, "host": "node1"}}
    merged = write_timeline(run_maker.write(), str(tmp_path / "t.json.gz"))
    spans = list(read_chrome(merged.path, "merged").of_kind(Kind.PHASE))
    assert sorted(span.start_ns for span in spans) == [1_795_852_565_997_100_125, 1_795_852_566_000_100_125]
    sources = strict(merged.path)["otherData"]["accelprof"]["sources"]
    assert [(row["shift_ns"], row["error_ns"]) for row in sources] == [(0, None), (-3_000_000, 40_000)]


def test_every_nanosecond_is_kept_for_viewers(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """``ts`` has three decimals and is small enough that float64 viewers lose no ns; the base is in the file."""
    calls = [event("update", 10 * index, 1) for index in range(3)]
    for index, call in enumerate(calls):
        call["ts"] = f"{1_795_852_566_000_000 + 10 * index}.{index + 1:03d}"
    run_maker.timeline(run_maker.target(0), calls)
    data = strict(write_timeline(run_maker.write(), str(tmp_path / "t.json.gz")).path)
    stamps = [row["ts"] for row in data["traceEvents"] if row["name"] == "update"]
    base = data["baseTimeNanoseconds"]
    for index, stamp in enumerate(stamps):
        whole, _, fraction = stamp.partition(".")
        assert len(fraction) == 3
        assert round(float(stamp) * 1000) == int(whole) * 1000 + int(fraction)
        assert base + int(whole) * 1000 + int(fraction) == 1_795_852_566_000_000_000 + 10_000 * index + index + 1


def test_names_say_who_is_who(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """Process names carry group, rank, host and tool; each tool of a worker has rows of its own, and every row a name."""
    run_maker.timeline(run_maker.target(0), [event("update", 100, 600)])
    (run_maker.directory / "x.pt.trace.json").write_text(
        json.dumps({"traceEvents": [event("aten::mm", 0, 5, "cpu_op"), {"ph": "M", "name": "thread_name", "pid": 7, "tid": 1, "args": {"name": "python"}}]})
    )  # fmt: skip
    run_maker.artifact("x.pt.trace.json", "torch", run_maker.manifest["targets"][0])
    events = strict(write_timeline(run_maker.write(), str(tmp_path / "t.json.gz")).path)["traceEvents"]
    names = {row["args"]["name"] for row in events if row["name"] in ("process_name", "thread_name")}
    assert names == {
        "ActorGroup/rank0 on node0: trace, 7",
        "ActorGroup/rank0 on node0: torch, 7",
        "python [ActorGroup/rank0]",
        "thread 1 [ActorGroup/rank0]",
        "thread 99 [ActorGroup/rank0]",
    }
    assert len({row["pid"] for row in events}) == 2


def test_a_file_with_its_own_clock_is_placed_and_named(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """Times that are no epoch times are put at the opening of the file's window, and that is said."""
    window = run_maker.timeline(run_maker.target(0), [event("update", 100, 600)])
    (run_maker.directory / "r.json").write_text('[{"ph":"X","name":"k","cat":"kernel","ts":5,"dur":1,"pid":0,"tid":1}]')
    run_maker.artifact("r.json", "torch", run_maker.manifest["targets"][0], [window])
    merged = write_timeline(run_maker.write(), str(tmp_path / "t.json.gz"))
    [kernel] = read_chrome(merged.path, "merged").of_kind(Kind.KERNEL)
    assert kernel.start_ns == 1_795_852_566_000_000_000
    assert any("has a clock of its own" in problem for problem in merged.problems)


def test_a_file_from_another_time_is_placed_and_named(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """Epoch times years from the file's window (a wrong clock, a foreign file) do not stretch the timeline."""
    window = run_maker.timeline(run_maker.target(0), [event("update", 100, 600)])
    (run_maker.directory / "old.json").write_text(json.dumps([event("old", -(10**14), 5, "kernel")]))
    run_maker.artifact("old.json", "torch", run_maker.manifest["targets"][0], [window])
    merged = write_timeline(run_maker.write(), str(tmp_path / "t.json.gz"))
    [kernel] = read_chrome(merged.path, "merged").of_kind(Kind.KERNEL)
    assert kernel.start_ns == 1_795_852_566_000_000_000
    assert any("more than a day from its window" in problem for problem in merged.problems)


def test_bad_files_are_named_and_the_rest_is_merged(tmp_path: Path, shared: Path) -> None:
    """An empty file and events without a time are named; the output stays strict."""
    (tmp_path / "empty.json").write_bytes(b"")
    (tmp_path / "nan.json").write_text(
        '[{"ph":"X","name":"n","ts":1,"dur":NaN,"pid":1,"tid":1},{"ph":"X","name":"g","ts":1,"dur":2,"pid":1,"tid":1,"args":{"x":NaN}}]'
    )
    merged = merge_files([str(tmp_path / "empty.json"), str(tmp_path / "nan.json")], str(tmp_path / "out.json"))
    assert [row["name"] for row in strict(merged.path)["traceEvents"] if row["ph"] == "X"] == ["g"]
    assert any("the file is empty" in problem for problem in merged.problems)
    assert any("1 event left out: duration NaN" in problem for problem in merged.problems)


def test_events_long_before_the_first_file(tmp_path: Path, event: Event) -> None:
    """A later file that begins days earlier moves the base; no time in the output is negative or lost."""
    early = event("early", -3 * 86_400_000_000, 5)
    for name, row in (("a.json", event("late", 0.25, 5)), ("b.json", early)):
        (tmp_path / name).write_text(json.dumps([row | {"args": {"k": [1, 2]}}], indent=1))
    merged = merge_files([str(tmp_path / "a.json"), str(tmp_path / "b.json")], str(tmp_path / "out.json.gz"))
    assert all(float(row["ts"]) >= 0 for row in strict(merged.path)["traceEvents"] if "ts" in row)
    starts = {span.name: span.start_ns for span in read_chrome(merged.path, "merged").spans}
    assert starts == {"late": 1_795_852_566_000_000_250, "early": 1_795_593_366_000_000_000}


def test_nothing_readable_is_an_error(tmp_path: Path) -> None:
    """Without a single readable file nothing is written, and the reasons are given."""
    (tmp_path / "empty.json").write_bytes(b"")
    with pytest.raises(ReadError, match="the file is empty"):
        merge_files([str(tmp_path / "empty.json")], str(tmp_path / "out.json.gz"))
    assert [path.name for path in tmp_path.iterdir()] == ["empty.json"]


def test_the_command(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """``accelprof timeline DIR -o FILE`` writes the file and says how many events of how many files."""
    run_maker.timeline(run_maker.target(0), [event("update", 100, 600)])
    result = CliRunner().invoke(timeline, [run_maker.write(), "-o", str(tmp_path / "o.json.gz")])
    assert result.exit_code == 0, result.output
    assert "3 events of 1 files" in result.output
    assert strict(tmp_path / "o.json.gz")["traceEvents"]


def test_whatever_a_reader_yields_stands_in_the_file(tmp_path: Path) -> None:
    """Of a third party's spans and marks what JSON cannot hold is written as it can; what has no times is counted."""
    odd = "half \ud800"
    spans = [
        Span(
            odd,
            Kind.KERNEL,
            1_000,
            2_500,
            device=0,
            stream=odd,
            args={odd: [odd, 1 << 70, float("nan")], 5: {"a": odd}},
        ),
        Span("backwards", Kind.RANGE, 10, 5),
        Span("beyond", Kind.RANGE, 0, 1 << 70),
        Span("host", Kind.RANGE, 900, 1_500, 7, "main", "task", "domain", "of", "red", args={"correlation": 3}),
    ]
    marks = [Mark(odd, 1_200, args={"x": odd}), Mark("nowhere", 1 << 80), Mark("no time", 1.5)]  # type: ignore[arg-type]
    out = str(tmp_path / "t.json")
    with TimelineWriter(out, None) as made:
        made.add(Source("f", "w", "k"), Loaded("f", "other", Trace("f", "other", spans=spans, marks=marks)))
    events = {
        event["name"]: event for event in json.loads(Path(out).read_bytes())["traceEvents"] if event["ph"] in "Xi"
    }
    assert set(events) == {"half \\ud800", "host"}
    assert (made.merged.read, made.merged.left_out) == (7, 4)
    assert made.merged.read + made.merged.added - made.merged.left_out == made.merged.written
    assert events["host"]["args"] == {"correlation": 3, "domain": "domain", "category": "of", "color": "red"}
    assert (events["host"]["ts"], events["host"]["dur"]) == (0.9, 0.6)
    said = " ".join(made.merged.problems)
    for reason in ("negative duration", "times beyond 64 bits", "marks whose times"):
        assert reason in said


CHROME_SAMPLES = (
    "ascend/trace_view.json", "hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", "hta/trace_compare/base/base.json.gz",
    "hta/trace_filter/sampled_rank-0.json.gz", "tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz",
    "tracelens/mi300/gaunernst_bert-small-uncased__1016001.json.gz", "viztracer/tests_data_multithread.json",
)  # fmt: skip


@pytest.mark.parametrize("name", CHROME_SAMPLES)
def test_what_was_read_is_written_or_counted_by_kind(shared: Path, tmp_path: Path, name: str) -> None:
    """Events of each phase letter are as many as the file's, whichever reader took it, by both writers."""
    path = str(shared / "samples" / name)
    loaded = strict(path)
    letters = Counter(event["ph"] for event in (loaded if isinstance(loaded, list) else loaded["traceEvents"]))
    merged = merge_files([path], str(tmp_path / "all.json"))
    assert (merged.left_out, merged.problems) == (0, [])
    assert merged.written == merged.read + merged.added
    written = Counter(event["ph"] for event in strict(merged.path)["traceEvents"])
    assert written - Counter(M=written["M"]) == letters - Counter(M=letters["M"])
    packed = merge_files([path], str(tmp_path / "all.pftrace"), PerfettoWriter)
    assert (packed.read, packed.left_out) == (merged.read, 0)


def test_arrows_of_files_that_are_made_of_spans(tmp_path: Path) -> None:
    """They begin and end where the spans of their thread are drawn, of device work too; their numbers are apart from other
    files'; what its reader takes for nothing that can be drawn is counted."""
    spans = [
        Span("call", Kind.RUNTIME, 100, 200, 7, 1),
        Span("gemm", Kind.KERNEL, 300, 400, 8, 3, device=0, stream=3),
        Span("gemm", Kind.KERNEL, 500, 600, 8, 3, device=0, stream=4),
    ]
    flows = [
        Flow("go", "s", 5, 100, 7, 1, "async"), Flow("go", "f", 5, 300, 8, 3, "async"),
        Flow("go", "s", 6, 150, 7, 1, "async"), Flow("go", "f", 6, 500, 8, 3, "async"),
        Flow("odd", "s", 7, 1 << 80, 7, 1, "async"), Flow("alone", "f", 9, 50, 99, 99, "", following=True),
    ]  # fmt: skip
    trace = Trace("f", "other", spans=spans, flows=flows, metadata={"other_events": {"C": 2}})
    trace.completeness.leave_out("time missing", 3)
    with TimelineWriter(str(tmp_path / "t.json"), None) as made:
        for number in range(2):
            made.add(Source(f"f{number}", f"w{number}", f"k{number}"), Loaded("f", "other", trace))
    events = strict(made.merged.path)["traceEvents"]
    drawn = {(event["pid"], event["tid"], event["ts"]) for event in events if event["ph"] == "X"}
    arrows = [event for event in events if event["ph"] in "sf"]
    assert len(arrows) == 10
    assert all((event["pid"], event["tid"], event["ts"]) in drawn for event in arrows if event["ts"] in ("0.3", "0.5"))
    assert {event["bp"] for event in arrows if event["ph"] == "f" and event["name"] == "go"} == {"e"}
    assert Counter(Counter(event["id"] for event in arrows).values()) == {2: 4, 1: 2}
    assert (made.merged.read, made.merged.left_out) == (2 * (3 + 6 + 3 + 2), 2 * (1 + 3 + 2))
    assert made.merged.read + made.merged.added - made.merged.left_out == made.merged.written == len(events)
    assert any("2 events left out: of the phase letter C" in line for line in made.merged.problems)


def test_a_report_of_a_merged_timeline_has_the_device(tmp_path: Path, run_maker: Any, event: Any) -> None:
    """Its figures are those of the files it was made of; a phase that a worker's own timeline and another tool's file both hold
    counts once, and with the phases of one alone there is a window as long as the file."""
    place = {"pid": 7, "tid": 1}
    epoch = 1_795_852_566_000_000
    linked = {"correlation": 1}
    kernels = [
        {"ph": "X", "cat": "user_annotation", "name": "update", "ts": epoch + 100, "dur": 500, **place},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": epoch + 110, "dur": 5, "args": linked, **place},
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": epoch + 200, "dur": 100, "pid": 0, "tid": 7, "args": {**linked, "device": 0, "stream": 7}},
    ]  # fmt: skip
    torch = tmp_path / "r0.pt.trace.json"
    torch.write_text(json.dumps({"traceEvents": kernels}))
    window = run_maker.timeline(run_maker.target(0), [event("update", 100, 500)], end_us=1000)
    own = str(run_maker.directory / f"{window}.trace.json.gz")
    for sources in ([(str(torch), "torch")], [(own, "trace"), (str(torch), "torch")]):
        out = str(tmp_path / f"{len(sources)}.json")
        with TimelineWriter(out, None) as made:
            for path, tool in sources:
                made.read(Source(path, "ActorGroup/rank0", "k", tool))
        found = summarise_files([out])
        [row] = found.phases
        assert (row.phase, row.calls, row.total_ns) == ("update", 1, 500_000)
        [(*_, start, end)] = found.timelines[0].windows
        assert end - start == (500_000 if len(sources) == 1 else 1_000_000)
        [file] = found.files
        assert (file.tool, [(phase.name, phase.calls, phase.kernels) for phase in file.attribution.phases]) == (
            "timeline",
            [("update", 1, 1)],
        )
        assert [(device.kernels, device.busy_ns) for device in file.attribution.devices] == [(1, 100_000)]
        assert not found.notices


def test_a_merged_timeline_knows_what_its_files_lacked(tmp_path: Path, event: Event) -> None:
    """A cut file, events left out, spans dropped and a file that is not in it are said by its report, and by one of it merged again."""
    whole = json.dumps({"traceEvents": [event("a", 0, 5), event("b", 10, 5), event("c", 20, 5)]})
    (tmp_path / "whole.json").write_text(whole)
    (tmp_path / "cut.json").write_text(whole[: len(whole) - 40])
    (tmp_path / "odd.json").write_text(json.dumps({"traceEvents": [event("a", 0, 5), event("b", 0, -3)]}))
    facts = {"accelprof": {"dropped": 7}}
    (tmp_path / "full.json").write_text(json.dumps({"otherData": facts, "traceEvents": [event("a", 0, 5)]}))
    (tmp_path / "empty.json").write_text("")
    sides = {"whole": True, "cut": False, "odd": False, "full": False, "empty": False}
    for name, complete in sides.items():
        once = merge_files([str(tmp_path / f"{file}.json") for file in (name, "whole")], str(tmp_path / "1.json.gz"))
        again = merge_files([once.path, str(tmp_path / "whole.json")], str(tmp_path / "2.json.gz"))
        for path in (once.path, again.path):
            found = read_any(path)
            assert found.completeness.complete is complete, name
            assert (found.completeness.cut != "") is (name == "cut")
            assert (found.completeness.dropped, found.completeness.events_left_out) == (
                7 * (name == "full"),
                name == "odd",
            )
            summary = summarise_files([path])
            assert bool(summary.absent) is not complete
            assert bool(summary.undelivered) is (name not in ("whole", "full")), "full by its own limit"
            assert any(f"{name}.json" in line for line in summary.problems) is (name in ("cut", "odd", "empty"))


@pytest.mark.parametrize(
    "said", [5, {"cut": 3, "left_out": [1], "unread": 7, "dropped": "x"}, {"left_out": {"x": -1.5}}, None]
)
def test_what_a_merged_timeline_says_of_its_files_may_be_anything(tmp_path: Path, event: Event, said: object) -> None:
    """Facts of another shape are none, also where it is merged again."""
    odd = {"begin_ns": "x", "end_ns": 1 << 70, "transfers": [3, [said], [1, 2]], "worker": said, "key": said}
    sources = [{"pids": [1, "7", [3]], "completeness": said}, 3, {"pids": said, **odd}]
    facts = {"sources": sources, "problems": [4, "one"], "dropped": [1]}
    text = json.dumps({"otherData": {"accelprof": facts}, "traceEvents": [event("a", 0, 5)]})
    (tmp_path / "m.json").write_text(text)
    found = read_any(tmp_path / "m.json")
    assert found.completeness.complete
    assert found.problems == ["one"]
    again = merge_files([str(tmp_path / "m.json")], str(tmp_path / "again.json"))
    assert read_any(again.path).completeness.complete
    assert [(row.phase, row.calls) for row in summarise_files([again.path]).phases] == [("a", 1)]


def merged_again(path: str | Path) -> str:
    """A merged timeline, merged behind a file with a clock of its own."""
    other = Path(path).parent / "other.json"
    rows = [{"ph": "i", "name": "mark", "pid": 1, "tid": 1, "ts": 5}]
    other.write_text(json.dumps({"traceEvents": rows}))
    return merge_files([str(other), str(path)], f"{path}.again.json").path


def whose(label: str) -> str:
    return label.partition(" of merged.json")[0]


@pytest.mark.parametrize("seed", range(8))
def test_each_file_of_a_process_may_count_its_launches_anew(
    run_maker: Any, event: Event, tmp_path: Path, seed: int
) -> None:
    """Two windows of each rank, a file each in which launches are numbered from 1, and which may be the first with a process or device
    of the rank: the merged timeline's report gives each phase the kernels that it launched, and loses no launch, as the run's does."""
    random = Random(seed)
    for rank in range(2):
        key = run_maker.target(rank, host="node")
        for number in range(2):
            at, events = 2000 * number, []
            phases = [(random.choice("ab"), at + 100 * place, random.randint(40, 90)) for place in range(5)]
            for name, start, length in phases:
                pid = random.choice([100, 200][: 1 + number * (seed % 3)]) + rank
                events.append({**event(name, start, length, cat="user_annotation"), "pid": pid})
                for _ in range(random.randint(0, 3) if number or seed % 2 else 0):
                    moment, linked = (
                        start + random.randint(0, length - 2),
                        1 + sum("correlation" in e["args"] for e in events) // 2,
                    )
                    launch = event("cudaLaunchKernel", moment, 1, cat="cuda_runtime", correlation=linked)
                    events.append({**launch, "pid": pid})
                    device = random.choice([rank, rank + 2][: number + 1])
                    args = {"device": device, "stream": 7, "correlation": linked}
                    kernel = event("gemm", moment + random.randint(1, 9), random.randint(1, 30), cat="kernel", **args)
                    events.append({**kernel, "pid": device, "tid": 7})
            window = run_maker.timeline(
                key, [event(*one) for one in phases], steps=(number + 2,), end_us=1000, at_us=at
            )
            path = run_maker.directory / f"{rank}-{number}.pt.trace.json"
            path.write_text(json.dumps({"traceEvents": events}))
            run_maker.artifact(path.name, "torch", run_maker.manifest["targets"][-1], [window])
    run_dir = run_maker.write()
    merged = tmp_path / "merged.json"
    write_timeline(run_dir, str(merged))

    def kernels(files: Any) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for file in files:
            for phase in file.attribution.phases:
                found[whose(file.worker.label), phase.name] += phase.kernels
            found[whose(file.worker.label), "without work"] += file.attribution.launches_without_work
            found[whose(file.worker.label), "unlaunched"] += file.attribution.unlaunched
        return found

    true = kernels(summarise(run_dir).files)
    assert true.total() > 5
    assert kernels(summarise_files([str(merged)]).files) == true
    assert kernels(summarise_files([merged_again(merged)]).files) == true


@pytest.mark.parametrize("seed", range(8))
def test_a_merged_timeline_knows_when_all_ranks_had_come(
    run_maker: Any, event: Event, tmp_path: Path, seed: int
) -> None:
    """Ranks on clocks that are apart, some of them missing in a step, and windows that are of no step: the parts of each window are those
    of the run's report, what ranks wait in a collective and what they transfer; where neither knows both say so."""
    random = Random(seed)
    loose = seed % 3 == 1
    for rank in range(3):
        key, offset = run_maker.target(rank, host="node"), random.randint(-500, 500) * 1000
        if seed % 2:
            run_maker.manifest["clock_offsets"][key] = {"offset_ns": offset, "error_ns": 10}
        for step in range(2, 5):
            at, events = 2000 * step + (offset // 1000 if seed % 2 else 0), []
            if step == 3 and seed % 4 == rank:
                continue
            for half in range(2):
                arrives = random.randint(10, 300)
                events.append(event("update", at + 500 * half, arrives))
                ends = 400 + random.randint(0, 5)
                late = event("all_reduce", at + 500 * half + arrives, ends - arrives, category="collective")
                events.append(late)
            run_maker.timeline(key, events, steps=() if loose and step == 4 else (step,), end_us=1000, at_us=at)
    run_dir = run_maker.write()
    merged = str(tmp_path / "merged.json")
    write_timeline(run_dir, merged)

    def parts(summary: Any) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for row in summary.seconds:
            found.update({(whose(row.worker), name): ns for name, ns in row.parts.items()})
        return found

    def unsaid(summary: Any) -> list[str]:
        return [line for line in summary.notices if "were not matched" in line]

    run, back = summarise(run_dir), summarise_files([merged])
    assert parts(back) == parts(run) == parts(summarise_files([merged_again(merged)]))
    assert parts(run)["ActorGroup/rank2", "communication_exposed"] > 0
    assert unsaid(back) == unsaid(run)
    assert len(unsaid(run)) == loose
    assert [line for line in back.notices if "who waited for whom" in line]
    with TimelineWriter(merged, None) as made:  # by somebody who asks no run
        for path in sorted(run_maker.directory.glob("*.trace.json.gz")):
            made.read(Source(str(path), path.name[:13], path.name[:13], "trace"))
    [line] = unsaid(summarise_files([merged]))
    assert "the transfer too" in line
