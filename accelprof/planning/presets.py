"""Presets: which methods of which release of a framework stand for what people ask for. Data, and how to choose from it.

Names were checked in the released packages named beside each table; where a name was read but not run, the comment says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from accelprof.config.model import Config
from accelprof.errors import Problem, nearest
from accelprof.versions import within


@dataclass(frozen=True, slots=True)
class Site:
    """One method.

    Attributes:
        target: ``package.module:Class.method``.
        phase: what it is timed as.
        versions: releases of the preset's distribution that have it, ``>=0.8.5,<0.11``; empty = all.
        when: facts as under ``instrument``.
        rank: attribute path that gives an engine process its rank within the engine; empty where the launcher tells it.
        refused: this method exists, but what the preset stands for cannot be had where it is called; the text says why,
            and is said the first time it is called.
        part: ``each``, ``loop``, ``begin``, ``end`` where the phase is a turn of a loop and no call (see ``session/loops.py``).
    """

    target: str
    phase: str
    versions: str = ""
    when: Mapping[str, Any] = field(default_factory=dict)
    rank: str = ""
    refused: str = ""
    part: str = ""


@dataclass(frozen=True, slots=True)
class Preset:
    """A set of methods of one distribution; ``refused`` names why a preset of this name cannot be had at all."""

    distribution: str
    sites: tuple[Site, ...] = ()
    refused: str = ""
    mend: str = ""

    def sites_for(self, version: str) -> tuple[Site, ...]:
        """Those of release ``version``; empty when the tables know none."""
        return tuple(site for site in self.sites if within(version, site.versions))

    def ranges(self) -> str:
        """The releases that the table knows, for messages."""
        return "; ".join(dict.fromkeys(site.versions or "all" for site in self.sites if not site.refused))


_MEGATRON = "Megatron schedules its micro-batches inside the framework, so there is no method to time; take {mend}"

# verl 0.9.1 (wheel), 0.5.0-0.9.0 (tags; wheels 0.5.0, 0.6.1, 0.7.0, 0.7.1). The role stages are what `per:` of a schedule can name.
_VERL = "verl.workers.engine_workers"
_VALUES = {"config.model_type": "value_model"}
_VERL_STAGES = (
    Site(f"{_VERL}:ActorRolloutRefWorker.update_actor", "actor/update_policy", ">=0.7.0"),
    Site(f"{_VERL}:ActorRolloutRefWorker.compute_log_prob", "actor/compute_log_prob", ">=0.7.0"),
    Site(f"{_VERL}:ActorRolloutRefWorker.compute_ref_log_prob", "ref/compute_log_prob", ">=0.7.0"),
    # the critic is a bare TrainingWorker there, as is what the actor holds inside
    Site(f"{_VERL}:TrainingWorker.train_mini_batch", "critic/update", ">=0.7.0", _VALUES),
    Site(f"{_VERL}:TrainingWorker.infer_batch", "critic/compute_values", ">=0.7.0", _VALUES),
    *(
        Site(f"verl.workers.{place}:{target}", phase, "<0.8")
        for place in ("fsdp_workers", "megatron_workers")
        for target, phase in (
            ("ActorRolloutRefWorker.update_actor", "actor/update_policy"),
            ("ActorRolloutRefWorker.compute_log_prob", "actor/compute_log_prob"),
            ("ActorRolloutRefWorker.compute_ref_log_prob", "ref/compute_log_prob"),
            ("CriticWorker.update_critic", "critic/update"),
            ("CriticWorker.compute_values", "critic/compute_values"),
        )
    ),
)
_VERL_ENGINE = "verl.workers.engine"

# RLinf 0.3.0 (wheel).
_RLINF_FSDP = "rlinf.workers.actor.fsdp_actor_worker"
_RLINF_MEGATRON = "rlinf.workers.megatron_worker"
_RLINF_STAGES = (
    Site(f"{_RLINF_FSDP}:FSDPActor.run_training", "actor/run_training"),
    Site(f"{_RLINF_FSDP}:FSDPActor.run_inference", "actor/run_inference"),
    Site(f"{_RLINF_FSDP}:EmbodiedFSDPActor.run_training", "actor/run_training"),
    Site(f"{_RLINF_MEGATRON}:MegatronWorker.run_training", "actor/run_training"),
)

# the few methods that a user of these wants to see, checked in the wheels of areal 1.0.4, openrlhf 0.11.2 and skyrl 0.3.0;
# OpenRLHF's actors are classes of Ray from the start, so their parts are timed in the plain classes they use
_AREAL = "areal.engine"
_OPENRLHF = "openrlhf.trainer"
_SKYRL = "skyrl.backends.skyrl_train.workers"
_OTHERS: dict[str, Preset] = {
    "areal": Preset(
        "areal",
        (
            *(
                Site(f"{_AREAL}.{module}:{cls}.{method}", phase, ">=1.0,<2")
                for module, cls in (("fsdp_engine", "FSDP"), ("megatron_engine", "Megatron"))
                for cls, method, phase in (
                    (f"{cls}PPOActor", "ppo_update", "actor/ppo_update"),
                    (f"{cls}PPOActor", "compute_logp", "actor/compute_logp"),
                    (f"{cls}PPOActor", "compute_advantages", "actor/compute_advantages"),
                    (f"{cls}Engine", "train_batch", "train/mini_batch"),
                    (f"{cls}Engine", "forward_backward_batch", "train/forward_backward"),
                    (f"{cls}Engine", "optimizer_step", "train/optimizer"),
                    (f"{cls}Engine", "update_weights", "sync_weights"),
                )
            ),
            Site("areal.infra.remote_inf_engine:RemoteInfEngine.rollout_batch", "rollout/batch", ">=1.0,<2"),
            Site("areal.infra.remote_inf_engine:RemoteInfEngine.prepare_batch", "rollout/prepare_batch", ">=1.0,<2"),
        ),
    ),
    "openrlhf": Preset(
        "openrlhf",
        (
            Site(f"{_OPENRLHF}.ray.ppo_actor:ActorPPOTrainer.ppo_train", "actor/train", ">=0.11,<0.12"),
            Site(f"{_OPENRLHF}.ray.ppo_actor:ActorPPOTrainer.training_step", "actor/micro_batch", ">=0.11,<0.12"),
            Site(f"{_OPENRLHF}.ray.ppo_actor:ActorPPOTrainer.broadcast_to_vllm", "sync_weights", ">=0.11,<0.12"),
            Site(f"{_OPENRLHF}.ray.ppo_critic:CriticPPOTrainer.ppo_train", "critic/train", ">=0.11,<0.12"),
            Site(f"{_OPENRLHF}.ray.ppo_critic:CriticPPOTrainer.training_step", "critic/micro_batch", ">=0.11,<0.12"),
            Site("openrlhf.utils.deepspeed.deepspeed:DeepspeedStrategy.backward", "train/backward", ">=0.11,<0.12"),
            Site("openrlhf.utils.deepspeed.deepspeed:DeepspeedStrategy.optimizer_step", "train/optimizer", ">=0.11,<0.12"),
            Site("openrlhf.models.actor:Actor.forward", "actor/forward", ">=0.11,<0.12"),
            Site(f"{_OPENRLHF}.ppo_utils.samples_generator:SamplesGenerator.generate_samples", "rollout/generate", ">=0.11,<0.12"),
            Site(f"{_OPENRLHF}.ppo_utils.experience_maker:RemoteExperienceMaker.make_experience_batch", "experience", ">=0.11,<0.12"),
        ),
    ),
    "skyrl": Preset(
        "skyrl",
        (
            *(
                Site(f"{_SKYRL}.worker:{cls}WorkerBase.{method}", f"{role}/{phase}", ">=0.3,<0.4")
                for cls, role in (("Policy", "policy"), ("Critic", "critic"))
                for method, phase in (
                    ("forward_backward", "forward_backward"),
                    ("_forward_backward_micro", "micro_batch"),
                    ("optim_step", "optimizer"),
                    ("forward", "forward"),
                )
            ),
            Site(f"{_SKYRL}.worker:RefWorkerBase.forward", "ref/forward", ">=0.3,<0.4"),
            Site(f"{_SKYRL}.fsdp.fsdp_worker:FSDPPolicyWorkerBase.broadcast_to_inference_engines", "sync_weights", ">=0.3,<0.4"),
            Site(f"{_SKYRL}.megatron.megatron_worker:MegatronPolicyWorkerBase.forward_backward", "policy/forward_backward", ">=0.3,<0.4"),
            Site(f"{_SKYRL}.megatron.megatron_worker:MegatronPolicyWorkerBase.optim_step", "policy/optimizer", ">=0.3,<0.4"),
            Site("skyrl.train.trainer:RayPPOTrainer.generate", "rollout/generate", ">=0.3,<0.4"),
            Site("skyrl.train.trainer:RayPPOTrainer.fwd_logprobs_values_reward", "experience/forward", ">=0.3,<0.4"),
            Site("skyrl.train.trainer:RayPPOTrainer.compute_advantages_and_returns", "experience/advantages", ">=0.3,<0.4"),
            Site("skyrl.train.trainer:RayPPOTrainer.train_critic_and_policy", "train", ">=0.3,<0.4"),
        ),
    ),
}  # fmt: skip

BUILTIN: dict[str, Preset] = {
    **_OTHERS,
    "verl.micro_batch": Preset(
        "verl",
        (
            # the forward half: FSDP's backward runs outside it, in the loop of forward_backward_batch
            Site(f"{_VERL_ENGINE}.fsdp.transformer_impl:FSDPEngineWithLMHead.forward_step", "micro_batch", ">=0.6.1"),
            Site(
                f"{_VERL_ENGINE}.torchtitan.transformer_impl:TorchTitanEngineWithLMHead.forward_step",
                "micro_batch",
                ">=0.7.1",
            ),
            Site(
                f"{_VERL_ENGINE}.automodel.transformer_impl:AutomodelEngineWithLMHead.forward_step",
                "micro_batch",
                ">=0.8.0",
            ),
            # what the guides edit; removed with 0.8.0
            Site("verl.workers.actor.dp_actor:DataParallelPPOActor._forward_micro_batch", "micro_batch", "<0.8"),
            Site(
                f"{_VERL_ENGINE}.megatron.transformer_impl:MegatronEngine.forward_backward_batch",
                "micro_batch",
                ">=0.7.0",
                refused=_MEGATRON.format(mend="verl.mini_batch"),
            ),
            Site(
                "verl.workers.actor.megatron_actor:MegatronPPOActor.forward_backward_batch",
                "micro_batch",
                "<0.8",
                refused=_MEGATRON.format(mend="verl.mini_batch"),
            ),
            *_VERL_STAGES,
        ),
    ),
    "verl.megatron.micro_batch": Preset("verl", refused=_MEGATRON.format(mend="a mini-batch"), mend="verl.mini_batch"),
    "verl.mini_batch": Preset(
        "verl",
        (
            Site(f"{_VERL}:TrainingWorker.train_batch", "mini_batch", ">=0.7.0"),
            # the older actors' and critics' mini-batches are turns of a loop. Megatron's goes over what this method returns, so
            # that a turn is all of it, the optimizer's step included; log-probabilities are not taken over it
            Site(
                "verl.workers.actor.megatron_actor:MegatronPPOActor.make_minibatch_iterator",
                "mini_batch",
                "<0.8",
                part="each",
            ),
            Site(
                "verl.workers.critic.megatron_critic:MegatronPPOCritic.make_minibatch_iterator",
                "mini_batch",
                "<0.8",
                part="each",
            ),
            # FSDP's: from the first micro-batch's forward to the end of the optimizer's step
            *(
                Site(f"verl.workers.{place}.{method}", "mini_batch", "<0.8", part=part)
                for place, loop in (
                    ("actor.dp_actor:DataParallelPPOActor", "update_policy"),
                    ("critic.dp_critic:DataParallelPPOCritic", "update_critic"),
                )
                for method, part in ((loop, "loop"), ("_forward_micro_batch", "begin"), ("_optimizer_step", "end"))
            ),
            *_VERL_STAGES,
        ),
    ),
    # one call = one scheduled batch on a tensor- or pipeline-parallel rank, whatever the model runner. sdists 0.8.5-0.33.0
    "vllm.decode_step": Preset(
        "vllm",
        (
            Site("vllm.v1.worker.gpu_worker:Worker.execute_model", "rollout/decode_step", ">=0.8.5", rank="rank"),
            Site(
                "vllm.worker.worker_base:LocalOrDistributedWorkerBase.execute_model",
                "rollout/decode_step",
                ">=0.8.5,<0.11.0",
                rank="rank",
            ),
        ),
    ),
    # tags v0.7.3-v0.25.1rc1; the module moved, and before 0.13 the newer name is a worker without this method
    "vllm_ascend.decode_step": Preset(
        "vllm-ascend",
        (
            Site(
                "vllm_ascend.worker.worker_v1:NPUWorker.execute_model",
                "rollout/decode_step",
                ">=0.7.3,<0.13.0rc1",
                rank="rank",
            ),
            Site(
                "vllm_ascend.worker.worker:NPUWorker.execute_model", "rollout/decode_step", ">=0.13.0rc1", rank="rank"
            ),
        ),
    ),
    # one call = one batch, prefill or decode (its argument's forward_mode tells). wheels 0.4.6-0.5.23
    "sglang.batch": Preset(
        "sglang",
        (Site("sglang.srt.managers.scheduler:Scheduler.run_batch", "rollout/batch", ">=0.4.6", rank="tp_rank"),),
    ),
    "rlinf.micro_batch": Preset(
        "rlinf",
        (
            Site(f"{_RLINF_FSDP}:FSDPActor.forward_batch", "micro_batch"),  # forward only, as run_inference uses it
            Site(f"{_RLINF_FSDP}:EmbodiedFSDPActor.train_micro_batch", "micro_batch"),
            Site(
                f"{_RLINF_MEGATRON}:MegatronWorker.training_step",
                "micro_batch",
                refused=_MEGATRON.format(mend="rlinf.training_step"),
            ),
            *_RLINF_STAGES,
        ),
    ),
    "rlinf.megatron.micro_batch": Preset(
        "rlinf", refused=_MEGATRON.format(mend="a training step"), mend="rlinf.training_step"
    ),
    "rlinf.training_step": Preset(
        "rlinf",
        (
            Site(f"{_RLINF_FSDP}:FSDPActor.training_step", "training_step"),
            Site(f"{_RLINF_MEGATRON}:MegatronWorker.training_step", "training_step"),
            Site("rlinf.workers.actor.fsdp_sac_policy_worker:EmbodiedSACFSDPPolicy.update_one_epoch", "training_step"),
            *_RLINF_STAGES,
        ),
    ),
}


def check(config: Config, presets: Mapping[str, Preset]) -> list[Problem]:
    """Presets of the configuration that nobody brings, or that cannot be had, with the mend."""
    problems = []
    for index, name in enumerate(config.presets):
        path = f"presets[{index}]"
        preset = presets.get(name)
        if preset is None:
            problems.append(
                Problem(
                    path,
                    "no such preset",
                    value=name,
                    allowed=", ".join(sorted(name for name, item in presets.items() if not item.refused)),
                    mend=nearest(name, presets),
                )
            )
        elif preset.refused:
            problems.append(Problem(path, preset.refused, value=name, mend=preset.mend))
    return problems
