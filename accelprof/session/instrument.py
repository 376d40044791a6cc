"""Times methods of other packages without editing them: when their module is imported, in the process that imports it.

``wrapt`` brings the post-import hooks; the wrapper is :func:`accelprof.timer`'s own behind one test of the gate, so that
signature and form are those of the method. Everything can be undone.
"""

from __future__ import annotations

import importlib.util
import inspect
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import wrapt

from accelprof.errors import nearest, text_of
from accelprof.numberset import NumberSet
from accelprof.session.loops import part_of_loop
from accelprof.timing.sampled import sampled

#: facts about the process; every other key of ``when`` is an attribute path of the instance
PROCESS_FACTS = frozenset({"role", "group", "rank"})
_MISSING: object = object()


@dataclass(frozen=True, slots=True)
class Item:
    """One method to time.

    Attributes:
        target: ``package.module:Class.method``.
        phase: label; empty = the method's qualified name.
        when: attribute facts of the instance, all of which must hold.
        origin: where it was asked for, for messages: ``instrument[0]``, ``preset vllm.decode_step``.
        required: a target that never came is named by itself.
        rank: attribute path of the instance that tells an engine process its rank.
        refused: not timed; the text is said when the method is first used.
        part: which part of a loop it is whose turns are the phase (see :mod:`accelprof.session.loops`); empty = a call is one.
    """

    target: str
    phase: str = ""
    when: Mapping[str, Any] = field(default_factory=dict)
    origin: str = "instrument"
    required: bool = True
    rank: str = ""
    refused: str = ""
    part: str = ""

    @property
    def module(self) -> str:
        return self.target.partition(":")[0]

    @property
    def path(self) -> str:
        return self.target.partition(":")[2]


@dataclass(eq=False)
class _Patch:
    holder: Any
    name: str
    was: Any  # _MISSING where the attribute was inherited
    put: object


