"""Who this process is, as far as its environment tells. Unknown stays ``None``; nothing falls back to rank 0."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

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
    """Facts of one process from its environment; ``source`` names the variable that gave the rank."""

    rank: int | None = None
    world_size: int | None = None
    source: str = ""


def from_environment(env: Mapping[str, str]) -> Identity:
    """Rank and world size by the launchers' variables; a value that is no number is passed over."""
    for _, rank_name, size_name in RANK_VARIABLES:
        rank = _number(env.get(rank_name))
        if rank is not None:
            return Identity(rank, _number(env.get(size_name)), rank_name)
    return Identity()


def host_name() -> str:
    """This node's name as used in targets and file names."""
    return os.uname().nodename


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else whole(text, "ranks", text=True)
    except TypeError:
        return None
