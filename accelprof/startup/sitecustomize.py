"""Runs in every Python process of a job with ``ACCELPROF_INSTALL`` (accelprof.compat.startup), and in every one that inherits the
environment of a worker with instruments (accelprof.session.joining).

For instruments it only watches for the first import of an instrumented module, with the standard library alone. Then it
makes room for the sitecustomize module that it stands before.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any


class _Watch:
    """A finder that finds nothing: it calls ``install`` before the first instrumented module is looked for."""

    def __init__(self, modules: Iterable[str]) -> None:
        self.modules = frozenset(modules)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.modules:
            return None
        sys.meta_path.remove(self)
        try:
            from accelprof.session.joining import install
        except ImportError as error:  # another environment than the worker's
            sys.stderr.write(f"accelprof: {name} is not instrumented in process {os.getpid()}: {error}\n")
            return None
        install()
        # the list that this search goes through has changed under it, so it is gone through anew
        for finder in list(sys.meta_path):
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        return None


def _frameworks() -> None:
    if not os.environ.get("ACCELPROF_INSTALL"):
        return
    try:
        import accelprof.compat.startup  # noqa: F401
    except ImportError as error:  # another environment than the job's
        sys.stderr.write(f"accelprof: nothing is installed in process {os.getpid()}: {error}\n")


def _instruments() -> None:
    parent = os.environ.get("ACCELPROF_PARENT")
    if not parent:
        return
    try:
        with open(json.loads(parent)["modules"], encoding="utf-8") as file:
            modules = json.load(file)
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"accelprof: process {os.getpid()} is not instrumented: {error}\n")
        return
    sys.meta_path.insert(0, _Watch(modules))


def _next_one() -> None:
    """The module of this name that would have been imported without us."""
    here = os.path.dirname(os.path.abspath(__file__))
    kept = list(sys.path)
    sys.path[:] = [path for path in kept if os.path.abspath(path or ".") != here]
    mine = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if mine is not None:
            sys.modules["sitecustomize"] = mine
        if error.name != "sitecustomize":
            raise
    finally:
        sys.path[:] = [path for path in kept if os.path.abspath(path or ".") != here]


_frameworks()
_instruments()
_next_one()
