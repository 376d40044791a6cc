"""Messages are bounded, in one line where they say so, and made of any value; names that nearly fit are found in bounded time."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelprof.errors import (
    LONGEST_NAME,
    MAX_MESSAGE,
    AccelprofError,
    ConfigError,
    IncompleteError,
    NotAllowedError,
    NotComparableError,
    PluginError,
    Problem,
    ReadError,
    UnknownFormatError,
    UserError,
    failures,
    nearest,
    nearest_word,
    shown,
    text_of,
)


class Says:
    """A value whose ``repr`` does what it is told."""

    def __init__(self, say: Callable[[], str]) -> None:
        self.say = say

    def __repr__(self) -> str:
        return self.say()


def raises() -> str:
    raise RuntimeError("no words")


ENDLESS: list[object] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (True, "True"),
        (-7, "-7"),
        ("it's", '"it\'s"'),
        ("a\ud800", "'a\\ud800'"),
        (10**6000, "a number of about 6,000 digits"),
        (-(10**6000), "a number of about 6,000 digits"),
        (Says(raises), "a Says"),
        (Says(lambda: 5), "a Says"),  # type: ignore[arg-type, return-value]
        ([10**6000, Says(raises)], "[a number of about 6,000 digits, a Says]"),
        (ENDLESS, "[[[[[...]]]]]"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_value_is_shown_as_it_is_written(value: object, text: str) -> None:
    """Of one that has no words, or too many, what it is."""
    assert shown(value) == text


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10**6,
        b"x" * 10**6,
        list(range(10**5)),
        {str(n): n for n in range(10**5)},
        [["x" * 1000] * 50] * 50,
        Says(lambda: "y" * 10**6),
    ],
    ids=["text", "bytes", "list", "mapping", "nested", "its own words"],
)
def test_a_large_value_is_cut(value: object) -> None:
    """Twice the limit at most, in no time."""
    began = time.perf_counter()
    assert len(shown(value)) <= 2 * 120 + 1
    assert len(shown(value, 20)) <= 2 * 20 + 1
    assert time.perf_counter() - began < 1.0


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=30,
    )
)
@settings(max_examples=200)
def test_whatever_is_given_is_shown(value: object) -> None:
    """Text that can be written anywhere, and within the bound."""
    text = shown(value)
    assert len(text) <= 241
    text.encode()


def test_a_problem_says_where_what_and_how_to_mend_it() -> None:
    """In one line each; what no terminal shows is written out, and every part is cut by itself."""
    problem = Problem("a.b", "is\nodd\x1b[31m", value="x\ny", allowed="1, 2", mend="say 1")
    problem.place = "file.yaml:3"
    assert str(problem) == "file.yaml:3: a.b: is\\nodd\\x1b[31m (got 'x\\ny'); allowed: 1, 2. Mend: say 1"
    assert str(Problem("a", "wrong")) == "a: wrong"
    assert str(Problem("a", "wrong", value=None)) == "a: wrong (got None)"
    long = str(Problem("p" * 9999, "m" * 9999, value="v" * 9999, allowed="a" * 9999, mend="e" * 9999))
    assert len(long) <= MAX_MESSAGE
    for part, limit in (("p", 200), ("m", 600), ("a", 500), ("e", 300)):
        assert part * limit + "…" in long


def test_a_problem_at_another_path_is_another() -> None:
    """Its words are changed by whoever moves it, the first stays as it was."""
    first = Problem("a", "a is odd", value=1, mend="leave a out", code="x")
    second = first.at("b", lambda text: text.replace("a ", "b "))
    assert (str(first), first.path) == ("a: a is odd (got 1). Mend: leave a out", "a")
    assert (str(second), second.code) == ("b: b is odd (got 1). Mend: leave b out", "x")


@pytest.mark.parametrize("count", [1, 5, 100, 20_000])
def test_many_problems_are_counted_in_no_time(count: int) -> None:
    """As many as fit the message are in it, whole, and the number of the others; it took half a minute with some thousands."""
    problems = [Problem(f"groups.g{number}", "x" * 50) for number in range(count)]
    began = time.process_time()
    text = str(ConfigError(*problems))
    assert time.process_time() - began < 1.0
    lines = text.split("\n")
    assert len(text) <= MAX_MESSAGE
    kept = lines if count < 30 else lines[:-1]
    assert kept == [str(problem) for problem in problems[: len(kept)]]
    if count >= 30:
        assert lines[-1] == f"… and {count - len(kept)} more"
        fuller = "\n".join([*map(str, problems[: len(kept) + 1]), f"… and {count - len(kept) - 1} more"])
        assert len(fuller) > MAX_MESSAGE


@pytest.mark.parametrize(
    "error",
    [
        ConfigError(Problem("a", "wrong", value=1), Problem("b", "odd", allowed="2")),
        ReadError("/a/b", "cut at 3"),
        UnknownFormatError("/a/b", "nobody reads it"),
        PluginError("broken"),
        IncompleteError("rank 3"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_come_through_other_processes_whole(error: AccelprofError) -> None:
    """Type, words, exit status and what else they carry."""
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.exit_code) == (type(error), str(error), error.exit_code)
    assert sorted(vars(again)) == sorted(vars(error))


def test_whose_mistake_it_is_is_the_exit_status() -> None:
    """2 the user's, 1 ours; a comparison that cannot be made is the user's, and fails a gate in CI as any failure does."""
    statuses = {
        UserError: 2,
        ConfigError: 2,
        ReadError: 2,
        PluginError: 2,
        NotComparableError: 1,
        IncompleteError: 1,
        AccelprofError: 1,
    }
    assert {error: error.exit_code for error in statuses} == statuses
    refused = NotAllowedError("is odd", "1, 2")
    assert (str(refused), refused.message, refused.allowed) == ("is odd; allowed: 1, 2", "is odd", "1, 2")


@pytest.mark.parametrize(
    ("word", "known", "near"),
    [
        ("stepz", ["steps", "ranks"], "steps"),
        ("steps", ["steps"], "steps"),
        ("profiler_levl", ["level", "contents"], "level"),
        ("zzz", ["steps"], ""),
        ("", ["steps", ""], ""),
        ("steps", [], ""),
        ("a(b[", ["a(b"], "a(b"),
        ("stepz", [None, 7, "steps"], "steps"),
        ("x" * (LONGEST_NAME + 1), ["x" * LONGEST_NAME], ""),
        ("steps", ["s" * 10**6], ""),
    ],
)
def test_the_nearest_name(word: str, known: list[str], near: str) -> None:
    """Also as a part of what was written; nothing where nothing is near, and what is no name is passed over."""
    assert nearest(word, iter(known)) == (f"did you mean {near!r}?" if near else "")


def test_names_are_compared_in_bounded_time() -> None:
    """However many and however long they are."""
    began = time.process_time()
    nearest_word("a" * LONGEST_NAME, (f"{'b' * (LONGEST_NAME - 8)}{number:08}" for number in range(10**6)), 0.6)
    nearest("a_" * 10**5, ["a"])
    assert time.process_time() - began < 5.0


class SaysNothing(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("a\n  b\tc"), "ValueError: a b c"),
        (ValueError(), "ValueError"),
        (KeyError("a"), "KeyError: 'a'"),
        (SystemExit(3), "SystemExit: 3"),
        (SaysNothing(), "SaysNothing: (its text could not be had: RuntimeError)"),
    ],
)
def test_an_exception_in_one_line(error: BaseException, text: str) -> None:
    """With its kind; also where it has no words."""
    assert text_of(error) == text


@pytest.mark.parametrize(
    ("error", "stops"),
    [
        (ValueError, False),
        (SystemExit, False),
        (GeneratorExit, False),
        (BaseException, False),
        (KeyboardInterrupt, True),
    ],
)
def test_what_is_a_plugins_failure(error: type[BaseException], stops: bool) -> None:
    """Whatever it raises, but an interrupt, which is the user's."""
    passed = False
    try:
        try:
            raise error
        except failures():
            pass
    except BaseException:
        passed = True
    assert passed == stops
