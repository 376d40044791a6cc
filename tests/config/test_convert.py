"""Conversion: a file of another dialect written in ours loads to the same configuration, each key with its source."""

from __future__ import annotations

import importlib
import sys

import pytest
import yaml
from click.testing import CliRunner

from accelprof.cli.convert import convert
from accelprof.config.convert import to_yaml
from accelprof.config.dialects import BUILTIN
from accelprof.config.load import load_config
from accelprof.errors import ConfigError

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


def test_each_key_names_its_source(tmp_path):
    """The command writes a comment with the source of each key, and says what was dropped, changed or doubtful."""
    file, out = tmp_path / "verl.yaml", tmp_path / "ours.yaml"
    file.write_text(yaml.safe_dump(VERL))
    done = CliRunner().invoke(convert, [str(file), "-o", str(out), "global_profiler.steps=[7]"])
    assert done.exit_code == 0, done.output
    text = out.read_text()
    assert "steps: [7]  # global_profiler.steps" in text
    assert f"ranks: [0, 3]  # {ARR}.actor.profiler.ranks" in text
    assert f"# doubtful: {ARR}.ref.profiler.enable: the reference model is not profiled" in text
    assert "doubtful" in done.stderr
    assert CliRunner().invoke(convert, [str(file), "-o", str(out)]).exit_code != 0


def test_a_refused_file_is_not_written(tmp_path):
    """A configuration that is refused writes nothing."""
    file, out = tmp_path / "verl.yaml", tmp_path / "ours.yaml"
    file.write_text("global_profiler: {tool: nsyss, steps: [1]}")
    done = CliRunner().invoke(convert, [str(file), "-o", str(out)])
    assert isinstance(done.exception, ConfigError)
    assert not out.exists()


def test_meaning_of_ranks_by_option(tmp_path):
    """The meaning of an agent-loop rollout's ranks can be chosen on the command line."""
    file = tmp_path / "verl.yaml"
    rollout = {"mode": "async", "tensor_model_parallel_size": 8, "profiler": {
        "enable": True, "ranks": [0, 8], "tool_config": {"torch": {"discrete": True}}}}  # fmt: skip
    file.write_text(yaml.safe_dump({"global_profiler": {"tool": "torch", "steps": [1]}, ARR: {"rollout": rollout}}))
    for meaning, replicas in (("global", "replicas: [0-1]"), ("replica", "replicas: [0, 8]")):
        done = CliRunner().invoke(convert, [str(file), "--rollout-ranks", meaning])
        assert replicas in done.stdout


def test_a_broken_convert_is_said(monkeypatch):
    """A command that cannot be imported fails by name; it does not vanish from its group."""
    monkeypatch.setitem(sys.modules, "accelprof.cli.convert", None)
    monkeypatch.delitem(sys.modules, "accelprof.cli.config", raising=False)
    with pytest.raises(ImportError, match="convert"):
        importlib.import_module("accelprof.cli.config")
