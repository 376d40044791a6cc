"""The registry: a bad plug-in is refused by name, its reason is kept, and the others go on."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from accelprof.catalogue import make_catalogue
from accelprof.config.model import Config
from accelprof.contracts import hookspecs
from accelprof.contracts.backend import Backend, Probe
from accelprof.contracts.tool import Tool
from accelprof.errors import ConfigError, PluginError, UnavailableError
from accelprof.testing import RecordingBackend, RecordingTool

hookimpl = hookspecs.hookimpl


def plugin(**hooks):
    return SimpleNamespace(**{name: hookimpl(function, specname=name) for name, function in hooks.items()})


def backend(name, aliases=(), priority=1, reason="there"):
    def probe(self):
        if isinstance(priority, Exception):
            raise priority
        return Probe(priority, reason)

    return type(f"{name.title()}Backend", (Backend,), {"name": name, "aliases": aliases, "probe": probe})


@pytest.fixture
def registry():
    return make_catalogue(entry_points=False)


def test_the_core_works_with_no_plugin(registry, monkeypatch):
    """Without any plug-in there is the cpu backend and the built-in tools, and cpu is detected."""
    monkeypatch.delenv("ACCELPROF_ACCELERATOR", raising=False)
    assert registry.backend_names() == ["cpu"]
    assert {"trace", "torch", "torch_memory"} <= set(registry.tool_names())
    assert registry.detect().backend.name == "cpu"
    assert registry.broken == []


def test_names_and_aliases_without_regard_to_case(registry):
    """A backend is found by its name or an alias, in any case."""
    registry.register(plugin(accelprof_backends=lambda: [backend("npx", ("NP_X", "vendor"))]), "npx")
    for name in ("npx", "NPX", "np_x", "Vendor"):
        assert registry.backend_class(name).name == "npx"


def test_detection_order(registry, monkeypatch):
    """Explicit name, then environment, then configuration, then the highest priority; ``auto`` is no name."""
    registry.register(
        plugin(accelprof_backends=lambda: [backend("low", priority=5), backend("high", priority=50)]), "two"
    )
    monkeypatch.delenv("ACCELPROF_ACCELERATOR", raising=False)
    assert registry.detect(config_value="auto").backend.name == "high"
    assert registry.detect(config_value="low").backend.name == "low"
    monkeypatch.setenv("ACCELPROF_ACCELERATOR", "cpu")
    assert registry.detect(config_value="low").backend.name == "cpu"
    assert registry.detect("high", "low").backend.name == "high"


def test_unavailable_keeps_its_reason(registry):
    """Asking for a backend that cannot work gives its probe's reason; a probe that raises is a reason too."""
    registry.register(
        plugin(accelprof_backends=lambda: [backend("gone", priority=None, reason="no driver 42")]), "gone"
    )
    registry.register(
        plugin(accelprof_backends=lambda: [backend("crash", priority=OSError("libx.so: missing"))]), "crash"
    )
    with pytest.raises(UnavailableError, match="no driver 42"):
        registry.detect("gone")
    with pytest.raises(UnavailableError, match=r"libx\.so: missing"):
        registry.detect("crash")
    assert registry.detect().backend.name == "cpu"


def test_unknown_name_gives_the_nearest(registry):
    """A misspelt name is answered with what is registered and the nearest match."""
    with pytest.raises(PluginError, match=r"registered: cpu.*"):
        registry.backend_class("cup")
    with pytest.raises(PluginError, match="did you mean 'torch'"):
        registry.tool_class("troch")


