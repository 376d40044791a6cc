"""No dead words: each declaration, method and hook of the contracts is acted on by the core, and the place is written here."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import accelprof
from accelprof.contracts import hookspecs
from accelprof.contracts.backend import Backend, DeviceTimer
from accelprof.contracts.targets import Target
from accelprof.contracts.tool import Tool

CORE = Path(accelprof.__file__).parent

#: every public name of a contract, and a file of the core that reads it
BACKEND = {
    "name": "catalogue.py",
    "aliases": "catalogue.py",
    "overlapping_ranges": "session/window.py",
    "bind": "contracts/answers.py",
    "mark": "session/window.py",
    "probe": "contracts/answers.py",
    "push": "contracts/backend.py",
    "pop": "contracts/backend.py",
    "start": "contracts/backend.py",
    "end": "contracts/backend.py",
    "capture_start": "contracts/tool.py",
    "capture_stop": "contracts/tool.py",
    "step_begin": "session/course.py",
    "step_end": "session/course.py",
    "devices": "session/configure.py",
}
TOOL = {
    "name": "catalogue.py",
    "aliases": "catalogue.py",
    "Options": "contracts/tool.py",
    "exclusive": "contracts/tool.py",
    "accelerators": "planning/decide.py",
    "normalise": "planning/decide.py",
    "meaning": "contracts/tool.py",
    "claims": "contracts/tool.py",
    "check": "planning/decide.py",
    "probe": "contracts/answers.py",
    "launch": "launch/compose.py",
    "trigger": "launch/preview.py",
    "emitter": "contracts/answers.py",
    "gate": "contracts/tool.py",
}
HOOKS = {
    "accelprof_backends": "catalogue.py",
    "accelprof_tools": "catalogue.py",
    "accelprof_exporters": "catalogue.py",
    "accelprof_dialects": "catalogue.py",
    "accelprof_presets": "catalogue.py",
    "accelprof_detect_dialect": "catalogue.py",
    "accelprof_doctor": "cli/doctor.py",
    "accelprof_cli": "cli/main.py",
    "accelprof_worker_identity": "session/configure.py",
    "accelprof_plan_ready": "session/configure.py",
    "accelprof_launch_modify": "launch/compose.py",
}
#: read somewhere in these rooms, which are being rebuilt; the file may change
SOMEWHERE = {
    "synchronize": ("session", "timing"),
    "device_timer": ("session", "timing"),
    "memory": ("session", "cli", "engines", "analysis", "timing"),
    "count": ("session",),
    "attach": ("session",),
    "expects": ("output", "launch"),
    "match": ("output", "launch"),
    "can_read": ("analysis", "reading"),
    "read": ("analysis", "reading"),
    "writes_chrome_trace": ("analysis", "reading"),
    "accelprof_metrics": ("cluster", "session", "exporters"),
    "on_demand": ("session",),
    "thread": ("session",),
    "schedule": ("session",),
    "open": ("session",),
    "close": ("session",),
    "step": ("session",),
    "stop": ("session",),
    "tick": ("session",),
    "warm_up": ("session",),
    "abandon": ("session",),
    "finalise": ("session",),
    "accelprof_step_begin": ("session",),
    "accelprof_step_end": ("session",),
    "accelprof_window_opened": ("session",),
    "accelprof_window_closed": ("session",),
    "accelprof_artifact": ("cluster", "output"),
    "accelprof_run_end": ("cluster", "output"),
}


def read_in(path: Path) -> set[str]:
    """Attributes that a module reads, and texts that it passes."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def names(cls: type) -> list[str]:
    return [name for name in dir(cls) if not name.startswith("_")]


@pytest.mark.parametrize(
    ("contract", "places"),
    [
        (names(Backend), BACKEND),
        (names(Tool), TOOL),
        ([n for n in vars(hookspecs) if n.startswith("accelprof_")], HOOKS),
    ],
    ids=["backend", "tool", "hooks"],
)
def test_each_word_of_a_contract_is_read_by_the_core(contract, places):
    """Every declaration, method and hook stands in the table above, and the file named there reads it."""
    assert {*contract} - {*places} - {*SOMEWHERE} == set()
    assert {*places} - {*contract} == set()
    for name, place in places.items():
        assert name in read_in(CORE / place), f"{place} does not read {name}"


@pytest.mark.parametrize("name", sorted(SOMEWHERE))
def test_what_a_room_reads_it_reads(name):
    """Words that the session and the delivery act on are read in their rooms."""
    files = [path for room in SOMEWHERE[name] for path in (CORE / room).rglob("*.py")]
    assert [path for path in files if name in read_in(path)], name


def test_a_device_timer_has_what_the_timers_use():
    """A device timer is begun, finished and resolved, the last inside what it wants entered; nothing else is asked of it."""
    assert names(DeviceTimer) == ["begin", "finish", "reading", "resolve"]


def test_the_old_name_of_the_trigger_call_works_and_warns():
    """A third party's ``gate`` counts for one release: ``trigger`` gives its answer, with a warning that names the class."""

    class Old(Tool):
        name = "old"

        def gate(self, target):
            return "pause" if target.rank else super().gate(target)

    class New(Tool):
        name = "new"

        def trigger(self, target):
            return "range"

    with pytest.warns(DeprecationWarning, match=r"Old\.gate\(\) is trigger\(\) now"):
        assert Old().trigger(Target("G", rank=1)) == "pause"
    with pytest.warns(DeprecationWarning, match="trigger"):
        assert Old().trigger(Target("G", rank=0)) == "api"
    with pytest.warns(DeprecationWarning, match=r"New\.gate"):
        assert New().gate(Target("G", rank=0)) == "range"
    assert Tool().trigger(Target("G", rank=0)) == "api"
