"""Every configuration on the pages about sampling and engines is one that accelprof takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from accelprof.catalogue import make_catalogue
from accelprof.engines.options import EngineOptions, engines_of
from accelprof.planning.presets import BUILTIN

DOCS = Path(__file__).parents[2] / "docs"
BLOCKS = [
    (page, number, block)
    for page in ("sampling.md", "engines.md")
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL))
]


@pytest.mark.parametrize(("page", "number", "block"), BLOCKS, ids=[f"{page}-{number}" for page, number, _ in BLOCKS])
def test_configurations_are_taken(page, number, block):
    """Each block loads, gives a plan, and selects somebody where it says what to record."""
    registry = make_catalogue()
    config = registry.load(yaml.safe_load(block)).config
    engines_of(config)
    rows = registry.plan(config).preview()
    if config.schedule or config.steps is not None or config.instrument:
        assert any(row.selected for row in rows)


def test_the_example_on_the_page_is_the_file():
    """The page shows the example that is run, up to its spacing and comments."""
    shown = yaml.safe_load(next(block for page, number, block in BLOCKS if (page, number) == ("sampling.md", 0)))
    file = yaml.safe_load((DOCS / "examples" / "sampling.yaml").read_text())
    assert shown == {key: value for key, value in file.items() if key != "output_dir"}


def test_every_preset_and_engine_option_is_on_its_page():
    """No preset without a word about it, no option of an engine section without a row."""
    sampling, engines = ((DOCS / page).read_text() for page in ("sampling.md", "engines.md"))
    refused = [name for name in BUILTIN if BUILTIN[name].refused and name.startswith("rlinf")]
    assert [name for name in BUILTIN if f"`{name}`" not in sampling and name not in refused] == []
    assert [name for name in EngineOptions.model_fields if f"`{name}`" not in engines] == []
