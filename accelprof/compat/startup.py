"""``ACCELPROF_INSTALL=verl`` (``rlinf``, ``verl,rlinf``): the installation happens where the framework is first imported.

Importing this watches for that import. What imports it: verl itself, through its entry-point group ``verl.plugins``;
``accelprof run``; RLinf's workers, when their driver is installed; anything that has :func:`environment`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import wrapt

from accelprof.compat.asked import ENV, environment

__all__ = ["ENV", "TRIGGERS", "environment", "names", "watch"]

#: framework -> the module whose import means that everything we replace is there
TRIGGERS = {"verl": "verl.utils.profiler", "rlinf": "rlinf.scheduler", "nemo_rl": "nemo_rl.utils.timer"}

log = logging.getLogger("accelprof")
_watched: set[str] = set()


def names(env: Mapping[str, str]) -> list[str]:
    """Frameworks that ``ACCELPROF_INSTALL`` names; an unknown one is said and left out."""
    found = [name.strip() for name in env.get(ENV, "").split(",") if name.strip()]
    for name in found:
        if name not in TRIGGERS:
            log.warning("accelprof: %s=%s names no framework; allowed: %s", ENV, env[ENV], ", ".join(TRIGGERS))
    return [name for name in found if name in TRIGGERS]


def watch() -> None:
    """Install each named framework as soon as it is imported; at once where it is already."""
    for name in names(os.environ):
        if name not in _watched:
            _watched.add(name)
            wrapt.register_post_import_hook(_hook(name), TRIGGERS[name])


def _hook(name: str) -> Any:
    def imported(module: object) -> None:
        from accelprof import compat
        from accelprof.errors import AccelprofError

        try:
            compat.install(name)
        except AccelprofError as error:  # the job goes on with the framework's own profiler
            log.warning("accelprof: %s is not installed over %s: %s", ENV, name, error)
        except Exception as error:  # noqa: BLE001 - this runs inside the job's own import, which must not fail of it
            log.warning("accelprof: %s is not installed over %s: %s: %s", ENV, name, type(error).__name__, error)

    return imported


watch()
