"""Interpolations without OmegaConf give what OmegaConf gives."""

from __future__ import annotations

import builtins
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelprof.config.dialects.interpolation import InterpolationError, Resolver
from accelprof.config.dialects.reading import Source

PATHS = ["a", "b", "c.d", "c.e", "c.f.g", "nothing", ".d", "..a", ".f.g", "c", "c.f", "l", "l[1]", "l.0"]
NAMED = [path for path in PATHS if "[" not in path]  # arguments of resolvers have no such brackets
words = st.sampled_from(["x", "1", "-2.5", "null", "true", "text with blanks", "[1,2]", "{k: v}", "'quoted, x'", "[]"])
inner = st.one_of(
    st.sampled_from(PATHS).map(lambda path: f"${{{path}}}"),
    st.tuples(st.sampled_from(NAMED), words).map(lambda pair: f"${{oc.select:{pair[0]},{pair[1]}}}"),
    st.sampled_from(NAMED).map(lambda path: f"${{oc.select:{path}}}"),
    words.map(lambda word: f"${{oc.env:SURELY_NOT_SET,{word}}}"),
    st.tuples(words, words).map(lambda pair: f"${{oc.select:nothing,[{pair[0]},{pair[1]}]}}"),
    st.sampled_from(NAMED).map(lambda path: f"${{oc.select:nothing,${{oc.select:{path},7}}}}"),
)
leaf = st.one_of(
    st.none(), st.integers(-3, 3), st.booleans(), st.sampled_from(["plain", "\\${kept}", "a$b"]), inner,
    inner.map(lambda text: f"before {text} after"),
)  # fmt: skip
mappings = st.fixed_dictionaries(
    {"a": leaf, "b": leaf, "l": st.lists(leaf, min_size=2, max_size=2), "c": st.one_of(inner, st.fixed_dictionaries(
        {"d": leaf, "e": leaf, "f": st.one_of(inner, st.fixed_dictionaries({"g": leaf}))}
    ))}
)  # fmt: skip


def by_omegaconf(mapping, path):
    omegaconf = pytest.importorskip("omegaconf", reason="omegaconf is not installed")
    try:
        found = omegaconf.OmegaConf.select(omegaconf.OmegaConf.create(mapping), path)
        if omegaconf.OmegaConf.is_config(found):
            return omegaconf.OmegaConf.to_container(found, resolve=True)
        return found
    except (omegaconf.errors.OmegaConfBaseException, RecursionError):
        return InterpolationError


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(mappings, st.sampled_from(["a", "b", "c", "c.d", "c.f", "c.f.g", "l"]))
def test_same_as_omegaconf(mapping, path):
    """Any node of any mapping has the value that OmegaConf gives it, or both refuse it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = by_omegaconf(mapping, path)
    resolver = Resolver(mapping)
    try:
        found = resolver.node(tuple(path.split(".")))
    except InterpolationError as error:
        if "circle" in str(error):
            return  # OmegaConf is lazy: a mapping that holds itself is only a circle for who looks inside
        found = InterpolationError
    if found is InterpolationError and expected is None:
        return  # nothing at that path at all: OmegaConf's select says None
    if any(word in repr(expected) for word in ("before [", "before {", "before before")):
        return  # a container inside a text, which OmegaConf prints as it is written
    if expected is InterpolationError and any(
        "${oc.select:." in str(item) or "${." in str(item) for item in mapping["l"]
    ):
        return  # OmegaConf asks a list for a name
    assert found == expected
    assert type(found) is type(expected)


def test_a_mapping_that_is_an_interpolation(monkeypatch):
    """A mapping, a mapping below it and a leaf below that are resolved alike, with OmegaConf and without."""
    mapping = {"one": {"tool": {"npu": {"level": "level2", "discrete": "${x}"}}}, "x": True,
               "two": {"tool": "${oc.select:one.tool,null}"}, "three": "${two}"}  # fmt: skip

    def seen():
        source = Source(mapping)
        return [source.get(f"{name}.tool.npu.level") for name in ("one", "two", "three")], source.get("three")

    real = builtins.__import__

    def without(name, *arguments, **more):
        if name.startswith("omegaconf"):
            raise ImportError(name)
        return real(name, *arguments, **more)

    with_it = seen()
    monkeypatch.setattr(builtins, "__import__", without)
    assert seen() == with_it == (["level2"] * 3, {"tool": {"npu": {"level": "level2", "discrete": True}}})


@pytest.mark.parametrize(
    ("text", "says"),
    [("${a}", "circle"), ("${nobody:x}", "'nobody' is not known"), ("${gone.away}", "'gone.away' not found"), ("${a", "brace")],
)  # fmt: skip
def test_what_cannot_be_resolved(text, says):
    """A circle, a resolver of somebody's framework, a missing key and a missing brace are refused, each by its name."""
    with pytest.raises(InterpolationError, match=says):
        Resolver({"a": text}).node(("a",))
