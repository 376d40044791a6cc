"""The driver's side of a run: announces steps to the selected workers, opens and closes their windows, collects what they leave.

It never fails the training: what goes wrong in a worker or on the way to it is said with the worker's name, in the log and
in the manifest (``on_error: raise`` asks for exceptions instead).
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import secrets
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ray

from accelprof.analysis import draw
from accelprof.catalogue import get_catalogue
from accelprof.cluster import fanout
from accelprof.cluster.dumping import DumpWatch
from accelprof.cluster.ending import gather
from accelprof.cluster.fanout import Answer
from accelprof.cluster.nodes import RayNodes
from accelprof.cluster.options import PlannedLaunch, Preflight, sees_devices, wrap
from accelprof.cluster.roster import Roster, roles_of
from accelprof.cluster.timings import StepTimings, added, reduce_timings
from accelprof.config.model import Config
from accelprof.contracts import reasons
from accelprof.contracts.targets import DRIVER_GROUP, Target
from accelprof.errors import AccelprofError, ConfigError
from accelprof.exporters.host import figures_of, start_exporters
from accelprof.numberset import whole
from accelprof.output.codes import NO_DIRECTORY
from accelprof.output.delivery import EndedRun, add_said, deliver
from accelprof.output.layout import claim_run
from accelprof.output.metrics import STEPS_KEPT, step_row
from accelprof.output.records import Lack, Manifest
from accelprof.output.verdict import require_complete
from accelprof.planning import names
from accelprof.planning.kept import keeps_anything
from accelprof.session.configure import configure, of_launcher
from accelprof.session.identity import host_name, number_of
from accelprof.session.session import Session
from accelprof.voice import Voice

log = logging.getLogger("accelprof")


class Controller:
    """One run. See docs/ray.md.

    Args:
        config: what ``accelprof.configure`` takes: path, mapping, ``DictConfig``, ``Config``; ``None`` takes the run that
            ``accelprof run`` started, else defaults.
        **values: configuration keys as keywords (``steps=[2]``).

    Attributes:
        plan: what the configuration means.
        voice: says what goes wrong, once; ``problems`` is what it said so far.
        notes: what launches have to say, with nothing wrong.
        roster: who takes part.

    Raises:
        ConfigError, PluginError: the configuration is wrong; nothing was started then.
    """

    def __init__(self, config: Any = None, **values: Any) -> None:
        self.catalogue = get_catalogue()
        config, run_dir = of_launcher(config)
        loaded = self.catalogue.load(config, **values)
        self.config: Config = loaded.config
        self.plan = self.catalogue.plan(self.config)
        self.voice = Voice(raising=self.config.on_error == "raise")
        self.notes: list[str] = []
        self.manifest: dict[str, Any] | None = None
        self.step_now: int | None = None
        self.history: dict[int, dict[str, dict[str, Any]]] = {}
        self.session: Session | None = None
        self._lock = threading.RLock()
        self._preflight = Preflight()
        self._checked = False
        self._no_directory = ""
        self.run_dir: str | None = None
        if keeps_anything(self.plan):
            self.run_dir = run_dir or self._claim()
        self.roster = Roster(self.config, self.plan, self.run_dir, self.voice.say, self._worker_failed)
        self._exporters = start_exporters(
            self.catalogue.make_exporters(self.config), self.config, self.run_dir, self.voice.say
        )
        self._dumps = None
        if self.config.records_always and self.run_dir is not None:
            self._dumps = DumpWatch(self.roster, self.run_dir, self.voice.say)
        self._step_began = (0, 0)
        self._spans: dict[int, dict[str, tuple[int, int]]] = {}
        self._cut: set[int] = set()
        for note in loaded.notes:
            if note.kind != "info":
                log.info("accelprof: %s", note)
        self.catalogue.event("accelprof_plan_ready", plan=self.plan)
        self._start_own_session()
        #: this driver has no line of its own that closes (a framework's), so that closing at its exit is the ordinary end
        self.closes_at_exit = False
        atexit.register(self._at_exit)

    # --- before the workers start -----------------------------------------------------------------------------------

    def options(
        self,
        group: str,
        *,
        rank: int | None = None,
        role: str | Sequence[str] | None = None,
        replica: int | None = None,
        world_size: int | None = None,
        node: str | None = None,
        has_devices: bool | None = None,
        base: Mapping[str, object] | None = None,
        **ray_options: object,
    ) -> dict[str, Any]:
        """What ``ActorCls.options(**...)`` takes so that this worker can be profiled as the plan says.

        ``base`` and ``ray_options`` are the options you would have given anyway; they are kept, and ``runtime_env`` and
        ``env_vars`` are merged into. A worker that is not selected, or whose tool needs no launch, gets just these.

        Raises:
            ConfigError: the launch contradicts what is in ``runtime_env`` (two profilers around one process, an
                interpreter that cannot be kept).
            UnavailableError: the tool does not start on the nodes where the worker may run.
        """
        given = {**dict(base or {}), **ray_options}
        if has_devices is None:
            has_devices = sees_devices(given, self.catalogue)
        rank, replica = number_of("rank", rank), number_of("replica", replica)
        world_size = number_of("world_size", world_size)
        target = Target(group, roles_of(role), rank, world_size, replica, node, has_devices=has_devices)
        launch = PlannedLaunch(self.plan.assign(target))
        if not target.roles and not launch.assignment.selected:
            for text in launch.assignment.notes:
                self._note(f"options({group!r}): {text}")
        if launch.assignment.selected and self.run_dir is not None:
            given = wrap(self.catalogue, self.plan, launch, self.run_dir, given, self._preflight, self.voice.say)
            for text in launch.launch.notes:
                self._note(f"{launch.target.label}: {text}")
        with self._lock:
            self.roster.plan_launch(launch)
        return given

    def attach(
        self,
        group: str,
        actors: object,
        *,
        role: str | Sequence[str] | None = None,
        ranks: Sequence[int | None] | None = None,
        replicas: Sequence[int | None] | None = None,
        world_size: int | None = None,
    ) -> None:
        """Give ``actors`` (one handle or several) their sessions, all at once.

        Without ``ranks`` they get, in this order, the ranks they were given in :meth:`options`; where that was not
        called for all of them, they are numbered on from the workers of the group that were attached before.
        An actor that is attached again with another role has both.

        Raises:
            UserError: numbers of actors, ranks and replicas differ, or colocated roles contradict each other.
        """
        handles = list(actors) if isinstance(actors, (list, tuple)) else [actors]
        with self._lock:
            self.roster.attach(group, handles, roles_of(role), ranks, replicas, world_size)
            self.voice.raise_deferred()

    # --- steps ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[Controller]:
        """One training step on all selected workers. An exception of the body reaches the caller unchanged."""
        number = whole(number, "step: step numbers")
        self.begin_step(number)
        try:
            yield self
        except BaseException:
            try:
                self._end_step(number, whole=False)
            except AccelprofError as error:
                log.warning("accelprof: ending step %s failed: %s", number, error)
            raise
        else:
            self.end_step(number)

    def begin_step(self, number: int) -> None:
        """Announce a step to the selected workers, in parallel; returns when all have opened what they open.

        Raises:
            TypeError: ``number`` is not a whole number.
            CaptureError: a worker failed and ``on_error`` is ``raise``.
        """
        number = whole(number, "begin_step: step numbers")
        with self._lock:
            if self.manifest is not None:
                return
            if not self._checked:
                self._check_names()
            self.step_now = number
            if self.session is not None:
                self.session.begin_step(number)
            self.roster.begin(number)
            self._step_began = time.time_ns(), time.perf_counter_ns()
            self.voice.raise_deferred()

    def end_step(self, number: int | None = None) -> None:
        """The step ended; windows that hold no later step close. Harmless when none is running."""
        self._end_step(None if number is None else whole(number, "end_step: step numbers"))

    def _end_step(self, number: int | None, whole: bool = True) -> None:
        """``whole``: it came to its end; of another no length is told."""
        with self._lock:
            number = self.step_now if number is None else number
            if self.manifest is not None or number is None or number != self.step_now:
                return
            rows: dict[str, dict[str, Any]] = {}
            wall_ns = time.perf_counter_ns() - self._step_began[1]
            if whole:
                self._spans[number] = {"controller": (self._step_began[0], wall_ns)}
                self._cut.discard(number)
            elif number not in self._spans:  # one that failed and was done before has its end
                self._cut.add(number)
            try:
                self.roster.end(number, rows)
            finally:
                self.history.setdefault(number, {}).update(rows)
                while len(self.history) > STEPS_KEPT:
                    gone = next(iter(self.history))
                    del self.history[gone]
                    self._spans.pop(gone, None)
                    self._cut.discard(gone)
                self.step_now = None
                if self._exporters is not None:
                    row = step_row(number, rows, self._spans.get(number), self.roster.records(number), whole)
                    self._exporters.step(figures_of(row))
                if self.session is not None:
                    self.session.end_step(number)
            self.voice.raise_deferred()

    def _check_names(self) -> None:
        """Once, when the first step begins: names in the configuration that none of the attached workers has."""
        self._checked = True
        for problem in [
            *self.plan.check_names(self.roster.joined),
            *names.unmatched_roles(self.config, self.roster.roles()),
        ]:
            self.voice.say(str(problem))

    # --- what came out ----------------------------------------------------------------------------------------------

    def metrics(self, reduce: str = "max", per_rank: bool = False) -> StepTimings:
        """Timings of the last step over all attached workers: ``{tag: seconds}``; see :class:`StepTimings`.

        Workers that are not selected hear no steps; theirs are what they did since the last call of this method, and
        they count when that was within this step: call it after every step.

        Raises:
            UserError: ``reduce`` is not one of max, mean, min, sum.
        """
        with self._lock:
            step = self.step_now if self.step_now is not None else next(reversed(self.history), None)
            rows = self.history.setdefault(step, {}) if step is not None else {}
            absent: dict[str, str] = {}
            begun = self.roster.steps_begun
            for answer in fanout.ask(self.roster.others(), "take_timings", timeout=self.config.control_timeout):
                member = answer.member
                if not answer.ok:
                    absent[member.label] = answer.error
                    self._worker_failed(answer, "its timings could not be read")
                elif member.since is not None and member.since >= begun - 1:
                    rows[member.label] = added(rows.get(member.label, {}), answer.value)
                else:
                    absent[member.label] = (
                        "its timings were last read before an earlier step; they count from the next call"
                    )
                if answer.ok:
                    member.since = begun
            for member in self.roster.selected():
                if member.label not in rows:
                    absent[member.label] = f"no timings of step {step} from it"
            groups = {member.label: member.target.group for member in self.roster.members}
            result = reduce_timings(rows, groups, step, reduce, per_rank, absent)
            self.catalogue.event("accelprof_metrics", step=step, reduced=result)
            self.voice.raise_deferred()
            return result

    def close(self, end_workers: bool = False) -> dict[str, Any]:
        """Close all windows, wait for reports up to ``report_timeout``, collect, and write the manifest. Idempotent.

        Args:
            end_workers: also end the attached actors in order (``__ray_terminate__``), for tools that write when their
                process exits.

        Returns:
            The manifest. ``status`` is ``complete`` or ``incomplete``; ``undelivered`` says what was asked for and is not
            there, ``problems`` everything worth saying. Everything is on disk when this returns.

        Raises:
            CaptureError: the running step could not be ended on a worker and ``on_error`` is ``raise``.
            IncompleteError: something was not delivered and ``on_error`` is ``raise``.
            The manifest is written all the same.
        """
        with self._lock:
            if self.manifest is not None:
                return self.manifest
            failed: Exception | None = None
            try:
                if self.step_now is not None:
                    self.end_step(self.step_now)
                if not self._checked and self.roster.members:
                    self._check_names()
            except Exception as error:  # noqa: BLE001 - raised below, when the manifest is on disk
                failed = error
            ended = self._deliver(end_workers)
            self.manifest = ended.to_json()
            atexit.unregister(self._at_exit)
            if failed is not None:
                raise failed
            if self.config.on_error == "raise":
                require_complete(ended)
            return self.manifest

    def _deliver(self, end_workers: bool) -> Manifest:
        run = EndedRun(
            self.run_dir,
            self.catalogue,
            self.config,
            self.plan,
            draw,
            steps=self.history,
            spans=self._spans,
            cut=self._cut,
            voice=self.voice,
            notes=self.notes,
        )
        if self._dumps is not None:
            self._dumps.end()
        if self._no_directory:
            run.lacks.append(Lack(code=NO_DIRECTORY, words=self._no_directory))
        gather(
            self.roster,
            run,
            end_workers,
            lambda: self.session.close(reasons.CONTROLLER_CLOSED) if self.session else None,
        )
        manifest = deliver(run, RayNodes(self.roster.members))
        if self._exporters is not None:
            self._exporters.finish(manifest.to_json(), self.run_dir or "")
            add_said(run, manifest)
        return manifest

    @property
    def problems(self) -> list[str]:
        return self.voice.problems

    def say(self, message: str) -> None:
        """Say something once, in the log and in the manifest."""
        self.voice.say(message)

    def report(self, message: str) -> None:
        """The name of :meth:`say` in 0.1."""
        warnings.warn(
            "Controller.report is Controller.say now; the old name goes with the next release", DeprecationWarning, 2
        )
        self.voice.say(message)

    def _note(self, text: str) -> None:
        """Something to know, with nothing wrong: once, in the log and in the manifest's ``notes``."""
        if text not in self.notes:
            self.notes.append(text)
            log.info("accelprof: %s", text)

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except AccelprofError as error:
            if error_type is None:
                raise
            log.warning("accelprof: %s", error)  # the body's own exception is the one to see

    # --- inside -----------------------------------------------------------------------------------------------------

    def _worker_failed(self, answer: Answer, what: str) -> None:
        """Said with the worker's name; where ``on_error`` is ``raise`` the first is raised when all workers were asked."""
        text = f"{answer.member.label}: {what}: {answer.error}"
        self.voice.say(text)
        if not answer.ok:
            self.voice.defer(text)

    def _claim(self) -> str | None:
        try:
            return claim_run(self.config.output_dir, self.config.run, secrets.token_hex(8), host_name())
        except (OSError, ConfigError) as error:
            if self.config.on_error == "raise":
                raise
            text = f"the output directory {self.config.output_dir!r} cannot be made: {error}; nothing is recorded"
            self._no_directory = text
            self.voice.say(text)
            return None

    def _start_own_session(self) -> None:
        """``controller: {tool: ...}``: the driver itself is a worker of the group ``controller``."""
        if self.run_dir is None or not self.config.enabled:
            return
        try:
            own = self.plan.driver()
            if own is None:
                return
            self.session = configure(
                self.config, group=DRIVER_GROUP, rank=0, world_size=1, run_dir=self.run_dir, assignment=own
            )
        except AccelprofError as error:
            if self.config.on_error == "raise":
                raise
            self.voice.say(f"the driver itself is not profiled: {error}")

    def _at_exit(self) -> None:
        if self.manifest is None:
            if not ray.is_initialized():
                self.voice.say("the driver ended without Controller.close(), and Ray was shut down before")
            elif not self.closes_at_exit:
                self.voice.say("the driver ended without Controller.close()")
            try:
                self.close()
            except AccelprofError as error:
                log.warning("accelprof: %s", error)
