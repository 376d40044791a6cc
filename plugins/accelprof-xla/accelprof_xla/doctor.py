"""Rows of ``accelprof doctor`` for JAX and TPUs."""

from __future__ import annotations

import importlib.util

from accelprof.contracts.doctor import Check
from accelprof_xla.backend import XlaBackend, installed, tpus


def checks() -> list[Check]:
    probe, chips, release = XlaBackend().probe(), tpus(), installed()
    rows = [Check("xla", "backend", "ok" if probe.available else "info", probe.reason)]
    if chips and importlib.util.find_spec("libtpu") is None:
        said = f"{chips} chip(s), but libtpu is not installed"
        rows.append(Check("xla", "TPU", "warn", said, "pip install 'jax[tpu]'"))
    else:
        rows.append(Check("xla", "TPU", "ok" if chips else "info", f"{chips} chip(s)" if chips else "no TPU here"))
    mend = "" if release else "pip install 'accelprof-xla[jax]' where reports are made: reading xplane files needs it"
    rows.append(Check("xla", "reader", "ok" if release else "info", f"jax {release}" if release else "no jax", mend))
    return rows
