"""Environment variables that hold lists: added to and taken from without losing what somebody else put there."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

#: variables that hold lists, with what may stand between their words (ld.so takes blanks in LD_PRELOAD as well)
LISTS: Mapping[str, str] = {"LD_PRELOAD": ": ", "PYTHONPATH": ":", "LD_LIBRARY_PATH": ":", "PATH": ":"}
#: where our sitecustomize module lies: a process with this in its ``PYTHONPATH`` starts with it
STARTUP = str(Path(__file__).with_name("startup"))
#: keeps numpy's library for matrices, of which nothing here asks anything, from a thread for each core, all of them busy for a
#: tenth of a second when it is loaded: more than reading most files takes
ONE_THREAD: Mapping[str, str] = {"OPENBLAS_NUM_THREADS": "1"}


def numpy_on_one_thread() -> None:
    """Import numpy with :data:`ONE_THREAD`, which does not stay in the environment. For processes that only read: in a training
    process, numpy is the user's."""
    if "numpy" in sys.modules:
        return
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        importlib.import_module("numpy")
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def join_env(present: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """``present`` with ``ours`` added; in variables that hold lists ours come first and nothing is there twice."""
    joined = dict(present)
    for name, value in ours.items():
        separators = LISTS.get(name)
        if separators is not None and joined.get(name):
            words = [*filter(None, _words(value, separators)), *_words(joined[name], separators)]
            joined[name] = ":".join(dict.fromkeys(words))
        else:
            joined[name] = value
    return joined


def without(name: str, present: str, ours: str) -> str:
    """``present`` without what ``ours`` put into it; empty when nothing is left."""
    separators = LISTS.get(name)
    if separators is None:
        return ""
    mine = set(filter(None, _words(ours, separators)))
    left = [word for word in _words(present, separators) if word not in mine]
    return ":" if left == [""] else ":".join(left)


def _words(value: str, separators: str) -> list[str]:
    """An empty word counts where words are paths: it is the working directory."""
    if not value or separators == ":":
        return value.split(":") if value else []
    return [word for word in re.split(f"[{separators}]+", value) if word]
