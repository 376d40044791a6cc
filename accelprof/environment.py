"""Environment variables that hold lists: added to and taken from without losing what somebody else put there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

#: variables that hold lists, with what may stand between their words (ld.so takes blanks in LD_PRELOAD as well)
LISTS: Mapping[str, str] = {"LD_PRELOAD": ": ", "PYTHONPATH": ":", "LD_LIBRARY_PATH": ":", "PATH": ":"}
#: where our sitecustomize module lies: a process with this in its ``PYTHONPATH`` starts with it
STARTUP = str(Path(__file__).with_name("startup"))


def join_env(present: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """``present`` with ``ours`` added; in variables that hold lists ours come first and nothing is there twice."""
    joined = dict(present)
    for name, value in ours.items():
        separators = LISTS.get(name)
        if separators is not None and joined.get(name):
            words = [*_words(value, separators), *_words(joined[name], separators)]
            joined[name] = ":".join(dict.fromkeys(words))
        else:
            joined[name] = value
    return joined


def without(name: str, present: str, ours: str) -> str:
    """``present`` without what ``ours`` put into it; empty when nothing is left."""
    separators = LISTS.get(name)
    if separators is None:
        return ""
    mine = set(_words(ours, separators))
    return ":".join(word for word in _words(present, separators) if word not in mine)


def _words(value: str, separators: str) -> list[str]:
    return [word for word in re.split(f"[{separators}]+", value) if word]
