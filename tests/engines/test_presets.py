"""Presets: the tables against the released packages where they install, and how a release is chosen from them."""

from __future__ import annotations

import ast
import os
import re
import zipfile
from pathlib import Path

import pytest

from accelprof.catalogue import make_catalogue
from accelprof.errors import ConfigError
from accelprof.planning.presets import BUILTIN
from accelprof.versions import within

ROOT = Path(__file__).parents[2]
RELEASES = {"verl": "0.9.1", "rlinf": "0.3.0"}


@pytest.fixture(scope="module")
def packages():
    """Where the released frameworks are installed."""
    found = list(ROOT.glob(".venv-frameworks/lib/python3.*/site-packages/verl"))
    if not found:
        pytest.skip("verl and rlinf are not installed; .ci/install-frameworks does it")
    return found[0].parent


def methods_in_source(packages, module):
    """``{"Class.method", "function"}`` of a module, from its source alone: importing it may need a GPU library."""
    root = packages.joinpath(*module.split("."))
    path = root / "__init__.py" if root.is_dir() else root.with_suffix(".py")
    if not path.exists():
        return None
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{item.name}"
                for item in node.body
                if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
            }
    return found


#: frameworks that are not installed beside the others; their wheels are read
WHEELS = {"areal": "1.0.4", "openrlhf": "0.11.2", "skyrl": "0.3.0"}


@pytest.mark.frameworks
@pytest.mark.parametrize("name", WHEELS)
def test_names_exist_in_the_wheel(name):
    """Every method that the table gives for AReaL, OpenRLHF and SkyRL stands in the released wheel, in a class that is plain."""
    place = Path(os.environ.get("ACCELPROF_VERL_WHEELS") or ROOT / ".venv-frameworks/releases")
    wheels = sorted(place.glob(f"{name}-{WHEELS[name]}-*.whl"))
    if not wheels:
        pytest.skip(f"the wheel of {name} is not beside verl's in {place}; .ci/install-frameworks fetches it")
    sites = BUILTIN[name].sites_for(WHEELS[name])
    assert len(sites) >= 10
    with zipfile.ZipFile(wheels[0]) as wheel:
        files = {path.rpartition("purelib/")[2]: path for path in wheel.namelist()}
        for site in sites:
            module, _, path = site.target.partition(":")
            cls, _, method = path.partition(".")
            tree = ast.parse(wheel.read(files[module.replace(".", "/") + ".py"]))
            (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls)
            assert method in [getattr(item, "name", "") for item in found.body], site.target
            assert not found.decorator_list, f"{site.target}: a class of Ray's, whose methods cannot be replaced"


@pytest.mark.frameworks
@pytest.mark.parametrize("name", [name for name, preset in BUILTIN.items() if preset.distribution in RELEASES])
def test_names_exist_in_the_release(packages, name):
    """Every method that the table gives for the installed release is in its source, under exactly this name."""
    preset = BUILTIN[name]
    version = RELEASES[preset.distribution]
    assert packages.joinpath(f"{preset.distribution}-{version}.dist-info").is_dir()
    missing = []
    for site in preset.sites_for(version):
        module, _, path = site.target.partition(":")
        if path not in (methods_in_source(packages, module) or ()):
            missing.append(site.target)
    assert missing == []
    assert bool(preset.sites_for(version)) != bool(preset.refused)


@pytest.mark.frameworks
def test_verl_0_9_1_does_not_have_what_the_guides_edit(packages):
    """The guides' ``DataParallelPPOActor`` is gone since 0.8.0; the table gives it to older releases only."""
    assert methods_in_source(packages, "verl.workers.actor.dp_actor") is None
    targets = [site.target for site in BUILTIN["verl.micro_batch"].sites_for("0.9.1")]
    assert not any("DataParallelPPOActor" in target for target in targets)
    old = [site.target for site in BUILTIN["verl.micro_batch"].sites_for("0.7.1")]
    assert "verl.workers.actor.dp_actor:DataParallelPPOActor._forward_micro_batch" in old


