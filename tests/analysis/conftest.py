"""Makers of small traces and runs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

EPOCH_US = 1_795_852_566_000_000


def write_json(path: Path, text: str | bytes) -> str:
    """Write a file, gzip when its name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return str(path)


def complete(
    name: str, start_us: float, dur_us: float, cat: str = "phase", tid: int = 1, **args: Any
) -> dict[str, Any]:
    """One complete event, ``start_us`` after ``EPOCH_US``."""
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid,
        "ts": f"{EPOCH_US + Decimal(str(start_us))}", "dur": dur_us, "args": args,
    }  # fmt: skip


def timeline_file(
    path: Path, events: Sequence[Mapping[str, Any]], window: str, steps: Sequence[int], end_us: float, at_us: float = 0
) -> str:
    """A file as the timeline tool writes it: ``events`` inside one window of ``end_us``."""
    facts = {
        "format": 1,
        "group": "ActorGroup",
        "roles": ["actor"],
        "window": window,
        "steps": list(steps),
        "dropped": 0,
    }
    whole = [
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "ActorGroup/rank0"}},
        complete("window 1", at_us, end_us, "window", tid=99),
        *events,
    ]
    return write_json(path, json.dumps({"otherData": {"accelprof": facts}, "traceEvents": whole}))


class RunMaker:
    """A run directory in the making."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.manifest: dict[str, Any] = {
            "format": 1, "accelprof": "0.1.0", "run": "made", "created": "2026-11-28T07:56:32+00:00",
            "clock_offsets": {}, "targets": [], "windows": [], "artifacts": [], "problems": [],
        }  # fmt: skip

    def target(self, rank: int, group: str = "ActorGroup", **facts: Any) -> str:
        key = f"{group}-r{rank}-node{rank}-{100 + rank}"
        row = {"key": key, "group": group, "rank": rank, "host": f"node{rank}", "pid": 100 + rank, "armed": True}
        self.manifest["targets"].append({**row, "windows_opened": 1, "steps_seen": [2], **facts})
        return key

    def timeline(
        self,
        key: str,
        events: Sequence[Mapping[str, Any]],
        steps: Sequence[int] = (2,),
        end_us: float = 1000,
        at_us: float = 0,
    ) -> str:
        target = next(row for row in self.manifest["targets"] if row["key"] == key)
        sequence = 1 + sum(row["target"] == key for row in self.manifest["windows"])
        window = f"{key}-w{sequence:04d}"
        path = timeline_file(self.directory / f"{window}.trace.json.gz", events, window, steps, end_us, at_us)
        opened = {"epoch_ns": EPOCH_US * 1000}
        self.manifest["windows"].append({"id": window, "target": key, "steps": list(steps), "opened": opened})
        self.artifact(Path(path).name, "trace", target, [window])
        return window

    def artifact(
        self, path: str, tool: str, target: Mapping[str, Any], windows: Sequence[str] = (), **facts: Any
    ) -> None:
        owner = {name: target[name] for name in ("group", "rank", "host", "pid")}
        row = {"path": path, "tool": tool, **owner, "windows": list(windows), "bytes": 1, "state": "complete"}
        self.manifest["artifacts"].append({**row, **facts})

    def write(self) -> str:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "manifest.json").write_text(json.dumps(self.manifest))
        return str(self.directory)


@pytest.fixture
def run_maker(tmp_path: Path) -> RunMaker:
    """A run directory in the making."""
    return RunMaker(tmp_path / "run")


@pytest.fixture
def event() -> Callable[..., dict[str, Any]]:
    """``event(name, start_us, dur_us, cat=, tid=, **args)``: one complete event."""
    return complete


@pytest.fixture(scope="module", params=["at once", "in parts"])
def in_parts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways to go through a table: all of it at once, and a few rows at a time, as with millions."""
    from accelprof.analysis import attribution, holders, intervals, seconds

    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in parts":
            for module, name, few in (
                (attribution, "PART", 3), (holders, "PART", 3), (intervals, "PART", 3), (seconds, "ROWS", 2), (seconds, "TEXTS", 2),
            ):  # fmt: skip
                patch.setattr(module, name, few)
        yield
