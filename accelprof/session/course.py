"""Which step runs in a process, its timings, and everybody who hears of its beginning and end, in one order."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from accelprof.contracts import reasons
from accelprof.errors import failures
from accelprof.session.memory import MemoryOfSteps
from accelprof.session.steptimes import StepTimes
from accelprof.threads import on_main
from accelprof.timing import metrics

if TYPE_CHECKING:
    from accelprof.session.captures import Captures
    from accelprof.session.ownrun import OwnRun, StepsOfLaunched
    from accelprof.session.recorder import Recorder
    from accelprof.session.triggers import Trigger


class Course:
    """At most one step runs. Everything here happens under the session's lock.

    Attributes:
        running: the step that runs, or ``None``; ``broken``: it will not come to its end, because its body raised or the process
            was told to end.
        outside: the step that another process (a controller) announced last, which counts on from there.
        triggers: who hears of steps.
        times: the steps so far, and the timings of the latest.
        writer: where the timings of each step are written down, if anywhere; ``recorder``: the flight recorder, if there is one.
    """

    def __init__(self, captures: Captures) -> None:
        self._captures, self._backend = captures, captures.backend
        self.triggers: Sequence[Trigger] = ()
        self._memory = MemoryOfSteps(captures.process.key, captures.journal)
        self._announced: int | None = None
        self.running: int | None = None
        self.outside: int | None = None
        self.broken = False
        self.times = StepTimes()
        self.writer: OwnRun | StepsOfLaunched | None = None
        self.recorder: Recorder | None = None

    def start(self) -> None:
        """The session is taken into use."""
        for trigger in self.triggers:
            self._captures.voice.guarded(f"starting {type(trigger).__name__}", trigger.starts, not on_main())

    def begin(self, number: int, outside: bool) -> None:
        """``number`` begins; one that runs still has ended. ``outside``: announced by another process."""
        away = outside and not on_main()
        if outside:
            self.outside = number
        if self.running not in (None, number):
            self.finish()
        if self._announced != number:
            self._over(self._announced, number)
        self.running = self._announced = number
        at = self.times.begins(number)
        captures, voice = self._captures, self._captures.voice
        if captures.first_step is None:
            captures.first_step = number
        if not captures.work_is_plain and captures.bound:
            captures.work_is_plain = any(state.plain_calls for state in metrics.all_states())
        voice.guarded("beginning a step", self._backend.step_begin, number)
        if captures.window is not None and not captures.window.overdue:
            captures.step(number)
        # tried here, not guarded by the voice: every step would pay for the words, 1.5 µs in all
        for trigger in self.triggers:
            try:
                trigger.step_begins(number, away)
            except failures() as error:  # said once; the others hear of the step all the same
                voice.trouble(f"beginning a step for {type(trigger).__name__}", error)
        if self.recorder is not None:
            self.recorder.step_begins(number, at)

    def end(self, number: int) -> bool:
        """``number`` ended; ``False``: it does not run."""
        if number != self.running:
            return False
        self.finish()
        self._over(number, None)
        self.running = None
        return True

    def void(self, number: int) -> None:
        """``number``, which runs, never came: nothing is written down of it."""
        guarded = self._captures.voice.guarded
        self.times.forget(number)
        if not self.times.seen:
            self._captures.first_step = None
        self._captures.void(number)
        if self.recorder is not None:
            self.recorder.step_void()
        guarded("ending a step", self._backend.step_end, number)
        for trigger in self.triggers:
            guarded("taking back a step", trigger.step_void, number)
        self._over(number, None)
        self.running = self._announced = None
        self.broken = False

    def close(self, reason: str) -> None:
        """The session closes: first the recorder of a process that is told to end writes, then all hear that no step follows."""
        guarded = self._captures.voice.guarded
        self.broken = self.broken or reasons.among(reason, *reasons.BROKEN)
        if self.recorder is not None and reasons.among(reason, *reasons.TOLD_TO_END):
            guarded("writing out the recorder", self.recorder.now, "sigterm", "the process was told to end")
        elif self.recorder is not None and reasons.among(reason, reasons.PROCESS_FAILED):
            guarded("writing out the recorder", self.recorder.uncaught, getattr(sys, "last_value", None))
        self.finish()
        if self.writer is not None:
            guarded("writing down steps", self.writer.flush)
        for trigger in self.triggers:
            guarded(f"ending {type(trigger).__name__}", trigger.finish)

    def finish(self) -> None:
        """What is measured of the running step, if one runs, is written down."""
        number = self.running
        if number is None:
            return
        times, guarded = self.times, self._captures.voice.guarded
        broken, self.broken = self.broken, False
        at = times.ends(number)
        if self.recorder is not None:
            try:
                self.recorder.step_ends(number, at)
            except failures() as error:  # said once
                self._captures.voice.trouble("recording a step", error)
        began, wall = times.last()
        if self.writer is not None:
            guarded(
                "writing down a step", self.writer.step_ended, number, times.of(number), began, None if broken else wall
            )
        guarded("ending a step", self._backend.step_end, number)
        guarded("reading the memory of a step", self._memory.step_ends, self._backend, number)

    def _over(self, number: int | None, following: int | None) -> None:
        if number is None:
            return
        for trigger in self.triggers:
            try:
                trigger.step_ends(number, following)
            except failures() as error:  # said once; the others hear of it all the same
                self._captures.voice.trouble(f"ending a step for {type(trigger).__name__}", error)
