"""Phases that are turns of somebody's loop: mini-batches of verl before 0.8, over classes of the same shape.

The shape was read in the wheels 0.5.0, 0.6.1, 0.7.0 and 0.7.1; 0.7.1's own ``DataParallelPPOActor`` was tried with it by hand.
"""

from __future__ import annotations

import importlib
import sys
import textwrap
from typing import Any

import pytest

from accelprof.session.instrument import Instruments, Item
from accelprof.testing import capture

MEGATRON = """
    class MegatronPPO{role}:
        def __init__(self, log, fail_at=None):
            self.log, self.fail_at = log, fail_at
        def make_minibatch_iterator(self, data):
            return iter(data)
        def compute_log_prob(self, data):
            return self.forward_backward_batch(data, forward_only=True)
        def forward_backward_batch(self, data, forward_only=False):
            self.log("forward only" if forward_only else f"forward {{data}}")
        def {update}(self, dataloader):
            for data in dataloader:
                self.log(f"zero_grad {{data}}")
                self.forward_backward_batch(data)
                if data == self.fail_at:
                    raise ValueError(data)
                self.log(f"optimizer {{data}}")
"""
FSDP = """
    class DataParallelPPO{role}:
        def __init__(self, log, fail_at=None):
            self.log, self.fail_at = log, fail_at
        def _forward_micro_batch(self, data):
            self.log(f"forward {{data}}")
        def _optimizer_step(self):
            self.log("optimizer")
        def compute_log_prob(self, data):
            self._forward_micro_batch("only")
        def {update}(self, data):
            for number in data:
                for micro in "ab":
                    self._forward_micro_batch(f"{{number}}{{micro}}")
                if number == self.fail_at:
                    raise ValueError(number)
                self._optimizer_step()
"""
WORKER = """
    class ActorRolloutRefWorker:
        def __init__(self, actor): self.actor = actor
        def update_actor(self, data): {update_actor}
        def compute_log_prob(self, data): return self.actor.compute_log_prob(data)
        def compute_ref_log_prob(self, data): return self.actor.compute_log_prob(data)
    class CriticWorker:
        def __init__(self, critic): self.critic = critic
        def update_critic(self, data): {update_critic}
        def compute_values(self, data): return self.critic.compute_log_prob(data)
"""


@pytest.fixture
def verl(tmp_path, monkeypatch):
    """A package ``verl`` of release 0.7.1 with its older actors, critics and workers."""
    files = {
        "workers/actor/megatron_actor.py": MEGATRON.format(role="Actor", update="update_policy"),
        "workers/critic/megatron_critic.py": MEGATRON.format(role="Critic", update="update_critic"),
        "workers/actor/dp_actor.py": FSDP.format(role="Actor", update="update_policy"),
        "workers/critic/dp_critic.py": FSDP.format(role="Critic", update="update_critic"),
        "workers/megatron_workers.py": WORKER.format(
            update_actor="self.actor.update_policy(self.actor.make_minibatch_iterator(data))",
            update_critic="self.critic.update_critic(self.critic.make_minibatch_iterator(data))",
        ),
        "workers/fsdp_workers.py": WORKER.format(
            update_actor="self.actor.update_policy(data)", update_critic="self.critic.update_critic(data)"
        ),
    }
    for place in ("", "workers", "workers/actor", "workers/critic"):
        (tmp_path / "verl" / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / "verl" / place / "__init__.py").write_text("")
    for name, text in files.items():
        (tmp_path / "verl" / name).write_text(textwrap.dedent(text))
    facts = tmp_path / "verl-0.7.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: verl\nVersion: 0.7.1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "verl"]:
        monkeypatch.delitem(sys.modules, name)
    yield importlib.import_module
    for name in [name for name in sys.modules if name.partition(".")[0] == "verl"]:
        del sys.modules[name]


