"""Facts about this machine that backends ask for in the same way; no device is started and no torch imported for them."""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any


def torch_build(platform: str) -> str | None:
    """``torch.version.<platform>`` (``cuda``, ``hip``, ``xpu``) of the torch that is loaded, else of the installed one, read from its
    file; ``None`` for other builds or none."""
    if "torch" in sys.modules:
        return getattr(getattr(sys.modules["torch"], "version", None), platform, None) or None
    try:
        spec = importlib.util.find_spec("torch")
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8") if spec and spec.origin else ""
    except (ImportError, ValueError, OSError):
        return None
    found = re.search(rf"^{platform}\s*(?::[^=]*)?=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return found[1] if found else None


def torch_module(name: str, platform: str) -> Any | None:
    """``torch.<name>`` where a torch that was built for ``platform`` is loaded."""
    torch = sys.modules.get("torch")
    return getattr(torch, name, None) if torch is not None and torch_build(platform) else None


def pci_devices(vendor: str, places: str) -> list[str]:
    """PCI addresses of a vendor's (``0x8086``) devices among the directories that the glob ``places`` names."""
    found = []
    for place in sorted(glob.glob(places)):
        try:
            if Path(place, "vendor").read_text(encoding="ascii").strip() == vendor:
                found.append(os.path.basename(os.path.realpath(place)))
        except (OSError, ValueError):
            continue
    return found
