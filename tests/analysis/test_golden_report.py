"""What machines read of a report stays as it is, byte for byte: JSON, tables, the page's data, of a real run of two GPUs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from accelprof.cli.report import report

RUN = Path(__file__).parent / "two_gpus"
GOLDEN = Path(__file__).parent / "golden"
#: set, the files are written anew of what is there
WRITE = "ACCELPROF_WRITE_GOLDEN"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Text by the file's name in the golden directory; where the run lies is no part of it."""
    place = tmp_path_factory.mktemp("golden")
    page, tables = place / "report.html", place / "tables"
    done = CliRunner().invoke(report, [str(RUN), "--json", "--html", str(page), "--csv", str(tables)])
    assert done.exit_code == 0, done.output
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert data is not None
    return {
        "report.json": done.output.replace(str(RUN), "RUN"),
        "page.json": f"{data[1]}\n",
        "tables.csv": "".join(
            f"# {path.name}\n{path.read_text(encoding='utf-8').replace(str(RUN), 'RUN')}"
            for path in sorted(tables.iterdir())
        ),
    }


@pytest.mark.parametrize("name", ["report.json", "page.json", "tables.csv"])
def test_a_report_is_what_it_was(made: dict[str, str], name: str) -> None:
    """A change of these files is one that users' programs see: it is meant, and stands in the news."""
    if os.environ.get(WRITE):
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / name).write_text(made[name], encoding="utf-8", newline="")
    assert made[name] == (GOLDEN / name).read_text(encoding="utf-8")
