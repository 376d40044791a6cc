"""``engines:`` of the configuration, and what it means for one replica of one release."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from accelprof.config.load import problems_of
from accelprof.config.model import Config, Numbers
from accelprof.contracts.options import Options, unique
from accelprof.engines.tables import DISTRIBUTIONS, FILES, RELEASES, SGLANG_ONE_SHORT, Release
from accelprof.errors import ConfigError, Problem, nearest
from accelprof.versions import within

Content = Literal["cpu", "cuda", "npu", "memory", "shapes", "stack", "flops"]
#: the words for the device; an engine has one name for whichever it runs on
DEVICE = frozenset({"cuda", "npu"})


class EngineOptions(Options):
    """One engine.

    Attributes:
        profiler: the engine's own profiler: ``torch``, ``cuda`` (it starts the CUDA profiler, for nsys), or null:
            it is left off, and only instruments reach into the engine.
        version: release to derive for; absent = the installed one.
        contents: as for tool ``torch``; empty = host and device activity, nothing that makes files large. ``npu`` is the
            device where the engine runs on Ascend, as verl's files say it.
        skip, iterations: engine iterations (scheduled batches, not tokens) left out first, and recorded; no number of
            iterations = until the window closes.
        tensor_parallel, pipeline_parallel, data_parallel: sizes inside one replica, to name its ranks.
        ranks: ranks within the engine that instruments open windows on.
        groups: groups whose workers hold the engine; absent = every group that is profiled.
        agent_loop: rollouts of many turns, whose windows must be discrete.
        runtime: TensorRT-LLM: the release has start_profile and stop_profile.
    """

    profiler: Literal["torch", "cuda"] | None = None
    version: str | None = None
    contents: Annotated[tuple[Content, ...], BeforeValidator(unique)] = ()
    skip: int = Field(0, ge=0)
    iterations: int | None = Field(None, ge=1)
    tensor_parallel: int = Field(1, ge=1)
    pipeline_parallel: int = Field(1, ge=1)
    data_parallel: int = Field(1, ge=1)
    ranks: Numbers = None
    groups: Annotated[tuple[str, ...], BeforeValidator(unique)] = ()
    agent_loop: bool = False
    runtime: bool = False

    @property
    def world(self) -> int:
        """Processes of one replica."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel


@dataclass(frozen=True)
class Settings:
    """What one replica's engine is given.

    Attributes:
        env: variables for the process that builds the engine, before it does; its children inherit them.
        unset: variables that must not be there.
        arguments: keyword arguments (and by the same name command-line options) of the engine.
        start, stop: dotted names of the methods on the engine object; empty = there is nothing to call.
        start_arguments: of the start call.
        ignored: what was asked for and this release does not do, one line each; said at the start.
        benign: text of an error from ``stop`` that only says that the engine stopped by itself.
    """

    engine: str
    version: str
    directory: str
    env: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    start: str = ""
    stop: str = ""
    start_arguments: Mapping[str, object] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    benign: str = ""
    replica: int = 0


def engines_of(config: Config) -> dict[str, EngineOptions]:
    """The engine sections of a configuration.

    Raises:
        ConfigError: an engine or option that is not known, with the nearest; an agent loop that is not discrete.
    """
    found: dict[str, EngineOptions] = {}
    problems: list[Problem] = []
    for name, options in config.engines.items():
        canonical = name.replace("_", "-").casefold()
        if canonical not in DISTRIBUTIONS:
            allowed, mend = ", ".join(DISTRIBUTIONS), nearest(canonical, DISTRIBUTIONS)
            problems.append(Problem(f"engines.{name}", "no such engine", allowed=allowed, mend=mend))
            continue
        try:
            found[canonical] = EngineOptions.model_validate(options)
        except ValidationError as error:
            problems.extend(problems_of(error, EngineOptions, f"engines.{name}."))
            continue
        problems.extend(_not_discrete(config, name, found[canonical]))
    if problems:
        raise ConfigError(*problems)
    return found


def _not_discrete(config: Config, name: str, options: EngineOptions) -> Iterator[Problem]:
    """An agent loop generates in many turns, with other work between them: only windows of single phases hold its rollouts."""
    if not options.agent_loop or options.profiler is None:
        return
    for group, rules in (config.groups or {"": ()}).items():
        if options.groups and group and group not in options.groups:
            continue
        said = [rule.discrete for rule in rules if rule.enabled] if rules else [None]
        if not all(config.discrete if discrete is None else discrete for discrete in said):
            path = f"groups.{group}.discrete" if group else "discrete"
            only = f"rollouts of {name}'s agent loop are only profiled in discrete windows"
            yield Problem(path, only, value=False, allowed="true", mend="set discrete: true")


