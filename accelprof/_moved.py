"""Documented modules that have moved: the old path warns once and is the new module. Goes with the next release."""

from __future__ import annotations

import sys
import warnings
from types import ModuleType


def moved(old: str, new: ModuleType) -> None:
    """Put the module ``new`` in the place of ``old``, which is being imported."""
    text = f"{old} is {new.__name__} now; the old path goes with the next release"
    warnings.warn(text, DeprecationWarning, stacklevel=3)
    sys.modules[old] = new
