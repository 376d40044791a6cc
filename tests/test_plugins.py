"""The host of plug-ins: calls are pluggy's own, and whoever fails in one is named and stops nobody."""

from __future__ import annotations

from types import SimpleNamespace

import pluggy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelprof.catalogue import Catalogue, make_catalogue
from accelprof.contracts import hookspecs
from accelprof.errors import PluginError
from accelprof.plugins import Host
from accelprof.testing import RecordingBackend, RecordingTool

hookimpl = hookspecs.hookimpl


def plugin(hook, function, **marks):
    return SimpleNamespace(only=hookimpl(function, specname=hook, **marks))


def plain(name, told, answer):
    def hook(env):
        told.append(name)
        return answer

    return hook


def wrapper(name, told, answer):
    def hook(env):
        told.append(f"{name} before")
        inner = yield
        told.append(f"{name} after")
        return inner if answer is None else answer if isinstance(inner, dict) or inner is None else [*inner, answer]

    return hook


def old_wrapper(name, told, answer):
    def hook(env):
        told.append(f"{name} before")
        outcome = yield
        told.append(f"{name} after")
        inner = outcome.get_result()
        if answer is not None:
            outcome.force_result(answer if isinstance(inner, dict) or inner is None else [*inner, answer])

    return hook


KINDS = {"plain": (plain, {}), "wrapper": (wrapper, {"wrapper": True}), "old": (old_wrapper, {"hookwrapper": True})}
ANSWERS = st.none() | st.builds(lambda rank: {"rank": rank}, st.integers(0, 9))
PLUGINS = st.lists(
    st.tuples(st.sampled_from(sorted(KINDS)), st.sampled_from([{}, {"tryfirst": True}, {"trylast": True}]), ANSWERS),
    max_size=5,
)


class Specs:
    @hookspecs.hookspec
    def accelprof_presets(self, env):
        """As a hook that collects."""

    @hookspecs.hookspec(firstresult=True)
    def accelprof_worker_identity(self, env):
        """As a hook whose first answer counts."""


@settings(deadline=None)
@given(PLUGINS, st.sampled_from(["accelprof_presets", "accelprof_worker_identity"]))
def test_calls_are_pluggys_own(plugins, hook):
    """With any mixture of plain hooks, wrappers of both styles, tryfirst and trylast: the answer and the order of calls are pluggy's."""
    model = pluggy.PluginManager(hookspecs.PROJECT)
    model.add_hookspecs(Specs)
    host = Host()
    host._manager = pluggy.PluginManager(hookspecs.PROJECT)
    host._manager.add_hookspecs(Specs)
    expected, told = [], []
    for index, (kind, marks, answer) in enumerate(plugins):
        make, style = KINDS[kind]
        model.register(plugin(hook, make(str(index), expected, answer), **style, **marks), str(index))
        host.add(plugin(hook, make(str(index), told, answer), **style, **marks), str(index))
    wanted = getattr(model.hook, hook)(env={})
    got = host.first(hook, env={}) if hook == "accelprof_worker_identity" else host.call(hook, env={})
    assert (got, told) == (wanted, expected)
    assert host.broken == []


def fails_before(env):
    raise OSError("before")
    yield


def fails_after(env):
    yield
    raise OSError("after")


def never_yields(env):
    if env is None:
        yield


def yields_twice(env):
    yield
    yield


def leaves(env):
    yield
    raise SystemExit(3)


def breaks_the_outcome(env):
    outcome = yield
    outcome.force_exception(OSError("forced"))


@pytest.mark.parametrize("function", [fails_before, fails_after, never_yields, yields_twice, leaves])
@pytest.mark.parametrize("style", ["wrapper", "hookwrapper"])
def test_a_wrapper_that_fails_is_named_and_left_out(function, style):
    """Whatever a wrapper does wrong, the hook's own answer stands, and the wrapper's plug-in is named with the reason."""
    host = Host()
    host.add(plugin("accelprof_worker_identity", lambda env: {"rank": 3}), "good")
    host.add(plugin("accelprof_worker_identity", function, **{style: True}), "bad")
    assert host.first("accelprof_worker_identity", env={}) == {"rank": 3}
    assert [broken.name for broken in host.broken] == ["bad"]


def test_a_forced_failure_and_a_wrong_answer_of_a_wrapper_are_left_out():
    """A wrapper that makes the call raise, or that gives no list where a list is taken, is named; the answers stand."""

    def not_a_list():
        yield
        return 5

    host = Host()
    host.add(plugin("accelprof_presets", lambda: {"p": 1}), "good")
    host.add(plugin("accelprof_presets", not_a_list, wrapper=True), "five")
    host.add(plugin("accelprof_worker_identity", breaks_the_outcome, hookwrapper=True), "forces")
    assert host.call("accelprof_presets") == [{"p": 1}]
    assert host.first("accelprof_worker_identity", env={}) is None
    assert {broken.name: broken.reason.partition(": ")[0] for broken in host.broken} == {
        "five": "accelprof_presets",
        "forces": "accelprof_worker_identity",
    }


