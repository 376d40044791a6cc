"""A decoder-only transformer small enough to train on one core in seconds, and the mathematics of GRPO on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from accelprof.demo.task import ALPHABET, PAD, PROMPT_LENGTH, SEQUENCE_LENGTH, STOP

Tensor = Any  # torch.Tensor, whose stubs are not followed here


@dataclass(frozen=True)
class PolicyShape:
    """Sizes of the network: ``width`` features, ``heads`` attention heads, ``layers`` blocks."""

    width: int = 64
    heads: int = 4
    layers: int = 2


class Block(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Pre-norm attention and feed-forward."""

    def __init__(self, shape: PolicyShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm_attention, self.norm_forward = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)
        self.forward_net = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width), nn.GELU(), nn.Linear(4 * shape.width, shape.width)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        qkv = self.qkv(self.norm_attention(hidden)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return hidden + self.forward_net(self.norm_forward(hidden))


class Policy(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Next-token logits ``[batch, length, vocabulary]`` for tokens ``[batch, length]``."""

    def __init__(self, shape: PolicyShape | None = None) -> None:
        super().__init__()
        shape = shape or PolicyShape()
        self.tokens = nn.Embedding(len(ALPHABET), shape.width)
        self.positions = nn.Embedding(SEQUENCE_LENGTH, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, len(ALPHABET), bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


def answer_log_probs(policy: Policy, sequences: Tensor) -> Tensor:
    """Log-probability ``[batch, ANSWER_LENGTH]`` of each answer token of ``sequences [batch, SEQUENCE_LENGTH]``."""
    logits = policy(sequences[:, :-1])[:, PROMPT_LENGTH - 1 :]
    targets = sequences[:, PROMPT_LENGTH:]
    return functional.log_softmax(logits, dim=-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def answer_mask(sequences: Tensor) -> Tensor:
    """1.0 up to and with the first stop sign, where a token was really generated; ``[batch, ANSWER_LENGTH]``."""
    stops = (sequences[:, PROMPT_LENGTH:] == STOP).long()
    return ((stops.cumsum(dim=1) - stops) == 0).float()


def supervised_loss(policy: Policy, sequences: Tensor) -> Tensor:
    """Mean cross-entropy over the answer tokens, padding left out."""
    keep = (sequences[:, PROMPT_LENGTH:] != PAD).float()
    return -(answer_log_probs(policy, sequences) * keep).sum() / keep.sum()


def group_advantages(rewards: Tensor, group_size: int) -> Tensor:
    """Rewards ``[groups * group_size]`` minus their group's mean over its deviation; a group that agrees gets zeros."""
    grouped = rewards.view(-1, group_size)
    centred = grouped - grouped.mean(dim=1, keepdim=True)
    return (centred / (grouped.std(dim=1, keepdim=True) + 1e-4)).reshape(-1)


def grpo_loss(
    log_probs: Tensor,
    old: Tensor,
    reference: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip: float,
    kl_weight: float,
) -> tuple[Tensor, Tensor]:
    """Sums over the tokens of the batch: clipped surrogate plus ``kl_weight`` times KL, and the KL to the reference.

    KL is estimated per token as ``r - log r - 1`` with ``r = reference / policy``, which is never negative.
    ``log_probs``, ``old``, ``reference`` and ``mask`` are ``[batch, ANSWER_LENGTH]``, ``advantages`` is ``[batch]``.
    """
    ratio = (log_probs - old).exp()
    weights = advantages.unsqueeze(-1)
    surrogate = torch.minimum(ratio * weights, ratio.clamp(1 - clip, 1 + clip) * weights)
    log_ratio = reference - log_probs
    kl = log_ratio.exp() - log_ratio - 1
    return ((kl_weight * kl - surrogate) * mask).sum(), (kl.detach() * mask).sum()
