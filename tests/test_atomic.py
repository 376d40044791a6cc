"""Files are whole or not there, and a half that a killed process leaves says whose it is."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

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


WRITES = """
import os, resource, signal, sys
from accelprof.atomic import write
if sys.argv[2] == "limit":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write(sys.argv[1], lambda file: file.write("x" * 100_000))
except OSError as error:
    print(type(error).__name__, error.errno)
"""


def test_a_full_disk_leaves_what_stood_there(tmp_path: Path) -> None:
    """The error of the system comes out (a file may not grow, as on a full disk), and no half stays."""
    path = tmp_path / "a"
    path.write_text("before")
    ran = subprocess.run(
        [sys.executable, "-c", WRITES, str(path), "limit"], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.split() == ["OSError", str(errno.EFBIG)]
    assert os.listdir(tmp_path) == ["a"]
    assert path.read_text() == "before"


def test_text_that_no_file_can_have_leaves_what_stood_there(tmp_path: Path) -> None:
    """Half a surrogate pair is the caller's to see to (``texts.encodable``)."""
    path = tmp_path / "a"
    path.write_text("before")
    with pytest.raises(UnicodeEncodeError):
        write(str(path), lambda file: file.write("x\ud800"))
    assert os.listdir(tmp_path) == ["a"]
    assert path.read_text() == "before"


def test_a_directory_that_vanishes_meanwhile_is_an_error_of_the_system(tmp_path: Path) -> None:
    """Before the half is opened, and between its writing and its move; nothing is made in its place."""
    place = tmp_path / "run"
    with pytest.raises(FileNotFoundError):
        write(str(place / "a"), lambda file: file.write("x"))
    place.mkdir()
    with pytest.raises(FileNotFoundError), whole(str(place / "a")):
        shutil.rmtree(place)
    assert os.listdir(tmp_path) == []


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    """A link in the place of the file, and one that somebody put where the half is written, which is refused."""
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    path = tmp_path / "a"
    path.symlink_to(theirs)
    write(str(path), lambda file: file.write("ours"))
    assert not path.is_symlink()
    assert (path.read_text(), theirs.read_text()) == ("ours", "theirs")
    os.symlink(theirs, half(str(path)))
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        write(str(path), lambda file: file.write("again"))
    assert sorted(os.listdir(tmp_path)) == ["a", "theirs"]
    assert (path.read_text(), theirs.read_text()) == ("ours", "theirs")


@pytest.mark.parametrize(
    ("mask", "mode", "expected"), [(0o022, 0o644, 0o644), (0o077, 0o644, 0o600), (0, 0o600, 0o600)]
)
def test_who_may_read_the_result(tmp_path: Path, mask: int, mode: int, expected: int) -> None:
    """As of a file that is made anew, less what the user's mask takes, whatever stood there before."""
    path = tmp_path / "a"
    path.touch()
    path.chmod(0o666)
    before = os.umask(mask)
    try:
        write(str(path), lambda file: file.write("x"), mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == expected


def test_a_directory_that_holds_something_is_not_replaced(tmp_path: Path) -> None:
    """A directory is moved into an empty place or over an empty one; over another the error comes out and that one stays."""
    with whole(str(tmp_path / "d")) as temporary:
        os.mkdir(temporary)
        Path(temporary, "first").touch()
    with pytest.raises(OSError, match=os.strerror(errno.ENOTEMPTY)), whole(str(tmp_path / "d")) as temporary:
        os.mkdir(temporary)
    assert os.listdir(tmp_path) == ["d"]
    assert os.listdir(tmp_path / "d") == ["first"]


def test_of_many_writers_each_file_is_one_of_theirs(tmp_path: Path) -> None:
    """Threads and processes write one path at once: whoever reads it meanwhile has one writer's text from its beginning to its end."""
    path = str(tmp_path / "a")
    code = (
        "import sys\nfrom accelprof.atomic import write\n"
        "for _ in range(200): write(sys.argv[1], lambda file: file.write(sys.argv[2] * 20_000))"
    )
    write(path, lambda file: file.write("0" * 20_000))
    over = threading.Event()
    torn: list[str] = []

    def read() -> None:
        while not over.is_set():
            text = Path(path).read_text()
            if len(text) != 20_000 or len(set(text)) != 1:
                torn.append(text)

    def work(letter: str) -> None:
        for _ in range(200):
            write(path, lambda file: file.write(letter * 20_000))

    threads = [threading.Thread(target=read), *(threading.Thread(target=work, args=(letter,)) for letter in "ab")]
    others = [subprocess.Popen([sys.executable, "-c", code, path, letter]) for letter in "cd"]
    for thread in threads:
        thread.start()
    for other in others:
        assert other.wait(60) == 0
    for thread in threads[1:]:
        thread.join()
    over.set()
    threads[0].join()
    assert torn == []
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "x" * 251 + ".log"])
def test_a_name_as_long_as_a_file_may_have_can_be_written(tmp_path: Path, name: str) -> None:
    """The half's is no longer than the system takes, and two long names have halves of their own."""
    write(str(tmp_path / name), lambda file: file.write("x"))
    assert os.listdir(tmp_path) == [name]
    one, other = (half(str(tmp_path / (name[:-1] + last))) for last in "yz")
    assert one != other
    Path(one).touch()
    assert halves(str(tmp_path)) == []  # ours, and we are there


@pytest.mark.parametrize(
    "name", ["a.0.part", "a.9999999999.part", "a.9999999999-1-0123abcd.1.part", "a.0-1-0123abcd.1.part"]
)
def test_a_number_that_no_process_can_have_is_nobodys(tmp_path: Path, name: str) -> None:
    """0 would be a group of processes, and a number may be larger than any system gives out."""
    (tmp_path / name).touch()
    assert halves(str(tmp_path)) == [name]


def test_halves_are_looked_for_three_directories_deep_and_behind_no_link(tmp_path: Path) -> None:
    """What cannot be opened is passed over."""
    name = "a.0.part"
    for place in ("1", "1/2", "1/2/3"):
        (tmp_path / place).mkdir()
        (tmp_path / place / name).touch()
    (tmp_path / "link").symlink_to(tmp_path / "1")
    (tmp_path / f"b{name}").symlink_to(tmp_path / "1" / name)
    assert halves(str(tmp_path)) == [f"1/2/{name}", f"1/{name}"]
    assert halves(str(tmp_path / "gone")) == []
