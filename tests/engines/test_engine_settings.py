"""Engines' own profilers: what each release gets from one configuration, against stand-ins with that release's signatures."""

from __future__ import annotations

import asyncio
import os
import re

import pytest

from accelprof.config.model import Config
from accelprof.engines.options import EngineOptions, engines_of, rank_of_file, ranks_of, settings_for
from accelprof.engines.preview import preview, text
from accelprof.engines.profiler import EngineProfiler, replica_settings
from accelprof.engines.tables import FILES, RELEASES, VLLM_VARIABLES
from accelprof.errors import CaptureError, ConfigError
from accelprof.versions import within

#: releases that were read, and one later than each table's last
READ = {
    "vllm": "0.8.5 0.9.2 0.10.0 0.10.1 0.10.2 0.11.0 0.11.1 0.11.2 0.12.0 0.13.0 0.14.1 0.16.0 0.17.1 0.18.0 0.19.1 "
    "0.23.0 0.25.1 0.27.1 0.30.0 0.33.0 0.40.0",
    "vllm-ascend": "0.7.3 0.9.1 0.11.0 0.12.0rc1 0.13.0 0.14.0rc1 0.15.0rc1 0.16.0rc1 0.18.0 0.20.2rc1 0.25.1rc1",
    "sglang": "0.4.6 0.4.6.post5 0.4.9 0.5.2 0.5.3 0.5.5 0.5.6 0.5.10 0.5.14 0.5.15 0.5.18 0.5.23",
    "tensorrt-llm": "1.0.0 1.2.0rc1",
}


def derive(engine, version, replica=0, **options):
    return settings_for(engine, version, EngineOptions(**{"profiler": "torch", **options}), "/run/engines", replica)


@pytest.mark.parametrize(("engine", "version"), [(e, v) for e, versions in READ.items() for v in versions.split()])
def test_exactly_one_row_for_each_release(engine, version):
    """Every release that was read has one row, never two, so that environment and arguments are never both sent."""
    assert sum(within(version, release.versions) for release in RELEASES[engine]) == 1
    settings = derive(engine, version, iterations=4)
    assert not (settings.env and settings.arguments)


@pytest.mark.parametrize(
    ("version", "env"),
    [
        ("0.10.0", {"VLLM_TORCH_PROFILER_DIR": "/run/engines/vllm-p1"}),
        (
            "0.11.0",
            {
                "VLLM_TORCH_PROFILER_DIR": "/run/engines/vllm-p1",
                "VLLM_TORCH_PROFILER_RECORD_SHAPES": "1",
                "VLLM_TORCH_PROFILER_WITH_PROFILE_MEMORY": "0",
                "VLLM_TORCH_PROFILER_WITH_STACK": "0",
                "VLLM_TORCH_PROFILER_WITH_FLOPS": "0",
            },
        ),
        (
            "0.12.0",
            {
                "VLLM_TORCH_PROFILER_DIR": "/run/engines/vllm-p1",
                "VLLM_TORCH_PROFILER_RECORD_SHAPES": "1",
                "VLLM_TORCH_PROFILER_WITH_PROFILE_MEMORY": "0",
                "VLLM_TORCH_PROFILER_WITH_STACK": "0",
                "VLLM_TORCH_PROFILER_WITH_FLOPS": "0",
                "VLLM_PROFILER_DELAY_ITERS": "30",
                "VLLM_PROFILER_MAX_ITERS": "30",
                "VLLM_TORCH_PROFILER_USE_GZIP": "1",
                "VLLM_TORCH_PROFILER_DUMP_CUDA_TIME_TOTAL": "0",
                "VLLM_TORCH_PROFILER_DISABLE_ASYNC_LLM": "1",
            },
        ),
    ],
)
def test_vllm_before_profiler_config(version, env):
    """Variables only, written 0 and 1; to leave out 29 iterations the delay is 30; a directory for each replica."""
    settings = derive("vllm", version, replica=1, contents=["shapes"], skip=29, iterations=30)
    assert settings.env == env
    assert settings.arguments == {}


