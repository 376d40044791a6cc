"""Facts about the machine that backends ask for; no torch is imported for them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from accelprof.contracts.machine import pci_devices, torch_build, torch_module


def test_the_build_of_torch_is_read_without_importing_it(tmp_path, monkeypatch):
    """``torch/version.py`` of a build for the device has its release; a module that is loaded has the word."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "version.py").write_text("cuda: Optional[str] = None\nhip = '6.2'\nxpu: Optional[str] = \"2025.1\"\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert [torch_build(kind) for kind in ("cuda", "hip", "xpu", "musa")] == [None, "6.2", "2025.1", None]
    assert torch_module("xpu", "xpu") is None
    loaded = SimpleNamespace(version=SimpleNamespace(xpu="2025.2"), xpu="the module")
    monkeypatch.setitem(sys.modules, "torch", loaded)
    assert (torch_build("xpu"), torch_module("xpu", "xpu")) == ("2025.2", "the module")
    assert (torch_build("hip"), torch_module("cuda", "hip")) == (None, None)


def test_devices_of_a_vendor_by_their_addresses(tmp_path):
    """Of another vendor, and what cannot be read, is none."""
    for name, vendor in (("a", "0x8086\n"), ("b", "0x1002\n"), ("c", "\xe9"), ("d", "0x8086\n"), ("e", None)):
        (tmp_path / name).mkdir()
        if vendor is not None:
            (tmp_path / name / "vendor").write_bytes(vendor.encode("latin-1"))
    assert pci_devices("0x8086", str(tmp_path / "*")) == ["a", "d"]
