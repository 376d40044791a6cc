"""Every promise of the guides that ``docs/guides.md`` lists is tried: here, with what its row types, or by the test that it names."""

from __future__ import annotations

import ast
import functools
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import accelprof
from accelprof.catalogue import Catalogue, make_catalogue
from accelprof.compat import rlinf
from accelprof.contracts.targets import Assignment, Target
from accelprof.errors import ConfigError
from accelprof.testing import capture

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides.md"
#: promises that were counted in the guides when the page was begun
COUNTED = 59
HERE = "`tests/docs/test_guides.py`"
ARR = "actor_rollout_ref"
ROLES = ("actor", "rollout", "ref")
SIX = ["ActorGroup", "RolloutGroup", "EnvGroup", "Actor", "Rollout", "Env"]
STEPS = [(1,), (2,), (5,)]


@dataclass(frozen=True)
class Row:
    """One promise: what is typed (the code of its column), where the answer lies, and the tests that its last column names."""

    number: str
    says: str
    typed: tuple[str, ...]
    where: str
    tried: tuple[str, ...]

    def __str__(self) -> str:
        return self.number


def rows() -> list[Row]:
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 5 and re.fullmatch(r"[A-E]\d+", cells[0]):
            typed, tried = (tuple(re.findall(r"`([^`]+)`", cells[at].replace("\\|", "|"))) for at in (2, 4))
            found.append(Row(cells[0], cells[1], typed, cells[3], tried))
    return found


ROWS = rows()
TRIES: dict[str, Callable[[Row, Path], None]] = {}


def tries(*numbers: str) -> Callable[[Any], Any]:
    def keep(function: Any) -> Any:
        TRIES.update(dict.fromkeys(numbers, function))
        return function

    return keep


@functools.cache
def named_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


# --- the page and the tests know of each other --------------------------------------------------------------------------


def test_every_promise_has_a_row_and_every_row_a_test():
    """No row is without a test, none of the tests here without a row, and none of the promises was dropped from the page."""
    assert len({row.number for row in ROWS}) == len(ROWS) >= COUNTED
    assert [row.number for row in ROWS if not row.tried] == []
    assert [row.number for row in ROWS if (HERE.strip("`") in row.tried) != (row.number in TRIES)] == []
    assert set(TRIES) <= {row.number for row in ROWS}
    assert [row.number for row in ROWS if not row.where] == []


@pytest.mark.parametrize("row", [row for row in ROWS if any("::" in name for name in row.tried)], ids=str)
def test_the_tests_that_a_row_names_are_there(row):
    """A row that names a test of another file names one that exists."""
    for name in row.tried:
        if "::" in name:
            file, test = name.split("::")
            assert test in named_in(ROOT / file), name


# --- verl ---------------------------------------------------------------------------------------------------------------


def verl(generation: str) -> dict[str, Any]:
    """The file that a guide's example makes, as plain values."""
    if generation == "a":
        return {
            "trainer": {"profile_steps": [1, 2, 5]},
            ARR: {
                "hybrid_engine": True,
                "actor": {"profile_discrete": False, "profile_ranks": [0, 1]},
                "rollout": {"profile_discrete": False, "profile_ranks": None},
                "ref": {"profile_discrete": False},
            },
            "critic": {"profile_discrete": False, "profile_ranks": [0]},
        }
    if generation == "b":
        block = {"discrete": False, "all_ranks": False, "ranks": [0, 1]}
        nsight = {"trace": "cuda,nvtx,cublas,ucx", "cuda-memory-usage": "true", "cuda-graph-trace": "graph"}
        return {
            "trainer": {
                "profile_steps": [1, 2, 5],
                "controller_nsight_options": dict(nsight),
                "worker_nsight_options": {**nsight, "capture-range": "cudaProfilerApi", "capture-range-end": None},
            },
            ARR: {role: {"profiler": dict(block)} for role in ROLES},
            "critic": {"profiler": dict(block)},
        }
    npu = {"discrete": False, "contents": ["npu", "cpu"], "level": "level0", "analysis": True}
    return {
        "global_profiler": {"tool": "npu", "steps": [1, 2, 5], "save_path": "outputs/profile"},
        ARR: {
            "actor": {
                "profiler": {"enable": True, "all_ranks": False, "ranks": [0], "tool_config": {"npu": dict(npu)}}
            },
            "rollout": {"mode": "sync", "profiler": {"enable": False, "all_ranks": False, "ranks": [0]}},
            "ref": {"profiler": {"enable": False, "all_ranks": False, "ranks": [0]}},
        },
    }


