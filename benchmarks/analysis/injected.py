"""Injected truth: known sleeps in known phases of known ranks. Is the culprit named, and is ``whatif`` right?

Each scenario is a step of four processes with one to three all-reduces over gloo and phases between them, all of them sleeps of
known lengths. One phase of one rank is longer on purpose. It is run with that and without; ``whatif`` is asked what the first
would take without, and the second says what it takes. ``python -m benchmarks injected``, or ``make injected``.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import Result, Table

RANKS, STEPS, SCENARIOS = 4, 3, 20
NAMES = ("data", "forward", "backward", "reward", "log_prob", "pack")
#: how much longer than the next rank the last of a collective is made at least
CLEAR_S = 0.05
#: ranks that came to a collective as shortly as this before the last one may be called the last too
TIE_NS = 1_000_000


@dataclass
class Scenario:
    """``segments`` with what was injected, ``plain`` without; ``phase`` of ``rank`` in the segment ``at`` is ``factor`` of what it is."""

    seed: int
    segments: list[dict[str, Any]]
    plain: list[dict[str, Any]]
    at: int
    phase: str
    rank: int
    factor: float

    def last(self, segment: dict[str, Any]) -> int | None:
        """The rank that arrives last at a segment's collective, ``None`` where it is not clear by the plan."""
        arrive = [sum(seconds[rank] for _, seconds in segment["phases"]) for rank in range(RANKS)]
        order = sorted(range(RANKS), key=lambda rank: -arrive[rank])
        return order[0] if arrive[order[0]] - arrive[order[1]] > CLEAR_S * 0.9 else None


def scenario(seed: int) -> Scenario:
    """The same for the same seed. Every collective has a rank that is clearly the last."""
    rng = random.Random(seed)
    plain: list[dict[str, Any]] = []
    names = list(NAMES)
    rng.shuffle(names)
    count = rng.randrange(1, 4)
    for number in range(count):
        phases = []
        for _ in range(2 if count < 3 else 1):
            seconds = [round(rng.uniform(0.05, 0.09), 3)] * RANKS
            phases.append((names.pop(), seconds))
        late = rng.randrange(RANKS)  # whoever is last without anything injected: by CLEAR_S
        phases[-1][1][late] = round(phases[-1][1][late] + CLEAR_S, 3)
        around = "update" if rng.random() < 0.4 else None
        plain.append({"around": around, "phases": phases, "collective": f"all_reduce {number}"})
    at = rng.randrange(count)
    chosen = rng.randrange(len(plain[at]["phases"]))
    phase, rank = plain[at]["phases"][chosen][0], rng.randrange(RANKS)
    extra = round(rng.uniform(0.12, 0.3), 3)
    segments = json.loads(json.dumps(plain))
    taken = segments[at]["phases"][chosen][1]
    was = taken[rank]
    taken[rank] = round(was + extra, 3)
    return Scenario(seed, segments, plain, at, phase, rank, was / taken[rank])


@dataclass
class Outcome:
    """Of one scenario. ``culprits``: by collective and step whether the rank named is the one that came last, as the processes
    noted it themselves; ``as_built``: whether that is the one that was to come last (a busy machine delays others);
    ``phases``: whether the phase named is the one built in; ``real_ns`` and ``predicted_ns``: medians over steps of the run
    without what was injected and of what ``whatif`` said."""

    scenario: Scenario
    culprits: list[bool] = field(default_factory=list)
    as_built: list[bool] = field(default_factory=list)
    phases: list[bool] = field(default_factory=list)
    wall_ns: float = 0.0
    real_ns: float = 0.0
    predicted_ns: float = 0.0
    inside: int = 0

    @property
    def error(self) -> float:
        return self.predicted_ns / self.real_ns - 1


