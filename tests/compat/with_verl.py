"""verl 0.9.1 itself, its decorators and timers going through accelprof. Run under the interpreter that has verl."""

from __future__ import annotations

import copy
import functools
import glob
import gzip
import importlib.util
import inspect
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from omegaconf import OmegaConf
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.profiler import DistProfiler, DistProfilerExtension, ProfilerConfig
from verl.utils.profiler.config import (
    NPUToolConfig,
    NsightToolConfig,
    PrecisionDebuggerToolConfig,
    TorchProfilerScheduleConfig,
    TorchProfilerToolConfig,
)

import accelprof
from accelprof import compat
from accelprof.catalogue import make_catalogue
from accelprof.compat import verl as ours
from accelprof.config.dialects import BUILTIN
from accelprof.config.load import load_config
from accelprof.contracts.targets import Target
from accelprof.errors import UserError


class Before(DistProfilerExtension):
    """Decorated before verl went through us."""

    def __init__(self, profiler):
        super().__init__(profiler)

    @DistProfiler.annotate(role="early")
    def early(self, calls):
        calls.append(1)
        return len(calls)


@pytest.fixture
def verl():
    compat.install("verl")
    yield compat
    compat.uninstall()
    accelprof.reset()


def settings(tmp_path, tool=None, rank=0, **more):
    tool = TorchProfilerToolConfig() if tool is None else tool
    options = {"enable": True, "ranks": [0], "save_path": str(tmp_path), **more}
    return ProfilerConfig(tool=tool.name.replace("nsight", "nsys"), tool_config={tool.name: tool}, **options), tool


def profiler(tmp_path, tool=None, rank=0, prefix="actor_rollout_ref", **more):
    config, tool = settings(tmp_path, tool, rank, **more)
    return DistProfiler(rank=rank, config=config, tool_config=tool, save_file_prefix=prefix)


def manifest(tmp_path):
    """What is written once the files behind training are."""
    accelprof.current_session().captures.wait_for_files()
    (path,) = glob.glob(f"{tmp_path}/*/manifest.json")
    with open(path) as file:
        return json.load(file)


