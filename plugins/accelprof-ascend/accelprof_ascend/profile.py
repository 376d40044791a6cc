"""One ``torch_npu.profiler.profile`` from start to stop, with the traps of that class closed.

It never raises and hardly complains: failures are lines on stdout (``[ERROR] … Call start failed``) or nothing at all, so
lines are caught here and what counts is what lies on disk (:mod:`accelprof_ascend.directory`). A profile dropped while its
schedule says warm-up deletes the directory of the last profile of the process; so an object is started at once, or
marked as stopped.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from accelprof.errors import CaptureError
from accelprof_ascend import vendor
from accelprof_ascend.options import NpuOptions, experimental_arguments, profile_arguments

#: ``[2026-01-31 12:00:00] [ERROR] [4711] profiler.py: Call start failed. Exception: …``
_SAID = re.compile(r"^\[[\d: -]+\] \[(ERROR|WARNING)\] \[\d+\] (?:[\w.]+: )?(.*)$")
#: the second line of its messages: the code of the error, and nothing more
_CODE = re.compile(r"^\[ERROR\] [\d:-]+ \(PID:\d+")


class Listener:
    """Stands in for ``sys.stdout`` during one call: keeps back what this thread writes, passes the rest on."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._thread, self.text = stream, threading.get_ident(), ""

    def write(self, text: str) -> int:
        if threading.get_ident() != self._thread:
            return int(self._stream.write(text))
        self.text += text
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@contextlib.contextmanager
def listening(said: list[str]) -> Iterator[None]:
    """torch_npu's ``[ERROR]`` and ``[WARNING]`` lines of this thread go to ``said``; everything else is printed after all."""
    before = sys.stdout
    listener = Listener(before)
    sys.stdout = listener
    try:
        yield
    finally:
        if sys.stdout is listener:
            sys.stdout = before
        rest = []
        for line in listener.text.splitlines(keepends=True):
            found = _SAID.match(line.strip())
            if found is None:
                if not _CODE.match(line):
                    rest.append(line)
            else:
                said.append(f"{found.group(1)}: {found.group(2)}" if found.group(1) == "WARNING" else found.group(2))
        if rest:
            before.write("".join(rest))


