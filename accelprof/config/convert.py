"""Any dialect as a file of ours: each key with the source key it came from, and what was dropped, changed or doubtful."""

from __future__ import annotations

import re
from collections.abc import Mapping

import yaml

from accelprof.config.load import Loaded

_PLAIN_KEY = re.compile(r"^[A-Za-z_][\w.-]*$")


def to_yaml(loaded: Loaded) -> str:
    """``loaded`` as YAML that loads to an equal configuration, with comments."""
    config = loaded.config.model_dump(mode="json", exclude_unset=True)
    generation = f", generation {loaded.generation}" if loaded.generation else ""
    lines = [f"# from {loaded.source} ({loaded.dialect} dialect{generation})"]
    for note in loaded.notes:
        lines.append(f"# {note.kind}: {note.path}: {' '.join(note.text.split())}")
    lines.append("")
    lines.extend(_mapping(config, "", 0, loaded.sources or {}))
    return "\n".join(lines) + "\n"


def _mapping(mapping: Mapping[str, object], path: str, depth: int, sources: Mapping[str, str]) -> list[str]:
    if not mapping:
        return []
    lines: list[str] = []
    for key, value in mapping.items():
        here = f"{path}.{key}" if path else str(key)
        lines.extend(_item(f"{'  ' * depth}{_key(key)}:", value, here, depth, sources))
    return lines


def _item(head: str, value: object, path: str, depth: int, sources: Mapping[str, str]) -> list[str]:
    comment = f"  # {sources[path]}" if path in sources else ""
    if isinstance(value, Mapping) and value:
        return [head + comment, *_mapping(value, path, depth + 1, sources)]
    if isinstance(value, list) and value and all(isinstance(item, Mapping) and item for item in value):
        lines = [head + comment]
        for index, item in enumerate(value):
            inner = _mapping(item, f"{path}[{index}]", depth + 2, sources)
            first = inner[0].lstrip()
            lines.extend([f"{'  ' * (depth + 1)}- {first}", *inner[1:]])
        return lines
    return [f"{head} {_scalar(value)}{comment}"]


def _key(key: str) -> str:
    return key if _PLAIN_KEY.match(key) and yaml.safe_load(key) == key else _scalar(key)


def _scalar(value: object) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").strip()
