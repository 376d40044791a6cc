"""Halves of files that a killed process leaves say whose they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from accelprof.contracts.names import half
from accelprof.output.atomic import halves


def test_a_half_of_a_process_that_is_gone_is_found_and_ones_own_is_not(tmp_path: Path) -> None:
    """By its name alone, whichever writer it is of: a timeline, a torch trace before and after packing, a memory snapshot."""
    names = ["a.trace.json.gz", "b.pt.trace.json", "b.pt.trace.json.gz", "c.memory.pickle"]
    code = "import sys; from accelprof.contracts.names import half; [open(half(path), 'w').close() for path in sys.argv[1:]]"
    subprocess.run([sys.executable, "-c", code, *(str(tmp_path / name) for name in names)], check=True)
    left = sorted(os.listdir(tmp_path))
    assert [name.split(".part")[0].rsplit(".", 2)[0] for name in left] == names
    Path(half(str(tmp_path / "mine"))).touch()
    assert halves(str(tmp_path)) == left
