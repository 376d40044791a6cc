"""Documented modules that have moved: the old path warns once and is the new module. Goes with the next release."""

from __future__ import annotations

import importlib
import sys
import warnings


def moved(old: str, new: str) -> None:
    """Put the module ``new`` in the place of ``old``, which is being imported."""
    warnings.warn(f"{old} is {new} now; the old path goes with the next release", DeprecationWarning, stacklevel=3)
    sys.modules[old] = importlib.import_module(new)
