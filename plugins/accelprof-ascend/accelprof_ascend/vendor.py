"""What is known about the installed torch_npu and CANN, found without starting a device.

What a wheel can do differs by its ``.postN`` more than by its version, so abilities are read from signatures, never from
version strings.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accelprof import versions
from accelprof.contracts.spans import HostCalls

#: what CANN calls its launches, in the files of torch_npu and msprof
CALLS = HostCalls(
    launches=r"(?i:Launch(?:Cooperative)?Kernel|(?<!Append)(?:Graph|Kernel)Launch)",
    capture_begins=r"CaptureBegin|BeginCapture",
    capture_ends=r"CaptureEnd|EndCapture",
)
AUTOLOAD_ENV = "TORCH_DEVICE_BACKEND_AUTOLOAD"
HOME_ENV = "ASCEND_HOME_PATH"
#: what comes of :data:`HOME_ENV` without a value
NO_HOME = "not set: torch_npu searches the whole working directory for CANN's version at the end of every window"
VISIBLE_ENV = "ASCEND_RT_VISIBLE_DEVICES"
#: what torch_npu links against; absent = CANN is not installed, or its set_env.sh was not sourced
CANN_LIBRARIES = ("libascendcl.so", "libhccl.so")
#: variables under which ``torch_npu.profiler`` does nothing or something else, and what they do
SILENCING: Mapping[str, str] = {
    "PROFILER_SAMPLECONFIG": "set by msprof; torch_npu.profiler does nothing under it",
    "PROFILING_MODE": "dynamic msprof; torch_npu.profiler does nothing under it",
}
INTERFERING: Mapping[str, str] = {
    "PROF_CONFIG_PATH": "makes torch_npu start its own dynamic profiler on the optimizer step",
    "MSMONITOR_USE_DAEMON": "makes torch_npu start its own dynamic profiler for the msmonitor daemon",
}


def places() -> list[str]:
    """Directories of the installed package ``torch_npu``, which is not imported for that; empty without one."""
    try:
        spec = importlib.util.find_spec("torch_npu")
    except ValueError:  # a module of that name without a spec
        return []
    return list((spec and spec.submodule_search_locations) or ())


def installed() -> str:
    """Version of the installed torch_npu; empty without one."""
    if not places() and loaded() is None:
        return ""
    return versions.installed("torch-npu") or "of unknown version"


def loaded() -> Any | None:
    """The module ``torch_npu`` when this process has it already; never imports."""
    module = sys.modules.get("torch_npu")
    return module if module is not None and hasattr(module, "npu") else None


def reason_not_loadable() -> str | None:
    """Why ``import torch_npu`` would fail here, in one line; ``None`` when nothing is known against it.

    Looks at the libraries rather than trying: a failed ``import torch`` leaves the process with half of torch.
    """
    if loaded() is not None:
        return None
    version = installed()
    if not version:
        return "torch_npu is not installed"
    for library in CANN_LIBRARIES:
        error = _dlopen(library)
        if error is not None:
            text = f"torch_npu {version} is installed but CANN is not found ({error})"
            if os.environ.get(AUTOLOAD_ENV) != "0":
                text += ", so `import torch` itself raises"
            return f"{text}; source CANN's set_env.sh, or set {AUTOLOAD_ENV}=0 to use torch without NPUs"
    return None


def _dlopen(library: str) -> str | None:
    """The loader's message when ``library`` is on none of the paths that torch_npu's own libraries look at."""
    message = ""
    beside = [os.path.join(os.path.dirname(place), "torch_npu.libs", library) for place in places()]
    for path in (library, *beside):
        try:
            ctypes.CDLL(path)
        except OSError as error:
            message = message or str(error)
        else:
            return None
    return " ".join(message.split())


def load() -> Any:
    """``torch_npu``, imported.

    Raises:
        RuntimeError: it is not installed or does not load; the message has the reason in one line.
    """
    module = loaded()
    if module is not None:
        return module
    reason = reason_not_loadable()
    if reason is not None:
        raise RuntimeError(reason)
    try:
        return importlib.import_module("torch_npu")
    except Exception as error:
        # torch reports a backend that does not load as RuntimeError, torch_npu a missing symbol as ImportError
        causes = [str(part) for part in (error.__cause__, error) if part is not None]
        text = " ".join(causes[0].split())[:300]
        raise RuntimeError(
            f"torch_npu {installed()} does not load: {text}; it needs the torch of its own minor version and a CANN that is new enough"
        ) from error


@dataclass(frozen=True)
class MstxAbilities:
    """What ``torch_npu.npu.mstx`` of a wheel takes. ``None``-like wheels without mstx have all ``False``."""

    ranges: bool = False
    domain: bool = False
    push_pop: bool = False
    mark: bool = False
    mark_domain: bool = False


def mstx_abilities(mstx: object) -> MstxAbilities:
    """Read from signatures: ``domain=`` came in the 2.6 era, ``range_push``/``range_pop`` only with later ``.postN``."""
    start = getattr(mstx, "range_start", None)
    mark = getattr(mstx, "mark", None)
    return MstxAbilities(
        ranges=start is not None and hasattr(mstx, "range_end"),
        domain=start is not None and "domain" in _parameters(start),
        push_pop=hasattr(mstx, "range_push") and hasattr(mstx, "range_pop"),
        mark=mark is not None,
        mark_domain=mark is not None and "domain" in _parameters(mark),
    )


def _parameters(function: Any) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return frozenset()


def config_parameters() -> frozenset[str] | None:
    """Arguments of this wheel's ``_ExperimentalConfig``; ``None`` without a wheel.

    From the signature where torch_npu is loaded, else from the wheel's source: a driver needs neither CANN nor the seconds
    that importing takes.
    """
    module = loaded()
    if module is not None:
        profiler = getattr(module, "profiler", None)
        config = getattr(profiler, "_ExperimentalConfig", None)
        return None if config is None else _parameters(config.__init__) - {"self"}
    return _parameters_in_source()


@functools.cache
def _parameters_in_source() -> frozenset[str] | None:
    for place in places():
        path = os.path.join(place, "profiler", "experimental_config.py")
        try:
            with open(path, encoding="utf-8") as file:
                tree = ast.parse(file.read())
        except (OSError, SyntaxError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                names = [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
                if "profiler_level" in names:
                    return frozenset(names) - {"self"}
    return None


def set_in_environment(table: Mapping[str, str]) -> list[str]:
    """``NAME=value: what it does`` for the variables of ``table`` that are set to something."""
    found = []
    for name, effect in table.items():
        value = os.environ.get(name)
        if value and value != "0":
            found.append(f"{name}={value[:60]}: {effect}")
    return found
