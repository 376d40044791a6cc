"""Words of ours beside somebody else's file: which of them are ours, and how they are laid over the translation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accelprof.config.dialect import Dialect, Note, Translation
from accelprof.config.model import Config
from accelprof.errors import ConfigError, Problem, nearest

#: whom a rule takes; a rule that names one of these replaces all of the top level's
SELECTORS = ("ranks", "replicas", "nodes")
#: words of the top level that a rule may have of its own, which wins
OF_RULES = (*SELECTORS, "tool", "discrete", "merge_steps", "timeline", "phases", "schedule")


@dataclass(slots=True)
class Words:
    """Overrides and values, divided: ``theirs`` change the file before it is translated, ``ours`` the translation."""

    overrides: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    our_overrides: list[str] = field(default_factory=list)
    our_values: dict[str, object] = field(default_factory=dict)
    #: word of ours -> the file's own path, at which it changes the file too
    own: dict[str, str] = field(default_factory=dict)

    def named(self) -> list[str]:
        """Our words that were given, by their first part."""
        return list(dict.fromkeys([*(_key(text).split(".")[0] for text in self.our_overrides), *self.our_values]))


def divide(
    mapping: Mapping[str, object], overrides: Sequence[str], values: Mapping[str, object], dialect: Dialect
) -> Words:
    """Each word to whom it belongs.

    Raises:
        ConfigError: a path that neither the file has nor its dialect knows, as Hydra refuses it without ``+``; a value
            that is neither a word of ours nor of the file.
    """
    words, problems = Words(), []
    for text in overrides:
        key = _key(text)
        if key.split(".")[0] in Config.model_fields and key.split(".")[0] not in mapping:
            words.our_overrides.append(text)
            continue
        words.overrides.append(text)
        if not text.startswith("+") and not _has(mapping, key) and not dialect.knows(key, mapping):
            said = f"this {dialect.name} file has no such key, and its dialect does not know it"
            near = nearest(key, [*_paths(mapping), *Config.model_fields])
            mend = near or f"+{text.lstrip('~')} adds it, as with Hydra"
            problems.append(Problem(key, said, value=text, mend=mend))
    for key, value in values.items():
        if key in Config.model_fields and key not in mapping:
            words.our_values[key] = value
        elif key in mapping or dialect.knows(key, mapping):
            words.values[key] = value
        else:
            said = f"neither a word of accelprof's nor a key of this {dialect.name} file"
            mend = nearest(key, [*Config.model_fields, *mapping]) or "remove it"
            problems.append(Problem(key, said, value=value, mend=mend))
    if problems:
        raise ConfigError(*problems)
    return words


def lay_over(translation: Translation, changed: Mapping[str, object], words: Words) -> Translation:
    """``translation`` with our words, which are in ``changed`` already: with a note for each, and no source any more.

    Raises:
        ConfigError: a word that would have no effect, because the file says it for each role.
    """
    config = dict(changed)
    problems: list[Problem] = []
    sources = dict(translation.sources)
    given = {sources.get(word) for word in words.named()}
    notes = [note for note in translation.notes if note.kind != "off" or note.path not in given]
    for word in words.named():
        own = [] if "groups" in words.named() else _rules_with(translation, word, word in words.own)
        if own:
            at = sorted({source_of(path, sources) for path in own})
            mend = f"change {', '.join(at[:3])}{' …' if len(at) > 3 else ''}, or give groups"
            said = "the file says this for each role, and what it says there wins"
            problems.append(Problem(word, said, value=config.get(word), mend=mend))
        if word == "tools" and "groups" not in words.named():
            problems.extend(_options_without_effect(translation.config, config, sources))
        notes.append(Note(word, "info", f"given beside the file{_over(sources, word)}"))
        for path in [path for path in sources if path == word or path.startswith((f"{word}.", f"{word}["))]:
            del sources[path]
    if problems:
        raise ConfigError(*problems)
    if config.get("enabled") is False and "enabled" not in words.named():
        if config.get("tool") and translation.config.get("tool") is None and "tool" in words.named():
            del config["enabled"]  # it was off for want of a tool
        else:
            off = sources.get("enabled", "enabled")
            notes.append(Note(off, "doubtful", "the file turns profiling off; enabled: true turns it on"))
    return Translation(config, tuple(notes), sources, translation.generation)


def _options_without_effect(
    before: Mapping[str, Any], after: Mapping[str, Any], sources: Mapping[str, str]
) -> list[Problem]:
    """Options of a tool that were given beside the file and that a role of the file has too: the role's would win."""
    old, new = before.get("tools") or {}, after.get("tools") or {}
    given = {
        (tool, key): value
        for tool, options in new.items()
        if isinstance(options, Mapping)
        for key, value in options.items()
        if (old.get(tool) or {}).get(key) != value
    }
    problems = {}
    for group, rules in (before.get("groups") or {}).items():
        for index, rule in enumerate(rules if isinstance(rules, list) else [rules]):
            options = (rule.get("options") or {}) if rule and rule.get("enabled", True) else {}
            for (tool, key), value in given.items():
                if key in options and (rule.get("tool") or before.get("tool")) == tool and options[key] != value:
                    path = source_of(f"groups.{group}[{index}].options.{key}", sources)
                    said, mend = (
                        "the file says this for a role, and what it says there wins",
                        f"change {path}, or give groups",
                    )
                    problems[path, tool, key] = Problem(f"tools.{tool}.{key}", said, value=value, mend=mend)
    return list(problems.values())


