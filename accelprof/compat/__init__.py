"""The names of verl, RLinf and NeMo-RL over accelprof's engine, and these frameworks themselves.

``accelprof.compat.verl`` and ``accelprof.compat.rlinf`` are for code that is written against those names. ``install``
sends an installed framework's own decorators and timers through accelprof, in this process, and ``uninstall`` takes that
back; nothing is changed on disk. ``ACCELPROF_INSTALL=verl`` (``rlinf``, ``nemo_rl``, several with commas) does the same in every
process of a job whose source nobody wants to touch. See docs/compat.md.
"""

from __future__ import annotations

from types import ModuleType

from accelprof.compat.patching import Patches
from accelprof.errors import UserError, nearest

FRAMEWORKS = ("verl", "rlinf", "nemo_rl")

_patches: dict[str, Patches] = {}

__all__ = ["FRAMEWORKS", "install", "installed", "uninstall"]


def install(name: str, *, any_version: bool = False) -> None:
    """Send the installed framework's decorators and timers through accelprof, in this process. Idempotent.

    Args:
        name: ``verl``, ``rlinf`` or ``nemo_rl``.
        any_version: also take a release that this was not written for; without it such a release is refused.

    Raises:
        UserError: an unknown name, the framework is not installed, or its release is refused.
    """
    module = _module(name)
    if name in _patches:
        return
    patches = Patches()
    try:
        module.install(patches, any_version)
    except BaseException:
        patches.undo()
        raise
    _patches[name] = patches


def uninstall(name: str | None = None) -> None:
    """Give the framework (all of them without a name) its own functions back. Windows that are open are closed."""
    names = list(_patches) if name is None else [name]
    for known in names:
        _module(known)
        patches = _patches.pop(known, None)
        if patches is not None:
            patches.undo()


def installed() -> tuple[str, ...]:
    """Frameworks that go through accelprof in this process."""
    return tuple(_patches)


def _module(name: str) -> ModuleType:
    """A framework's module with ``install(patches, any_version)``."""
    if name == "verl":
        from accelprof.compat import verl_install

        return verl_install
    if name == "rlinf":
        from accelprof.compat import rlinf_install

        return rlinf_install
    if name == "nemo_rl":
        from accelprof.compat import nemo_rl_install

        return nemo_rl_install
    near = nearest(name, FRAMEWORKS)
    raise UserError(f"compat: unknown framework {name!r}; allowed: {', '.join(FRAMEWORKS)}. {near}".rstrip(". "))
