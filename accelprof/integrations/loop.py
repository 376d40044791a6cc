"""A training loop that somebody else runs, as steps of a session: what every integration has in common."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from accelprof.catalogue import get_catalogue
from accelprof.errors import AccelprofError
from accelprof.session.configure import configure, current_session
from accelprof.session.session import Session
from accelprof.timing.metrics import process_state
from accelprof.timing.phase import PhaseSpec
from accelprof.timing.running import Run
from accelprof.timing.timer import timer
from accelprof.voice import Voice

IDENTITY = ("role", "rank", "world_size", "replica")
#: a training inside another's step, from its beginning to its end
INNER = "train/inner"
#: loops whose training has begun and has not been said to be over
_begun: list[Loop] = []


class Loop:
    """The session of one training, its steps, and the methods of somebody's object that are phases meanwhile.

    A step lasts until the next one begins, so that what a framework does between its steps (fetching data, evaluating,
    saving) lies in the step that caused it. Apart from a configuration that is wrong, nothing here ends training.

    Args:
        config, **values: what :func:`accelprof.configure` takes; checked at once. Who this process is (``role``, ``rank``,
            ``world_size``, ``replica``) may be among them, instead of what the framework says.
        group: the worker group.

    Raises:
        ConfigError, PluginError: the configuration is wrong.
    """

    def __init__(self, config: object, group: str, values: dict[str, Any]) -> None:
        self._identity = {name: values.pop(name) for name in IDENTITY if name in values}
        self._config, self._group, self._values = config, group, values
        self._session: Session | None = None
        self._owned = False
        self._step: int | None = None
        #: of a framework that counts updates: its count, and the step that runs while it stands there
        self._updates: int | None = None
        self._number = 0
        self._runs: Callable[[], bool] = _always
        #: what the framework trains with, weakly
        self._training: Callable[[], object] = _nothing
        #: whether somebody else's steps run already: these are not counted, and methods are no phases
        self._idle = False
        # weakly: a training that ran out of memory must not be kept by its profiler
        self._wrapped: list[tuple[weakref.ref[object], str, weakref.ref[Any], bool]] = []
        self._open: dict[str, Run] = {}
        self.voice = Voice()
        if config is not None or values:
            catalogue = get_catalogue()
            catalogue.plan(catalogue.load(config, **values).config)

    def begin(self, runs: Callable[[], bool] | None = None, training: object = None, **identity: Any) -> None:
        """Training begins: this process gets its session, or keeps the one it has. ``identity`` as for ``configure``.

        What trainings that ended with an exception left behind ends first, their sessions too. One that begins while another
        runs, or in a step that the program has begun, is the phase :data:`INNER` there: steps are those of the outer one.

        Args:
            runs: whether this training still runs, for frameworks that do not say when one ends with an exception.
            training: the object that trains; two loops of one training are not inside one another.
        """
        for loop in list(_begun):
            if loop is self or not loop._runs():
                loop.end()
        self._runs = runs or _always
        self._training = _nothing if training is None else weakref.ref(training)
        self._owned, self._updates = False, None
        current = current_session()
        others = [loop for loop in _begun if loop._session is not None and not loop._session.closed]
        _begun.append(self)
        self._idle = bool(others) or (current is not None and current.step_now is not None)
        if self._idle and not any(loop._training() is training for loop in others):
            (others or [self])[0].voice.say(
                f"a training of {self._group} runs inside another's steps; it is the phase {INNER} there, and steps of its own are not counted",
                about=("inner training", self._group),
            )
            self._run(INNER)
        if current is not None or self._idle:
            if self._config is not None or self._values:
                self.voice.say(
                    "this process has a session already, which stays as it is; what was given here is not used: "
                    + ", ".join([*(["config"] if self._config is not None else []), *sorted(self._values)])
                )
            self._session = None if self._idle else current
            return
        try:
            self._session = configure(
                self._config, **{"group": self._group, **identity, **self._identity}, **self._values
            )
            self._owned = True
        except AccelprofError as error:
            self.voice.say(f"nothing is profiled: {error}")

    def step(self, number: int) -> None:
        """Step ``number`` runs now; the one before has ended."""
        if self._session is not None and number != self._step:
            self._end_inner()
            self._step = number
            self.voice.guarded("beginning a step", self._session.begin_step, number)

    def step_after(self, updates: int) -> None:
        """The step after so many ``updates`` runs now; where their count has moved, by however much, the next step begins."""
        if updates != self._updates:
            self._number = updates + 1 if self._updates is None else self._number + 1
            self._updates = updates
        self.step(self._number)

    def void_step(self) -> None:
        """The step that was to begin never came."""
        if self._session is not None and self._step is not None:
            self._step = None
            self.voice.guarded("taking back a step", self._session.void_step)

    def end_step(self) -> None:
        """No step runs any more."""
        if self._session is not None and self._step is not None:
            self._step = None
            self.voice.guarded("ending a step", self._session.end_step)

    def end(self, error: BaseException | None = None) -> None:
        """Training is over: phases end, wrapped methods are the object's own again, and a session of ours is closed.

        Args:
            error: what the training raised; its running step did not come to its end then.
        """
        if self in _begun:
            _begun.remove(self)
        self._end_inner()
        for tag in list(self._open):
            self.leave(tag)
        self.unwrap()
        if error is not None and self._session is not None and self._step is not None:
            self._step = None
            self.voice.guarded("ending a step that raised", self._session.step_raised, error)
        self.end_step()
        session, self._session = self._session, None
        if session is not None and self._owned:
            self.voice.guarded("closing the session", session.close)

    def is_of(self, training: object) -> bool:
        """Whether this is the loop of that training, which has begun and is not over."""
        return self in _begun and self._training() is training

    @property
    def running(self) -> bool:
        """Whether a training has begun here and is not over."""
        return self in _begun and self._runs()

    def _end_inner(self) -> None:
        """Trainings inside this one that raised, which nobody said, are over."""
        for loop in list(_begun):
            if INNER in loop._open and not loop._runs():
                loop.end()

    # --- phases -----------------------------------------------------------------------------------------------------

    def enter(self, tag: str) -> None:
        """Phase ``tag`` begins at this call and ends at :meth:`leave`; one that is running already goes on."""
        if self._session is not None and tag not in self._open:
            self._run(tag)

    def _run(self, tag: str) -> None:
        # others may begin inside and end outside: the framework's calls, not a block of code, are its ends
        self._open[tag] = Run(process_state(tag), PhaseSpec(tag), suspends=True)

    def leave(self, tag: str) -> None:
        """Phase ``tag`` ends, if it is running."""
        run = self._open.pop(tag, None)
        if run is not None:
            run.finish()

    def wrap(self, owner: object, methods: dict[str, str], when: Callable[[], bool] | None = None) -> None:
        """Methods of the object ``owner`` (not of its class) are phases until :meth:`end`: name -> phase. Absent ones are left out.

        Args:
            when: asked at each call whether it is a phase; always where ``None``.
        """
        for name, tag in () if self._idle else methods.items():
            method = getattr(owner, name, None)
            if callable(method) and not any(loop._has(owner, name) for loop in _begun):
                timed = timer(tag)(method)
                self._replace(owner, name, _chosen(when or _always, timed, method))

    def before(self, owner: object, name: str, call: Callable[[], None]) -> None:
        """``call`` happens before each call of the object's method."""
        method = None if self._idle else self._of(owner, name)
        if method is None:
            return

        @functools.wraps(method)
        def called(*args: object, **kwargs: object) -> object:
            call()
            return method(*args, **kwargs)

        self._replace(owner, name, called)

    def ends(self, calls: Iterable[tuple[object, str]]) -> None:
        """An exception that leaves one of these ends the training, for frameworks that do not say when one raised.

        Args:
            calls: what the training's own method calls, as object and name, on this thread; calls of another thread are
                none of it. Of calls inside one another the outermost decides: it may catch what leaves an inner one.
        """
        running: list[str] = []
        for owner, name in calls:
            method = self._of(owner, name)
            if method is not None:
                self._replace(owner, name, self._ending(method, name, running, threading.get_ident()))

    def _ending(
        self, method: Callable[..., object], name: str, running: list[str], thread: int
    ) -> Callable[..., object]:
        @functools.wraps(method)
        def called(*args: object, **kwargs: object) -> object:
            if threading.get_ident() != thread:
                return method(*args, **kwargs)
            running.append(name)
            try:
                return method(*args, **kwargs)
            except BaseException as error:  # raised again as it is, whatever becomes of ours
                if len(running) == 1:
                    self.voice.guarded("ending a training that raised", self.end, error)
                raise
            finally:
                running.pop()

        return called

    def _of(self, owner: object, name: str) -> Callable[..., object] | None:
        """The object's method; ``None`` where it has none, or another training has it already."""
        method = getattr(owner, name, None)
        taken = any(loop is not self and loop._has(owner, name) for loop in _begun)
        return method if callable(method) and not taken else None

    def _has(self, owner: object, name: str) -> bool:
        return any(name == its and owner is place() for place, its, _, _ in self._wrapped)

    def _replace(self, owner: object, name: str, made: Any) -> None:
        """``made`` says as ``__wrapped__`` what it stands for."""
        own = name in vars(owner)
        setattr(owner, name, made)
        self._wrapped.append((weakref.ref(owner), name, weakref.ref(made), own))

    def unwrap(self) -> None:
        """Give the objects their own methods back; what somebody put in the place of ours meanwhile stays."""
        while self._wrapped:
            place, name, made, own = self._wrapped.pop()
            owner = place()
            ours = made()
            if owner is None or ours is None or vars(owner).get(name) is not ours:
                continue
            if own:
                setattr(owner, name, vars(ours)["__wrapped__"])
            else:
                del vars(owner)[name]


