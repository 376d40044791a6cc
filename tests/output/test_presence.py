"""Who is at work in a run: locks of real processes, and rows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from accelprof.output.presence import PAGE, TURN, Presence, at_work
from accelprof.output.records import TargetRow
from accelprof.processes import Writer

HOLD = """
import sys
from accelprof.output.presence import Presence
one = Presence(sys.argv[1], sys.argv[2])
for line in sys.stdin:
    if line == "turn\\n":
        turn = one.turn(int(sys.argv[3]), 5)
        turn.__enter__()
    elif line == "leave\\n":
        one.leave()
    print("done", flush=True)
"""


class Other:
    """Another process in the run."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


@contextmanager
def other(run_dir: Path, key: str, which: int = TURN) -> Iterator[Other]:
    command = [sys.executable, "-c", HOLD, str(run_dir), key, str(which)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        found = Other(process)
        try:
            found.tell("hello")
            yield found
        finally:
            process.kill()


def test_a_process_is_there_until_it_leaves(tmp_path: Path) -> None:
    """Others see it, it does not count itself, and a key that nobody has is nobody."""
    mine = Presence(str(tmp_path), "me")
    with other(tmp_path, "you") as you:
        assert mine.there(["me", "you", "nobody"]) == {"you"}
        assert mine.there(["me", "you", "nobody"]) == {"you"}  # asking takes nothing away
        you.tell("leave")
        assert mine.there(["you"]) == set()
    mine.close()
    assert mine.there(["you"]) == set()


def test_who_is_killed_is_gone(tmp_path: Path) -> None:
    """However it ends, its lock goes, and nobody waits for its turn."""
    mine = Presence(str(tmp_path), "me")
    with other(tmp_path, "you") as you:
        you.tell("turn")
        with mine.turn(TURN, 0.1) as alone:
            assert not alone
        you.process.kill()
        you.process.wait()
        assert mine.there(["you"]) == set()
        with mine.turn(TURN, 5) as alone:
            assert alone
    mine.close()


def test_a_turn_is_one_at_a_time_and_each_kind_its_own(tmp_path: Path) -> None:
    """Who hurries does not wait, and another kind of turn is free."""
    mine = Presence(str(tmp_path), "me")
    with other(tmp_path, "you", PAGE) as you:
        you.tell("turn")
        began = time.monotonic()
        with mine.turn(PAGE, 60, hurry=lambda: True) as alone:
            assert not alone
        assert time.monotonic() - began < 10
        with mine.turn(TURN, 1) as alone:
            assert alone
    mine.close()


def test_a_forked_child_holds_and_gives_up_nothing_of_its_parents(tmp_path: Path) -> None:
    """Locks are the parent's alone."""
    mine = Presence(str(tmp_path), "me")
    pid = os.fork()
    if pid == 0:
        mine.leave()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    asked = [sys.executable, "-c", "import sys; from accelprof.output.presence import Presence; print(Presence(sys.argv[1], 'x').there(['me']))", str(tmp_path)]  # fmt: skip
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "{'me'}\n"
    mine.close()
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "set()\n"


def test_without_a_file_nobody_is_seen_and_nothing_is_raised(tmp_path: Path) -> None:
    """A directory that is not there, or one that is a file: everyone ends the run as the last one."""
    (tmp_path / "file").touch()
    for place in (tmp_path / "none", tmp_path / "file"):
        one = Presence(str(place), "me")
        assert one.there(["you"]) == set()
        with one.turn(TURN, 0.1) as alone:
            assert alone
        one.leave()
        one.close()


@pytest.mark.parametrize("ended", [False, True, None])
def test_a_row_tells_of_a_process_without_a_lock(ended: bool | None, tmp_path: Path) -> None:
    """Where its session is open and the process is there: this one is, one of the same number that began otherwise is not."""
    me = Writer.me()
    mine = {"host": me.host, "pid": me.pid, "started": me.started, "space": me.space, "ended": ended}
    rows = {
        "me": TargetRow(key="me", **mine),
        "gone": TargetRow(key="gone", **{**mine, "started": "another moment"}),
        "nameless": TargetRow(key="nameless", ended=ended),
    }
    assert at_work(str(tmp_path), rows) == ({"me"} if ended is False else set())
    with other(tmp_path, "gone"):
        assert at_work(str(tmp_path), rows) == {"gone"} | ({"me"} if ended is False else set())
    assert sorted(path.name for path in tmp_path.iterdir()) == [".accelprof-run"]
