"""Runs in every Python process of a job with ``ACCELPROF_INSTALL``; see accelprof.compat.startup. Then makes room for the next."""

from __future__ import annotations

import os
import sys


def _start() -> None:
    if not os.environ.get("ACCELPROF_INSTALL"):
        return
    try:
        import accelprof.compat.startup  # noqa: F401
    except ImportError as error:  # another environment than the job's
        sys.stderr.write(f"accelprof: nothing is installed in process {os.getpid()}: {error}\n")


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
        sys.path[:] = kept


_start()
_next_one()
