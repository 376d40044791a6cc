"""From files, mappings, OmegaConf and overrides to a validated :class:`~accelprof.config.model.Config`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from accelprof.config.beside import divide, lay_over, source_of
from accelprof.config.dialect import Dialect, Note, Translation
from accelprof.config.dialects.reading import Source
from accelprof.config.door import MAX_TEXT, as_config_errors, composed, line_of, parse, plain
from accelprof.config.model import Config, Rule
from accelprof.errors import UNKNOWN_KEY, ConfigError, NotAllowedError, Problem, nearest, nearest_word

#: how like one of ours a key is that is meant to be it
ALMOST = 0.75
_MESSAGES = {
    "bool_parsing": ("not a truth value", "true, false"),
    "bool_type": ("not a truth value", "true, false"),
    "int_type": ("not a whole number", ""),
    "int_parsing": ("not a whole number", ""),
    "string_type": ("not a text", ""),
    "dict_type": ("not a mapping", ""),
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration and how it came about. ``source`` names the file, or the type of object it was given as."""

    config: Config
    dialect: str = "accelprof"
    generation: str = ""
    notes: tuple[Note, ...] = ()
    sources: Mapping[str, str] | None = None
    source: str = "arguments"


@as_config_errors("config")
def load_config(
    source: object = None,
    overrides: Sequence[str] = (),
    *,
    dialects: Sequence[Dialect] = (),
    detect: Callable[[Mapping[str, object]], str | None] | None = None,
    **values: object,
) -> Loaded:
    """Validate ``source`` (path, mapping, ``DictConfig``, ``Config`` or ``None``), then ``a.b=c`` overrides, then ``values``.

    ``detect`` may name the dialect of a mapping; where it answers ``None``, each dialect is asked itself.
    A key ``accelprof`` at the top holds our own dialect inside a larger file and wins over the dialects. Beside a foreign
    file, overrides of its own paths change it before it is translated, and words of ours win over the translation.

    Raises:
        ConfigError: every refused key with its whole path, value, what is allowed and the nearest match.
    """
    try:
        return _loaded(source, overrides, values, dialects, detect)
    except ConfigError as error:
        if isinstance(source, (str, os.PathLike)):
            _place(error.problems, source, (*overrides, *values))
            raise ConfigError(*error.problems) from None
        raise


def _place(problems: Iterable[Problem], file: str | os.PathLike[str], beside: Iterable[str]) -> None:
    """Say of each problem where in ``file`` its value stands, unless a word ``beside`` the file says it."""
    named = {re.split(r"[.\[=]", word.lstrip("+~"), maxsplit=1)[0] for word in beside}
    inside = [
        problem
        for problem in problems
        if problem.path != os.fspath(file) and re.split(r"[.\[]", problem.path, maxsplit=1)[0] not in named
    ]
    if not inside:
        return  # also where the file as a whole is refused: it may be so large that reading it again takes long
    try:
        with as_config_errors(os.fspath(file)):
            node = composed(_text_of(file))
    except ConfigError:
        return  # it cannot be read, or is no YAML: its own problem says so
    for problem in inside:
        line = line_of(node, problem.path)
        if line is not None:
            problem.place = f"{os.fspath(file)}, line {line}"


def _loaded(
    source: object,
    overrides: Sequence[str],
    values: Mapping[str, object],
    dialects: Sequence[Dialect],
    detect: Callable[[Mapping[str, object]], str | None] | None,
) -> Loaded:
    if isinstance(source, Config) and not overrides and not values:
        return Loaded(source, source="Config")
    values = as_mapping(values, "arguments")
    given, name = _to_mapping(source)
    mapping = {**apply_overrides(given, overrides), **values}
    if isinstance(_own(mapping), Mapping):
        config = validate(_own_section(given, overrides, values), prefix="accelprof.")
        return Loaded(config, notes=_takes_the_place(given), source=name)
    named = None if detect is None else detect(mapping)
    for dialect in dialects:
        if dialect.detects(mapping) if named is None else dialect.name == named:
            made = _translated(dialect, given, overrides, values)
            config = validate(made.config, sources=made.sources)
            config._sources.update(made.sources)
            return Loaded(config, dialect.name, made.generation, made.notes, made.sources, name)
    try:
        return Loaded(validate(mapping), source=name)
    except ConfigError as error:
        blocks = [Problem(name, hint) for dialect in dialects if (hint := dialect.hint(mapping))]
        hints = list(blocks)
        if not blocks and _foreign(given):
            hints.append(Problem(name, _what_is_expected(given, dialects)))
            blocks = hints
        if "defaults" in mapping:
            hints.append(Problem(name, "Hydra has yet to compose this file", mend="python main.py --cfg job --resolve"))
        if not hints:
            raise
        # in a block of somebody else's no key is a misspelt one of ours
        own = [problem for problem in error.problems if not blocks or problem.code != UNKNOWN_KEY]
        raise ConfigError(*hints, *own) from None


