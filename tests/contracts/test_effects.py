"""Each word of a contract does something: a declaration, a method, a hook or a field of an answer is shown by a test, here or where
this page says."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner

import accelprof
from accelprof.analysis import read_any
from accelprof.catalogue import Catalogue, get_catalogue, make_catalogue, reset_catalogue
from accelprof.cli.main import cli
from accelprof.config.dialect import Dialect, Translation
from accelprof.contracts import hookspecs
from accelprof.contracts.backend import Backend, DeviceTimer, Probe
from accelprof.contracts.doctor import Check
from accelprof.contracts.exporter import Exporter, ExporterOptions
from accelprof.contracts.spans import Kind, Span, Trace
from accelprof.contracts.targets import ArtifactFile, Assignment, Expectation, Launch, Target
from accelprof.contracts.tool import Tool, ToolOptions
from accelprof.errors import ConfigError, Problem
from accelprof.launch.preview import preview
from accelprof.output.expected import Expected, await_files
from accelprof.output.layout import Layout
from accelprof.output.manifest import read_journals
from accelprof.output.nodes import ThisHost
from accelprof.output.records import Manifest, Moment, TargetRow, WindowRow
from accelprof.planning.presets import Preset, Site
from accelprof.testing import Captured, RecordingBackend, RecordingTool, capture

ROOT = Path(__file__).parents[2]
CONTRACTS = (Backend, DeviceTimer, Tool, Exporter, Probe, Launch, Expectation, ArtifactFile, Check)

#: words whose effect is shown by a test of another file
ELSEWHERE = {
    "tests/test_catalogue.py": {
        "test_names_and_aliases_without_regard_to_case": ["Backend.aliases", "Backend.name"],
        "test_detection_order": ["Backend.probe", "Probe.priority"],
        "test_unavailable_keeps_its_reason": ["Probe.available", "Probe.reason"],
        "test_options_reach_a_tool_under_any_of_its_names": ["Tool.aliases"],
        "test_two_tools_in_one_process": ["Tool.exclusive"],
        "test_broken_entry_points_stop_nobody": ["accelprof_backends"],
    },
    "tests/test_plugins.py": {"test_a_plugin_may_name_the_dialect": ["accelprof_detect_dialect"]},
    "tests/cli/test_main.py": {"test_plug_ins_bring_commands": ["accelprof_cli"]},
    "tests/cli/test_doctor.py": {"test_facts_of_a_backend_stand_beside_its_reason": ["Probe.facts"]},
    "tests/planning/test_decide.py": {
        "test_the_driver_alone_hears_that_the_plan_is_ready": ["accelprof_plan_ready"],
    },
    "tests/launch/test_run.py": {
        "test_what_children_do_not_inherit_is_what_the_driver_says": ["accelprof_launch_modify"],
    },
    "tests/cluster/test_wrapped_ray.py": {
        "test_a_launcher_that_does_not_start_is_an_error_here": ["Launch.preflight"],
    },
    "tests/cluster/test_collect_files.py": {
        "test_one_living_process_at_a_time_is_started_under_the_tool": [
            "Launch.argv", "Launch.make_dirs", "Launch.mode", "Launch.unset_in_children",
        ],
        "test_how_long_a_report_is_waited_for": ["Expectation.count", "Expectation.when"],
    },
    "tests/session/test_windows.py": {
        "test_begin_without_end": ["Backend.capture_start", "Backend.capture_stop"],
        "test_backends_without_overlapping_ranges_get_marks": ["Backend.overlapping_ranges"],
        "test_windows_stay_on_the_thread_that_works": ["Tool.thread"],
    },
    "tests/session/test_drain.py": {
        "test_the_device_is_waited_for_once_before_a_capture_stops": ["Backend.synchronize"],
    },
    "tests/session/test_memory_of_steps.py": {"test_each_step_has_its_memory": ["Backend.memory"]},
    "tests/session/test_slow_writing.py": {"test_files_are_written_behind_the_training": ["Tool.stop"]},
    "tests/session/test_schedule_property.py": {
        "test_schedules_agree_with_the_slow_model": ["Tool.abandon", "Tool.warm_up"],
    },
    "tests/session/test_requests.py": {
        "test_a_tool_told_its_count_says_no": ["Tool.count"],
        "test_a_worker_that_is_held_is_recorded_by_any_tool_that_can": [
            "Tool.record_from_outside", "Tool.records_from_outside", "Tool.withdraw",
        ],
    },
    "tests/session/test_owners.py": {
        "test_hooks_get_facts_that_cannot_be_changed": [
            "accelprof_step_begin", "accelprof_step_end", "accelprof_window_closed", "accelprof_window_opened",
        ],
    },
    "tests/output/test_own_run.py": {
        "test_pages_come_by_a_hook_and_what_goes_wrong_is_said": ["accelprof_run_pages"],
    },
    "tests/contracts/test_declarations.py": {
        "test_the_old_name_of_the_trigger_call_works_and_warns": ["Tool.gate"],
    },
    "tests/contracts/test_event_timer.py": {
        "test_a_phase_in_a_graph_capture_has_no_device_time_and_ends_none": [
            "Backend.device_timer", "DeviceTimer.begin", "DeviceTimer.finish", "DeviceTimer.resolve",
        ],
        "test_a_place_to_read_that_fails_costs_times_and_nothing_else": ["DeviceTimer.reading"],
    },
    "tests/reading/test_memory_snapshot.py": {
        "test_files_without_spans_are_listed_whoever_brings_their_tool": ["Tool.figures", "Tool.has_spans"],
    },
    "tests/reading/test_chrome_reader.py": {
        "test_calls_that_wait_are_those_that_the_tool_names": ["Tool.writes_chrome_trace"],
    },
    "tests/analysis/test_lost_launches.py": {"test_a_third_partys_tool_says_its_own": ["Tool.host_calls"]},
    "tests/exporters/test_host.py": {
        "test_one_failing_exporter_is_said_once_and_the_others_get_everything": [
            "Exporter.close", "Exporter.finish", "Exporter.start", "Exporter.step",
        ],
    },
}  # fmt: skip

_here: dict[str, list[str]] = {}


def shows(*words: str) -> Callable[[Any], Any]:
    """The test shows what each of these words does."""

    def mark(test: Any) -> Any:
        for word in words:
            _here.setdefault(word, []).append(test.__name__)
        return test

    return mark


def plugin(**hooks: Callable[..., object]) -> SimpleNamespace:
    return SimpleNamespace(**{name: hookspecs.hookimpl(function) for name, function in hooks.items()})


@pytest.fixture
def catalogue() -> Catalogue:
    made = make_catalogue(entry_points=False)
    made.put([RecordingBackend], [RecordingTool])
    return made


@pytest.fixture
def process() -> Iterator[Catalogue]:
    """This process's catalogue, forgotten afterwards."""
    reset_catalogue()
    yield get_catalogue()
    reset_catalogue()


