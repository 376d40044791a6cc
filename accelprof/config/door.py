"""The one door by which configurations come in: text, mappings, overrides, OmegaConf. Whatever a parser raises is our error here.

What comes through is dictionaries with text as keys, lists and scalars, in bounds: so many values, so deep, so long a text.
"""

from __future__ import annotations

import contextlib
import enum
import operator
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, SupportsIndex, cast

import yaml
from pydantic import BaseModel

from accelprof.errors import AccelprofError, ConfigError, Problem, failures, shown, text_of
from accelprof.numberset import NumberSet

#: characters of a configuration; the largest known (a composed verl one) has 60,000
MAX_TEXT = 4_000_000
#: values in a configuration, each counted as often as an alias repeats it
MAX_VALUES = 100_000
#: mappings and lists within each other
MAX_DEPTH = 100
_SCALARS = frozenset({int, float, bool, type(None)})
_MANY = "many numbers are one text: '0-900000/2'"


class _Single(Protocol):
    def item(self) -> object: ...


class _RefusedError(Exception):
    def __init__(self, mark: yaml.Mark, what: str, mend: str = "") -> None:
        super().__init__(f"line {mark.line + 1}, column {mark.column + 1}: {what}")
        self.mend = mend


class _Loader(yaml.SafeLoader):
    """PyYAML's own, bounded in depth and number, which takes no key twice and says where a value stands that cannot be made."""

    values = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.values += parent is None or index is not None  # a key has no index
        if self.values > MAX_VALUES:
            raise _RefusedError(self.get_mark(), f"more than {MAX_VALUES:,} values", _MANY)
        return super().compose_node(parent, index)

    def compose_mapping_node(
        self, anchor: dict[object, yaml.Node]
    ) -> yaml.MappingNode:  # a text, whatever the stubs say
        # here, because merge keys (<<) are written into the node when values are made of it
        made: yaml.MappingNode = super().compose_mapping_node(anchor)
        first: dict[str, yaml.Mark] = {}
        for key, _ in made.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            name = key.value if key.tag == "tag:yaml.org,2002:str" else _name(self.construct_object(key))
            before = first.setdefault(name, key.start_mark)
            if before is not key.start_mark:
                what = f"the key {shown(name)} is there already, in line {before.line + 1}"
                raise _RefusedError(key.start_mark, what, "only one of the two would count: take the other out")
        return made

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        self._bounded(self.flow_level)
        super().fetch_flow_collection_start(token)

    def add_indent(self, column: int) -> bool:
        self._bounded(len(self.indents))
        return bool(super().add_indent(column))

    def _bounded(self, depth: int) -> None:
        # here, because PyYAML's scanner takes time with the square of the depth
        if depth > MAX_DEPTH:
            raise _RefusedError(self.get_mark(), f"more than {MAX_DEPTH} mappings and lists within each other")

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        try:
            made: object = super().construct_object(node, deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except Exception as error:  # noqa: BLE001 - raised again with its place
            what = f"{shown(node.value)} is no {node.tag.rpartition(':')[2]}: {error}"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark) from None
        return made


def parse(text: str, where: str) -> object:
    """YAML (and so JSON) as plain values.

    Raises:
        ConfigError: with ``where``, line and column: not YAML, or out of bounds.
    """
    if len(text) > MAX_TEXT:
        raise ConfigError(
            Problem(where, f"{len(text):,} characters", allowed=f"at most {MAX_TEXT:,}", mend="is this the right file?")
        )
    with as_config_errors(where, "not YAML"):
        loader = _Loader(text)
        try:
            made = loader.get_single_data()
        except _RefusedError as error:
            raise ConfigError(Problem(where, str(error), mend=error.mend)) from None
        finally:
            loader.dispose()
        return plain(made, where)


def composed(text: str) -> yaml.Node | None:
    """YAML with the place of each value, for :func:`line_of`.

    Raises:
        yaml.YAMLError: it is none.
    """
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def line_of(node: yaml.Node | None, path: str) -> int | None:
    """The line, from 1, of what stands at ``path`` (``groups.ActorGroup[0].ranks``), or of the last of its parts that is there;
    ``None`` where its first is not."""
    line: int | None = None
    while path:
        if isinstance(node, yaml.MappingNode):
            found = [
                (len(key.value), key, value)
                for key, value in node.value
                if isinstance(key, yaml.ScalarNode)
                and path.startswith(key.value)
                and path[len(key.value) :][:1] in ".["
            ]
            if not found:
                return line
            length, key, node = max(found, key=lambda one: one[0])
            line, path = key.start_mark.line + 1, path[length:].removeprefix(".")
        elif isinstance(node, yaml.SequenceNode) and path.startswith("["):
            index, _, path = path[1:].partition("]")
            if not index.isdecimal() or int(index) >= len(node.value):
                return line
            node, path = node.value[int(index)], path.removeprefix(".")
            line = node.start_mark.line + 1
        else:
            return line
    return line


