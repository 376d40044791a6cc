"""Names that no worker has, and why nothing would be recorded."""

from __future__ import annotations

from typing import Any

import pytest

from accelprof.catalogue import get_catalogue
from accelprof.contracts.targets import Target
from accelprof.planning.decide import decide
from accelprof.planning.names import (
    absent_ranks,
    nearest_accelerator,
    nothing_profiled,
    unmatched_ranks,
    unmatched_roles,
)
from accelprof.planning.plan import Plan


def plan_of(**config: Any) -> Plan:
    catalogue = get_catalogue()
    return decide(catalogue.load({"tool": None, **config}).config, catalogue)


@pytest.mark.parametrize(
    ("config", "records", "why"),
    [
        ({"steps": [2]}, True, ""),
        ({"steps": []}, False, "steps is absent (or empty)"),
        ({}, False, "steps is absent (or empty)"),
        ({"schedule": [{"phase": "a"}]}, True, ""),
        ({"on_demand": True}, False, ""),
        ({"steps": [2], "enabled": False}, False, "enabled is false"),
        ({"steps": [2], "groups": {}}, False, "groups names nobody"),
        ({"steps": [2], "groups": {"A": {"enabled": False}}}, False, "every rule under groups has enabled: false"),
        ({"groups": {"A": {"steps": [1]}, "B": {}}}, True, ""),
        ({"steps": [2], "groups": {"A": {"steps": []}}}, False, "steps is absent (or empty)"),
    ],
)  # fmt: skip
def test_why_nothing_would_be_recorded(config: dict[str, Any], records: bool, why: str) -> None:
    """Told of the configuration alone; nothing where something would be."""
    plan = plan_of(**config)
    assert plan.opens() == records
    found = nothing_profiled(plan, [])
    assert found.startswith(why) if why else found == ""


def test_ranks_that_nobody_had() -> None:
    """Beyond the world always; within it where all are known and only ranks choose."""
    plan = plan_of(steps=[1], groups={"A": {"ranks": [0, 2, "6-9"]}})
    took_part = [("A", 0, 4), ("A", 1, 4), ("B", 0, 1), ("A", None, None)]
    beyond = absent_ranks(plan.config, took_part, everyone=False)
    assert [(problem.path, str(problem.value)) for problem in beyond] == [("groups.A[0].ranks", "6-9")]
    everyone = absent_ranks(plan.config, took_part, everyone=True)
    assert [str(problem.value) for problem in everyone] == ["2", "6-9"]


def test_roles_that_nobody_had() -> None:
    """Of groups that were there; patterns fit, and what is near is offered."""
    plan = plan_of(steps=[1], groups={"A": {"roles": ["actor*", "critc"]}, "B": {"roles": ["x"]}})
    [problem] = unmatched_roles(plan.config, {"A": ["actor_rollout", "critic"]})
    assert (problem.path, problem.value) == ("groups.A.roles", "critc")
    assert "critic" in str(problem)


def test_groups_of_which_nobody_is_selected_say_their_ranks() -> None:
    """One of which somebody is selected is not named, and who has no rank has none to say."""
    plan = plan_of(steps=[1], ranks=[7])
    targets = [Target(group, rank=rank, world_size=8) for group, rank in (("A", 0), ("A", 1), ("B", 0), ("B", 7))]
    assert unmatched_ranks([plan.assign(one) for one in targets]) == [
        "A: none of its 2 workers is selected (ranks attached: 0-1)"
    ]


def test_a_word_that_is_no_accelerator() -> None:
    """What is near whatever its case; of "gpu" whose; nothing where nothing is near."""
    assert "cuda" in nearest_accelerator("CUDDA", ["cuda", "rocm"])
    assert nearest_accelerator("GPU", ["cuda", "xpu", "cpu"]) == "say whose: cuda (NVIDIA), xpu (Intel), or auto"
    assert nearest_accelerator("gpus", ["cpu"]) == "auto takes what the machine has"
    assert nearest_accelerator("zzzzzzzz", ["cuda"]) == ""
