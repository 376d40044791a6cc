"""A session for the length of a ``with`` block, over a recording backend, in a directory of its own."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from accelprof.contracts.backend import Backend
from accelprof.testing.recording import RecordingBackend, RecordingTool

if TYPE_CHECKING:
    from accelprof.session.session import Session


@dataclass
class Captured:
    """What :func:`capture` yields: the session, its backend (a :class:`RecordingBackend` unless you gave another) and run directory."""

    session: Session
    backend: Any
    run_dir: str

    @property
    def tool(self) -> Any:
        """The session's tool, or ``None``."""
        return self.session.tools[0] if self.session.tools else None


@contextlib.contextmanager
def capture(
    *,
    backend: type[Backend] = RecordingBackend,
    tools: tuple[Any, ...] = (RecordingTool,),
    directory: str | None = None,
    identity: dict[str, Any] | None = None,
    options: dict[str, dict[str, object]] | None = None,
    **config: Any,
) -> Iterator[Captured]:
    """Configure this process over ``backend``; afterwards everything is undone.

    Keyword arguments are configuration keys (``tool`` defaults to the recording tool). ``identity`` takes ``group``,
    ``role``, ``rank`` and the like, ``options`` what the configuration has under ``tools``, ``tools`` the tool classes
    that have their names for the length of the block, also where an installed plug-in brings others of that name.
    """
    from accelprof.catalogue import get_catalogue
    from accelprof.session.configure import configure, reset

    reset()
    get_catalogue().put([backend], tools)
    config.setdefault("tool", "recording")
    if options is not None:
        config["tools"] = options
    with contextlib.ExitStack() as stack:
        place = directory or stack.enter_context(
            tempfile.TemporaryDirectory(prefix="accelprof-", ignore_cleanup_errors=True)
        )
        stack.callback(reset)  # before the directory goes: files may still be written
        config.setdefault("output_dir", place)
        session = configure(accelerator=backend.name, **{"group": "Group", "rank": 0, **(identity or {})}, **config)
        yield Captured(session, session.backend, session.layout.run_dir)
