"""Ranges of versions in plain order: with candidates, posts and local parts, and tables whose ranges meet have one row for each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from accelprof.versions import installed, within


@pytest.mark.parametrize(
    ("version", "spec", "holds"),
    [
        ("1.0", "", True),
        ("1.0", ">=1.0", True),
        ("1.0.0", "==1", True),
        ("1.10", ">1.9", True),
        ("1.0", "!=1.0", False),
        ("0.11.3", ">=0.11,<0.13", True),
        ("0.13.0", " >=0.11 , <0.13 ", False),
        ("0.14.0rc1", "<0.14.0", True),
        ("0.14.0rc1", ">=0.14.0", False),
        ("0.14.0.dev3", "<0.14.0a1", True),
        ("0.14.0a1", ">=0.13", True),
        ("0.14.0.post1", ">0.14.0", True),
        ("0.14.0.post1", "<=0.14.0", False),
        ("1!0.1", ">2024", True),
        ("2.5.1+cu126", "==2.5.1", True),
        ("2.5.1+cu126", ">2.5.1", False),
        ("2.5.1+cu126", "==2.5.1+cu126", True),
        ("2.5.1", "==2.5.1+cu126", True),
        ("2.6.0a0+git1234", "<2.6", True),
        ("v1.2", ">=1.2", True),
    ],
)
def test_a_version_is_within_a_range(version: str, spec: str, holds: bool) -> None:
    """In plain order; a local part does not count."""
    assert within(version, spec) is holds


@pytest.mark.parametrize(
    "version", ["0.13", "0.14.0.dev1", "0.14.0rc1", "0.14", "0.14.0+local", "0.14.post1", "0.15.1", "9!1"]
)
def test_of_ranges_that_meet_one_holds(version: str) -> None:
    """Whichever release somebody has, a table has exactly one row for it."""
    table = ("<0.14", ">=0.14,<0.15", ">=0.15")
    assert sum(within(version, spec) for spec in table) == 1


@pytest.mark.parametrize("version", ["", "latest", "1.x", "1.0-", "main+abc def"])
def test_what_is_no_version_is_said(version: str) -> None:
    """By its own words."""
    with pytest.raises(ValueError, match=r"is not a version$"):
        within(version, ">=1")


@pytest.mark.parametrize("spec", ["1.0", "~=1.0", "===1.0", "==1.*", ">=", "=>1", ">=1 <2", ">=one"])
def test_what_is_no_clause_is_said(spec: str) -> None:
    """With those that are; a clause that would hold by another rule than plain order is none."""
    with pytest.raises(ValueError, match="is not a version clause; allowed: >=, <=, ==, !=, <, > and a version"):
        within("1.0", spec)


def test_the_release_of_a_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is installed, by any spelling of its name; ``None`` where it is not."""
    info = tmp_path / "Odd_Name-1.2rc1+x.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Odd_Name\nVersion: 1.2rc1+x\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert installed("odd-name") == installed("Odd_Name") == "1.2rc1+x"
    assert installed("no-such-distribution-anywhere") is None