def test_a_name_taken_twice_is_refused(registry):
    """The second plug-in that brings a name (or an alias) is refused, with the first's name; nothing is last-wins."""
    first = backend("dup")
    registry.register(plugin(accelprof_backends=lambda: [first]), "one")
    for clash in (backend("dup"), backend("other", aliases=("DUP",))):
        with pytest.raises(PluginError, match="taken by plug-in 'one'"):
            registry.register(plugin(accelprof_backends=lambda cls=clash: [cls]), f"two-{clash.name}")
    assert registry.backend_class("dup") is first
    assert [broken.name for broken in registry.broken] == ["two-dup", "two-other"]
    with pytest.raises(PluginError, match="registered already"):
        registry.register(plugin(), "one")


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        ({"accelprof_backends": lambda: "cpu"}, "a list or tuple is expected"),
        ({"accelprof_backends": lambda: [Backend]}, "without a name"),
        ({"accelprof_backends": lambda: [object]}, "a subclass of accelprof.contracts.backend.Backend is expected"),
        ({"accelprof_tools": lambda: [RecordingBackend]}, "a subclass of accelprof.contracts.tool.Tool is expected"),
        ({"accelprof_tools": lambda: 1 / 0}, "ZeroDivisionError"),
        ({"accelprof_backends": lambda: sys.exit(3)}, "SystemExit: 3"),
    ],
)
def test_a_bad_plugin_is_refused_by_name(registry, hooks, message):
    """What breaks the contract is refused with who, which method, what was found and what was expected; nothing of it stays."""
    with pytest.raises(PluginError, match=message):
        registry.register(plugin(**hooks), "bad")
    assert registry.broken[0].name == "bad"
    assert "bad" not in registry.plugins
    assert registry.backend_names() == ["cpu"]


def test_wrong_hook_arguments_and_unknown_hooks_are_refused(registry):
    """A hook with an argument that it does not have, and a hook that does not exist, are named."""

    class WrongArgument:
        @hookimpl
        def accelprof_plan_ready(self, plan, nonsense):
            return None

    class NoSuchHook:
        @hookimpl
        def accelprof_backend(self):
            return []

    with pytest.raises(PluginError, match="nonsense"):
        registry.register(WrongArgument(), "wrong")
    with pytest.raises(PluginError, match="did you mean 'accelprof_backends'"):
        registry.register(NoSuchHook(), "unknown")
    assert len(registry.broken) == 2


BROKEN = {
    "own_import": ("import a_module_that_does_not_exist_anywhere", "ModuleNotFoundError"),
    "below_import": ("from json import no_such_thing", "ImportError"),
    "syntax": ("def broken(:\n    pass", "SyntaxError"),
    "shared_object": ("raise OSError('libvendor.so.1: cannot open shared object file')", "libvendor.so.1"),
    "leaves": ("import sys; sys.exit(4)", "SystemExit: 4"),
}


def test_broken_entry_points_stop_nobody(tmp_path, monkeypatch):
    """B61: distributions whose entry point raises are kept with their reason, a good one beside them loads."""
    for name, (source, _) in BROKEN.items():
        _distribution(tmp_path, name, source)
    _distribution(tmp_path, "good", GOOD)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    registry = make_catalogue()
    reasons = {broken.name: broken for broken in registry.broken}
    for name, (_, reason) in BROKEN.items():
        assert reason in reasons[name].reason
        assert reasons[name].distribution == f"dist-{name.replace('_', '-')}"
    assert "goodacc" in registry.backend_names()
    with pytest.raises(PluginError, match="cannot open shared object file"):
        registry.backend_class("shared_object")


GOOD = """
import accelprof
from accelprof.contracts.backend import Backend, Probe
class GoodBackend(Backend):
    name = "goodacc"
    def probe(self): return Probe(1, "good")
@accelprof.hookimpl
def accelprof_backends(): return [GoodBackend]
"""


