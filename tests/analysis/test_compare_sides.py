"""Two sides compared: figures of real reports, and every reason not to compare."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelprof import timer
from accelprof.analysis.changes import headline
from accelprof.analysis.compare import compare, interval
from accelprof.analysis.parts import Figure, Part
from accelprof.analysis.reading import read_any
from accelprof.analysis.sides import Side
from accelprof.analysis.summary import summarise
from accelprof.analysis.timeline import merge_files, write_timeline
from accelprof.catalogue import get_catalogue
from accelprof.cli.compare import compare as command
from accelprof.contracts.spans import Kind
from accelprof.errors import NotComparableError, ReadError
from accelprof.testing import capture

Event = Callable[..., dict[str, Any]]
patient = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def reports(shared: Path, tmp_path: Path) -> Any:
    """``reports(name, *statements)``: a sample report, changed by SQL when statements are given."""
    if "nsys" not in get_catalogue().tool_names():
        pytest.skip("accelprof-cuda, which reads nsys reports, is not installed")

    def report(name: str, *statements: str) -> str:
        source = shared / f"samples/nsys-ai/mfu_2gpu_{name}.sqlite"
        if not statements:
            return str(source)
        copy = tmp_path / f"{name}.sqlite"
        shutil.copyfile(source, copy)
        with closing(sqlite3.connect(copy)) as database, database:
            for statement in statements:
                database.execute(statement)
        return str(copy)

    return report


def test_two_real_reports(reports: Any) -> None:
    """Kernel time per device is the known union on both sides: about -12.3 % and -4.9 %."""
    found = compare(reports("before"), reports("after"))
    rows = {row.name: row for row in found.of("device kernels")}
    assert (rows["device 0"].before_ns, rows["device 0"].after_ns) == (270_863_484, 237_473_368)
    assert (rows["device 1"].before_ns, rows["device 1"].after_ns) == (264_324_724, 251_362_038)
    assert rows["device 0"].change == pytest.approx(-0.1233, abs=1e-4)
    assert rows["device 1"].change == pytest.approx(-0.0490, abs=1e-4)
    assert all(row.delta_ns is not None and row.delta_ns < 0 for row in found.of("device"))


def test_a_report_against_itself(reports: Any) -> None:
    """Exactly no change, in every figure."""
    found = compare(reports("before"), reports("before"))
    assert found.unchanged
    assert {row.change for row in found.changes} == {0.0}


def test_swapping_flips_the_sign_only(reports: Any) -> None:
    """Each difference of the swapped comparison is the negative, to the last digit; a change is growth from the first side."""
    one, other = reports("before"), reports("after")
    there = {(row.measure, row.name): row for row in compare(one, other).changes}
    back = {(row.measure, row.name): row for row in compare(other, one).changes}
    assert there.keys() == back.keys()
    for key, row in there.items():
        if row.delta_ns is None or row.change is None:
            assert back[key].delta_ns is None
            continue
        assert back[key].delta_ns == -row.delta_ns
        assert row.change == row.delta_ns / row.before_ns
        assert back[key].change == -row.delta_ns / row.after_ns


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (["DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL"], "after has no kernels, before has 4,010"),
        (
            [f"DELETE FROM CUPTI_ACTIVITY_KIND_{what} WHERE deviceId = 1" for what in ("KERNEL", "MEMCPY", "MEMSET")],
            "device 1 is only in before; 2 devices before, 1 after",
        ),
    ],
)
def test_a_lost_capture_or_device_does_not_win(reports: Any, statements: list[str], reason: str) -> None:
    """An emptied kernel table and a deleted device are refused with the reason, in both orders."""
    one, other = reports("before"), reports("before", *statements)
    with pytest.raises(NotComparableError, match=reason) as caught:
        compare(one, other)
    assert caught.value.exit_code == 1
    with pytest.raises(NotComparableError):
        compare(other, one)


def test_a_device_in_neither(reports: Any) -> None:
    """Asking for a device that neither has is refused."""
    with pytest.raises(NotComparableError, match="device 7 is in neither"):
        compare(reports("before"), reports("after"), devices=[7])
    assert [row.name for row in compare(reports("before"), reports("after"), devices=[1]).of("device")] == ["device 1"]


def test_two_vendors_with_one_device_each(shared: Path) -> None:
    """The same model on two vendors can be compared although the devices have other numbers; that is said."""
    folder = shared / "samples/tracelens"
    name = "gaunernst_bert-small-uncased__1016001.json.gz"
    found = compare(folder / "h100" / name, folder / "mi300" / name)
    [row] = found.of("device kernels")
    assert (row.before_ns, row.after_ns) == (307_197, 388_344)
    assert any("the only one of each" in note for note in found.notes)


def test_runs(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """Phases of two runs are compared per window, so more windows are not slower."""
    key = run_maker.target(0)
    run_maker.timeline(key, [event("update", 0, 100)])
    one = shutil.copytree(run_maker.write(), tmp_path / "one")
    run_maker.timeline(key, [event("update", 0, 140)], steps=[4])
    found = compare(one, run_maker.write())
    [row] = found.of("phase")
    assert (row.before_ns, row.after_ns, row.ratio) == (100_000, 120_000, 1.2)


def test_common_workers_of_two_runs(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """Of runs that profiled other ranks the common ones are compared, by their own figures, and the others are named."""
    run_maker.timeline(run_maker.target(0), [event("update", 0, 100)])
    one = shutil.copytree(run_maker.write(), tmp_path / "one")
    run_maker.timeline(run_maker.target(1), [event("update", 0, 900)])
    two = run_maker.write()
    for found, where in ((compare(one, two), "after"), (compare(two, one), "before")):
        [row] = found.of("phase")
        assert (row.before_ns, row.after_ns, found.unchanged) == (100_000, 100_000, True)
        assert found.notes == [
            f"1 workers are in both and compared; only in {where}: ActorGroup/rank1",
            "critical path, operator, waiting: of all workers, who are others on the two sides; not compared",
        ]


def test_no_common_worker_and_an_unopened_window(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """Runs without a common rank, and a run that did not deliver, are refused by name."""
    run_maker.timeline(run_maker.target(0), [event("update", 0, 100)])
    one = shutil.copytree(run_maker.write(), tmp_path / "one")
    other = type(run_maker)(tmp_path / "other")
    other.timeline(other.target(1), [event("update", 0, 100)])
    with pytest.raises(
        NotComparableError, match="no worker is in both: before has ActorGroup/rank0; .*after has ActorGroup/rank1"
    ):
        compare(one, other.write())
    run_maker.manifest["targets"][0]["windows_opened"] = 0
    run_maker.manifest["windows"] = []
    with pytest.raises(NotComparableError, match="after is not complete: .*: armed, 0 windows opened"):
        compare(one, run_maker.write())


def test_an_engines_children_are_workers_of_their_own(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """Each under its own name, with its own times, beside its parent; a later run has the same ones, whatever their pids, and no
    collective of the group misses them."""

    def run(maker: Any, longer: int, pid: int) -> str:
        times = {None: 100, 0: 200, 1: 300 + longer}
        for engine, us in times.items():
            key = maker.target(0, **({} if engine is None else {"engine_rank": engine}))
            row = maker.manifest["targets"][-1]
            row["pid"], row["key"] = pid + (-1 if engine is None else engine), f"{key}-{engine}"
            maker.timeline(row["key"], [event("work", 0, us)])
        return str(maker.write())

    before = shutil.copytree(run(run_maker, 0, 100), tmp_path / "one")
    after = run(type(run_maker)(tmp_path / "other"), 50, 7000)
    labels = ["ActorGroup/rank0", "ActorGroup/rank0/engine0", "ActorGroup/rank0/engine1"]
    summary = summarise(after)
    assert [timeline.worker.label for timeline in summary.timelines] == labels
    assert all(step.ranks == {"ActorGroup": labels[:1]} for step in summary.waits.of)
    changes = compare(str(before), after).of("own time")
    assert {row.name: row.delta_ns for row in changes} == {
        "work on ActorGroup/rank0/engine1": 50_000, "work on ActorGroup/rank0/engine0": 0, "work on ActorGroup/rank0": 0
    }  # fmt: skip


def test_whose_an_own_time_is_does_not_hang_on_names(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """Groups and phases are called anything: a change knows its phase and worker, and two that are called the same are two."""

    def run(maker: Any, longer: int) -> str:
        maker.timeline(maker.target(0, "A"), [event("load", 0, 100), event("copy on B", 200, 100)])
        maker.timeline(maker.target(0, "B on A"), [event("load", 0, 100 + longer), event("copy", 200, 100)])
        return str(maker.write())

    before = shutil.copytree(run(run_maker, 0), tmp_path / "one")
    found = compare(str(before), run(type(run_maker)(tmp_path / "other"), 50))
    assert {(row.phase, row.worker): row.delta_ns for row in found.of("own time")} == {
        ("load", "A/rank0"): 0,
        ("copy on B", "A/rank0"): 0,
        ("load", "B on A/rank0"): 50_000,
        ("copy", "B on A/rank0"): 0,
    }
    found.unseen = frozenset({"load"})
    assert headline(found).startswith("load on B on A/rank0 (in which ranks may wait")


def test_own_times_that_are_called_the_same_are_not_added_up() -> None:
    """A phase whose name ends as a worker's does, in a file that names no worker, and that worker's own."""
    parts = [
        Part("own time", "copy on A", "A", 100.0, phase="copy"),
        Part("own time", "copy on A", "", 900.0, phase="copy on A"),
        Part("own time", "load on A", "A", 7.0),  # of an older baseline
    ]
    figures = Side("x", parts, {"A", ""}).figures("own time", {"A", ""})
    assert {(key.phase, key.worker): figure.ns for key, figure in figures.items()} == {
        ("copy", "A"): 100,
        ("copy on A", ""): 900,
        ("load", "A"): 7,
    }


def cut(data: bytes) -> bytes:
    return data[: len(data) * 6 // 10]


def damaged(data: bytes) -> bytes:
    """Two gzip members, of which the second is no deflate stream behind its head."""
    text = gzip.decompress(data)
    return gzip.compress(text[:20_000]) + gzip.compress(text[20_000:])[:10] + b"\xff" * 500


def write_kernels(path: Path, change: Callable[[bytes], bytes], **odd: Any) -> str:
    """1000 kernels of 10 µs, the last of them with ``odd`` fields; the bytes of the file changed."""
    rows = [
        {"ph": "X", "cat": "kernel", "name": f"k{i % 7}", "pid": 0, "tid": 7, "ts": 100 * i, "dur": 10}
        for i in range(1000)
    ]
    rows[-1].update(odd)
    data = json.dumps({"traceEvents": rows}).encode()
    path.write_bytes(change(gzip.compress(data) if path.suffix == ".gz" else data))
    return str(path)


def same(data: bytes) -> bytes:
    return data


@pytest.mark.parametrize(
    ("name", "change", "odd", "reason"),
    [
        ("cut.json", cut, {}, r"not complete: .*cut\.json"),
        ("cut.json.gz", cut, {}, "cut off"),
        ("damaged.json.gz", damaged, {}, "damaged"),
        ("negative.json", same, {"dur": -10}, "left out: 1 event, negative duration"),
        ("nan.json", same, {"ts": float("nan")}, "left out: 1 event"),
    ],
)
def test_what_is_not_there_is_no_improvement(
    tmp_path: Path, name: str, change: Callable[[bytes], bytes], odd: dict[str, Any], reason: str
) -> None:
    """A cut or damaged file and events left out are refused on either side, and shown, with what lacks, when asked for."""
    whole = write_kernels(tmp_path / "whole.json", same)
    part = write_kernels(tmp_path / name, change, **odd)
    for pair in ((whole, part), (part, whole)):
        with pytest.raises(NotComparableError, match=reason):
            compare(*pair)
    assert CliRunner().invoke(command, [whole, part]).exit_code == 1
    found = compare(whole, part, allow_partial=True)
    assert len(found.partial) >= 1
    assert not found.unchanged
    shown = CliRunner().invoke(command, [whole, part, "--allow-partial"])
    assert (shown.exit_code, "after is not complete" in shown.output) == (0, True)


def _kernels(path: str) -> list[tuple[str, int, int]]:
    return sorted((span.name, span.start_ns, span.end_ns) for span in read_any(path).of_kind(Kind.KERNEL))


@patient
@given(st.floats(0, 1), st.sampled_from(["cut", "flipped", "doubled", "a hole"]), st.booleans(), st.integers(0, 255))
def test_a_side_that_is_not_whole_never_passes_for_one(
    tmp_path: Path, part: float, how: str, packed: bool, value: int
) -> None:
    """Wherever a file is cut or changed: it is refused, or every kernel of it is there as it was, or what was changed is a value
    that nobody can tell from another."""

    def change(data: bytes) -> bytes:
        at = int(part * (len(data) - 1))
        if how == "cut":
            return data[:at]
        if how == "a hole":
            return data[:at] + data[at + 40 :]
        return (
            data[:at]
            + (data[at : at + 20] * 2 if how == "doubled" else bytes([data[at] ^ max(value, 1)]))
            + data[at + 1 :]
        )

    name = "odd.json.gz" if packed else "odd.json"
    whole, odd = write_kernels(tmp_path / "whole.json", same), write_kernels(tmp_path / name, change)
    try:
        found = compare(whole, odd)
    except (NotComparableError, ReadError):
        return
    assert found.partial == []
    assert packed is False or _kernels(odd) == _kernels(whole)
    if how == "cut":
        assert _kernels(odd) == _kernels(whole)


times_before = st.lists(st.integers(0, 50).map(float), max_size=4)


@patient
@given(
    st.dictionaries(st.sampled_from("abcd"), times_before, max_size=4),
    st.dictionaries(st.sampled_from("abcd"), times_before, max_size=4),
    st.sampled_from([0, 10, 50]),
)
def test_the_gate_judges_what_a_slow_look_does(
    tmp_path: Path, before: dict[str, list[float]], after: dict[str, list[float]], limit: int
) -> None:
    """New phases and growth from zero fail; others by how much more they take, where that is clearer than its noise."""
    before, after = ({name: calls for name, calls in side.items() if calls} for side in (before, after))
    if not before or not after:
        return
    one, two = phases(tmp_path / "one.json", **before), phases(tmp_path / "two.json", **after)
    found = compare(one, two)
    slower = {row.name for row, _ in found.slower(limit) if row.measure == "phase"}
    rows = {row.name: row for row in found.of("phase")}
    for name in before.keys() | after.keys():
        was, now = (sum(side.get(name, [])) / max(len(side.get(name, [])), 1) for side in (before, after))
        if name not in before:
            assert (name in slower) == (now > 0)
        elif name not in after:
            assert name not in slower
        elif not was:
            assert (name in slower) == (now > 0)
        elif 100 * (now - was) <= limit * was + 1e-9:
            assert name not in slower
        else:
            assert (
                name in slower or (rows[name].low_ns is not None and not rows[name].clear) or _just(rows[name], limit)
            )


def _just(row: Any, limit: int) -> bool:
    """Whether the least growth that the noise leaves is within the limit."""
    low = row.noise[0] if row.noise is not None else row.change
    return bool(low is None or low <= limit / 100 or row.change <= limit / 100)


def test_a_file_that_a_run_lost(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """A file of a run that was cut or could not be read stands in the way of a comparison, whatever its message says."""
    key = run_maker.target(0)
    run_maker.timeline(key, [event("update", 0, 100)])
    run_maker.timeline(key, [event("update", 0, 100)], steps=[4])
    one = shutil.copytree(run_maker.write(), tmp_path / "one")
    path = Path(run_maker.write(), f"{key}-w0002.trace.json.gz")
    path.write_bytes(cut(path.read_bytes()))
    with pytest.raises(NotComparableError, match="after is not complete: ActorGroup/rank0: .*w0002"):
        compare(one, run_maker.directory)
    path.write_bytes(b"nothing of a trace")
    with pytest.raises(NotComparableError, match="after is not complete: ActorGroup/rank0: .*w0002.*was not read"):
        compare(one, run_maker.directory)


def phases(path: Path, **calls: list[float]) -> str:
    """A file with calls of phases, one after the other, of these lengths in µs."""
    rows, at = [], 0.0
    for name, lengths in calls.items():
        for length in lengths:
            rows.append(
                {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": length}
            )
            at += length + 1
    path.write_text(json.dumps(rows))
    return str(path)


def test_new_phases_and_growth_from_zero(tmp_path: Path) -> None:
    """A phase that is new and one that took no time before are slower; one that is gone is not."""
    one = phases(tmp_path / "one.json", same=[100], zero=[0], gone=[50])
    two = phases(tmp_path / "two.json", same=[100], zero=[5000], new=[900_000])
    found = compare(one, two)
    assert {(row.name, how) for row, how in found.slower(10)} == {("new", "is new"), ("zero", "took no time before")}
    assert CliRunner().invoke(command, [one, two, "--fail-above", "10"]).exit_code == 1
    assert compare(two, one).slower(10) == [
        (row, "is new") for row in compare(two, one).of("phase") if row.name == "gone"
    ]


def test_a_change_within_the_noise(tmp_path: Path) -> None:
    """Repeated calls give an interval: 20 % more is judged where calls are alike, and is noise where they scatter."""
    still, loud = [100.0, 101, 99, 100, 102, 98, 100, 101], [20.0, 190, 60, 150, 100, 30, 200, 50]
    before = phases(tmp_path / "one.json", still=still, loud=loud)
    after = phases(tmp_path / "two.json", still=[1.2 * t for t in still], loud=[1.2 * t for t in reversed(loud)])
    found = compare(before, after)
    rows = {row.name: row for row in found.of("phase")}
    assert rows["still"].clear
    assert not rows["loud"].clear
    assert [row.name for row, _ in found.slower(10)] == ["still"]
    low, high = rows["still"].noise or (0.0, 0.0)
    assert low < rows["still"].change < high  # type: ignore[operator]
    assert (rows["still"].before_median_ns, rows["still"].repeats) == (100_000, (8, 8))
    assert found.to_json() == compare(before, after).to_json()
    back = {row.name: row for row in compare(after, before).of("phase")}
    for name, row in rows.items():
        assert row.low_ns is not None
        assert (back[name].high_ns, back[name].delta_ns) == (-row.low_ns, -row.delta_ns)  # type: ignore[operator]
    itself = compare(before, before)
    assert {(row.low_ns, row.high_ns, row.change) for row in itself.of("phase")} == {(0.0, 0.0, 0.0)}


def test_the_interval_covers_what_it_says() -> None:
    """Of two sides drawn from one distribution of twelve repetitions, about 95 % of the intervals hold zero."""
    rng = random.Random(7)
    held = 0
    for _ in range(200):
        sides = [tuple(rng.gauss(100, 15) for _ in range(12)) for _ in range(2)]
        low, high = interval(*(Figure(sum(samples) / 12, samples) for samples in sides))
        held += low <= 0 <= high
    assert 175 <= held <= 198


def test_windows_are_the_repetitions_of_a_run(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """In a run the windows repeat: median and interval of each phase come from them."""
    key = run_maker.target(0)
    for step, length in ((2, 100), (4, 110), (6, 90)):
        run_maker.timeline(key, [event("update", 10 + 2000 * step, length)], steps=[step], at_us=2000 * step)
    [row] = compare(run_maker.write(), run_maker.directory).of("phase")
    assert (row.before_ns, row.before_median_ns, row.repeats) == (100_000, 100_000, (3, 3))


def test_a_stored_baseline(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """A run is compared with figures stored of another as with the run itself; a damaged store is refused by name."""
    key = run_maker.target(0)
    run_maker.timeline(key, [event("update", 0, 100)])
    one = str(shutil.copytree(run_maker.write(), tmp_path / "one"))
    run_maker.timeline(key, [event("update", 0, 140)], steps=[4])
    two, kept = run_maker.write(), tmp_path / "baseline.json"
    assert CliRunner().invoke(command, [two, one, "--save", str(kept)]).exit_code == 0
    there, direct = compare(kept, two).to_json(), compare(one, two).to_json()
    assert {**there, "before": ""} == {**direct, "before": ""}
    kept.write_text(kept.read_text()[:-40])
    with pytest.raises(ReadError, match="a stored baseline that is damaged"):
        compare(kept, two)


def test_tables_for_a_pull_request(tmp_path: Path) -> None:
    """Markdown has a row a phase; what a label contains does not act in it."""
    one = phases(tmp_path / "one.json", **{"a|b @you <x>": [100, 100]})
    two = phases(tmp_path / "two.json", **{"a|b @you <x>": [150, 150]})
    result = CliRunner().invoke(command, [one, two, "--markdown"])
    labelled = [line for line in result.output.splitlines() if "you" in line]
    assert len(labelled) == 3  # the first sentence names it too
    assert not any("@you" in line or "<x" in line for line in labelled)
    [line, own] = [line for line in labelled if line.startswith("| ")]
    assert line == (
        "| a\\|b @\u2060you &lt;x\\> | 100 µs | 150 µs | +50 µs | +50.0% | +50.0% … +50.0% | 100 µs → 150 µs | 2 calls |"
    )
    assert own.endswith("| 100 µs | 150 µs | +50 µs | +50.0% |  |  | 2 calls |")  # nothing is nested in it
    assert "growth from before" in result.output


def test_the_command_as_a_gate(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """``--fail-above`` ends with status 1 when a phase takes longer; within the limit with 0; JSON is strict."""
    key = run_maker.target(0)
    run_maker.timeline(key, [event("update", 0, 100)])
    one = str(shutil.copytree(run_maker.write(), tmp_path / "one"))
    run_maker.timeline(key, [event("update", 0, 140)], steps=[4])
    two = run_maker.write()
    assert CliRunner().invoke(command, [one, two, "--fail-above", "10"]).exit_code == 1
    assert CliRunner().invoke(command, [one, two, "--fail-above", "30"]).exit_code == 0
    result = CliRunner().invoke(command, [one, one, "--json"])
    assert json.loads(result.output)["unchanged"] is True
    assert "No change." in CliRunner().invoke(command, [one, one]).output


def test_an_unfinished_step_is_in_no_mean(tmp_path: Path) -> None:
    """It has no path: counted as a step without the phase, it would make the phase of the others a third shorter."""
    runs = []
    for name, fails in (("one", False), ("two", True)):
        place = tmp_path / name
        with capture(
            directory=str(place), run="run", steps=[1, 2, 3], tool=None, identity={"rank": 0, "world_size": 1}
        ) as run:
            for number in range(1, 4):
                with contextlib.suppress(ValueError), run.session.step(number):
                    timer("work")(time.sleep)(0.02)
                    if fails and number == 3:
                        raise ValueError("over")
            runs.append(run.session.close()["run_dir"])
    found = compare(*runs, allow_partial=True)
    [path] = [row for row in found.of("critical path") if "work" in row.name]
    assert (path.ratio or 0) > 0.8, path


def test_a_merged_timeline_is_no_side(tmp_path: Path, run_maker: Any, event: Any) -> None:
    """On either side it is refused by name, with the mend, whatever is allowed; the run it was made of is compared, and so is the
    timeline of one file."""
    for rank in range(2):
        run_maker.timeline(run_maker.target(rank), [event("update", 10, 500)])
    run = str(run_maker.write())
    merged = write_timeline(run, str(tmp_path / "merged.json")).path
    for sides in ((merged, run), (run, merged), (merged, merged)):
        with pytest.raises(
            NotComparableError, match=r"merged timeline \(2 files of 2 workers\).* compare the run, or the files"
        ) as caught:
            compare(*sides, allow_partial=True)
        assert merged in str(caught.value)
    assert compare(run, run).unchanged
    one = merge_files([str(sorted(Path(run).glob("*-w0001.trace.json.gz"))[0])], str(tmp_path / "one.json")).path
    assert compare(one, one).unchanged


def _timed(place: Path, run: str, phases: dict[str, float], number: int = 6, **more: Any) -> str:
    """A run of so many steps of which each phase takes so many seconds; with a recorder alone, unless ``more`` asks for windows."""
    with capture(directory=str(place), run=run, **(more or {"recorder": {}, "steps": None, "tool": None})) as taken:
        for step in range(1, number + 1):
            with taken.session.step(step):
                for phase, seconds in phases.items():
                    timer(phase)(time.sleep)(seconds)
        taken.session.close()
    return str(place / run)


def test_runs_of_timings_alone_are_compared_by_them(tmp_path: Path) -> None:
    """Steps and phases in steps, with their noise, as a gate and from a baseline; a note says that there is nothing else."""
    before = _timed(tmp_path, "before", {"load": 0.01, "update": 0.02})
    after = _timed(tmp_path, "after", {"load": 0.01, "update": 0.06})
    found = compare(before, after)
    assert {row.measure for row in found.changes} == {"step", "phase in steps"}
    changes = {row.name: row for row in found.of("phase in steps")}
    assert changes["update"].clear
    assert changes["update"].repeats == (6, 6)
    assert changes["update"].delta_ns == pytest.approx(0.04e9, rel=0.3)
    [step] = found.of("step")
    assert step.delta_ns == pytest.approx(0.04e9, rel=0.5)
    assert any("timings of steps alone" in line for line in found.notes)
    assert {row.name for row, _ in found.slower(50)} >= {"update"}
    assert compare(before, before).unchanged
    base = str(tmp_path / "base.json")
    save = CliRunner().invoke(command, [before, after, "--save", base])
    assert save.exit_code == 0, save.output
    assert compare(base, after).unchanged


@pytest.mark.parametrize("other", ["nothing", "windows"])
def test_timings_alone_are_compared_with_their_like_alone(other: str, tmp_path: Path) -> None:
    """A run without any step has nothing, and one with windows would lose all its phases."""
    timed = _timed(tmp_path, "timed", {"update": 0.001})
    if other == "nothing":
        against = _timed(tmp_path, "other", {}, 0)
    else:
        against = _timed(tmp_path, "other", {"update": 0.001}, steps=[1, 2], tool=None)
    for sides, empty in (((timed, against), "before"), ((against, timed), "after")):
        with pytest.raises(NotComparableError, match=f"{empty} is empty: no phase and no device work"):
            compare(*sides)
