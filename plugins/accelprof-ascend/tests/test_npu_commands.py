"""``accelprof analyse``, ``doctor`` and tool ``msprof`` with the real torch_npu over the stub of CANN."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.npu, pytest.mark.timeout(600)]  # some tests run several processes

CLI = ["-m", "accelprof"]


def test_analyse_skips_what_is_done_and_names_what_failed(npu: Callable[..., Any]) -> None:
    """Two directories become readable; a second call does nothing; one never stopped is named and makes the status 1."""
    made = npu("""
        session = configure(steps=[1, 2])
        for step in (1, 2):
            with session.step(step):
                Actor().update()
        session.close()
    """)
    assert len(made.directories) == 2
    ran = npu("", argv=[*CLI, "analyse", str(made.place), "--processes", "2", "--export", "both"], msprof=True)
    assert (ran.status, ran.out.splitlines()[-1]) == (0, "2 directories: 2 analysed, 0 were done already, 0 failed"), (
        ran.err
    )
    for path in made.directories:
        output = path / "ASCEND_PROFILER_OUTPUT"
        assert (output / "trace_view.json").stat().st_size
        assert (output / "ascend_pytorch_profiler_0.db").stat().st_size
    read = npu("""
        from accelprof.analysis.reading import read_any
        from accelprof.contracts.spans import Kind
        for path in sorted(glob.glob(OUT + "/**/*_ascend_pt", recursive=True)):
            for file in ("trace_view.json", "ascend_pytorch_profiler_0.db", "operator_details.csv"):
                trace = read_any(os.path.join(path, "ASCEND_PROFILER_OUTPUT", file))
                print("READ", file, trace.clock.value, [span.name for span in trace.of_kind(Kind.STEP)], len(trace.spans) > 0)
            print("DIRECTORY", read_any(path).origin.rank)
    """)
    lines = [line for line in read.out.splitlines() if line.startswith(("READ", "DIRECTORY"))]
    assert lines[0] == "READ trace_view.json epoch ['ProfilerStep#1'] True", read.err
    assert lines[1].startswith("READ ascend_pytorch_profiler_0.db epoch ['ProfilerStep#1'")
    assert lines[1].endswith("True")
    assert lines[3] == "DIRECTORY 0"
    broken = made.place / "worker_1_20260101000000000_ascend_pt"
    broken.mkdir()
    again = npu("", argv=[*CLI, "analyse", str(made.place)], msprof=True)
    assert again.status == 1
    assert "3 directories: 0 analysed, 2 were done already, 1 failed" in again.out
    assert f"failed: {broken}: profiler_info.json is missing" in again.out


def test_analyse_without_msprof_is_a_failure_and_is_tried_again(npu: Callable[..., Any]) -> None:
    """A trace of the host side alone does not count as done."""
    made = npu("""
        session = configure(steps=[1])
        with session.step(1):
            Actor().update()
        session.close()
    """)
    first = npu("", argv=[*CLI, "analyse", str(made.place)])
    assert first.status == 1
    assert "'msprof' command not found" in first.out
    second = npu("", argv=[*CLI, "analyse", str(made.place)], msprof=True)
    assert (second.status, "1 analysed" in second.out) == (0, True), second.out + second.err


def test_doctor_tells_what_is_here(npu: Callable[..., Any]) -> None:
    """Rows of torch_npu, its options, mstx, CANN's home and msprof; a variable that silences the profiler fails."""
    ran = npu(
        """
        from accelprof_ascend.doctor import checks
        for row in checks(OUT):
            print(row.name, row.status, row.detail, sep="|")
        """,
        msprof=True,
        PROFILING_MODE="dynamic",
    )
    rows = {line.split("|")[0]: line.split("|")[1:] for line in ran.out.splitlines() if "|" in line}
    assert rows["torch_npu"] == ["ok", "1 NPU device(s), torch_npu 2.13.0"], ran.err
    assert rows["profiler options"][0] == "ok"
    assert rows["mstx"] == ["ok", "ranges are there; they reach msprof too"]
    assert rows["msprof"][0] == "ok"
    assert rows["ASCEND_HOME_PATH"][0] == "ok"
    assert rows["environment"][0] == "fail"
    assert ran.named("aclInit") == []


