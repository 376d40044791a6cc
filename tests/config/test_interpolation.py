"""Interpolations without OmegaConf give what OmegaConf gives."""

from __future__ import annotations

import builtins
import random
import sys
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelprof.config.dialects import BUILTIN
from accelprof.config.dialects.interpolation import InterpolationError, Resolver
from accelprof.config.dialects.reading import Source
from accelprof.config.load import load_config
from accelprof.errors import ConfigError

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


def plain(value):
    """What a resolver made may hold nodes; as plain values, with everything in them resolved."""
    from omegaconf import OmegaConf

    if OmegaConf.is_config(value):
        return plain(OmegaConf.to_container(value, resolve=True))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def by_omegaconf(mapping, path):
    omegaconf = pytest.importorskip("omegaconf", reason="omegaconf is not installed")
    try:
        found = omegaconf.OmegaConf.select(omegaconf.OmegaConf.create(mapping), path)
        return plain(found)
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
    except InterpolationError:
        found = InterpolationError
    if expected is InterpolationError and any(
        "${oc.select:." in str(item) or "${." in str(item) for item in mapping["l"]
    ):
        return  # OmegaConf asks a list for a name
    assert found == expected
    assert type(found) is type(expected)


def test_below_a_list_that_a_resolver_made_is_nothing():
    """OmegaConf takes such a list for a leaf: asked for a name in it, a default is taken; a list of the file is no leaf."""
    made = {"b": "${oc.select:c.d,x}", "c": "${oc.select:nothing,[x,x]}"}
    assert by_omegaconf(made, "b") == Resolver(made).node(("b",)) == "x"
    with pytest.raises(InterpolationError, match="a list has no 'd'"):
        Resolver({**made, "c": ["x"]}).node(("b",))


@pytest.mark.parametrize(
    ("written", "key", "value"),
    [("${c}", "g", InterpolationError), ("${c}", "d", InterpolationError), ("${oc.select:c}", "g", None), ("${oc.select:c}", "d", 1),
     ("${oc.select:c,7}", "d", 1), ("${b}", "x", 2)],
)  # fmt: skip
def test_a_reference_to_what_it_stands_in(written, key, value):
    """OmegaConf refuses ``${c}`` inside ``c`` whatever is asked of it, and follows ``oc.select`` there."""
    mapping = {"b": {"x": 2}, "c": {"d": 1, "f": written}}
    assert by_omegaconf(mapping, f"c.f.{key}") == value
    try:
        found = Resolver(mapping).node(("c", "f", key))
    except InterpolationError:
        found = InterpolationError
    assert found == value


BITS = ["\\", "\\\\", "\\,", "\\:", "\\ ", "\\}", "\\{", "\\[", "\\(", "\\=", "\\'", "\\${", "\\\\${a}", "\\\\\\${a}", "\\n", "$", "$$", "%", "@", "?", "|", "+",
        "-", "/", "!", "#", "*", "&", ";", "^", "(", ")", "=", ".", "é", "\t", " ", "1", "x", "null", "True", "1e3", ".5e3", "1_000", "-inf", "nan",
        ".5", "5.", "1__0", "01"]  # fmt: skip
WHOLE = ["two words", "[1,2]", "{k: v}", "{1: a, b: null}", "[]", "{}", "''", "'it\\'s'", '"q"', "'a, b'", "'\\\\'", "'${a}'", "'\\${a}'", "'\\\\${a}'",
         "[1, [2, x]]", "{a: {b: 1}}", "a:b", "a: b", "http://x/y", "[,]", "{,}", "'x' y", "[1] y", "x[1]", "{x}"]  # fmt: skip


def argument(rng, depth=0):
    kind = rng.randrange(8)
    if kind < 2:
        return rng.choice(WHOLE)
    if kind < 5:
        return "".join(rng.choices(BITS, k=rng.randint(1, 3)))
    if kind < 7 or depth > 1:
        return f"'{''.join(rng.choices(BITS, k=rng.randint(0, 3)))}'"
    return interpolated(rng, depth + 1)


