"""The demo as a user starts it: the command, its whole run, and what it leaves."""

from __future__ import annotations

import gzip
import html
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from accelprof.cli.demo import demo
from accelprof.errors import ConfigError, UserError

LABELS = {
    "actor/recv_traj",
    "actor/compute_adv",
    "run_training",
    "actor/sync_model_to_rollout",
    "predict",
    "generate_one_epoch",
    "rollout/generate",
    "rollout/poll_weight_sync",
    "rollout/request_weight_sync",
    "ref/compute_log_prob",
    "ref/recv_traj",
}


def test_what_is_not_installed_is_named_with_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Ray the command says so and how to get it, as a user's mistake."""
    for name in [name for name in sys.modules if name.startswith("accelprof.demo.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.setitem(sys.modules, "ray", None)
    error = CliRunner().invoke(demo, []).exception
    assert isinstance(error, UserError)
    assert "accelprof[demo]" in str(error)


@pytest.mark.ray
@pytest.mark.torch
def test_a_wrong_override_is_refused_before_anything_starts() -> None:
    """A tool that nobody registered is refused by path, without Ray having been started."""
    pytest.importorskip("ray", reason="ray is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    import ray

    before = ray.is_initialized()  # by another test's cluster, maybe
    error = CliRunner().invoke(demo, ["groups.RefGroup.tool=torhc"]).exception
    assert isinstance(error, (ConfigError, UserError))
    assert "torhc" in str(error)
    assert ray.is_initialized() == before


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    pytest.importorskip("ray", reason="ray is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    output = tmp_path_factory.mktemp("outputs")
    command = [
        sys.executable,
        "-m",
        "accelprof.cli.main",
        "demo",
        "--json",
        "--straggler",
        "1",
        "--output",
        str(output),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=380, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def events(path: Path) -> list[dict[str, Any]]:
    data = json.loads(gzip.decompress(path.read_bytes()))
    found: list[dict[str, Any]] = data["traceEvents"]
    return found


@pytest.mark.timeout(400)
@pytest.mark.ray
@pytest.mark.torch
def test_the_reward_goes_up(outcome: dict[str, Any]) -> None:
    """Six steps of reinforcement raise the samples' reward and the accuracy well beyond their scatter (about 0.02)."""
    rewards = outcome["rewards"]
    assert len(rewards) == 6
    assert sum(rewards[-2:]) / 2 > sum(rewards[:2]) / 2 + 0.06
    assert outcome["accuracy"]["after"] > outcome["accuracy"]["before"] + 0.06


@pytest.mark.ray
@pytest.mark.torch
def test_every_worker_opened_a_window_on_both_steps(outcome: dict[str, Any]) -> None:
    """Five workers, windows on steps 2 and 4, every file complete and nothing to report."""
    manifest = json.loads(Path(outcome["run_dir"], "manifest.json").read_text())
    steps = Counter(tuple(window["steps"]) for window in manifest["windows"])
    assert steps == {(2,): 5, (4,): 5}
    assert {artifact["state"] for artifact in manifest["artifacts"]} == {"complete"}
    assert [said for said in manifest["problems"] if "closing window" not in said] == []  # a busy machine may be slow


@pytest.mark.ray
@pytest.mark.torch
def test_torch_ran_on_actor_rank_zero_alone(outcome: dict[str, Any]) -> None:
    """The torch tool left one trace a window on actor rank 0, with operators and our phases inside."""
    manifest = json.loads(Path(outcome["run_dir"], "manifest.json").read_text())
    traces = [artifact for artifact in manifest["artifacts"] if artifact["tool"] == "torch"]
    assert [(trace["group"], trace["rank"]) for trace in traces] == [("ActorGroup", 0)] * 2
    for trace in traces:
        names = {event.get("name") for event in events(Path(outcome["run_dir"], trace["path"]))}
        assert {"aten::linear", "actor/micro_batch"} <= names


@pytest.mark.ray
@pytest.mark.torch
def test_the_timeline_holds_the_loop_as_it_ran(outcome: dict[str, Any]) -> None:
    """Every label is there, and in each window: 200 decode steps a rollout rank, 4 passes of 4 mini-batches of 8 micro-batches."""
    found = events(Path(outcome["run_dir"], "timeline.json.gz"))
    names = Counter(event["name"] for event in found if event.get("cat") == "phase")  # torch's file has them again
    assert names.keys() >= LABELS
    windows, ranks = 2, 2
    assert names["rollout/decode_step"] == windows * ranks * 200
    assert names["actor/mini_batch"] == windows * ranks * 4 * 4
    assert names["actor/micro_batch"] == windows * ranks * 4 * 4 * 8
    assert names["ref/micro_batch"] == windows * ranks * 8
    assert Path(outcome["run_dir"], "report.html").stat().st_size > 0


@pytest.mark.ray
@pytest.mark.torch
def test_the_first_sentence_names_the_slow_rank(outcome: dict[str, Any]) -> None:
    """Actor rank 1 is slow on purpose: the first sentence of report and page says who waited for it and where it was late; the
    critical path goes through rollout, reference and actor, most of the actor's part on that rank."""
    from accelprof.analysis.first import sentences
    from accelprof.analysis.summary import summarise

    report = summarise(outcome["run_dir"]).report()
    first = sentences(report)[0]
    assert "for ActorGroup/rank1 in actor/all_reduce (late in actor/micro_batch)" in first
    assert first in html.unescape(Path(outcome["run_dir"], "report.html").read_text())
    assert len(report.critical_path) == 2
    for path in report.critical_path:
        taken: Counter[str] = Counter()
        for segment in path.segments:
            taken[segment.worker] += segment.ns
        assert {worker.partition("/")[0] for worker in taken} == {"RolloutGroup", "RefGroup", "ActorGroup"}
        assert taken["ActorGroup/rank1"] > taken["ActorGroup/rank0"]
        assert sum(taken.values()) == path.wall_ns
    waited = Counter[str]()
    for row in report.stragglers:
        waited[row.worker] += row.waited_ns
    assert waited.most_common(1)[0][0] == "ActorGroup/rank1"  # a busy machine makes the other one late, too