def row_of(catalogue: Catalogue, **config: object) -> dict[str, Any]:
    (row,) = preview(catalogue, catalogue.plan(catalogue.load({"steps": [1], **config}).config))
    return row


def steps(run: Captured, *numbers: int) -> None:
    for number in numbers:
        with run.session.step(number):
            pass


def started(catalogue: Catalogue, run_dir: Path, tool: str) -> tuple[Assignment, Path, Manifest]:
    """What a plan gives rank 0 with ``tool``, its directory, and the rows of a run in which it opened one window."""
    assignment = catalogue.plan(catalogue.load({"steps": [1], "tool": tool}).config).assign(Target("G", rank=0))
    place = Path(Layout(str(run_dir)).target_dir(assignment.target))
    place.mkdir()
    known = Manifest()
    known.targets["k"] = TargetRow("k", "G", rank=0, host=os.uname().nodename, pid=1)
    known.windows["w"] = WindowRow("w", "k", [1], kind="step", stem="x", tools=[tool], opened=Moment.now())
    return assignment, place, known


# --- backends -----------------------------------------------------------------------------------------------------------


@shows("Backend.push", "Backend.pop", "Backend.start", "Backend.end", "Backend.mark", "Backend.bind")
def test_ranges_go_to_the_backend_while_a_window_is_open() -> None:
    """Plain code pushes and pops, a coroutine starts and ends, a mark is left; each label is bound once a window, and outside nothing is called."""
    bound = []

    class Bound(RecordingBackend):
        name = "bound"
        aliases = ()

        def bind(self, spec: Any) -> Any:
            bound.append(spec.label)
            return super().bind(spec)

    @accelprof.timer("plain")
    def plain() -> None:
        pass

    @accelprof.timer("coroutine")
    async def coroutine() -> None:
        pass

    def work() -> None:
        plain()
        plain()
        asyncio.run(coroutine())
        accelprof.mark("here")

    with capture(backend=Bound, steps=[2]) as run:
        for number in (1, 2, 3):
            with run.session.step(number):
                work()
        calls = [(call.name, call.what) for call in run.backend.calls if call.what in ("plain", "coroutine", "here")]
    pair = [("push", "plain"), ("pop", "plain")]
    assert calls == [*pair, *pair, ("start", "coroutine"), ("end", "coroutine"), ("mark", "here")]
    assert sorted(set(bound) & {"plain", "coroutine"}) == sorted(label for label in bound if label != "here")


