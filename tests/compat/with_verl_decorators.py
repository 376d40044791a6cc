"""verl's decorators on whatever Python can decorate: the same behaviour with accelprof as without, whenever it was decorated.

Run under the interpreter that has verl."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re

import pytest
import torch
from ray import cloudpickle
from verl.single_controller.base.decorator import MAGIC_ATTR, Dispatch, Execute, register
from verl.utils.profiler import DistProfiler, GPUMemoryLogger, ProfilerConfig
from verl.utils.profiler.config import TorchProfilerToolConfig

import accelprof
from accelprof import compat

LOGGER = logging.getLogger("decorated")
LOOP = asyncio.new_event_loop()
#: where an object lies, in what an error says
ADDRESS = re.compile(r"0x[0-9a-f]+")


def decorators():
    """By name, as verl has them now: ``install`` replaces some."""
    import verl.utils.profiler as package

    dispatch = register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.ALL, blocking=False)
    found = {
        "annotate()": DistProfiler.annotate(),
        "annotate(role)": DistProfiler.annotate(color="red", role="update"),
        "annotate(message, scheduled)": DistProfiler.annotate("labelled", "red", "domain", "category", scheduled=True),
        "annotate bare": DistProfiler.annotate,
        "mark_annotate()": package.mark_annotate(),
        "mark_annotate(message)": package.mark_annotate("labelled", color="red"),
        "mark_annotate bare": package.mark_annotate,
        "marked_timer": package.marked_timer("timed", {}),
        "simple_timer": package.simple_timer("timed", {}),
        "memory": GPUMemoryLogger("actor", LOGGER),
        "memory bare": GPUMemoryLogger,
    }
    for name in ("annotate(role)", "mark_annotate()", "memory", "marked_timer"):
        found[f"register over {name}"] = lambda function, inner=found[name]: dispatch(inner(function))
        found[f"{name} over register"] = lambda function, outer=found[name]: outer(dispatch(function))
    return found


def plain(self, first, *rest, last=1, **more):
    """Doc of it."""
    return [type(self).__name__, first, rest, last, sorted(more)]


def fails(self, first, *rest, last=1, **more):
    raise KeyError("mine", first)


def gives(self, first, *rest, last=1, **more):
    got = yield first
    yield [got, *rest]
    return last


async def waits(self, first, *rest, last=1, **more):
    await asyncio.sleep(0)
    return [first, rest, last]


async def fails_later(self, first, *rest, last=1, **more):
    await asyncio.sleep(0)
    raise KeyError("mine", first)


async def gives_later(self, first, *rest, last=1, **more):
    got = yield first
    yield [got, *rest]


#: what stands in a class body; a kind that is a descriptor is made over or under the decorator
TARGETS = {
    "plain": lambda decorate: decorate(plain),
    "fails": lambda decorate: decorate(fails),
    "generator": lambda decorate: decorate(gives),
    "coroutine": lambda decorate: decorate(waits),
    "coroutine fails": lambda decorate: decorate(fails_later),
    "async generator": lambda decorate: decorate(gives_later),
    "lambda": lambda decorate: decorate(lambda self, *args, **kwargs: [args, sorted(kwargs)]),
    "static over": lambda decorate: staticmethod(decorate(plain)),
    "static under": lambda decorate: decorate(staticmethod(plain)),
    "class over": lambda decorate: classmethod(decorate(plain)),
    "class under": lambda decorate: decorate(classmethod(plain)),
    "property": lambda decorate: property(decorate(lambda self: type(self).__name__)),
    "twice": lambda decorate: decorate(decorate(plain)),
    "a class": lambda decorate: decorate(type("Inner", (), {"__init__": lambda self, *args, **more: None})),
}
CALLS = {"one": ((5,), {}), "more": ((5, 6), {"last": 2, "other": 3}), "none": ((), {})}


def made():
    """A class for each decorator, with a method for each target that can be decorated; what cannot be says how it ends."""
    classes = {}
    for name, decorate in decorators().items():
        body, refused = {}, {}
        for target, make in TARGETS.items():
            try:
                body[target] = make(decorate)
            except Exception as error:  # what verl raises is to be raised
                refused[target] = type(error).__name__
        classes[name] = (type("Worker", (), body), refused)
    return classes


def ended(call):
    """What a call gives back, or raises, after everything that it returns was driven to its end."""
    try:
        found = call()
        if inspect.iscoroutine(found):
            found = ["awaited", LOOP.run_until_complete(found)]
        elif inspect.isgenerator(found):
            found = ["generated", *driven(found)]
        elif inspect.isasyncgen(found):
            found = ["generated", *LOOP.run_until_complete(driven_later(found))]
        return ["returned", shown(found)]
    except TypeError:  # its message names the function that was called wrongly: verl's, or ours
        return ["raised", "TypeError"]
    except Exception as error:
        return ["raised", type(error).__name__, ADDRESS.sub("", str(error))]


def driven(generator):
    found = [next(generator)]
    try:
        while True:
            found.append(generator.send("sent"))
    except StopIteration as end:
        return [*found, end.value]


async def driven_later(generator):
    found = [await generator.asend(None)]
    try:
        while True:
            found.append(await generator.asend("sent"))
    except StopAsyncIteration:
        return found


def shown(value):
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    return value if isinstance(value, (str, int, type(None))) else type(value).__name__.replace("type", "object")


def looks(name, found):
    """Dispatch attributes, name and text of a class attribute; verl's memory logger loses them (ours keeps them, as the table says)."""
    if "memory" in name:
        return {}
    dispatch = {key: str(value) for key, value in getattr(found, MAGIC_ATTR, {}).items()}
    return {"dispatch": dispatch, "name": getattr(found, "__name__", None), "doc": getattr(found, "__doc__", None)}


