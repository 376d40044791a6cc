"""The example tool: writes what the driver recorded in a window as one JSON file, and reads it back into spans."""

from __future__ import annotations

import json
import os
from typing import Any, ClassVar

from pydantic import Field

from accelprof.contracts.spans import Clock, Kind, Mark, Span, Trace
from accelprof.contracts.targets import ArtifactFile, Target, WindowInfo
from accelprof.contracts.tool import Tool, ToolOptions
from accelprof.errors import ReadError
from accelprof_example.backend import DRIVER

SUFFIX = ".example.json"


class ExampleOptions(ToolOptions):
    """``indent``: spaces per level in the file."""

    indent: int = Field(0, ge=0, le=8)


class ExampleLogTool(Tool):
    """Gated in the process; a file per window, complete when the window closes."""

    name: ClassVar[str] = "example_log"
    Options: ClassVar[type[ToolOptions]] = ExampleOptions
    accelerators: ClassVar[frozenset[str]] = frozenset({"example"})
    exclusive: ClassVar[frozenset[str]] = frozenset({"example_driver"})

    def trigger(self, target: Target) -> str:
        return "in_process"

    def open(self, window: WindowInfo) -> None:
        DRIVER.events.clear()
        DRIVER.recording = True

    def close(self, window: WindowInfo) -> list[ArtifactFile]:
        DRIVER.recording = False
        path = window.stem + SUFFIX
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"events": DRIVER.events}, file, indent=self.options.indent or None)
        return [ArtifactFile(path, self.name, (window.id,), os.path.getsize(path))]

    @classmethod
    def can_read(cls, path: str) -> bool:
        return path.endswith(SUFFIX)

    def read(self, path: str) -> Trace:
        try:
            with open(path, encoding="utf-8") as file:
                events = json.load(file)["events"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ReadError(path, f"not a file of {self.name}: {error}") from None
        trace = Trace(path, self.name, Clock.EPOCH)
        open_ranges: dict[tuple[Any, ...], list[int]] = {}
        for what, label, at, thread in events:
            if what == "mark":
                trace.marks.append(Mark(label, at, tid=thread))
            elif what in ("push", "start"):
                open_ranges.setdefault((what == "push", label, thread if what == "push" else 0), []).append(at)
            else:
                begun = open_ranges.get((what == "pop", label, thread if what == "pop" else 0))
                if not begun:
                    trace.problems.append(f"{what} of {label!r} without a beginning")
                    continue
                trace.spans.append(Span(label, Kind.RANGE, begun.pop(), at, tid=thread))
        trace.problems.extend(f"range {key[1]!r} never ended" for key, begun in open_ranges.items() if begun)
        return trace
