"""Every setting stands in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelprof.config import model

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["Config", "Rule", "Schedule", "Instrument", "Budget", "OnDemand", "ControllerRule"])
def test_every_key_is_on_the_configuration_page(name: str) -> None:
    """Each field of each model of the schema is named in ``docs/configuration.md``."""
    missing = [key for key in getattr(model, name).model_fields if f"`{key}`" not in PAGE]
    assert missing == []
