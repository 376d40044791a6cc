"""What our plan of each release's own files selects and records is what that release's own code does."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
import yaml

from accelprof.catalogue import make_catalogue
from accelprof.config.dialects import BUILTIN
from accelprof.config.dialects.verl_releases import KNOWN, name
from accelprof.config.load import load_config
from accelprof.contracts.targets import Target

pytestmark = pytest.mark.frameworks
ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-frameworks/bin/python"
HYBRID = ("actor_rollout_ref", ("actor", "ref"))
#: the role of a profiler section -> the process that has it alone
TARGETS = {
    "actor": ("actor_rollout_ref", ("actor",)),
    "ref": ("actor_rollout_ref", ("ref",)),
    "critic": ("critic", ("critic",)),
    "reward_model": ("reward_model", ("reward_model",)),
}
RELEASES = [name(version) for version in KNOWN]


@pytest.fixture(scope="module")
def of_every_release():
    """By release, what its own code does with its own files, and their texts by name; those whose wheel is there.

    One process imports what all of them need, and has a child of its own for each.
    """
    if not PYTHON.exists():
        return {}
    place = Path(os.environ.get("ACCELPROF_VERL_WHEELS") or ROOT / ".venv-frameworks/releases")
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        unpacked = {}
        for release in RELEASES:
            for wheel in sorted(place.glob(f"verl-{release}-*.whl"))[:1]:
                unpacked[release] = Path(directory, release)
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(unpacked[release] / "verl")
        done = subprocess.run(
            [PYTHON, "-W", "ignore", ROOT / "tests/compat/verl_each.py", *unpacked.values()], cwd=directory,
            capture_output=True, text=True, check=False, timeout=560,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        for release, where in unpacked.items():
            assert (where / "found.json").exists(), release + (where / "stderr").read_text()[-3000:]
            calls = json.loads((where / "found.json").read_text())
            loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
            files = {case.split()[0] for case in (*calls["starts"], *calls["calls"])}
            texts = {file: (where / "verl/verl/trainer/config" / file).read_text() for file in files}
            found[release] = calls, {file: yaml.load(text, loader) for file, text in texts.items()}
    return found


@pytest.fixture
def of_release(release, of_every_release):
    """What the release's own code does with its own files, and their texts by name."""
    for plugin in ("accelprof_cuda", "accelprof_ascend"):
        pytest.importorskip(plugin, reason="the plug-in is not installed")
    if release not in of_every_release:
        pytest.skip(f"the wheel of verl {release} or {PYTHON} is not there; .ci/install-frameworks does both")
    return of_every_release[release]


@pytest.fixture(autouse=True)
def without_omegaconf(monkeypatch):
    """Our own resolver gives the same plan (tests/config/test_dialect_releases.py), ten times as fast."""
    monkeypatch.setitem(sys.modules, "omegaconf", None)


@functools.lru_cache
def registry():
    return make_catalogue()


def plan_of(files, case, changes):
    return registry().plan(load_config(files[case.split()[0]], changes, dialects=BUILTIN).config)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("release", RELEASES)
def test_ranks_and_steps_are_those_that_the_release_starts(of_release):
    """Each composed file of each release, with one role switched on and ranks listed, empty or all: verl's own `DistProfiler`, from
    that release's wheel, calls the vendor's profiler on the ranks that the plan selects, and nowhere else."""
    calls, files = of_release
    found = calls["starts"]
    assert len(found) >= 18
    for case, theirs in found.items():
        plan = plan_of(files, case, theirs["changes"])
        taken = theirs["taken"]
        for rank in range(5):
            hybrid = plan.assign(Target(*HYBRID, rank, 8))
            critic = plan.assign(Target("critic", ("critic",), rank, 8))
            assert hybrid.selected == (rank in {*taken["actor"], *taken["ref"]}), case
            assert critic.selected == (rank in taken["critic"]), case
            for row in (hybrid, critic):
                assert list(row.steps) == ([2, 5] if row.selected else []), case
                assert not row.selected or row.tool == "nsys", case


#: words of docs/compat.md -> how the row shows in what a release calls; what is not named here must be the same
OLD_TORCH = "verl torch tool (up to 0.7.0)"
OLD_MEMORY = "verl `torch_memory` (up to 0.7.0)"
HISTORY = "verl `torch_memory`, history"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("release", RELEASES)
def test_tools_are_called_with_what_the_release_calls_them_with(release, of_release):
    """Each composed file, each role with a profiler of its own, each tool, contents, level, schedule, discrete or not: what the
    tool of our plan records is what verl's own code, from that release's wheel, asks of torch and torch_npu for the step; all
    else is a row of the table."""
    calls, files = of_release
    found = calls["calls"]
    assert len(found) >= 50
    rows, table = set(), (ROOT / "docs/compat.md").read_text()
    for case, theirs in found.items():
        group, roles = TARGETS[theirs["role"]]
        plan = plan_of(files, case, theirs["changes"])
        row = plan.assign(Target(group, roles, 0, 8))
        enabled = case.endswith("enable=true")
        assert row.selected == enabled, case
        assert row.tool == (theirs["tool"] if enabled else None), case
        seen = judged(release, enabled, theirs, plan.uses_of(row)[0].tool if enabled else None, row)
        assert seen is not None, (case, theirs["raised"], theirs["calls"], row.options, row.schedules)
        rows |= seen
    before = [name(version) for version in KNOWN if version <= (0, 7, 0)]
    assert rows == {HISTORY} | ({OLD_TORCH, OLD_MEMORY} if release in before else set())
    assert all(f"| {words} |" in table for words in rows)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("release", RELEASES)