GENERATION = {"A": "b", "B": "a", "D": "c", "E": "c"}


def loaded(row: Row, base: Mapping[str, Any] | None = None, typed: Iterable[str] | None = None) -> Any:
    """The plan, the configuration and its notes once the row's overrides are applied to the guide's file."""
    registry = make_catalogue()
    words = [
        word for word in (row.typed if typed is None else typed) if re.match(r"[+~]*[\w.]+=?", word) and "=" in word
    ]
    file = registry.load(verl(GENERATION[row.number[0]]) if base is None else base, words)
    return registry, registry.plan(file.config, decided=True), file


def windows(plan: Any, group: str = ARR, rank: int = 0, roles: tuple[str, ...] = ROLES, **more: Any) -> Any:
    """The windows of one process, or ``None`` where it is neither started under a tool nor opens any."""
    found = plan.assign(Target(group, roles if group == ARR else (group,), rank, 8, **more))
    return list(found.windows) if found.selected else None


def options(plan: Any, roles: tuple[str, ...] = ROLES) -> dict[str, Any]:
    return dict(plan.assign(Target(ARR, roles, 0, 8)).options)


def command(registry: Catalogue, plan: Any, group: str, worlds: dict[str, int]) -> list[str]:
    from accelprof.launch.preview import preview

    return next(row for row in preview(registry, plan, worlds) if row["group"] == group)["argv"]


def refusal(row: Row, typed: Iterable[str] | None = None, base: Mapping[str, Any] | None = None) -> str:
    def planned() -> None:
        registry, _, file = loaded(row, base, typed)
        registry.plan(file.config)  # what a tool refuses of its own options

    with pytest.raises(ConfigError) as caught:
        planned()
    return str(caught.value)


@tries("A1", "B1", "D2")
def chosen_steps(row, _):
    _, plan, _ = loaded(row)
    assert windows(plan) == ([(2,), (4,)] if row.number == "D2" else STEPS)


@tries("A2", "B2", "D3", "E3")
def no_steps(row, _):
    _, plan, _ = loaded(row)
    assert [windows(plan, rank=rank) for rank in range(8)] == [None] * 8


@tries("A3")
def options_of_the_controller(row, _):
    pytest.importorskip("accelprof_cuda", reason="accelprof-cuda is not installed")
    registry, plan, _ = loaded(row)
    argv = command(registry, plan, "controller", {ARR: 1, "critic": 1})
    assert {"--cuda-memory-usage=false", "--cuda-graph-trace=graph"} <= set(argv)
    assert any("cuda,nvtx,cublas,ucx" in word for word in argv)


@tries("A4")
def where_the_controller_ran(row, tmp_path):
    import json
    import os
    import socket

    with capture(
        directory=str(tmp_path), identity={"group": "controller", "rank": 0}, steps=[1], tool=None
    ) as captured:
        with captured.session.step(1):
            pass
        captured.session.close()
        name = next(Path(captured.run_dir).rglob("controller-r0-s1-*.trace.json*")).name
        manifest = json.loads((Path(captured.run_dir) / "manifest.json").read_text(encoding="utf-8"))
    assert f"-{socket.gethostname()}-{os.getpid()}" in name
    [target] = manifest["targets"]
    assert (target["group"], target["host"], target["pid"]) == ("controller", socket.gethostname(), os.getpid())
    assert [(Path(row["path"]).name, row["group"], row["pid"]) for row in manifest["artifacts"]] == [
        (name, "controller", os.getpid())
    ]


