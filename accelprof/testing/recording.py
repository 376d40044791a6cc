"""A backend and a tool that only write down what they are asked, with the thread; both can be told to fail."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from accelprof.contracts.backend import Backend, BoundRange, Probe, RangeSpec
from accelprof.contracts.targets import ArtifactFile, WindowInfo
from accelprof.contracts.tool import Tool


class Call(NamedTuple):
    """One call: its name, the label or step it was about, the thread, and the handle of start/end."""

    name: str
    what: Any = None
    thread: int = 0
    handle: Any = None


class RecordingBackend(Backend):
    """Writes every call into ``calls``.

    Set ``failing`` to names of methods that raise, ``push_returns`` to what ``push`` answers.
    """

    name: ClassVar[str] = "recording"
    aliases: ClassVar[tuple[str, ...]] = ("recorder",)

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self.failing: set[str] = set()
        self.push_returns: object = 0
        self.priority: int | None = -1
        self.device_list: Sequence[Mapping[str, object]] = ()
        self._handles = itertools.count(1)

    @property
    def calls(self) -> list[Call]:
        """Everything that was called so far, in order."""
        return [Call(*row) for row in self._rows]

    def clear(self) -> None:
        """Forget the calls so far."""
        self._rows.clear()

    def _note(self, name: str, what: object = None, handle: object = None) -> None:
        self._rows.append((name, what, threading.get_ident(), handle))
        self._fail(name)

    def _fail(self, name: str) -> None:
        if name in self.failing:
            raise RuntimeError(f"{name} was told to fail")

    def probe(self) -> Probe:
        return Probe(self.priority, "records calls; for tests")

    def push(self, spec: RangeSpec) -> object:
        self._note("push", spec.label)
        return self.push_returns

    def pop(self, spec: RangeSpec) -> Any:
        self._note("pop", spec.label)
        return self.push_returns

    def start(self, spec: RangeSpec) -> int:
        handle = next(self._handles)
        self._note("start", spec.label, handle)
        return handle

    def end(self, spec: RangeSpec, handle: object) -> None:
        self._note("end", spec.label, handle)

    def bind(self, spec: RangeSpec) -> BoundRange:
        if type(self).push is not RecordingBackend.push or type(self).pop is not RecordingBackend.pop:
            return super().bind(spec)  # a subclass changed what they do
        append, failing, label, ident = self._rows.append, self.failing, spec.label, threading.get_ident

        def push() -> object:
            append(("push", label, ident()))
            if failing:
                self._fail("push")
            return self.push_returns

        def pop() -> Any:
            append(("pop", label, ident()))
            if failing:
                self._fail("pop")
            return self.push_returns

        return BoundRange(push, pop, lambda: self.start(spec), lambda handle: self.end(spec, handle))

    def mark(self, spec: RangeSpec) -> None:
        self._note("mark", spec.label)

    def capture_start(self) -> None:
        self._note("capture_start")

    def capture_stop(self) -> None:
        self._note("capture_stop")

    def step_begin(self, step: int) -> None:
        self._note("step_begin", step)

    def step_end(self, step: int) -> None:
        self._note("step_end", step)

    def synchronize(self) -> None:
        self._note("synchronize")

    def devices(self) -> list[Mapping[str, Any]]:
        return list(self.device_list)

    def names(self, *only: str) -> list[str]:
        """Names of the calls so far, in order; of these methods only when some are given."""
        return [call.name for call in self.calls if not only or call.name in only]

    def count(self, name: str) -> int:
        """How often a method was called."""
        return sum(call.name == name for call in self.calls)

    def labels(self) -> list[str]:
        """Labels of the ranges that began, in order."""
        return [call.what for call in self.calls if call.name in ("push", "start")]

    def balanced(self) -> bool:
        """Pushes and pops match like brackets per thread, and every start has exactly its own end."""
        stacks: dict[int, list[str]] = {}
        open_handles: dict[object, str] = {}
        for call in self.calls:
            if call.name == "push":
                stacks.setdefault(call.thread, []).append(call.what)
            elif call.name == "pop":
                stack = stacks.get(call.thread, [])
                if not stack or stack.pop() != call.what:
                    return False
            elif call.name == "start":
                open_handles[call.handle] = call.what
            elif call.name == "end" and open_handles.pop(call.handle, None) != call.what:
                return False
        return not any(stacks.values()) and not open_handles


class RecordingTool(Tool):
    """A tool whose trigger call is the backend's, that writes its own calls down too; one small file per window."""

    name: ClassVar[str] = "recording"
    #: set by tests: methods that raise
    failing: ClassVar[set[str]] = set()

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.calls: list[Call] = []

    def _note(self, name: str, what: object = None) -> None:
        self.calls.append(Call(name, what, threading.get_ident()))
        if name in self.failing:
            raise RuntimeError(f"{name} was told to fail")

    def open(self, window: WindowInfo) -> None:
        self._note("open", window.sequence)
        super().open(window)

    def close(self, window: WindowInfo) -> list[ArtifactFile]:
        self._note("close", window.sequence)
        super().close(window)
        path = window.stem + ".recording.txt"
        with open(path, "w", encoding="utf-8") as file:
            size = file.write(f"window {window.sequence}\n")
        return [ArtifactFile(path, self.name, (window.id,), size)]

    def step(self, step: int) -> None:
        self._note("step", step)

    def finalise(self, reason: str) -> list[ArtifactFile]:
        self._note("finalise", reason)
        return []
