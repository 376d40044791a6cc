"""The words of the contracts: one table each, which types, documentation and the core's own writing agree with."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from accelprof.contracts import words
from accelprof.contracts.targets import ArtifactFile, Launch
from accelprof.contracts.tool import Tool

ROOT = Path(__file__).resolve().parents[2]


def test_defaults_are_among_them() -> None:
    """What the contracts begin with is a word of theirs."""
    assert Tool.count in words.COUNTS
    assert Tool.thread in words.THREADS
    assert Tool.schedule in words.COUNTINGS
    assert Launch().mode in words.LAUNCH_MODES
    assert ArtifactFile("a", "t").state == words.COMPLETE


def test_a_word_of_another_release_is_taken_for_a_known_one() -> None:
    """A file's word is itself where it is known, else what stands for it."""
    assert [words.known(one, words.WINDOW_KINDS, "step") for one in ("phase", "odd", None)] == ["phase", "step", "step"]


def test_the_page_of_the_manifest_has_every_kind_of_window() -> None:
    """docs/output.md lists the kinds of windows that there are."""
    found = re.search(r"`kind` \(([\w, ]+)\)", (ROOT / "docs/output.md").read_text())
    assert found is not None
    assert tuple(found[1].split(", ")) == words.WINDOW_KINDS


def test_no_other_table_of_them() -> None:
    """Two or more words of a set stand beside each other nowhere but in the contract: who checks them asks its table."""
    tables = [
        set(table)
        for table in (words.COUNTS, words.THREADS, words.TRIGGER_CALLS, words.LAUNCH_MODES, words.ARTIFACT_STATES)
    ]
    found = []
    for path in sorted((ROOT / "accelprof").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
                said = {
                    item.value for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)
                }
                if said in tables and path.name != "words.py":
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {sorted(said)}")
    assert not found, found
