"""The three worker classes of the demo, as a user would write them: training, rollout and reference."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
import torch
from torch import distributed

from accelprof import Worker, profiling_range
from accelprof.demo.policy import (
    Policy,
    Tensor,
    answer_log_probs,
    answer_mask,
    group_advantages,
    grpo_loss,
    supervised_loss,
)
from accelprof.demo.settings import DemoSettings
from accelprof.demo.task import (
    ANSWER_LENGTH,
    PROMPT_LENGTH,
    all_prompts,
    encode,
    reward,
    sample_prompts,
    worked_example,
)

Weights = dict[str, "np.ndarray[Any, Any]"]


@dataclass
class Trajectories:
    """What a rollout rank hands on; the ``group_size`` answers to one prompt are adjacent.

    ``sequences [samples, SEQUENCE_LENGTH]`` are tokens, ``log_probs [samples, ANSWER_LENGTH]`` those at sampling,
    ``rewards`` is ``[samples]``.
    """

    sequences: np.ndarray[Any, Any]
    log_probs: np.ndarray[Any, Any]
    rewards: np.ndarray[Any, Any]


class _Replica(Worker):
    """One process with a copy of the policy; one thread each, since the workers share the cores."""

    def __init__(self, settings: DemoSettings, rank: int) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(settings.seed)
        self.settings, self.rank = settings, rank
        self.policy = Policy()

    def weights(self) -> Weights:
        return {name: value.detach().numpy().copy() for name, value in self.policy.state_dict().items()}

    def load_weights(self, weights: Weights) -> None:
        # Arrays out of Ray's object store are read-only, which torch warns about; the copy is ours to write.
        self.policy.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in weights.items()})


class ActorWorker(_Replica):
    """One data-parallel rank of the policy under training."""

    def __init__(self, settings: DemoSettings, rank: int, world_size: int) -> None:
        super().__init__(settings, rank)
        self.world_size, self.dawdles, self.busy_s = world_size, False, 0.0
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=settings.warm_up_learning_rate)

    def join(self, store_path: str) -> int:
        """Meet the other ranks through a file both can reach; the demo's workers are all on one machine.

        Loopback is forced because gloo otherwise resolves the host's own name, which fails in many containers.
        """
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if os.uname().sysname == "Darwin" else "lo")
        store = distributed.FileStore(store_path, self.world_size)
        distributed.init_process_group("gloo", store=store, rank=self.rank, world_size=self.world_size)
        return os.getpid()

    @Worker.timer("actor/warm_up")
    def warm_up(self) -> float:
        """Supervised steps on worked examples; returns the last loss. The optimiser starts anew afterwards."""
        settings, loss = self.settings, 0.0
        for number in range(settings.warm_up_steps):
            prompts = sample_prompts(settings.warm_up_batch, seed=number + 1_000_000 * settings.seed)
            examples = torch.tensor([worked_example(prompt) for prompt in prompts[self.rank :: self.world_size]])
            self.optimizer.zero_grad()
            value = supervised_loss(self.policy, examples)
            value.backward()
            self.average_gradients()
            self.optimizer.step()
            loss = value.item()
        self.optimizer = torch.optim.AdamW(
            self.policy.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        return loss

    @Worker.timer("actor/recv_traj")
    def recv_traj(self, references: Sequence[object]) -> float:
        """Wait for one rollout rank's samples and for the reference's log-probabilities, of which this rank's are taken;
        returns the mean reward."""
        trajectories, log_probs = ray.get(list(references), timeout=300)
        self.sequences = torch.from_numpy(trajectories.sequences.copy())
        self.old = torch.from_numpy(trajectories.log_probs.copy())
        self.rewards = torch.from_numpy(trajectories.rewards.copy())
        self.reference = torch.from_numpy(log_probs[self.rank].copy())
        return float(self.rewards.mean())

    @Worker.timer("actor/compute_adv")
    def compute_adv(self) -> float:
        """Group-normalised advantages; returns the share of samples whose group disagreed: only these teach."""
        self.advantages = group_advantages(self.rewards, self.settings.group_size)
        return float((self.advantages != 0).float().mean())

    @Worker.timer("run_training")
    def run_training(self, step: int) -> dict[str, float]:
        """``epochs`` passes of ``mini_batches`` optimiser steps over this rank's samples."""
        order = torch.Generator().manual_seed(self.settings.seed * 1000 + step)
        results = []
        for _ in range(self.settings.epochs):
            shuffled = torch.randperm(len(self.sequences), generator=order)
            results += [self.mini_batch(part) for part in shuffled.chunk(self.settings.mini_batches)]
        return {key: float(np.mean([result[key] for result in results])) for key in results[0]}

    @Worker.timer("actor/mini_batch")
    def mini_batch(self, samples: Tensor) -> dict[str, float]:
        """One optimiser step over ``samples`` (indices), gradients accumulated here and averaged over the ranks."""
        self.optimizer.zero_grad()
        tokens = answer_mask(self.sequences[samples]).sum()
        self.dawdles = self.rank == self.settings.straggler
        asleep_s = self.dawdle_s if self.dawdles else 0.0
        began = time.perf_counter()
        parts = [self.micro_batch(part, tokens) for part in samples.chunk(self.settings.micro_batches)]
        self.busy_s = time.perf_counter() - began - asleep_s
        self.average_gradients()
        with self.worker_timer("actor/opt_step"):
            norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
            self.optimizer.step()
        loss, kl = (float(sum(values)) for values in zip(*parts, strict=True))
        return {"loss": loss, "kl": kl, "grad_norm": float(norm)}

    @property
    def dawdle_s(self) -> float:
        """To be slow on a busy machine too, as long as the work of the mini-batch before took, up to a second."""
        return max(self.settings.straggler_seconds, min(self.busy_s, 1.0))

    @Worker.timer("actor/micro_batch")
    def micro_batch(self, samples: Tensor, tokens: Tensor) -> tuple[float, float]:
        """Forward and backward over ``samples``; returns their share of the mini-batch's mean loss and KL."""
        if self.dawdles:  # once a mini-batch, on the rank that is slow on purpose
            self.dawdles = False
            time.sleep(self.dawdle_s)
        sequences = self.sequences[samples]
        with profiling_range("actor/forward", color="green", domain="model"):
            log_probs = answer_log_probs(self.policy, sequences)
        with profiling_range("actor/loss", color="orange", domain="model"):
            loss, kl = grpo_loss(
                log_probs,
                self.old[samples],
                self.reference[samples],
                self.advantages[samples],
                answer_mask(sequences),
                clip=self.settings.clip,
                kl_weight=self.settings.kl_weight,
            )
        with profiling_range("actor/backward", color="red", domain="model"):
            (loss / tokens).backward()
        return (loss.detach() / tokens).item(), (kl / tokens).item()

    @Worker.timer("actor/all_reduce", category="collective")
    def average_gradients(self) -> None:
        """One all-reduce over all gradients laid end to end: many small ones cost a round trip each."""
        gradients = [parameter.grad for parameter in self.policy.parameters()]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        distributed.all_reduce(flat)
        flat /= self.world_size
        for gradient, part in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    @Worker.timer("actor/sync_model_to_rollout")
    def sync_model_to_rollout(self) -> Weights:
        """The weights, as Ray's object store then has them."""
        return self.weights()

    @Worker.timer("actor/evaluate")
    def accuracy(self) -> float:
        """Share of all prompts whose most likely answer is right."""
        prompts = all_prompts()
        sequences = torch.tensor([encode(prompt) for prompt in prompts])
        with torch.no_grad():
            for _ in range(ANSWER_LENGTH):
                sequences = torch.cat([sequences, self.policy(sequences)[:, -1:].argmax(dim=-1)], dim=1)
        completions = sequences[:, PROMPT_LENGTH:].tolist()
        return sum(map(reward, prompts, completions)) / len(prompts)

    def leave(self) -> None:
        """Leave the process group; otherwise gloo complains about the other rank when the processes end."""
        if distributed.is_initialized():
            distributed.destroy_process_group()


