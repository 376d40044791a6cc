"""Bringing files to the driver's node, waiting for reports, and what a launch does to environment and command."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from accelprof import hookimpl, register, unregister
from accelprof.contracts.targets import Expectation, Launch, WindowInfo
from accelprof.contracts.tool import Tool
from accelprof.contracts.words import Written
from accelprof.launch.command import assemble, program, wrapped_by
from accelprof.output.expected import GRACE_S, needed, wait_and_match, wait_for
from accelprof.output.nodes import ThisHost
from accelprof.output.records import ArtifactRow, Manifest

pytest.importorskip("ray", reason="ray is not installed")
pytestmark = pytest.mark.ray


def rows_of(*paths: Path) -> Manifest:
    rows = [ArtifactRow(str(path), "t", "G", rank=0, host="here", pid=1, bytes=path.stat().st_size) for path in paths]
    return Manifest(artifacts={row.place: row for row in rows})


@pytest.mark.parametrize("how", ["copy", "move"])
def test_files_outside_the_run_are_brought_in_and_none_is_overwritten(tmp_path: Path, how: str) -> None:
    """Two files of one name both arrive whole; a move takes the sources away, a copy leaves them."""
    from accelprof.output import collecting

    run_dir, said = tmp_path / "run", []
    sources = []
    for number in (1, 2):
        source = tmp_path / f"tool{number}" / "trace.bin"
        source.parent.mkdir()
        source.write_bytes(os.urandom(1000 + number))
        sources.append(source)
    content = sorted(source.read_bytes() for source in sources)
    (run_dir / "G").mkdir(parents=True)
    (run_dir / "G" / "trace.bin").write_bytes(b"mine")
    found = rows_of(*sources)
    collecting.relocate(how, str(run_dir), found, ThisHost(), said.append)
    places = [run_dir / row.path for row in found.artifacts.values()]
    assert {row["from"] for row in found.artifacts.values()} == {str(source) for source in sources}
    assert sorted(place.read_bytes() for place in places) == content
    assert (run_dir / "G" / "trace.bin").read_bytes() == b"mine"
    assert {place.parent for place in places} == {run_dir / "G"}
    assert [source.exists() for source in sources] == [how == "copy"] * 2
    assert said == []


def test_a_copy_that_fails_keeps_the_source_and_is_said(tmp_path: Path) -> None:
    """The target cannot be written: the file stays where it was, its record too, and no half of it is left."""
    from accelprof.output import collecting

    source = tmp_path / "tool" / "trace.bin"
    source.parent.mkdir()
    source.write_bytes(b"x" * 100)
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "G").write_text("a file where the directory should be")
    said: list[str] = []
    found = rows_of(source)
    collecting.relocate("move", str(run_dir), found, ThisHost(), said.append)
    assert source.read_bytes() == b"x" * 100
    assert [row.path for row in found.artifacts.values()] == [str(source)]
    assert "was not collected" in said[0]
    assert "the file stays on here" in said[0]
    assert sorted(os.listdir(run_dir)) == ["G"]


def test_a_full_disk_keeps_the_source(tmp_path: Path) -> None:
    """On a file system of 1 MiB the copy of 2 MiB fails, is taken back, and the source is whole."""
    from accelprof.output import collecting

    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        source = tmp_path / "trace.bin"
        source.write_bytes(b"x" * (2 << 20))
        with pytest.raises(OSError, match="No space left"):
            collecting.fetch(ThisHost(), None, str(source), str(small / "trace.bin"), remove=True)
        assert source.stat().st_size == 2 << 20
        assert os.listdir(small) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_directories_are_copied_as_they_are(tmp_path: Path) -> None:
    """A directory that a tool leaves arrives with all that is in it."""
    from accelprof.output import collecting

    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "one").write_text("1")
    (tmp_path / "a" / "two").write_text("")
    collecting.fetch(ThisHost(), None, str(tmp_path / "a"), str(tmp_path / "copy"))
    assert (tmp_path / "copy" / "b" / "one").read_text() == "1"
    assert (tmp_path / "copy" / "two").read_text() == ""


def test_an_empty_directory_is_copied_as_one(tmp_path: Path) -> None:
    """A tool that left a directory with nothing in it: that is what arrives."""
    from accelprof.output import collecting

    (tmp_path / "a").mkdir()
    collecting.fetch(ThisHost(), None, str(tmp_path / "a"), str(tmp_path / "copy"))
    assert sorted(os.listdir(tmp_path)) == ["a", "copy"]
    assert os.listdir(tmp_path / "copy") == []


def test_a_tool_that_cannot_match_its_files_leaves_those_of_the_others(tmp_path: Path) -> None:
    """``match`` of one tool raises: its file is listed without windows, with the reason; the other's is matched."""

    class Unmatched(Tool):
        name = "unmatched"

        def match(self, files: Any, windows: Any) -> Any:
            raise ValueError("a bug of the plug-in")

    for name in ("a.rep", "b.rep"):
        (tmp_path / name).write_text("report")
    window = WindowInfo("w1", 1, (1,), None, "step", str(tmp_path / "b"))
    register(SimpleNamespace(accelprof_tools=hookimpl(lambda: [Unmatched], specname="accelprof_tools")), "unmatched")
    try:
        one, other = wait_and_match(
            [(str(tmp_path / "a.rep"), 1, 5.0), (str(tmp_path / "b.rep"), 1, 5.0)],
            [("unmatched", {}, [window]), ("trace", {}, [window])],
        )
    finally:
        unregister("unmatched")
    assert one[1] == "ValueError: a bug of the plug-in"
    assert [(row.path, row.windows, row.bytes) for row in one[0]] == [(str(tmp_path / "a.rep"), (), 6)]
    assert (other[0][0].windows, other[1]) == (("w1",), "")


