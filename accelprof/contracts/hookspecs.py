"""What a plug-in may implement. pluggy serves discovery and life-cycle events, never the path of a timed call.

Register a module or object that implements some of these under the entry-point group ``accelprof``, or with
``accelprof.register(plugin)``::

    import accelprof

    @accelprof.hookimpl
    def accelprof_backends():
        return [MyBackend]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from accelprof.contracts.backend import Backend
    from accelprof.contracts.doctor import Check
    from accelprof.contracts.exporter import Exporter
    from accelprof.contracts.targets import ArtifactFile, Launch, Target, WindowInfo
    from accelprof.contracts.tool import Tool

PROJECT = "accelprof"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def accelprof_backends() -> Sequence[type[Backend]]:
    """Backend classes this plug-in brings."""
    return ()


@hookspec
def accelprof_tools() -> Sequence[type[Tool]]:
    """Tool classes this plug-in brings."""
    return ()


@hookspec
def accelprof_exporters() -> Sequence[type[Exporter]]:
    """Exporter classes this plug-in brings; configured under ``export``."""
    return ()


@hookspec
def accelprof_dialects() -> Sequence[Any]:
    """Configuration dialects (``accelprof.config.dialect.Dialect`` objects) this plug-in can translate."""
    return ()


@hookspec
def accelprof_presets() -> Mapping[str, object]:
    """Instrument and tool presets by name, ``{"vllm.decode_step": Preset(...)}``."""
    return {}


@hookspec
def accelprof_doctor(node: Mapping[str, object]) -> Sequence[Check]:
    """Checks of this machine: ``accelprof.contracts.doctor.Check`` rows. ``node`` has ``hostname`` and ``output_dir``."""
    return ()


@hookspec
def accelprof_cli(group: object) -> None:
    """Add commands to the ``click.Group`` of the command line."""


@hookspec(firstresult=True)
def accelprof_detect_dialect(mapping: Mapping[str, object]) -> str | None:
    """Name of the dialect that ``mapping`` is written in, or ``None``."""
    return None


@hookspec(firstresult=True)
def accelprof_worker_identity(env: Mapping[str, str]) -> Mapping[str, object] | None:
    """``{"group", "role", "rank", "replica", "world_size"}`` as far as an environment tells, or ``None``."""
    return None


@hookspec
def accelprof_plan_ready(plan: object) -> None:
    """The plan was made (driver)."""


@hookspec
def accelprof_launch_modify(target: Target, launch: Launch) -> Launch | None:
    """Return another launch to use in its place, or ``None`` to keep it (driver)."""
    return None


@hookspec
def accelprof_step_begin(session: object, step: int) -> None:
    """A step was announced in a worker; the backend and the tool have been told already. ``session``: frozen facts of it."""


@hookspec
def accelprof_step_end(session: object, step: int) -> None:
    """A step ended in a worker."""


@hookspec
def accelprof_window_opened(session: object, window: WindowInfo) -> None:
    """A window is open."""


@hookspec
def accelprof_window_closed(session: object, window: WindowInfo) -> None:
    """A window is closed and what the tool writes at that point is on disk."""


@hookspec
def accelprof_artifact(artifact: ArtifactFile) -> None:
    """A file entered the manifest (driver)."""


@hookspec
def accelprof_metrics(step: int | None, reduced: Mapping[str, object]) -> None:
    """Timings of a step reduced over ranks (driver)."""


@hookspec
def accelprof_run_pages(run_dir: str) -> str | None:
    """Manifest and files of a run are in their places: make of them what people look at. What went wrong, in words, or ``None``."""
    return None


@hookspec
def accelprof_run_end(manifest: Mapping[str, object]) -> None:
    """The manifest is written (driver); ``manifest`` is plain JSON, a ``dict`` with the keys that stand on disk (docs/output.md)."""


EVENT_HOOKS = frozenset(
    {
        "accelprof_plan_ready",
        "accelprof_launch_modify",
        "accelprof_step_begin",
        "accelprof_step_end",
        "accelprof_window_opened",
        "accelprof_window_closed",
        "accelprof_artifact",
        "accelprof_metrics",
        "accelprof_run_pages",
        "accelprof_run_end",
    }
)
