"""Planning happens once: tools are made and validated when a plan is, and everybody after reads them."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import ClassVar

import pytest
from click.testing import CliRunner

from accelprof.analysis import draw
from accelprof.catalogue import make_catalogue
from accelprof.cli.config import config as config_cli
from accelprof.config.load import load_config
from accelprof.contracts.hookspecs import hookimpl
from accelprof.contracts.targets import Target
from accelprof.contracts.tool import Tool, ToolOptions
from accelprof.errors import ConfigError
from accelprof.launch.compose import compose
from accelprof.launch.preview import preview
from accelprof.output.delivery import EndedRun
from accelprof.output.expected import Expected, Wanted, await_files, wait_and_match
from accelprof.output.nodes import ThisHost
from accelprof.output.records import Manifest, TargetRow, WindowRow
from accelprof.planning import decide as decisions
from accelprof.planning import plan as plans
from accelprof.planning.decide import canonical, decide
from accelprof.session.configure import configure, reset
from accelprof.testing import RecordingTool


class Options(ToolOptions):
    depth: int = 3
    contents: tuple[str, ...] = ("host",)


class Wraps(Tool):
    """Needs a launch, as nsys does."""

    name = "wraps"
    aliases = ("w",)
    Options = Options
    exclusive = frozenset({"wrapping"})
    made: ClassVar[Counter[str]] = Counter()

    def __init__(self, options=None):
        super().__init__(options)
        type(self).made[json.dumps(self.options.model_dump())] += 1


class Other(Wraps):
    name = "other"
    aliases = ()
    made: ClassVar[Counter[str]] = Counter()


class Brings:
    @hookimpl
    def accelprof_tools(self):
        return [Wraps, Other, RecordingTool]


@pytest.fixture
def catalogue():
    Wraps.made.clear()
    Other.made.clear()
    made = make_catalogue(entry_points=False)
    made.register(Brings(), "brings")
    return made


def plan(catalogue, **values):
    return catalogue.plan(catalogue.load(None, **values).config)


#: what is asked of the catalogue by who plans or makes tools
CLIMBS = ("load", "plan", "tool_class", "make_tool", "tool_names", "backend_class", "backend_names", "presets")

EIGHT = {"steps": [2, 4], "tool": "wraps", "tools": {"wraps": {"depth": 5}}, "groups": {"G": {"ranks": "all"}}}


def test_eight_ranks_cost_one_tool_and_one_assignment_each(catalogue, monkeypatch):
    """From the configuration to the command lines of 8 ranks and their reports: one tool, one assignment a target, names made
    canonical once, and no climb: once it is decided nobody asks the catalogue for a tool or plans again."""
    assigned: Counter[Target] = Counter()
    original = plans.Plan._assign
    asked: Counter[str] = Counter()

    def counting(holder, name):
        real = getattr(holder, name)

        def call(*args, **kwargs):
            asked[name] += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(holder, name, call)

    counting(decisions, "canonical")
    for climb in CLIMBS:
        counting(catalogue, climb)

    def counted(self, target):
        assigned[target] += 1
        return original(self, target)

    monkeypatch.setattr(plans.Plan, "_assign", counted)
    made = plan(catalogue, **EIGHT)
    assert asked["canonical"] == asked["plan"] == 1
    assert asked["make_tool"] == 1
    asked.clear()
    rows = preview(catalogue, made, {"G": 8})
    for rank in range(8):
        assignment = made.assign(Target("G", rank=rank, world_size=8))
        compose(catalogue, made.uses_of(assignment), assignment, "/somewhere")
    assert len(rows) == 8
    assert Wraps.made == {'{"depth": 5, "contents": ["host"]}': 1}
    assert set(assigned.values()) == {1}
    assert len([target for target in assigned if target.world_size == 8]) == 8
    run = EndedRun("/somewhere", catalogue, made.config, made, draw)
    expected = [Expected(made.assign(Target("G", rank=rank, world_size=8)), ("G", rank, None)) for rank in range(8)]
    known = Manifest()
    for rank in range(8):
        known.targets[f"G-r{rank}"] = TargetRow(key=f"G-r{rank}", group="G", rank=rank)
        known.windows[f"w{rank}"] = WindowRow(id=f"w{rank}", sequence=1, target=f"G-r{rank}", tools=["wraps"])
    assert await_files(run.tool_of, expected, "/somewhere", known, ThisHost(), 0.0) == ([], [])
    assert sum(Wraps.made.values()) == 1
    assert asked == {}


def test_names_that_are_right_already_change_nothing(catalogue):
    """Aliases become registered names at the door; a configuration that came through it is taken as it is, not copied again."""
    config = load_config({"tool": "w", "tools": {"w": {"depth": 4}}, "groups": {"G": {"tool": "w"}}}).config
    once = canonical(config, catalogue)
    assert (once.tool, list(once.tools), once.groups["G"][0].tool) == ("wraps", ["wraps"], "wraps")
    assert canonical(once, catalogue) is once
    assert plan(catalogue, tool="w", steps=[1]).config.tool == "wraps"


def test_files_of_one_tool_are_matched_by_one_object(catalogue, monkeypatch, tmp_path):
    """Where reports lie a tool is made once for all targets that use it alike, and asked about each one's files."""
    asked = []
    monkeypatch.setattr(Wraps, "match", lambda self, files, windows: asked.append((self, files)) or [])
    monkeypatch.setattr("accelprof.output.expected.get_catalogue", lambda: catalogue)
    wanted = []
    for rank in range(4):
        (tmp_path / f"r{rank}").write_bytes(b"report")
        wanted.append(Wanted(str(tmp_path / f"r{rank}"), 1, 5.0))
    options = [{"depth": 5}, {"depth": 5}, {"depth": 6}, {"depth": 5}]
    found = wait_and_match(wanted, [("wraps", one, []) for one in options])
    assert found == [([], "")] * 4
    assert [files for _, files in asked] == [[str(tmp_path / f"r{rank}")] for rank in range(4)]
    assert [tool.options.depth for tool, _ in asked] == [5, 5, 6, 5]
    assert len({id(tool) for tool, _ in asked}) == 2
    assert sum(Wraps.made.values()) == 2


