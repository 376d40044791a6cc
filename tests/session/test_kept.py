"""What is left on the disk: nothing of a configuration that is switched off, and what is asked of each process otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import accelprof
from accelprof.config.load import load_config
from accelprof.contracts.targets import Target
from accelprof.planning.kept import keeps, keeps_anything
from accelprof.planning.plan import Plan

#: configuration, and what is kept of a process of rank 1, of the same where its rows alone are heard of, and under a controller
KEPT: list[tuple[dict[str, Any], tuple[bool, bool, bool]]] = [
    ({"steps": [1]}, (False, False, True)),
    ({"steps": [1], "ranks": "all"}, (True, True, True)),
    ({"recorder": {}}, (True, True, True)),
    ({"export": {"jsonl": {}}}, (False, True, True)),
    ({"on_demand": True, "ranks": [0]}, (False, False, True)),
    ({"controller": {}}, (False, False, False)),
    ({"steps": [1], "groups": {"G": {"steps": []}}, "controller": {"tool": "torch"}}, (False, False, True)),
    ({}, (False, False, False)),
]


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize(("config", "kept"), KEPT)
def test_what_a_configuration_keeps(config: dict[str, Any], kept: tuple[bool, bool, bool], enabled: bool) -> None:
    """``enabled: false`` keeps nothing, whatever else stands in the file."""
    loaded = load_config({**config, "enabled": enabled}).config
    plan = Plan(loaded)
    other = plan.assign(Target("G", rank=1, world_size=2))
    found = keeps(loaded, other), keeps(loaded, other, exports=True), keeps_anything(plan)
    assert found == (kept if enabled else (False, False, False))


@pytest.mark.parametrize(
    "config", [{"recorder": {}}, {"export": {"jsonl": {}}}, {"recorder": {}, "export": {"jsonl": {}}, "steps": [1]}]
)
def test_a_process_that_is_switched_off_leaves_nothing(tmp_path: Path, config: dict[str, Any]) -> None:
    """No directory, and no manifest that calls it complete; with ``enabled`` there is one."""
    for enabled in (False, True):
        values = {**config, "enabled": enabled, "output_dir": str(tmp_path / "out"), "run": "r"}
        session = accelprof.configure(values, group="G", rank=0, world_size=1)
        assert (session.course.recorder is not None) == (enabled and "recorder" in config)
        with session.step(1):
            pass
        accelprof.reset()
        assert (tmp_path / "out" / "r" / "manifest.json").exists() == enabled
        assert list(tmp_path.iterdir()) == ([tmp_path / "out"] if enabled else [])


def test_a_controller_that_is_switched_off_leaves_nothing(tmp_path: Path) -> None:
    """Nor does one that profiles the driver and opens no window there; one that exports has a run for what it writes."""
    pytest.importorskip("ray")
    from accelprof.cluster import Controller

    for values in ({"recorder": {}, "controller": {}, "enabled": False}, {"controller": {}}):
        run = Controller(**values, output_dir=str(tmp_path / "out"))
        run.close()
        assert (run.run_dir, run.session) == (None, None)
        assert list(tmp_path.iterdir()) == []
    run = Controller(export={"jsonl": {}}, output_dir=str(tmp_path / "out"), run="r")
    with run.step(1):
        pass
    run.close()
    told = json.loads((tmp_path / "out" / "r" / "manifest.json").read_text())
    assert (told["status"], told["undelivered"]) == ("complete", [])
    assert len((tmp_path / "out" / "r" / "steps.jsonl").read_text().splitlines()) == 1
