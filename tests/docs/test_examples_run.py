"""The examples of the README and of the first page are run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from accelprof.catalogue import get_catalogue

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[tuple[bool, str]]:
    """Python blocks of a page, with whether a ``<!-- ray -->`` stands above."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [(bool(ray), code) for ray, code in re.findall(r"(<!-- ray -->\n)?```python\n(.*?)```", text, re.DOTALL)]


def run(code: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=directory, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", ["README.md", "docs/configuration.md"])
def test_configurations_are_accepted(page: str) -> None:
    """Every YAML block of the two pages is a configuration that loads and makes a plan."""
    found = re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert found
    for text in found:
        registry = get_catalogue()
        registry.plan(registry.load(yaml.safe_load(text)).config)


def test_the_readme_example_runs(tmp_path: Path) -> None:
    """The first example of the README leaves what it says, and prints where, and a duration."""
    where, duration = run(blocks("README.md")[0][1], tmp_path).splitlines()[-2:]
    assert 0 < float(duration) < 1
    assert len(list((tmp_path / "outputs" / "profile").rglob("*-s2-*.trace.json.gz"))) == 1
    for name in ("report.html", "timeline.json.gz", "manifest.json"):
        assert (tmp_path / where / name).is_file(), name


def test_the_examples_in_one_process_run(tmp_path: Path) -> None:
    """The examples of the first page that need no Ray run one after the other and open one window."""
    code = "\n".join(code for ray, code in blocks("docs/getting-started.md") if not ray)
    assert run(code, tmp_path).splitlines()[-1] == "1"


@pytest.mark.ray
def test_the_ray_example_runs(tmp_path: Path) -> None:
    """The Ray example of the first page, with its own worker class, opens a window on each of two ranks."""
    pytest.importorskip("ray", reason="ray is not installed")
    first, *_, ray_example = [code for _, code in blocks("docs/getting-started.md")]
    assert run(f"{first}\n{ray_example}", tmp_path).splitlines()[-1] == "2"


def test_links_between_pages_lead_somewhere() -> None:
    """Every relative link of the README and of the pages names a file that is there."""
    broken = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in link and not (page.parent / link).exists():
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []
