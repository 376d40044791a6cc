"""Variables that hold lists: what somebody else put there stays, in its order; numpy's threads are told once and nothing of it stays."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from accelprof.environment import LISTS, join_env, without


def test_lists_in_the_environment_are_joined_and_taken_apart() -> None:
    """Ours come first, nothing is there twice, and taking ours away leaves the user's."""
    assert join_env({"LD_PRELOAD": "/mine.so", "A": "1"}, {"LD_PRELOAD": "/tool.so", "A": "2"}) == {
        "LD_PRELOAD": "/tool.so:/mine.so",
        "A": "2",
    }
    assert without("LD_PRELOAD", "/tool.so:/mine.so", "/tool.so") == "/mine.so"
    assert without("A", "1", "1") == ""


@pytest.mark.parametrize(
    ("name", "present", "ours", "joined"),
    [
        ("PATH", "/usr/bin:/bin", "/ours", "/ours:/usr/bin:/bin"),
        ("PATH", "/usr/bin:/ours:/bin", "/ours", "/ours:/usr/bin:/bin"),
        ("PATH", "/a:/a:/b", "/ours:/ours", "/ours:/a:/b"),
        ("PYTHONPATH", "", "/ours", "/ours"),
        ("LD_PRELOAD", "/a.so /b.so", "/ours.so", "/ours.so:/a.so:/b.so"),
        ("LD_PRELOAD", " /a.so  ", "/ours.so", "/ours.so:/a.so"),
        ("LD_LIBRARY_PATH", "/with blank:/b", "/ours", "/ours:/with blank:/b"),
        # an empty word is the working directory to whoever reads these
        ("PYTHONPATH", ":/a", "/ours", "/ours::/a"),
        ("LD_LIBRARY_PATH", "/a:", "/ours", "/ours:/a:"),
        ("PATH", ":", "/ours", "/ours:"),
        ("PATH", "/a", "/ours:", "/ours:/a"),
        ("NOT_A_LIST", "/a:/b", "/ours", "/ours"),
    ],
)
def test_what_is_there_stays_in_its_order(name: str, present: str, ours: str, joined: str) -> None:
    """Ours come first, each word is there once, and joining again changes nothing."""
    before = {name: present, "OTHER": "x"}
    assert join_env(before, {name: ours}) == {name: joined, "OTHER": "x"}
    assert before == {name: present, "OTHER": "x"}
    assert join_env({name: joined}, {name: ours}) == {name: joined}


@pytest.mark.parametrize(
    ("name", "present", "ours", "left"),
    [
        ("LD_PRELOAD", "/ours.so /a.so", "/ours.so", "/a.so"),
        ("LD_PRELOAD", "/ours.so", "/ours.so", ""),
        ("LD_LIBRARY_PATH", "/a:/ours:/b:/ours", "/ours", "/a:/b"),
        ("LD_LIBRARY_PATH", "/ours:/a:", "/ours", "/a:"),
        ("PYTHONPATH", "/ours:", "/ours", ":"),
        ("PYTHONPATH", "", "/ours", ""),
        ("PATH", "/a", "", "/a"),
        ("NOT_A_LIST", "/a:/ours", "/ours", ""),
    ],
)
def test_taking_ours_away_leaves_what_was_there(name: str, present: str, ours: str, left: str) -> None:
    """Nothing of ours, all of theirs; a variable that holds no list was ours as a whole."""
    assert without(name, present, ours) == left


@pytest.mark.parametrize("name", sorted(LISTS))
@pytest.mark.parametrize("present", ["/a", "/a:/b", "/a:/b:/a"])
def test_what_was_joined_can_be_taken_apart(name: str, present: str) -> None:
    """What is left are the words of before, each once."""
    joined = join_env({name: present}, {name: "/x:/y"})[name]
    assert without(name, joined, "/x:/y") == ":".join(dict.fromkeys(present.split(":")))


NUMPY = """
import os, sys
from accelprof.environment import ONE_THREAD, numpy_on_one_thread
assert 'numpy' not in sys.modules
if sys.argv[1] == 'none': sys.modules['numpy.__config__'] = None; sys.meta_path.insert(0, type('No', (), {'find_spec': staticmethod(lambda name, *a: (_ for _ in ()).throw(ImportError(name)) if name == 'numpy' else None)}))
try:
    numpy_on_one_thread()
except ImportError as error:
    print(error)
print({name: os.environ.get(name) for name in ONE_THREAD}, len(os.listdir('/proc/self/task')))
"""


@pytest.mark.parametrize("threads", [None, "7"])
@pytest.mark.parametrize("there", ["there", "none"])
def test_numpys_threads_do_not_stay_in_the_environment(threads: str | None, there: str) -> None:
    """Whether numpy can be imported or not, and whatever the user's own choice was; loading it starts no thread."""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    if threads is not None:
        environment["OPENBLAS_NUM_THREADS"] = threads
    ran = subprocess.run(
        [sys.executable, "-c", NUMPY, there], capture_output=True, text=True, check=True, timeout=60, env=environment
    )
    assert ran.stdout.split("\n")[-2] == f"{{'OPENBLAS_NUM_THREADS': {threads!r}}} 1"
    assert ran.stdout.startswith("numpy\n") == (there == "none")
