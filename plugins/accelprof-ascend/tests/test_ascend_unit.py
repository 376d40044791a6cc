"""Parts that need neither torch_npu nor CANN: the backend's capability table, names on disk, msprof's command, commands."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from accelprof_ascend import directory, kinds, msprof, vendor
from accelprof_ascend.backend import NpuBackend
from accelprof_ascend.msprof import MsprofTool
from accelprof_ascend.npu import NpuTool
from accelprof_ascend.profile import listening
from click.testing import CliRunner

from accelprof.catalogue import get_catalogue
from accelprof.contracts.backend import NO_RANGE, RangeSpec
from accelprof.contracts.spans import Kind
from accelprof.contracts.targets import Assignment, Target, WindowInfo
from accelprof.testing import BackendConformance, ToolConformance
from accelprof.texts import unquoted


class OldMstx:
    """As in 2.1: start and end without domain, no push or pop."""

    def __init__(self, answer: Any = 7) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answer = answer

    def range_start(self, message: str, stream: Any = None) -> Any:
        self.calls.append(("start", message))
        return self.answer

    def range_end(self, range_id: int) -> None:
        self.calls.append(("end", range_id))

    def mark(self, message: str) -> None:
        self.calls.append(("mark", message))


class NewMstx(OldMstx):
    """As in 2.13."""

    def range_start(self, message: str, stream: Any = None, domain: str = "default") -> Any:
        self.calls.append(("start", message, domain))
        return self.answer

    def range_end(self, range_id: int, domain: str = "default") -> None:
        self.calls.append(("end", range_id, domain))

    def range_push(self, message: str, stream: Any = None, domain: str = "default") -> Any:
        self.calls.append(("push", message, domain))
        return -1 if self.answer is not None else None

    def range_pop(self, domain: str = "default") -> int:
        self.calls.append(("pop", domain))
        return -1

    def mark(self, message: str, stream: Any = None, domain: str = "default") -> None:
        self.calls.append(("mark", message, domain))


@pytest.fixture
def wheel(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``wheel(mstx)``: a torch_npu that has only this mstx and no device."""

    def put(mstx: Any) -> NpuBackend:
        module = ModuleType("torch_npu")
        module.npu = SimpleNamespace(mstx=mstx, is_initialized=lambda: False, device_count=lambda: 1)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "torch_npu", module)
        return NpuBackend()

    return put


def test_new_wheels_get_domains_and_push_and_pop(wheel: Any) -> None:
    """The domain is repeated at the end; pop follows push although push answers -1."""
    mstx = NewMstx()
    bound = wheel(mstx).bind(RangeSpec("a", "rollout"))
    bound.push()
    bound.pop()
    bound.end(bound.start())
    assert mstx.calls == [
        ("push", "a", "rollout"),
        ("pop", "rollout"),
        ("start", "a", "rollout"),
        ("end", 7, "rollout"),
    ]


def test_old_wheels_get_start_and_end_in_the_order_of_a_stack(wheel: Any) -> None:
    """Without push/pop and domains, pop ends what this thread pushed last, and the domain stands in the message."""
    mstx = OldMstx()
    backend = wheel(mstx)
    outer, inner = backend.bind(RangeSpec("a", "rollout")), backend.bind(RangeSpec("b"))
    outer.push()
    inner.push()
    inner.pop()
    outer.pop()
    outer.pop()
    assert mstx.calls == [("start", "rollout:a"), ("start", "b"), ("end", 7), ("end", 7)]


def test_nothing_is_ended_that_was_not_recorded(wheel: Any) -> None:
    """0 outside a recording is normal and needs no end."""
    mstx = NewMstx(answer=0)
    bound = wheel(mstx).bind(RangeSpec("a"))
    bound.end(bound.start())
    assert mstx.calls == [("start", "a", "default")]


