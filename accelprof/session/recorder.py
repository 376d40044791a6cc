"""The flight recorder: the last steps of all phases, in a file that outlives the process, written out when something is wrong.

While no window is open, plain calls leave four numbers in a list; when a step ends its rows go to
the ring (:mod:`accelprof.output.ring`). A thread looks about once a second: it writes down the running step, notices a hang, and
joins dumps that other processes of the run have begun. What a dump is stands in :mod:`accelprof.output.dumps`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from accelprof.contracts.spans import QUICK_ROW, Kind, TimelineRow
from accelprof.contracts.targets import WindowInfo
from accelprof.contracts.words import DumpReason
from accelprof.errors import failures, text_of
from accelprof.output import dumps
from accelprof.output.records import WindowRow
from accelprof.output.ring import RINGS, SUFFIX, Ring
from accelprof.session.window import Window
from accelprof.threads import Wake, started
from accelprof.timing.entry import PlainCalls
from accelprof.timing.gate import now_ns
from accelprof.timing.loops import greenlets
from accelprof.timing.phase import PhaseSpec
from accelprof.timing.running import running_phases
from accelprof.tools.trace import TraceOptions, TraceTool

if TYPE_CHECKING:
    from accelprof.config.model import Recorder as RecorderConfig
    from accelprof.session.captures import Captures

#: seconds between two looks of the thread
LOOK_S = 1.0
#: seconds to wait for the ring while another thread has it
PATIENCE_S = 1.0
#: rows of one step that are kept; more are counted
ROWS_AT_MOST = 50_000
#: steps that must have ended before one can be called slow
STEPS_TO_COMPARE = 5
#: where a row of four numbers, and one of all fields, has its end
QUICK_END, END = QUICK_ROW.index("end_ns"), TimelineRow._fields.index("end_ns")
#: what is written out: who interrupts a job that is slow or hangs asks why; who calls ``sys.exit`` does not
FAILURES = (Exception, KeyboardInterrupt)
NO_WINDOW = WindowInfo("recorder", 0, (), None, "recorder", "")


class Recorder:
    """One session's. The session tells of steps and of its end; everything else is done by the thread.

    Attributes:
        background: where rows go while no window is open; made like a window, without tools.
    """

    def __init__(self, captures: Captures, config: RecorderConfig) -> None:
        self._captures, self._voice, self._config = captures, captures.voice, config
        process = self._process = captures.process
        self._run_dir, target = process.layout.run_dir, process.target
        who = {
            "key": process.key, "group": target.group, "roles": list(target.roles), "rank": target.rank,
            "world_size": target.world_size, "replica": target.replica, "host": process.host, "pid": process.pid,
            "steps": config.steps, **({} if target.engine_rank is None else {"engine_rank": target.engine_rank}),
        }  # fmt: skip
        self._ring: Ring | None = Ring(os.path.join(self._run_dir, RINGS, process.key + SUFFIX), who)
        self._rows = _Rows(TraceOptions(max_spans=ROWS_AT_MOST))
        self._rows.open(NO_WINDOW)
        self.background = Window(
            NO_WINDOW, [], self._rows, [], 0, WindowRow(id="recorder"), lambda emitter, error: None
        )
        self.background.plain = PlainCalls(self.background, captures.voice.trouble)
        #: of plain calls, which are most
        self._quick: list[tuple[int, int, int, int]] = []
        self.background.plain.quick = self._quick
        self.background.plain.most, self.background.plain.alone = ROWS_AT_MOST, not greenlets()
        self._named, self._naming = 0, False
        #: of all rows that there was no room for those of steps that have ended
        self._dropped = 0
        #: of windows that were open in the running step: rows, the phases they number, and how many are of earlier steps
        self._of_windows: list[tuple[list[Any], list[PhaseSpec], int]] = []
        #: of the ring; whoever gets it while something is written was interrupted there by a signal, whose handler this is
        self._lock, self._writing = threading.RLock(), False
        self._step: int | None = None
        self._ended_step: int | None = None
        #: the slow step that was written out last: when it ended and how long it took; an exception that was: its id, and the step
        self._slow, self._raised = (0, 0), (0, 0)
        #: when the running step began, before the first the session; when one began or ended last, before the first when anything
        #: was recorded last
        self._began = self._last_event = now_ns()
        #: before the first step: rows so far
        self._so_far = 0
        self._walls: deque[int] = deque(maxlen=max(config.steps, STEPS_TO_COMPARE))
        #: no longer than the shortest of them
        self._floor = 0
        self._wanted: deque[dumps.Cause] = deque(maxlen=4)
        self._hung_in: int | None = None
        #: dumps that are known -> whether this process has a part; it has none where it is younger, say
        self._seen: dict[str, bool] = dict.fromkeys(dumps.names(self._run_dir), False)
        self._wake = Wake()
        #: something could not be written out, say on a full disk: the ring has it
        self._keeps = False
        self._ended = False
        self._running_step()  # whoever is killed, or holds the interpreter's lock, from here on has a part
        self._thread = started(self._watch, "accelprof recorder")
        captures.listeners.append(self._window)

    # --- what the session tells -------------------------------------------------------------------------------------

    def step_begins(self, number: int, at: int) -> None:
        """``at``: when, on the timers' clock (ns)."""
        window = self._captures.window
        if window is not None and window.trace is not None:
            rows = window.trace.rows
            if not any(known is rows for known, _, _ in self._of_windows):  # one that holds several steps
                self._of_windows.append((rows, window.trace.specs, len(rows)))
        self._step = number
        self._began = self._last_event = at

    def step_void(self) -> None:
        """The step that began never came: what was recorded meanwhile is of the next."""
        self._step = None

    def _window(self, what: str, info: WindowInfo) -> None:
        """A window is open: its timeline has the rows until it closes."""
        window = self._captures.window
        trace = None if window is None else window.trace
        if what == "opened" and trace is not None:
            self._of_windows.append((trace.rows, trace.specs, 0))

    def step_ends(self, number: int, ended: int) -> None:
        """The step's rows go to the ring; a step that took long is written out."""
        began = self._began
        with self._lock:
            ring = self._ring
            if ring is None or self._writing:
                return
            self._writing = True
            try:
                quick, others = self._quick, self._rows
                rows: list[Any] = quick[:]
                own = others.rows[:]
                plain, more = len(rows), len(own)
                if own or self._named < len(others.specs) or self._of_windows:
                    rows = self._with_others(rows, own)
                dropped = others.dropped
                ring.add(number, began, ended, rows, dropped - self._dropped)
                self._dropped = dropped
                # only now, for who is told to end before; what other threads have added meanwhile is of the next step
                del quick[:plain], others.rows[:more]
            finally:
                self._writing = False
        self._step, self._last_event, self._ended_step = None, ended, number
        if self._of_windows:
            self._of_windows.clear()
            return  # profiling's own cost is in it: neither slow nor a measure for others
        wall, walls, slow = ended - began, self._walls, self._config.slow
        # no step is over a limit of the median that is not over the same limit of something shorter than all
        if slow is not None and wall > slow * self._floor and len(walls) >= STEPS_TO_COMPARE:
            ordered = sorted(walls)
            self._floor, median = ordered[0], ordered[len(ordered) // 2]
            before, longest = self._slow
            # one after the other tells little more, unless it is worse
            if wall > slow * median and (wall > longest or ended - before > dumps.JOIN_WITHIN_S * 1e9):
                self._slow = ended, wall
                text = f"step {number} took {wall / 1e9:.3f} s, {wall / median:.1f} times the median"
                self.want(self._cause("slow", number, text))
        walls.append(wall)
        if wall < self._floor:
            self._floor = wall

    def failed(self, number: int, error: BaseException) -> None:
        """The body of a step raised."""
        if not isinstance(error, FAILURES):
            return
        self._raised = id(error), number
        self.want(self._cause("exception", number, f"step {number} raised {text_of(error)[:300]}"))

    def uncaught(self, error: BaseException | None) -> None:
        """The process ends by an exception that nobody caught. That of the last step's body was written out then."""
        step = self._ended_step if self._step is None else self._step
        if isinstance(error, FAILURES) and self._raised != (id(error), step):
            self.now("exception", f"nobody caught {text_of(error)[:300]}", step)

    def _cause(self, reason: DumpReason, step: int | None, why: str) -> dumps.Cause:
        """Of the running step, or the one that ended last."""
        at = time.time()
        return dumps.Cause(reason, step, why, at - (now_ns() - self._began) / 1e9, at)

    def want(self, cause: dumps.Cause) -> None:
        """A dump, as soon as the thread comes round to it."""
        self._wanted.append(cause)
        self._wake.set()

    def now(self, reason: DumpReason, why: str, step: int | None = None) -> None:
        """A dump before this returns: the process is about to end. Called in a signal's handler too, maybe of the very thread that
        is just writing to the ring: then the step that is being written is the running one."""
        cause = self._cause(reason, self._step if step is None else step, why)
        if step is None:  # of the whole process: it joins the others' dump whatever step each is in
            cause = replace(cause, began=0.0)
        self._dump(cause)

    def end(self) -> None:
        """The session closes in order: dumps that are wanted are made, and the ring, which nobody needs any more, is removed; where
        one could not be written it stays."""
        self._ended = True
        self._wake.set()
        if self._thread not in (None, threading.current_thread()):
            self._thread.join(10)
        if not self._lock.acquire(timeout=PATIENCE_S):
            return
        ring: Ring | None = None
        if not self._writing:  # else the frame that a signal interrupted goes on with it
            ring, self._ring = self._ring, None
        self._lock.release()
        if ring is not None:
            if not self._keeps:
                ring.remove()
            ring.close()

    def disown(self) -> None:
        """In a forked child: ring and thread are the parent's."""
        self._ring, self._ended, self._lock, self._writing = None, True, threading.RLock(), False

    # --- rows -------------------------------------------------------------------------------------------------------

    def _with_others(self, rows: list[Any], own: list[Any]) -> list[object]:
        """Rows of the step with its ``own`` that are no plain calls, in order of their ends; the phases they number are in the ring
        then."""
        if own or self._of_windows:
            rows = sorted([*rows, *own, *self._rows_of_windows()], key=_end)
        self._name()
        return rows

    def _rows_of_windows(self) -> Iterator[object]:
        for theirs, specs, before in self._of_windows:
            for row in theirs[before:]:
                yield (self._rows.number(specs[row[0]]), *row[1:])

    def _name(self) -> None:
        specs = self._rows.specs
        if self._named == len(specs) or self._naming:
            return
        self._naming = True
        try:
            while self._named < len(specs) and self._ring is not None:
                spec = specs[self._named]
                if not self._ring.name(spec.tag, spec.domain, spec.color, spec.category):
                    return  # without a name left, a phase is shown by its number
                self._named += 1
        finally:
            self._naming = False

    def _running_step(self) -> None:
        """The running step so far, with the phases in progress, into the ring's own place for it."""
        now = now_ns()
        if not self._lock.acquire(timeout=PATIENCE_S):
            return
        try:
            ring, number = self._ring, self._step
            if ring is None:
                return
            rows: list[Any] = [*self._quick, *self._rows.rows]
            rows.extend(self._rows_of_windows())
            for run in running_phases():
                number_of = self._rows.number(run.spec)
                rows.append(
                    TimelineRow(
                        number_of,
                        Kind.PHASE.value,
                        run.start or self._began,
                        now,
                        run.thread,
                        run.task,
                        None,
                        True,
                        run.call,
                    )
                )
            self._name()
            if number is None and not rows and self._ended_step is not None:
                ring.idle()
            else:
                began = self._began if number is not None or self._ended_step is None else self._last_event
                ring.now(number, began, rows, self._rows.dropped - self._dropped)
            ring.look_ahead()
        finally:
            self._lock.release()

    # --- the thread -------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._ended:
            self._wake.wait(LOOK_S)
            self._tried(self._look)
        self._tried(self._made_wanted)

    def _tried(self, act: Callable[[], None]) -> None:
        try:
            act()
        except failures() as error:  # said once; the recorder goes on
            self._keeps = True
            self._voice.say(f"the flight recorder failed: {text_of(error)}", about=("recorder", type(error)))

    def _look(self) -> None:
        self._running_step()
        self._made_wanted()
        self._hangs()
        if self._rows.dropped:
            self._voice.say(
                f"a step had more than {ROWS_AT_MOST:,} calls of phases and ranges; the flight recorder did not keep all of them",
                about=("recorder rows",),
            )
        for name in dumps.names(self._run_dir):
            if name not in self._seen:
                self._join(name)

    def _hangs(self) -> None:
        """A dump where no step has begun or ended for too long, nor anything else been recorded before the first."""
        limit, what = self._config.hang, "no step began or ended"
        if self._step is not None:
            where = f"in step {self._step}"
        elif self._ended_step is not None:
            where = "after a step had ended"
        else:
            limit, what, where = self._config.hang_start, "nothing was recorded", "before the first step"
            rows = (
                len(self._quick) + len(self._rows.rows) + self._rows.dropped + sum(1 for _ in self._rows_of_windows())
            )
            if rows != self._so_far:
                self._so_far, self._last_event = rows, now_ns()
        last = self._last_event
        took = (now_ns() - last) / 1e9
        if limit is not None and took > limit and self._hung_in != last:
            self._hung_in = last
            self._dump(self._cause("hang", self._step, f"{what} for {took:.0f} s, {where}"))

    def _made_wanted(self) -> None:
        while self._wanted:
            self._dump(self._wanted.popleft())

    def _dump(self, cause: dumps.Cause) -> None:
        try:
            self._write_out(cause)
        except failures() as error:  # said once for each reason; the ring has what could not be written
            self._keeps = True
            self._voice.say(
                f"the flight recorder could not write out what it was to: {cause.why}: {text_of(error)}; the file of this process "
                "stays behind, and accelprof window dump writes out its last steps",
                about=("recorder lost", cause.reason),
            )

    def _write_out(self, cause: dumps.Cause) -> None:
        apart = {name for name, part in list(self._seen.items()) if not part}
        name = dumps.begin(self._run_dir, cause, self._process.key, self._config.dumps, apart)
        if name is None:
            self._voice.say(
                f"the flight recorder has written {self._config.dumps} dumps for the reason {cause.reason} in this run, which is "
                f"what recorder.dumps says; this and further ones are not written out: {cause.why}",
                about=("recorder dumps", cause.reason),
            )
        elif name not in self._seen:
            if self._join(name):
                self._voice.say(f"the flight recorder wrote {name}: {cause.why}")
            else:
                self._voice.say(
                    f"the flight recorder's file of this process is gone, so {name} has nothing of it: {cause.why}"
                )

    def _join(self, name: str) -> bool:
        """Whether this process had something to write."""
        self._seen[name] = False
        dumps.write_stacks(self._run_dir, name, self._process.key)
        ring = self._ring
        if ring is None or ring.lost:
            return False
        self._running_step()
        self._seen[name] = dumps.write_part(self._run_dir, name, ring.path) is not None
        return True


class _Rows(TraceTool):
    """Rows of calls that are not plain. Marks are not kept: nobody would take them out again."""

    def add_mark(self, spec: PhaseSpec, at: int, thread: int) -> None:
        """Nothing."""


def _end(row: Sequence[Any]) -> int:
    end: int = row[QUICK_END if len(row) == len(QUICK_ROW) else END]
    return end
