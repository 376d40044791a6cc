"""What readers make of small files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accelprof.reading.chrome import read_chrome
from tests.analysis.conftest import write_json


@pytest.fixture
def trace_of(tmp_path: Path) -> Callable[..., Any]:
    """``trace_of(text)``: what the reader makes of a file with this text (``name=`` for another suffix)."""

    def read(text: str | bytes, name: str = "x.json") -> Any:
        return read_chrome(write_json(tmp_path / name, text), "chrome")

    return read
