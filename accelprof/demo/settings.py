"""The numbers of the demo's training, in one place; every worker gets the same object."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DemoSettings:
    """What the loop does; the defaults finish in well under a minute on two cores.

    Attributes:
        steps: reinforcement-learning steps, numbered from 1.
        seed: of the weights, the prompts and the sampling.
        actors: data-parallel ranks of ``ActorGroup``.
        rollouts: ranks of ``RolloutGroup``; each generates for the actor rank of its own number.
        prompts_per_rank: prompts a rollout rank answers in a step, with four decode steps each.
        group_size: answers sampled for one prompt, and the number of sequences decoded together.
        epochs: passes over a step's trajectories.
        mini_batches: optimiser steps in one pass.
        micro_batches: forward and backward passes accumulated for one optimiser step, and in one reference evaluation.
        warm_up_steps: supervised steps before the first step, so that some answers are right and there is something to
            reinforce.
        warm_up_batch: worked examples in one of these, over all ranks.
        learning_rate: of the reinforcement phase (the warm-up takes ``warm_up_learning_rate``).
        clip: of the probability ratio, either side of 1.
        kl_weight: of the KL to the frozen reference.
        straggler: actor rank that is slow on purpose, in ``actor/micro_batch``; ``None`` = no rank is.
        straggler_seconds: what that rank sleeps in each mini-batch, or as long as the work of the one before took where that is
            more (up to a second).
    """

    steps: int = 6
    seed: int = 0
    actors: int = 2
    rollouts: int = 2
    prompts_per_rank: int = 50
    group_size: int = 8
    epochs: int = 4
    mini_batches: int = 4
    micro_batches: int = 8
    warm_up_steps: int = 100
    warm_up_batch: int = 64
    warm_up_learning_rate: float = 3e-3
    learning_rate: float = 1e-3
    clip: float = 0.2
    kl_weight: float = 0.02
    straggler: int | None = None
    straggler_seconds: float = 0.1