class Profile:
    """One window's profile. ``start``, then ``step`` and ``record`` as often as wanted, then ``stop``; all on one thread.

    Attributes:
        directory: what torch_npu writes into (``…_ascend_pt``); empty before :meth:`start`.
        errors: torch_npu's ``[ERROR]`` lines so far.
        disturbed: set by :meth:`stop`: another profile of the process was started since :meth:`start`, and which.
    """

    def __init__(self, options: NpuOptions, parent: str, worker: str) -> None:
        self.options, self.parent, self.worker = options, parent, worker
        self.directory = ""
        self.disturbed = ""
        self._said: list[str] = []
        self._profile: Any = None
        self._action: Any = None
        self._thread = 0

    @property
    def errors(self) -> list[str]:
        return [line for line in self._said if not line.startswith("WARNING: ")]

    def start(self, step: int, warmup: bool = False) -> None:
        """Record from now on, or with ``warmup`` only make ready; ``step`` numbers the first ``ProfilerStep``.

        Raises:
            CaptureError: something else profiles here, or torch_npu did not start; nothing of this object stays behind.
        """
        torch_npu = vendor.load()
        refuse_when_busy(torch_npu)
        profiler = torch_npu.profiler
        actions = _actions(profiler)
        self._action = actions.WARMUP if warmup else actions.RECORD
        try:
            with listening(self._said):
                self._profile = self._make(profiler)
                self._profile.step_num = step
                if not self.errors:  # a handler that could not be made would have it write into the working directory
                    self._profile.start()
        except Exception as error:
            self._drop()
            raise CaptureError(f"torch_npu.profiler.profile cannot be made: {_one_line(error)}") from error
        path = getattr(self._profile.prof_if, "prof_path", "")
        if self.errors or not path:
            self.cancel()
            raise CaptureError(
                "torch_npu did not start recording: " + ("; ".join(self.errors) or "it names no directory")
            )
        self.directory = str(path)
        self._thread = threading.get_ident()

    def _make(self, profiler: Any) -> Any:
        parameters = vendor.config_parameters() or frozenset()
        handler: Callable[..., object] = profiler.tensorboard_trace_handler
        # the handler takes effect where it is made: the last one of the process says where all profiles write
        return profiler.profile(
            **profile_arguments(self.options, profiler),
            experimental_config=profiler._ExperimentalConfig(
                **experimental_arguments(self.options, profiler, parameters)
            ),
            on_trace_ready=handler(self.parent, worker_name=self.worker, analyse_flag=False),
            schedule=lambda step: self._action,
        )

    def record(self, number: int) -> None:
        """Out of the warm-up: the next call is recorded, as ``ProfilerStep#number``."""
        if self._profile is not None:
            self._profile.step_num = number - 1
        self._advance(_actions(vendor.load().profiler).RECORD)

    def step(self, number: int | None = None) -> None:
        """Another step begins; ``number`` is the training's, else one more than the last."""
        if self._profile is not None and number is not None:
            self._profile.step_num = number - 1
        self._advance(self._action)

    def _advance(self, action: Any) -> None:
        if self._profile is None:
            return
        self._action = action
        with listening(self._said):
            self._profile.step()

    def stop(self) -> None:
        """End the recording and have everything written. What was said is in ``errors``; look at the disk afterwards.

        Raises:
            CaptureError: on another thread than :meth:`start` torch_npu would skip stopping the device and look complete.
        """
        profile, self._profile = self._profile, None
        if profile is None:
            return
        if threading.get_ident() != self._thread:
            profile.stopped = True
            raise CaptureError(
                "the window was opened on another thread; torch_npu can only stop where it started, so its data is lost"
            )
        actions = _actions(vendor.load().profiler)
        self.disturbed = self._disturbance()
        with listening(self._said):
            # stop() complains in every state it can be called in; a step out of RECORD_AND_SAVE does the same in silence
            profile.current_action, self._action = actions.RECORD_AND_SAVE, actions.NONE
            profile.step()
            profile.stop()
        profile.stopped = True

    def _disturbance(self) -> str:
        """torch_npu keeps one path for the process: a profile started after ours has put its own there, and recorded in ours."""
        creator = _path_creator(vendor.load())
        path = str(getattr(creator, "get_prof_dir", lambda: self.directory)() or "")
        if path == self.directory:
            return ""
        return (
            f"another torch_npu profile was started inside the window (its directory is {path}); torch_npu takes one at a time, "
            "so neither is whole: end it before the window, or leave its step out of steps"
        )

    def cancel(self) -> None:
        """Stop, and leave no file."""
        if self._profile is not None:
            actions = _actions(vendor.load().profiler)
            path, warming = getattr(self._profile.prof_if, "prof_path", ""), self._action == actions.WARMUP
            with listening([]):
                if path:
                    # stopping a warm-up removes the directory, but a recording has to be ended first
                    self._profile.current_action = actions.WARMUP if warming else actions.RECORD_AND_SAVE
                    self._profile.stop()
            if path and not warming:
                shutil.rmtree(path, ignore_errors=True)
        self._drop()

    def _drop(self) -> None:
        if self._profile is not None:
            self._profile.stopped = True
        self._profile = None


def refuse_when_busy(torch_npu: object) -> None:
    """torch_npu takes a second profile without complaint and spoils both.

    Raises:
        CaptureError: something records on this thread, or a torch_npu profile runs in this process.
    """
    import torch

    if torch.autograd._profiler_enabled():
        raise CaptureError(
            "torch.profiler (or another torch_npu profile) records on this thread; inside it a torch_npu profile would stay empty and empty the outer one too"
        )
    creator = _path_creator(torch_npu)
    if creator is not None and getattr(creator, "is_prof_inited", False):
        raise CaptureError(
            "another torch_npu profile runs in this process, which takes one at a time; end it before the window"
        )


def _path_creator(torch_npu: Any) -> object:
    module = sys.modules.get(torch_npu.__name__ + ".profiler._profiler_path_creator")
    creator = getattr(module, "ProfPathCreator", None)
    return creator() if creator is not None else None


def _actions(profiler: Any) -> Any:
    action = getattr(profiler, "ProfilerAction", None)
    return action if action is not None else sys.modules[profiler.__name__ + ".scheduler"].ProfilerAction


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:400] or type(error).__name__
