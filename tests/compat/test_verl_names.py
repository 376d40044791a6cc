"""``accelprof.compat.verl`` without verl: its names, arguments and results, and where ours are right."""

from __future__ import annotations

import asyncio
import inspect
import logging

import pytest

from accelprof.compat import install as install_framework
from accelprof.compat import installed, verl
from accelprof.compat.patching import Patches
from accelprof.environment import STARTUP
from accelprof.errors import ConfigError, UserError
from accelprof.testing import capture


def config(**more):
    return verl.ProfilerConfig(**{"tool": "torch", "enable": True, **more})


def test_union_and_intersection():
    """Ranks are joined in order; either or both must say so; everybody with some is some."""
    one, two = config(ranks=[3, 1], finish_hook_cmd="a"), config(ranks=[1, 2], enable=False, all_ranks=True)
    union, both = one.union(two), one.intersect(two)
    assert (union.ranks, union.enable, union.all_ranks, union.finish_hook_cmd) == ([1, 2, 3], True, True, "a")
    assert (both.ranks, both.enable, both.all_ranks) == ([1, 3], False, False)
    assert config(ranks=[0, 1]).intersect(config(ranks=[1, 2])).ranks == [1]


@pytest.mark.parametrize("join", ["union", "intersect"])
def test_tools_that_differ(join):
    """Profilers of different tools cannot be joined: verl's AssertionError, and our own error."""
    for kind in (AssertionError, ConfigError):
        with pytest.raises(kind, match="different tools"):
            getattr(config(), join)(config(tool="nsys"))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: config(ranks="0"), "a str where a list is expected"),
        (lambda: config(ranks=[True]), "True is not a rank"),
        (lambda: config(finish_hook_cmd=3), "not a text"),
        (lambda: verl.TorchProfilerToolConfig(contents=["gpu"]), "'gpu' cannot be recorded"),
        (lambda: verl.TorchProfilerToolConfig(profile_token_start=5, profile_token_end=5), "the end is exclusive"),
        (lambda: verl.TorchProfilerScheduleConfig(active=-1), "whole numbers >= 0"),
        (lambda: verl.TorchMemoryToolConfig(stack_depth=0), "whole numbers >= 1"),
        (lambda: verl.NPUToolConfig(level="level9"), "allowed: level_none, level0"),
        (lambda: verl.NPUToolConfig(analysis="yes"), "not a truth value"),
    ],
)
def test_bad_values(make, says):
    """What verl asserts is refused with path, value and what is allowed, also under ``python -O``."""
    with pytest.raises(AssertionError, match=says):
        make()


def test_configs_are_mappings():
    """Configuration objects are mappings of their fields, as verl's are."""
    made = verl.NPUToolConfig(contents=["cpu"])
    assert (made["level"], made.get("nothing", 3), dict(made)["contents"]) == ("level0", 3, ["cpu"])
    assert verl.TorchProfilerScheduleConfig(active=1).enabled


def test_marks_and_timers_reach_the_tool():
    """Start/end ranges, annotated functions and marked timers leave balanced ranges in an open window."""
    with capture(steps=[1], ranks="all", timeline=False) as captured:
        raw = {}

        @verl.mark_annotate("labelled", color="red")
        def work():
            return 5

        assert verl.mark_start_range("closed").entry is None
        with captured.session.step(1):
            one, two = verl.mark_start_range("one"), verl.mark_start_range("two")
            verl.mark_end_range(one)
            verl.mark_end_range(two)
            verl.mark_end_range(two)
            assert work() == 5
            with pytest.raises(KeyError), verl.marked_timer("timed", raw, color="blue", domain="d"):
                raise KeyError
        for anything in (None, 0, 7, "range", object(), [], float("nan")):
            verl.mark_end_range(anything)
        calls = [call for call in captured.backend.calls if call[0] in ("push", "pop", "start", "end")]
    labels = [str(call) for call in calls if call[0] in ("push", "start")]
    assert all(any(name in label for label in labels) for name in ("one", "two", "labelled", "timed"))
    assert len([call for call in calls if call[0] in ("push", "start")]) == len(calls) / 2
    assert raw["timed"] > 0


