"""The task of the demo."""

from __future__ import annotations

from accelprof.demo import task


def test_only_the_exact_answer_is_rewarded() -> None:
    """A right answer without its stop sign, with a leading zero or with more digits earns nothing."""
    earned = {text: task.reward("7+5=", task.encode(text)) for text in ("12. ", "12", "012.", "123.", "1.2.", "-12.")}
    assert earned == {"12. ": 1.0, "12": 0.0, "012.": 0.0, "123.": 0.0, "1.2.": 0.0, "-12.": 0.0}


def test_differences_may_be_negative() -> None:
    """The task has answers below zero, and the reward knows them."""
    assert task.answer("3-8=") == "-5"
    assert task.reward("3-8=", task.encode("-5.9")) == 1.0


def test_every_worked_example_is_rewarded() -> None:
    """What the warm-up teaches is what the reward asks for, and every sequence has the one length."""
    for prompt in task.all_prompts():
        example = task.worked_example(prompt)
        assert len(example) == task.SEQUENCE_LENGTH
        assert task.reward(prompt, example[task.PROMPT_LENGTH :]) == 1.0


def test_prompts_are_spread_evenly_over_the_task() -> None:
    """A step's prompts are distinct, as many sums as differences, and depend on the seed alone."""
    prompts = task.sample_prompts(100, seed=3)
    assert len(set(prompts)) == 100
    assert sum("+" in prompt for prompt in prompts) == 50
    assert prompts == task.sample_prompts(100, seed=3)
    assert prompts != task.sample_prompts(100, seed=4)