def test_vllm_says_what_old_releases_ignore():
    """What a release cannot do is said, never silently dropped."""
    said = derive("vllm", "0.9.2", contents=["memory"], skip=2, iterations=3).ignored
    assert said == (
        "contents: vllm 0.9.2 always has stack on",
        "contents: vllm 0.9.2 always has memory off",
        "skip: vllm 0.9.2 records from start to stop (it has no limit)",
        "iterations: vllm 0.9.2 records from start to stop (it has no limit)",
    )


@pytest.mark.parametrize("version", ["0.13.0", "0.16.0", "0.23.0", "0.33.0"])
def test_vllm_profiler_config(version):
    """Only keys that the release knows, and never a variable; 0.13 and 0.14 must not have an inherited one."""
    settings = derive("vllm", version, skip=0, iterations=5, contents=["stack"])
    assert settings.env == {}
    assert settings.arguments["profiler_config"] == {
        "profiler": "torch", "torch_profiler_dir": "/run/engines/vllm-p0", "torch_profiler_record_shapes": False,
        "torch_profiler_with_memory": False, "torch_profiler_with_stack": True, "torch_profiler_with_flops": False,
        "torch_profiler_use_gzip": True, "torch_profiler_dump_cuda_time_total": False, "ignore_frontend": True,
        "delay_iterations": 0, "max_iterations": 5,
    }  # fmt: skip
    assert settings.unset == (VLLM_VARIABLES if version == "0.13.0" else ())


def test_vllm_cuda_gate():
    """``profiler: cuda`` starts the CUDA profiler where the release can; a directory would be refused there."""
    config = derive("vllm", "0.33.0", profiler="cuda").arguments["profiler_config"]
    assert config["profiler"] == "cuda"
    assert not any(key.startswith("torch_profiler_") for key in config)
    assert derive("vllm", "0.11.1", profiler="cuda").env["VLLM_TORCH_CUDA_PROFILE"] == "1"
    assert "VLLM_TORCH_CUDA_PROFILE" not in derive("vllm", "0.11.1").env
    for engine, version in (("vllm", "0.10.2"), ("vllm-ascend", "0.25.1rc1")):
        with pytest.raises(ConfigError, match="cannot start the CUDA profiler"):
            derive(engine, version, profiler="cuda")


@pytest.mark.parametrize(
    ("version", "arguments"),
    [
        ("0.16.0", {}),
        ("0.17.1", {"profile_prefix": "p0"}),
        ("0.33.0", {"profile_prefix": "p0", "delay_iterations": 3, "max_iterations": 4}),
    ],
)
def test_vllm_start_call(version, arguments):
    """Start arguments that the release's signature has; any other would be a TypeError."""
    assert dict(derive("vllm", version, skip=2, iterations=4).start_arguments) == arguments


def test_vllm_ascend_by_release():
    """Variables that are off stay absent on 0.13; delay and limit from 0.20.2; shapes and flops are never recorded."""
    assert derive("vllm-ascend", "0.13.0").env == {"VLLM_TORCH_PROFILER_DIR": "/run/engines/vllm-ascend-p0"}
    assert derive("vllm-ascend", "0.12.0rc1", contents=["stack"]).env["VLLM_TORCH_PROFILER_WITH_STACK"] == "1"
    old = derive("vllm-ascend", "0.15.0rc1", iterations=3, contents=["shapes"])
    assert "max_iterations" not in old.arguments["profiler_config"]
    assert set(old.ignored) == {
        "contents: vllm-ascend 0.15.0rc1 does not record shapes",
        "iterations: vllm-ascend 0.15.0rc1 records from start to stop (it has no limit)",
    }
    new = derive("vllm-ascend", "0.20.2rc1", iterations=3, skip=1)
    assert new.arguments["profiler_config"]["max_iterations"] == 3
    assert new.arguments["profiler_config"]["delay_iterations"] == 2