class Trainings:
    """The loops of one callback: one training after another has the first, a training inside one of them has one of its own.

    Args and errors as :class:`Loop`.
    """

    def __init__(self, config: object, group: str, values: dict[str, Any]) -> None:
        self._first, self._group = Loop(config, group, values), group
        self._inner: list[Loop] = []

    def begin(self, training: object, runs: Callable[[], bool] | None = None, **identity: Any) -> Loop:
        """The loop of a training that begins; arguments as :meth:`Loop.begin`."""
        self._inner = [loop for loop in self._inner if loop in _begun]
        loop = self._first
        if loop.running and not loop.is_of(training):
            loop = Loop(None, self._group, {})
            self._inner.append(loop)
        loop.begin(runs, training, **identity)
        return loop

    def of(self, training: object) -> Loop:
        """The loop of a training; one in which nothing happens where it has not begun, or is over."""
        loops = (loop for loop in (self._first, *self._inner) if loop.is_of(training))
        return next(loops, None) or Loop(None, self._group, {})


def _nothing() -> None:
    return None


def _always() -> bool:
    return True


def _chosen(when: Callable[[], bool], timed: Any, plain: Any) -> Any:
    @functools.wraps(plain)
    def called(*args: object, **kwargs: object) -> object:
        return (timed if when() else plain)(*args, **kwargs)

    return called
