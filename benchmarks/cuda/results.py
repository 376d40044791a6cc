"""What the scenarios on a GPU find: checks that hold or not, and numbers."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Result:
    checks: dict[str, bool] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)

    def check(self, name: str, holds: bool, detail: Any = None) -> None:
        self.checks[name] = bool(holds)
        if not holds:
            self.troubles.append(f"{name}: {detail}")

    def told(self, output: str | None = None, **more: Any) -> int:
        """Print everything as one JSON object, write it to ``output`` too; the status to end with."""
        found = {**more, "checks": self.checks, "troubles": self.troubles, "numbers": self.numbers}
        text = json.dumps(found, indent=1, default=str)
        print(text)
        if output:
            Path(output).write_text(text)
        held = sum(self.checks.values())
        print(f"{held} of {len(self.checks)} checks hold", file=sys.stderr)
        return 0 if held == len(self.checks) else 1


def attempt(result: Result, name: str, scenario: Callable[[Path], None], place: Path) -> None:
    place.mkdir(parents=True)
    began = time.monotonic()
    try:
        scenario(place)
    except Exception:  # noqa: BLE001 - named in the result; the machine is lent, so the other scenarios go on
        result.check(f"{name}: ran to its end", False, traceback.format_exc())
    print(f"{name}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