class Instruments:
    """The instruments of one process. ``install``; ``end`` says what never came and undoes all.

    Args:
        say: says a text once.
        first_use: called with the instance and the item when an instrumented method is looked up on an instance for the
            first time; it may uninstall. Engine processes find out that way who they are.
    """

    def __init__(
        self,
        items: Sequence[Item],
        say: Callable[[str], object],
        first_use: Callable[[object, Item], None] | None = None,
    ) -> None:
        self.items = list(items)
        self._say, self._first_use = say, first_use
        self._patches: list[_Patch] = []
        self._wrappers: dict[int, Any] = {}
        self._came: set[int] = set()
        self._unfit: dict[int, tuple[Item, str]] = {}
        self._facts_seen: dict[tuple[int, str], bool] = {}
        self._classes: list[tuple[object, int, str]] = []
        self._early: list[int] = []
        self._on = False
        self._lock = threading.RLock()

    # --- putting in and taking out ----------------------------------------------------------------------------------

    def install(self) -> None:
        """Wrap what is imported already, and the rest when it is."""
        self._on = True
        for module in dict.fromkeys(item.module for item in self.items):
            wrapt.register_post_import_hook(self._module_imported, module)

    def settle(self) -> None:
        """Look again at modules that were in the middle of their import when :meth:`install` ran."""
        early, self._early = self._early, []
        for index in early:
            module = sys.modules.get(self.items[index].module)
            if module is not None:
                self._apply(index, module)

    def uninstall(self) -> None:
        """Put the originals back, newest first; something that another package wrapped since stays and is said."""
        with self._lock:
            self._on = False
            for patch in reversed(self._patches):
                held = vars(patch.holder).get(patch.name, _MISSING)
                if held is not patch.put and _around(held, patch.put):
                    continue  # somebody wrapped ours (torch does with an optimizer's step); closed, it only calls through
                if held is not patch.put:
                    self._say(
                        f"{_name(patch.holder)}.{patch.name} was replaced by somebody else after it was instrumented; it is left as it is"
                    )
                elif patch.was is _MISSING:
                    delattr(patch.holder, patch.name)
                else:
                    setattr(patch.holder, patch.name, patch.was)
            self._patches.clear()
            self._classes.clear()
            self._wrappers.clear()

    def end(self) -> None:
        """The session closes: what never came is said, and everything is put back."""
        try:
            self.say_what_never_came()
        finally:
            self.uninstall()

    def disown(self) -> None:
        """In a forked child: an engine's plug-in hook instruments anew, for the child itself."""
        self.uninstall()

    def say_what_never_came(self) -> None:
        """Say which targets never came and why, with near matches; harmless to call twice."""
        presets: dict[str, dict[int, str]] = {}
        for index, item in enumerate(self.items):
            if index in self._came or item.refused:
                continue
            item, why = self._unfit.get(index, (item, ""))
            why = why or _why_absent(item)
            if item.required:
                self._say(f"{item.origin}: {item.target} was never instrumented: {why}")
            else:
                presets.setdefault(item.origin, {})[index] = f"{item.target}: {why}"
        for origin, reasons in presets.items():
            if not any(i in self._came for i, item in enumerate(self.items) if item.origin == origin):
                self._say(f"{origin}: none of its methods came to this process: {'; '.join(reasons.values())}")
                continue
            gone = [
                why for index, why in reasons.items() if index in self._unfit
            ]  # its module came, the method did not
            if gone:
                self._say(f"{origin}: not all of its methods are there: {'; '.join(gone)}")
        for (index, path), seen in self._facts_seen.items():
            item = self.items[index]
            if not seen and item.required:  # a preset's own facts are not the user's to mend
                self._say(f"{item.origin}: no instance for {item.target} had {path!r}, so when.{path} never held")

    # --- what import hooks call -------------------------------------------------------------------------------------

    def _module_imported(self, module: Any) -> None:
        """Never raises: it runs inside somebody's import."""
        if not self._on:
            return
        for index, item in enumerate(self.items):
            if item.module == module.__name__:
                if getattr(getattr(module, "__spec__", None), "_initializing", False):
                    self._early.append(index)
                self._apply(index, module)

    def _apply(self, index: int, module: object) -> None:
        item = self.items[index]
        try:
            with self._lock:
                if self._on and index not in self._came:
                    self._put(index, module)
        except Exception as error:  # noqa: BLE001 - said; a foreign package's import must go on
            self._unfit[index] = (item, text_of(error))

    def _put(self, index: int, module: Any) -> None:
        item = self.items[index]
        holder = module
        *parents, name = item.path.split(".")
        walked = module.__name__
        for part in parents:
            inner = getattr(holder, part, _MISSING)
            if inner is _MISSING:
                self._unfit[index] = (item, _no_such(walked, part, dir(holder)))
                return
            holder, walked = inner, f"{walked}.{part}"
        if inspect.getattr_static(holder, name, _MISSING) is _MISSING:
            self._unfit[index] = (item, _no_such(walked, name, dir(holder)))
            return
        self._wrap(index, holder, name)
        self._came.add(index)
        if inspect.isclass(holder):
            for sub in _subclasses(holder):
                if name in vars(sub):
                    self._wrap(index, sub, name)
            if not any(held is holder for held, _, _ in self._classes):
                self._watch_subclasses(holder)
            self._classes.append((holder, index, name))

    def _watch_subclasses(self, holder: Any) -> None:
        """Subclasses made later that override the method are instrumented too."""
        was = vars(holder).get("__init_subclass__", _MISSING)

        def __init_subclass__(cls: Any, **kwargs: Any) -> None:  # noqa: N807 - stands in for it
            if was is _MISSING:
                super(holder, cls).__init_subclass__(**kwargs)
            else:
                was.__get__(None, cls)(**kwargs)
            self._subclass_made(holder, cls)

        put: Any = classmethod(__init_subclass__)  # type: ignore[arg-type]  # classmethod hands the class over first
        holder.__init_subclass__ = put
        self._patches.append(_Patch(holder, "__init_subclass__", was, vars(holder)["__init_subclass__"]))

    def _subclass_made(self, holder: object, cls: object) -> None:
        try:
            with self._lock:
                if self._on:
                    for held, index, name in list(self._classes):
                        if held is holder and name in vars(cls):
                            self._wrap(index, cls, name)
        except Exception as error:  # noqa: BLE001 - said; the class statement of a foreign package must go on
            self._say(f"{_name(cls)}, a subclass of {_name(holder)}, cannot be instrumented: {error}")

    # --- wrapping ---------------------------------------------------------------------------------------------------

    def _wrap(self, index: int, holder: object, name: str) -> None:
        item = self.items[index]
        was = vars(holder).get(name, _MISSING)
        raw = inspect.getattr_static(holder, name) if was is _MISSING else was
        layers = self._wrappers.get(id(raw))
        if layers is not None and index in layers[1]:
            # a class that was made anew from the namespace of one that is wrapped, as dataclass(slots=True) does
            if not any(p.holder is holder and p.name == name for p in self._patches):
                self._patches.append(_Patch(holder, name, layers[2], raw))
            return
        put = self._wrapped(index, item, holder, raw)
        try:
            setattr(holder, name, put)
        except (TypeError, AttributeError) as error:
            raise TypeError(f"{_name(holder)} cannot be changed ({error}); it is compiled or immutable") from None
        put = vars(holder)[name]
        before = layers[1] if layers is not None else ()
        self._wrappers[id(put)] = (put, (*before, index), layers[2] if layers is not None else raw)
        self._patches.append(_Patch(holder, name, was, put))

    def _wrapped(self, index: int, item: Item, holder: object, raw: object) -> object:
        facts = {path: value for path, value in item.when.items() if path not in PROCESS_FACTS}
        bound = inspect.isclass(holder) and not isinstance(raw, (staticmethod, classmethod))
        if facts and not bound:
            raise TypeError(f"when.{next(iter(facts))} asks for an attribute, but this is called without an instance")
        if bound and not _binds(raw):
            named = type(raw).__name__
            if not callable(raw):
                raise TypeError(f"it is a {named}, not a function")
            raw = staticmethod(raw)  # a callable object in a class gets no instance, and must not after wrapping
            bound = False
        tag = item.phase or item.path
        timed = raw if item.refused else part_of_loop(raw, tag, item.part) if item.part else sampled(raw, tag)
        if not bound:
            if item.refused:
                raise TypeError(item.refused)
            return timed
        if not facts and not item.refused and self._first_use is None:
            return timed
        return _OnInstances(raw, timed, lambda instance: self._fits(index, item, facts, instance))

    def _fits(self, index: int, item: Item, facts: Mapping[str, object], instance: object) -> bool:
        """Whether the call that ``instance`` was asked for is timed; finds out who this process is at the first one."""
        if item.refused:
            self._say(f"{item.origin}: {item.refused} ({item.target})")
            return False
        for path, wanted in facts.items():
            value = attribute(instance, path.removeprefix("self."))
            seen = (index, path)
            if value is _MISSING:
                self._facts_seen.setdefault(seen, False)
                return False
            self._facts_seen[seen] = True
            if not _equals(value, wanted):
                return False
        if self._first_use is not None:
            first_use, self._first_use = self._first_use, None
            first_use(instance, item)
        return True