def plain(value: object, where: str = "config") -> object:
    """Dictionaries, lists and scalars only: OmegaConf containers resolved, paths as text, keys as text.

    Raises:
        ConfigError: a value that contains itself, too many values or too deep, two keys that are one text, a text that is
            no Unicode.
    """
    return _Copy(where).of(value, "", 0)


def _name(key: object) -> str:
    """The text that a key of any type becomes."""
    return key if isinstance(key, str) else shown(key).strip("'")


class _Copy:
    """One pass over a value; ``path`` is where it stands."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._left = MAX_VALUES
        self._open: set[int] = set()

    def of(self, value: object, path: str, depth: int) -> object:
        self._left -= 1
        if self._left < 0:
            raise self._refused(
                path,
                f"more than {MAX_VALUES:,} values, each alias counted with all it repeats",
                _MANY,
            )
        cls = type(value)
        if cls is str:
            return self._text(cast(str, value), path)
        if cls in _SCALARS:
            return value
        try:
            return self._other(value, path, depth)
        except (AccelprofError, RecursionError):
            raise
        except failures() as error:  # whatever the user's object raises when it is looked at
            what = " ".join(text_of(error).split())
            raise self._refused(path, f"a {cls.__name__} that cannot be read: {what}") from None

    def _other(self, value: object, path: str, depth: int) -> object:
        """What is no plain scalar itself; may raise whatever an object of the user's raises."""
        cls = type(value)
        if isinstance(value, str):
            return self._text(value, path)
        if value is None or isinstance(value, (bool, BaseModel)):
            return value
        if isinstance(value, enum.Enum):
            return self.of(value.value, path, depth)
        if isinstance(value, float):
            return float(value)
        if cls.__module__.startswith("omegaconf"):
            return self.of(_resolved(value), path, depth)
        if not isinstance(value, Mapping) and getattr(value, "ndim", None) == 0:  # a number of numpy's or torch's
            item = cast(_Single, value).item()
            return item if type(item) is cls else self.of(item, path, depth)
        if hasattr(cls, "__index__") and not hasattr(cls, "__iter__"):  # what behaves as an int; arrays have both
            return operator.index(cast(SupportsIndex, value))
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, NumberSet):
            return value.to_config()
        if (
            isinstance(value, range) and value and (value[-1] - value[0]) // value.step >= MAX_VALUES
        ):  # never listed out
            low, high = min(value[0], value[-1]), max(value[0], value[-1])
            return f"{low}-{high}/{abs(value.step)}"
        if not isinstance(value, Iterable) or isinstance(value, (bytes, bytearray)):
            return value
        if id(value) in self._open:
            raise self._refused(path, "it contains itself")
        if depth >= MAX_DEPTH:
            raise self._refused(path, f"more than {MAX_DEPTH} mappings and lists within each other")
        self._open.add(id(value))
        try:
            if isinstance(value, Mapping):
                return self._mapping(value, path, depth)
            items = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
            return [self.of(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(items)]
        finally:
            self._open.discard(id(value))

    def _mapping(self, value: Mapping[object, object], path: str, depth: int) -> dict[str, object]:
        made: dict[str, object] = {}
        for key, item in value.items():
            name = self._text(_name(key), path)
            if name in made:
                raise self._refused(path, f"two keys are both {shown(name)}")
            made[name] = self.of(item, f"{path}.{name}" if path else name, depth + 1)
        return made

    def _text(self, text: str, path: str) -> str:
        if type(text) is str and text.isascii():
            return text
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self._refused(path, f"{shown(text)} is no Unicode text") from None
        return str.__str__(text)  # of a text that is an enum too, its value

    def _refused(self, path: str, message: str, mend: str = "") -> ConfigError:
        return ConfigError(Problem(f"{self._where}: {path}" if path else self._where, message, mend=mend))


def _resolved(value: object) -> object:
    """An OmegaConf container as plain ones. Somewhere in a large file may stand what only its framework can resolve: then
    interpolations stay, and dialects resolve what they read."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return OmegaConf.to_container(value, resolve=True, throw_on_missing=False)
    except (OmegaConfBaseException, ValueError, TypeError, RecursionError):
        return OmegaConf.to_container(value, resolve=False)


@contextlib.contextmanager
def as_config_errors(where: str, what: str = "it cannot be read as a configuration") -> Iterator[None]:
    """Whatever is raised inside that is not ours becomes a :class:`ConfigError` with ``where``."""
    try:
        yield
    except AccelprofError:
        raise
    except RecursionError:
        raise ConfigError(
            Problem(where, f"{what}: it is nested too deep", allowed=f"at most {MAX_DEPTH} levels")
        ) from None
    except yaml.YAMLError as error:
        raise ConfigError(Problem(where, f"{what}: {' '.join(str(error).split())}")) from None
    except Exception as error:  # noqa: BLE001 - a parser's own; whatever it is, the user's file is what is wrong
        text = " ".join(str(error).split())
        raise ConfigError(Problem(where, f"{what}: {type(error).__name__}{f': {text}' if text else ''}")) from None