@tries("A5")
def options_of_the_workers(row, _):
    pytest.importorskip("accelprof_cuda", reason="accelprof-cuda is not installed")
    registry, plan, _ = loaded(row)
    argv = command(registry, plan, ARR, {ARR: 1, "critic": 1})
    assert "--cuda-memory-usage=false" in argv
    assert any(word.startswith("--capture-range=") for word in argv)


@tries("A6")
def the_gate_is_fixed(row, _):
    fits, no_gate = row.typed
    assert windows(loaded(row, typed=[fits])[1]) == STEPS
    tool = pytest.importorskip("accelprof_cuda.nsys", reason="accelprof-cuda is not installed").NsysTool(
        {"capture-range": "cudaProfilerApi"}
    )
    for devices, trigger in ((True, "cudaProfilerApi"), (False, "nvtx")):
        target = Target("W", (), 0, has_devices=devices)
        whole = Assignment(target=target, selected=True, tool="nsys", mode="process")
        assert tool.arguments(whole, "/run")["capture-range"] == trigger
    assert "trainer.worker_nsight_options.capture-range: " in refusal(row, [no_gate])


@tries("A7")
def the_end_of_a_capture(row, _):
    pytest.importorskip("accelprof_cuda", reason="accelprof-cuda is not installed")
    by_plan, exact, wrong = row.typed
    for typed in (by_plan, exact):
        registry, plan, _ = loaded(row, typed=[typed])
        assert "--capture-range-end=repeat:3" in command(registry, plan, ARR, {ARR: 1, "critic": 1})
    assert "repeat:3" in refusal(row, [wrong])


@tries("A8", "B4")
def all_ranks(row, _):
    _, plan, _ = loaded(row)
    assert [windows(plan, rank=rank) for rank in range(8)] == [STEPS] * 8


@tries("A9", "B3")
def some_ranks(row, _):
    _, plan, _ = loaded(row)
    assert [windows(plan, rank=rank) is not None for rank in range(4)] == [True, False, True, False]


@tries("A11", "B10")
def one_file_a_step(row, _):
    _, plan, _ = loaded(row)
    found = plan.assign(Target(ARR, ROLES, 0, 8))
    assert (found.discrete, found.count.exact, list(found.windows)) == (False, 3, STEPS)


@tries("A12", "B9", "B11")
def one_file_a_phase(row, _):
    _, plan, _ = loaded(row)
    found = plan.assign(Target(ARR, ROLES, 0, 8))
    assert (found.discrete, found.count.exact) == (True, None)
    assert list(found.steps) == [1, 2, 5]


@tries("A13")
def the_union_of_roles(row, _):
    _, plan, _ = loaded(row)
    asked = [sorted(plan.assign(Target(ARR, ROLES, rank, 8)).asked_by) for rank in (0, 3, 5)]
    assert asked == [["actor", "rollout"], ["ref"], []]


@tries("A14", "B8")
def one_meaning_of_discrete(row, _):
    said = refusal(row)
    assert "discrete" in said
    assert "Mend" in said


@tries("A15", "B12", "D4")
def where_files_lie(row, _):
    _, _, file = loaded(row, typed=())
    assert file.config.output_dir == "outputs/profile"
    (word,) = row.typed
    assert loaded(row)[2].config.output_dir == word.split("=")[1]


@tries("B5")
def nobody(row, _):
    for word in row.typed:
        _, plan, _ = loaded(row, typed=[word])
        assert [windows(plan, rank=rank) for rank in range(8)] == [None] * 8


@tries("B6")
def components_of_the_draft(row, _):
    _, plan, _ = loaded(row)
    for role, group, rank in (("actor", ARR, 1), ("rollout", ARR, 1), ("ref", ARR, 1), ("critic", "critic", 1)):
        found = plan.assign(Target(group, (role,), rank, 8))
        assert found.selected, role
        assert not plan.assign(Target(group, (role,), 3, 8)).selected, role
    assert plan.assign(Target("reward_model", ("reward_model",), 1, 8)).selected


@tries("B7")
def the_examples_comment(row, _):
    _, plan, file = loaded(row)
    assert plan.assign(Target(ARR, ("rollout",), 0, 8)).selected is False
    assert any("the comment in the guide's example says all ranks" in note.text for note in file.notes)


