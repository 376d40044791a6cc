"""Who this process is, as far as its environment tells. Unknown stays ``None``; nothing falls back to rank 0."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from accelprof.errors import ConfigError, Problem, failures, shown
from accelprof.numberset import whole

#: variables by launcher, tried in order: (what sets them, rank, world size)
RANK_VARIABLES: tuple[tuple[str, str, str], ...] = (
    ("torchrun and most frameworks", "RANK", "WORLD_SIZE"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MPICH, Intel MPI", "PMI_RANK", "PMI_SIZE"),
    ("PMIx", "PMIX_RANK", "PMIX_SIZE"),
    ("MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS"),
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Facts of one process from its environment; ``source`` names the variable that gave the rank, ``problems`` those that
    are set and say no number."""

    rank: int | None = None
    world_size: int | None = None
    source: str = ""
    problems: tuple[str, ...] = ()


def from_environment(env: Mapping[str, str]) -> Identity:
    """Rank and world size by the launchers' variables; one that says no number is passed over and named."""
    problems: list[str] = []
    for _, rank_name, size_name in RANK_VARIABLES:
        rank = _number(env, rank_name, problems)
        if rank is not None:
            size = _number(env, size_name, problems)
            return Identity(rank, size, rank_name, tuple(problems))
    return Identity(problems=tuple(problems))


def host_name() -> str:
    """This node's name as used in targets and file names."""
    return os.uname().nodename


def number_of(name: str, *values: object) -> int | None:
    """The first that is known, as a number; whoever starts a process may give what an environment gave it, as text.

    Raises:
        ConfigError: it is no whole number from 0.
    """
    given = next((value for value in values if value is not None), None)
    if given is None:
        return None
    try:
        number = whole(given, name, text=True)
    except failures():  # a value of the user's may raise whatever it likes where it is asked for a number
        number = -1
    if not 0 <= number < 1 << 63:
        raise ConfigError(
            Problem(
                name, "it is no such number", value=given, allowed="a whole number from 0; None where it is not known"
            )
        )
    return number


def _number(env: Mapping[str, str], name: str, problems: list[str]) -> int | None:
    text = env.get(name)
    try:
        return whole(text, name, text=True) if text else None
    except TypeError:
        problems.append(
            f"{name}={shown(text)} in the environment is no whole number from 0 and is passed over; set it right, or give rank= and world_size="
        )
        return None