@pytest.mark.parametrize(
    ("version", "start", "steps"),
    [("0.4.6", "tokenizer_manager.start_profile", None), ("0.4.9", "start_profile", 11), ("0.5.15", "start_profile", 11),
     ("0.5.18", "start_profile", 10)],
)  # fmt: skip
def test_sglang_by_release(version, start, steps):
    """Steps go out one higher while releases record one less; 0.4.6 gets none, for its call would not return."""
    settings = derive("sglang", version, iterations=10)
    assert settings.start == start
    assert settings.start_arguments.get("num_steps") == steps
    assert (settings.env, settings.arguments) == ({}, {})
    if "with_stack" in RELEASES["sglang"][-1].call_names.values() and version != "0.4.6":
        assert settings.start_arguments["with_stack"] is False
        assert settings.start_arguments["record_shapes"] is False


@pytest.mark.parametrize(
    ("contents", "activities"),
    [
        ([], ["CPU", "GPU"]),
        (["npu"], ["GPU"]),
        (["cpu"], ["CPU"]),
        (["npu", "cpu", "stack"], ["CPU", "GPU"]),
        (["stack"], ["CPU", "GPU"]),
    ],
)
def test_sglang_on_ascend(contents, activities):
    """``npu`` is the device, which SGLang calls GPU on Ascend too; words that are no activity leave both on."""
    assert derive("sglang", "0.5.10", contents=contents).start_arguments["activities"] == activities


def test_sglang_cannot_skip():
    """Its start step is an absolute counter, so leaving out iterations is said to be ignored."""
    assert any(text.startswith("skip: sglang 0.5.23") for text in derive("sglang", "0.5.23", skip=3).ignored)


def test_tensorrt_llm():
    """A span of iterations in the environment, or calls where the release has them; a window without an end is refused."""
    settings = derive("tensorrt-llm", "1.0.0", skip=30, iterations=30, contents=["shapes"])
    assert settings.env == {
        "TLLM_PROFILE_START_STOP": "30-59",
        "TLLM_TORCH_PROFILE_TRACE": "/run/engines/tensorrt-llm-p0/trace.json",
    }
    assert settings.start == ""
    assert "TLLM_TORCH_PROFILE_TRACE" not in derive("tensorrt-llm", "1.0.0", iterations=1, profiler="cuda").env
    live = derive("tensorrt-llm", "1.2.0", runtime=True, skip=2, iterations=3)
    assert live.start_arguments["start_step"] == 2
    with pytest.raises(ConfigError, match="told before it starts"):
        derive("tensorrt-llm", "1.0.0")


def test_profiler_off_gives_nothing():
    """Without ``profiler`` the engine is left as it is."""
    settings = settings_for("vllm", "0.33.0", EngineOptions(), "/run")
    assert (settings.env, settings.arguments, settings.start) == ({}, {}, "")


@pytest.mark.parametrize(
    ("engines", "said"),
    [
        ({"vlm": {}}, "engines.vlm: no such engine; .*did you mean 'vllm'"),
        ({"vllm": {"profilr": "torch"}}, r"engines.vllm.profilr: unknown key .*did you mean 'profiler'"),
        ({"vllm": {"skip": -1}}, "engines.vllm.skip"),
        ({"vllm": {"contents": ["modules"]}}, r"engines.vllm.contents"),
    ],
)
def test_refused_options(engines, said):
    """Engines and options that are not known are refused with their path and the nearest."""
    with pytest.raises(ConfigError, match=said):
        engines_of(Config(engines=engines))


def test_agent_loop_must_be_discrete():
    """Rollouts of an agent loop are only profiled in discrete windows: another configuration is refused."""
    engines = {"vllm": {"profiler": "torch", "agent_loop": True, "groups": ["RolloutGroup"]}}
    groups = {"RolloutGroup": {"discrete": False}, "ActorGroup": {}}
    with pytest.raises(ConfigError, match=re.escape("groups.RolloutGroup.discrete: rollouts of vllm's agent loop")):
        engines_of(Config(engines=engines, groups=groups))
    with pytest.raises(ConfigError, match="^discrete: "):
        engines_of(Config(engines={"vllm": {"profiler": "torch", "agent_loop": True}}))
    assert engines_of(Config(engines=engines, groups={"RolloutGroup": {"discrete": True}, "ActorGroup": {}}))
    assert engines_of(Config(engines=engines, discrete=True))