def run_all(scenarios: Sequence[Scenario], directory: Path, timeout: float = 900.0) -> list[Outcome]:
    """Run all in one set of four processes, and read what they left.

    Raises:
        RuntimeError: a process failed; the message has its last lines.
        subprocess.TimeoutExpired: they took longer than ``timeout`` seconds.
    """
    plan = [
        {
            "steps": STEPS,
            "runs": [
                {"name": f"{one.seed}-slow", "segments": one.segments},
                {"name": f"{one.seed}-plain", "segments": one.plain},
            ],
        }
        for one in scenarios
    ]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--master-port", str(port),
        "-m", "benchmarks.analysis.injected_worker", str(directory / "plan.json"), str(directory),
    ]  # fmt: skip
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, errors="replace")
    if done.returncode:
        raise RuntimeError(f"torchrun ended with {done.returncode}: {'; '.join(done.stderr.strip().splitlines()[-3:])}")
    return [outcome(one, directory) for one in scenarios]


def outcome(one: Scenario, directory: Path) -> Outcome:
    """What the analysis says of one scenario's runs, beside what was built in."""
    from accelprof.analysis.critical import scatter
    from accelprof.analysis.summary import summarise
    from accelprof.analysis.whatif import what_if

    found = Outcome(one)
    slow, plain = (summarise(directory / f"{one.seed}-{kind}") for kind in ("slow", "plain"))
    for kind, summary, segments in (("slow", slow, one.segments), ("plain", plain, one.plain)):
        notes = [json.loads((directory / f"{one.seed}-{kind}-rank{rank}.json").read_text()) for rank in range(RANKS)]
        rows = {(row.step, row.phase): row for row in summary.waits.stragglers}
        for step in range(1, STEPS + 1):
            for at, segment in enumerate(segments):
                arrived = [note[step - 1][at] for note in notes]
                late = {f"G/rank{rank}" for rank in range(RANKS) if arrived[rank] >= max(arrived) - TIE_NS}
                row = rows.get((step, segment["collective"]))
                found.culprits.append(row is not None and row.worker in late)
                built = one.last(segment)
                if built is None:
                    continue
                found.as_built.append(late == {f"G/rank{built}"})
                if found.as_built[-1] and kind == "slow" and at == one.at and built == one.rank:
                    found.phases.append(row is not None and row.late_in == one.phase)
    apart = scatter([step.wall_ns for step in slow.waits.of])
    said = [what_if(step, {one.phase: one.factor}, rank=one.rank, scatter_ns=apart) for step in slow.waits.of]
    real = [step.wall_ns for step in plain.waits.of]
    found.wall_ns = median(row["wall_ns"] for row in said)
    found.predicted_ns, found.real_ns = median(row["predicted_ns"] for row in said), median(real)
    found.inside = sum(row["low_ns"] <= found.real_ns <= row["high_ns"] for row in said)
    return found


def run() -> list[Table]:
    """The tables of this benchmark: what was right, and how far off ``whatif`` was in each scenario."""
    title = f"{SCENARIOS} scenarios of {RANKS} processes with known sleeps"
    try:
        import torch.distributed  # noqa: F401
    except ImportError as error:
        return [Table(title, "what was built in", skipped={"all": str(error)})]
    with tempfile.TemporaryDirectory(prefix="accelprof-injected-") as scratch:
        outcomes = run_all([scenario(seed) for seed in range(1, SCENARIOS + 1)], Path(scratch))
    wrong = [right for one in outcomes for right in one.culprits]
    phases = [right for one in outcomes for right in one.phases]
    built = [right for one in outcomes for right in one.as_built]
    rows = [
        Result(f"collectives with the wrong culprit, of {len(wrong)}", float(wrong.count(False)), wrong.count(False) / len(wrong), 0.01),
        Result(f"collectives to which another rank came last than was built in, of {len(built)}", float(built.count(False)), built.count(False) / max(len(built), 1)),
        Result(f"injections with the wrong phase, of {len(phases)}", float(phases.count(False)), phases.count(False) / max(len(phases), 1), 0.01),
    ]  # fmt: skip
    figures = Table(title, "what was built in", rows)
    times = Table("what-if: the step without the sleep, as predicted, beside the real one", "the real step")
    for one in outcomes:
        name = f"{one.scenario.seed}: {one.wall_ns / 1e6:.0f} -> {one.real_ns / 1e6:.0f} ms, without {one.scenario.phase} on rank {one.scenario.rank}"
        times.rows.append(Result(name, one.predicted_ns, 1 + abs(one.error), 1.10))
    return [figures, times]