def interpolated(rng, depth=0):
    path = rng.choice(["a", "b", "c.d", "c", "nothing", "l", "c.f.g", "l.0", ".a", "..a", "5"])
    return rng.choice((
        lambda: f"${{{path}}}",
        lambda: f"${{{rng.choice(['l[1]', '[a]', 'c[d]', 'c[f][g]', ' a ', 'a .', '', 'a..b', '${b}', 'c.${l.1}'])}}}",
        lambda: f"${{oc.select: {path} , {argument(rng, depth)} }}",
        lambda: f"${{oc.env:SURELY_NOT_SET,{argument(rng, depth)}}}",
        lambda: f"${{oc.create:{rng.choice(['{x: ${a}}', '[1, ${b}]', 'q', '5', '${c}', '{x: {y: 2}}', '[]', 'null'])}}}",
        lambda: f"${{oc.create:'{rng.choice(['q: 1', '[1, 2]', 'q: ${a}', 'x: [', '- 1', '', 'word'])}'}}",
        lambda: f"${{oc.deprecated:{path}{rng.choice(['', ',old', ',5', ',a,b'])}}}",
        lambda: f"${{oc.decode:{argument(rng, depth)}}}",
        lambda: f"${{oc.dict.{rng.choice(['keys', 'values'])}:{path}}}",
        lambda: f"${{oc.select:nothing,[{argument(rng, depth)},{argument(rng, depth)}]}}",
        lambda: f"${{oc.{rng.choice(['env', 'select', 'decode', 'create'])}:}}",
    ))()  # fmt: skip


@pytest.mark.parametrize("block", range(20))
def test_every_spelling_as_omegaconf_reads_it(block):
    """Escapes, quotes, numbers, lists, mappings and every resolver without a framework: the same value of the same type, or both
    refuse. Not compared: what OmegaConf itself trips over."""
    omegaconf = pytest.importorskip("omegaconf", reason="omegaconf is not installed")
    errors = omegaconf.errors.OmegaConfBaseException
    compared = 0
    for seed in range(block * 150, block * 150 + 150):
        rng = random.Random(seed)
        around = (
            rng.choice(["", "", "t ", "\\", "\\\\", "$", "{"]),
            rng.choice(["", "", " t", "\\", "\\\\", "}", "$", ":"]),
        )
        text = "".join(rng.choices(BITS, k=4)) if rng.random() < 0.2 else interpolated(rng).join(around)
        mapping = {"a": rng.choice([1, "x", "v", None, [1]]), "b": rng.choice(["a", "c", 2]), "t": text, "l": [1, "d"],
                   "c": {"d": 5, "f": {"g": "deep"}}}  # fmt: skip
        try:
            found = Resolver(mapping).node(("t",))
        except InterpolationError:
            found = InterpolationError
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = plain(omegaconf.OmegaConf.create(mapping).t)
            except errors as error:
                if "AssertionError" in str(error) or "KeyValidationError" in str(error):
                    continue
                expected = InterpolationError
        compared += 1
        assert (repr(found), type(found)) == (repr(expected), type(expected)), (seed, mapping)
    assert compared > 100


INSIDE = ["${c}", "${l}", "${z}", "${zz}", "${zzz}", "${c.e}", "${c.ref}", "${l[3]}", "${made}", "${oc.select:c}", "${oc.select:zz}", "${oc.deprecated:z}",
          "${oc.select:nothing,${c}}", "${oc.select:nothing,[1,${z}]}", "${oc.select:nothing,{x: ${z}}}", "${oc.select:nothing,[1,${a}]}", "${oc.create:{x: ${a}}}",
          "${oc.create:'{x: \\${a}}'}", "${oc.create:${z}}", "${oc.create:[${z},${made}]}", "${oc.dict.keys:c}", "${oc.dict.values:c}", "${oc.dict.values:.z}",
          "${oc.env:SURELY_NOT_SET,${z}}", "${oc.env:SURELY_NOT_SET,'x ${z}'}", "${oc.env:SURELY_NOT_SET,[${z}]}", "${oc.decode:'${zz}'}",
          "${a.${z}}", "${oc.select:nothing,x${z}}", "${oc.select:nothing,${oc.select:nothing,[${z}]}}", "${.}", "${..}"]  # fmt: skip