class _OnInstances:
    """A method that is timed on the instances that fit; asked when the method is looked up, so that no call is forwarded.

    Looked up on the class it is the original, with its own form and signature.
    """

    def __init__(self, original: Any, timed: Any, fits: Callable[[object], bool]) -> None:
        self.__wrapped__ = original
        self.__doc__ = getattr(original, "__doc__", None)
        self._timed, self._fits = timed, fits

    def __get__(self, instance: object, owner: object = None) -> object:
        if instance is None:
            return self.__wrapped__.__get__(None, owner)
        chosen = self._timed if self._fits(instance) else self.__wrapped__
        return chosen.__get__(instance, owner)

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.__wrapped__(*args, **kwargs)

    @property
    def __isabstractmethod__(self) -> bool:
        return bool(getattr(self.__wrapped__, "__isabstractmethod__", False))


def attribute(instance: object, path: str) -> Any:
    """The value at ``a.b`` of ``instance``; a private sentinel where there is none. Mappings are entered by key."""
    here = instance
    for part in path.split("."):
        if isinstance(here, Mapping):
            here = here.get(part, _MISSING)
        else:
            try:
                here = getattr(here, part, _MISSING)
            except Exception:  # noqa: BLE001 - a property of a foreign class may raise anything: no such fact then
                return _MISSING
        if here is _MISSING:
            return _MISSING
    return here