class RolloutWorker(_Replica):
    """One rank that samples answers with the weights it was last given."""

    def __init__(self, settings: DemoSettings, rank: int) -> None:
        super().__init__(settings, rank)
        self.pending: list[Any] = []

    @Worker.timer("rollout/request_weight_sync", category="wait")
    def request_weight_sync(self, reference: Sequence[object]) -> None:
        """Wait until there are new weights; they are fetched when the next generation asks for them."""
        self.pending = list(reference)
        ray.wait(self.pending, timeout=300, fetch_local=False)

    @Worker.timer("rollout/poll_weight_sync")
    def poll_weight_sync(self) -> bool:
        """Wait for the announced weights and load them; ``False`` when none were announced."""
        if not self.pending:
            return False
        ready, _ = ray.wait(self.pending, timeout=60)
        self.load_weights(ray.get(ready[0] if ready else self.pending[0], timeout=60))
        self.pending = []
        return True

    @Worker.timer("rollout/generate")
    def generate(self, step: int) -> Trajectories:
        """Sample ``group_size`` answers to each of this rank's prompts of ``step``."""
        self.poll_weight_sync()
        settings = self.settings
        prompts = sample_prompts(settings.prompts_per_rank * settings.rollouts, seed=settings.seed * 1000 + step)
        sampler = torch.Generator().manual_seed((settings.seed * 1000 + step) * 100 + self.rank)
        parts = [self.generate_one_epoch(prompt, sampler) for prompt in prompts[self.rank :: settings.rollouts]]
        return Trajectories(
            np.concatenate([part.sequences for part in parts]),
            np.concatenate([part.log_probs for part in parts]),
            np.concatenate([part.rewards for part in parts]),
        )

    @Worker.timer("generate_one_epoch")
    def generate_one_epoch(self, prompt: str, sampler: object) -> Trajectories:
        """Sample the answers to one prompt together, and score them."""
        sequences = torch.tensor([encode(prompt)] * self.settings.group_size)
        log_probs = []
        for _ in range(ANSWER_LENGTH):
            sequences, step_log_probs = self.decode_step(sequences, sampler)
            log_probs.append(step_log_probs)
        rewards = [reward(prompt, completion) for completion in sequences[:, PROMPT_LENGTH:].tolist()]
        return Trajectories(
            sequences.numpy(), torch.cat(log_probs, dim=1).numpy(), np.asarray(rewards, dtype=np.float32)
        )

    @Worker.timer("rollout/decode_step")
    def decode_step(self, sequences: Tensor, sampler: object) -> tuple[Tensor, Tensor]:
        """Append one sampled token to each sequence; also its log-probability ``[batch, 1]``."""
        log_probs = self.predict(sequences)
        tokens = torch.multinomial(log_probs.exp(), 1, generator=sampler)
        return torch.cat([sequences, tokens], dim=1), log_probs.gather(-1, tokens)

    @Worker.timer("predict")
    def predict(self, sequences: Tensor) -> Tensor:
        """Log-probabilities ``[batch, vocabulary]`` of the next token."""
        with torch.no_grad():
            return torch.log_softmax(self.policy(sequences)[:, -1], dim=-1)