def test_an_event_goes_on_and_says_it_once(caplog):
    """In an event a plug-in that fails is logged once, by name; wrappers around the others run to their end."""
    host, told = Host(), []

    def around(plan):
        told.append("before")
        yield
        told.append("after")
        return []

    host.add(plugin("accelprof_plan_ready", lambda plan: 1 / 0), "fails")
    host.add(plugin("accelprof_plan_ready", lambda plan: told.append("told")), "listens")
    host.add(plugin("accelprof_plan_ready", around, wrapper=True), "around")
    for _ in range(2):
        host.call("accelprof_plan_ready", plan=None)
    assert told == ["before", "told", "after"] * 2
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "'fails'" in said[0]
    assert "ZeroDivisionError" in said[0]


def test_an_interrupt_is_the_users():
    """Ctrl-C inside a hook reaches the caller, and an open wrapper gets to its ``finally``."""
    host, told = Host(), []

    def interrupted(env):
        raise KeyboardInterrupt

    def around(env):
        try:
            return (yield)
        finally:
            told.append("ended")

    host.add(plugin("accelprof_worker_identity", interrupted), "interrupted")
    host.add(plugin("accelprof_worker_identity", around, wrapper=True), "around")
    with pytest.raises(KeyboardInterrupt):
        host.first("accelprof_worker_identity", env={})
    assert told == ["ended"]


def test_one_object_is_one_plugin():
    """The same object under a second name is refused: its hooks would be called twice."""
    host, module = Host(), plugin("accelprof_presets", lambda: {"p": 1})
    host.add(module, "one")
    with pytest.raises(PluginError, match="registered already, as 'one'"):
        host.add(module, "two")


def test_what_plugins_bring_goes_through_wrappers_too():
    """A wrapper of ``accelprof_tools`` may add and take away; each plug-in is asked once, and taking the wrapper out undoes it."""
    asked = []

    class Added(RecordingTool):
        name = "added"

    def more():
        answers = yield
        return [[cls for answer in answers for cls in answer if cls.name != "taken_away"], [Added]]

    class TakenAway(RecordingTool):
        name = "taken_away"

    catalogue = Catalogue()
    catalogue.register(
        plugin("accelprof_tools", lambda: asked.append(1) or [RecordingTool, TakenAway]),
        "brings",
    )
    catalogue.register(plugin("accelprof_tools", more, wrapper=True), "wraps")
    assert catalogue.tool_names() == ["added", "recording"]
    assert catalogue.brought_by("brings") == ([], ["recording"])
    catalogue.unregister("wraps")
    assert catalogue.tool_names() == ["recording", "taken_away"]
    assert asked == [1]


def test_a_wrapper_that_spoils_what_others_bring_is_refused():
    """A wrapper whose answer breaks the contract is refused when it comes, and what the others brought stays."""
    catalogue = Catalogue()
    catalogue.register(plugin("accelprof_backends", lambda: [RecordingBackend]), "brings")

    def spoils():
        yield
        return [[RecordingBackend, RecordingBackend]]

    with pytest.raises(PluginError, match="'wraps' is refused: .*taken by plug-in 'brings'"):
        catalogue.register(plugin("accelprof_backends", spoils, wrapper=True), "wraps")
    assert catalogue.backend_names() == ["recording"]


def test_a_bare_catalogue_has_nothing_and_a_made_one_what_is_built_in():
    """Who makes a catalogue decides what is in it; the host brings nothing of its own."""
    assert Catalogue().backend_names() == Catalogue().tool_names() == []
    assert make_catalogue(entry_points=False).backend_names() == ["cpu"]
    assert make_catalogue(entry_points=False, builtin=False).plugins == {}


def test_a_wrapper_reaches_the_loading_of_a_configuration():
    """Loading goes through wrappers: one that takes all dialects away leaves accelprof's own."""
    catalogue = make_catalogue(entry_points=False)

    def none():
        yield
        return []

    foreign = {"global_profiler": {"tool": "nsys", "steps": [1]}}
    assert catalogue.load(foreign).dialect == "verl"
    catalogue.register(plugin("accelprof_dialects", none, wrapper=True), "none")
    assert catalogue.load({"steps": [1]}).config.steps is not None
    assert catalogue.dialects() == []


def test_a_plugin_may_name_the_dialect():
    """``accelprof_detect_dialect`` decides before the dialects are asked; a name that nobody brings is kept as broken and does not count."""
    said = {"name": "rlinf"}
    catalogue = make_catalogue(entry_points=False)
    catalogue.register(plugin("accelprof_detect_dialect", lambda mapping: said["name"]), "names")
    foreign = {"global_profiler": {"tool": "nsys", "steps": [1]}}
    assert catalogue.load(foreign).dialect == "rlinf"
    said["name"] = "klingon"
    assert catalogue.load(foreign).dialect == "verl"
    assert "'klingon', which nobody brings" in catalogue.broken[0].reason
    said["name"] = None
    assert catalogue.load({"steps": [1]}).dialect == "accelprof"