def known(value: object) -> bool:
    """Whether :func:`attribute` found something."""
    return value is not _MISSING


def _equals(value: object, wanted: Any) -> bool:
    if wanted is None or isinstance(wanted, bool):
        return value is wanted
    if isinstance(wanted, (list, tuple)):
        return any(_equals(value, item) for item in wanted)
    try:
        return bool(value == wanted) if isinstance(value, (str, int, float)) else str(value) == str(wanted)
    except Exception:  # noqa: BLE001 - comparing with a foreign object may raise anything: not equal then
        return False


def rank_fits(ranks: object, rank: int | None) -> bool:
    """Whether ``rank`` is in a set of ranks as configurations write them."""
    return ranks == "all" or (rank is not None and rank in NumberSet.parse(ranks))


def _binds(raw: object) -> bool:
    return isinstance(raw, property) or (callable(raw) and hasattr(type(raw), "__get__"))


def _subclasses(cls: Any) -> Iterator[Any]:
    seen: set[object] = set()
    todo = [cls]
    while todo:
        for sub in type.__subclasses__(todo.pop()):
            if sub not in seen:
                seen.add(sub)
                todo.append(sub)
                yield sub


def _name(holder: object) -> str:
    module = getattr(holder, "__module__", "")
    name = getattr(holder, "__qualname__", getattr(holder, "__name__", repr(holder)))
    return f"{module}.{name}" if module else str(name)


def _no_such(where: str, name: str, known_names: Sequence[str]) -> str:
    near = nearest(name, [known_name for known_name in known_names if not known_name.startswith("__")])
    return f"{where} has no {name!r}" + (f"; {near}" if near else "")


def _around(held: Any, put: Any) -> bool:
    """Whether ``held`` wraps ``put``, as far as its ``__wrapped__`` tells."""
    inner = put.__func__ if isinstance(put, (staticmethod, classmethod)) else put
    for _ in range(20):
        held = getattr(held, "__wrapped__", None)
        if held is None:
            return False
        if held is put or held is inner:
            return True
    return False


def _why_absent(item: Item) -> str:
    """Why a module never came: not installed, no such module (with the nearest), or simply not imported here."""
    parts = item.module.split(".")
    if parts[0] not in sys.modules and importlib.util.find_spec(parts[0]) is None:
        return f"package {parts[0]!r} is not installed here"
    for depth in range(1, len(parts)):
        parent = sys.modules.get(".".join(parts[:depth]))
        paths = getattr(parent, "__path__", None)
        if paths is None:
            break  # not imported; what is inside cannot be told without importing it
        inside = [info.name for info in pkgutil.iter_modules(paths)]
        if parts[depth] not in inside and ".".join(parts[: depth + 1]) not in sys.modules:
            return _no_such(".".join(parts[:depth]), parts[depth], inside)
    if item.module in sys.modules:
        return "its module was imported before it could be looked at"
    return f"module {item.module} was never imported in this process (its child processes say so for themselves)"
