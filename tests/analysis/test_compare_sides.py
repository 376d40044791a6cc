"""Two sides compared: figures of real reports, and every reason not to compare."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from accelprof.analysis.compare import compare
from accelprof.catalogue import get_registry
from accelprof.cli.compare import compare as command
from accelprof.errors import NotComparableError

Event = Callable[..., dict[str, Any]]


@pytest.fixture
def reports(shared: Path, tmp_path: Path) -> Any:
    """``reports(name, *statements)``: a sample report, changed by SQL when statements are given."""
    if "nsys" not in get_registry().tool_names():
        pytest.skip("accelprof-cuda, which reads nsys reports, is not installed")

    def report(name: str, *statements: str) -> str:
        source = shared / f"samples/nsys-ai/mfu_2gpu_{name}.sqlite"
        if not statements:
            return str(source)
        copy = tmp_path / f"{name}.sqlite"
        shutil.copyfile(source, copy)
        with sqlite3.connect(copy) as database:
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
    """Each change of the swapped comparison is the negative, to the last digit."""
    one, other = reports("before"), reports("after")
    there = {(row.measure, row.name): row for row in compare(one, other).changes}
    back = {(row.measure, row.name): row for row in compare(other, one).changes}
    assert there.keys() == back.keys()
    for key, row in there.items():
        if row.delta_ns is None or row.change is None:
            assert back[key].delta_ns is None
            continue
        assert back[key].delta_ns == -row.delta_ns
        assert back[key].change == -row.change


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


def test_a_missing_rank_and_an_unopened_window(run_maker: Any, event: Event, tmp_path: Path) -> None:
    """A rank that is only in one run, and a run that did not deliver, are refused by name."""
    run_maker.timeline(run_maker.target(0), [event("update", 0, 100)])
    one = shutil.copytree(run_maker.write(), tmp_path / "one")
    run_maker.timeline(run_maker.target(1), [event("update", 0, 100)])
    two = shutil.copytree(run_maker.write(), tmp_path / "two")
    with pytest.raises(NotComparableError, match="ActorGroup/rank1 is only in after"):
        compare(one, two)
    run_maker.manifest["targets"][1]["windows_opened"] = 0
    run_maker.manifest["windows"] = run_maker.manifest["windows"][:1]
    with pytest.raises(NotComparableError, match="after is not complete: ActorGroup/rank1: armed, but no window"):
        compare(two, run_maker.write())


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
