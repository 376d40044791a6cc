"""Conversion: a file of another dialect written in ours loads to the same configuration, each key with its source."""

from __future__ import annotations

import pytest
import yaml

from accelprof.config.convert import to_yaml
from accelprof.config.dialects import BUILTIN
from accelprof.config.load import load_config

ARR = "actor_rollout_ref"
VERL = {
    "global_profiler": {"tool": "nsys", "steps": [1, 2, 5], "profile_continuous_steps": True, "global_tool_config": {
        "nsys": {"worker_nsight_options": {"trace": "cuda,nvtx", "capture-range": "cudaProfilerApi", "kill": None}}}},
    ARR: {"actor": {"profiler": {"enable": True, "ranks": [0, 3]}}},
}  # fmt: skip
DRAFT = {"trainer": {"profile_steps": [1]}, ARR: {"actor": {"profile_ranks": [0], "profile_discrete": True}}}
RLINF = {
    "cluster": {"profiling": {"backend": "nsight", "worker_groups": ["ActorGroup", "Env"], "steps": [0, 3],
                              "options": {"t": "cuda", "cpuctxsw": "none"}, "flags": ["python-backtrace"]}},
    "runner": {"logger": {"log_path": "../results", "experiment_name": "yes"}},
}  # fmt: skip
TRACER = {"cluster": {"tracer": {"enable": True}}}
OWN = {"steps": [2, "5-7"], "groups": {"on": {"ranks": "all"}, "a: b": {"tool": "torch", "nodes": ["node-1"]}}}


@pytest.mark.parametrize("config", [VERL, DRAFT, RLINF, TRACER, OWN], ids=["verl", "draft", "rlinf", "tracer", "own"])
def test_converted_file_means_the_same(config):
    """What conversion writes is YAML of our own dialect that loads to an equal configuration."""
    loaded = load_config(config, dialects=BUILTIN)
    again = load_config(yaml.safe_load(to_yaml(loaded)), dialects=BUILTIN)
    assert again.dialect == "accelprof"
    assert again.config == loaded.config
