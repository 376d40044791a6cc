"""``docs/examples/sampling.yaml``: in one run, exactly what it says and nothing else, under every tool that runs here."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
#: group -> (phase that is sampled, its calls, phases inside it)
SAMPLES = {
    "RolloutGroup": ("rollout/decode_step", range(30, 60), set()),
    "RefGroup": ("ref/micro_batch", [0], set()),
    "ActorGroup": ("actor/mini_batch", [0], {"actor/micro_batch"}),
}


def run(argv, **env):
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=580, check=False, cwd=ROOT, env={**os.environ, **env}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def loop(group, directory, *overrides):
    """The loop of one group in a process of its own; its run directory."""
    run([sys.executable, str(EXAMPLES / "sampling_loop.py"), group, f"output_dir={directory}", "run=r", *overrides])
    return Path(directory, "r")


def events(path):
    with gzip.open(path, "rt") as file:
        data = json.load(file)
    return [event for event in data["traceEvents"] if event.get("ph") == "X"]


@pytest.mark.torch
@pytest.mark.parametrize("group", SAMPLES)
def test_the_timeline_holds_exactly_the_samples(tmp_path, group):
    """Decode steps 30-59, micro-batch 0 of the reference, mini-batch 0 of the update: by their own numbers."""
    pytest.importorskip("torch", reason="torch is not installed")
    phase, numbers, inner = SAMPLES[group]
    [path] = loop(group, tmp_path).rglob("*.trace.json.gz")
    found = events(path)
    calls = [event["name"] for event in found if event["cat"] == "range"]
    assert calls == [f"call {number}" for number in numbers]
    whole = Counter(e["name"] for e in found if e["cat"] == "phase" and "in_progress" not in e["args"])
    assert whole[phase] == len(calls)
    assert set(whole) - {phase} == inner


@pytest.mark.torch
@pytest.mark.parametrize("group", SAMPLES)
def test_torch_holds_exactly_the_samples(tmp_path, group):
    """The same under torch.profiler: one trace, these calls, each of them one of torch's own steps."""
    pytest.importorskip("torch", reason="torch is not installed")
    phase, numbers, _ = SAMPLES[group]
    [path] = loop(group, tmp_path, "tool=torch").rglob("*.pt.trace.json.gz")
    names = Counter(event["name"] for event in events(path))
    assert {name for name in names if name.startswith("call ")} == {f"call {number}" for number in numbers}
    assert names[phase] == len(numbers)
    assert sum(count for name, count in names.items() if name.startswith("ProfilerStep#")) == len(numbers)
    forward = {"RolloutGroup": "aten::softmax", "RefGroup": "aten::log_softmax", "ActorGroup": "aten::linear"}[group]
    assert names[forward] == (8 if group == "ActorGroup" else len(numbers))


@pytest.mark.ray
@pytest.mark.torch
@pytest.mark.timeout(600)
def test_the_demo_with_the_sampling_config(tmp_path):
    """The main job on Ray: one window in each of three workers, no other worker has any.

    Where nsys is installed they run under it, gated by NVTX, and each report holds its sample's ranges and no others.
    """
    pytest.importorskip("ray", reason="ray is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    under_nsys = shutil.which("nsys") is not None and importlib.util.find_spec("accelprof_cuda") is not None
    manifest = demo(tmp_path, *(["tool=nsys"] if under_nsys else []))
    assert {(w["phase"], w["schedule"]["first"], w["schedule"]["calls"]) for w in manifest["windows"]} == {
        ("rollout/decode_step", 30, 30), ("ref/micro_batch", 0, 1), ("actor/mini_batch", 0, 1),
    }  # fmt: skip
    assert [said for said in manifest["problems"] if "closing window" not in said] == []  # a busy machine may be slow
    if not under_nsys:
        return
    from accelprof.catalogue import get_catalogue

    tool = get_catalogue().make_tool("nsys")
    for group, (phase, numbers, _) in SAMPLES.items():
        [path] = Path(tmp_path).rglob(f"{group}-*.nsys-rep")
        names = Counter(span.name for span in tool.read(str(path)).spans)
        assert names[phase] == len(numbers), (group, names)


def demo(directory, *overrides):
    """Two steps of the demo; its manifest."""
    accelprof = [sys.executable, "-m", "accelprof", "demo", "--config", str(EXAMPLES / "sampling.yaml")]
    run([*accelprof, "--steps", "2", "--json", "--output", str(directory), *overrides])
    [path] = Path(directory).glob("*/manifest.json")
    return json.loads(path.read_text())
