"""Text of anybody's in files: halves of surrogate pairs by their number, what is endless cut, what a format spoils quoted and given back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accelprof.texts import (
    C_TEXT,
    LONGEST,
    PLAIN_C_TEXT,
    bounded,
    dumps,
    encodable,
    from_here,
    listed,
    quoted,
    unquoted,
)

#: halves of surrogate pairs too
ANY = st.text(st.characters(codec=None, categories=None), max_size=20)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("", ""),
        ("plain", "plain"),
        ("größe 😀", "größe 😀"),
        ("a\ud800b", "a\\ud800b"),
        ("\udfff", "\\udfff"),
        ("\ud83d\ude00", "\\ud83d\\ude00"),  # two halves that are no pair: Python keeps pairs as one character
    ],
)
def test_a_half_is_shown_by_its_number(text: str, written: str) -> None:
    """Everything else stays as it is."""
    assert encodable(text) == written
    assert encodable(written) == written


@given(ANY)
def test_what_is_encodable_can_be_written(text: str) -> None:
    """To any file, and once made it stays."""
    made = encodable(text)
    made.encode()
    assert encodable(made) == made
    assert bounded(text) == made


def test_a_long_name_is_cut_in_its_middle_and_two_stay_two() -> None:
    """Its ends, length and checksum stay; one that fits is whole."""
    assert bounded("x" * LONGEST) == "x" * LONGEST
    one, other = "a" * 9000 + "b" * 9000 + "c" * 2000, "a" * 9000 + "B" * 9000 + "c" * 2000
    assert bounded(one) != bounded(other)
    for text in (bounded(one), bounded("\ud800" * 20_000)):
        assert "(20,000 characters, " in text
    assert len(bounded(one)) <= LONGEST
    assert bounded(one).startswith("a" * 1000)
    assert bounded(one).endswith("c" * 1000)
    assert bounded(bounded(one)) == bounded(one)
    bounded("\ud800" * 20_000).encode()


@pytest.mark.parametrize(
    ("values", "most", "text"),
    [
        ([], 3, ""),
        ([1, 2], 3, "1, 2"),
        ([1, 2, 3], 3, "1, 2, 3"),
        (range(5000), 2, "0, 1 and 4,998 more"),
        ({"a": 1}, 1, "a"),
    ],
)
def test_the_first_of_many(values: list[object], most: int, text: str) -> None:
    """And how many more there are."""
    assert listed(values, most) == text


@pytest.mark.parametrize("spoilt", [C_TEXT, PLAIN_C_TEXT], ids=["C", "plain"])
@given(text=ANY)
@example(text="")
@example(text="%%")
@example(text="%")
@example(text="%41%%")
@example(text="a\0b%%")
@example(text="é\0")
@example(text="\ud800\0%00")
@settings(max_examples=300)
def test_what_is_quoted_comes_back(text: str, spoilt: object) -> None:
    """Whatever it holds, and nothing of what the format spoils is in it; a text that needs no quoting is itself."""
    sent = quoted(text, spoilt)  # type: ignore[arg-type]
    assert not spoilt.search(sent)  # type: ignore[attr-defined]
    assert unquoted(sent) == encodable(text)
    if not spoilt.search(text) and "%%" not in text:  # type: ignore[attr-defined]
        assert sent == encodable(text)


@given(st.binary(max_size=12))
@example(b"%ZZ%%")
@example(b"%E9%%")
@example(b"100%%")
def test_what_nobody_quoted_is_no_error(data: bytes) -> None:
    """Names that happen to end as ours do: text comes of each, and one without our signs is as it was."""
    text = data.decode("latin-1")
    assert isinstance(unquoted(text), str)
    if "%" not in text:
        assert unquoted(text) == text
    assert unquoted("100%%") == "100%%"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY, inner, max_size=4),
        max_leaves=12,
    )
)
@example("\\ud800")
@example("\ud83d\\ude00")
@example({"\ud800": ["\udc00\ud800", "\\\ud800"]})
@settings(max_examples=300)
def test_json_is_ascii_that_a_strict_reader_takes(value: object) -> None:
    """The same value comes back, with each half by its number in letters; a strict reader finds no lone one in the text."""

    def written(item: object) -> object:
        if isinstance(item, str):
            return encodable(item)
        if isinstance(item, list):
            return [written(one) for one in item]
        return {encodable(key): written(one) for key, one in item.items()} if isinstance(item, dict) else item

    text = dumps(value)
    assert text.isascii()
    again = json.loads(text)
    json.dumps(again, ensure_ascii=False).encode()
    # two halves that stand together become one character in any JSON
    assert again == json.loads(json.dumps(written(json.loads(json.dumps(value)))))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]])
def test_numbers_that_json_has_not_are_refused(value: object) -> None:
    """Unless somebody wants them."""
    with pytest.raises(ValueError, match="JSON compliant"):
        dumps(value)
    assert "N" in dumps(value, allow_nan=True) or "Inf" in dumps(value, allow_nan=True)


def test_options_are_those_of_json() -> None:
    """Its errors too."""
    assert dumps({"b": 1, "a": [2]}, sort_keys=True, indent=1) == '{\n "a": [\n  2\n ],\n "b": 1\n}'
    with pytest.raises(TypeError):
        dumps(object())


def test_a_path_as_seen_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative to the working directory, and as it is where that was removed."""
    monkeypatch.chdir(tmp_path)
    assert from_here(tmp_path / "a" / "b") == os.path.join("a", "b")
    assert from_here("a") == "a"
    code = (
        "import os, sys, tempfile\nfrom accelprof.texts import from_here\nplace = tempfile.mkdtemp()\nos.chdir(place)\n"
        "os.rmdir(place)\nprint(from_here(sys.argv[1]))"
    )
    ran = subprocess.run([sys.executable, "-c", code, "/a/b"], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "/a/b\n"
