"""Reasons for the end of windows and sessions stand in one table."""

from __future__ import annotations

import ast
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelprof.contracts import reasons
from accelprof.output.records import WindowRow
from accelprof.session import ending
from accelprof.testing import capture

ROOT = Path(reasons.__file__).resolve().parents[1]
#: what takes a reason, as first argument or by that name
TAKES = {"close", "request_close", "_close", "close_window", "finalise", "_close_current"}


def alternatives(value: ast.expr) -> list[ast.expr]:
    """What ``value`` may be, where it is one of several."""
    if isinstance(value, ast.IfExp):
        return [*alternatives(value.body), *alternatives(value.orelse)]
    return value.elts if isinstance(value, ast.Tuple | ast.Set | ast.List) else [value]


def written_out(path: Path) -> Iterator[str]:
    """Reasons that stand in the code as text: where one is handed on, and where one is decided by."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            given = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "reason")]
            texts = given if name in TAKES else []
        elif isinstance(node, ast.Compare) and ast.unparse(node.left).endswith("reason"):
            texts = node.comparators
        else:
            continue
        parts = [part for text in texts for part in alternatives(text)]
        if any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts):
            yield f"{path.name}:{node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("room", ["session", "tools", "compat", "integrations", "cluster", "output"])
def test_no_reason_is_written_out(room: str) -> None:
    """A text that somebody decides by is a constant of the table; a schedule's and the budget's are made of what happened."""
    assert [line for path in (ROOT / room).rglob("*.py") for line in written_out(path)] == []


def test_the_table_is_told_apart() -> None:
    """No two reasons are the same text, and those by which a decision is made stand among them."""
    table = [value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, reasons.Reason)]
    assert len(set(table)) == len(table) > 10
    assert {*table, *reasons.TOLD_TO_END} >= reasons.BROKEN | reasons.HURRIED
    assert [number.name for number in ending.ENDING] == list(reasons.TOLD_TO_END)
    assert signal.SIGTERM in ending.ENDING
    assert len({reason.code for reason in table} | {reason.code for reason in reasons.TOLD_TO_END}) == len(table) + 2


@pytest.mark.parametrize("reason", [reasons.JOINED, reasons.RESET, reasons.TOLD_TO_END[0]], ids=str)
def test_a_decision_is_not_by_words(reason: reasons.Reason) -> None:
    """What a user says on closing may read like a reason of ours and is none; one that travelled to another process stays one."""
    assert reasons.among(reason, reasons.CLOSED, reason)
    assert reasons.among(pickle.loads(pickle.dumps(reason)), reason)
    assert reasons.among(pickle.loads(pickle.dumps(reason, protocol=2)), reason)
    assert not reasons.among(reason, reasons.CLOSED)
    assert not reasons.among(f"{reason}", reason)
    assert f"{reason}" == reason


@pytest.mark.parametrize("words", [str(reasons.JOINED), str(reasons.RESET)])
def test_a_session_that_is_closed_in_our_words_ends_like_any_other(words: str, tmp_path: Path) -> None:
    """Its manifest is written, and page and timeline are made, which a process that goes on or is in a hurry leaves out."""
    with capture(
        directory=str(tmp_path), run="run", tool=None, steps=[1], identity={"rank": 0, "world_size": 1}
    ) as run:
        with run.session.step(1):
            pass
        ended = run.session.close(words)
    assert ended["status"] == "complete"
    assert (tmp_path / "run" / "report.html").exists()


def test_a_window_of_a_step_that_never_came_says_so_itself() -> None:
    """Not in its reason's words, which any close may give; of rows of older versions these tell it."""
    old = {"id": "w", "steps": [], "reason": str(reasons.STEP_VOID)}
    rows = [{**old, "void": True, "reason": "other"}, old, {**old, "steps": [1]}, {**old, "void": False}]
    read = [WindowRow.read(row, lambda text: None, "") for row in rows]
    assert [row is not None and row.void for row in read] == [True, True, False, False]
