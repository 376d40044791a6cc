"""No dead words: each declaration, method and hook of the contracts is acted on by the core, and the place is written here."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import accelprof
from accelprof.contracts import hookspecs
from accelprof.contracts.backend import Backend, DeviceTimer, Probe
from accelprof.contracts.doctor import Check
from accelprof.contracts.targets import ArtifactFile, Expectation, Launch, Target
from accelprof.contracts.tool import Tool

CORE = Path(accelprof.__file__).parent

#: every public name of a contract: a file of the core that acts on it, and how it is asked there
BACKEND = {
    "name": ("catalogue.py", "backend.name"),
    "aliases": ("catalogue.py", "'aliases'"),
    "overlapping_ranges": ("session/window.py", "emitter.overlapping_ranges"),
    "bind": ("contracts/answers.py", "emitter.bind"),
    "mark": ("session/window.py", "emitter.mark"),
    "probe": ("contracts/answers.py", "thing.probe"),
    "push": ("contracts/backend.py", "self.push"),
    "pop": ("contracts/backend.py", "self.pop"),
    "start": ("contracts/backend.py", "self.start"),
    "end": ("contracts/backend.py", "self.end"),
    "capture_start": ("contracts/tool.py", "self.context.backend.capture_start"),
    "capture_stop": ("contracts/tool.py", "self.context.backend.capture_stop"),
    "step_begin": ("session/course.py", "self._backend.step_begin"),
    "step_end": ("session/course.py", "self._backend.step_end"),
    "devices": ("session/configure.py", "backend.devices"),
    "synchronize": ("session/captures.py", "self.backend.synchronize"),
    "device_timer": ("session/entering.py", "self._backend.device_timer"),
    "memory": ("session/memory.py", "backend.memory"),
}
TOOL = {
    "name": ("session/captures.py", "tool.name"),
    "aliases": ("catalogue.py", "'aliases'"),
    "Options": ("contracts/tool.py", "self.Options"),
    "exclusive": ("contracts/tool.py", "self.exclusive"),
    "accelerators": ("planning/decide.py", "tool.accelerators"),
    "normalise": ("planning/decide.py", "cls.normalise"),
    "meaning": ("contracts/tool.py", "other.tool.meaning"),
    "claims": ("contracts/tool.py", "other.tool.claims"),
    "check": ("planning/decide.py", "tool.check"),
    "probe": ("contracts/answers.py", "thing.probe"),
    "launch": ("launch/compose.py", "use.tool.launch"),
    "trigger": ("launch/preview.py", "uses[0].tool.trigger"),
    "emitter": ("contracts/answers.py", "tool.emitter"),
    "gate": ("contracts/tool.py", "self.gate"),
    "attach": ("session/configure.py", "tool.attach"),
    "expects": ("output/expected.py", "tool_of(name, options).expects"),
    "match": ("output/expected.py", "tool.match"),
    "can_read": ("analysis/reading.py", "catalogue.tool_class(name).can_read"),
    "read": ("analysis/reading.py", "tool_of(name).read"),
    "writes_chrome_trace": ("analysis/reading.py", "get_catalogue().tool_class(name).writes_chrome_trace"),
    "has_spans": ("analysis/reading.py", "catalogue.tool_class(tool).has_spans"),
    "figures": ("analysis/reading.py", "tool_of(name).figures"),
    "records_from_outside": ("output/requests.py", "tool.records_from_outside"),
    "record_from_outside": ("output/requests.py", "here[key].record_from_outside"),
    "withdraw": ("output/requests.py", "tool.withdraw"),
    "host_calls": ("analysis/reading.py", "catalogue.tool_class(trace.tool).host_calls"),
    "count": ("session/triggers/demand.py", "tool.count"),
    "on_demand": ("session/triggers/demand.py", "tool.on_demand"),
    "thread": ("session/captures.py", "tool.thread"),
    "schedule": ("session/captures.py", "tool.schedule"),
    "open": ("session/captures.py", "tool.open"),
    "close": ("session/captures.py", "tool.close"),
    "step": ("session/captures.py", "tool.step"),
    "stop": ("session/captures.py", "tool.stop"),
    "tick": ("session/captures.py", "tool.tick"),
    "warm_up": ("session/captures.py", "tool.warm_up"),
    "abandon": ("session/captures.py", "tool.abandon"),
    "finalise": ("session/captures.py", "tool.finalise"),
}
HOOKS = {
    name: (place, repr(name))
    for name, place in {
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
        "accelprof_metrics": "cluster/controller.py",
        "accelprof_step_begin": "session/hooks.py",
        "accelprof_step_end": "session/hooks.py",
        "accelprof_window_opened": "session/hooks.py",
        "accelprof_window_closed": "session/hooks.py",
        "accelprof_artifact": "output/delivery.py",
        "accelprof_run_pages": "output/delivery.py",
        "accelprof_run_end": "output/delivery.py",
    }.items()
}


#: the same of what plug-ins answer
ANSWERS: dict[type, dict[str, tuple[str, str]]] = {
    Probe: {
        "priority": ("catalogue.py", "probe.priority"),
        "available": ("catalogue.py", "probe.available"),
        "reason": ("catalogue.py", "probe.reason"),
        "facts": ("cli/doctor.py", "probe.facts"),
    },
    Launch: {
        "mode": ("cluster/options.py", "launch.mode"),
        "argv": ("launch/command.py", "launch.argv"),
        "env": ("launch/compose.py", "launch.env"),
        "unset_in_children": ("launch/compose.py", "launch.unset_in_children"),
        "make_dirs": ("launch/command.py", "launch.make_dirs"),
        "preflight": ("cluster/options.py", "launch.preflight"),
        "notes": ("launch/preview.py", "launch.notes"),
    },
    Expectation: {
        "pattern": ("output/expected.py", "wait.what.pattern"),
        "count": ("output/expected.py", "expectation.count"),
        "when": ("output/expected.py", "expectation.when"),
        "instead": ("output/expected.py", "wait.what.instead"),
    },
    ArtifactFile: {
        name: ("output/records.py", f"file.{name}") for name in ("path", "tool", "windows", "bytes", "state", "reason")
    },
    Check: {name: ("cli/doctor.py", f"row.{name}") for name in ("area", "name", "status", "detail", "mend")},
}


def read_in(path: Path) -> set[str]:
    """Attributes that a module reads, as they are written there with whose they are, and texts that it passes."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        read = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        if read or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            found.add(ast.unparse(node))
    return found


def names(cls: type) -> list[str]:
    return [name for name in dir(cls) if not name.startswith("_")]


@pytest.mark.parametrize(
    ("contract", "places"),
    [
        (names(Backend), BACKEND),
        (names(Tool), TOOL),
        *((names(cls), places) for cls, places in ANSWERS.items()),
        ([n for n in vars(hookspecs) if n.startswith("accelprof_")], HOOKS),
    ],
    ids=["backend", "tool", *(cls.__name__ for cls in ANSWERS), "hooks"],
)
def test_each_word_of_a_contract_is_read_by_the_core(contract, places):
    """Every declaration, method and hook stands in the table above, and the file named there asks it of what the contract is of."""
    assert {*contract} == {*places}
    for name, (place, asked) in places.items():
        assert asked.endswith((f".{name}", repr(name)))
        assert asked in read_in(CORE / place), f"{place} does not ask {asked}"


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
