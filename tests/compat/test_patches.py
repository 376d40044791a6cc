"""Replacements are taken back place by place: whoever undoes first, and whatever was imported in between."""

from __future__ import annotations

import random
import sys
from types import ModuleType

import pytest

from accelprof.compat.patching import Patches

PACKAGE = "pk_of_patches"


@pytest.fixture
def package():
    """``package(name, **attributes)`` makes a module of one package; all of them are gone afterwards."""

    def make(name, **attributes):
        module = sys.modules[f"{PACKAGE}.{name}"] = ModuleType(f"{PACKAGE}.{name}")
        vars(module).update(attributes)
        return module

    yield make
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[name]


def functions(*names):
    return [eval(f"lambda: {name!r}") for name in names]


def test_two_functions_behind_one_of_ours(package):
    """Two functions that one of ours stands for get back each its own, in modules imported in between too."""
    one, two, ours = functions("one", "two", "ours")
    first, second, reader = package("first", mark=one), package("second", mark=two), package("reader", again=two)
    patches = Patches()
    for module in (first, second):
        patches.function(module, "mark", ours)
    assert [module() for module in (first.mark, second.mark, reader.again)] == ["ours"] * 3
    late = package("late", of_first=first.mark, of_second=second.mark)
    patches.undo()
    assert (first.mark, second.mark, reader.again) == (one, two, two)
    assert (late.of_first, late.of_second) == (one, two)


def test_ours_that_was_there_before_stays(package):
    """A module that had our function before anything was replaced keeps it."""
    theirs, ours = functions("theirs", "ours")
    module, user = package("module", mark=theirs), package("user", mark=ours)
    patches = Patches()
    patches.function(module, "mark", ours)
    patches.undo()
    assert (module.mark, user.mark) == (theirs, ours)


@pytest.mark.parametrize("seed", range(40))
def test_any_order(package, seed):
    """After every replacement is undone, in any order and any number of rounds, each attribute is what it was at first."""
    draw = random.Random(seed)
    modules = [
        package(f"m{index}", a=f, b=g) for index, (f, g) in enumerate([functions(f"f{i}", f"g{i}") for i in range(3)])
    ]

    class Owner:
        method = staticmethod(lambda: 1)

    before = {(module.__name__, name): getattr(module, name) for module in modules for name in ("a", "b")}
    descriptor = vars(Owner)["method"]
    ours = functions("x", "y")
    for _ in range(3):
        made = [Patches() for _ in range(3)]
        for patches in made:
            for _ in range(draw.randint(1, 4)):
                kind = draw.randrange(3)
                if kind == 0:
                    patches.set(Owner, draw.choice(["method", "new"]), staticmethod(draw.choice(ours)))
                elif kind == 1:
                    patches.set(draw.choice(modules), draw.choice("ab"), functions("set")[0])
                else:
                    patches.function(draw.choice(modules), draw.choice("ab"), draw.choice(ours))
        draw.shuffle(made)
        for patches in made:
            patches.undo()
            patches.undo()
    assert {(module.__name__, name): getattr(module, name) for module in modules for name in ("a", "b")} == before
    assert vars(Owner)["method"] is descriptor
    assert not hasattr(Owner, "new")


@pytest.mark.parametrize("seed", range(60))
def test_any_order_with_imports_in_between(package, seed):
    """Installed, taken back and installed again in any order: a module imported at any moment ends with each function's own original."""
    draw = random.Random(seed)
    names = [(f"m{index}", name) for index in range(3) for name in "ab"]
    originals = dict(zip(names, functions(*(f"{module}.{name}" for module, name in names)), strict=True))
    modules = {module: package(module, **{name: originals[module, name] for name in "ab"}) for module, _ in names[::2]}
    ours = functions("x", "y")
    standing, late = [], []
    for number in range(25):
        kind = draw.randrange(3)
        if kind == 0:
            standing.append(Patches())
            for module, name in draw.sample(names, draw.randint(1, 4)):
                standing[-1].function(modules[module], name, draw.choice(ours))
        elif kind == 1 and standing:
            standing.pop(draw.randrange(len(standing))).undo()
        else:
            late.append(package(f"late{number}", **{"_of_".join(k): getattr(modules[k[0]], k[1]) for k in names}))
        for module in late:  # whatever stands in between, it can be called
            assert all(vars(module)["_of_".join(key)]() in ("x", "y", ".".join(key)) for key in names)
    draw.shuffle(standing)
    for patches in standing:
        patches.undo()
    for module, name in names:
        assert getattr(modules[module], name) is originals[module, name]
        assert all(vars(reader)[f"{module}_of_{name}"] is originals[module, name] for reader in late)


def test_what_somebody_else_put_there_stays(package, caplog):
    """An attribute that a third party replaced after us is left to them, and that is said."""
    theirs, ours, third = functions("theirs", "ours", "third")
    module = package("module", mark=theirs)
    patches = Patches()
    patches.set(module, "mark", ours)
    module.mark = third
    patches.undo()
    assert module.mark is third
    assert "replaced by somebody else" in caplog.text


def test_modules_whose_import_goes_on(tmp_path, monkeypatch):
    """A module that is being imported is changed when it is whole, one that is not there when it comes, one that is at once."""
    from accelprof.compat import patching

    (tmp_path / PACKAGE).mkdir()
    (tmp_path / PACKAGE / "__init__.py").write_text("")
    (tmp_path / PACKAGE / "inner.py").write_text("")
    (tmp_path / PACKAGE / "later.py").write_text("value = 3")
    (tmp_path / PACKAGE / "outer.py").write_text(
        "from accelprof.compat.patching import when_imported\n"
        f"from {PACKAGE} import seen\n"
        "when_imported(__name__, lambda module: seen.append(module.value))\n"
        "assert seen == []\n"
        f"import {PACKAGE}.inner\n"
        "value = 7\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    package = __import__(PACKAGE)
    package.seen = []
    patching.when_imported(f"{PACKAGE}.later", lambda module: package.seen.append(module.value))
    try:
        __import__(f"{PACKAGE}.outer")
        assert package.seen == []
        __import__(f"{PACKAGE}.later")
        assert sorted(package.seen) == [3, 7]
        patching.when_imported(f"{PACKAGE}.later", lambda module: package.seen.append(module.value + 1))
        assert package.seen[-1] == 4
        patching.settle()
        assert patching._again not in sys.meta_path
    finally:
        for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
            del sys.modules[name]