def spans(tmp_path, window):
    found = glob.glob(f"{tmp_path}/*/*/*w{window:04d}*.trace.json.gz")
    (path,) = (path for path in found if not path.endswith(".pt.trace.json.gz"))
    with gzip.open(path) as file:
        names = [event["name"] for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    return [name for name in names if name != f"window {window}"]


def worker_class():
    class Worker(DistProfilerExtension):
        @DistProfiler.annotate(color="red", role="actor_update")
        def update(self, calls):
            calls.append("update")
            return self.inner(calls)

        @DistProfiler.annotate(message="inner label", role="not this")
        def inner(self, calls):
            calls.append("inner")
            return 7

        @DistProfiler.annotate()
        def fails(self, calls):
            calls.append("fails")
            raise KeyError("mine")

        @DistProfiler.annotate(role="waits")
        async def waits(self):
            return 3

    return Worker


def test_windows_ranges_and_metrics(verl, tmp_path):
    """verl's own class: steps that the trainer starts are windows, annotated methods ranges and metrics of the manifest."""
    worker = worker_class()(profiler(tmp_path))
    calls = []
    for step in (3, 5):
        worker.start_profile(role="train", profile_step=step)
        assert worker.update(calls) == 7
        worker.stop_profile()
    assert worker.update(calls) == 7
    found = manifest(tmp_path)
    assert [window["steps"] for window in found["windows"]] == [[3], [5]]
    assert all(window["closed"] for window in found["windows"])
    assert found["targets"][0]["roles"] == ["actor", "rollout", "ref"]
    assert {item["tool"] for item in found["artifacts"]} == {"torch", "trace"}
    assert sorted(spans(tmp_path, 1)) == ["actor_update", "inner label"]
    assert (found["status"], found["undelivered"]) == ("complete", [])
    assert found["metrics"]["steps"][0]["seconds"]["actor_update"]["slowest"] == "actor_rollout_ref/rank0"
    assert calls == ["update", "inner"] * 3


def test_start_and_stop_once(verl, tmp_path):
    """Starting twice opens one window, stopping twice closes it once, and stopping without a start does nothing."""
    worker = worker_class()(profiler(tmp_path))
    worker.stop_profile()
    worker.start_profile(profile_step=1)
    worker.start_profile(profile_step=1)
    assert worker.profiler.check_this_step()
    worker.stop_profile()
    assert not worker.profiler.check_this_step()
    worker.stop_profile()
    assert [window["steps"] for window in manifest(tmp_path)["windows"]] == [[1]]


def test_exception_in_an_annotated_method(verl, tmp_path):
    """The method's own exception reaches the caller, it is called once, its range ends, and the next step is profiled."""
    worker = worker_class()(profiler(tmp_path))
    calls = []
    worker.start_profile(profile_step=1)
    with pytest.raises(KeyError, match="mine"):
        worker.fails(calls)
    worker.stop_profile()
    worker.start_profile(profile_step=2)
    worker.update(calls)
    worker.stop_profile()
    assert calls == ["fails", "update", "inner"]
    assert spans(tmp_path, 1) == ["fails"]
    assert len(manifest(tmp_path)["windows"]) == 2


@pytest.mark.parametrize(
    ("rank", "options", "expected"),
    [
        (0, {"enable": False}, (False, True)),
        (1, {}, (True, False)),
        (1, {"all_ranks": True}, (True, True)),
        (0, {"ranks": []}, (True, True)),
        (3, {"ranks": []}, (True, False)),
    ],
)
def test_selection(verl, tmp_path, rank, options, expected):
    """The same ranks as verl selects; a process that is not selected makes no directory."""
    worker = worker_class()(profiler(tmp_path, rank=rank, **options))
    assert (worker.profiler.check_enable(), worker.profiler.check_this_rank()) == expected
    worker.start_profile(profile_step=1)
    assert worker.update([]) == 7
    worker.stop_profile()
    assert bool(os.listdir(tmp_path)) == all(expected)


def test_discrete(verl, tmp_path):
    """Discrete: each outermost phase has a window of its own, and every window its own file."""
    worker = worker_class()(profiler(tmp_path, TorchProfilerToolConfig(discrete=True)))
    assert worker.profiler.is_discrete_mode()
    for step in (1, 2):
        worker.start_profile(profile_step=step)
        worker.update([])
        worker.update([])
        worker.stop_profile()
    found = manifest(tmp_path)
    assert [(window["steps"], window["phase"]) for window in found["windows"]] == [
        ([step], "actor_update") for step in (1, 1, 2, 2)
    ]
    traces = [item["path"] for item in found["artifacts"] if item["tool"] == "torch"]
    assert len(set(traces)) == 4


def test_role_that_is_off_opens_no_discrete_window(verl, tmp_path):
    """A role that is off runs as ever inside another role's discrete step, without a window of its own."""
    tool = TorchProfilerToolConfig(discrete=True)
    on = worker_class()(profiler(tmp_path, tool))
    off = worker_class()(profiler(tmp_path, tool, enable=False, prefix="ref"))
    on.start_profile(profile_step=1)
    assert off.update([]) == 7
    on.update([])
    on.stop_profile()
    assert len(manifest(tmp_path)["windows"]) == 1


def test_two_workers_of_one_process(verl, tmp_path):
    """Colocated workers share a window: the first start opens it, the last stop closes it."""
    actor, critic = worker_class()(profiler(tmp_path)), worker_class()(profiler(tmp_path, prefix="value_model"))
    for worker in (actor, critic):
        worker.start_profile(profile_step=4)
    actor.update([])
    actor.stop_profile()
    critic.update([])
    critic.stop_profile()
    found = manifest(tmp_path)
    assert len(found["windows"]) == 1
    assert found["targets"][0]["roles"] == ["actor", "rollout", "ref", "critic"]
    assert spans(tmp_path, 1).count("actor_update") == 2


def test_mini_batch_schedule(verl, tmp_path):
    """verl's mini-batch schedule records the stretch it names, and nothing before it."""
    tool = TorchProfilerToolConfig(schedule=TorchProfilerScheduleConfig(skip_first=1, active=2))

    class Trainer(DistProfilerExtension):
        @DistProfiler.annotate(role="train_batch")
        def train_batch(self, index):
            return torch.ones(8).sum().item() + index

    worker = Trainer(profiler(tmp_path, tool))
    worker.start_profile(profile_step=1)
    for index in range(5):
        worker.train_batch(index)
        worker.step_profile()
    worker.stop_profile()
    assert len(manifest(tmp_path)["windows"]) == 1
    assert spans(tmp_path, 1) == ["train_batch"] * 2


def test_async_methods_stay_async(verl, tmp_path):
    """An annotated coroutine function stays one, and its range covers what is awaited."""
    import asyncio

    worker = worker_class()(profiler(tmp_path))
    assert inspect.iscoroutinefunction(type(worker).waits)
    worker.start_profile(profile_step=1)
    assert asyncio.run(worker.waits()) == 3
    worker.stop_profile()
    assert spans(tmp_path, 1) == ["waits"]


def test_marked_timer_of_the_trainer(verl, tmp_path):
    """verl's marked_timer is ours wherever verl imported it, adds up seconds, and survives an exception."""
    from verl.utils import debug, profiler
    from verl.utils.debug import marked_timer

    assert debug.marked_timer is profiler.marked_timer is ours.marked_timer
    raw = {"gen": 1.0}
    with marked_timer("gen", raw, color="red"):
        pass
    with pytest.raises(ZeroDivisionError), marked_timer("bad", raw):
        raise ZeroDivisionError
    assert 1.0 < raw["gen"] < 1.5
    assert 0 < raw["bad"] < 0.5


def test_tools_that_are_missing_do_not_stop_the_worker(verl, tmp_path):
    """A tool that cannot work here is said once; the worker trains on and the timeline is kept."""
    worker = worker_class()(profiler(tmp_path, NsightToolConfig()))
    worker.start_profile(profile_step=1)
    assert worker.update([]) == 7
    worker.stop_profile()
    found = manifest(tmp_path)
    assert (found["status"], found["windows"][0]["tools"]) == ("incomplete", ["trace"])
    npu = worker_class()(profiler(tmp_path, NPUToolConfig(), prefix="other"))
    assert npu.profiler.check_this_rank()


def test_no_tool_is_nothing(verl, tmp_path):
    """Without a tool verl records nothing, and so do we."""
    config = ProfilerConfig(tool=None, enable=True, all_ranks=True, save_path=str(tmp_path), tool_config={})
    worker = worker_class()(DistProfiler(rank=0, config=config, save_file_prefix="actor"))
    worker.start_profile(profile_step=1)
    assert worker.update([]) == 7
    worker.stop_profile()
    assert os.listdir(tmp_path) == []


def test_debugger_is_left_to_verl(verl, tmp_path):
    """The precision debugger keeps verl's own implementation."""
    config, tool = settings(tmp_path, PrecisionDebuggerToolConfig())
    made = DistProfiler(rank=0, config=config, tool_config=tool)
    assert type(made._impl).__name__ == "PrecisionDebuggerProfiler"


def test_phases_of_the_transfer_queue_trainer(verl, tmp_path):
    """A step of the trainer on the transfer queue, its own code with a worker of verl's class: what it times are phases, in a
    window of the step; servers of both managers are started and stopped as verl does it."""
    from verl.trainer.ppo.v1.trainer_separate_async import HybridEngineMode, PPOTrainerSeparateAsync

    calls = []

    class Servers:
        def __init__(self, name):
            self.name = name

        def start_profile(self):
            calls.append(f"{self.name} start")

        def stop_profile(self):
            calls.append(f"{self.name} stop")

    class Trainer(PPOTrainerSeparateAsync):
        def __init__(self):
            self.config = OmegaConf.create({
                "data": {"train_batch_size": 2},
                "trainer": {"critic_warmup": 0},
                "actor_rollout_ref": {"rollout": {"temperature": 1.0}},
                "global_profiler": {"steps": [4], "profile_continuous_steps": False},
            })  # fmt: skip
            self.parameter_sync_step, self.global_steps, self.total_training_steps = 1, 4, 9
            self.timing_raw = {}
            self.prev_step_profile, self.curr_step_profile = False, True
            self.use_reference_policy, self.use_critic = True, False
            self.current_mode = HybridEngineMode.ROLLOUT
            self.hybrid_rollout_config = SimpleNamespace(enable_switch=False)
            self.llm_server_manager, self.standalone_server_manager = Servers("hybrid"), Servers("standalone")
            self.actor_rollout_wg = self.ref_policy_wg = Workers(profiler(tmp_path))
            self.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=None)
            batch = SimpleNamespace(tags=[{}, {}], keys=["a", "b"], partition_id="train", extra_info={})
            self.replay_buffer = SimpleNamespace(sample=lambda **_: (batch, {}))

        switch_to_trainer = prepare_step = lambda self: {}
        _balance_batch = _compute_reward_colocate = _compute_old_log_prob = lambda self, batch, metrics: batch
        _compute_ref_log_prob = _compute_advantage = _balance_batch

        def _update_actor(self, batch, metrics):
            self.actor_rollout_wg.update(calls)
            return batch

    class Workers(worker_class()):
        def start_profile(self, **kwargs):
            calls.append("workers start")
            return super().start_profile(**kwargs)

    trainer = Trainer()
    trainer._start_profiling()
    trainer.on_step_begin()
    found = trainer.step({}, trainer.timing_raw)
    trainer._stop_profiling()
    assert found.keys == ["a", "b"]
    assert calls[:3] == ["workers start", "hybrid start", "standalone start"]
    assert manifest(tmp_path)["windows"][0]["steps"] == [4]
    timed = ["switch_to_trainer", "gen", "reward", "old_log_prob", "ref", "adv", "update_actor"]
    assert list(trainer.timing_raw) == timed
    assert set(spans(tmp_path, 1)) == {*timed, "actor_update", "inner label"}


