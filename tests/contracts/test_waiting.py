"""Waiting for a device through torch's module of it: no device is started, and no capture of a graph is broken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from accelprof.contracts.backend import wait_for_devices
from accelprof.errors import CaptureError


def module(initialised: bool = True, capturing: bool = False, devices: int = 4) -> tuple[Any, list[Any]]:
    """A device module as torch's are, and the devices that it was asked to wait for (``None`` = the current one)."""
    waited: list[Any] = []
    return SimpleNamespace(
        is_initialized=lambda: initialised,
        is_current_stream_capturing=lambda: capturing,
        synchronize=lambda device=None: waited.append(device),
        device_count=lambda: devices,
        current_device=lambda: 1,
    ), waited


def test_a_device_that_is_not_in_use_is_not_started() -> None:
    """Without torch, and before the first use of the device, nothing is asked of it."""
    wait_for_devices(None)
    fake, waited = module(initialised=False)
    wait_for_devices(fake, lambda number: pytest.fail("asked"))
    assert waited == []


def test_every_device_in_use_is_waited_for_once() -> None:
    """The current device, and those others of which this process has a context."""
    fake, waited = module()
    wait_for_devices(fake, lambda number: number in (1, 3))
    assert waited == [None, 3]
    fake, waited = module()
    wait_for_devices(fake)
    assert waited == [None]


def test_a_graph_that_is_captured_is_left_alone() -> None:
    """Waiting inside a capture would end it; the error says so, and a module that cannot tell is waited for."""
    fake, waited = module(capturing=True)
    with pytest.raises(CaptureError, match="a graph is being captured"):
        wait_for_devices(fake)
    assert waited == []
    del fake.is_current_stream_capturing
    wait_for_devices(fake)
    assert waited == [None]