@shows("Backend.step_begin", "Backend.step_end")
def test_a_backend_hears_of_every_step() -> None:
    """With a window or without one, around what is done in it."""
    with capture(steps=[2]) as run:
        steps(run, 1, 2)
        told = [(call.name, call.what) for call in run.backend.calls if call.name.startswith("step_")]
    assert told == [("step_begin", 1), ("step_end", 1), ("step_begin", 2), ("step_end", 2)]


@shows("Backend.devices")
@pytest.mark.parametrize("devices", [[], [{"index": 0, "name": "pretended"}]])
def test_whether_a_process_has_devices_is_what_its_backend_lists(devices: list[dict[str, object]]) -> None:
    """The target that tools get says it."""

    class Has(RecordingBackend):
        name = "has"
        aliases = ()

        def devices(self) -> Any:
            return devices

    with capture(backend=Has, steps=[1]) as run:
        assert run.tool.context.target.has_devices is bool(devices)


# --- tools --------------------------------------------------------------------------------------------------------------


@shows("Tool.name", "Tool.attach", "Tool.open", "Tool.step", "Tool.close", "Tool.finalise")
def test_a_tool_is_led_through_a_window_by_its_name() -> None:
    """Attached with its context, opened, told of a further step, closed, and asked at the end what it has left; the row has its name."""
    with capture(steps=[1, 2], merge_steps=True) as run:
        context = run.tool.context
        assert context.target == run.session.target
        assert not os.path.isdir(context.directory)
        steps(run, 1, 2)
        assert os.path.isdir(context.directory)
        run.session.close()
        assert [(call.name, call.what) for call in run.tool.calls if call.name != "finalise"] == [
            ("open", 1), ("step", 2), ("close", 1),
        ]  # fmt: skip
        assert run.tool.calls[-1].name == "finalise"
        assert run.session.windows[0].tools == ["recording", "trace"]


class Deep(ToolOptions):
    depth: int = 1
    owns: str = ""


class WithOptions(RecordingTool):
    name: ClassVar[str] = "deep"
    Options = Deep

    @classmethod
    def normalise(cls, options: Any) -> dict[str, object]:
        return {{"d": "depth"}.get(key, key): value for key, value in options.items()}

    def claims(self, target: Target) -> frozenset[str]:
        return frozenset({self.options.owns} - {""})

    def check(self, assignments: Any) -> list[Problem]:
        deep = self.options.depth > 3 and [row.target.label for row in assignments]
        return [Problem("tools.deep.depth", f"too deep for {', '.join(deep)}")] if deep else []