def test_ranks_of_a_replica():
    """Tensor ranks are adjacent, then pipeline, then data; rank over all replicas is GPU by GPU."""
    options = EngineOptions(tensor_parallel=2, pipeline_parallel=2, data_parallel=2)
    rows = ranks_of(options, 1)
    assert [(r.data, r.pipeline, r.tensor) for r in rows] == [
        (0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1),
    ]  # fmt: skip
    assert [r.rank for r in rows] == list(range(8, 16))


@pytest.mark.parametrize(
    ("engine", "version", "name", "rank"),
    [
        ("vllm", "0.23.0", "/x/dp1_pp0_tp0_dcp0_ep2_rank0.1712.pt.trace.json.gz", 2),
        ("vllm", "0.23.0", "/x/p0_dp0_pp0_tp1_dcp0_ep1_rank1.1712.pt.trace.json", 1),
        ("vllm", "0.12.0", "/x/instance-rank-1.1712.pt.trace.json.gz", None),  # the same in every data-parallel engine
        ("vllm", "0.10.0", "/x/host_17.1712.pt.trace.json.gz", None),
        ("vllm", "0.23.0", "/x/host_17.async_llm.1712.pt.trace.json.gz", None),
        ("vllm-ascend", "0.18.0", "/x/worker_17_20260822101112131_ascend_pt", None),
        ("sglang", "0.5.23", "/x/p0-1712.5-TP-1-DP-1.trace.json.gz", 3),
        ("sglang", "0.4.6", "/x/1712.5-TP-0.trace.json.gz", 0),
        ("sglang", "0.5.23", "/x/1712.5-TP-1-DECODE.trace.json.gz", 1),
        ("tensorrt-llm", "1.0", "/x/tllm-trace-7-rank-1.json", 1),
        ("vllm", "0.23.0", "/x/dp7_pp0_tp0_dcp0_ep0_rank0.1712.pt.trace.json.gz", None),  # no such rank in this replica
    ],
)
def test_rank_of_a_file(engine, version, name, rank):
    """Every part that a name tells is used; verl's function reads data-parallel rank 1 of the first as rank 0."""
    found = rank_of_file(engine, version, name, EngineOptions(tensor_parallel=2, data_parallel=2), 0)
    assert (None if found is None else found.rank) == rank
    assert all(re.compile(pattern) for patterns in FILES.values() for _, pattern in patterns)


# --- control, against stand-ins with the signature of each release ----------------------------------------------------------


class Vllm16:
    """The engine's profiler: one window at a time, files at stop, an error without configuration."""

    def __init__(self, directory):
        self.directory, self.on, self.calls = directory, False, []

    def start_profile(self):
        self.calls.append("start")
        self.on = True

    def stop_profile(self):
        self.calls.append("stop")
        name = f"i-rank-0.{len(self.calls)}.pt.trace.json.gz"
        with open(os.path.join(self.directory, name), "w") as file:
            file.write("{}")


class AsyncVllm33(Vllm16):
    async def start_profile(self, profile_prefix=None, *, delay_iterations=None, max_iterations=None):
        self.calls.append(("start", profile_prefix, delay_iterations, max_iterations))

    async def stop_profile(self):
        Vllm16.stop_profile(self)


class Sglang(Vllm16):
    def start_profile(
        self, output_dir=None, num_steps=None, activities=None, with_stack=None, record_shapes=None, profile_prefix=None
    ):
        self.calls.append(("start", num_steps, activities, with_stack, record_shapes))

    def stop_profile(self):
        raise RuntimeError("Profiling is not in progress. Call /start_profile first.")