def release_of(engine: str, version: str) -> Release:
    """The row of the table for a release.

    Raises:
        ConfigError: the text is no version, or the table has no such release.
    """
    try:
        for release in RELEASES[engine]:
            if within(version, release.versions):
                return release
    except ValueError as error:
        raise ConfigError(Problem(f"engines.{engine}.version", str(error), value=version)) from None
    raise ConfigError(Problem(f"engines.{engine}.version", "no table for this release", value=version))


def settings_for(engine: str, version: str, options: EngineOptions, directory: str, replica: int = 0) -> Settings:
    """Environment, arguments and calls that switch on the profiler of one replica.

    Args:
        directory: absolute; the replica gets its own below it, the only separation that every release keeps.

    Raises:
        ConfigError: as :func:`release_of`; a profiler that the engine does not have.
    """
    if options.profiler is None:
        return Settings(engine, version, directory, replica=replica)
    release = release_of(engine, version)
    own = os.path.join(directory, f"{engine}-p{replica}")
    build = _Build(engine, version, options, release, own, f"p{replica}")
    return replace(build.settings(), replica=replica)


class _Build:
    """Puts one :class:`Settings` together; everything asked for ends in it or among ``ignored``."""

    def __init__(
        self, engine: str, version: str, options: EngineOptions, release: Release, directory: str, prefix: str
    ) -> None:
        self.engine, self.version, self.options, self.release = engine, version, options, release
        self.directory = directory
        self.ignored: list[str] = []
        self.values = self._wanted(prefix)

    def _wanted(self, prefix: str) -> dict[str, object]:
        options, contents = self.options, set(self.options.contents)
        wanted: dict[str, Any] = {
            "profiler": options.profiler,
            "directory": self.directory,
            **{word: word in contents for word in ("stack", "shapes", "memory", "flops")},
            "gzip": True,
            "table": False,  # its file is overwritten at every stop, and shared by replicas that share a directory
            "no_frontend": True,
            "cuda_gate": options.profiler == "cuda",
            "prefix": prefix,
            "activities": [
                name
                for name, words in (("CPU", {"cpu"}), ("GPU", DEVICE))
                if not contents & {"cpu", *DEVICE} or words & contents
            ],
        }
        if options.profiler == "cuda":
            wanted["directory"] = None
            wanted["activities"] = ["CUDA_PROFILER"]
        if options.skip or options.iterations:
            # a delay of n begins at the nth iteration: to leave out k it must be k + 1
            wanted["skip"] = options.skip + 1 if options.skip else 0
            wanted["iterations"] = options.iterations or 0
        return wanted

    def settings(self) -> Settings:
        release, options = self.release, self.options
        if self.engine == "tensorrt-llm":
            return self._tensorrt()
        carried = {**release.names, **release.call_names}
        if options.profiler == "cuda" and not self._can_gate(carried):
            said = f"{self.engine} {self.version} cannot start the CUDA profiler"
            raise ConfigError(Problem(f"engines.{self.engine}.profiler", said, value="cuda", allowed="torch"))
        self._say_ignored(carried)
        env = self._env() if release.how == "env" else {}
        config = self._config() if release.how == "config" else {}
        call = self._call()
        if self.engine == "sglang" and "num_steps" in call and within(self.version, SGLANG_ONE_SHORT):
            call["num_steps"] += 1
        arguments, benign = (
            {"profiler_config": config} if config else {},
            "not in progress" if self.engine == "sglang" else "",
        )
        return Settings(
            self.engine, self.version, self.directory, env, release.unset, arguments, release.start, release.stop, call,
            tuple(self.ignored), release.notes, benign,
        )  # fmt: skip

    def _can_gate(self, carried: Mapping[str, str]) -> bool:
        if self.engine == "vllm-ascend":
            return False
        return bool(carried.keys() & {"cuda_gate", "profiler", "activities"})

    def _say_ignored(self, carried: Collection[str]) -> None:
        """What was asked for beside the settings that are ``carried`` to the engine."""
        name = f"{self.engine} {self.version}"
        for setting in ("stack", "shapes", "memory", "flops"):
            wanted = self.values[setting]
            if setting in carried:
                continue
            fixed = self.release.fixed.get(setting)
            if fixed is None and wanted:
                self.ignored.append(f"contents: {name} does not record {setting}")
            elif fixed is not None and fixed is not wanted:
                self.ignored.append(f"contents: {name} always has {setting} {'on' if fixed else 'off'}")
        for setting in ("skip", "iterations"):
            if getattr(self.options, setting) and setting not in carried:
                counted = "its start step counts from the start of the process"
                why = counted if self.engine == "sglang" else "it has no limit"
                self.ignored.append(f"{setting}: {name} records from start to stop ({why})")

    def _env(self) -> dict[str, str]:
        """Truth values are written 0 and 1 only: releases differ in what else they take for true."""
        env: dict[str, str] = {}
        for setting, variable in self.release.names.items():
            value = self.values.get(setting)
            if value is None or (self.engine == "vllm-ascend" and value is False):
                continue
            if setting == "cuda_gate" and not value:
                continue  # a set variable decides the profiler alone
            env[variable] = str(int(value)) if isinstance(value, (bool, int)) else str(value)
        return env

    def _config(self) -> dict[str, Any]:
        """Only keys of this release: from 0.16 on an unknown one ends the server."""
        return {
            key: self.values[setting]
            for setting, key in self.release.names.items()
            if self.values.get(setting) is not None
            and not (self.options.profiler == "cuda" and key.startswith("torch_profiler_"))
        }

    def _call(self) -> dict[str, Any]:
        call = {
            argument: self.values[setting]
            for setting, argument in self.release.call_names.items()
            if self.values.get(setting) is not None
        }
        if self.options.iterations is None:
            call.pop("num_steps", None)
        return call

    def _tensorrt(self) -> Settings:
        options = self.options
        if options.runtime:
            call = {"output_dir": self.directory, "activities": self.values["activities"]}
            if options.iterations:
                call.update(num_steps=options.iterations, start_step=options.skip)
            elif options.skip:
                self.ignored.append("skip: needs iterations, for num_steps and start_step go together")
            return Settings(
                self.engine, self.version, self.directory, start="start_profile", stop="stop_profile",
                start_arguments=call, ignored=tuple(self.ignored),
            )  # fmt: skip
        if options.iterations is None:
            said = "its window is a span of iterations, told before it starts"
            mend = "give iterations, or runtime: true where the release has start_profile"
            raise ConfigError(Problem("engines.tensorrt-llm.iterations", said, mend=mend))
        self._say_ignored(("skip", "iterations"))
        env = {self.release.names["span"]: f"{options.skip}-{options.skip + options.iterations - 1}"}
        if options.profiler == "torch":
            env[self.release.names["trace"]] = os.path.join(self.directory, "trace.json")
        return Settings(
            self.engine, self.version, self.directory, env, ignored=tuple(self.ignored), notes=self.release.notes
        )