class Other(WithOptions):
    name: ClassVar[str] = "other"


@shows("Tool.Options", "Tool.normalise")
def test_options_are_what_the_tool_declares(catalogue: Catalogue) -> None:
    """In its own spelling wherever they are read, and refused at their path where it has none such."""
    catalogue.put(tools=[WithOptions])
    (used,) = row_of(catalogue, tool="deep", tools={"deep": {"d": 2}})["tools"]
    assert used["options"] == {"depth": 2, "owns": ""}
    assert catalogue.make_tool("deep", {"d": "3"}).options.depth == 3
    with pytest.raises(ConfigError, match=r"tools\.deep\.dpth: .*depth"):
        catalogue.make_tool("deep", {"dpth": 2})


@shows("Tool.check")
def test_what_a_tool_objects_to_refuses_the_plan(catalogue: Catalogue) -> None:
    """With its words, before anything starts."""
    catalogue.put(tools=[WithOptions])
    with pytest.raises(ConfigError, match=r"tools\.deep\.depth: too deep for .*/rank0"):
        row_of(catalogue, tool="deep", tools={"deep": {"depth": 4}})


@shows("Tool.claims")
@pytest.mark.parametrize(("owns", "together"), [(("x", "y"), True), (("x", "x"), False), (("", ""), True)])
def test_two_tools_that_claim_one_thing_are_not_for_one_process(
    catalogue: Catalogue, owns: tuple[str, str], together: bool
) -> None:
    """What they claim may hang on their options."""
    catalogue.put(tools=[WithOptions, Other])
    rules = [{"roles": "a", "tool": "deep"}, {"roles": "b", "tool": "other"}]
    tools = {name: {"owns": owned} for name, owned in zip(("deep", "other"), owns, strict=True)}
    config = catalogue.load({"steps": [1], "groups": {"G": rules}, "tools": tools}).config
    if together:
        assert catalogue.plan(config).assign(Target("G", ("a", "b"), 0)).tools == ("deep", "other", "trace")
    else:
        with pytest.raises(ConfigError, match="both own x"):
            catalogue.plan(config)


@shows("Tool.meaning")
@pytest.mark.parametrize("depths", [(1, 2), (1, 3)])
def test_two_uses_of_a_tool_in_one_process_are_one_where_they_mean_the_same(
    catalogue: Catalogue, depths: tuple[int, int]
) -> None:
    """The tool says what its options come to; otherwise the two contradict each other."""

    class Means(WithOptions):
        name: ClassVar[str] = "means"

        def meaning(self) -> dict[str, object]:
            return {"deep": self.options.depth > 2}

    catalogue.put(tools=[Means])
    rules = [
        {"roles": role, "tool": "means", "options": {"depth": depth}}
        for role, depth in zip(("a", "b"), depths, strict=True)
    ]
    config = catalogue.load({"steps": [1], "groups": {"G": rules}}).config
    if max(depths) <= 2:
        assert catalogue.plan(config).assign(Target("G", ("a", "b"), 0)).tools == ("means", "trace")
    else:
        with pytest.raises(ConfigError, match="contradict each other"):
            catalogue.plan(config)


@shows("Tool.accelerators")
def test_a_tool_serves_the_accelerators_that_it_declares(catalogue: Catalogue) -> None:
    """Another is refused with those that it serves; without any it serves all."""

    class Only(RecordingTool):
        name: ClassVar[str] = "only"
        accelerators = frozenset({"cuda"})

    catalogue.put(tools=[Only])
    assert row_of(catalogue, tool="recording", accelerator="recorder")["tool"] == "recording"
    with pytest.raises(ConfigError, match="only does not serve accelerator 'recorder'.*allowed: accelerator: cuda"):
        row_of(catalogue, tool="only", accelerator="recorder")


