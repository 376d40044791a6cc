"""Which methods a preset stands for in a release, and presets that cannot be had."""

from __future__ import annotations

import pytest

from accelprof.config.model import Config
from accelprof.planning.presets import BUILTIN, Preset, Site, check

TABLE = Preset(
    "lib",
    (
        Site("a:b", "old", "<1.0"),
        Site("a:c", "new", ">=1.0"),
        Site("a:d", "always"),
        Site("a:e", "never", "<1.0", refused="no"),
    ),
)


@pytest.mark.parametrize(
    ("version", "phases"),
    [
        ("0.9", ["old", "always", "never"]),
        ("1.0rc1", ["old", "always", "never"]),
        ("1.0", ["new", "always"]),
        ("1.0+cu126", ["new", "always"]),
        ("1.0.post1", ["new", "always"]),
    ],
)
def test_a_release_has_its_own_methods(version: str, phases: list[str]) -> None:
    """In plain order of versions; what is refused is among them, so that it can be said where it is called."""
    assert [site.phase for site in TABLE.sites_for(version)] == phases


def test_ranges_name_what_can_be_had() -> None:
    """Each once, without what is refused."""
    assert TABLE.ranges() == "<1.0; >=1.0; all"


def test_a_preset_that_cannot_be_had_is_a_problem_where_it_is_written() -> None:
    """With what is allowed, and the mend; refused ones are not offered."""
    config = Config.model_validate({"presets": ["sglang.batch", "sglang.batsh", "verl.megatron.micro_batch"]})
    unknown, refused = check(config, BUILTIN)
    assert (unknown.path, unknown.value) == ("presets[1]", "sglang.batsh")
    assert "sglang.batch" in str(unknown.mend)
    assert "verl.megatron.micro_batch" not in str(unknown.allowed)
    assert (refused.path, refused.mend) == ("presets[2]", "verl.mini_batch")


def test_what_a_refused_preset_mends_by_can_be_had() -> None:
    """The name is a preset, and none that is refused."""
    for name, preset in BUILTIN.items():
        assert bool(preset.sites) != bool(preset.refused), name
        if preset.refused:
            assert not BUILTIN[preset.mend].refused