class ReferenceWorker(_Replica):
    """The policy as it was before reinforcement, frozen."""

    @Worker.timer("ref/load_weights")
    def load_reference(self, reference: Sequence[object]) -> None:
        """Take the weights that ``sync_model_to_rollout`` left in the object store."""
        self.load_weights(ray.get(reference[0], timeout=60))

    @Worker.timer("ref/recv_traj")
    def recv_traj(self, references: Sequence[object]) -> list[Trajectories]:
        """Wait for the samples of all rollout ranks."""
        found: list[Trajectories] = ray.get(list(references), timeout=300)
        return found

    @Worker.timer("ref/compute_log_prob")
    def compute_log_prob(self, references: Sequence[object]) -> list[np.ndarray[Any, Any]]:
        """Log-probability ``[samples, ANSWER_LENGTH]`` of each answer token under the reference, of each rollout rank."""
        found = []
        for trajectories in self.recv_traj(references):
            sequences = torch.from_numpy(trajectories.sequences.copy())
            parts = [self.micro_batch(part) for part in sequences.chunk(self.settings.micro_batches)]
            found.append(torch.cat(parts).numpy())
        return found

    @Worker.timer("ref/micro_batch")
    def micro_batch(self, sequences: Tensor) -> Tensor:
        """The same for the part of the samples that is evaluated at once."""
        with torch.no_grad():
            return answer_log_probs(self.policy, sequences)


def mean_of(results: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean over the ranks, key by key."""
    return {key: float(np.mean([result[key] for result in results])) for key in results[0]}