GENERATED = sorted(Path(importlib.util.find_spec("verl").origin).parent.glob("trainer/config/_generated_*.yaml"))


@functools.lru_cache
def shipped(path):
    return yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.stem)
@pytest.mark.parametrize("tool", ["nsys", "torch"])
@pytest.mark.parametrize("ranks", ["[0,3]", "[]", "all"])
def test_shipped_files_select_as_verl_itself_does(path, tool, ranks):
    """Every composed file of the release, with a profiler switched on: the plan has the ranks and the steps that verl's own
    classes, made from the same file, take; roles that are off take none."""
    key = "actor_rollout_ref.actor.profiler"
    changes = [f"global_profiler.tool={tool}", "global_profiler.steps=[2,5]", f"{key}.enable=true"]
    changes += [f"{key}.all_ranks=true"] if ranks == "all" else [f"{key}.ranks={ranks}"]
    text = shipped(path)
    composed = OmegaConf.create(copy.deepcopy(text))
    composed.merge_with_dotlist(changes)
    theirs = [omega_conf_to_dataclass(composed.actor_rollout_ref[role].profiler) for role in ("actor", "ref")]
    loaded = load_config(text, changes, dialects=BUILTIN)
    plan = make_catalogue().plan(loaded.config)
    for rank in range(5):
        made = [DistProfiler(rank, config, config.tool_config[tool]) for config in theirs]
        taken = [item.check_enable() and item.check_this_rank() for item in made]
        row = plan.assign(Target("actor_rollout_ref", ("actor", "ref"), rank, 8))
        assert row.selected == any(taken)
        assert list(row.steps) == ([2, 5] if any(taken) else [])


