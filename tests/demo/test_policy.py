"""The mathematics of the demo's training."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from accelprof.demo import policy, task  # noqa: E402  # the import above decides whether this one can work

pytestmark = pytest.mark.torch


def test_advantages_compare_within_the_group_only() -> None:
    """A group that agrees teaches nothing; in another the better answer gains what the worse one loses."""
    advantages = policy.group_advantages(torch.tensor([1.0, 1.0, 0.0, 1.0]), group_size=2)
    assert advantages[:2].tolist() == [0.0, 0.0]
    assert advantages[3].item() == pytest.approx(-advantages[2].item())
    assert advantages[3].item() == pytest.approx(0.7071, abs=1e-3)


def test_tokens_after_the_stop_sign_are_masked() -> None:
    """The stop sign itself counts, what follows it does not, and an answer without one counts whole."""
    sequences = torch.tensor([task.encode("7+5=12.9"), task.encode("7+5=1234")])
    assert policy.answer_mask(sequences).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]


def test_log_probs_do_not_depend_on_later_tokens() -> None:
    """Attention is causal: changing the last token leaves the log-probabilities before it alone."""
    torch.manual_seed(0)
    model = policy.Policy()
    one, other = torch.tensor([task.encode("7+5=12.9")]), torch.tensor([task.encode("7+5=12. ")])
    with torch.no_grad():
        first, second = policy.answer_log_probs(model, one), policy.answer_log_probs(model, other)
    assert torch.equal(first[:, :3], second[:, :3])
    assert not torch.equal(first[:, 3], second[:, 3])


def test_no_gradient_flows_past_the_clip() -> None:
    """A ratio already beyond the clip in the direction of its advantage is left alone."""
    log_probs = torch.tensor([[0.5]], requires_grad=True)
    loss, _ = policy.grpo_loss(
        log_probs,
        old=torch.zeros(1, 1),
        reference=torch.zeros(1, 1),
        advantages=torch.ones(1),
        mask=torch.ones(1, 1),
        clip=0.2,
        kl_weight=0.0,
    )
    loss.backward()
    assert log_probs.grad.item() == 0.0


def test_kl_to_an_equal_reference_is_zero() -> None:
    """The KL estimate vanishes where policy and reference agree and is positive elsewhere."""
    log_probs = torch.tensor([[-1.0, -2.0]])
    same = policy.grpo_loss(log_probs, log_probs, log_probs, torch.zeros(1), torch.ones(1, 2), clip=0.2, kl_weight=1.0)
    other = policy.grpo_loss(
        log_probs, log_probs, log_probs + 0.3, torch.zeros(1), torch.ones(1, 2), clip=0.2, kl_weight=1.0
    )
    assert same[1].item() == 0.0
    assert other[1].item() > 0.0