def test_a_plan_asks_the_catalogue_nothing(catalogue):
    """Once decided, assigning, previewing and looking tools up touch no catalogue: a catalogue that is emptied changes nothing."""
    made = plan(catalogue, **EIGHT)
    catalogue.unregister("brings")
    assignment = made.assign(Target("G", rank=3, world_size=8))
    (use,) = made.uses_of(assignment)
    assert (use.name, use.options, use.tool.options.depth) == ("wraps", {"depth": 5}, 5)


def test_one_tool_for_each_distinct_use(catalogue):
    """Rules with the same tool and options share one object; other options are another."""
    groups = {"A": {}, "B": {"tool": "w"}, "C": {"options": {"depth": 5}}, "D": {"options": {"depth": 6}}}
    made = plan(catalogue, steps=[1], tool="wraps", tools={"wraps": {"depth": 5}}, groups=groups)
    tools = {path: use.tool for path, use in made.uses.items()}
    assert tools["groups.A"] is tools["groups.B"] is tools["groups.C"]
    assert tools["groups.D"] is not tools["groups.A"]
    assert sum(Wraps.made.values()) == 2


def test_a_process_uses_the_tool_that_its_plan_made(tmp_path, monkeypatch):
    """A plain process decides once, its manifests included: the session's tool is the plan's, no second one is made."""
    import accelprof
    from accelprof.catalogue import Catalogue

    plans = []
    made_plan = Catalogue.plan
    monkeypatch.setattr(Catalogue, "plan", lambda *args, **kw: plans.append(kw) or made_plan(*args, **kw))

    reset()
    accelprof.register(Brings(), "brings")
    Wraps.made.clear()
    try:
        session = configure(steps=[1], tool="wraps", output_dir=str(tmp_path), group="G", rank=0)
        assert [tool.name for tool in session.tools] == ["wraps"]
        assert [*session.own_run.so_far().windows] == session.close()["windows"] == []
        assert sum(Wraps.made.values()) == len(plans) == 1
    finally:
        reset()