def test_a_plug_in_of_another_version_of_the_core_is_refused_with_the_mend(tmp_path, monkeypatch):
    """A distribution that asks for versions that this core has not is not loaded, and says what to install."""
    for name, asks in (
        ("old", "accelprof<0.1"),
        ("new", "accelprof>=7"),
        ("fits", "accelprof>=0.1,<0.2"),
        ("extra", 'accelprof>9; extra == "x"'),
    ):
        source = GOOD.replace("goodacc", f"acc{name}")
        _distribution(tmp_path, name, source, f"Requires-Dist: {asks}\nRequires-Dist: other>=2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    registry = make_catalogue()
    assert {"accfits", "accextra"} <= set(registry.backend_names())
    reasons = {broken.name: broken.reason for broken in registry.broken}
    for name, asked in (("old", "<0.1"), ("new", ">=7")):
        assert f"acc{name}" not in registry.backend_names()
        assert f"dist-{name} 1.0 works with accelprof {asked}, this is " in reasons[name]
        assert f"pip install --upgrade accelprof dist-{name}" in reasons[name]


def _distribution(place, name, source, more=""):
    (place / f"mod_{name}.py").write_text(source)
    info = place / f"dist_{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dist-{name.replace('_', '-')}\nVersion: 1.0\n{more}")
    (info / "entry_points.txt").write_text(f"[accelprof]\n{name} = mod_{name}\n")


def test_events_isolate_failures(registry, caplog):
    """One plug-in that raises in an event is named once and the others are told."""
    told = []
    registry.register(plugin(accelprof_plan_ready=lambda plan: 1 / 0), "raises")
    registry.register(plugin(accelprof_plan_ready=lambda plan: told.append(plan)), "listens")
    for _ in range(2):
        registry.event("accelprof_plan_ready", plan="the plan")
    assert told == ["the plan", "the plan"]
    assert len([record for record in caplog.records if "'raises'" in record.getMessage()]) == 1


def test_first_result_and_unregister(registry):
    """Identity comes from the first plug-in that knows; a plug-in that is taken out takes its names with it."""
    registry.register(
        plugin(
            accelprof_worker_identity=lambda env: {"rank": 7} if "X" in env else None,
            accelprof_backends=lambda: [backend("tmp")],
        ),
        "tmp",
    )
    assert registry.host.first("accelprof_worker_identity", env={"X": "1"}) == {"rank": 7}
    assert registry.host.first("accelprof_worker_identity", env={}) is None
    registry.unregister("tmp")
    with pytest.raises(PluginError):
        registry.backend_class("tmp")
    registry.register(plugin(accelprof_backends=lambda: [backend("tmp")]), "tmp")
    assert registry.backend("tmp").name == "tmp"


def test_plan_checks_tools_and_options(registry):
    """An unknown tool and a misspelt option are refused with path, value and nearest match, all at once."""
    config = registry.load(
        {"tool": "troch", "groups": {"A": {"tool": "torch"}}, "tools": {"torch": {"contens": ["cpu"]}}}
    ).config
    with pytest.raises(ConfigError) as caught:
        registry.plan(config)
    assert {problem.path for problem in caught.value.problems} == {"tool", "tools.torch.contens"}
    assert "did you mean 'contents'" in str(caught.value)
    config = registry.load(
        {"tool": "torch", "tools": {"torch": {"contents": ["gpu"]}, "somebody_elses": {"x": 1}}}
    ).config
    with pytest.raises(ConfigError, match=r"tools\.torch\.contents\[0\]"):
        registry.plan(config)


def test_two_tools_in_one_process(registry):
    """Colocated roles may use two tools that share nothing; two that own the same thing are refused by name."""

    class One(RecordingTool):
        name = "one"
        exclusive = frozenset({"cupti"})

    class Two(RecordingTool):
        name = "two"
        exclusive = frozenset({"cupti"})

    class Three(Tool):
        name = "three"

    registry.register(plugin(accelprof_tools=lambda: [One, Two, Three]), "tools")
    from accelprof.contracts.targets import Target

    def assign(other):
        config = registry.load(
            {"steps": [1], "groups": {"W": [{"roles": "actor", "tool": "one"}, {"roles": "ref", "tool": other}]}}
        ).config
        return registry.plan(config).assign(Target("W", ("actor", "ref"), 0))

    together = assign("three")
    assert (together.tool, [name for name, _ in together.also]) == ("one", ["three"])
    with pytest.raises(ConfigError, match="both own cupti"):
        assign("two")


