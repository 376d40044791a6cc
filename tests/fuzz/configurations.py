"""Random and hostile configurations through the one door: each is taken or refused by name, in time and in bounds.

``python tests/fuzz/configurations.py --count 50000 --seed 1`` (``make fuzz``); a failure prints its own seed and input, and
``--only SEED`` tries that one again. :func:`trial` is what the tests in CI run, a few hundred times.
"""

from __future__ import annotations

import argparse
import copy
import functools
import itertools
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy
import yaml

from accelprof.catalogue import Catalogue, make_catalogue
from accelprof.config.door import MAX_VALUES
from accelprof.errors import MAX_MESSAGE, AccelprofError

SECONDS = 10.0
#: on a slow machine: times what the largest file that is taken takes to be parsed; it is twice where it is refused with its place
AS_LARGEST = 3.5
MEMORY = 6 << 30


class NoNumber:
    def __index__(self) -> int:
        raise RuntimeError("no number today")


class Endless:
    """A list without an end, as a generator is one; may be copied, which a generator may not."""

    def __iter__(self) -> Iterator[int]:
        return itertools.count()


class NoList:
    def __iter__(self) -> Iterator[int]:
        raise OSError("gone")


class NoMapping(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter("ab")

    def __len__(self) -> int:
        return 2


class Array:
    """As numpy's and torch's: an index where it has one number, and items."""

    def __init__(self, *items: object) -> None:
        self.items, self.ndim = items, 1

    def __index__(self) -> int:
        raise TypeError("only integer scalar arrays can be converted to a scalar index")

    def __iter__(self) -> Iterator[object]:
        return iter(self.items)


OURS = {
    "steps": [2, "5-7"],
    "tool": "torch",
    "ranks": [0],
    "output_dir": "out",
    "timeline": True,
    "tools": {"torch": {"contents": ["cpu"]}, "nsys": {"t": "cuda,nvtx"}, "trace": {}},
    "groups": {"Actor": [{"roles": ["actor"], "ranks": "all"}, {"roles": ["ref"], "tool": "torch_memory"}], "B": None},
    "schedule": [{"phase": "decode", "wait": 2, "active": 3, "per": "step"}],
    "instrument": [{"target": "torch.optim:SGD.step", "phase": "opt", "when": {"rank": "0-3"}}],
    "budget": {"per_run": "2GiB"},
    "on_demand": {"signal": True, "seconds": 3},
    "controller": {"tool": "torch"},
    "engines": {"vllm": {"profiler": "torch"}},
}
VERL = {
    "global_profiler": {"tool": "torch", "steps": [1, 2], "save_path": "out", "profile_continuous_steps": False},
    "actor_rollout_ref": {
        "actor": {"profiler": {"enable": True, "ranks": [0], "tool_config": {"torch": {"discrete": False}}}},
        "rollout": {"mode": "sync", "profiler": {"enable": True, "all_ranks": True}},
    },
    "trainer": {"profile_interval": [1, 3]},
    "critic": {"profiler": {"enable": "${oc.select:a.b,false}"}},
}
RLINF = {"cluster": {"profiling": {"backend": "nsight", "worker_groups": ["ActorGroup"], "options": {"t": "cuda"}}}}
SEEDS: list[dict[str, Any]] = [OURS, VERL, RLINF, {"accelprof": OURS, **VERL}]
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 3, 1.5, float("nan"), float("inf"), 10**18, 10**21, 10**4000, -(10**30), "", " ", "all", "process",
    "0", "1-3", "3-1", "0-99999999999/2", "0-999999999999999999999", "1-9/0", "1" * 5000, "x" * 100_000, "${", "${a.b}", "${a.b", "???",
    "\x1b[2J", "\x00", "\ud800", "ü/ß", "../../x", "/dev/null/x", "a\nb", [], {}, [[]], [{}], [None], {"": None}, {1: 2}, {None: 1},
    {True: 1}, {(1, 2): 3}, b"bytes", (), range(10**12), {1, 2}, "2020-13-45", "null", "yes", [1] * 300, [[[[[[1]]]]]], "nsys", "npu",
    "kineto", "torch", "level9", ["cpu", "cpu"], range(0, 10**21, 10), range(0, 10**21, 10**20), NoNumber(), Endless(), NoList(), NoMapping(), Array(1, 2), Array(),
    Array(1.5, Array(True)), numpy.array([1, 2]), numpy.array([[0.5]]), numpy.array(3), numpy.bool_(True), numpy.longdouble(1), numpy.array(["1-3"]), "<<", "!!python/object:os.system x",
]  # fmt: skip
#: what a key may well have: half of the mappings are changed with these alone, so that plans are made and not only refused
LIKELY: dict[str, list[Any]] = {
    "steps": [[1], "1-9/2", "all", "process", [2, "5-7"], None, [0, 1, 7, 5000], []], "ranks": [0, "all", [0, 1], "0-3", "1-9/4", []],
    "tool": ["torch", "torch_memory", "trace", "nsys", None], "timeline": [True, False], "contents": [["cpu"], ["cpu", "cuda"], []],
    "roles": [["actor"], ["a*"], None], "phase": ["decode", "*/micro", "train_batch"], "wait": [0, 1, 29], "active": [1, 3, 30],
    "per": ["step", "process", "ref/compute_log_prob"], "seconds": [1, 30.5], "signal": [True, False], "enable": [True, False],
    "all_ranks": [True, False], "save_path": ["x"], "profile_interval": [[1, 1], [2, 5]], "backend": ["nsight", "rocprof_sys"],
    "worker_groups": ["all", ["A"], None], "output_dir": ["o"], "per_run": ["1GiB", None, 5 << 30], "mode": ["sync", "async"],
    "discrete": [True, False], "profile_continuous_steps": [True, False], "rank": [0, "0-3", None], "profiler": ["torch", "cuda", None],
    "options": [{}, {"t": "cuda,nvtx"}], "target": ["torch.optim:SGD.step", "a.b:C.d"],
}  # fmt: skip
TEXTS = [
    "steps: [" + "1," * 300_000 + "]\n", "steps:\n" + "- 1\n" * 300_000, "tools: {" + ",".join(f"k{n}:" for n in range(150_000)) + "}\n",
    "steps: !!float ''\n", "steps: !!int ''\n", "steps: !!timestamp x\n", "steps: !!binary '?'\n", "? [a]\n: b\n", "&a [*a]\n", "a: &a {b: *a}\n",
    "steps: 2020-13-45\n", "[" * 3000, "{a: " * 3000, "- " * 3000, "steps: 0x" + "F" * 4000 + "\n", "%YAML 9.9\n---\na: 1\n", "\t\n", "a: b: c\n",
    "---\na: 1\n---\nb: 2\n", "!!set {a, b}\n", "!!omap [a: 1]\n", "!!pairs [a: 1]\n", "!!merge x\n", "<<: [1]\n", "<<: 3\n", "@\n", "`x`\n",
    "steps: 1e999\n", "steps: .nan\n", "steps: 190:20:30\n", "steps: 0b" + "1" * 9000 + "\n", "on: 1\n1: 2\n'1': 3\n", "a: !x y\n", "\ufeffsteps: [1]\n",
]  # fmt: skip
GOOD = ["steps=[1]", "output_dir=elsewhere", "tool=torch", "ranks=0-9/2", "timeline=false", "budget.per_run=1GiB"]
OVERRIDES = [
    "steps=[1]", "tools.torch.contents=[cpu]", "~steps", "++a.b=1", "+x=", "=", "a", "a..b=1", "steps.x=1", "groups.A.ranks=0-9/2", "steps=[", "steps={",
    "a=" + "[" * 500, "steps=0x" + "F" * 4000, "a.b.c.d.e.f=1", "tools=3", "groups=[]", ".=1", "steps=&a [*a]", "a=\x00", "a" * 5000 + "=1",
]  # fmt: skip


