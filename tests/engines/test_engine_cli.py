"""``config show`` and ``config check`` know engines."""

from __future__ import annotations

import json

from click.testing import CliRunner

from accelprof.cli.config import config
from accelprof.errors import ConfigError

YAML = """
groups:
  RolloutGroup: {replicas: [0, 1], discrete: true, steps: [2]}
engines:
  vllm: {profiler: torch, version: "0.9.2", tensor_parallel: 2, iterations: 30}
"""


def test_show_has_ranks_and_what_is_ignored(tmp_path):
    """Each selected replica with its ranks, its environment, and what its release ignores; for machines too."""
    file = tmp_path / "c.yaml"
    file.write_text(YAML)
    shown = CliRunner().invoke(config, ["show", str(file)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert "engine vllm 0.9.2, replica 1: profiler torch" in shown.output
    assert "rank 3 (dp 0, pp 0, tp 1)" in shown.output
    assert "note: iterations: vllm 0.9.2 records from start to stop" in shown.output
    rows = json.loads(CliRunner().invoke(config, ["show", str(file), "--json"]).output)["engines"]
    assert [row["replica"] for row in rows] == [0, 1]


def test_check_refuses_an_agent_loop_that_is_not_discrete(tmp_path):
    """The check is made before anything starts."""
    file = tmp_path / "c.yaml"
    file.write_text(YAML)
    overrides = ["engines.vllm.agent_loop=true", "groups.RolloutGroup.discrete=false"]
    done = CliRunner().invoke(config, ["check", str(file), *overrides])
    assert isinstance(done.exception, ConfigError)
    assert "only profiled in discrete windows" in str(done.exception)