def test_nsys_is_started_with_the_options_that_the_release_starts_it_with(of_release):
    """Each composed file: the options that verl's own worker group gives Ray's nsight are those of our plan, but for when a capture
    begins and how many there are, which is a row of the table."""
    calls, files = of_release
    found = calls["nsys"]
    assert len(found) >= 2
    for file, theirs in found.items():
        place = "actor_rollout_ref.actor.profiler"
        changes = [f"{place}.enable=true", "global_profiler.tool=nsys", "global_profiler.steps=[2,5]"]
        plan = plan_of(files, file, [*changes, f"{place}.ranks=[0]"])
        row = plan.assign(Target(*TARGETS["actor"], 0, 8))
        captures = {"capture-range": "cudaProfilerApi", "capture-range-end": "repeat-shutdown:12"}
        assert theirs == {**plan.config.tools["nsys"], **captures}, file
        assert list(row.steps) == [2, 5]
    assert "| verl nsys, number of captures |" in (ROOT / "docs/compat.md").read_text()


def judged(release, enabled, theirs, tool, row):
    """The rows of the table that a case shows; ``None``: it differs in a way that no row says."""
    calls = theirs["calls"]
    if theirs["tool"] == "torch_memory":
        history, *snapshots = calls
        if not enabled:
            return {HISTORY} | ({OLD_MEMORY} if snapshots else set())
        same = theirs["raised"] == "" and history["trace_alloc_max_entries"] == tool.options.max_entries
        return {HISTORY} if same and [call["snapshot"] for call in snapshots] == ["step2"] else None
    if theirs["tool"] == "torch" and release in ("0.6.0", "0.6.1", "0.7.0"):
        # the trainer's start_profile(profile_step=…) is an argument that this profiler's start does not take
        kind = "AttributeError" if enabled and release != "0.7.0" else "TypeError"
        if theirs["raised"] != kind or not enabled:
            return {OLD_TORCH} if theirs["raised"] == kind else None
        first = next(iter(calls), None)
        asked = "torch.step_end=3" in " ".join(theirs["changes"]) and release == "0.7.0"
        start = 1 if "torch.step_start=1" in " ".join(theirs["changes"]) else 0
        schedule = {"wait": 0, "warmup": start, "active": 3 - start, "repeat": 1}
        if (first is not None and first["schedule"] == schedule) if asked else first is None:
            return {OLD_TORCH} if recorded(tool) >= {"cpu", "device", "record_shapes", "with_stack"} else None
        return None
    if theirs["raised"]:
        return None
    if not enabled:
        return set() if calls == [] else None
    (call,) = calls
    return set() if as_called(call) == (*asked_of(tool, release), schedule_of(row)) else None


def recorded(tool):
    """Activities and switches that a tool of ours gives the vendor's profiler."""
    contents = set(tool.options.wanted) if tool.name == "npu" else set(tool.meaning()["contents"])
    words = {"cuda": "device", "npu": "device", "shapes": "record_shapes", "memory": "profile_memory",
             "stack": "with_stack", "module": "with_modules"}  # fmt: skip
    return {words.get(word, word) for word in contents}


def asked_of(tool, release):
    if tool.name == "torch":
        return recorded(tool), None
    options = tool.options
    vendor = {
        "profiler_level": options.level,
        "export_type": options.exports,
        "analysis": options.analysis == "online",
        "mstx_domain_exclude": options.mstx_domain_exclude,
    }
    return recorded(tool), vendor


def as_called(call):
    activities = {"cpu", "device"} if call["activities"] == ["all"] else set(call["activities"])
    switches = {key for key in ("record_shapes", "profile_memory", "with_stack", "with_modules") if call.get(key)}
    found = {"device" if word in ("cuda", "npu") else word for word in activities} | switches
    if call["tool"] == "torch":
        return found, None, call.get("schedule")
    vendor = {
        "profiler_level": call["profiler_level"].lower(),
        "export_type": (call["export_type"].lower(),),
        "analysis": call["analysis"],
        "mstx_domain_exclude": tuple(call.get("mstx_domain_exclude", ())),
    }
    return found, vendor, None


def schedule_of(row):
    if not row.schedules:
        return None
    (found,) = row.schedules
    return {key: getattr(found, key) for key in ("skip_first", "wait", "warmup", "active", "repeat")}