def bomb(rng: random.Random) -> str:
    wide, deep = rng.randint(2, 12), rng.randint(2, 14)
    lines = [f"k0: &k0 [{', '.join('x' * wide)}]"]
    lines += [f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * wide)}]" for n in range(1, deep)]
    return "\n".join([*lines, f"steps: *k{deep - 1}"]) + "\n"


def places(value: Any, depth: int = 8) -> list[tuple[Any, Any]]:
    """Every (container, key) below a value, as deep as the seeds go."""
    found: list[tuple[Any, Any]] = []
    if depth == 0:
        return found
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found.append((value, key))
        found.extend(places(item, depth - 1))
    return found


def mutated(rng: random.Random) -> dict[str, Any]:
    made = copy.deepcopy(rng.choice(SEEDS))
    if rng.random() < 0.5:
        spots = [(where, key) for where, key in places(made) if isinstance(key, str) and key in LIKELY]
        for where, key in rng.sample(spots, rng.randint(1, len(spots))):
            where[key] = copy.deepcopy(rng.choice(LIKELY[key]))
        return made
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        spots = places(made)[:3000]
        if not spots:
            break
        where, key = rng.choice(spots)
        action = rng.randrange(5)
        if action == 0:
            where[key] = rng.choice((True, False, None, [], 0, 1, "all", [0, 1], "torch"))
        elif action == 1:
            where[key] = copy.deepcopy(rng.choice(ODD))
        elif action == 2 and isinstance(where, dict):
            where[rng.choice((f"{key}x", str(key)[:-1], str(key).upper(), 7, None, "accelprof"))] = where.pop(key)
        elif action == 3 and isinstance(where, dict):
            other, from_key = rng.choice(spots)
            where[key] = (
                copy.deepcopy(other[from_key])
                if from_key in (other if isinstance(other, dict) else range(len(other)))
                else None
            )
        elif action == 4 and isinstance(where, list):
            where[key] = where  # contains itself
        else:
            where[key] = [where[key]] * rng.choice((1, 2, 5))
    return made