@pytest.mark.parametrize(
    ("preset", "version", "target"),
    [
        ("vllm.decode_step", "0.8.5", "vllm.worker.worker_base:LocalOrDistributedWorkerBase.execute_model"),
        ("vllm.decode_step", "0.10.2", "vllm.worker.worker_base:LocalOrDistributedWorkerBase.execute_model"),
        ("vllm.decode_step", "0.33.0", "vllm.v1.worker.gpu_worker:Worker.execute_model"),
        ("vllm.decode_step", "0.16.0+cu126", "vllm.v1.worker.gpu_worker:Worker.execute_model"),
        ("vllm_ascend.decode_step", "0.12.0rc1", "vllm_ascend.worker.worker_v1:NPUWorker.execute_model"),
        ("vllm_ascend.decode_step", "0.13.0", "vllm_ascend.worker.worker:NPUWorker.execute_model"),
        ("sglang.batch", "0.4.6.post5", "sglang.srt.managers.scheduler:Scheduler.run_batch"),
        ("sglang.batch", "0.5.23", "sglang.srt.managers.scheduler:Scheduler.run_batch"),
        ("verl.mini_batch", "0.9.1", "verl.workers.engine_workers:TrainingWorker.train_batch"),
    ],
)
def test_sites_by_release(preset, version, target):
    """The release that is installed decides the name."""
    targets = [site.target for site in BUILTIN[preset].sites_for(version) if not site.refused]
    assert target in targets


@pytest.mark.parametrize(("preset", "version"), [("vllm_ascend.decode_step", "0.13.0"), ("vllm.decode_step", "0.11.0")])
def test_one_site_where_the_old_name_is_gone(preset, version):
    """Where a method moved, the table never gives both names."""
    assert len(BUILTIN[preset].sites_for(version)) == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("verl.micro_batches", "did you mean 'verl.micro_batch'"),
        ("verl.megatron.micro_batch", "Mend: verl.mini_batch"),
        ("rlinf.megatron.micro_batch", "Mend: rlinf.training_step"),
    ],
)
def test_refused_by_name(name, said):
    """An unknown preset names the nearest; Megatron's micro-batches name the mini-batch as the mend."""
    registry = make_catalogue(entry_points=False)
    with pytest.raises(ConfigError, match=re.escape(said)):
        registry.plan(registry.load({"presets": [name]}).config)


def test_every_target_is_well_formed():
    """Targets read ``package.module:Class.method``; phases and version clauses are what they should be."""
    for preset in BUILTIN.values():
        for site in preset.sites:
            assert re.fullmatch(r"[a-z_][\w.]*:[A-Za-z_]\w*\.\w+", site.target)
            assert site.phase
            assert within("9999", site.versions) in (True, False)


@pytest.mark.parametrize(
    ("version", "spec", "holds"),
    [
        ("0.14.0rc1", ">=0.14.0", False), ("0.14.0rc1", ">=0.14.0rc1", True), ("0.14", ">=0.14.0", True),
        ("0.4.6.post5", ">0.4.6", True), ("0.4.6.post5", "<0.4.9", True), ("1.10", ">1.9", True),
        ("2.0.dev3", "<2.0a1", True), ("0.16.0+cu126", "==0.16.0", True), ("v0.9.1", "!=0.9.1", False), ("1", "", True),
    ],
)  # fmt: skip
def test_version_ranges(version, spec, holds):
    """Versions compare as releases do: candidates before, posts after, local parts not at all."""
    assert within(version, spec) is holds


def test_version_errors_are_named():
    """A clause or version that is none says so."""
    with pytest.raises(ValueError, match="'~=1' is not a version clause"):
        within("1", "~=1")
    with pytest.raises(ValueError, match="'main' is not a version"):
        within("main", "")