def _foreign(given: Mapping[str, object]) -> bool:
    """Whether no key of a file is one of ours, nor one of ours misspelt; a longer word (``scheduler``) is a word of its own."""
    known = [*Config.model_fields, "accelprof"]
    near = {key: nearest_word(str(key), known, ALMOST) for key in given}
    return bool(given) and all(
        key not in known and (not like or str(key).startswith(like)) for key, like in near.items()
    )


def _what_is_expected(given: Mapping[str, object], dialects: Sequence[Dialect]) -> str:
    keys = ", ".join(map(str, list(given)[:5])) + (", …" if len(given) > 5 else "")
    others = "; ".join(f"{dialect.name}'s, with {dialect.known_by}" for dialect in dialects if dialect.known_by)
    return (
        f"no profiling configuration, by its keys ({keys}); expected is accelprof's own (steps, tool, groups, …), alone or under a "
        f"key accelprof in a larger file{', or one of ' + others if others else ''}"
    )


def _own_section(
    given: Mapping[str, object], overrides: Sequence[str], values: Mapping[str, object]
) -> dict[str, object]:
    """What stands under ``accelprof`` in a larger file, with the words of ours that were given beside the file.

    Raises:
        ConfigError: the file has no such section, and the override that would make one has no ``+``.
    """
    bare = [] if not given or "accelprof" in given else [text for text in overrides if re.match(r"accelprof[.=]", text)]
    if bare:
        raise ConfigError(*map(_no_section, bare))
    words = divide(given, overrides, values, Dialect())
    section = apply_overrides(_own(apply_overrides(given, words.overrides)) or {}, words.our_overrides)
    # what is no word of ours either is refused with the section
    return {**section, **words.our_values, **{key: value for key, value in words.values.items() if key not in given}}


def _no_section(override: str) -> Problem:
    path = override.partition("=")[0]
    instead = f"{override.removeprefix('accelprof.')} changes what the file says; " if "." in path else ""
    mend = f"{instead}+{override} makes a section that takes the file's place"
    return Problem(path, "the file has no section of this name", value=override, mend=mend)


def _takes_the_place(given: Mapping[str, object]) -> tuple[Note, ...]:
    """Said where a section of ours came beside a file that has none."""
    if not given or "accelprof" in given:
        return ()
    said = (
        f"this section takes the place of the file, of which it reads nothing: {', '.join(map(str, list(given)[:6]))}"
    )
    return (Note("accelprof", "doubtful", said),)


def _own(mapping: Mapping[str, object]) -> Any:
    """What stands under ``accelprof``, where the larger file may lend it values (``steps: ${global_profiler.steps}``)."""
    if "accelprof" not in mapping:
        return None
    source = Source(mapping)
    section = source.get("accelprof")
    if source.problems:
        raise ConfigError(*source.problems)
    return section


def _translated(
    dialect: Dialect, given: Mapping[str, object], overrides: Sequence[str], values: Mapping[str, object]
) -> Translation:
    """The file with its own words changed, translated, with our words laid over it."""
    words = divide(given, overrides, values, dialect)
    mapping = {**apply_overrides(given, words.overrides), **words.values}
    ours = {**apply_overrides({}, words.our_overrides), **words.our_values}
    for word, value in ours.items():
        if path := dialect.own_word(word, value, mapping):
            words.own[word] = path
            mapping = apply_overrides(mapping, [f"{path}={value}"])
    translation = dialect.translate(mapping)
    if not words.named():
        return translation
    changed = apply_overrides(translation.config, words.our_overrides)
    return lay_over(translation, {**changed, **words.our_values}, words)


def validate(mapping: Mapping[str, object], *, prefix: str = "", sources: Mapping[str, str] | None = None) -> Config:
    """``mapping`` as a :class:`Config`.

    Raises:
        ConfigError: as :func:`load_config`; ``sources`` maps our paths back to the words of the user's own dialect.
    """
    try:
        return Config.model_validate(plain(mapping))
    except ValidationError as error:
        raise ConfigError(*problems_of(error, Config, prefix, sources, mapping)) from None


def problems_of(
    error: ValidationError,
    model: type[BaseModel],
    prefix: str = "",
    sources: Mapping[str, str] | None = None,
    given_mapping: object = None,
) -> list[Problem]:
    """A pydantic error as our problems: whole path as the user wrote it, value, allowed values, nearest match."""
    problems = []
    for item in error.errors():
        location = [part for part in item["loc"] if not (isinstance(part, str) and part.startswith("function-"))]
        path = prefix + _dotted(_as_written(location, given_mapping))
        path = source_of(path, sources or {})
        fault, given = item["type"], item["input"]
        if fault == "extra_forbidden":
            known = _fields_at(model, location[:-1])
            mend = nearest(str(location[-1]), known) or "remove it or spell it as one of these"
            problems.append(Problem.unknown_key(path, value=given, allowed=", ".join(sorted(known)), mend=mend))
        elif fault == "value_error":
            refused = item["ctx"]["error"]
            named = isinstance(refused, NotAllowedError)
            message, allowed = (refused.message, refused.allowed) if named else (str(refused), "")
            problems.append(Problem(path, message, value=given, allowed=allowed))
        elif fault == "literal_error":
            allowed = str(item["ctx"]["expected"])
            near = nearest(str(given), [word.strip(" '") for word in allowed.replace(" or ", ",").split(",")])
            problems.append(Problem(path, "not one of the allowed values", value=given, allowed=allowed, mend=near))
        else:
            message, allowed = _MESSAGES.get(fault, (item["msg"], ""))
            problems.append(Problem(path, message, value=given, allowed=allowed))
    return problems


