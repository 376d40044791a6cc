"""A process is known again by its number, when it began, and where its number counts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from accelprof import processes
from accelprof.processes import Writer, ancestry


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


@pytest.mark.parametrize("pid", [0, -1, -7, 1 << 31, 1 << 70])
def test_a_number_that_no_process_can_have_is_not_there(pid: int) -> None:
    """The system would take 0 and less for groups of processes, and no larger ones at all."""
    assert Writer(Writer.me().host, pid).is_there() is False


def test_a_forked_child_is_another_process() -> None:
    """It names itself, not its parent, though it has all that the parent knew; each sees that the other is there."""
    parent = Writer.me()
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        me = Writer.me()
        fit = me.pid == os.getpid() and me != parent and me.is_there() and parent.is_there()
        os.write(write, b"fits" if fit and list(ancestry())[:2] == [me.pid, parent.pid] else b"no")
        os.close(write)
        os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        assert file.read() == b"fits"
    os.waitpid(pid, 0)
    assert Writer.me() == parent


def test_a_number_that_another_process_has_by_now_is_not_the_writers() -> None:
    """One that began at another time is another; where a file does not say when, or the system does not, the number counts."""
    me = Writer.me()
    assert me.started.isdecimal()
    assert Writer(me.host, me.pid, str(int(me.started) + 1), me.space).is_there() is False
    assert Writer(me.host, me.pid, "", me.space).is_there() is True
    assert Writer(me.host, me.pid, me.started, "").is_there() is True


def test_a_command_with_brackets_in_its_name_is_read_all_the_same(tmp_path) -> None:
    """``/proc/PID/stat`` has the name in brackets, with whatever it holds."""
    odd = tmp_path / "a) Z 1 (b"
    odd.symlink_to(sys.executable)
    code = "import os; from accelprof.processes import Writer, ancestry; print(next(iter([*ancestry()][1:])) == os.getppid(), Writer.me().is_there())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        ["bash", "-c", 'exec -a "a) Z 1 (b" "$0" -c "$1"', str(odd), code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=environment,
    )
    assert ran.stdout.split() == ["True", "True"]


def test_another_users_process_is_there() -> None:
    """Process 1 may refuse signals from us, and is there all the same."""
    assert Writer(Writer.me().host, 1).is_there() is True


def test_what_a_file_says_beside_the_process_is_taken_where_it_is_text() -> None:
    """A begin and a space of another kind count as unknown."""
    assert Writer.read({"host": "h", "pid": 7, "started": 5, "space": None}) == Writer("h", 7)
    assert Writer.read({"host": "h", "pid": 7, "started": "5", "space": "6", "more": 1}) == Writer("h", 7, "5", "6")


def test_ancestry_begins_here_and_ends_below_the_first_process() -> None:
    """This process, who started it, and so on."""
    line = list(ancestry())
    assert line[:2] == [os.getpid(), os.getppid()][: len(line)]
    assert 1 not in line
    assert len(set(line)) == len(line)