@shows("Tool.probe", "Tool.launch", "Tool.trigger", "Launch.env", "Launch.notes")
def test_what_a_tool_says_of_a_start_is_shown_before_it(catalogue: Catalogue) -> None:
    """Whether it is here, its variables, its notes, and what opens its windows."""

    class Starts(RecordingTool):
        name: ClassVar[str] = "starts"

        def probe(self) -> Probe:
            return Probe(None, "its program is not installed")

        def launch(self, assignment: Any, directory: str) -> Launch:
            return Launch("env", env={"STARTS": directory}, notes=("mind this",))

        def trigger(self, target: Target) -> Any:
            return "range"

    catalogue.put(tools=[Starts])
    row = row_of(catalogue, tool="starts")
    assert row["available"] is False
    assert row["notes"][-2:] == ["tool starts is not available here: its program is not installed", "mind this"]
    assert row["env"]["STARTS"] == row["tools"][0]["directory"]
    assert row["trigger"] == "range"


@shows("Tool.schedule", "Tool.tick")
@pytest.mark.parametrize("counting", ["native", "ours"])
def test_a_tool_that_counts_a_schedule_itself_hears_of_its_calls(counting: Any) -> None:
    """In warm-up and window a call that ends and is followed by another is told; a tool that does not count is opened and closed alone."""
    heard: list[str] = []

    class Counts(RecordingTool):
        name: ClassVar[str] = "native"
        schedule = counting

        def warm_up(self, window: Any) -> None:
            heard.append("warm up")

        def tick(self) -> None:
            heard.append("tick")

        def open(self, window: Any) -> None:
            heard.append("open")
            super().open(window)

        def close(self, window: Any) -> list[ArtifactFile]:
            heard.append("close")
            return super().close(window)

    schedule = {"phase": "decode", "wait": 1, "warmup": 2, "active": 3, "repeat": 1}
    with capture(tool="native", tools=(Counts,), schedule=schedule):
        decode = accelprof.timer("decode")(lambda: heard.append("call"))
        for _ in range(7):
            decode()
    plain, told = ["call"], ["call", "tick"]
    if counting == "ours":
        assert heard == [*plain * 3, "open", *plain * 3, "close", *plain]
    else:
        assert heard == [*plain, "warm up", *told * 2, "open", *told * 2, *plain, "close", *plain]


@shows("Tool.emitter")
def test_ranges_go_where_the_tool_says() -> None:
    """To its own emitter, and not to the backend."""
    own = RecordingBackend()

    class Emits(RecordingTool):
        name: ClassVar[str] = "emits"

        def emitter(self, backend: Any) -> Any:
            return own

    with capture(tool="emits", tools=(Emits,), steps=[1]) as run:
        with run.session.step(1):
            accelprof.timer("work")(lambda: None)()
        assert "work" not in run.backend.labels()
    assert own.labels() == ["work"]


@shows("Tool.on_demand")
def test_a_tool_may_take_planned_windows_alone() -> None:
    """Who asks for another is told so, and nothing opens."""

    class Planned(RecordingTool):
        name: ClassVar[str] = "planned"
        on_demand = False

    with capture(tool="planned", tools=(Planned, RecordingTool), steps=[9], on_demand=True) as run:
        assert run.session.demand.open(1.0) == ("refused", "tool planned takes no window that was not planned")
        assert run.session.windows == []
    with capture(steps=[9], on_demand=True) as run:
        assert run.session.demand.open(1.0)[0] == "open"


