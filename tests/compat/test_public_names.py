"""Every public name of the frameworks' profiling modules, per release: bridged by us, or left as it is and in the table."""

from __future__ import annotations

import ast
import os
import re
import zipfile
from pathlib import Path

import pytest

from accelprof.compat import rlinf, verl
from accelprof.config.dialects.verl_releases import KNOWN, name

pytestmark = pytest.mark.frameworks
ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs/compat.md").read_text()
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

#: names of verl.utils.profiler that stay verl's; each stands in the table
VERL_LEFT = {
    "NPUProfiler", "NsightSystemsProfiler", "PrecisionDebuggerProfiler", "Profiler", "TorchMemoryProfiler",
    "RAY_NSIGHT_LOG_DIR", "build_rollout_dist_profiler", "build_sglang_profiler_args", "build_trace_basename",
    "build_vllm_profiler_args", "get_dist_topology", "get_npu_profiler", "get_torch_profiler", "log_print",
    "relocate_rollout_traces", "rollout_profiler_global_ranks", "rollout_trace_dir", "rollout_trace_local_rank",
    "to_torch_kwargs",
}  # fmt: skip
#: how RLinf calls what is about profiling
ABOUT = re.compile(r"profil|timer|trac(?:e|ing)(?!back)|execution_time", re.IGNORECASE)
#: names of RLinf about profiling that stay RLinf's; each stands in the table
RLINF_LEFT = {
    "AMDGPUManager.get_profiling_env_vars", "AcceleratorManager.check_profiler",
    "AcceleratorManager.get_profiling_env_vars", "AcceleratorManager.register_profiling_config",
    "AscendNPUProfileConfig", "IntelGPUProfileConfig", "MUSAGPUProfileConfig", "NamedTimer", "PyTorchProfiler",
    "PyTorchProfilerFunc", "ScopedTimer.consume_durations", "Timer", "AcceleratorManager.profile_backend_register",
    "AcceleratorManager.profiling_config_register",
} | {f"{manager}.modify_profiling_context" for manager in ("AcceleratorManager", "AMDGPUManager", "NvidiaGPUManager")}  # fmt: skip
#: what accelprof.compat.rlinf has itself, and what its install replaces beside
RLINF_OURS = {
    "Worker": rlinf.Worker, "AcceleratorUtil": rlinf.AcceleratorUtil, "ProfileConfig": rlinf.ProfileConfig,
}  # fmt: skip
MANAGED = ("start_profiling", "stop_profiling", "is_profiling_active", "profiling_range")
RLINF_REPLACED = {
    "ClusterConfig.profiling", "NodeInfo.profiler_backends",  # what a cluster is given, and what a node has
    "Cluster.modify_profile_context", "Cluster.get_profiling_env_vars_for_worker", "ScopedTimer",
    *(f"{manager}.{call}" for manager in ("AcceleratorManager", "AMDGPUManager", "NvidiaGPUManager") for call in MANAGED),
}  # fmt: skip


def public(tree):
    """Names that a module defines: functions, classes, values other than loggers; ``Class.name`` of what a class has."""
    for node in tree.body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            logger = isinstance(node.value, ast.Call) and "getLogger" in ast.dump(node.value)
            yield from (target.id for target in targets if isinstance(target, ast.Name) and not logger)
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, FUNCTIONS):
                    yield f"{node.name}.{inner.name}"
                elif isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                    yield f"{node.name}.{inner.target.id}"


def unknown_of_verl(names, left):
    """Those that are neither ours nor in ``left``; what a class that is left has is left with it."""
    for whole in names:
        outer, _, inner = whole.partition(".")
        if inner.startswith("_") or outer.startswith("_") or {outer, inner} & left:
            continue
        mine = getattr(verl, outer, None) if outer in verl.__all__ else None
        fields = {*getattr(mine, "__dataclass_fields__", ()), *dir(mine)}
        if mine is None or (inner and inner not in fields):
            yield whole


#: fields of configuration classes that older releases had, and 0.9.1 (whose words accelprof.compat.verl has) has not
GONE = {"0.6.0": {"step_start", "step_end"}, "0.7.0": {"step_start", "step_end", "manual_save"}}
GONE["0.6.1"] = GONE["0.6.0"]


@pytest.mark.parametrize("release", [name(version) for version in KNOWN])
def test_names_of_verls_profiler(release):
    """Each public name of ``verl.utils.profiler``, and each method and field of what we have in its place, is ours, or is left
    as it is and stands in the table."""
    place = Path(os.environ.get("ACCELPROF_VERL_WHEELS") or ROOT / ".venv-frameworks/releases")
    wheels = sorted(place.glob(f"verl-{release}-*.whl"))
    if not wheels:
        pytest.skip(f"the wheel of verl {release} is not in {place}; .ci/install-frameworks fetches it")
    with zipfile.ZipFile(wheels[0]) as wheel:
        files = [path for path in wheel.namelist() if re.fullmatch(r"verl/utils/profiler/\w+\.py", path)]
        names = [found for path in files for found in public(ast.parse(wheel.read(path)))]
    assert len(names) > 60
    assert list(unknown_of_verl(names, VERL_LEFT | GONE.get(release, set()))) == []


def unknown_of_rlinf(names):
    for whole in names:
        outer, _, inner = whole.partition(".")
        if outer.startswith("_") or inner.startswith("_") or not ABOUT.search(whole):
            continue
        if {whole, outer} & RLINF_LEFT or whole in RLINF_REPLACED:
            continue
        mine = RLINF_OURS.get(outer)
        if mine is None or (
            inner and not hasattr(mine, inner) and inner not in getattr(mine, "__dataclass_fields__", ())
        ):
            yield whole


def test_names_of_rlinfs_profiling():
    """Each name of RLinf's scheduler and of its timers and profilers that is about profiling is ours, replaced by ``install``,
    or left as it is and in the table."""
    found = sorted((ROOT / ".venv-frameworks/lib").glob("python3*/site-packages/rlinf"))
    if not found:
        pytest.skip("rlinf is not installed; .ci/install-frameworks does it")
    others = [found[0] / "utils" / f"{module}.py" for module in ("profiler", "timers", "distributed")]
    files = [*sorted((found[0] / "scheduler").rglob("*.py")), *others]
    names = [whole for path in files for whole in public(ast.parse(path.read_text()))]
    about = [whole for whole in names if ABOUT.search(whole)]
    assert len(about) > 40
    assert {"Worker.timer", "AcceleratorManager.start_profiling", "PyTorchProfiler"} <= set(about)
    assert list(unknown_of_rlinf(names)) == []


def test_what_is_left_stands_in_the_table():
    """Each name that is not bridged is told to whoever looks for it, as it is called."""
    rows = TABLE.partition("## Differences")[2]
    left = sorted(VERL_LEFT | {whole.partition(".")[2] or whole for whole in RLINF_LEFT})
    assert [found for found in left if f"`{found}`" not in rows] == []


def test_a_new_name_is_told():
    """A name, method or field that a release to come has is named by the tests above."""
    module = ast.parse("class DistProfiler:\n def rewind(self): ...\ndef mark_everything(): ...\nMODE: int = 3")
    assert list(unknown_of_verl(public(module), VERL_LEFT)) == ["DistProfiler.rewind", "mark_everything", "MODE"]
    module = ast.parse("class Worker:\n def trace_all(self): ...\nclass DeviceTimer: ...")
    assert list(unknown_of_rlinf(public(module))) == ["Worker.trace_all", "DeviceTimer"]
