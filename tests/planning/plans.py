"""Plans for tests that look at the plan alone: made without a catalogue, so tools are names and nobody asks them."""

from __future__ import annotations

from accelprof.config.model import Config
from accelprof.planning.plan import Plan


def make_plan(config: Config) -> Plan:
    """The plan of ``config``, with the contradictions refused that need no target."""
    plan = Plan(config)
    plan.preview()
    return plan
