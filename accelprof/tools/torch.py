"""Tool ``torch``: ``torch.profiler`` in the process; one fresh profiler object and one trace file per window.

A stopped or exhausted profiler object records nothing more and says nothing, so none is ever used twice.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from accelprof import atomic, texts
from accelprof.contracts.backend import BoundRange, Emitter, Probe, RangeSpec
from accelprof.contracts.options import unique
from accelprof.contracts.spans import HostCalls, Trace
from accelprof.contracts.targets import ArtifactFile, Target, WindowInfo
from accelprof.contracts.tool import Tool, ToolContext, ToolOptions
from accelprof.contracts.words import Counting, Thread, TriggerCall
from accelprof.errors import CaptureError

SUFFIX = ".pt.trace.json.gz"
#: what torch's writer of traces cuts, changes or leaves out in names
SPOILT = re.compile(r'[^\x20-\x7e]|["\\]')
TAKEN = "another torch profiler was started inside the window and took this one's place"
#: what torch's traces call the calls of every vendor's runtime and driver
TRACED_CALLS = HostCalls(
    launches=r"(?i:Launch(?:Cooperative|Multi(?:ple)?)?Kernel|(?:Graph|(?<!Append)Kernel)Launch|^hipLaunchByPtr"
    r"|^cu(?:da)?Launch(?:Grid(?:Async)?)?(?:_v\d+)?$|EnqueueCommandBuffer|CommandBufferEnqueue)",
    capture_begins=r"BeginCapture|CaptureBegin",
    capture_ends=r"EndCapture|CaptureEnd",
    waits=r"Synchronize|^ur(?:EventWait|QueueFinish)",
)
Content = Literal["cpu", "cuda", "memory", "shapes", "stack", "flops", "modules"]


class TorchOptions(ToolOptions):
    """``contents``: what is recorded; absent or empty = host and device activity, and nothing that makes files large.

    ``cpu`` and ``cuda`` (the device of this torch build) choose activities; ``memory``, ``shapes``, ``stack``, ``flops``
    and ``modules`` add to them.
    """

    contents: Annotated[tuple[Content, ...], BeforeValidator(unique)] = Field(())
    all_threads: bool = True


class TorchTool(Tool):
    """See the module."""

    name: ClassVar[str] = "torch"
    aliases: ClassVar[tuple[str, ...]] = ("torch_profiler", "kineto")
    Options: ClassVar[type[ToolOptions]] = TorchOptions
    writes_chrome_trace: ClassVar[bool] = True
    host_calls: ClassVar[HostCalls] = TRACED_CALLS
    thread: Thread = "any"  # with profile_all_threads; "starter" where this torch lacks it (set in attach)
    exclusive: ClassVar[frozenset[str]] = frozenset({"torch_profiler"})
    schedule: ClassVar[Counting] = "native"

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._profiler: Any = None
        self._recording = False
        self._all_threads = False
        self._on_device = False

    def meaning(self) -> Mapping[str, Any]:
        """``contents`` that name no activity have both."""
        contents, both = set(self.options.contents), {"cpu", "cuda"}
        return {**super().meaning(), "contents": tuple(sorted(contents if contents & both else contents | both))}

    def probe(self) -> Probe:
        from importlib.util import find_spec

        if find_spec("torch") is None:
            return Probe(None, "torch is not installed")
        return Probe(0, "torch is installed")

    def claims(self, target: Target) -> frozenset[str]:
        contents = self.options.contents
        host_only = bool(contents) and "cuda" not in contents and "cpu" in contents
        return self.exclusive if host_only or target.has_devices is False else self.exclusive | {"cupti"}

    def trigger(self, target: Target) -> TriggerCall:
        return "in_process"

    def attach(self, context: ToolContext) -> None:
        super().attach(context)
        import torch

        self._all_threads = self.options.all_threads and self._experimental() is not None
        if not self._all_threads:
            self.thread = "starter"
        asked = set(self.options.contents)
        if "cuda" in asked and not (torch.cuda.is_available() or self._device_activities()):
            context.say(
                "tool torch: contents has cuda, but this process has no device that torch can profile; host activity only"
            )
        self._emitter = RecordFunctionEmitter()
        self._warm_up()

    def warm_up(self, window: WindowInfo) -> None:
        self._recording = False
        self._profiler = self._start(window)

    def open(self, window: WindowInfo) -> None:
        self._recording = True
        if self._profiler is None:
            self._profiler = self._start(window)
        else:
            try:
                self._profiler.step_num = window.first - 1
                self._profiler.step()  # out of the warm-up
            except Exception:
                self._profiler = None  # nothing of it may reach the next window
                raise

    def tick(self) -> None:
        if self._profiler is not None:
            self._profiler.step()

    def abandon(self, window: WindowInfo) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            with contextlib.suppress(CaptureError):  # another one has taken its place: nothing was to be kept anyway
                self._stop(profiler)

    def _stop(self, profiler: Any) -> None:
        """Stop a profiler that is still ours, and only that.

        torch has one profiler a process, and whoever starts another takes the first one's place without a word: stopped then,
        ours would end the other one's recording, and exporting what it gives ends the process.

        Raises:
            CaptureError: another profiler was started inside the window.
        """
        import torch

        if self._all_threads and torch.autograd._profiler_enabled():  # ours, for all threads, is not seen there
            raise CaptureError(f"{TAKEN}; it goes on recording, and this window has no trace")
        profiler.stop()
        results = getattr(profiler.profiler, "kineto_results", None)
        started = getattr(results, "trace_start_ns", None)
        if results is None or (started is not None and started() == 0):
            raise CaptureError(f"{TAKEN}; this window has no trace")
        if self._on_device and self.context is not None and torch.cuda.is_initialized() and not _on_a_device(results):
            self.context.say(
                "tool torch: a window has no device work although this process uses its device: nothing was launched in it, or "
                "another profiler (nsys, ncu, DCGM) holds CUPTI"
            )

    def _start(self, window: WindowInfo) -> Any:
        """A profiler of its own for ``window``; in a scheduled one each call is a ``ProfilerStep``."""
        import torch

        if torch.autograd._profiler_enabled():
            raise CaptureError(
                "another torch profiler is recording on this thread; end it before the window, or choose another tool"
            )
        contents = set(self.options.contents)
        activities = self._activities(contents)
        self._on_device = len(activities) > (torch.profiler.ProfilerActivity.CPU in activities)
        arguments: dict[str, Any] = {
            "activities": activities, "record_shapes": "shapes" in contents, "profile_memory": "memory" in contents,
            **{f"with_{what}": what in contents for what in ("stack", "flops", "modules")},
        }  # fmt: skip
        if self._all_threads:
            arguments["experimental_config"] = self._experimental()
        if window.active:
            actions = torch.profiler.ProfilerAction
            arguments["schedule"] = lambda step: actions.RECORD if self._recording else actions.WARMUP
        profiler = torch.profiler.profile(**arguments)
        if window.active:
            profiler.step_num = window.first - (0 if self._recording else window.warmup)  # ProfilerStep#N is call N
        if (place := self._distributed()) is not None:
            profiler.preset_metadata_json("distributedInfo", place)
        profiler.start()
        return profiler

    def _distributed(self) -> str | None:
        """Rank and number of ranks as torch writes them where its own distributed package runs, which stands; readers of several files
        (HolisticTraceAnalysis) take every other file for rank 0."""
        import torch

        target = None if self.context is None else self.context.target
        own = torch.distributed.is_available() and torch.distributed.is_initialized()
        if target is None or target.rank is None or own:
            return None
        facts = {"rank": target.rank, "world_size": target.world_size}
        return texts.dumps({name: value for name, value in facts.items() if value is not None})

    def stop(self, window: WindowInfo) -> Callable[[], list[ArtifactFile]] | None:
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return None
        self._stop(profiler)
        return functools.partial(self._write, profiler, window)

    def close(self, window: WindowInfo) -> list[ArtifactFile]:
        write = self.stop(window)
        return [] if write is None else write()

    def _write(self, profiler: Any, window: WindowInfo) -> list[ArtifactFile]:
        """Export and compress. torch holds the interpreter for the export itself; the compression, longer than it, lets others run."""
        path = window.stem + SUFFIX
        plain = atomic.half(path.removesuffix(".gz"))
        try:
            profiler.export_chrome_trace(plain)
            with atomic.whole(path) as packed, open(plain, "rb") as source, gzip.open(packed, "wb", 3) as target:
                shutil.copyfileobj(source, target, 1 << 20)
        finally:
            atomic.discard(plain)
        return [ArtifactFile(path, self.name, (window.id,), os.path.getsize(path))]

    @staticmethod
    def _warm_up() -> None:
        """The first profiler of a process loads some 800 modules (seconds); better now than inside the first window."""
        import torch

        if not torch.autograd._profiler_enabled():
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
                pass

    def _activities(self, contents: set[str]) -> list[object]:
        import torch

        wanted = contents & {"cpu", "cuda"} or {"cpu", "cuda"}
        activities = []
        if "cpu" in wanted:
            activities.append(torch.profiler.ProfilerActivity.CPU)
        if "cuda" in wanted:
            activities.extend(self._device_activities())
        return activities or [torch.profiler.ProfilerActivity.CPU]

    @staticmethod
    def _device_activities() -> list[object]:
        """Every device activity that this torch build supports and a device is there for."""
        import torch

        host = torch.profiler.ProfilerActivity.CPU
        accelerator = getattr(torch, "accelerator", None)
        present = torch.cuda.is_available() or (accelerator is not None and accelerator.is_available())
        return sorted((a for a in torch.profiler.supported_activities() if a != host), key=str) if present else []

    @staticmethod
    def _experimental() -> Any:
        """A config with ``profile_all_threads``, or ``None`` where this torch does not know it."""
        from torch._C._profiler import _ExperimentalConfig

        try:
            return _ExperimentalConfig(profile_all_threads=True)
        except TypeError:
            return None

    @classmethod
    def can_read(cls, path: str) -> bool:
        return path.endswith((SUFFIX, ".pt.trace.json"))

    def read(self, path: str) -> Trace:
        from accelprof.reading.chrome import read_chrome

        return read_chrome(path, self.name)


def _on_a_device(results: Any) -> bool:
    """Whether anything in a profiler's results ran on a device; looks no further than the first that did."""
    host = "CPU"
    return any(getattr(event.device_type(), "name", host) != host for event in results.events())


class RecordFunctionEmitter(Emitter):
    """Ranges as ``record_function``: user annotations in the trace, with the device work they launch below them."""

    overlapping_ranges: ClassVar[bool] = True

    def __init__(self) -> None:
        torch = sys.modules["torch"]
        self._enter = torch.ops.profiler._record_function_enter_new
        self._exit = torch.ops.profiler._record_function_exit._RecordFunction

    def bind(self, spec: RangeSpec) -> BoundRange:
        enter, leave, label = self._enter, self._exit, texts.quoted(spec.label, SPOILT)
        stack: dict[int, list[object]] = {}
        from threading import get_ident

        def push() -> None:
            stack.setdefault(get_ident(), []).append(enter(label, None))

        def pop() -> None:
            mine = stack.get(get_ident())
            if mine:
                leave(mine.pop())

        return BoundRange(push, pop, lambda: enter(label, None), leave)

    def mark(self, spec: RangeSpec) -> None:
        self._exit(self._enter(texts.quoted(spec.label, SPOILT), None))
