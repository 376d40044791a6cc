"""The example tool: writes what the driver recorded in a window as one JSON file."""

from __future__ import annotations

import json
import os
from typing import ClassVar

from pydantic import Field

from accelprof.contracts.spans import Trace
from accelprof.contracts.targets import ArtifactFile, Target, WindowInfo
from accelprof.contracts.tool import Tool, ToolOptions
from accelprof.contracts.words import TriggerCall
from accelprof_example.backend import DRIVER
from accelprof_example.reader import SUFFIX, read


class ExampleOptions(ToolOptions):
    """``indent``: spaces per level in the file."""

    indent: int = Field(0, ge=0, le=8)


class ExampleLogTool(Tool):
    """Gated in the process; a file per window, complete when the window closes."""

    name: ClassVar[str] = "example_log"
    Options: ClassVar[type[ToolOptions]] = ExampleOptions
    accelerators: ClassVar[frozenset[str]] = frozenset({"example"})
    exclusive: ClassVar[frozenset[str]] = frozenset({"example_driver"})

    def trigger(self, target: Target) -> TriggerCall:
        return "in_process"

    def open(self, window: WindowInfo) -> None:
        DRIVER.start()

    def close(self, window: WindowInfo) -> list[ArtifactFile]:
        DRIVER.stop()
        path = window.stem + SUFFIX
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"events": DRIVER.events, "work": DRIVER.work}, file, indent=self.options.indent or None)
        return [ArtifactFile(path, self.name, (window.id,), os.path.getsize(path))]

    @classmethod
    def can_read(cls, path: str) -> bool:
        return path.endswith(SUFFIX)

    def read(self, path: str) -> Trace:
        return read(path, self.name)