def test_timers_add_up_and_decorate():
    """Timers add to what is there, work as decorators of plain and async functions, and keep the function's kind."""
    raw = {"a": 1.0}

    @verl.simple_timer("a", raw)
    def plain():
        return 1

    @verl.marked_timer("b", raw)
    async def waits():
        await asyncio.sleep(0.01)
        return 2

    assert (plain(), plain(), asyncio.run(waits())) == (1, 1, 2)
    assert inspect.iscoroutinefunction(waits)
    assert raw["a"] > 1.0
    assert raw["b"] == pytest.approx(0.01, abs=0.05)


def test_timers_of_blocks_that_raise():
    """A block that raises leaves no seconds with ``simple_timer``, as verl's, and those up to it with ``marked_timer``."""
    raw = {}
    for made in (verl.simple_timer("simple", raw), verl.marked_timer("marked", raw)):
        with pytest.raises(KeyError), made:
            raise KeyError("x")
    assert set(raw) == {"marked"}


def test_timings_without_ranks():
    """Without torch.distributed timings stay as they are, and lists have one value."""
    raw = {"a": 1.0}
    assert verl.reduce_timing(raw) is raw
    assert verl.gather_timing(raw) == {"a": [1.0]}
    assert verl.topk_reduce_ratio_min_max(1.0) == (-1.0, -1.0, -1.0)


RANKS = """
import json, math, sys
import torch.distributed as dist
from accelprof.compat import verl
rank, size, store = int(sys.argv[1]), 3, sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
raw = {0: {"a": 1.0, "b": 2.0}, 1: {"b": 4.0, "c": 8.0}, 2: {"a": 3.0, "c": 9.0}}[rank]
gathered = {name: [None if math.isnan(v) else v for v in values] for name, values in verl.gather_timing(raw).items()}
out = [verl.reduce_timing(raw), verl.reduce_timing(raw, dist.ReduceOp.MAX), gathered, verl.topk_reduce_ratio_min_max([1.0, 1.0, 2.0][rank], k=34)]
if rank == 0:
    sys.stdout.write(json.dumps(out))
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.torch
def test_timings_over_ranks(tmp_path):
    """Ranks with different names are reduced by name; a list says which rank has none; the slowest ranks' share is real."""
    import json
    import subprocess
    import sys

    pytest.importorskip("torch", reason="torch is not installed")
    (tmp_path / "ranks.py").write_text(RANKS)
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", tmp_path / "ranks.py", str(rank), tmp_path / "store"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(3)
    ]
    outputs = [process.communicate(timeout=150) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    mean, most, gathered, share = json.loads(outputs[0][0])
    assert mean == {"a": 2.0, "b": 3.0, "c": 8.5}
    assert most == {"a": 3.0, "b": 4.0, "c": 9.0}
    assert gathered == {"a": [1.0, None, 3.0], "b": [2.0, 4.0, None], "c": [None, 8.0, 9.0]}
    assert share == [0.5, 1.0, 2.0]


def test_memory_logger(caplog):
    """The memory logger keeps name and kind, says Before and After also when the function raises, and calls it once."""
    calls = []

    @verl.GPUMemoryLogger("actor", logging.getLogger("m"), level=logging.WARNING)
    def update(value: int) -> int:
        """Doc."""
        calls.append(value)
        raise ValueError(value)

    with pytest.raises(ValueError, match="3"):
        update(3)
    assert (update.__name__, update.__doc__, calls) == ("update", "Doc.", [3])
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        "actor Before update",
        "actor After update",
    ]
    calls.clear()
    with pytest.raises(ValueError, match="4"):
        verl.GPUMemoryLogger("actor").log(update.__wrapped__, value=4)
    assert calls == [4]
    verl.log_gpu_memory_usage("here", logging.getLogger("m"), logging.WARNING)
    assert "here, device memory" in caplog.text


