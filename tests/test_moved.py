"""Documented modules that moved are still there for a release, and say where they went."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

import accelprof
from accelprof.catalogue import Registry, get_catalogue, get_registry, make_catalogue
from accelprof.contracts.tool import ToolContext
from accelprof.testing import capture


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("accelprof.backend", "accelprof.contracts.backend"),
        ("accelprof.tool", "accelprof.contracts.tool"),
        ("accelprof.targets", "accelprof.contracts.targets"),
        ("accelprof.spans", "accelprof.contracts.spans"),
        ("accelprof.doctor", "accelprof.contracts.doctor"),
        ("accelprof.registry", "accelprof.catalogue"),
        ("accelprof.runtime.gate", "accelprof.timing.gate"),
        ("accelprof.engines.control", "accelprof.engines.profiler"),
    ],
)
def test_an_old_path_warns_and_is_the_new_module(old: str, new: str) -> None:
    """Importing the old path warns with the new one, and gives the very same module."""
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=rf"{old} is {new} now"):
        module = importlib.import_module(old)
    assert module is importlib.import_module(new)
    sys.modules.pop(old, None)


def test_the_catalogue_by_its_old_names() -> None:
    """``get_registry`` warns and is the process's catalogue; ``Registry`` warns and makes one as ``make_catalogue`` does; each
    warning is at the caller's line, and nothing of ours uses them."""
    with pytest.warns(DeprecationWarning, match=r"get_registry\(\) is get_catalogue\(\) now") as got:
        assert get_registry() is get_catalogue()
    with pytest.warns(DeprecationWarning, match=r"Registry\(\) is make_catalogue\(\) now") as made:
        assert Registry(entry_points=False).tool_names() == make_catalogue(entry_points=False).tool_names()
    assert {warning.filename for warning in (*got, *made)} == {__file__}
    for path in Path(accelprof.__file__).parent.rglob("*.py"):
        used = re.findall(r"\b(?:get_registry|Registry)\b", path.read_text())
        assert not used or path.name == "catalogue.py", path


def test_a_tools_context_still_reports_for_a_release() -> None:
    """``ToolContext.report``, as tools of 0.1 call it, warns and says the same as ``say``."""
    said: list[str] = []
    with capture(steps=[9]) as run:
        target, assignment = run.session.target, run.session.assignment
        context = ToolContext(target, assignment, run.session.backend, "", said.append)
    with pytest.warns(DeprecationWarning, match=r"ToolContext\.report is ToolContext\.say now"):
        context.report("once")
    assert said == ["once"]


def test_a_session_can_still_be_armed_for_a_release() -> None:
    """``Session.arm`` warns, and the window opens where the next phase begins; a second one waits for nobody."""
    with capture(steps=[9], on_demand=True, timeline=False) as run:
        with pytest.warns(DeprecationWarning, match=r"Session\.arm goes with the next release"):
            assert run.session.arm() is True
        with pytest.warns(DeprecationWarning, match=r"Session\.arm"):
            assert run.session.arm() is False
        accelprof.timer("phase")(lambda: None)()
        assert [row.kind for row in run.session.windows] == ["on_demand"]