def test_the_first_answer_ends_the_asking(registry):
    """The plug-in that answered is not broken by having answered, and no further one is asked."""
    asked = []

    def answer(name):
        return plugin(accelprof_worker_identity=lambda env: asked.append(name) or {"rank": 3})

    registry.register(answer("one"), "one")
    registry.register(answer("two"), "two")
    assert registry.host.first("accelprof_worker_identity", env={}) == {"rank": 3}
    assert len(asked) == 1
    assert registry.broken == []


def aliased(registry):
    class Named(RecordingTool):
        name = "named"
        aliases = ("nick", "other_nick")

    registry.register(plugin(accelprof_tools=lambda: [Named]), "named")
    return registry


def test_aliases_of_tools_become_their_names(registry):
    """Wherever an alias stands (tool, a rule, the controller, a key of tools), what is loaded has the registered name."""
    written = {
        "tool": "Nick",
        "steps": [1],
        "groups": {"A": [{"roles": "x", "tool": "nick"}, {"roles": "y"}], "B": {}},
        "controller": {"tool": "other_nick"},
        "tools": {"nick": {}, "kineto": {"contents": ["cpu"]}, "somebody_elses": {"x": 1}},
    }
    config = aliased(registry).load(written).config
    assert (config.tool, config.controller.tool) == ("named", "named")
    assert [rule.tool for rule in config.groups["A"]] == ["named", None]
    assert "tool" not in config.groups["B"][0].model_fields_set
    assert config.tools == {"named": {}, "torch": {"contents": ["cpu"]}, "somebody_elses": {"x": 1}}
    assert registry.load(Config.model_validate(written)).config == config


@pytest.mark.parametrize(("tool", "key"), [("kineto", "torch"), ("torch", "kineto"), ("kineto", "KINETO")])
def test_options_reach_a_tool_under_any_of_its_names(registry, tool, key):
    """Options count, and are checked, whichever of the two is an alias."""
    given = {"tool": tool, "steps": [1], "tools": {key: {"contents": ["cpu"]}}}
    (row,) = registry.plan(registry.load(given).config).preview()
    assert (row.tool, row.options) == ("torch", {"contents": ["cpu"]})
    given["tools"] = {key: {"contens": []}}
    with pytest.raises(ConfigError, match="did you mean 'contents'"):
        registry.plan(registry.load(Config.model_validate(given)).config)


def test_options_under_two_names_of_a_tool_are_refused(registry):
    """An alias and the name both under ``tools``: nobody can say which counts, so both are named."""
    given = {"tool": "torch", "steps": [1], "tools": {"torch": {}, "kineto": {}}}
    for refused in (registry.load, lambda mapping: registry.load(Config.model_validate(mapping))):
        with pytest.raises(ConfigError, match=r"tools\.kineto.*'kineto' and 'torch' are names of one tool"):
            refused(given)


LOADED_AT_IMPORT = """
import accelprof
from accelprof.contracts import hookspecs
from accelprof.contracts.backend import Backend
from accelprof.catalogue import get_catalogue

class Extra(Backend):
    name = "extra"

class Brought:
    @hookspecs.hookimpl
    def accelprof_backends(self):
        return [Extra]

accelprof.register(Brought(), "brought")
{asks}
"""


@pytest.mark.parametrize("asks", ["", "get_catalogue()"])
def test_a_plugin_that_registers_or_asks_at_import(tmp_path, asks):
    """At import an entry point may register more; asking what is registered is refused with the reason. Neither hangs."""
    (tmp_path / "eager_plugin.py").write_text(LOADED_AT_IMPORT.format(asks=asks))
    info = tmp_path / "eager-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: eager\nVersion: 1.0\n{more}")
    (info / "entry_points.txt").write_text("[accelprof]\neager = eager_plugin\n")
    code = (
        "from accelprof.catalogue import get_catalogue\n"
        "made = get_catalogue()\n"
        "print('extra' in made.backend_names(), [b.reason for b in made.broken if b.name == 'eager'])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("True [")
    assert ("asked while plug-ins are being loaded" in ran.stdout) == bool(asks), ran.stdout
