"""Runs ``verl_calls.py`` for several releases of verl, each in a process of its own, forked after what all of them import.

usage: verl_each.py DIRECTORY…, each with a release's ``verl`` below ``verl``; ``found.json`` and ``stderr`` are written there.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import ray  # noqa: F401
import tensordict  # noqa: F401
import torch  # noqa: F401
import transformers  # noqa: F401
import yaml  # noqa: F401
from omegaconf import OmegaConf  # noqa: F401


def call(place: str) -> None:
    """The forked process: nothing of verl has been imported before."""
    with open(f"{place}/stderr", "wb", buffering=0) as file:
        os.dup2(file.fileno(), 2)
    assert not any(name.partition(".")[0] == "verl" for name in sys.modules)
    os.chdir(place)
    sys.path.insert(0, f"{place}/verl")
    sys.argv = ["verl_calls.py", f"{place}/found.json"]
    runpy.run_path(str(Path(__file__).with_name("verl_calls.py")), run_name="__main__")


if __name__ == "__main__":
    for directory in sys.argv[1:]:
        child = os.fork()
        if child == 0:
            call(directory)
            break
        os.waitpid(child, 0)
