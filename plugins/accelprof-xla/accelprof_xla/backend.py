"""Accelerator type ``xla``: annotations of ``jax.profiler`` as ranges, JAX's devices as facts. Nothing here starts a device."""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import re
import sys
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

from accelprof import versions
from accelprof.contracts.backend import Backend, BoundEmitter, BoundRange, Probe, RangeSpec
from accelprof.contracts.machine import pci_devices
from accelprof.errors import CaptureError
from accelprof.texts import quoted

#: device files of TPUs: the older driver's, and VFIO's beside Google's PCI vendor
TPU_FILES = "/dev/accel[0-9]*"
PCI = "/sys/bus/pci/devices/*"
GOOGLE = "0x1ae0"
#: the key of an annotation's arguments by which the reader knows our ranges and marks
KEY = "accelprof"
#: XLA ends a name at ``#``, where an annotation's arguments begin, takes no NUL, and cuts blanks off its ends
_SPOILT = re.compile(r"[#\0]|^\s+|\s+$")


def loaded() -> Any | None:
    """The module ``jax`` when this process has it already; never imports."""
    module = sys.modules.get("jax")
    return module if hasattr(module, "profiler") else None


def in_use() -> Any | None:
    """``jax`` when it has started its devices; asking it anything about them earlier would start them."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", None)
    return loaded() if started is not None and started() else None


def installed() -> str:
    """Release of the installed jax; empty without one."""
    return versions.installed("jax") or ""


def tpus() -> int:
    """TPU chips that the kernel shows."""
    return len(glob.glob(TPU_FILES)) or len(pci_devices(GOOGLE, PCI))


class XlaBackend(BoundEmitter, Backend):
    """See the module. JAX has neither a trigger call for tools outside nor events, so there are no device times outside windows."""

    name: ClassVar[str] = "xla"
    aliases: ClassVar[tuple[str, ...]] = ("tpu", "jax")

    def __init__(self) -> None:
        self._open = threading.local()

    def probe(self) -> Probe:
        release, chips, jax = installed(), tpus(), in_use()
        if not release and loaded() is None:
            return Probe(None, "unavailable: jax is not installed")
        facts = {"jax": release, "tpus": chips, "platform": jax.default_backend() if jax else None}
        if chips and importlib.util.find_spec("libtpu") is not None:
            return Probe(100, f"{chips} TPU chip(s), jax {release}", facts)
        if jax is not None:
            return Probe(1, f"jax {release} runs on {facts['platform']} in this process", facts)
        # below the CPU's own backend: an installed jax says nothing about a process that may never import it
        return Probe(-1, f"jax {release} is installed and has no device in use here", facts)

    def bind(self, spec: RangeSpec) -> BoundRange:
        jax = loaded()
        if jax is None:
            raise CaptureError("this process has not imported jax; import it before the first window")
        make, label, opened = jax.profiler.TraceAnnotation, _label(spec), self._open

        def begin(kind: str = "range") -> Any:
            annotation = make(label, **{KEY: kind, **({"domain": spec.domain} if spec.domain else {})})
            annotation.__enter__()
            return annotation

        def push() -> None:
            opened.__dict__.setdefault("stack", []).append(begin())

        def pop() -> None:
            stack = opened.__dict__.get("stack")
            if stack:
                finish(stack.pop())

        def finish(annotation: Any) -> None:
            annotation.__exit__(None, None, None)

        return BoundRange(push, pop, begin, finish)

    def mark(self, spec: RangeSpec) -> Any:
        """JAX has no instants: an annotation without length, which the reader makes a mark again."""
        jax = loaded()
        if jax is not None:
            with jax.profiler.TraceAnnotation(_label(spec), **{KEY: "mark"}):
                pass

    # --- the device -------------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Wait for every array that is still being computed, and for effects in order; nothing is launched for it."""
        jax = in_use()
        if jax is None:
            return
        for array in jax.live_arrays():
            with contextlib.suppress(RuntimeError):  # deleted or donated meanwhile
                array.block_until_ready()
        jax.effects_barrier()

    def devices(self) -> list[Mapping[str, Any]]:
        jax = in_use()
        if jax is None:
            return [{"index": number, "name": "TPU"} for number in range(tpus())]
        return [{"index": device.id, "name": device.device_kind} for device in jax.local_devices()]

    def memory(self) -> Mapping[str, int]:
        jax = in_use()
        stats = (jax.local_devices()[0].memory_stats() if jax else None) or {}
        names = {"allocated": "bytes_in_use", "peak": "peak_bytes_in_use", "limit": "bytes_limit"}
        return {ours: int(stats[theirs]) for ours, theirs in names.items() if theirs in stats}


def _label(spec: RangeSpec) -> str:
    return quoted(str(spec.label), _SPOILT)