def test_a_worker_takes_the_assignment_it_is_given(tmp_path, monkeypatch):
    """What the controller's plan says is taken as it is; a process that knows its rank better decides for itself."""
    import accelprof
    from accelprof.catalogue import Catalogue, get_catalogue

    reset()
    accelprof.register(Brings(), "brings")
    try:
        made = plan(get_catalogue(), **{**EIGHT, "output_dir": str(tmp_path)})
        given = made.assign(Target("G", rank=5, world_size=8))
        decided = []
        original = Catalogue.plan
        monkeypatch.setattr(Catalogue, "plan", lambda *a, **k: decided.append(k) or original(*a, **k))
        run_dir = str(tmp_path / "run")
        session = configure(made.config, group="G", rank=5, world_size=8, run_dir=run_dir, assignment=given)
        assert (decided, session.assignment.windows) == ([], ((2,), (4,)))
        assert session.tools[0].options.depth == 5
        reset()
        accelprof.register(Brings(), "brings")
        session = configure(made.config, group="G", rank=6, world_size=8, run_dir=run_dir, assignment=given)
        assert decided == [{"decided": True}]
        assert session.target.rank == 6
    finally:
        reset()


def test_the_driver_alone_hears_that_the_plan_is_ready(tmp_path):
    """``accelprof_plan_ready`` is called where the plan is decided: once in a plain process, not in a worker of a run."""
    import accelprof

    heard = []

    class Listens(Brings):
        @hookimpl
        def accelprof_plan_ready(self, plan):
            heard.append(plan)

    reset()
    try:
        for run_dir, times in ((None, 1), (str(tmp_path / "run"), 0)):
            heard.clear()
            accelprof.register(Listens(), "listens")
            configure(steps=[1], tool="wraps", output_dir=str(tmp_path), group="G", rank=0, run_dir=run_dir)
            assert len(heard) == times
            assert all(isinstance(plan, plans.Plan) for plan in heard)
            reset()
    finally:
        reset()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({}, {"depth": 3}, True),
        ({"contents": ["a", "b"]}, {"contents": ["b", "a"]}, True),
        ({"contents": ["host"]}, {}, True),
        ({"depth": 3}, {"depth": 4}, False),
    ],
)
def test_options_of_colocated_roles_are_compared_as_meant(catalogue, one, other, same):
    """Two roles of one process agree when their options mean the same: defaults filled in, order of names ignored."""
    groups = {"W": [{"roles": "a", "tool": "wraps", "options": one}, {"roles": "b", "tool": "wraps", "options": other}]}
    if same:
        made = plan(catalogue, steps=[1], groups=groups)
        assert made.assign(Target("W", ("a", "b"), 0)).tool == "wraps"
    else:
        with pytest.raises(ConfigError, match=r"groups\.W\[1\]\.options.*contradict"):
            plan(catalogue, steps=[1], groups=groups)


def test_everything_wrong_is_said_at_once_where_it_stands(catalogue):
    """An option that a rule brought is refused under the rule's path, a shared one under ``tools``; all in one error."""
    with pytest.raises(ConfigError) as caught:
        plan(
            catalogue,
            steps=[1],
            accelerator="gpux",
            tools={"wraps": {"dept": 1}, "other": {"depth": "x"}},
            groups={
                "A": {"tool": "wraps"},
                "B": {"tool": "recording", "options": {"nonsense": 1}},
                "C": {"tool": "wrap"},
            },
        )
    paths = {problem.path for problem in caught.value.problems}
    assert paths == {
        "accelerator",
        "tools.wraps.dept",
        "tools.other.depth",
        "groups.B.options.nonsense",
        "groups.C.tool",
    }
    assert "did you mean 'depth'" in str(caught.value)
    assert "did you mean 'wraps'" in str(caught.value)


@pytest.mark.parametrize(
    ("rules", "dead"),
    [
        ([{"ranks": [0], "tool": "wraps"}, {"ranks": [0], "tool": "recording"}], 1),
        ([{"tool": "wraps"}, {"tool": "recording"}], 1),
        ([{"ranks": "all"}, {"ranks": "3-5"}], 1),
        ([{"ranks": "0-9"}, {"ranks": [2]}, {"ranks": [11]}], 1),
        ([{"roles": ["act*"], "ranks": "all"}, {"roles": ["actor"], "ranks": [1]}], 1),
        ([{"ranks": "0-3"}, {"ranks": "4-7"}, {"ranks": "2-5"}], 2),
        ([{"ranks": "0-3"}, {"ranks": "5-7"}, {"ranks": "2-5"}], None),
        ([{"ranks": "0-3"}, {"ranks": "4-7", "nodes": ["a"]}, {"ranks": "2-5"}], None),
        ([{"ranks": [0]}, {"ranks": [0, 1]}], None),
        ([{"ranks": [0], "nodes": ["a"]}, {"ranks": [0]}], None),
        ([{"roles": ["actor"]}, {}], None),
        ([{"ranks": [0], "replicas": [0]}, {"ranks": [0]}], None),
    ],
)
def test_a_rule_that_can_never_apply_is_refused(catalogue, rules, dead):
    """A rule whose every process an earlier rule takes is named with that rule; one that takes any other process is right."""
    if dead is None:
        plan(catalogue, steps=[1], groups={"G": rules})
        return
    with pytest.raises(ConfigError, match=rf"groups\.G\[{dead}\]: this rule can never apply: groups\.G\[0\]"):
        plan(catalogue, steps=[1], groups={"G": rules})