def apply_overrides(mapping: Mapping[str, object], overrides: Sequence[str]) -> dict[str, Any]:
    """Hydra-style ``a.b=c`` (also ``+a.b=c``, ``++a.b=c``, ``~a.b``); values are YAML.

    Raises:
        ConfigError: an override that is not of this form.
    """
    result: dict[str, Any] = as_mapping(mapping, "config")
    for override in overrides:
        delete = override.startswith("~")
        key, equals, text = override.lstrip("+~").partition("=")
        if not key or (not equals and not delete) or any(not part for part in key.split(".")):
            raise ConfigError(
                Problem(override, "not an override", allowed="key.path=value, +key=value, ++key=value, ~key")
            )
        *parents, last = key.split(".")
        here: Any = result
        for depth, part in enumerate(parents):
            if here.get(part) is None:
                here[part] = {}
            here = here[part]
            if not isinstance(here, dict):
                place = ".".join(parents[: depth + 1])
                mend = f"change what it names, or give it a mapping of its own: {place}={{…}}"
                mend = mend if isinstance(here, str) and "${" in here else ""
                raise ConfigError(Problem(place, f"cannot set {key}: this is not a mapping", value=here, mend=mend))
        if delete:
            here.pop(last, None)
            continue
        here[last] = parse(text, key) if text else None
    return result


def read_mapping(path: str | os.PathLike[str]) -> dict[str, object]:
    """A YAML or JSON file whose top level is a mapping.

    Raises:
        ConfigError: not there, not readable, not YAML, or not a mapping; with line and column where there are any.
    """
    data = parse(_text_of(path), os.fspath(path))
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(
            Problem(os.fspath(path), f"the top level is a {type(data).__name__}", allowed="a mapping of keys")
        )
    return data


def _text_of(path: str | os.PathLike[str]) -> str:
    """Of a regular file, one character more than :data:`MAX_TEXT` at most."""
    file = Path(path)
    try:
        if file.exists() and not file.is_file():
            raise OSError("it is no file")
        with file.open(encoding="utf-8") as opened:
            return opened.read(MAX_TEXT + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(Problem(str(file), f"cannot read the configuration: {error}")) from None


def _to_mapping(source: object) -> tuple[dict[str, object], str]:
    if source is None:
        return {}, "arguments"
    if isinstance(source, (str, os.PathLike)):
        return read_mapping(source), os.fspath(source)
    if isinstance(source, Config):
        return source.model_dump(mode="json", exclude_unset=True), "Config"
    return as_mapping(source, "config"), type(source).__name__


def as_mapping(source: object, where: str) -> dict[str, Any]:
    """:func:`accelprof.config.door.plain` of a mapping.

    Raises:
        ConfigError: as there, or it is no mapping.
    """
    with as_config_errors(where):
        mapping = plain(source, where)
    if not isinstance(mapping, dict):
        allowed = "a path, a mapping, an OmegaConf DictConfig, a Config"
        raise ConfigError(Problem(where, f"a {type(source).__name__} is no configuration", allowed=allowed))
    return mapping


def _as_written(location: Sequence[Any], mapping: Any) -> list[Any]:
    """Leave out the index of a list that the user did not write (a single rule stands for a list of one)."""
    parts: list[Any] = []
    here = mapping
    for part in location:
        if isinstance(part, int) and isinstance(here, Mapping):
            continue
        parts.append(part)
        try:
            here = here[part] if here is not None else None
        except (KeyError, IndexError, TypeError):
            here = None
    return parts


def _dotted(location: Sequence[object]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return text


def _fields_at(model: type[BaseModel], location: Sequence[object]) -> list[str]:
    """Field names allowed at ``location``; groups hold rules, other nested keys their own model."""
    if not location:
        return list(model.model_fields)
    if model is Config and location[0] == "groups" and len(location) <= 3:
        return list(Rule.model_fields)
    current: Any = model
    for part in location:
        if isinstance(part, int) or not hasattr(current, "model_fields"):
            continue
        field = current.model_fields.get(str(part))
        if field is None:
            continue
        current = _model_in(field.annotation) or current
    return list(current.model_fields) if hasattr(current, "model_fields") else []


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found is not None:
            return found
    return None
