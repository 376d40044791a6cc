"""The task of the demo: one-digit sums and differences, written as token sequences, with an exact-match reward.

A prompt is always four tokens (``7+5=``) and an answer at most three with its stop sign (``12.``, ``-3.``); one more is
sampled, so that a wrong answer can run on. A batch is then a rectangle without padding on the left.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

ALPHABET = "0123456789+-=. "
STOP = ALPHABET.index(".")
PAD = ALPHABET.index(" ")
PROMPT_LENGTH = 4
ANSWER_LENGTH = 4
SEQUENCE_LENGTH = PROMPT_LENGTH + ANSWER_LENGTH


def encode(text: str) -> list[int]:
    """Token numbers of ``text``; a character outside ``ALPHABET`` is a ``ValueError``."""
    return [ALPHABET.index(character) for character in text]


def decode(tokens: Iterable[int]) -> str:
    """The text of ``tokens``, up to and without the stop sign."""
    return "".join(ALPHABET[token] for token in tokens).partition(".")[0]


def all_prompts() -> list[str]:
    """Every prompt of the task, in a fixed order: 100 sums and 100 differences."""
    return [f"{left}{sign}{right}=" for sign in "+-" for left in range(10) for right in range(10)]


def answer(prompt: str) -> str:
    """The right answer to ``prompt``, without the stop sign."""
    left, sign, right = int(prompt[0]), prompt[1], int(prompt[2])
    return str(left + right if sign == "+" else left - right)


def reward(prompt: str, completion: Sequence[int]) -> float:
    """1.0 for exactly the right digits followed by the stop sign, else 0.0."""
    tokens = list(completion)
    return float(STOP in tokens and decode(tokens) == answer(prompt))


def worked_example(prompt: str) -> list[int]:
    """Prompt, right answer and stop sign, padded to ``SEQUENCE_LENGTH`` tokens, for the supervised warm-up."""
    tokens = encode(f"{prompt}{answer(prompt)}.")
    return tokens + [PAD] * (SEQUENCE_LENGTH - len(tokens))


def sample_prompts(count: int, seed: int) -> list[str]:
    """``count`` prompts in random order, the same for the same ``seed``; distinct while there are enough.

    One is drawn from each of ``count`` equal stretches of the ordered list, so that the steps are equally hard and the
    reward of one can be compared with that of the next.
    """
    generator = random.Random(seed)
    prompts = all_prompts()
    chosen = [prompts[int((stretch + generator.random()) * len(prompts) / count)] for stretch in range(count)]
    generator.shuffle(chosen)
    return chosen
