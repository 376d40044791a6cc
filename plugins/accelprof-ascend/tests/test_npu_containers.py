"""Containers: a host name and a pid that two processes share, a working directory that cannot be written, many cards at once."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.npu

#: what two containers of one image have in common: the host's name, the pid, the parent's pid
SAME = """
import os, socket
os.getpid, os.getppid = (lambda: 332), (lambda: 1)
socket.gethostname = lambda: "container"
os.uname = lambda was=os.uname(): os.uname_result((was[0], "container", *was[2:]))
"""


@pytest.mark.parametrize("rank", [0, None])
def test_two_processes_with_one_host_name_and_pid_keep_both_trees(npu: Callable[..., Any], rank: int | None) -> None:
    """B85: in two containers on one file system both profiles are there, and each worker's record names its own."""
    code = f"""
    session = configure(rank={rank!r})
    actor = Actor()
    for step in range(5):
        with session.step(step):
            actor.update()
    show(session.close())
    """
    trees: list[Path] = []
    shown = []
    for _ in range(2):
        ran = npu(SAME + textwrap.dedent(code))
        assert ran.status == 0, ran.err
        shown.append(ran.shown())
        trees = ran.directories
    assert len(trees) == 4, trees
    assert all((tree / "FRAMEWORK").is_dir() and list(tree.glob("profiler_info*.json")) for tree in trees)
    named = [os.path.basename(row["path"]) for one in shown for row in one["artifacts"]]
    assert sorted(named) == sorted(tree.name for tree in trees)
    assert [row["state"] for one in shown for row in one["artifacts"]] == ["complete"] * 4
    journals = "".join(path.read_text() for path in ran.place.rglob("*.jsonl"))
    assert all(tree.name in journals for tree in trees)


def test_a_working_directory_that_cannot_be_written(npu: Callable[..., Any]) -> None:
    """B86: windows and their analysis need nothing of the working directory, and leave nothing in it."""
    code = """
    os.chdir("/proc/sys/vm")
    session = configure(steps=[2], tools={"npu": {"analysis": "online"}})
    actor = Actor()
    for step in range(5):
        with session.step(step):
            actor.update()
    show(session.close())
    """
    ran = npu(code, msprof=True)
    assert ran.status == 0, ran.err
    shown = ran.shown()
    assert [
        line for line in shown["problems"] if "closing window" not in line
    ] == []  # waiting for the analysis is said
    assert [row["state"] for row in shown["artifacts"]] == ["complete"]
    assert all((tree / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").is_file() for tree in ran.directories)
    assert len(ran.directories) == 1


def test_a_toolkit_of_another_release_is_recorded(npu: Callable[..., Any], cann: dict[str, str]) -> None:
    """B86: the release that CANN's files name stands in the profile, and a window on it is complete."""
    info = Path(cann["ASCEND_HOME_PATH"], "ascend_toolkit_install.info")
    before = info.read_text()
    info.write_text(before.replace("version=8.5.0", "version=9.1.0"))
    try:
        ran = npu("session = configure(); actor = Actor()\nwith session.step(2): actor.update()\nshow(session.close())")
    finally:
        info.write_text(before)
    assert ran.status == 0, ran.err
    assert [row["state"] for row in ran.shown()["artifacts"]] == ["complete"]
    [tree] = ran.directories
    [facts] = tree.glob("profiler_info*.json")
    assert json.loads(facts.read_text())["cann_version"] == "9.1.0"