def test_finish_command(verl, tmp_path, capfd):
    """The finish command runs once, after the last profiled step, with verl's variables, and what it prints is passed on."""
    log = tmp_path / "log"
    command = f'echo "$VERL_PROFILE_TOOL $VERL_PROFILE_RANK $VERL_PROFILE_ROLE" | tee -a {log}'
    worker = worker_class()(profiler(tmp_path / "out", finish_hook_cmd=command))
    for step, last in ((1, False), (2, True)):
        worker.start_profile(profile_step=step)
        worker.stop_profile(run_command=last)
    assert log.read_text() == "torch 0 actor_rollout_ref\n"
    assert "[Profiler][finish_hook] rank 0: torch 0 actor_rollout_ref" in capfd.readouterr().out


def printed_by(finish, capfd):
    capfd.readouterr()
    finish()
    return sorted(line for line in capfd.readouterr().out.splitlines() if line.startswith("[Profiler][finish_hook]"))


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("prefix", ["actor", None])
@pytest.mark.parametrize("tool", [TorchProfilerToolConfig(), NsightToolConfig()], ids=["torch", "nsys"])
@pytest.mark.parametrize("command", ["env | grep ^VERL_ | sort | grep -v PID; exit 3", None])
def test_finish_command_prints_what_verls_does(tmp_path, capfd, rank, prefix, tool, command):
    """Variables, lines and status of the finish command are those of verl's own code, on ranks that do not run it too."""
    from verl.utils.profiler import nvtx_profile  # noqa: F401 - where verl keeps Ray's directory

    config, tool = settings(tmp_path, tool, finish_hook_cmd=command, finish_hook_ranks=[0])
    theirs = DistProfiler(rank=rank, config=config, tool_config=tool, save_file_prefix=prefix)
    mine = ours.DistProfiler(rank, config, tool, prefix)
    assert printed_by(theirs.run_finish_hook, capfd) == printed_by(mine.run_finish_hook, capfd)


