"""``accelprof config convert``: where the text goes, what is said beside it, and how the command ends."""

from __future__ import annotations

import importlib
import sys

import pytest
import yaml
from click.testing import CliRunner

from accelprof.cli.convert import convert
from accelprof.errors import ConfigError

ARR = "actor_rollout_ref"
VERL = {
    "global_profiler": {"tool": "nsys", "steps": [1, 2, 5], "profile_continuous_steps": True},
    ARR: {"actor": {"profiler": {"enable": True, "ranks": [0, 3]}}},
}


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


def test_without_output_the_text_alone_is_standard_output(call, tmp_path):
    """Standard output is a configuration that can be piped; what is doubtful goes to standard error."""
    file = tmp_path / "verl.yaml"
    file.write_text(yaml.safe_dump(VERL))
    status, out, err = call("config", "convert", str(file))
    assert status == 0
    assert yaml.safe_load(out)["steps"] == ["1-2", 5]
    assert "doubtful" in err
    assert "doubtful" not in yaml.safe_dump(yaml.safe_load(out))


def test_what_is_there_is_overwritten_when_asked_only(call, tmp_path):
    """An output that exists, or cannot be written, is the user's mistake, with the path."""
    file, out = tmp_path / "ours.yaml", tmp_path / "out.yaml"
    file.write_text("steps: [4]")
    out.write_text("mine")
    status, _, err = call("config", "convert", str(file), "-o", str(out))
    assert (status, out.read_text()) == (2, "mine")
    assert "--force overwrites it" in err
    assert call("config", "convert", str(file), "-o", str(out), "--force")[0] == 0
    assert yaml.safe_load(out.read_text())["steps"] == [4]
    status, _, err = call("config", "convert", str(file), "-o", str(tmp_path / "none" / "x"))
    assert status == 2
    assert "cannot be written" in err


def test_a_release_of_verl_is_asked_of_verls_files_alone(call, tmp_path):
    """``--verl`` for another dialect, or a generation before it mattered, is refused with what the file is."""
    file = tmp_path / "ours.yaml"
    file.write_text("steps: [4]")
    status, _, err = call("config", "convert", str(file), "--verl", "0.9.0")
    assert status == 2
    assert "accelprof dialect" in err
