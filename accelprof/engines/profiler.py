"""An engine's own profiler as windows: start and stop calls on the engine object, and the files that they leave."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable
from typing import Any

from accelprof.config.model import Config
from accelprof.contracts.sizes import size_of
from accelprof.contracts.targets import ArtifactFile
from accelprof.engines.options import EngineOptions, Settings, engines_of, rank_of_file, settings_for
from accelprof.engines.tables import DISTRIBUTIONS
from accelprof.errors import CaptureError, ConfigError, Problem
from accelprof.versions import installed


class EngineProfiler:
    """Starts and stops the profiler of one engine object. Where the engine's methods are coroutines, so are ours.

    Example::

        settings = replica_settings(config, "vllm", run_dir, replica=0)
        os.environ.update(settings.env)                 # before the engine is built
        engine = LLM(model, **settings.arguments)
        profiler = EngineProfiler(engine, settings, session.say)
        profiler.start(); engine.generate(...); profiler.stop()
    """

    def __init__(
        self,
        engine: object,
        settings: Settings,
        say: Callable[[str], object],
        options: EngineOptions | None = None,
    ) -> None:
        self.engine, self.settings, self.options = engine, settings, options or EngineOptions.model_validate({})
        self._say, self._open = say, False
        self._seen: set[str] = set()
        for text in settings.ignored:
            say(f"engine {settings.engine}: {text}")

    def start(self) -> Any:
        """Open the window; awaitable where the engine's method is.

        Raises:
            CaptureError: a window is open already.
        """
        if self._open:
            raise CaptureError(f"engine {self.settings.engine}: its profiler is on already")
        if not self.settings.start:
            return None
        os.makedirs(self.settings.directory, exist_ok=True)
        self._seen = set(self._files())
        answer = self._method(self.settings.start)(**self.settings.start_arguments)
        if inspect.isawaitable(answer):
            return self._when_started(answer)
        self._open = True
        return answer

    def stop(self) -> Any:
        """Close it, also where the engine stopped by itself; awaitable where the engine's method is. Harmless when closed."""
        if not self._open:
            return None
        self._open = False
        try:
            answer = self._method(self.settings.stop)()
        except RuntimeError as error:
            self._unless_benign(error)
            return None
        return self._when_stopped(answer) if inspect.isawaitable(answer) else answer

    def files(self, windows: tuple[str, ...] = ()) -> list[ArtifactFile]:
        """What the last window left, with the rank of each as far as its name tells."""
        found = []
        for path in self._files():
            if path in self._seen:
                continue
            rank = rank_of_file(self.settings.engine, self.settings.version, path, self.options, self.settings.replica)
            size = size_of(path)
            reason = "" if rank is not None else "the engine's name for it does not tell its rank"
            found.append(
                ArtifactFile(path, self.settings.engine, windows, size, "complete" if size else "truncated", reason)
            )
        return found

    def _files(self) -> list[str]:
        try:
            return sorted(entry.path for entry in os.scandir(self.settings.directory))
        except OSError:
            return []

    def _method(self, dotted: str) -> Any:
        here = self.engine
        for part in dotted.split("."):
            here = getattr(here, part)
        return here

    async def _when_started(self, answer: Awaitable[object]) -> object:
        result = await answer
        self._open = True
        return result

    async def _when_stopped(self, answer: Awaitable[object]) -> object:
        try:
            return await answer
        except RuntimeError as error:
            self._unless_benign(error)
            return None

    def _unless_benign(self, error: RuntimeError) -> None:
        if not self.settings.benign or self.settings.benign not in str(error):
            raise error


def replica_settings(config: Config, engine: str, run_dir: str, replica: int = 0) -> Settings:
    """The settings of one replica under ``config``, for the release that is named there or installed here.

    Raises:
        ConfigError: no such engine section; no release named or installed; as :func:`settings_for`.
    """
    sections = engines_of(config)
    name = engine.replace("_", "-").casefold()
    if name not in sections:
        raise ConfigError(Problem(f"engines.{engine}", "no such section", allowed=", ".join(sections) or "none given"))
    options = sections[name]
    version = options.version or installed(DISTRIBUTIONS[name])
    if version is None:
        raise ConfigError(
            Problem(
                f"engines.{engine}.version",
                f"{DISTRIBUTIONS[name]} is not installed here",
                mend="name the release that the workers have",
            )
        )
    return settings_for(name, version, options, os.path.join(run_dir, "engines"), replica)