def text(rng: random.Random) -> str:
    kind = rng.choice((0, 2, 2, 3, 3, 3, 3)) if rng.random() < 0.97 else 1
    if kind == 0:
        return rng.choice(TEXTS)
    if kind == 1:
        return bomb(rng)
    try:
        good = yaml.safe_dump(mutated(rng) if kind == 2 else rng.choice(SEEDS))
    except (yaml.YAMLError, RecursionError, ValueError):
        good = yaml.safe_dump(rng.choice(SEEDS))
    chars = list(good)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(chars))
        chars[at : at + rng.randint(0, 3)] = rng.choice(
            ("", ":", "{", "[", "*", "&a ", "!!", "'", "\t", "\n", "- ", "#", "9" * 30, "${", "|")
        )
    return "".join(chars)


def given(rng: random.Random, place: Path) -> tuple[Any, list[str], dict[str, Any]]:
    """A source, overrides and keyword values."""
    source: Any = mutated(rng)
    if rng.random() < 0.35:
        source = place / "c.yaml"
        source.write_text(text(rng), encoding="utf-8", errors="surrogatepass")
    elif rng.random() < 0.1:
        source = rng.choice((*ODD[:40], [source], place, place / "absent.yaml", source.items()))
    overrides = rng.sample(GOOD, rng.choice((0, 0, 1))) + rng.sample(OVERRIDES, rng.choice((0,) * 7 + (1, 1, 2)))
    values = (
        {rng.choice(("steps", "ranks", "tool", "output_dir", "nonsense")): rng.choice(ODD)}
        if rng.random() < 0.15
        else {}
    )
    return source, overrides, values


@functools.lru_cache
def _seconds_of_the_largest() -> float:
    """Of processor time, that PyYAML takes here for a list of as many values as a file may have."""
    text = f"[{', '.join(['1'] * MAX_VALUES)}]"
    began = time.process_time()
    yaml.safe_load(text)
    return time.process_time() - began


def trial(seed: int, catalogue: Catalogue, place: Path) -> str:
    """``taken`` or ``refused``; anything else raises ``AssertionError`` with what was wrong."""
    source, overrides, values = given(random.Random(seed), place)
    began = time.process_time()
    outcome = "taken"
    try:
        plan = catalogue.plan(catalogue.load(source, overrides, **values).config)
        plan.preview({"Actor": 2, "actor_rollout_ref": 2, "ActorGroup": 2})
        plan.config.model_dump_json()
    except AccelprofError as error:
        outcome = "refused"
        if len(str(error)) > MAX_MESSAGE:
            raise AssertionError(f"a message of {len(str(error)):,} characters") from None
        str(error).encode()
    except (Exception, RecursionError) as error:
        raise AssertionError(f"{type(error).__name__}: {str(error)[:300]}\n{traceback.format_exc()[-1500:]}") from None
    took = time.process_time() - began
    if took > SECONDS and took > AS_LARGEST * _seconds_of_the_largest():
        raise AssertionError(f"{took:.1f} s of processor time")
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    catalogue = make_catalogue()
    seeds = range(asked.seed, asked.seed + asked.count) if asked.only is None else (asked.only,)
    outcomes: Counter[str] = Counter()
    failures = 0
    slowest = (0.0, 0)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        for seed in seeds:
            began = time.process_time()
            try:
                outcomes[trial(seed, catalogue, Path(place))] += 1
            except AssertionError as error:
                failures += 1
                if failures <= 20:
                    print(f"--- seed {seed}: {error}\n", flush=True)
                    if asked.only is not None:
                        print(*given(random.Random(seed), Path(place)), sep="\n")
            slowest = max(slowest, (time.process_time() - began, seed))
    print(
        f"seeds {seeds[0]} to {seeds[-1]}: {dict(outcomes)}, {failures} failed; the slowest took {slowest[0]:.2f} s (seed {slowest[1]}); "
        f"{time.monotonic() - started:.0f} s, {time.process_time():.0f} s of processor time"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
