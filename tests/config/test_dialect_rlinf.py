"""RLinf's profiling and tracer sections: the configurations its guide shows, and the plan each gives."""

from __future__ import annotations

import pytest

from accelprof.catalogue import get_catalogue
from accelprof.config.dialects import BUILTIN
from accelprof.config.dialects.rlinf import PHASES
from accelprof.config.load import load_config
from accelprof.contracts.targets import Target
from accelprof.errors import ConfigError
from tests.planning.plans import make_plan

SIX = ["ActorGroup", "RolloutGroup", "EnvGroup", "Actor", "Rollout", "Env"]
LOGGER = {"logger": {"log_path": "../results", "experiment_name": "exp1"}}


def load(profiling=None, **more):
    config = {"cluster": {"profiling": profiling} if profiling is not None else {}, "runner": LOGGER}
    config["cluster"].update(more)
    config["cluster"]["component_placement"] = {"actor": "all"}
    return load_config(config, dialects=BUILTIN)


def nsight(**more):
    return {"backend": "nsight", "worker_groups": ["ActorGroup", "RolloutGroup"], **more}


def assign(loaded, group, rank=3):
    return make_plan(loaded.config).assign(Target(group, (), rank, 8))


def refused(profiling, **more):
    with pytest.raises(ConfigError) as caught:
        load(profiling, **more)
    return {problem.path: str(problem) for problem in caught.value.problems}


def notes(loaded):
    return {note.path: f"{note.kind}: {note.text}" for note in loaded.notes}


def test_e17_whole_life():
    """E17: without steps both groups are captured over their whole life, and channel workers are not among them."""
    loaded = load(nsight())
    row = assign(loaded, "ActorGroup")
    assert (row.mode, row.tool, row.count.exact) == ("process", "nsys", 1)
    assert assign(loaded, "RolloutGroup").selected
    assert not assign(loaded, "Actor").selected
    assert not assign(loaded, "Rollout").selected
    assert "capture-range" not in row.options


def test_e18_three_windows_in_six_groups():
    """E18: three windows in every process of six groups, those of the channels included."""
    loaded = load(nsight(steps=[3, 10, 50], worker_groups=SIX))
    for group in SIX:
        row = assign(loaded, group, rank=7)
        assert list(row.windows) == [(3,), (10,), (50,)]
        assert row.count.exact == 3


def test_e19_disabled():
    """E19: disabled wraps nothing and makes no directory."""
    loaded = load(nsight(enabled=False, steps=[3, 10, 50], worker_groups=SIX))
    assert not any(assign(loaded, group, 0).selected for group in SIX)
    assert not loaded.config.enabled


def test_e20_no_groups():
    """E20: no group named is nobody, with a note."""
    loaded = load({"backend": "nsight", "steps": [1]})
    assert not assign(loaded, "ActorGroup", 0).selected
    assert "nobody is profiled" in notes(loaded)["cluster.profiling.worker_groups"]


E21 = nsight(
    steps=[3, 10],
    options={"t": "cuda,nvtx", "backtrace": "fp", "capture-range": "cudaProfilerApi"},
    flags=["python-backtrace"],
)


def test_e21_options_become_an_argv():
    """E21: options and flags reach nsys as they are written, and the capture count is the plan's."""
    pytest.importorskip("accelprof_cuda", reason="accelprof-cuda is not installed")
    from accelprof.catalogue import make_catalogue
    from accelprof.launch.preview import preview

    registry = make_catalogue()
    (row, *_) = preview(registry, registry.plan(load(E21).config), {"ActorGroup": 1, "RolloutGroup": 1})
    argv = row["argv"]
    assert "--trace=cuda,nvtx" in argv or argv[argv.index("-t") + 1] == "cuda,nvtx"
    assert {"--backtrace=fp", "--python-backtrace"} <= set(argv)
    assert any(word.endswith(("repeat:2", "repeat-shutdown:2")) for word in argv)


def test_e21_stop_contradicts_two_windows():
    """E21: ``stop`` keeps the first of two windows, so it is refused with the count that works as the mend."""
    said = refused({**E21, "options": {**E21["options"], "capture-range-end": "stop"}})
    assert "repeat:2" in said["cluster.profiling.options.capture-range-end"]
    said = refused({**E21, "options": {"stop-on-range-end": True}})
    assert "repeat:2" in said["cluster.profiling.options.capture-range-end"]


ROCPROF = {
    "backend": "rocprof_sys",
    "worker_groups": "all",
    "args": {"T": "hip,hsa,rccl", "output-format": "json"},
    "env": {"ROCPROFSYS_SAMPLING_FREQ": "100"},
}