def test_profiler_without_verl(tmp_path):
    """The dispatcher itself: selection, idempotent steps, one window for two profilers of a process."""
    import accelprof

    made = [
        verl.DistProfiler(rank, config(tool=None, ranks=[1], save_path=str(tmp_path)), save_file_prefix=role)
        for rank, role in ((1, "actor"), (1, "value_model"), (0, "ref"))
    ]

    class Worker:
        profiler = made[0]

        @verl.DistProfiler.annotate(role="update")
        def update(self):
            return 4

    session = accelprof.configure(steps="all", ranks="all", output_dir=str(tmp_path), rank=1)
    try:
        assert [profiler.check_this_rank() for profiler in made] == [True, True, False]
        for profiler in made:
            profiler.start(profile_step=9)
            profiler.start(profile_step=9)
        worker = Worker()
        assert worker.update() == 4
        made[0].stop()
        assert session.window is not None
        made[1].stop()
        made[1].stop()
        assert [row["steps"] for row in session.windows] == [[9]]
        assert session.metrics_of_step(9)["update"]["count"] == 1
    finally:
        accelprof.reset()


def test_patches_are_taken_back():
    """Replacements are undone in reverse, class attributes as they stood, and absent ones are absent again."""

    class Owner:
        @staticmethod
        def kept():
            return 1

    patches, before = Patches(), vars(Owner)["kept"]
    patches.set(Owner, "kept", lambda: 2)
    patches.set(Owner, "kept", lambda: 3)
    patches.set(Owner, "added", 4)
    order = []
    patches.then(lambda: order.append(Owner.added))
    patches.undo()
    assert vars(Owner)["kept"] is before
    assert not hasattr(Owner, "added")
    assert order == [4]


def test_what_install_refuses():
    """An unknown framework and one that is not installed are refused by name; nothing is half installed."""
    with pytest.raises(UserError, match="did you mean 'verl'"):
        install_framework("verll")
    with pytest.raises(UserError, match="rlinf is not installed"):
        install_framework("rlinf")
    assert installed() == ()


def test_environment_of_a_job(monkeypatch, caplog):
    """ACCELPROF_INSTALL travels with the path of the start-up module, once; unknown names are said."""
    from accelprof.compat import startup

    env = startup.environment({"ACCELPROF_INSTALL": "verl", "PYTHONPATH": "/a"})
    assert env["PYTHONPATH"] == f"{STARTUP}:/a"
    assert startup.environment(env) == env
    assert startup.environment({}) == {}
    assert startup.names({"ACCELPROF_INSTALL": "verl, rlinff"}) == ["verl"]
    assert "names no framework" in caplog.text


