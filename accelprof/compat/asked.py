"""``ACCELPROF_INSTALL``: the frameworks that a job's processes install, and how it reaches processes that are started with it."""

from __future__ import annotations

from collections.abc import Mapping

from accelprof.environment import STARTUP, join_env

ENV = "ACCELPROF_INSTALL"


def environment(env: Mapping[str, str], frameworks: str | None = None) -> dict[str, str]:
    """Variables that make Python processes started with them install: ``ACCELPROF_INSTALL`` and a longer ``PYTHONPATH``."""
    named = frameworks or env.get(ENV, "")
    if not named:
        return {}
    return join_env({"PYTHONPATH": env.get("PYTHONPATH", "")}, {ENV: named, "PYTHONPATH": STARTUP})