@shows("Expectation.instead")
def test_what_stands_in_a_files_place_ends_the_waiting(process: Catalogue, tmp_path: Path) -> None:
    """Nobody waits the whole time for a report that its tool could not make; what it left is among the files."""

    class Raw(RecordingTool):
        name: ClassVar[str] = "raw"

        def expects(self, assignment: Any, directory: str) -> list[Expectation]:
            return [Expectation(f"{directory}/*.rep", 1, "process_exit", f"{directory}/*.raw")]

    process.put(tools=[Raw])
    assignment, place, known = started(process, tmp_path, "raw")
    (place / "of it.raw").write_text("abc")
    expected = [Expected(assignment, ("G", 0, None), host=os.uname().nodename, ended=True)]
    began = time.monotonic()
    rows, _ = await_files(process.make_tool, expected, str(tmp_path), known, ThisHost(), 60.0)
    assert time.monotonic() - began < 30.0
    assert [os.path.basename(row.path) for row in rows] == ["of it.raw"]


@shows("Tool.expects", "Tool.match", "Expectation.pattern")
@pytest.mark.parametrize("there", [True, False])
def test_the_file_that_a_tool_expects_is_looked_for_and_matched(
    process: Catalogue, tmp_path: Path, there: bool
) -> None:
    """In the directory of its target, by its pattern; it holds what the tool says, and one that is not there is a lack with its name."""

    class Leaves(RecordingTool):
        name: ClassVar[str] = "leaves"

        def expects(self, assignment: Any, directory: str) -> list[Expectation]:
            return [Expectation(f"{directory}/*.rep", 1, "process_exit")]

        def match(self, files: Any, windows: Any) -> list[ArtifactFile]:
            return [ArtifactFile(path, self.name, tuple(window.id for window in windows), 3) for path in files]

    process.put(tools=[Leaves])
    assignment, place, known = started(process, tmp_path, "leaves")
    for name in ("of it.rep",) if there else ():
        (place / name).write_text("abc")
    (place / "another.txt").touch()
    expected = [Expected(assignment, ("G", 0, None), host=os.uname().nodename, ended=True)]
    rows, lacks = await_files(process.make_tool, expected, str(tmp_path), known, ThisHost(), 0.0)
    assert [(row.path, row.windows, row.bytes) for row in rows if row.state == "complete"] == [
        (str(place / "of it.rep"), ["w"], 3)
    ] * there
    assert [(lack.tool, lack.label) for lack in lacks] == [("leaves", "G/rank0")] * (not there)


@shows("Tool.can_read", "Tool.read")
def test_a_file_is_read_by_the_tool_that_knows_it(process: Catalogue, tmp_path: Path) -> None:
    """Whichever tool is asked first."""

    class Reads(RecordingTool):
        name: ClassVar[str] = "reads"

        @classmethod
        def can_read(cls, path: str) -> bool:
            return path.endswith(".odd")

        def read(self, path: str) -> Trace:
            return Trace("reads", path, spans=[Span(Path(path).read_text(), Kind.PHASE, 0, 5)])

    (tmp_path / "a.odd").write_text("mine")
    process.put(tools=[Reads])
    assert [span.name for span in read_any(tmp_path / "a.odd").spans] == ["mine"]
    assert [span.name for span in read_any(tmp_path / "a.odd", "torch").spans] == ["mine"]


@shows(*(f"ArtifactFile.{name}" for name in ("path", "tool", "windows", "bytes", "state", "reason")))
def test_what_a_tool_says_of_a_file_stands_in_the_manifest() -> None:
    """All of it; one that is not complete is what was not delivered."""

    class Partial(RecordingTool):
        name: ClassVar[str] = "partial"

        def close(self, window: Any) -> list[ArtifactFile]:
            (file,) = super().close(window)
            return [ArtifactFile(file.path, self.name, (window.id,), 7, "partial", "half of it")]

    with capture(tool="partial", tools=(Partial,), steps=[1]) as run:
        steps(run, 1)
        manifest = run.session.close()
        (window,) = run.session.windows
        (journal,) = read_journals(run.run_dir)
    (row,) = [row for row in journal if row["kind"] == "artifact" and row["tool"] == "partial"]
    assert row["path"].endswith(".recording.txt")
    assert (row["windows"], row["bytes"], row["state"], row["reason"]) == ([window.id], 7, "partial", "half of it")
    assert any("half of it" in text for text in manifest["undelivered"])