@tries("B13")
def discrete_apart_from_ranks(row, _):
    both = [loaded(row, typed=[*row.typed] if on else ())[1] for on in (False, True)]
    selected = [[plan.assign(Target(ARR, ROLES, rank, 8)).selected for rank in range(8)] for plan in both]
    assert selected[0] == selected[1]


# --- RLinf --------------------------------------------------------------------------------------------------------------


def rlinf_file(**profiling: Any) -> dict[str, Any]:
    return {
        "runner": {"logger": {"log_path": "../results", "experiment_name": "libero_spatial_ppo_openpi"}},
        "cluster": {"profiling": profiling, "component_placement": {"actor": "all"}},
    }


PRESET = {
    "backend": "nsight", "enabled": True, "worker_groups": SIX, "flags": [],
    "options": {"t": "cuda,cudnn,cublas,nvtx,osrt", "sample": "process-tree", "cpuctxsw": "process-tree",
                "cudabacktrace": "all", "osrt-threshold": 1000},
}  # fmt: skip


def rlinf_plan(row: Row, typed: Iterable[str] | None = None, **profiling: Any) -> Any:
    return loaded(row, rlinf_file(**({**PRESET, **profiling})), typed)


def one(plan: Any, group: str, rank: int = 0) -> Any:
    return plan.assign(Target(group, (), rank, 8))


@tries("C1")
def a_backend_must_be_named(row, _):
    (word,) = row.typed
    _, plan, _ = loaded(row, rlinf_file(worker_groups=["ActorGroup"], steps=[3]), [word])
    assert one(plan, "ActorGroup").tool == "nsys"
    assert "must be given" in refusal(row, (), rlinf_file(worker_groups=["ActorGroup"], steps=[3]))


