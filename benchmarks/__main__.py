"""``python -m benchmarks [NAME ...] [--json FILE]``: run all, or those named; status 1 when a limit is missed."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import sys
from pathlib import Path

from benchmarks.harness import machine, show

NAMES = {
    "timers": "benchmarks.runtime.timers",
    "steps": "benchmarks.runtime.steps",
    "broadcast": "benchmarks.cluster.broadcast",
    "readers": "benchmarks.analysis.readers",
    "injected": "benchmarks.analysis.injected",
    "timelines": "benchmarks.analysis.timelines",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", help=f"of: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(NAMES)}")
    tables = [item for name in arguments.names or NAMES for item in importlib.import_module(NAMES[name]).run()]
    reached = show(tables)
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"machine": machine(), "tables": [dataclasses.asdict(item) for item in tables]}, indent=1)
        )
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