# --- exporters ----------------------------------------------------------------------------------------------------------


class Into(ExporterOptions):
    path: str = "x"


class Counts(Exporter):
    name: ClassVar[str] = "counts"
    Options = Into


@shows("Exporter.name", "Exporter.Options", "accelprof_exporters")
def test_an_exporter_is_configured_by_its_name_and_options(catalogue: Catalogue) -> None:
    """A plug-in brings it; an option that it does not declare is refused at its path."""
    catalogue.register(plugin(accelprof_exporters=lambda: [Counts]), "brings")
    (made,) = catalogue.make_exporters(catalogue.load({"export": {"Counts": {"path": "y"}}}).config)
    assert (type(made), made.options.path) == (Counts, "y")
    with pytest.raises(ConfigError, match=r"export\.counts\.pth"):
        catalogue.make_exporters(catalogue.load({"export": {"counts": {"pth": "y"}}}).config)


# --- hooks --------------------------------------------------------------------------------------------------------------


@shows("accelprof_tools")
def test_a_plug_ins_tool_is_had_by_its_name(catalogue: Catalogue) -> None:
    """In configurations too, until the plug-in goes."""
    catalogue.register(plugin(accelprof_tools=lambda: [WithOptions]), "brings")
    assert row_of(catalogue, tool="deep")["tool"] == "deep"
    catalogue.unregister("brings")
    with pytest.raises(ConfigError, match="deep"):
        row_of(catalogue, tool="deep")


@shows("accelprof_dialects")
def test_a_plug_ins_dialect_translates(catalogue: Catalogue) -> None:
    """A configuration that it knows becomes one of ours."""

    class Theirs(Dialect):
        name: ClassVar[str] = "theirs"

        def detects(self, mapping: Any) -> bool:
            return "theirs" in mapping

        def translate(self, mapping: Any) -> Translation:
            return Translation({"steps": mapping["theirs"]})

    catalogue.register(plugin(accelprof_dialects=lambda: [Theirs()]), "brings")
    loaded = catalogue.load({"theirs": [4]})
    assert (loaded.dialect, loaded.config.steps.to_config()) == ("theirs", [4])


@shows("accelprof_presets")
def test_a_plug_ins_preset_instruments(tmp_path: Path) -> None:
    """Its methods are phases in a process whose configuration names it."""
    preset = Preset("pluggy", (Site("json.encoder:JSONEncoder.encode", "mine/encode"),))
    brings = plugin(accelprof_presets=lambda: {"mine": preset})
    accelprof.reset()
    accelprof.register(brings, "brings")
    session = accelprof.configure(steps=[1], presets=["mine"], rank=0, output_dir=str(tmp_path), tool=None)
    try:
        with session.step(1):
            json.JSONEncoder().encode({})
        assert accelprof.current_session() is session
        assert "mine/encode" in session.metrics_of_step(1), (session.problems, accelprof.timing_stats())
    finally:
        accelprof.reset()


