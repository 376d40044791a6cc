"""The example of docs/ray.md is run as it stands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="ray is not installed")
pytestmark = pytest.mark.ray
PAGE = Path(__file__).parents[2] / "docs" / "ray.md"


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    """It prints the timings of three steps and leaves a whole run with a window per actor."""
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    done = subprocess.run(
        [sys.executable, "-c", found[1]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("actor/update") == 3
    assert done.stdout.strip().splitlines()[-1] == "complete 2"
    [manifest] = (tmp_path / "outputs" / "profile").glob("*/manifest.json")
    assert json.loads(manifest.read_text())["undelivered"] == []