def test_reports_are_moved(verl, tmp_path, monkeypatch):
    """Reports of workers that verl had Ray wrap are moved out of Ray's directory, before the finish command runs."""
    from verl.utils.profiler import nvtx_profile

    logs, out = tmp_path / "nsight", tmp_path / "out"
    logs.mkdir()
    monkeypatch.setattr(nvtx_profile, "RAY_NSIGHT_LOG_DIR", str(logs))
    (logs / f"worker_process_{os.getpid()}.1.nsys-rep").write_text("report")
    command = f"ls {out} > {tmp_path}/seen"
    worker = worker_class()(profiler(out, NsightToolConfig(), relocate_results=True, finish_hook_cmd=command))
    worker.start_profile(profile_step=1)
    worker.stop_profile()
    assert "nsys-rep" in (tmp_path / "seen").read_text()
    assert not list(logs.iterdir())


def test_decorated_before(tmp_path):
    """Classes and profilers that verl made before go through us too, once installed."""
    worker = Before(profiler(tmp_path))
    compat.install("verl")
    try:
        worker.start_profile(profile_step=1)
        assert worker.early([]) == 1
        worker.stop_profile()
        assert spans(tmp_path, 1) == ["early"]
    finally:
        compat.uninstall()
        accelprof.reset()


def iterating():
    """An outer worker whose stage iterates over the mini-batches of an inner one that nobody starts."""

    class Outer(DistProfilerExtension):
        @DistProfiler.annotate(role="compute_log_prob")
        def log_prob(self):
            return 1

        @DistProfiler.annotate(role="actor_update", scheduled=True)
        def update(self, count):
            return [self.inner.train_batch(index) for index in range(count)]

    class Inner(DistProfilerExtension):
        @DistProfiler.annotate(role="train_batch")
        def train_batch(self, index):
            return index

    return Outer, Inner


ITERATING_BEFORE = iterating()


def seen_of(classes, directory, plan, discrete, inner_enabled):
    """Labels window by window, of one step."""
    tool = TorchProfilerToolConfig(schedule=plan and TorchProfilerScheduleConfig(**plan), discrete=discrete)
    worker = classes[0](profiler(directory, tool))
    worker.inner = classes[1](profiler(directory, tool, prefix="language_model", enable=inner_enabled))
    assert worker.inner.profiler.check_this_step() is False
    assert worker.inner.profiler.check_enable() is inner_enabled
    worker.start_profile(profile_step=1)
    assert (worker.log_prob(), worker.update(5)) == (1, [0, 1, 2, 3, 4])
    worker.stop_profile()
    found = [sorted(spans(directory, index + 1)) for index in range(len(manifest(directory)["windows"]))]
    accelprof.reset()
    return found


