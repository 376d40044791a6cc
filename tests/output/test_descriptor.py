"""Descriptors that training closes under us: no error, and no byte of ours in a file of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

JOB = """
import os, sys
import accelprof

session = accelprof.configure(steps=[1, 3], ranks="all", merge_steps=False, output_dir="o", run="r", group="G")
taken = []

def steps(first):
    for number in range(first, first + 2):
        with session.step(number):
            pass

steps(0)
os.closerange(3, 1000)
if sys.argv[1] == "taken":
    for number in range(40):
        taken.append(os.open(f"own-{number}", os.O_RDWR | os.O_CREAT | os.O_APPEND))
steps(2)
manifest = session.close()
for handle in taken:
    os.write(handle, b"training's")
print(manifest["status"], len(manifest["windows"]), manifest["problems"], len(os.listdir("o/r/.workers")) if os.path.exists("o/r/.workers") else 0)
"""


@pytest.mark.parametrize("how", ["closed", "taken"])
@pytest.mark.parametrize("launched", [False, True])
def test_training_that_closes_every_descriptor_keeps_its_run_and_its_files(
    how: str, launched: bool, tmp_path: Path
) -> None:
    """``os.closerange`` in a window's middle: both windows are there, ``close`` raises nothing, and training's own files,
    which got the numbers, hold what training wrote and are open still."""
    env = {"RANK": "0", "TORCHELASTIC_RUN_ID": "job", "MASTER_ADDR": "here", "MASTER_PORT": "1"} if launched else {}
    done = subprocess.run(
        [sys.executable, "-c", JOB, how],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("complete 2 []"), (done.stdout, done.stderr)
    assert {file.read_bytes() for file in tmp_path.glob("own-*")} == ({b"training's"} if how == "taken" else set())
