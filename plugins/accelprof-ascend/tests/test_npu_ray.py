"""A Ray job on the real torch_npu wheel over the stub of CANN."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.npu, pytest.mark.ray, pytest.mark.timeout(600)]  # a loaded machine takes minutes


def test_the_selected_ranks_of_a_ray_job_leave_one_directory_per_window(
    npu: Callable[..., Any], tmp_path: Path
) -> None:
    """Ranks 0 and 2 of three leave a complete directory for steps 2 and 4 each, side by side under one parent per step."""
    pytest.importorskip("ray", reason="ray is not installed")
    out = tmp_path / "out"
    ran = npu("", argv=[str(Path(__file__).with_name("ray_job.py")), str(out)], limit=500, RAY_USAGE_STATS_ENABLED="0")
    lines = [line for line in ran.out.splitlines() if line.startswith("MANIFEST ")]
    assert lines, f"{ran.out}\n{ran.err}"
    manifest = json.loads(lines[0].removeprefix("MANIFEST "))
    assert (manifest["status"], manifest["undelivered"]) == ("complete", [])
    rows = [row for row in manifest["artifacts"] if row["tool"] == "npu"]
    assert sorted((row["rank"], row["state"]) for row in rows) == [(rank, "complete") for rank in (0, 0, 2, 2)]
    parents = {}
    for path in ran.directories:
        parents.setdefault(path.parent.name, []).append(path.name.split("-s")[0])
        assert list(path.glob("profiler_info_[02].json"))
        assert list(path.glob("FRAMEWORK/torch.op_range"))
    assert {name: sorted(ranks) for name, ranks in parents.items()} == {
        "npu-s2-w0001": ["ActorGroup-r0", "ActorGroup-r2"],
        "npu-s4-w0002": ["ActorGroup-r0", "ActorGroup-r2"],
    }
    assert len(ran.named("aclprofStart")) == len(ran.named("aclprofStop")) == 4
    assert {call.split("types=")[1] for call in ran.named("aclprofCreateConfig")} == {"0xa7"}
    labels = [call.split("msg=")[1].split(" stream")[0] for call in ran.named("mstxRangeStartA")]
    assert labels.count("actor/update") == labels.count("actor/infer") == 4
