"""The page for authors of plug-ins shows the example's own code, and what it shows beside that runs."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from accelprof.cli.skeleton import skeleton
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


def test_the_distribution_is_the_examples():
    """The tables of the page's project file stand in the example's, and the commands are those that there are."""
    tomllib = pytest.importorskip("tomllib", reason="tomllib is in the standard library from 3.11 on")
    languages = re.findall(r"^```(\w+)$", PAGE, re.MULTILINE)
    assert sorted(set(languages)) == ["console", "python", "toml"], "a block that nothing tries"
    [shown] = map(tomllib.loads, re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL))
    real = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert shown["project"]["name"] == real["name"]
    assert shown["project"]["entry-points"] == real["entry-points"]
    assert {re.split(r"\W*[<>=]", name)[0] for name in real["dependencies"]} >= set(shown["project"]["dependencies"])
    [console] = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    made, installed = console.splitlines()
    name = made.split("#")[0].removeprefix("$ accelprof plugins new ").strip()
    assert installed == f"$ pip install -e 'accelprof-{name}[test]' && pytest accelprof-{name}"
    files = skeleton(name)
    assert "test" in tomllib.loads(files["pyproject.toml"])["project"]["optional-dependencies"]


def overrides(kit):
    """``name(`` of each method and ``name`` of each attribute of the kit that a subclass may override."""
    own = {name: value for name, value in vars(kit).items() if not name.startswith(("_", "test_"))}
    methods = [f"`{name}(" for name, value in own.items() if inspect.isfunction(value) and name != "make"]
    return methods + [f"`{name}`" for name, value in own.items() if isinstance(value, (bool, float, type(None)))]


def test_what_an_author_needs_is_named():
    """Each kind of span, each method of the kit to override, and the types that hooks and methods take are on the page."""
    words = [f"`{kind.name}`" for kind in Kind]
    words += [*overrides(BackendConformance), *overrides(ToolConformance)]
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
