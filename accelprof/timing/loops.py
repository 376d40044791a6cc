"""What runs here: which task, greenlet or thread. Libraries are asked only once they are whole, since other threads time calls
while one is imported."""

from __future__ import annotations

import sys
from _thread import get_ident

TYPE_CHECKING = False  # as typing has it, whose import would be a fifth of ours
if TYPE_CHECKING:
    from typing import Any


def loaded(name: str) -> Any | None:
    """The module of this name, if it was imported here to its end; ``None`` while somebody is still at it."""
    module = sys.modules.get(name)
    if module is None or getattr(getattr(module, "__spec__", None), "_initializing", False):
        return None
    return module


def running_loop() -> Any | None:
    """The asyncio loop (or uvloop's) that runs on this thread, or ``None``."""
    asyncio = loaded("asyncio")
    return None if asyncio is None else asyncio._get_running_loop()


def running_task() -> Any | None:
    """The task of asyncio or trio that runs on this thread, or ``None``."""
    asyncio = loaded("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return asyncio.current_task()
    if "trio" in sys.modules:
        trio = loaded("trio")
        try:
            return None if trio is None else trio.lowlevel.current_task()
        except RuntimeError:
            return None  # not under trio
    return None


def greenlets() -> bool:
    """Whether several greenlets may run on one thread."""
    return loaded("gevent") is not None or loaded("eventlet") is not None


def greenlet() -> Any | None:
    """The greenlet that runs here, where gevent or eventlet switches between several on one thread; ``None`` elsewhere."""
    if "gevent" not in sys.modules and "eventlet" not in sys.modules:
        return None
    module = loaded("greenlet")
    here = None if module is None else module.getcurrent()
    return None if here is None or here.parent is None else here


def runner() -> int:
    """Identity of what runs here: the task if there is one, else the greenlet, else the thread."""
    here = running_task()
    if here is None:
        here = greenlet()
    return get_ident() if here is None else id(here)


def overlaps() -> Any | None:
    """Something that is not ``None`` where a plain call may overlap others on this thread, or belongs to a task."""
    here = running_loop()
    return greenlet() if here is None else here