@pytest.mark.parametrize("inner_enabled", [True, False])
@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("plan", [None, {"active": 2}, {"wait": 1, "active": 1}, {"active": 1, "repeat": 2}], ids=str)
def test_when_a_class_was_decorated_makes_no_difference(tmp_path, plan, discrete, inner_enabled):
    """An inner worker that nobody starts is seen whether it was decorated before the install, in an earlier one, or after it."""
    compat.install("verl")
    earlier = iterating()
    compat.uninstall()
    compat.install("verl")
    try:
        ways = {"before": ITERATING_BEFORE, "earlier": earlier, "after": iterating()}
        found = {way: seen_of(made, tmp_path / way, plan, discrete, inner_enabled) for way, made in ways.items()}
    finally:
        compat.uninstall()
        accelprof.reset()
    assert found["before"] == found["earlier"] == found["after"]
    mini_batches = sum(labels.count("train_batch") for labels in found["after"])
    if inner_enabled and not discrete:
        assert mini_batches == (5 if plan is None else plan["active"] * plan.get("repeat", 1))


def test_uninstall_gives_everything_back(tmp_path):
    """After uninstall verl's functions are its own, also for what was decorated or made in between."""
    import verl.utils.profiler as package
    from verl.utils.profiler import performance

    before = {name: vars(DistProfiler)[name] for name in ("__init__", "start", "stop", "step", "annotate")}
    functions = package.marked_timer, package.simple_timer, performance.reduce_timing, package.mark_annotate
    compat.install("verl")
    compat.install("verl")
    cls = worker_class()
    worker = cls(profiler(tmp_path))
    assert compat.installed() == ("verl",)
    compat.uninstall("verl")
    accelprof.reset()
    assert compat.installed() == ()
    assert {name: vars(DistProfiler)[name] for name in before} == before
    assert (package.marked_timer, package.simple_timer, performance.reduce_timing, package.mark_annotate) == functions
    assert type(worker.profiler._impl).__module__ == "verl.utils.profiler.torch_profile"
    worker.start_profile(profile_step=1)
    assert worker.update([]) == 7
    worker.stop_profile()
    assert not glob.glob(f"{tmp_path}/*/manifest.json")
    assert len(glob.glob(f"{tmp_path}/*.json.gz")) == 1


def test_other_releases_are_refused(monkeypatch):
    """A release that this was not written for is refused, with the way to take it all the same."""
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.4.1")
    with pytest.raises(UserError, match=r"verl 0.4.1 is installed; this was written for 0.9.*any_version=True"):
        compat.install("verl")
    assert compat.installed() == ()


def everything():
    """Every attribute of verl's modules and of the classes in them that are loaded."""
    import sys

    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "verl":
            for attribute, value in list(vars(module).items()):
                found[name, attribute] = value
                if isinstance(value, type) and value.__module__.startswith("verl"):
                    found.update(((name, attribute, key), item) for key, item in list(vars(value).items()))
    return found


def test_uninstall_gives_every_name_back(tmp_path):
    """After three rounds of install, use and uninstall every name of verl is what it was, also in modules imported in between."""
    import sys
    from types import ModuleType

    from verl.utils.profiler import empty_annotations, nvtx_profile, performance  # noqa: F401 - sets of marks that verl has

    before = everything()
    sets = [module for name, module in sys.modules.items() if name.startswith("verl.utils.profiler")]
    for number in range(3):
        compat.install("verl")
        try:
            ours = everything()
            assert sum(ours.get(place) is not value for place, value in before.items()) > 20
            late = sys.modules["verl.imported_late"] = ModuleType("verl.imported_late")
            for module in sets:
                for name in ("marked_timer", "simple_timer", "mark_start_range", "mark_annotate"):
                    if hasattr(module, name):
                        setattr(late, f"{name}_of_{module.__name__}", getattr(module, name))
            worker = worker_class()(profiler(tmp_path / str(number)))
            worker.start_profile(profile_step=1)
            assert worker.update([]) == 7
            worker.stop_profile()
        finally:
            compat.uninstall()
            accelprof.reset()
        after = everything()
        assert [place for place, value in before.items() if after.get(place) is not value] == []
        for attribute, value in vars(late).items():
            name, _, module = attribute.partition("_of_")
            if module:
                assert value is before[module, name], attribute
        del sys.modules["verl.imported_late"]