def test_a_report_is_waited_for_until_it_grows_no_more(tmp_path: Path) -> None:
    """A file that is written in pieces counts when it is whole; one that never comes is given up at its limit."""
    place = tmp_path / "a.rep"

    def write() -> None:
        for _ in range(3):
            with open(place, "a", encoding="utf-8") as file:
                file.write("x" * 10)
            threading.Event().wait(0.05)

    writer = threading.Thread(target=write)
    writer.start()
    found = wait_for([(str(tmp_path / "*.rep"), 1, 20.0), (str(tmp_path / "never*"), 1, 0.3)])
    writer.join()
    assert found == [[str(place)], []]
    assert place.stat().st_size == 30


@pytest.mark.parametrize(
    ("when", "count", "windows", "ended", "expected"),
    [
        ("last_window", 2, 2, False, (2, 60.0)),
        ("last_window", 2, 1, False, (1, GRACE_S)),
        ("last_window", 2, 1, True, (1, 60.0)),
        ("process_exit", 1, 1, False, (1, GRACE_S)),
        ("window_close", None, 5, False, (1, 60.0)),
        ("window_close", 2, 1, False, (1, 60.0)),
    ],
)
def test_how_long_a_report_is_waited_for(
    when: Written, count: int | None, windows: int, ended: bool, expected: tuple[int, float]
) -> None:
    """The whole limit where the tool has all it needs to write; a moment where only the end of the process brings it."""
    assert needed(Expectation("x", count, when), windows, ended, 60.0) == expected


SHOW = "import os, sys; print(os.environ.get('TOOL', '-'), sys.argv[1:], os.environ.get('A', '-'))"


@pytest.mark.parametrize("mode", ["prefix", "replace", "env"])
def test_one_living_process_at_a_time_is_started_under_the_tool(tmp_path: Path, mode: str) -> None:
    """The first gets the tool and its environment; one started by the same command meanwhile does not; the next one does."""
    replacing = tmp_path / "tool-python"
    replacing.write_text(f'#!/bin/sh\nTOOL=1 exec "{sys.executable}" "$@"\n')
    replacing.chmod(0o755)
    tool = {"prefix": ("env", "TOOL=1"), "replace": (str(replacing),), "env": ()}[mode]
    launch = Launch(mode, tool, unset_in_children=("A",), make_dirs=(str(tmp_path / "made here"),))
    claim = str(tmp_path / "claim")
    argv = assemble(launch, [sys.executable], claim)
    hold = [*argv, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
    env = {**os.environ, "A": "x", **({"TOOL": "1"} if mode == "env" else {})}
    if mode == "env":
        launch = Launch(mode, (), unset_in_children=("A", "TOOL"))
        argv = assemble(launch, [sys.executable], claim)
        hold = [*argv, *hold[-2:]]

    def run() -> str:
        return subprocess.run(
            [*argv, "-c", SHOW, "a b", "$X"], capture_output=True, text=True, env=env, check=True
        ).stdout

    with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "up\n"
        assert run() == "- ['a b', '$X'] -\n"
        first.communicate()
    assert run() == "1 ['a b', '$X'] x\n"
    if mode != "env":
        assert program(argv) == ("tool-python" if mode == "replace" else os.path.basename(sys.executable))
        assert (tmp_path / "made here").is_dir()


def test_a_wrapped_command_is_known_by_its_launcher(tmp_path: Path) -> None:
    """Behind our shell and ``env`` stands the launcher; wrapping again changes nothing."""
    launch = Launch("prefix", ("/opt/tool/nsys", "profile"), make_dirs=(str(tmp_path),))
    once = assemble(launch, ["env", "A=1", "python3", "-u"], str(tmp_path / "claim"))
    assert wrapped_by(once, ["nsys"]) == "nsys"
    assert assemble(launch, once, str(tmp_path / "claim")) == once
    assert once[-4:] == ["env", "A=1", "python3", "-u"]


def test_doctor_looks_at_every_node(ray_cluster: Any, tmp_path: Path) -> None:
    """The checks of a node come back under its name, with its Python and the output directory as it is there."""
    from accelprof.cli.doctor import checks
    from accelprof.cluster.doctor import checks_on_nodes

    [(host, rows)] = checks_on_nodes(checks, str(tmp_path)).items()
    assert host == os.uname().nodename
    assert {"python", "output directory", "ray"} <= {row.name for row in rows}
