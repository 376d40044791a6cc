"""What is left open, or raised where nobody can catch it, fails the tests of the timers."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
ERRORS = ("error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            for rule in ERRORS:
                item.add_marker(pytest.mark.filterwarnings(rule))
