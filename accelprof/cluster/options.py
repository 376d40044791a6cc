"""Actor options for a wrapped start: what the plan needs, merged into what the user already has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from accelprof.registry import Registry
from accelprof.targets import Assignment, Launch, Target


@dataclass
class Promise:
    """What :meth:`Controller.options` said about one worker that does not exist yet."""

    target: Target
    assignment: Assignment
    launch: Launch = field(default_factory=Launch)


class Preflight:
    pass


def sees_devices(options: Mapping[str, Any], registry: Registry) -> bool | None:
    return None


def wrap(
    registry: Registry,
    promise: Promise,
    run_dir: str,
    given: Mapping[str, Any],
    preflight: Preflight,
    report: Callable[[str], None],
) -> dict[str, Any]:
    return dict(given)