def test_covering_rules_against_a_slow_model(catalogue):
    """What is called unreachable is reached by no process of a small world, for every two rules before every third."""
    from accelprof.planning.selection import covering, selects

    choices = [None, "all", [0], [1], [0, 1], [0, 2]]
    world = [Target("G", (), rank, None, replica) for rank in range(4) for replica in (None, 0, 1)]
    pairs = [{"ranks": ranks, "replicas": replicas} for ranks in choices for replicas in choices]
    config = load_config({"groups": {"G": pairs}}).config
    rules, found = config.groups["G"], 0
    takes = {id(rule): {index for index, t in enumerate(world) if selects(rule, config, t)[0]} for rule in rules}
    together = 0
    for other in rules:
        for pair in itertools.product(rules, repeat=2):
            dead = covering(pair, other, config)
            if dead:
                found += 1
                together += len(dead) == 2
                assert takes[id(other)] <= set().union(*(takes[id(pair[at])] for at in dead))
    assert found > len(rules) ** 2
    assert together > 0


def test_show_has_options_directories_and_the_driver(tmp_path):
    """``config show`` prints every option and the directory of in-process tools, and a row for the driver."""
    file = tmp_path / "c.yaml"
    file.write_text(
        "steps: [1]\ntool: torch\noutput_dir: here\ntools: {torch: {contents: [cpu]}}\ncontroller: {tool: torch_memory}\n"
    )
    told = CliRunner().invoke(config_cli, ["show", str(file)]).output
    assert "contents=[cpu]" in told
    assert "directory=here/" in told
    data = json.loads(CliRunner().invoke(config_cli, ["show", str(file), "--json"]).output)
    assert [row["group"] for row in data["targets"]] == ["controller", "(every group)"]
    assert data["targets"][0]["tools"][0]["tool"] == "torch_memory"
    assert data["targets"][1]["tools"][0]["options"]["contents"] == ["cpu"]


def test_a_decided_configuration_is_not_checked_again(catalogue):
    """A process of a run assigns itself: the whole plan's checks ran where it was decided."""
    asked = []

    class Checks(RecordingTool):
        name = "checks"

        def check(self, assignments):
            asked.append(len(assignments))
            return []

    class More:
        @hookimpl
        def accelprof_tools(self):
            return [Checks]

    catalogue.register(More(), "more")
    config = catalogue.load({"steps": [1], "tool": "checks", "groups": {"G": {"ranks": [0, 1]}}}).config
    assert decide(config, catalogue).assign(Target("G", rank=0)).tool == "checks"
    assert decide(config, catalogue, decided=True).assign(Target("G", rank=0)).tool == "checks"
    assert asked == [2]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, ["cpu", "cuda"]),
        ({"contents": []}, ["cpu", "cuda"]),
        ({"contents": ["cuda"]}, ["cuda"]),
        ({"contents": ["stack"]}, ["stack"]),
    ],
)
def test_empty_contents_are_shown_as_what_they_stand_for(options, shown):
    """A plan prints the contents that will be recorded where the user chose none, and otherwise the user's."""
    from accelprof.catalogue import make_catalogue
    from accelprof.launch.preview import preview

    registry = make_catalogue()
    config = registry.load({"tool": "torch", "steps": [1], "groups": {"G": {"ranks": [0], "options": options}}}).config
    rows = preview(registry, registry.plan(config, decided=True), {"G": 1})
    assert rows[0]["tools"][0]["options"]["contents"] == shown