@shows("accelprof_worker_identity")
def test_a_plug_in_knows_who_a_worker_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the environment; what ``configure`` is told comes first."""
    told = {"group": "Theirs", "role": "critic", "rank": 3, "replica": 1, "world_size": 8}
    monkeypatch.setenv("THEIRS", "1")
    for given in ({}, {"rank": 5}):
        accelprof.reset()
        accelprof.register(plugin(accelprof_worker_identity=lambda env: told if env.get("THEIRS") else None), "knows")
        target = accelprof.configure(steps=[], output_dir=str(tmp_path), **given).target
        assert (target.group, target.roles, target.replica, target.world_size) == ("Theirs", ("critic",), 1, 8)
        assert target.rank == given.get("rank", 3)
    accelprof.reset()


@shows("accelprof_doctor", *(f"Check.{name}" for name in ("area", "name", "status", "detail", "mend")))
def test_a_plug_ins_checks_stand_in_doctors_table(process: Catalogue, tmp_path: Path) -> None:
    """With what was found and how to mend it; one that fails is the command's status. It hears where a run would write."""
    heard: list[Any] = []

    def checks(node: Any) -> list[Check]:
        heard.append(node)
        return [Check("mine", "library", "fail", "it is gone", "install it again")]

    process.register(plugin(accelprof_doctor=checks), "checks")
    done = CliRunner().invoke(cli, ["doctor", "--json", "--output-dir", str(tmp_path)], standalone_mode=False)
    (rows,) = json.loads(done.output).values()
    assert {
        "area": "mine",
        "name": "library",
        "status": "fail",
        "detail": "it is gone",
        "mend": "install it again",
    } in rows
    text = CliRunner().invoke(cli, ["doctor", "--output-dir", str(tmp_path)], standalone_mode=False).output
    for part in ("mine", "library", "it is gone", "install it again"):
        assert part in text
    assert heard[0]["output_dir"] == str(tmp_path)


@shows("accelprof_artifact", "accelprof_run_end")
def test_plug_ins_hear_of_every_file_and_then_of_the_run() -> None:
    """When the manifest is written: its files as records, and all of it."""
    heard: list[Any] = []
    with capture(steps=[1]) as run:
        hears = plugin(
            accelprof_artifact=lambda artifact: heard.append(artifact),
            accelprof_run_end=lambda manifest: heard.append(manifest),
        )
        accelprof.register(hears, "hears")
        steps(run, 1)
        manifest = run.session.close()
    *files, last = heard
    assert all(isinstance(file, ArtifactFile) for file in files)
    assert [(file.path, file.tool, list(file.windows)) for file in files] == [
        (row["path"], row["tool"], row["windows"]) for row in manifest["artifacts"]
    ]
    assert last["windows"] == manifest["windows"]


@shows("accelprof_metrics")
def test_plug_ins_hear_what_a_controller_reduces(tmp_path: Path) -> None:
    """The step's number, and timings over the ranks as the caller gets them."""
    pytest.importorskip("ray")
    from accelprof.cluster import Controller

    heard: list[Any] = []
    accelprof.reset()
    accelprof.register(plugin(accelprof_metrics=lambda step, reduced: heard.append((step, reduced))), "hears")
    controller = Controller({"steps": [9], "output_dir": str(tmp_path)})
    try:
        controller.begin_step(4)
        controller.end_step(4)
        answer = controller.metrics()
    finally:
        controller.close()
        accelprof.reset()
    assert heard == [(4, answer)]


# --- the page itself ----------------------------------------------------------------------------------------------------


def test_every_word_of_a_contract_is_shown() -> None:
    """By a test of this file, or by one that is named above: each word once, and none that is no word of a contract."""
    words = {f"{cls.__name__}.{name}" for cls in CONTRACTS for name in dir(cls) if not name.startswith("_")} | {
        name for name in vars(hookspecs) if name.startswith("accelprof_")
    }
    elsewhere = [word for tests in ELSEWHERE.values() for shown in tests.values() for word in shown]
    shown = [*_here, *elsewhere]
    assert sorted(words - set(shown)) == []
    assert sorted(set(shown) - words) == []
    assert sorted({word for word in shown if shown.count(word) > 1}) == []


@pytest.mark.parametrize("file", sorted(ELSEWHERE))
def test_the_tests_that_are_named_are_there(file: str) -> None:
    """And their files say the words."""
    text = (ROOT / file).read_text()
    there = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    assert set(ELSEWHERE[file]) <= there
    for shown in ELSEWHERE[file].values():
        for word in shown:
            assert word.rpartition(".")[2] in text, word