@pytest.mark.parametrize("around", [("", ""), ("t ", ""), ("", " t"), ("${a}", "${z}")])
@pytest.mark.parametrize("written", INSIDE)
def test_a_container_inside_a_text(written, around):
    """It is printed as it stands in the file, with the interpolations in it; alone it is resolved."""
    text = written.join(around)
    mapping = {"a": 1, "c": {"d": "${a}", "e": {"f": "${c.d}"}, "n": None, "l": ["${a}", 2.5, True], 5: "it's", "ref": "${z}"}, "t": text,
               "l": ["${a}", "x", None, {"k": "${a}"}], "z": {"q": "${a}"}, "zz": "${z}", "zzz": "${zz}", "made": "${oc.create:{x: ${a}}}",
               "below": {"t": text, "z": {"q": "${..t2}", "t2": 3}}}  # fmt: skip
    for path in ("t", "below.t"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = by_omegaconf(mapping, path)
        try:
            found = Resolver(mapping).node(tuple(path.split(".")))
        except InterpolationError:
            found = InterpolationError
        assert (repr(found), type(found)) == (repr(expected), type(expected))


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


PROF = {"tool": "npu", "steps": [2], "save_path": "out/${global_profiler.tool}", "other": "${only_the_frameworks:x}"}


@pytest.mark.parametrize("with_it", [True, False])
@pytest.mark.parametrize(
    "form", ["${zz.prof}", "${oc.select:zz.prof}", "${oc.select:nothing,${zz.prof}}", "${zz.again}", "${..prof}"]
)
def test_a_section_that_refers_to_itself(monkeypatch, form, with_it):
    """What an interpolation stands for is resolved leaf by leaf: it may name the place that it is put in, and hold what only its
    framework resolves."""
    if not with_it:
        monkeypatch.setitem(sys.modules, "omegaconf", None)
    mapping = {"zz": {"prof": PROF, "again": "${.prof}"}, "global_profiler": form.replace("${..", "${zz.")}
    source = Source(mapping)
    assert source.get("global_profiler.save_path") == "out/npu"
    assert source.get("global_profiler.steps") == [2]
    assert source.get("global_profiler.nothing") is None
    assert source.get("global_profiler.tool.deeper") is None
    assert source.problems == []
    assert source.get("global_profiler.other") is None
    assert [problem.path for problem in source.problems] == ["global_profiler.other"]


@pytest.mark.parametrize("with_it", [True, False])
def test_a_file_whose_profiler_refers_to_itself(monkeypatch, with_it):
    """The same through the front door."""
    if not with_it:
        monkeypatch.setitem(sys.modules, "omegaconf", None)
    prof = {key: value for key, value in PROF.items() if key != "other"}
    mapping = {
        "prof": prof,
        "global_profiler": "${prof}",
        "actor_rollout_ref": {"actor": {"profiler": {"enable": True, "ranks": [0]}}},
    }
    loaded = load_config(mapping, dialects=BUILTIN)
    assert (loaded.config.output_dir, loaded.config.tool, list(loaded.config.steps)) == ("out/npu", "npu", [2])


@pytest.mark.parametrize("with_it", [True, False])
@pytest.mark.parametrize(
    ("mapping", "dialect", "steps"),
    [
        ({"cluster": "${c}", "c": {"profiling": {"backend": "nsight", "worker_groups": ["A"], "steps": [3]}}}, "rlinf", [3]),
        ({"cluster": {"profiling": "${p}"}, "p": {"backend": "nsight", "worker_groups": ["A"], "steps": "${s}"}, "s": [3]}, "rlinf", [3]),
        ({"trainer": "${t}", "t": {"profile_interval": [2, 3]}, "profiler": {"enable": True}}, "verl", [2, 3]),
        ({"trainer": "${t}", "t": {"profile_steps": [2]}, "critic": {"profiler": {"all_ranks": True}}}, "verl", [2]),
        ({"global_profiler": "${g}", "g": {"tool": "torch", "steps": [2]}, "critic": {"profiler": {"enable": True}}}, "verl", [2]),
        ({"accelprof": {"steps": "${global_profiler.steps}"}, "global_profiler": {"steps": [4]}}, "accelprof", [4]),
        ({"accelprof": "${mine}", "mine": {"steps": [7]}, "global_profiler": {"steps": [4]}}, "accelprof", [7]),
    ],
)  # fmt: skip
def test_a_section_that_is_an_interpolation_is_recognised(monkeypatch, mapping, dialect, steps, with_it):
    """Whose file it is, and our own section in a larger file, are found through interpolations, with OmegaConf and without."""
    if not with_it:
        monkeypatch.setitem(sys.modules, "omegaconf", None)
    loaded = load_config(mapping, dialects=BUILTIN)
    assert (loaded.dialect, list(loaded.config.steps)) == (dialect, steps)


def test_our_own_section_that_cannot_be_resolved():
    """It is refused with its key and the mend, not read as text."""
    with pytest.raises(ConfigError, match=r"^accelprof: the interpolation cannot be resolved.*gone.*--resolve"):
        load_config({"accelprof": {"steps": "${gone}"}}, dialects=BUILTIN)


@pytest.mark.parametrize(
    ("text", "says"),
    [("${a}", "circle"), ("${nobody:x}", "'nobody' is not known"), ("${gone.away}", "'gone.away' not found"), ("${a", "brace")],
)  # fmt: skip
def test_what_cannot_be_resolved(text, says):
    """A circle, a resolver of somebody's framework, a missing key and a missing brace are refused, each by its name."""
    with pytest.raises(InterpolationError, match=says):
        Resolver({"a": text}).node(("a",))
