"""``accelprof plugins new NAME`` writes a plug-in that passes the conformance kit as it is written."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from accelprof.cli.main import cli
from accelprof.cli.skeleton import skeleton

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "plugins" / "accelprof-example"


@pytest.mark.parametrize("name", ["zeta", "my-new-xpu2", "testing", "base"])
def test_what_is_written_passes_the_kit(name, tmp_path):
    """Backend, tool and reader pass the kit as they are, and the plug-in is found through its own entry point."""
    done = CliRunner().invoke(cli, ["plugins", "new", name, "--directory", str(tmp_path)])
    assert done.exit_code == 0, done.output
    place = tmp_path / f"accelprof-{name}"
    assert str(place) in done.output
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation", "-t", str(site), str(place)]  # fmt: skip
    if subprocess.run(pip, capture_output=True, text=True, timeout=120, check=False).returncode != 0:
        pytest.skip("setuptools 77 or pip is not installed here")
    env = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(place), str(place)]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=300, cwd=place, env=env, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1000:]
    passed = int(ran.stdout.split(" passed")[0].split()[-1])
    assert passed >= 20
    assert "failed" not in ran.stdout


def test_the_example_is_the_skeleton():
    """The templates are the example plug-in: what stands in its files is what ``new example`` writes."""
    made = skeleton("example")
    ours = {path: text for path, text in made.items() if path.endswith(".py")}
    assert len(ours) == 5
    differ = [path for path, text in ours.items() if (EXAMPLE / path).read_text(encoding="utf-8") != text]
    assert differ == []


@pytest.mark.parametrize("name", ["", "Zeta", "9x", "a--b", "-a", "a/b", "../x", "class", "x" * 41, "ü", "a b", "a\nb"])
def test_a_name_that_cannot_be_one(name, tmp_path):
    """What could be no module's name is refused with what may be, and nothing is written."""
    done = CliRunner().invoke(cli, ["plugins", "new", "--directory", str(tmp_path), "--", name])
    assert done.exit_code != 0
    assert "lower-case letters" in f"{done.output}{done.exception}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "test",
        "tests",
        "accelprof",
        "accelprof-zeta",
        "pytest",
        "conftest",
        "backend",
        "device",
        "tool",
        "reader",
        "auto",
        "none",
    ],
)
def test_a_name_that_something_else_has(name, tmp_path):
    """``TestBackend`` would be the plug-in's class and the kit's: such names are refused with one that is free."""
    done = CliRunner().invoke(cli, ["plugins", "new", name, "--directory", str(tmp_path)])
    assert done.exit_code != 0
    assert "have this name" in f"{done.output}{done.exception}"
    assert "my-" in f"{done.output}{done.exception}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["testing", "base", "string", "json", "os", "label", "kind", "log", "options", "window", "trace-file"]
)
def test_no_name_of_what_is_written_collides(name):
    """Every module compiles, and none defines or imports a name twice, whatever the plug-in is called."""
    for path, text in skeleton(name).items():
        if not path.endswith(".py"):
            continue
        names = []
        for node in ast.parse(text).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                names.append(node.name)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names.extend((alias.asname or alias.name) for alias in node.names)
        assert sorted(set(names)) == sorted(names), path


def test_a_name_that_is_taken(tmp_path):
    """The name of an installed backend, tool or plug-in, and a directory that is there, are refused; nothing is overwritten."""
    for name in ("cpu", "torch"):
        done = CliRunner().invoke(cli, ["plugins", "new", name, "--directory", str(tmp_path)])
        assert "an installed plug-in has this name" in f"{done.output}{done.exception}"
    (tmp_path / "accelprof-zeta").mkdir()
    done = CliRunner().invoke(cli, ["plugins", "new", "zeta", "--directory", str(tmp_path)])
    assert "is there already" in f"{done.output}{done.exception}"
    assert list((tmp_path / "accelprof-zeta").iterdir()) == []