def worker_of(load: Any, kind: str, role: str, log: Any, **more: Any) -> Any:
    place = {"megatron": f"megatron_{role}", "fsdp": f"dp_{role}"}[kind]
    inner = getattr(
        load(f"verl.workers.{role}.{place}"),
        {"megatron": "MegatronPPO", "fsdp": "DataParallelPPO"}[kind] + role.title(),
    )
    outer = "ActorRolloutRefWorker" if role == "actor" else "CriticWorker"
    return getattr(load(f"verl.workers.{kind}_workers"), outer)(inner(log, **more))


@pytest.mark.parametrize("per", ["step", "stage"])
@pytest.mark.parametrize("role", ["actor", "critic"])
@pytest.mark.parametrize("kind", ["megatron", "fsdp"])
def test_the_first_mini_batch_with_its_optimizer_step(verl, kind, role, per):
    """The window holds the first mini-batch of the update, its optimizer's step in it; what only computes forward is none."""
    stage = {"actor": "actor/update_policy", "critic": "critic/update"}[role]
    schedule = {"phase": "mini_batch", "per": "step" if per == "step" else stage, "active": 1}
    seen: list[tuple[str, bool]] = []
    with capture(tool=None, presets=["verl.mini_batch"], steps=[1, 2], schedule=schedule) as run:
        worker = worker_of(verl, kind, role, lambda text: seen.append((text, run.session.window is not None)))
        update, only = (
            (worker.update_actor, worker.compute_log_prob)
            if role == "actor"
            else (worker.update_critic, worker.compute_values)
        )
        for step in (1, 2):
            with run.session.step(step):
                only([0])
                update([0, 1, 2])
        assert [
            (row["steps"], row["schedule"]["calls"], row["schedule"]["partial"]) for row in run.session.windows
        ] == [
            ([1], 1, False),
            ([2], 1, False),
        ]
        assert run.session.close()["problems"] == []
    inside = [text for text, is_open in seen if is_open]
    first = (
        ["zero_grad 0", "forward 0", "optimizer 0"] if kind == "megatron" else ["forward 0a", "forward 0b", "optimizer"]
    )
    assert inside == first * 2


@pytest.mark.parametrize("kind", ["megatron", "fsdp"])
def test_every_mini_batch_is_one_phase(verl, kind):
    """Over a whole step the turns are counted as the loop makes them, and an exception ends the turn it came in."""
    from accelprof import timing_stats

    with capture(presets=["verl.mini_batch"], steps=[1]) as run:
        worker = worker_of(verl, kind, "actor", lambda text: None, fail_at=2)
        with run.session.step(1):
            with pytest.raises(ValueError, match="2"):
                worker.update_actor([0, 1, 2, 3])
            worker.update_actor([5, 6])
        assert run.backend.labels().count("mini_batch") == 5
        assert run.backend.balanced()
        assert timing_stats()["mini_batch"]["count"] == 5
        assert [row["kind"] for row in run.session.windows] == ["step"]


def test_closed_a_loop_is_the_users_own(verl):
    """While nothing is open the method's own result goes through, and what was put in is taken out again."""
    megatron = verl("verl.workers.actor.megatron_actor").MegatronPPOActor
    original = vars(megatron)["make_minibatch_iterator"]
    said: list[str] = []
    made = Instruments(
        [Item("verl.workers.actor.megatron_actor:MegatronPPOActor.make_minibatch_iterator", "m", part="each")],
        said.append,
    )
    made.install()
    data = [1, 2]
    assert vars(megatron)["make_minibatch_iterator"] is not original
    assert list(megatron(print).make_minibatch_iterator(data)) == data
    assert type(megatron(print).make_minibatch_iterator(data)) is type(iter(data))
    made.uninstall()
    assert vars(megatron)["make_minibatch_iterator"] is original
    assert said == []


def test_a_method_that_is_no_plain_one_is_no_part_of_a_loop(verl):
    """A property or a coroutine has no turns; that is said where the instrument would have come."""
    module = verl("verl.workers.actor.megatron_actor")
    module.MegatronPPOActor.rest = property(lambda self: [])
    said: list[str] = []
    made = Instruments([Item("verl.workers.actor.megatron_actor:MegatronPPOActor.rest", "m", part="each")], said.append)
    made.install()
    made.say_what_never_came()
    made.uninstall()
    assert "no part of a loop" in said[0]
