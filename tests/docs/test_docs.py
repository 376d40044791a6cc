"""Every hook, environment variable and command stands in the documentation."""

from __future__ import annotations

import pathlib
import re

from accelprof.cli.main import COMMANDS
from accelprof.contracts import hookspecs

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = "\n".join(
    path.read_text(encoding="utf-8") for path in [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
)
SOURCES = [
    path
    for folder in ("accelprof", "plugins")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "tests" not in path.parts
]


def test_every_hook_is_documented():
    """Each hook specification has its row in the plug-in page."""
    page = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    hooks = [name for name in dir(hookspecs) if name.startswith("accelprof_")]
    assert hooks
    assert [name for name in hooks if f"`{name}(" not in page] == []


def test_every_environment_variable_is_documented():
    """Each ``ACCELPROF_*`` variable that the code reads or sets is explained in the documentation."""
    names = {
        name for path in SOURCES for name in re.findall(r"\bACCELPROF_[A-Z_]+\b", path.read_text(encoding="utf-8"))
    }
    assert names
    assert sorted(name for name in names if name not in DOCS) == []


def test_every_command_is_documented():
    """Each command of the command line is shown somewhere in the documentation."""
    assert [name for name in COMMANDS if f"accelprof {name}" not in DOCS] == []
