"""The page for authors of plug-ins shows the example's own code, and what it shows beside that runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from accelprof.contracts.spans import Kind
from accelprof.testing import BackendConformance, ToolConformance

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "plugins" / "accelprof-example"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHOWN = [block for block in BLOCKS if block.startswith("# ")]
RUN = [block for block in BLOCKS if not block.startswith("# ")]


@pytest.mark.parametrize("block", SHOWN, ids=[block.splitlines()[0][2:] for block in SHOWN])
def test_shown_code_is_the_examples(block):
    """A block with a file's name on its first line stands in that file, word for word."""
    first, code = block.split("\n", 1)
    name = first.removeprefix("# ")
    file = EXAMPLE / "tests" / "test_example_plugin.py" if name == "tests" else EXAMPLE / "accelprof_example" / name
    assert code.strip("\n") in file.read_text(encoding="utf-8")


def test_the_rest_runs():
    """Every other block runs as it stands."""
    assert len(SHOWN) >= 6
    assert RUN
    for code in RUN:
        exec(compile(code, "docs/plugins.md", "exec"), {})


def test_what_an_author_needs_is_named():
    """Each kind of span, each method of the kit to override, and the types that hooks and methods take are on the page."""
    words = [f"`{kind.name}`" for kind in Kind]
    words += [f"`{name}(" for name in ("usable", "can_capture", "stand_in", "trigger_calls")]
    words += [
        "Probe(",
        "BoundRange(",
        "NO_RANGE",
        "WindowInfo.stem",
        "ArtifactFile(",
        "correlation",
        "Columns",
        "leave_out(",
    ]
    assert [word for word in words if word not in PAGE] == []
    assert all(hasattr(ToolConformance, name) for name in ("can_capture", "stand_in", "trigger_calls", "backend"))
    assert hasattr(BackendConformance, "usable")
