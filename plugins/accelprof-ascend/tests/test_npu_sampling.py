"""The sampling example over the real torch_npu: what CANN is told are exactly the samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.npu
LOOP = Path(__file__).parents[3] / "docs" / "examples" / "sampling_loop.py"


@pytest.mark.parametrize(
    ("group", "phase", "numbers"),
    [
        ("RolloutGroup", "rollout/decode_step", range(30, 60)),
        ("RefGroup", "ref/micro_batch", [0]),
        ("ActorGroup", "actor/mini_batch", [0]),
    ],
)
def test_the_samples_as_mstx_ranges(npu: Callable[..., Any], group: str, phase: str, numbers: Iterable[int]) -> None:
    """Decode steps 30-59, micro-batch 0 of the reference, mini-batch 0: one profile, started and stopped once."""
    argv = [str(LOOP), group, "tool=npu", "accelerator=npu", "output_dir=out", "run=r", "tools.npu.analysis=offline"]
    ran = npu("", argv=argv)
    assert ran.status == 0, ran.out + ran.err
    labels = [call.split("msg=")[1].split(" stream")[0] for call in ran.named("mstxRangeStartA")]
    assert [label for label in labels if label.startswith("call ")] == [f"call {number}" for number in numbers]
    assert labels.count(phase) == len(list(numbers))
    steps = [label for label in labels if label.startswith("ProfilerStep#")]
    assert steps == [f"ProfilerStep#{number}" for number in numbers]
    assert len(ran.named("aclprofStart")) == len(ran.named("aclprofStop")) == 1
    assert len(ran.directories) == 1
