"""NVTX domains that record. ``nvtx`` >= 0.2.12 under Nsight Systems up to 2023.4 hands out dummies that record nothing.

Those nvtx versions ask the tool for a payload extension of version 0x0104; the older tools answer only to 0x0103, the
question fails, and every domain becomes a ``DummyDomain``: no range, no window, no report, exit status 0. Where the
tool is there all the same (``NVTX_INJECTION64_PATH``), the real domain class works, so it is made directly.
"""

from __future__ import annotations

import os
from typing import Any

from accelprof.versions import installed

INJECTION_ENV = "NVTX_INJECTION64_PATH"
DISABLE_ENV = "NVTX_DISABLE"
OLDEST = "0.2.12"

_domains: dict[str, object] = {}
#: names of domains that had to be made around nvtx's dummy
forced: list[str] = []
_kept: list[bool] = []


def domain(name: str) -> Any:
    """The one ``nvtx`` domain of this name in this process, recording whenever a tool is listening.

    Raises:
        ImportError: nvtx is not installed, or too old to have ``Domain.push_range``.
    """
    found = _domains.get(name)
    if found is None:
        found = _domains[name] = _make(name)
    return found


def injected() -> bool:
    """Whether this process was started under an NVTX tool."""
    return bool(_kept or os.environ.get(INJECTION_ENV))


def keep_injected() -> None:
    """Remember that a tool is here, before its variable is hidden from child processes."""
    if injected():
        _kept.append(True)


def recorded(name: str) -> bool:
    """Whether ranges of this domain go to a tool, rather than to nvtx's dummy."""
    return type(domain(name)).__name__ != "DummyDomain"


def reason_not_importable() -> str | None:
    """Why nvtx cannot be used here, or ``None``; imports it."""
    try:
        import nvtx  # type: ignore[import-untyped]
        from nvtx._lib.lib import Domain  # type: ignore[import-untyped]
    except ImportError as error:
        return f"nvtx cannot be imported ({error}); pip install 'nvtx>={OLDEST}'"
    if not hasattr(Domain, "push_range"):
        return f"nvtx {version()} is too old ({nvtx.__file__}); pip install 'nvtx>={OLDEST}'"
    return None


def version() -> str:
    """Version of the installed nvtx; empty when there is none."""
    return installed("nvtx") or ""


def _make(name: str) -> object:
    reason = reason_not_importable()
    if reason is not None:
        raise ImportError(reason)
    import nvtx
    from nvtx._lib.lib import Domain, DomainHandle, DummyDomain

    if os.environ.get(DISABLE_ENV):
        return DummyDomain()  # nvtx itself asks this for annotate only
    made = nvtx.get_domain(name)
    if not isinstance(made, DummyDomain) or not injected():
        return made
    real = object.__new__(Domain)
    real.handle = DomainHandle(name)
    real.__init__(name)
    forced.append(name)
    return real