def test_e22_what_the_launcher_takes_its_tool_decides():
    """E22: args and env go to the tool as they stand; which of them its program has, and the form that works, the tool says."""
    loaded = load({**ROCPROF, "args": {"b": True, "T": "hip,hsa,rccl"}})
    assert loaded.config.tools["rocprof_sys"] == {
        "args": {"b": True, "T": "hip,hsa,rccl"},
        "env": {"ROCPROFSYS_SAMPLING_FREQ": "100"},
    }
    assert assign(loaded, "AnyGroup").selected
    pytest.importorskip("accelprof_rocm", reason="accelprof-rocm is not installed")
    with pytest.raises(ConfigError) as error:
        get_catalogue().plan(load(ROCPROF).config)
    said = {problem.path: str(problem) for problem in error.value.problems}
    assert "ROCPROFSYS_ROCM_DOMAINS" in said["cluster.profiling.args.T"]
    assert "no option --output-format" in said["cluster.profiling.args.output-format"]


def test_e23_output_directory_of_the_logger():
    """E23: without an output directory it is derived from the runner's logger."""
    assert load(nsight()).config.output_dir == "../results/exp1/profiling"
    assert load(nsight(output_dir="/d")).config.output_dir == "/d"


def test_groups_are_matched_whatever_their_case():
    """RLinf compares group names without case, and so does the plan."""
    loaded = load(nsight(worker_groups=["actorgroup"]))
    assert assign(loaded, "ActorGroup").selected
    assert not assign(loaded, "Actor").selected


def test_empty_steps_are_off():
    """An empty list of steps wraps nothing, and a note says what RLinf does with it."""
    loaded = load(nsight(steps=[]))
    assert not assign(loaded, "ActorGroup").selected
    assert "never opens one" in notes(loaded)["cluster.profiling.steps"]


def test_tracer_alone():
    """The tracer without a profiler is our timeline in every process for its whole life."""
    loaded = load(tracer={"enable": True})
    row = assign(loaded, "EnvGroup")
    assert (row.tool, row.timeline, row.mode) == (None, True, "process")
    assert loaded.config.output_dir == "../results/exp1/trace"
    assert not load(tracer={"enable": False}).config.enabled


def test_logger_by_interpolation():
    """Paths that are interpolations of the same file are resolved."""
    config = {
        "cluster": {"profiling": nsight()},
        "runner": {
            "logger": {"log_path": "${oc.select:base.dir,../out}", "experiment_name": "${.kind}-1", "kind": "ppo"}
        },
    }
    assert load_config(config, dialects=BUILTIN).config.output_dir == "../out/ppo-1/profiling"


def test_preset_of_the_guide():
    """The options that RLinf's own preset gives nsys load, and go to nsys unchanged."""
    options = {"t": "cuda,cudnn,cublas,nvtx,osrt", "sample": "process-tree", "cpuctxsw": "process-tree",
               "cudabacktrace": "all", "osrt-threshold": 1000}  # fmt: skip
    loaded = load(nsight(worker_groups=["ActorGroup", "RolloutGroup", "EnvGroup"], options=options))
    assert loaded.config.tools["nsys"] == options


def test_labels_are_listed():
    """The catalogue has the labels that RLinf's guide names."""
    assert {"actor/recv_traj", "actor/compute_adv", "run_training", "rollout/generate", "predict"} <= PHASES.keys()


@pytest.mark.parametrize(
    ("change", "path", "says"),
    [
        ({"backend": "nsigth"}, "backend", "did you mean 'nsight'?"),
        ({"backend": None}, "backend", "must be given"),
        ({"worker_group": ["A"]}, "worker_group", "did you mean 'worker_groups'?"),
        ({"args": {"b": 1}}, "args", "it belongs to backend rocprof_sys"),
        ({"steps": "3"}, "steps", "Mend: [3]"),
        ({"steps": {"a": 1}}, "steps", "a dict where a list is expected"),
        ({"steps": [-1]}, "steps", "-1 is not a whole number"),
        ({"steps": [1, True]}, "steps", "True is not a whole number"),
        ({"enabled": "yes"}, "enabled", "not a truth value"),
        ({"worker_groups": {"a": 1}}, "worker_groups", "not a name or a list of names"),
        ({"options": {"t": "cuda"}, "flags": ["t"]}, "flags", "stands under options too"),
        ({"options": ["t"]}, "options", "a list where a mapping is expected"),
    ],
)
def test_bad_input(change, path, says):
    """What is wrong is named by path with its value, and the near match or the backend it belongs to."""
    assert (
        says
        in refused(nsight(**change) if "backend" not in change else {**nsight(), **change})[f"cluster.profiling.{path}"]
    )
