"""Accelerator type ``npu``: mstx ranges on the host, device events of ``torch.npu``, device facts.

Outside a recording ``range_start`` answers 0 and ``range_push`` -1; that is normal. Only ``None`` says that the library
behind mstx is missing, and then torch_npu prints an error line for each call: so the first ``None`` ends annotating.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

from accelprof.contracts.backend import (
    NO_RANGE,
    Backend,
    BoundEmitter,
    BoundRange,
    DeviceTimer,
    EventTimer,
    Probe,
    RangeSpec,
    wait_for_devices,
)
from accelprof.texts import C_TEXT, quoted
from accelprof_ascend import vendor

log = logging.getLogger("accelprof")
#: the domain that mstx itself uses where none is named
DOMAIN = "default"


class NpuBackend(BoundEmitter, Backend):
    """See the module."""

    name: ClassVar[str] = "npu"
    aliases: ClassVar[tuple[str, ...]] = ("ascend",)

    def __init__(self) -> None:
        self._mstx: Any = None
        self._abilities: vendor.MstxAbilities | None = None
        self._dead = False

    def probe(self) -> Probe:
        reason = vendor.reason_not_loadable()
        if reason is not None:
            return Probe(None, f"unavailable: {reason}")
        try:
            torch_npu = vendor.load()
            count = int(torch_npu.npu.device_count())
        except Exception as error:  # noqa: BLE001 - a probe must not raise; the reason is what it is for
            return Probe(None, f"unavailable: {' '.join(str(error).split())[:300]}")
        facts = {"torch_npu": vendor.installed(), "devices": count, "mstx": self.abilities()}
        if not count:
            seen = os.environ.get(vendor.VISIBLE_ENV)
            hidden = f"; {vendor.VISIBLE_ENV}={seen!r}" if seen is not None else ""
            return Probe(None, f"unavailable: torch_npu {facts['torch_npu']} loads, but sees no device{hidden}", facts)
        return Probe(100, f"{count} NPU device(s), torch_npu {facts['torch_npu']}", facts)

    # --- ranges -----------------------------------------------------------------------------------------------------

    def abilities(self) -> vendor.MstxAbilities:
        """What this wheel's mstx takes, looked up once it is loaded; all ``False`` where there is none."""
        if self._abilities is None:
            torch_npu = vendor.loaded()
            if torch_npu is None:
                return vendor.MstxAbilities()
            self._mstx = getattr(torch_npu.npu, "mstx", None)
            self._abilities = vendor.mstx_abilities(self._mstx)
        return self._abilities

    def bind(self, spec: RangeSpec) -> BoundRange:
        can = self.abilities()
        if self._dead or not can.ranges:
            return NO_RANGE
        mstx, dead = self._mstx, self._library_missing
        message, place = _message(spec, can.domain), (spec.domain or DOMAIN,) if can.domain else ()
        keyword = {"domain": place[0]} if place else {}
        range_start, range_end = mstx.range_start, mstx.range_end

        def start() -> Any:
            if self._dead:
                return 0
            handle = range_start(message, **keyword)
            if handle is None:
                dead()
            return handle

        def end(handle: object) -> None:
            if handle:  # 0: nothing recorded it; None: the library is missing
                range_end(handle, *place)

        if can.push_pop:
            range_push, range_pop = mstx.range_push, mstx.range_pop

            def push() -> object:
                if self._dead:
                    return -1
                depth = range_push(message, **keyword)
                if depth is None:
                    dead()
                return depth

            def pop() -> Any:
                return -1 if self._dead else range_pop(*place)

            return BoundRange(push, pop, start, end)

        stacks = threading.local()  # this wheel has no push/pop; a thread's ranges end in the order of a stack

        def push_by_start() -> object:
            stack = stacks.__dict__.setdefault("handles", [])
            stack.append(start())
            return stack[-1]

        def pop_by_end() -> None:
            stack = stacks.__dict__.get("handles")
            if stack:
                end(stack.pop())

        return BoundRange(push_by_start, pop_by_end, start, end)

    def mark(self, spec: RangeSpec) -> object:
        can = self.abilities()
        if self._dead or not can.mark:
            return None
        message = _message(spec, can.mark_domain)
        return self._mstx.mark(message, domain=spec.domain or DOMAIN) if can.mark_domain else self._mstx.mark(message)

    def _library_missing(self) -> None:
        if not self._dead:
            self._dead = True
            log.warning(
                "accelprof: mstx answered None: CANN's libms_tools_ext.so is missing or too old; no further ranges are sent to it in this process"
            )

    # --- the device -------------------------------------------------------------------------------------------------

    def _npu(self) -> Any | None:
        """``torch.npu`` when a device is in use already."""
        torch_npu = vendor.loaded()
        return torch_npu.npu if torch_npu is not None and torch_npu.npu.is_initialized() else None

    def synchronize(self) -> None:
        torch_npu = vendor.loaded()
        if torch_npu is not None:
            in_use = getattr(getattr(torch_npu, "_C", None), "_npu_hasPrimaryContext", None)
            wait_for_devices(torch_npu.npu, in_use)

    def device_timer(self) -> DeviceTimer | None:
        npu = self._npu()
        return EventTimer(lambda: npu.Event(enable_timing=True)) if npu is not None else None

    def devices(self) -> list[Mapping[str, Any]]:
        torch_npu = vendor.loaded()
        if torch_npu is None:
            return []
        npu, names = torch_npu.npu, self._npu() is not None  # asking for a name starts the device
        numbers = range(int(npu.device_count()))
        return [{"index": at, "name": npu.get_device_name(at) if names else "Ascend NPU"} for at in numbers]

    def memory(self) -> Mapping[str, int]:
        npu = self._npu()
        if npu is None:
            return {}
        allocated, reserved, most = npu.memory_allocated(), npu.memory_reserved(), npu.max_memory_allocated()
        return {"allocated": int(allocated), "reserved": int(reserved), "max_allocated": int(most)}


def _message(spec: RangeSpec, domains: bool) -> str:
    """mstx refuses an empty message and one with a NUL; a wheel without domains gets the domain in front."""
    return quoted(f"{spec.domain}:{spec.label}" if spec.domain and not domains else spec.label, C_TEXT)
