"""Every setting and environment variable stands in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from accelprof.config import model

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "accelprof", *(ROOT / "plugins").glob("*")]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["Config", "Rule", "Schedule", "Instrument", "Budget", "OnDemand", "ControllerRule"])
def test_every_key_is_on_the_configuration_page(name: str) -> None:
    """Each field of each model of the schema is named in ``docs/configuration.md``."""
    missing = [key for key in getattr(model, name).model_fields if f"`{key}`" not in PAGE]
    assert missing == []


def test_every_environment_variable_is_documented() -> None:
    """A variable with our prefix that the sources mention stands on some page of ``docs/``."""
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    used = {
        variable
        for directory in SOURCES
        for path in directory.rglob("*.py")
        for variable in re.findall(r"\bACCELPROF_[A-Z][A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8"))
    }
    assert "ACCELPROF_ACCELERATOR" in used
    assert sorted(variable for variable in used if variable not in pages) == []
