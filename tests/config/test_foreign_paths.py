"""Errors of a foreign file carry that file's paths."""

from __future__ import annotations

from typing import Any

import pytest

from accelprof.catalogue import make_catalogue
from accelprof.contracts.targets import Target
from accelprof.errors import ConfigError

NSIGHT = {"controller_nsight_options": {"cuda-memry-usage": "true"}}
ACTOR = {"enable": True, "ranks": [0], "tool_config": {"torch": {"contents": ["cpu", "cuda", "stack"]}}}


@pytest.mark.parametrize("other", [{}, {"tool_config": {"torch": {"discrete": False}}}])
def test_a_role_without_options_is_named_by_its_own_path(other: dict[str, Any]) -> None:
    """Where one role of a process has options and another has none, both are named as the file has them."""
    ref = {"profiler": {"enable": True, "ranks": [0], **other}}
    text = {
        "global_profiler": {"tool": "torch", "steps": [1]},
        "actor_rollout_ref": {"actor": {"profiler": ACTOR}, "ref": ref},
    }
    catalogue = make_catalogue()
    with pytest.raises(ConfigError) as raised:
        catalogue.plan(catalogue.load(text).config).assign(Target("actor_rollout_ref", ("actor", "ref"), 0, 1))
    assert "actor_rollout_ref.ref.profiler" in str(raised.value)
    assert "groups." not in str(raised.value)


def test_an_option_of_the_controller_is_named_where_it_stands() -> None:
    """The path of a misspelt option has no word in it that the file has not."""
    text = {
        "global_profiler": {"tool": "nsys", "steps": [1], "global_tool_config": {"nsys": NSIGHT}},
        "actor_rollout_ref": {"actor": {"profiler": {"enable": True, "ranks": [0]}}},
    }
    catalogue = make_catalogue()
    with pytest.raises(ConfigError) as raised:
        catalogue.plan(catalogue.load(text).config)
    assert "global_profiler.global_tool_config.nsys.controller_nsight_options.cuda-memry-usage: unknown key" in str(
        raised.value
    )