def test_msprof_wraps_the_process_and_gets_the_ranges(npu: Callable[..., Any], tmp_path: Path) -> None:
    """The rendered command runs the worker under msprof; this wheel sends it the ranges of the window, and nothing is profiled inside."""
    from accelprof_ascend.msprof import MsprofTool

    from accelprof.contracts.targets import Assignment, Target
    from accelprof.launch.command import assemble

    place = tmp_path / "a dir"
    tool = MsprofTool({"mstx_domain_exclude": ["communication"], "options": {"task-time": "l1", "ascendcl": False}})
    launch = tool.launch(Assignment(Target("ActorGroup", rank=0), True, "msprof", mode="process"), str(place))
    ran = npu(
        """
        session = configure(tool="msprof", steps=[1])
        with session.step(1):
            Actor().update()
        show(session.close())
        """,
        wrap=lambda python: assemble(launch, [python]),
        msprof=True,
    )
    assert (ran.status, ran.shown()["problems"]) == (0, []), ran.err
    options = {word for call in ran.named("msprof") for word in call.split(" -c ")[0].split() if word.startswith("--")}
    assert {
        "--type=text",
        "--msproftx=on",
        "--mstx-domain-exclude=communication",
        "--task-time=l1",
        "--ascendcl=off",
    } <= options
    assert [call for call in ran.named("mstxRangeStartA") if "actor/update" in call]
    assert ran.named("aclprofStart") == []
    found = [path for path in place.glob("ActorGroup-r0-msprof/PROF_*") if tool.can_read(str(path))]
    assert len(found) == 1
    assert [row.path for row in tool.match([str(found[0])], [])] == [str(found[0])]


def test_msprof_outside_of_msprof_is_refused_with_the_reason(npu: Callable[..., Any]) -> None:
    """A worker that was not started under it has no window of it, and says so once."""
    ran = npu("""
        session = configure(tool="msprof", steps=[1])
        with session.step(1):
            Actor().update()
        show(session.close())
    """)
    assert sum("not started under msprof" in problem for problem in ran.shown()["problems"]) == 1


def meta(name: str, pid: int, value: str) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": pid, "tid": 0, "args": {"name": value}}


def event(name: str, pid: int, tid: int, ts: str, dur: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": {}, **more}


#: a step with one operator and its kernel, as torch_npu writes it
STEP: list[dict[str, Any]] = [
    meta("process_name", 1, "Python"),
    meta("process_name", 2, "Ascend Hardware"),
    meta("process_name", 3, "Overlap Analysis"),
    event("ProfilerStep#1", 1, 1, "1704161511420000.000", 900, cat="cpu_op"),
    event("aten::mm", 1, 1, "1704161511420100.000", 50, cat="cpu_op"),
    {
        "ph": "s",
        "bp": "e",
        "name": "torch_to_npu",
        "id": 7,
        "pid": 1,
        "tid": 1,
        "ts": "1704161511420100.000",
        "cat": "async_npu",
    },
    {
        "ph": "f",
        "bp": "e",
        "name": "torch_to_npu",
        "id": 7,
        "pid": 2,
        "tid": 3,
        "ts": "1704161511420200.000",
        "cat": "async_npu",
    },
    event(
        "aclnnMm_MatMul", 2, 3, "1704161511420200.000", 400, args={"Task Type": "AI_CORE", "Stream Id": 3, "Task Id": 1}
    ),
    event("Computing", 3, 0, "1704161511420200.000", 400),
]


def test_npu_compare_shows_what_msprof_analyze_finds(npu: Callable[..., Any], tmp_path: Path) -> None:
    """The real msprof-analyze compares two directories; its table is shown and its workbook is where it was asked for."""
    places = []
    for name in ("base", "new"):
        place = tmp_path / name / "worker_1_20240101000000000_ascend_pt"
        output = place / "ASCEND_PROFILER_OUTPUT"
        output.mkdir(parents=True)
        (place / "profiler_info.json").write_text('{"config": {"experimental_config": {"_profiler_level": "Level1"}}}')
        (output / "trace_view.json").write_text(json.dumps(STEP))
        places.append(str(place))
    out = tmp_path / "compared"
    ran = npu("", argv=[*CLI, "npu-compare", *places, "-o", str(out)])
    assert ran.status == 0, ran.out + ran.err
    assert "Computing Time" in ran.out
    books = list(out.iterdir())
    assert [book.suffix for book in books] == [".xlsx"]
    assert str(books[0]) in ran.out


def test_a_windows_directory_stands_for_the_one_profile_in_it(tmp_path: Path) -> None:
    """One ``*_ascend_pt`` below is meant; of several none is guessed; a file and another directory are left as they are."""
    from accelprof_ascend.commands import _the_one

    from accelprof.errors import UserError

    window = tmp_path / "npu-s2-w0001"
    inside = window / "ActorGroup-r0_1_20240101000000000_ascend_pt"
    inside.mkdir(parents=True)
    assert _the_one(str(window)) == _the_one(str(inside)) == str(inside)
    trace = tmp_path / "gpu.json"
    trace.write_text("[]")
    assert _the_one(str(trace)) == str(trace)
    (window / "ActorGroup-r1_1_20240101000000000_ascend_pt").mkdir()
    with pytest.raises(UserError, match="holds 2 .*_ascend_pt directories .*name the one that is meant"):
        _the_one(str(window))