@tries("C2")
def a_preset_of_hydra(row, tmp_path):
    hydra = pytest.importorskip("hydra", reason="hydra-core is not installed")
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile" / "default.yaml").write_text(yaml.safe_dump(PRESET))
    defaults = [row.says.split("`")[1], "_self_"]
    own = rlinf_file()
    del own["cluster"]["profiling"]
    (tmp_path / "main.yaml").write_text(yaml.safe_dump({"defaults": defaults, **own}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Hydra calls what newer releases of OmegaConf call otherwise
        with hydra.initialize_config_dir(str(tmp_path), version_base=None):
            composed = hydra.compose("main")
    registry = make_catalogue()
    plan = registry.plan(registry.load(composed).config, decided=True)
    assert [(one(plan, group).selected, one(plan, group).tool) for group in SIX] == [(True, "nsys")] * 6
    uncomposed = {"defaults": ["profile/default@cluster.profiling"], "cluster": {"component_placement": {}}}
    file = make_catalogue().load(uncomposed)
    assert any("--cfg job" in note.text for note in file.notes)


@tries("C3")
def switched_off(row, tmp_path):
    _, plan, file = rlinf_plan(row, (*row.typed, f"cluster.profiling.output_dir={tmp_path / 'p'}"))
    assert not any(one(plan, group).selected for group in SIX)
    with capture(**{**file.config.model_dump(exclude_unset=True), "tool": None, "groups": {}}) as captured:
        captured.session.close()
    assert not (tmp_path / "p").exists()


@tries("C4")
def the_loggers_directory(row, _):
    assert rlinf_plan(row, ())[2].config.output_dir == "../results/libero_spatial_ppo_openpi/profiling"


@tries("C5")
def a_fixed_directory(row, _):
    assert rlinf_plan(row)[2].config.output_dir == "/mnt/public/profiles/my_run"


@tries("C6")
def named_groups(row, _):
    _, plan, _ = rlinf_plan(row)
    assert [group for group in SIX if one(plan, group).selected] == ["ActorGroup", "RolloutGroup"]


@tries("C7")
def no_groups(row, _):
    _, plan, file = rlinf_plan(row)
    assert not any(one(plan, group).selected for group in SIX)
    assert any("nobody is profiled" in note.text for note in file.notes)


@tries("C8")
def channels_are_groups(row, _):
    _, plan, _ = rlinf_plan(row)
    assert [group for group in SIX if one(plan, group).selected] == ["ActorGroup", "Actor"]


@tries("C9")
def the_whole_life(row, _):
    pytest.importorskip("accelprof_cuda", reason="accelprof-cuda is not installed")
    registry, plan, _ = rlinf_plan(row)
    assert one(plan, "ActorGroup").mode == "process"
    assert not any("capture-range" in word for word in command(registry, plan, "ActorGroup", dict.fromkeys(SIX, 1)))


@tries("C10")
def some_steps(row, _):
    for word, expected in zip(row.typed, ([(3,)], [(3,), (10,), (50,)], [(3,)]), strict=True):
        _, plan, _ = rlinf_plan(row, [word])
        assert list(one(plan, "ActorGroup").windows) == expected


@tries("C11")
def the_gate_comes_by_itself(row, _):
    pytest.importorskip("accelprof_cuda", reason="accelprof-cuda is not installed")
    for word, count in zip(row.typed, (1, 3), strict=True):
        registry, plan, _ = rlinf_plan(row, [word])
        argv = command(registry, plan, "ActorGroup", dict.fromkeys(SIX, 1))
        assert any(word.startswith("--capture-range=") for word in argv)
        assert f"--capture-range-end=repeat:{count}" in argv


@tries("C12")
def the_presets_options(row, _):
    pytest.importorskip("accelprof_cuda", reason="accelprof-cuda is not installed")
    registry, plan, _ = rlinf_plan(row, ())
    argv = command(registry, plan, "EnvGroup", dict.fromkeys(SIX, 1))
    assert argv[argv.index("-t") + 1] == "cuda,cudnn,cublas,nvtx,osrt"
    assert {"--sample=process-tree", "--cpuctxsw=process-tree", "--cudabacktrace=all", "--osrt-threshold=1000"} <= {
        *argv
    }


@tries("C13")
def options_become_words(row, _):
    pytest.importorskip("accelprof_cuda", reason="accelprof-cuda is not installed")
    registry, plan, _ = rlinf_plan(row)
    argv = command(registry, plan, "ActorGroup", dict.fromkeys(SIX, 1))
    assert argv[argv.index("-t") + 1] == "cuda,nvtx"
    assert {"--backtrace=fp", "--python-backtrace"} <= {*argv}


@tries("C14")
def a_range_as_the_gate(row, _):
    pytest.importorskip("accelprof_cuda", reason="accelprof-cuda is not installed")
    registry, plan, _ = rlinf_plan(row)
    argv = command(registry, plan, "ActorGroup", dict.fromkeys(SIX, 1))
    assert {"--capture-range=nvtx", "--nvtx-capture=window@accelprof"} <= {*argv}


class Mine(rlinf.Worker):
    """A user's own worker, as the guide writes one."""

    _accelerator_type = "recording"

    @rlinf.Worker.timer("my_worker/my_phase")
    def my_phase(self, batch: int) -> int:
        with rlinf.AcceleratorUtil.profiling_range(self._accelerator_type, "my_worker/inner_phase"):
            return batch + 1


@tries("C15", "C16", "C18", "C19")
def timers_and_ranges(row, _):
    worker = Mine()
    with capture(steps=[3], ranks="all", timeline=False) as captured:
        for step in (2, 3):
            with captured.session.step(step):
                assert worker.my_phase(step) == step + 1
            seconds = worker.pop_execution_times()
            assert set(seconds) == {"my_worker/my_phase"}
            labels = captured.backend.labels()
            assert sorted(labels) == ([] if step == 2 else ["my_worker/inner_phase", "my_worker/my_phase"])


@tries("C17")
def labels_of_the_guide(row, _):
    from accelprof.config.dialects.rlinf import PHASES

    assert set(row.typed) - {"accelprof.config.dialects.rlinf.PHASES"} <= set(PHASES)
    assert len(row.typed) >= 15


@tries("C20")
def ranges_are_nothing_without_a_backend(row, _):
    accelprof.reset()
    with rlinf.AcceleratorUtil.profiling_range("no such accelerator", "x"):
        pass
    assert Mine().my_phase(1) == 2


@tries("C21")
def the_guides_block_for_rocm(row, _):
    pytest.importorskip("accelprof_rocm", reason="accelprof-rocm is not installed")
    refused, mended = row.typed
    base = {"backend": "rocprof_sys", "enabled": True, "worker_groups": ["ActorGroup", "RolloutGroup", "EnvGroup"]}
    said = refusal(row, [refused], rlinf_file(**base))
    assert "cluster.profiling.args.T" in said
    values = dict(re.findall(r"(ROCPROFSYS_\w+): '([^']+)'", said))
    assert values["ROCPROFSYS_ROCM_DOMAINS"].split(",")[-1] == "hip_api"
    assert {"marker_api", "kernel_dispatch"} <= set(values["ROCPROFSYS_ROCM_DOMAINS"].split(","))
    assert mended in said
    _, plan, file = loaded(row, rlinf_file(**base, env=values), ())
    assert one(plan, "ActorGroup").tool == "rocprof_sys"
    assert file.config.tools["rocprof_sys"]["env"] == values


@tries("C22")
def options_that_the_program_lacks(row, _):
    pytest.importorskip("accelprof_rocm", reason="accelprof-rocm is not installed")
    base = rlinf_file(backend="rocprof_sys", worker_groups=["ActorGroup"])
    for word in row.typed:
        assert "Mend: env: {" in refusal(row, [word], base)


@tries("C24")
def the_environment_of_rocm(row, _):
    pytest.importorskip("accelprof_rocm", reason="accelprof-rocm is not installed")
    registry, plan, _ = loaded(row, rlinf_file(backend="rocprof_sys", worker_groups=["ActorGroup"]))
    found = one(plan, "ActorGroup")
    env = registry.make_tool("rocprof_sys", found.options).launch(found, "/out").env
    assert env["ROCPROFSYS_SAMPLING_FREQ"] == "100"
    assert env["ROCPROFSYS_OUTPUT_PREFIX"] == "mine"
    assert "/out" in env["ROCPROFSYS_OUTPUT_PATH"]


# --- verl on NPU --------------------------------------------------------------------------------------------------------


@tries("D1")
def each_tool(row, _):
    for word in row.typed:
        base = verl("c")
        del base[ARR]["actor"]["profiler"]["tool_config"]
        _, plan, _ = loaded(row, base, [word])
        assert plan.assign(Target(ARR, ROLES, 0, 8)).tool == word.split("=")[1]


@tries("D5")
def roles_are_chosen(row, _):
    _, plan, _ = loaded(row)
    assert [plan.assign(Target(ARR, ("ref",), rank, 8)).selected for rank in (0, 1, 2)] == [False, True, True]


@tries("D6", "E5")
def levels(row, _):
    for word in row.typed:
        level = word.split("=")[1].strip("'\"")
        assert options(loaded(row, typed=[word])[1])["level"] == level


@tries("D7")
def contents(row, _):
    given = options(loaded(row)[1])["contents"]
    assert given == ["npu", "cpu", "memory", "shapes", "module", "stack"]
    ascend = pytest.importorskip("accelprof_ascend.options", reason="accelprof-ascend is not installed")
    assert set(ascend.NpuOptions(contents=given).wanted) == set(given)


@tries("D8")
def analysis(row, _):
    ascend = pytest.importorskip("accelprof_ascend.options", reason="accelprof-ascend is not installed")
    typed = [word for word in row.typed if "=" in word]
    meant = [ascend.NpuOptions(**options(loaded(row, typed=[word])[1])).analysis for word in typed]
    assert meant == ["online", "offline"]


@tries("D9")
def end_to_end(row, tmp_path):
    """The guide's whole command: one directory for all stages of step 2 on rank 0, device data only, at level 1."""
    _, plan, file = loaded(row)
    found = plan.assign(Target(ARR, ROLES, 0, 8))
    assert (found.tool, list(found.windows), found.discrete) == ("npu", [(2,)], False)
    assert {"level": "level1", "contents": ["npu"], "analysis": True}.items() <= dict(found.options).items()
    assert not plan.assign(Target(ARR, ROLES, 1, 8)).selected
    assert file.config.output_dir == "outputs/profile"


@tries("D10")
def apart(row, _):
    """The guide's other command: the actor alone, a window a stage; roles that are off ask for nothing."""
    _, plan, _ = loaded(row)
    found = plan.assign(Target(ARR, ROLES, 0, 8))
    assert (found.discrete, list(found.steps), sorted(found.asked_by)) == (True, [2], ["actor"])
    assert found.options["level"] == "level0"


@tries("D11")
def names_of_directories(row, tmp_path):
    found = {}
    for discrete in (False, True):
        with capture(directory=str(tmp_path / str(discrete)), steps=[2], discrete=discrete, ranks="all") as captured:
            with captured.session.step(2):
                for phase in ("actor_update", "ref_log_prob"):
                    accelprof.timer(phase)(lambda: None)()
            captured.session.close()
            found[discrete] = sorted(path.name for path in Path(captured.run_dir).rglob("*-s2-*.trace.json*"))
    assert len(found[False]) == 1
    assert ["actor_update" in found[True][0], "ref_log_prob" in found[True][1], len(found[True])] == [True, True, 2]


def schedule_of(row: Row) -> Any:
    """The schedule that a row types, planned beside the phases of an ordinary configuration of ours."""
    (text,) = row.typed
    registry = make_catalogue()
    config = registry.load({"steps": [2], "tool": "trace", **yaml.safe_load(text)}).config
    (spec,) = registry.plan(config).assign(Target("G", (), 0, 1)).schedules
    return spec


def recorded(spec: Any, calls: int) -> list[int]:

    return [number for number in range(calls) if spec.place(number)[0] == "active"]


@tries("D13")
def words_of_a_schedule(row, _):
    spec = schedule_of(row)
    assert recorded(spec, 40) == [12, 13, 14, 17, 18, 19]


@tries("D14")
def decode_steps(row, _):
    spec = schedule_of(row)
    assert recorded(spec, 100) == list(range(30, 60))


@tries("D16", "E17")
def no_conflict(row, _):
    _, plan, _ = loaded(row, typed=row.typed[:1])
    assert windows(plan) is None


@tries("E1")
def either_trainers_file(row, tmp_path):
    """Of FSDP and of Megatron: the actor's ``strategy`` and its own keys differ, and profiling is read from either."""
    own = {
        "ppo_trainer.yaml": {"strategy": "fsdp", "fsdp_config": {"param_offload": False}},
        "ppo_megatron_trainer.yaml": {"strategy": "megatron", "megatron": {"tensor_model_parallel_size": 2}},
    }
    assert set(row.typed) == set(own)
    for name in row.typed:
        file = verl("c")
        file[ARR]["actor"].update(own[name])
        path = tmp_path / name
        path.write_text(yaml.safe_dump(file))
        registry = make_catalogue()
        assert windows(registry.plan(registry.load(path).config)) == STEPS


@tries("E2")
def no_ranks(row, _):
    """Who is profiled is up to the release, in the file or beside it."""
    for release, selected in (("0.6.0", False), ("0.7.0", False), ("0.7.1", True), ("0.9.1", True)):
        base = verl("c")
        base["global_profiler"]["verl_version"] = release
        base[ARR]["actor"]["profiler"]["ranks"] = []
        _, plan, file = loaded(row, base, ())
        assert [windows(plan, rank=rank) is not None for rank in (0, 1)] == [selected, False], release
        said = [note.text for note in file.notes if note.path == f"{ARR}.actor.profiler.ranks"]
        assert len(said) == 1, release
        assert ("rank 0" in said[0]) is selected


@tries("E4")
def the_end_to_end_example(row, _):
    alone, *in_full = row.typed
    guide = {"global_profiler": {"steps": [1, 2, 5], "save_path": "./outputs/profile"}}
    profiler = {
        "enable": True,
        "all_ranks": True,
        "tool_config": {"npu": {"discrete": False, "contents": ["npu", "cpu"]}},
    }
    guide[ARR] = {"actor": {"profiler": profiler}}
    assert windows(loaded(row, guide, ())[1], roles=("actor",)) is None
    assert any("verl profiles nothing" in note.text for note in loaded(row, guide, ())[2].notes)
    for base, typed in ((guide, [alone]), ({"global_profiler": {}}, in_full)):
        follows(*loaded(row, base, typed)[1:])
    assert "tool=npu" in alone
    follows(*loaded(row, guide, ["tool=npu"])[1:])


def follows(plan, file):
    found = plan.assign(Target(ARR, ("actor",), 7, 8))
    assert (list(found.windows), found.discrete, found.options["contents"]) == (STEPS, False, ["npu", "cpu"])
    assert plan.assign(Target(ARR, ("rollout",), 7, 8)).selected
    assert not plan.assign(Target(ARR, ("ref",), 7, 8)).selected
    assert any("the reference model is not profiled" in note.text for note in file.notes)


@tries("E6")
def default_contents(row, _):
    ascend = pytest.importorskip("accelprof_ascend.options", reason="accelprof-ascend is not installed")
    assert ascend.NpuOptions(**options(loaded(row)[1])).wanted == ("npu", "cpu")


@tries("E7")
def an_agent_loop_is_discrete(row, _):
    discrete, not_discrete = row.typed
    section = {"enable": True, "ranks": [0], "tool_config": {"npu": {}}}
    base = {**verl("c"), ARR: {"rollout": {"mode": "async", "name": "vllm", "profiler": section}}}
    _, plan, _ = loaded(row, base, [discrete])
    assert plan.assign(Target("rollout", ("rollout",), 3, 8, 0)).discrete
    assert "tool_config.npu.discrete" in refusal(row, [not_discrete], base)


@tries("E9")
def variables_of_the_engine(row, _):
    from accelprof.engines.profiler import replica_settings

    (section,) = row.typed
    config = make_catalogue().load({"steps": [1], "discrete": True, **yaml.safe_load(section)}).config
    settings = replica_settings(config, "vllm", "/run", replica=0)
    assert settings.env["VLLM_TORCH_PROFILER_DIR"].startswith("/run/")
    flags = {name.removeprefix("VLLM_TORCH_PROFILER_"): value for name, value in settings.env.items()}
    assert flags["WITH_STACK"] == flags["RECORD_SHAPES"] == flags["WITH_PROFILE_MEMORY"] == flags["WITH_FLOPS"] == "1"


@tries("E12", "E13", "E14", "E15")
def fine_windows(row, _):
    """The sample that the guide edits into a source is a schedule on a stage that a preset names."""
    from accelprof.planning.presets import BUILTIN

    (text,) = row.typed
    given = yaml.safe_load(text)
    registry = make_catalogue()
    config = registry.load({"steps": [2], "tool": "trace", **given}).config
    (spec,) = registry.plan(config).assign(Target("G", (), 0, 1)).schedules
    assert recorded(spec, 10) == [0]
    phases = {site.phase for name in given["presets"] for site in BUILTIN[name].sites}
    assert spec.phase in phases
    assert spec.per in phases


@tries("E18")
def batches_of_sglang(row, _):
    from accelprof.planning.presets import BUILTIN

    spec = schedule_of(row)
    assert recorded(spec, 20) == [2, 3, 4]
    assert spec.phase in {site.phase for site in BUILTIN["sglang.batch"].sites}


@tries("E16")
def megatron_has_no_micro_batch(row, _):
    (text,) = row.typed
    registry = make_catalogue()
    with pytest.raises(ConfigError, match=r"verl.mini_batch"):
        registry.plan(registry.load({"steps": [2], "tool": "trace", **yaml.safe_load(text)}).config)


# --- last: the tries are known now -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [row for row in ROWS if row.number in TRIES], ids=str)
def test_a_row_does_what_it_says(row, tmp_path):
    """What the row types is taken as it stands, and gives what the guide promises or what the page says instead."""
    TRIES[row.number](row, tmp_path)