def test_startup_module_makes_room(tmp_path):
    """In a job's processes our start-up module watches, and the sitecustomize that stood there before still runs."""
    import os
    import subprocess
    import sys

    from accelprof.compat import startup

    (tmp_path / "sitecustomize.py").write_text("import sys; sys.theirs = True")
    env = {**os.environ, "ACCELPROF_INSTALL": "verl", "PYTHONPATH": str(tmp_path)}
    code = (
        "import sys; print(getattr(sys, 'theirs', False), 'accelprof.compat.startup' in sys.modules,"
        " sys.modules['sitecustomize'].__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**env, **startup.environment(env)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["True", "True", str(tmp_path / "sitecustomize.py")]
    assert done.stderr == ""


@pytest.mark.torch
def test_only_started_profilers_decide(tmp_path, caplog):
    """A profiler that nobody starts contradicts nobody; of two that are started the first decides, and that is said."""
    pytest.importorskip("torch", reason="torch is not installed")
    import accelprof

    def made(discrete, prefix, contents=("cpu",)):
        tool = verl.TorchProfilerToolConfig(contents=list(contents), discrete=discrete)
        return verl.DistProfiler(0, config(ranks=[0], save_path=str(tmp_path), tool_config=tool), tool, prefix)

    class Worker(verl.DistProfilerExtension):
        @verl.DistProfiler.annotate(role="update")
        def update(self):
            return 1

    outer, inner = Worker(made(True, "actor_rollout_ref")), Worker(made(False, "language_model", ["cpu", "stack"]))
    try:
        outer.start_profile(profile_step=1)
        assert outer.update() == 1
        assert caplog.text == ""
        inner.start_profile(profile_step=1)
        assert inner.update() == 1
        for worker in (outer, inner):
            worker.stop_profile()
        session = accelprof.current_session()
        assert [row["phase"] for row in session.windows] == ["update", "update"]
        assert session.assignment.options == {"contents": ["cpu"]}
        assert session.target.roles == ("actor", "rollout", "ref")
        assert "language_model: discrete False contradicts True of actor_rollout_ref" in caplog.text
    finally:
        verl.process.release()
        accelprof.reset()


def test_a_profiler_that_cannot_be_had_decides_nothing(tmp_path, caplog):
    """One with an unknown tool is started first and refused; the next one decides, and contradicts nobody."""
    pytest.importorskip("torch", reason="torch is not installed")
    import accelprof

    tool = verl.TorchProfilerToolConfig(contents=["cpu"], discrete=True)
    wrong = verl.DistProfiler(0, config(ranks=[0], save_path=str(tmp_path)), None, "critic")
    wrong._tool = "trch"
    right = verl.DistProfiler(0, config(ranks=[0], save_path=str(tmp_path), tool_config=tool), tool, "actor")
    try:
        for profiler in (wrong, right):
            profiler.start(profile_step=1)
        assert (wrong.check_this_step(), right.check_this_step()) == (False, True)
        assert "did you mean 'torch'" in caplog.text
        assert "contradicts" not in caplog.text
        for profiler in (wrong, right):
            profiler.stop()
    finally:
        verl.process.release()
        accelprof.reset()


@pytest.mark.torch
@pytest.mark.parametrize("discrete", [False, True])
def test_schedule_keeps_the_other_stages(tmp_path, discrete):
    """A torch schedule thins out mini-batches and keeps what else the step runs: in one window, or with discrete in its own."""
    pytest.importorskip("torch", reason="torch is not installed")
    import accelprof

    tool = verl.TorchProfilerToolConfig(
        contents=["cpu"], discrete=discrete, schedule=verl.TorchProfilerScheduleConfig(active=1, repeat=1)
    )
    made = verl.DistProfiler(0, config(ranks=[0], save_path=str(tmp_path), tool_config=tool), tool, "actor")

    class Worker(verl.DistProfilerExtension):
        @verl.DistProfiler.annotate(role="log_prob")
        def log_prob(self):
            return 1

        @verl.DistProfiler.annotate(role="my_update", scheduled=True)
        def update(self):
            return [self.train_batch() for _ in range(3)]

        @verl.DistProfiler.annotate(role="train_batch")
        def train_batch(self):
            return 2

    worker = Worker(made)
    try:
        for step in (1, 2):
            worker.start_profile(profile_step=step)
            assert (worker.log_prob(), worker.update()) == (1, [2, 2, 2])
            worker.stop_profile()
        session = accelprof.current_session()
        seen = [(row.kind, row.phase, row.steps) for row in session.windows]
        if discrete:
            step = [("phase", "log_prob"), ("schedule", "train_batch")]
            assert seen == [(kind, phase, [number]) for number in (1, 2) for kind, phase in step]
        else:
            assert seen == [("step", None, [1]), ("step", None, [2])]
    finally:
        verl.scheduled.discard("my_update")
        verl.process.release()
        accelprof.reset()