def source_of(path: str, sources: Mapping[str, str]) -> str:
    """``path`` as the foreign file has it: what stands there itself, or below what stands there."""
    longest = max(map(len, sources), default=0)  # a key of a megabyte is compared no further
    for end in range(min(len(path), longest), 0, -1):
        if path[:end] in sources and (end == len(path) or path[end] in ".["):
            return sources[path[:end]] + path[end:]
    return path


def in_their_words(error: ConfigError, config: Config) -> ConfigError:
    """``error`` with every path, also those in its texts, as the file has it that ``config`` was translated from."""
    sources = config._sources
    if not sources:
        return error
    known = [path for path in sorted(sources, key=len, reverse=True) if "." in path or "[" in path]
    pattern = re.compile("|".join(rf"(?<![\w.]){re.escape(path)}(?![\w])" for path in known) or "(?!)")

    def said(text: str) -> str:
        return pattern.sub(lambda found: sources[found[0]], text)

    return ConfigError(*(problem.at(source_of(problem.path, sources), said) for problem in error.problems))


def _rules_with(translation: Translation, word: str, read: bool) -> list[str]:
    """Paths at which the file has ``word`` for a role; one that turns a role off has no say.

    ``read``: the file was read with the word, so a role's options are those of the tool that it names.
    """
    if word not in OF_RULES:
        return []
    wanted = SELECTORS if word in SELECTORS else ("tool", "options") if word == "tool" and not read else (word,)
    found: list[str] = []
    for group, rules in (translation.config.get("groups") or {}).items():
        for index, rule in enumerate(rules if isinstance(rules, list) else [rules]):
            if rule.get("enabled", True):
                place = f"groups.{group}[{index}]" if isinstance(rules, list) else f"groups.{group}"
                said = {*rule, *(("discrete",) if f"{place}.discrete" in translation.sources else ())}
                found.extend(f"{place}.{key}" for key in wanted if key in said)
    return found


def _over(sources: Mapping[str, str], word: str) -> str:
    return f"; it wins over {sources[word]}" if word in sources else ""


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def _has(mapping: Mapping[str, object], key: str) -> bool:
    here: Any = mapping
    for part in key.split("."):
        if isinstance(here, str) and "${" in here:
            return True  # what it stands for has the key or not; the dialect will say
        if not isinstance(here, Mapping) or part not in here:
            return False
        here = here[part]
    return True


def _paths(mapping: Mapping[str, object], before: str = "") -> list[str]:
    found: list[str] = []
    for key, value in mapping.items():
        path = f"{before}.{key}" if before else str(key)
        found.append(path)
        if isinstance(value, Mapping):
            found.extend(_paths(value, path))
    return found