def test_the_first_none_ends_annotating(wheel: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One call, one warning; ranges bound before and after are silent from then on."""
    mstx = NewMstx(answer=None)
    backend = wheel(mstx)
    first, second = backend.bind(RangeSpec("a")), backend.bind(RangeSpec("b"))
    first.push()
    second.push()
    second.end(second.start())
    assert mstx.calls == [("push", "a", "default")]
    assert len(caplog.records) == 1
    assert "libms_tools_ext.so" in caplog.text
    assert backend.bind(RangeSpec("c")) is NO_RANGE


def test_labels_that_mstx_refuses_are_made_takeable(wheel: Any) -> None:
    """An empty label and one with a NUL would each be an error line of torch_npu."""
    mstx = NewMstx()
    backend = wheel(mstx)
    backend.push(RangeSpec(""))
    backend.push(RangeSpec("a\0b"))
    assert [call[1] for call in mstx.calls] == ["%%", "a%00b%%"]
    assert [unquoted(call[1]) for call in mstx.calls] == ["", "a\0b"]


class TestNpuBackend(BackendConformance):
    """The kit over the newest signatures."""

    @pytest.fixture(autouse=True)
    def with_wheel(self, wheel: Any) -> None:
        self.wheel = wheel

    def make(self) -> NpuBackend:
        class Numbered(NewMstx):
            """Each range has a number of its own, as in the library."""

            def range_start(self, *range_: Any) -> int:
                super().range_start(*range_)
                return len(self.calls)

        backend: NpuBackend = self.wheel(Numbered())
        return backend

    def usable(self, backend: Any) -> bool:
        return True


def test_spellings_of_the_accelerator_type() -> None:
    """``NPU``, ``ascend`` and ``Ascend`` are the backend ``npu``."""
    catalogue = get_catalogue()
    assert {catalogue.backend_class(name) for name in ("npu", "NPU", "ascend", "Ascend")} == {NpuBackend}


def test_abilities_are_read_from_the_source_where_the_wheel_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver without CANN still knows what its wheel's ``_ExperimentalConfig`` takes."""
    place = tmp_path / "torch_npu" / "profiler"
    place.mkdir(parents=True)
    (tmp_path / "torch_npu" / "__init__.py").write_text("raise RuntimeError('no CANN')\n")
    (place / "experimental_config.py").write_text(
        textwrap.dedent("""
            class Other:
                def __init__(self, something): ...
            class _ExperimentalConfig:
                def __init__(self, profiler_level=0, aic_metrics=0, l2_cache=False, msprof_tx=False): ...
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    vendor._parameters_in_source.cache_clear()
    try:
        assert vendor.config_parameters() == {"profiler_level", "aic_metrics", "l2_cache", "msprof_tx"}
        refused = NpuTool({"level": "level1", "host_sys": ["cpu"]}).check([])
        assert [problem.path for problem in refused] == ["tools.npu.host_sys"]
    finally:
        vendor._parameters_in_source.cache_clear()


def window(tmp_path: Path, rank: int = 0, sequence: int = 1, phase: str | None = None) -> WindowInfo:
    stem = tmp_path / "Group" / f"Group-r{rank}-s2-w{sequence:04d}-host-{os.getpid()}"
    return WindowInfo(f"w{rank}-{sequence}", sequence, (2,), phase, "step", str(stem))


def test_directories_of_one_window_share_a_parent_and_never_collide(tmp_path: Path) -> None:
    """Ranks of one window lie side by side; two windows of a rank lie apart; a phase's odd name stays inside."""
    assert directory.parent_of(window(tmp_path)) == directory.parent_of(window(tmp_path, rank=1))
    assert directory.parent_of(window(tmp_path)) != directory.parent_of(window(tmp_path, sequence=2))
    assert directory.worker_of(window(tmp_path)) != directory.worker_of(window(tmp_path, rank=1))
    odd = directory.parent_of(window(tmp_path, phase="../../x y"))
    assert Path(odd).resolve().parent == tmp_path / "Group"


def complete(place: Path) -> Path:
    """A directory as torch_npu and CANN leave it."""
    for file in ("profiler_info.json", "FRAMEWORK/torch.op_range", "PROF_000001_1_A/device_0/data/x"):
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).write_text('{"config": {"experimental_config": {"_export_type": ["db"]}}}')
    return place


@pytest.mark.parametrize(
    ("gone", "says"),
    [
        ("profiler_info.json", "not stopped in order"),
        ("FRAMEWORK/torch.op_range", "FRAMEWORK/"),
        ("PROF_000001_1_A/device_0/data/x", "CANN left no data"),
    ],
)
def test_success_is_what_lies_on_disk(tmp_path: Path, gone: str, says: str) -> None:
    """Each part that a complete directory has is missed by name, and only where the contents ask for it."""
    place = complete(tmp_path / "a_ascend_pt")
    assert directory.faults(str(place), ("npu", "cpu"), True) == []
    (place / gone).unlink()
    assert says in directory.faults(str(place), ("npu", "cpu"), True)[0]


def test_match_names_windows_and_faults(tmp_path: Path) -> None:
    """Directories go to their window by name; one that lacks data is partial with the reason."""
    info = window(tmp_path)
    good = complete(tmp_path / f"{directory.worker_of(info)}_77_20260101000000000_ascend_pt")
    bad = tmp_path / "other_ascend_pt"
    bad.mkdir()
    rows = NpuTool().match([str(good), str(bad), str(tmp_path / "x.json")], [info])
    assert [(row.windows, row.state) for row in rows] == [((info.id,), "complete"), ((), "partial")]
    assert rows[0].bytes > 0


def test_the_rank_is_written_where_torch_npu_could_not_know_it(tmp_path: Path) -> None:
    """Name and content carry the rank then; a rank that torch_npu wrote itself stays."""
    place = complete(tmp_path / "a_ascend_pt")
    directory.give_rank(str(place), 3)
    assert json.loads((place / "profiler_info_3.json").read_text())["rank_id"] == 3
    directory.give_rank(str(place), 5)
    assert directory.rank_of(str(place)) == 3
    assert directory.recorded_exports(str(place)) == ("db",)


def test_a_failed_or_older_analysis_is_not_done(tmp_path: Path) -> None:
    """Done = the wanted files, not empty, not older than the data, without a note of failure; ``analyse.done`` says nothing."""
    place = complete(tmp_path / "a_ascend_pt")
    output = place / directory.OUTPUT
    output.mkdir()
    (output / "analyse.done").touch()
    assert not directory.analysed(str(place), ["text"])
    result = output / "trace_view.json"
    result.write_text("")
    assert not directory.analysed(str(place), ["text"])
    result.write_text("[]")
    assert directory.analysed(str(place), ["text"])
    assert not directory.analysed(str(place), ["text", "db"])
    directory.note_failure(str(place), "why")
    assert (directory.analysed(str(place), ["text"]), directory.failure(str(place))) == (False, "why")
    (output / directory.FAILED).unlink()
    os.utime(result, (1, 1))
    assert not directory.analysed(str(place), ["text"])


def test_lines_of_torch_npu_are_caught_and_others_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Errors and warnings of this call are kept apart; what anybody else prints arrives unchanged."""
    said: list[str] = []
    with listening(said):
        print("[2026-01-31 12:00:00] [ERROR] [4711] profiler.py: Call start failed. Exception: no")
        print("mine")
        print("[2026-01-31 12:00:00] [WARNING] [4711] profiler.py: odd")
    assert said == ["Call start failed. Exception: no", "WARNING: odd"]
    assert capsys.readouterr().out == "mine\n"


class TestMsprofConformance(ToolConformance):
    """The kit's driver-side checks."""

    def make(self) -> MsprofTool:
        return MsprofTool()


def test_msprofs_command_is_a_list_that_keeps_odd_paths(tmp_path: Path) -> None:
    """Each option is one element; truth values are on and off; the directory is the target's own."""
    row = Assignment(Target("Group", rank=1), True, "msprof", mode="steps")
    place = tmp_path / "it's a dir"
    launch = MsprofTool({"ranges": False, "options": {"l2": True, "--delay": 3}}).launch(row, str(place))
    assert launch.argv == (
        "msprof",
        f"--output={place}/Group-r1-msprof",
        "--type=text",
        "--msproftx=off",
        "--l2=on",
        "--delay=3",
    )
    assert launch.make_dirs == (f"{place}/Group-r1-msprof",)
    assert "whole process" in launch.notes[0]


def test_msprof_refuses_what_it_would_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges under a wheel that sends none, and options that accelprof sets, are refused with the mend."""
    monkeypatch.setattr(msprof, "wheel_passes_ranges", lambda: False)
    problems = MsprofTool({"options": {"output": "/x"}}).check([])
    assert [problem.path for problem in problems] == ["tools.msprof.options.output", "tools.msprof.ranges"]
    assert MsprofTool({"ranges": False}).check([]) == []


def test_analyse_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch_npu, and without a directory to analyse, the reason is the message."""
    from accelprof_ascend import commands

    from accelprof.errors import UnavailableError, UserError

    monkeypatch.setattr(vendor, "reason_not_loadable", lambda: "torch_npu is not installed")
    found = CliRunner().invoke(commands.analyse, [str(tmp_path)])
    assert isinstance(found.exception, UnavailableError)
    monkeypatch.setattr(vendor, "reason_not_loadable", lambda: None)
    found = CliRunner().invoke(commands.analyse, [str(tmp_path)])
    assert isinstance(found.exception, UserError)
    assert "no *_ascend_pt directory" in str(found.exception)


def test_npu_compare_drives_msprof_analyze_and_keeps_its_workbook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths go in as they are, further arguments too; the workbook is shown; without one the status is 1."""
    from accelprof_ascend import commands

    from accelprof.errors import IncompleteError

    program = tmp_path / "bin" / "msprof-analyze"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys, json\na = sys.argv[1:]\nout = a[a.index('-o') + 1]\n"
        "open(out + '/seen.json', 'w').write(json.dumps(a))\n"
        "if '--fail' not in a: open(out + '/performance_comparison_result_1.xlsx', 'w').write(json.dumps(a))\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(commands.sys, "executable", str(program.parent / "python"))
    base, new, out = tmp_path / "ba se", tmp_path / "new", tmp_path / "out"
    base.mkdir()
    new.mkdir()
    arguments = [str(base), str(new), "-o", str(out), "--", "--disable_details"]
    found = CliRunner().invoke(commands.npu_compare, arguments)
    assert found.exit_code == 0, found.output
    given = json.loads((out / "performance_comparison_result_1.xlsx").read_text())
    assert given[:5] == ["compare", "-d", str(new), "-bp", str(base)]
    assert given[-1] == "--disable_details"
    assert [path.name for path in out.iterdir()] == ["performance_comparison_result_1.xlsx"]
    failed = CliRunner().invoke(commands.npu_compare, [*arguments, "--fail"])
    assert isinstance(failed.exception, IncompleteError)


@pytest.mark.parametrize(
    ("name", "task_type", "kind"),
    [
        ("BroadcastTo21", "AI_VECTOR_CORE", Kind.KERNEL),
        ("BroadcastTo21", "", Kind.KERNEL),
        ("broadcast", "ai_core", Kind.KERNEL),
        ("AllGatherMatmul", "MIX_AIC", Kind.KERNEL),
        ("AllReduceAdd", "", Kind.KERNEL),
        ("X/DSASTATELESSGENBITMASK", "DSA_SQE", Kind.KERNEL),
        ("model_1/dense/MatMul", "AI_CORE", Kind.KERNEL),
        ("stream_mix", "KERNEL_AIVEC", Kind.KERNEL),
        ("Memcpy_op", "AI_CPU", Kind.KERNEL),
        ("hcom_broadcast__1", "AI_CPU", Kind.COMMUNICATION),
        ("aiv_all_reduce_910b", "AI_VECTOR_CORE", Kind.COMMUNICATION),
        ("allReduce", "", Kind.COMMUNICATION),
        ("all_to_all_vc_2", "", Kind.COMMUNICATION),
        ("broadcast_", "", Kind.COMMUNICATION),
        ("MEMCPY_ASYNC", "SDMA", Kind.COPY),
        ("MODEL_EXECUTE", "", Kind.DEVICE_ANNOTATION),
        ("EVENT_WAIT", "EVENT_WAIT_SQE", Kind.DEVICE_ANNOTATION),
    ],
)
def test_a_task_is_what_its_unit_does(name: str, task_type: str, kind: Kind) -> None:
    """An operator on a unit that computes is compute whatever it is called; HCCL's own kernels are communication on any unit."""
    assert kinds.device_kind(name, task_type) is kind


def test_analyses_of_one_node_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight workers that close their windows at once analyse two at a time; a killed one gives its place back."""
    from accelprof_ascend import analysing

    package = tmp_path / "torch_npu" / "profiler"
    package.mkdir(parents=True)
    (tmp_path / "torch_npu" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "profiler.py").write_text(
        textwrap.dedent("""
        import os, time
        def analyse(profiler_path, max_process_number=1, export_type=None):
            with open(os.environ["SEEN"], "a") as file: file.write(f"begin {time.monotonic()}\\n")
            time.sleep(60 if "stuck" in profiler_path else 0.3)
            with open(os.environ["SEEN"], "a") as file: file.write(f"end {time.monotonic()}\\n")
    """)
    )
    monkeypatch.setattr(analysing, "slots", lambda: str(tmp_path))
    seen = tmp_path / "seen"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "SEEN": str(seen)}
    (tmp_path / "stuck").mkdir()
    stuck = analysing.Analysis(str(tmp_path / "stuck"), ("text",), environment, most=2)
    while not seen.exists():
        pass
    running = [analysing.Analysis(str(tmp_path), ("text",), environment, most=2) for _ in range(4)]
    assert stuck.wait(0.2).reason.startswith("not finished")
    for one in running:
        one.wait(60)
    rows = [line.split() for line in seen.read_text().splitlines()]
    assert [row[0] for row in rows].count("end") == 4
    at_a_time, most = -1, 0  # the one that was killed never ended
    for row in rows:
        at_a_time += 1 if row[0] == "begin" else -1
        most = max(most, at_a_time)
    assert most <= 2


def test_a_place_that_somebody_else_made_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that others could write, or a link, holds no locks: analyses then run without waiting."""
    from accelprof_ascend import analysing

    monkeypatch.setattr(analysing.tempfile, "gettempdir", lambda: str(tmp_path))
    place = Path(analysing.slots())
    assert place.parent == tmp_path
    place.chmod(0o777)
    assert analysing.slots() == ""
    place.rmdir()
    place.symlink_to(tmp_path)
    assert analysing.slots() == ""