@pytest.fixture(autouse=True)
def a_device(monkeypatch):
    """verl's memory logger asks a device and the rank; neither is here."""
    from verl.utils.profiler import performance

    monkeypatch.setattr(performance, "_get_current_mem_info", lambda *_: ("0", "0", "0", "0"))
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def behaviour(classes, profiler):
    """By decorator, target, call and way of calling: what happens."""
    found = {}
    for name, (cls, refused) in classes.items():
        found[name] = dict(refused)
        for target in list(vars(cls)):
            if target not in TARGETS:
                continue
            worker = cls()
            if profiler is not None:
                worker.profiler = profiler
            key = f"{name} / {target}"
            if target == "property":
                found[key] = ended(lambda worker=worker, target=target: getattr(worker, target))
                continue
            for call, (args, kwargs) in CALLS.items():
                found[f"{key} / {call}"] = ended(lambda: getattr(worker, target)(*args, **kwargs))
            found[f"{key} / of the class"] = ended(lambda: getattr(cls, target)(worker, 5))
            found[f"{key} / looks"] = looks(name, getattr(cls, target))
    return found


def settings(tmp_path, enable):
    tool = TorchProfilerToolConfig(contents=["cpu"])
    config = ProfilerConfig(
        tool="torch", enable=enable, ranks=[0], save_path=str(tmp_path), tool_config={"torch": tool}
    )
    return DistProfiler(0, config=config, tool_config=tool)


def every_state(classes, tmp_path):
    """Without a profiler, with one that is off, and in a step."""
    found = {"no profiler": behaviour(classes, None)}
    for enable in (False, True):
        profiler = settings(tmp_path, enable)
        profiler.start(profile_step=1)
        try:
            found[f"enable={enable}, started"] = behaviour(classes, profiler)
        finally:
            profiler.stop()
    return found


def carried(classes):
    """The classes as Ray carries them to a worker; those that verl's decorators leave impossible to carry are left out."""
    found = {}
    for name, (cls, refused) in classes.items():
        try:
            found[name] = (cloudpickle.loads(cloudpickle.dumps(cls)), refused)
        except TypeError:  # a timer of verl's holds a generator
            assert "_timer" in name
    return found


def differing(mine, theirs):
    """Cases in which something else happens. A class that ``mark_annotate`` was put on is a function then, as with nvtx."""
    return {
        f"{state} / {case}": (mine[state].get(case), theirs[state].get(case))
        for state in theirs
        for case in theirs[state]
        if mine[state].get(case) != theirs[state].get(case) and case != "mark_annotate bare / class over / none"
    }


def test_decorated_is_as_it_is_with_verl_alone(tmp_path):
    """Every decorator of verl on every kind of target, bare and called, alone and with ``register``, before the install, after
    it, in an earlier one and after the uninstall, here and carried to another process: same values, exceptions, dispatch
    attributes and names as without accelprof."""
    before = made()
    theirs = every_state(before, tmp_path / "theirs") | {"carried": behaviour(carried(before), None)}
    assert sum(map(len, theirs.values())) > 2500
    found = {}
    compat.install("verl")
    earlier = made()
    compat.uninstall()
    accelprof.reset()
    found["gone"] = every_state(earlier, tmp_path / "gone") | {"carried": behaviour(carried(earlier), None)}
    compat.install("verl")
    try:
        for way, classes in (("before", before), ("earlier", earlier), ("after", made())):
            found[way] = every_state(classes, tmp_path / way) | {"carried": behaviour(carried(classes), None)}
            accelprof.reset()
        ((logged, _),) = (classes[name] for name in classes if name == "memory over register")
        assert set(getattr(logged.plain, MAGIC_ATTR)) >= {"dispatch_mode", "execute_mode", "blocking"}
        assert (logged.plain.__name__, inspect.signature(logged.plain)) == ("plain", inspect.signature(plain))
    finally:
        compat.uninstall()
        accelprof.reset()
    wrong = {way: differing(mine, theirs) for way, mine in found.items()}
    assert {way: dict(list(cases.items())[:9]) for way, cases in wrong.items() if cases} == {}
