"""Halves of files that a killed process leaves say whose they are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from accelprof import processes
from accelprof.atomic import half, halves, whole, write
from accelprof.processes import Writer


def test_a_half_of_a_process_that_is_gone_is_found_and_ones_own_is_not(tmp_path: Path) -> None:
    """By its name alone, whichever writer it is of: a timeline, a torch trace before and after packing, a memory snapshot."""
    names = ["a.trace.json.gz", "b.pt.trace.json", "b.pt.trace.json.gz", "c.memory.pickle"]
    code = "import sys; from accelprof.atomic import half; [open(half(path), 'w').close() for path in sys.argv[1:]]"
    subprocess.run([sys.executable, "-c", code, *(str(tmp_path / name) for name in names)], check=True)
    left = sorted(os.listdir(tmp_path))
    assert [name.split(".part")[0].rsplit(".", 2)[0] for name in left] == names
    Path(half(str(tmp_path / "mine"))).touch()
    (tmp_path / "model.part").touch()  # somebody's own
    assert halves(str(tmp_path)) == left
    assert halves(str(tmp_path), unknown=False) == left


def test_a_half_whose_process_number_another_has_got_is_found(tmp_path: Path) -> None:
    """In a container a worker that is started again has the number of the one that was killed."""
    mine = half(str(tmp_path / "a"))
    Path(mine).touch()
    assert halves(str(tmp_path)) == []
    me = Writer.me()
    earlier = mine.replace(f"-{me.started}-", f"-{int(me.started) - 1}-")
    os.rename(mine, earlier)
    assert halves(str(tmp_path), unknown=False) == [os.path.basename(earlier)]


def test_a_half_of_another_host_is_not_judged_by_the_numbers_of_this_one(tmp_path: Path) -> None:
    """Nor one of another container; where nobody of the run is at work any more they count."""
    me = Writer.me()
    for name, there in (("host", Writer("elsewhere", 1 << 21)), ("space", Writer(me.host, 1 << 21, "1", "7"))):
        with mock.patch.object(Writer, "me", return_value=there):
            Path(half(str(tmp_path / name))).touch()
    assert halves(str(tmp_path), unknown=False) == []
    assert len(halves(str(tmp_path))) == 2


def test_halves_of_earlier_versions_are_found(tmp_path: Path) -> None:
    """With process and thread, or process alone; one of a process that runs is not."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    names = [f"a.{gone.pid}.part", f"b.{gone.pid}.139637976727552.part"]
    for name in [*names, f"c.{os.getpid()}.part"]:
        (tmp_path / name).touch()
    assert halves(str(tmp_path)) == names


def fail(path: str) -> None:
    Path(path).write_text("half")
    raise OSError("full")


def fail_in_a_directory(path: str) -> None:
    os.mkdir(path)
    fail(os.path.join(path, "x"))


@pytest.mark.parametrize("how", [fail, fail_in_a_directory, lambda path: None], ids=["file", "directory", "none"])
def test_a_failure_leaves_what_stood_there(tmp_path: Path, how: Callable[[str], None]) -> None:
    """And nothing beside it, whether a file or a directory was begun, or nothing was."""
    (tmp_path / "a").write_text("before")
    with pytest.raises(OSError), whole(str(tmp_path / "a")) as temporary:  # noqa: PT011 (of the system, or full)
        how(temporary)
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "before"
    write(str(tmp_path / "a"), lambda file: file.write("after"))
    assert (tmp_path / "a").read_text() == "after"


def test_whether_a_process_is_there() -> None:
    """By its number, its begin and its host; one that is only waited for has ended, one that cannot be seen is not judged."""
    me = Writer.me()
    assert Writer.read(me.to_json()) == me
    assert me.is_there() is True
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        other = Writer(me.host, child.pid, processes._started(child.pid))
        assert other.is_there() is True
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert other.is_there() is False
    assert other.is_there() is False
    assert Writer(me.host, me.pid).is_there() is True
    assert Writer(me.host, me.pid, "1").is_there() is False
    assert Writer("elsewhere", other.pid).is_there() is None
    assert Writer(me.host, other.pid, "1", me.space + "1").is_there() is None


@pytest.mark.parametrize(
    "row",
    [
        None,
        [],
        {},
        {"host": "a"},
        {"host": 1, "pid": 2},
        *({"host": "a", "pid": pid} for pid in (0, -1, True, "1", 1.5, 1 << 31)),
    ],
)
def test_what_names_no_process(row: object) -> None:
    """Whatever stands in a file; 0 and less would be groups of processes."""
    assert Writer.read(row) is None
