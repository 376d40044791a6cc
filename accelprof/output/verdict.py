"""What was asked for and is not there, read off a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def verdict(manifest: Mapping[str, Any]) -> list[str]:
    """One line each: targets that were armed and opened nothing, windows that did not close, files that are not whole."""
    lacking: list[str] = []
    for target in manifest["targets"]:
        key = target["key"]
        own = [window for window in manifest["windows"] if window.get("target") == key]
        if target.get("armed") and not own:
            said = [text for text in manifest["problems"] if text.startswith(f"{key}: armed, 0 windows opened")]
            lacking.append(said[0] if said else f"{key}: armed, 0 windows opened; wanted: {target.get('wanted')}")
        for window in own:
            if window.get("closed") is None:
                lacking.append(f"{key}: window {window['id']} was never closed")
            for text in window.get("errors", ()):
                lacking.append(f"{key}: window {window['id']}: {text}")
            tool = target.get("tool")
            if tool and tool not in window.get("tools", (tool,)) and tool != "trace":
                lacking.append(f"{key}: window {window['id']} was recorded without {tool}")
    for artifact in manifest["artifacts"]:
        if artifact.get("state") != "complete":
            why = f": {artifact['reason']}" if artifact.get("reason") else ""
            lacking.append(f"{artifact['path']} ({artifact.get('tool')}) is {artifact.get('state')}{why}")
    return list(dict.fromkeys(lacking))