def config_with(tmp_path, engine, **options):
    return Config(engines={engine: {"profiler": "torch", **options}}), str(tmp_path)


def test_windows_of_a_sync_engine(tmp_path):
    """B20: every window is paired with a stop and reports the files of that window alone."""
    settings = replica_settings(*(c := config_with(tmp_path, "vllm", version="0.16.0", iterations=2))[:1], "vllm", c[1])
    said = []
    engine = Vllm16(settings.directory)
    profiler = EngineProfiler(engine, settings, said.append)
    for _ in range(2):
        profiler.start()
        with pytest.raises(CaptureError, match="on already"):
            profiler.start()
        profiler.stop()
        profiler.stop()
        [file] = profiler.files(("w1",))
        assert file.state == "complete"
        assert file.windows == ("w1",)
    assert engine.calls == ["start", "stop", "start", "stop"]
    assert said == []


def test_windows_of_an_async_engine(tmp_path):
    """Where the engine's methods are coroutines, ours are awaited; arguments are this release's."""
    config, run_dir = config_with(tmp_path, "vllm", version="0.33.0", skip=1, iterations=2)
    settings = replica_settings(config, "vllm", run_dir, 3)
    engine = AsyncVllm33(settings.directory)
    profiler = EngineProfiler(engine, settings, lambda text: None)

    async def window():
        await profiler.start()
        await profiler.stop()

    asyncio.run(window())
    assert engine.calls == [("start", "p3", 2, 2), "stop"]


def test_directories_of_nothing_hold_nothing(tmp_path):
    """An engine that left directories without a file in them left no bytes, and is not complete."""
    config, run_dir = config_with(tmp_path, "vllm", version="0.20.0")
    settings = replica_settings(config, "vllm", run_dir)
    os.makedirs(os.path.join(settings.directory, "rank0_ascend_pt", "ASCEND_PROFILER_OUTPUT"))
    [found] = EngineProfiler(object(), settings, print).files()
    assert (found.bytes, found.state) == (0, "truncated")


def test_an_engine_that_stopped_by_itself(tmp_path):
    """SGLang's stop after its steps ran out is an error there and none here; another error is one."""
    config, run_dir = config_with(tmp_path, "sglang", version="0.5.23", iterations=2, contents=["memory"])
    settings = replica_settings(config, "sglang", run_dir)
    said = []
    engine = Sglang(settings.directory)
    profiler = EngineProfiler(engine, settings, said.append)
    profiler.start()
    profiler.stop()
    assert engine.calls == [("start", 2, ["CPU", "GPU"], False, False)]
    assert said == ["engine sglang: contents: sglang 0.5.23 does not record memory"]
    engine.stop_profile = lambda: (_ for _ in ()).throw(RuntimeError("out of memory"))
    profiler.start()
    with pytest.raises(RuntimeError, match="out of memory"):
        profiler.stop()


def test_release_must_be_known():
    """Neither named nor installed: refused, with the mend."""
    with pytest.raises(ConfigError, match=r"engines.sglang.version: sglang is not installed here.*Mend"):
        replica_settings(Config(engines={"sglang": {"profiler": "torch"}}), "sglang", "/run")


def test_preview_names_ranks_and_what_is_ignored():
    """``config show`` lists each selected replica with its ranks, and what the release ignores."""
    config = Config(
        groups={"RolloutGroup": {"replicas": [0, 1]}},
        engines={"vllm": {"profiler": "torch", "version": "0.9.2", "tensor_parallel": 2, "iterations": 3}},
    )
    rows = preview(config)
    assert [row["replica"] for row in rows] == [0, 1]
    lines = "\n".join(text(rows[1]))
    assert "ranks: rank 2 (dp 0, pp 0, tp 0), rank 3 (dp 0, pp 0, tp 1)" in lines
    assert "VLLM_TORCH_PROFILER_DIR=<run>/engines/vllm-p1" in lines
    assert "note: iterations: vllm 0.9.2 records from start to stop" in lines
