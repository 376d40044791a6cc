"""Values of the command line's options and arguments."""

from __future__ import annotations

import math
import os
from typing import Any

import click


class Number(click.FloatRange):
    """A number in a range, which ``nan`` is not: it passes every comparison with the bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is no number; it takes one of at least {self.min}", param, ctx)
        return found


class Source(click.Path):
    """A file or directory to read. A link that leads nowhere is one of the files too, which reading names beside the others."""

    def __init__(self) -> None:
        super().__init__(exists=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if os.path.islink(value) else super().convert(value, param, ctx)
