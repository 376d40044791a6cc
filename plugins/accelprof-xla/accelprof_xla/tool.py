"""Tool ``jax``: ``jax.profiler`` in the process; a window is ``start_trace`` … ``stop_trace`` into a directory of its own."""

from __future__ import annotations

import glob
import os
from typing import Any, ClassVar, Literal

from pydantic import Field

from accelprof.contracts.backend import Probe
from accelprof.contracts.sizes import size_of
from accelprof.contracts.spans import Trace
from accelprof.contracts.targets import ArtifactFile, Target, WindowInfo
from accelprof.contracts.tool import Tool, ToolContext, ToolOptions
from accelprof.contracts.words import Thread, TriggerCall
from accelprof.errors import CaptureError
from accelprof.reading import sqlite
from accelprof.reading.gzipped import is_json
from accelprof_xla.backend import XlaBackend, installed, loaded

SUFFIX = ".jax"
XPLANE = ".xplane.pb"
#: what ``jax.profiler`` makes below the directory it is given; TensorBoard's profile plug-in looks for it there
BELOW = os.path.join("plugins", "profile", "*", f"*{XPLANE}")
STEP = "train"


class JaxOptions(ToolOptions):
    """``host``: how much of the host is recorded (1 = our ranges and JAX's own, 2 and 3 = more of the runtime). ``python``:
    every Python call too, which makes files large. ``device``: whether device work is recorded."""

    host: Literal[1, 2, 3] = 2
    python: bool = False
    device: bool = Field(True)


class JaxTool(Tool):
    """See the module. Steps are JAX's own step annotations, so that TensorBoard and XProf show them as steps."""

    name: ClassVar[str] = "jax"
    aliases: ClassVar[tuple[str, ...]] = ("jax_profiler", "xprof")
    Options: ClassVar[type[ToolOptions]] = JaxOptions
    thread: Thread = "starter"  # a step's annotation ends on the thread that it began on
    exclusive: ClassVar[frozenset[str]] = frozenset({"jax_profiler"})

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._step: Any = None

    def probe(self) -> Probe:
        release = installed()
        return Probe(0, f"jax {release} is installed") if release else Probe(None, "jax is not installed")

    def claims(self, target: Target) -> frozenset[str]:
        """On NVIDIA's GPUs JAX records through CUPTI, which one tool may own."""
        return self.exclusive | {"cupti"} if target.accelerator == "cuda" else self.exclusive

    def trigger(self, target: Target) -> TriggerCall:
        return "in_process"

    # --- in the worker ----------------------------------------------------------------------------------------------

    def attach(self, context: ToolContext) -> None:
        super().attach(context)
        if not installed() and loaded() is None:
            raise CaptureError("jax is not installed here")
        self._emitter = context.backend if isinstance(context.backend, XlaBackend) else XlaBackend()

    def open(self, window: WindowInfo) -> None:
        import jax

        options = jax.profiler.ProfileOptions()
        options.host_tracer_level, options.python_tracer_level = self.options.host, int(self.options.python)
        options.device_tracer_level = int(self.options.device)
        try:
            jax.profiler.start_trace(window.stem + SUFFIX, profiler_options=options)
        except RuntimeError as error:
            raise CaptureError(
                f"jax.profiler did not start: {error}; one trace at a time is taken in a process"
            ) from error
        if window.steps:
            self.step(window.steps[0])

    def step(self, step: int) -> None:
        import jax

        self._end_step()
        self._step = jax.profiler.StepTraceAnnotation(STEP, step_num=step)
        self._step.__enter__()

    def _end_step(self) -> None:
        annotation, self._step = self._step, None
        if annotation is not None:
            annotation.__exit__(None, None, None)

    def close(self, window: WindowInfo) -> list[ArtifactFile]:
        import jax

        self._end_step()
        stop: Any = jax.profiler.stop_trace
        stop()
        path = window.stem + SUFFIX
        if not files_below(path):
            raise CaptureError(f"jax.profiler left no {XPLANE} below {path}")
        return [ArtifactFile(path, self.name, (window.id,), size_of(path))]

    # --- afterwards -------------------------------------------------------------------------------------------------

    @classmethod
    def can_read(cls, path: str) -> bool:
        if path.endswith(XPLANE) and os.path.isfile(path):
            return not (is_json(path) or sqlite.is_one(path))
        return path.endswith(XPLANE) or (os.path.isdir(path) and bool(files_below(path)))

    def read(self, path: str) -> Trace:
        from accelprof_xla.reader import read_xplane

        return read_xplane(path, files_below(path) if os.path.isdir(path) else [path], self.name)


def files_below(path: str) -> list[str]:
    """The xplane files of a directory that ``jax.profiler`` wrote, one a host."""
    return sorted(glob.glob(os.path.join(glob.escape(path), BELOW)))
