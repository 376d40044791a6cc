"""Tool ``torch_memory``: snapshot of torch's caching allocator, its history on only inside the window.

A history that the program records itself is left as it is. Written with pickle protocol 4, so that the public viewer and older Pythons read it; left behind on an out-of-memory
error inside a window too.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from accelprof import atomic
from accelprof.contracts.backend import Probe
from accelprof.contracts.targets import ArtifactFile, Target, WindowInfo
from accelprof.contracts.tool import Tool, ToolContext, ToolOptions
from accelprof.contracts.words import TriggerCall
from accelprof.errors import UnavailableError, text_of

SUFFIX = ".memory.pickle"
PICKLE_PROTOCOL = 4


class TorchMemoryOptions(ToolOptions):
    """``max_entries``: allocator events kept (oldest are dropped). ``stacks``: which frames. ``context``: for which events."""

    max_entries: int = Field(100_000, ge=1)
    stacks: Literal["python", "all"] = "python"
    context: Literal["none", "state", "alloc", "all"] = "all"


class TorchMemoryTool(Tool):
    """See the module."""

    name: ClassVar[str] = "torch_memory"
    aliases: ClassVar[tuple[str, ...]] = ("memory",)
    Options: ClassVar[type[ToolOptions]] = TorchMemoryOptions
    exclusive: ClassVar[frozenset[str]] = frozenset({"torch_memory_history"})
    has_spans: ClassVar[bool] = False

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._memory: Any = None
        self._window: WindowInfo | None = None
        self._observed = False
        #: the user's own history was on when the window opened
        self._theirs = False
        self._oom_files: list[ArtifactFile] = []

    def probe(self) -> Probe:
        from importlib.util import find_spec

        there = find_spec("torch") is not None
        return Probe(0, "torch is installed") if there else Probe(None, "torch is not installed")

    def trigger(self, target: Target) -> TriggerCall:
        return "in_process"

    def attach(self, context: ToolContext) -> None:
        super().attach(context)
        self._memory = device_memory_module()

    def open(self, window: WindowInfo) -> None:
        self._window = window
        self._observe_out_of_memory()
        self._theirs = history_is_on()
        if self._theirs:
            if self.context is not None:
                self.context.say(
                    "tool torch_memory: the program records its allocator history itself; that one goes on as it is, and a window's "
                    "snapshot holds what it holds"
                )
            return
        context = None if self.options.context == "none" else self.options.context
        self._memory._record_memory_history(
            enabled="all", context=context, stacks=self.options.stacks, max_entries=self.options.max_entries
        )

    def close(self, window: WindowInfo) -> list[ArtifactFile]:
        self._window = None
        try:
            file = self._write(window.stem + SUFFIX, window)
        finally:
            if not self._theirs:
                self._memory._record_memory_history(enabled=None)
        return [*self._take_oom_files(), file]

    def finalise(self, reason: str) -> list[ArtifactFile]:
        return self._take_oom_files()

    def _take_oom_files(self) -> list[ArtifactFile]:
        """Snapshots not handed out yet: those of a window whose own snapshot failed come with the next, or at the end."""
        files, self._oom_files = self._oom_files, []
        return files

    def _write(self, path: str, window: WindowInfo) -> ArtifactFile:
        snapshot = self._memory._snapshot()
        with atomic.whole(path) as temporary, open(temporary, "wb") as file:
            pickle.dump(snapshot, file, protocol=PICKLE_PROTOCOL)
        events = sum(len(trace) for trace in snapshot.get("device_traces", ()))
        empty = not events and not snapshot.get("segments")
        if empty and self.context is not None:
            self.context.say(
                f"tool torch_memory: the snapshot of window {window.sequence} is empty; nothing was allocated on the device in it"
            )
        left = ArtifactFile(path, self.name, (window.id,), os.path.getsize(path))
        if empty:
            left.state, left.reason = "partial", "empty snapshot"
        return left

    def _observe_out_of_memory(self) -> None:
        """Once per process: an out-of-memory error inside a window leaves a snapshot of that moment."""
        if self._observed:
            return
        import torch

        attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
        if attach is None:
            return
        attach(self._out_of_memory)
        self._observed = True

    def _out_of_memory(self, device: int, allocated: int, total: int, free: int) -> None:
        window = self._window
        if window is None:
            return
        path = f"{window.stem}-oom{len(self._oom_files) + 1}{SUFFIX}"
        try:
            self._oom_files.append(self._write(path, window))
        except Exception as error:  # noqa: BLE001 - said; raised here it would take the place of torch's own error
            if self.context is not None:
                self.context.say(
                    f"tool torch_memory: the snapshot at the out-of-memory error cannot be written: {text_of(error)}"
                )

    @classmethod
    def can_read(cls, path: str) -> bool:
        return path.endswith(SUFFIX)

    def figures(self, path: str) -> tuple[Mapping[str, object], str]:
        """Sizes and counts of a snapshot, of which nothing is run."""
        from accelprof.reading.snapshot import read_snapshot  # readers are not loaded where training runs

        facts = read_snapshot(path)
        return dataclasses.asdict(facts), "" if facts.events or facts.segments else "the snapshot is empty"


def history_is_on() -> bool:
    """Whether this process records its allocator history at this moment; ``False`` where torch does not tell."""
    import torch

    for name in ("_cuda_isHistoryEnabled", "_xpu_isHistoryEnabled"):
        told = getattr(torch._C, name, None)
        if told is not None and told():
            return True
    return False


def device_memory_module() -> object:
    """``torch.<device>.memory`` of the accelerator that is there.

    Raises:
        UnavailableError: no accelerator, or its torch module keeps no allocator history.
    """
    import torch

    device = "cuda" if torch.cuda.is_available() else None
    accelerator = getattr(torch, "accelerator", None)
    if device is None and accelerator is not None and accelerator.is_available():
        device = accelerator.current_accelerator().type
    if device is None:
        raise UnavailableError("torch sees no accelerator in this process, and only device allocators keep a history")
    memory = getattr(getattr(torch, device), "memory", None)
    if memory is None or not hasattr(memory, "_record_memory_history"):
        raise UnavailableError(f"torch.{device} keeps no allocator history")
    return memory