# --- ranks ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EngineRank:
    """One process of an engine: its replica, its place inside it, and the rank over all replicas (GPU by GPU)."""

    replica: int
    data: int
    pipeline: int
    tensor: int
    rank: int


def ranks_of(options: EngineOptions, replica: int) -> list[EngineRank]:
    """The processes of one replica; tensor-parallel ranks are adjacent, then pipeline, then data."""
    rows = []
    for local in range(options.world):
        data, inside = divmod(local, options.tensor_parallel * options.pipeline_parallel)
        pipeline, tensor = divmod(inside, options.tensor_parallel)
        rows.append(EngineRank(replica, data, pipeline, tensor, replica * options.world + local))
    return rows


def rank_of_file(engine: str, version: str, name: str, options: EngineOptions, replica: int) -> EngineRank | None:
    """Which process wrote a file, as far as its name tells; ``None`` where it does not (or is not the engine's)."""
    pattern = next((text for versions, text in FILES[engine] if within(version, versions)), None)
    match = re.search(pattern, name) if pattern else None
    if match is None:
        return None
    told = {key: int(value) for key, value in match.groupdict().items() if value is not None and value.isdecimal()}
    if "tp" in told:
        data, pipeline, tensor = told.get("dp", 0), told.get("pp", 0), told["tp"]
    elif "rank" in told and (options.data_parallel == 1 or engine == "tensorrt-llm"):
        pipeline, tensor = divmod(told["rank"], options.tensor_parallel)
        data = 0
    else:
        return None  # this release's names are the same for every data-parallel engine
    local = (data * options.pipeline_parallel + pipeline) * options.tensor_parallel + tensor
    rank = replica * options.world + local
    return EngineRank(replica, data, pipeline, tensor, rank) if local < options.world else None
