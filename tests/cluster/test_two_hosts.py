"""A run over two hosts: names, files and journals of one are not those of the other."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="ray is not installed")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(480),
    pytest.mark.second_try("a cluster of processes starts and ends on a machine that may be busy"),
]

DRIVER = Path(__file__).with_name("two_hosts.py")
NSYS = shutil.which("nsys") is not None and importlib.util.find_spec("accelprof_cuda") is not None


@dataclass
class Ran:
    """What the driver said, and the run's directory on its own host."""

    told: dict[str, Any]
    place: Path

    def rows(self, tool: str, host: str) -> list[dict[str, Any]]:
        return [row for row in self.told["manifest"]["artifacts"] if (row["tool"], row["host"]) == (tool, host)]


#: one cluster for all of them; files are copied, or stay where they are, where a worker is killed there
RUNS: dict[str, dict[str, Any]] = {
    "collected": {"steps": [1, 2], "collect": "copy", **({"tool": "nsys"} if NSYS else {})},
    "killed": {"steps": [1, 2], "killed": True},
    "dumped": {"recorder": {}, "collect": "copy", "fails": 2},
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """The runs by name; skips where no second host can be made."""
    place = tmp_path_factory.mktemp("two-hosts")
    output = place / "out"
    output.mkdir()
    trial = ["unshare", "--mount", "--uts", "bash", "-c", 'hostname other && mount -t tmpfs none "$0"', str(output)]
    if shutil.which("unshare") is None or subprocess.run(trial, capture_output=True, check=False).returncode != 0:
        pytest.skip("a second host cannot be made here: unshare(1) with a mount and a UTS namespace is not allowed")
    env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_ADDRESS": ""}
    argv = [sys.executable, str(DRIVER), str(output), json.dumps(RUNS)]
    done = subprocess.run(argv, cwd=place, capture_output=True, text=True, timeout=450, env=env, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {one["name"]: Ran(one, output / one["name"]) for one in told}


@pytest.fixture
def collected(ran: dict[str, Ran]) -> Ran:
    """Windows on two steps of a worker on each host, under nsys where it is installed; files are copied."""
    return ran["collected"]


def test_files_of_the_other_host_are_collected(collected: Ran) -> None:
    """They are not here before the end, and all of them are afterwards, under the other host's name."""
    told, manifest = collected.told, collected.told["manifest"]
    assert told["hosts"][1] == "host2" != told["hosts"][0]
    assert told["before"]
    assert all("host2" not in path for path in told["before"])
    assert manifest["status"] == "complete", manifest
    for host in told["hosts"]:
        rows = collected.rows("trace", host)
        assert [(row["state"], len(row["windows"])) for row in rows] == [("complete", 1)] * 2
        for row in rows:
            assert (collected.place / row["path"]).stat().st_size == row["bytes"] > 0
    assert (collected.place / "timeline.json.gz").stat().st_size > 0


def test_timings_and_clocks_of_both_hosts_are_there(collected: Ran) -> None:
    """The second host runs on the driver's kernel, and that is found out: no offset is made up."""
    assert set(collected.told["timings"]["actor/update"]) == {"Actors/rank0", "Actors/rank1"}
    clocks = {
        row["label"]: (row["basis"], row["offset_ns"]) for row in collected.told["manifest"]["clock_offsets"].values()
    }
    assert clocks == {f"Actors/rank{rank}": ("same kernel", 0) for rank in (0, 1)}


@pytest.mark.nsys
def test_nsys_on_the_other_host(collected: Ran) -> None:
    """A wrapped start there makes its directories there; the reports are awaited there and collected."""
    if not NSYS:
        pytest.skip("nsys or the plug-in of nsys is not installed")
    rows = collected.rows("nsys", "host2")
    assert [(row["state"], len(row["windows"])) for row in rows] == [("complete", 1)] * 2, collected.told["manifest"]
    for row in rows:
        assert (collected.place / row["path"]).stat().st_size == row["bytes"] > 0


def test_a_worker_killed_on_the_other_host_leaves_what_it_had_finished(ran: dict[str, Ran]) -> None:
    """Its journal is read on its own host; without ``collect`` its files stay there, and the manifest says where."""
    killed = ran["killed"]
    rows = killed.rows("trace", "host2")
    assert [(row["state"], row["rank"], row["remote"]) for row in rows] == [("complete", 1, True)] * 2
    assert not any((killed.place / row["path"]).exists() for row in rows)
    windows = [row["steps"] for row in killed.told["manifest"]["windows"] if "host2" in row["target"]]
    assert windows == [[1], [2]]


def test_a_dump_of_one_host_is_the_dump_of_all(ran: dict[str, Ran]) -> None:
    """What only the second host has seen is asked for on the driver's too, of the same steps, and both parts end in one directory
    here, which the report reads."""
    place = ran["dumped"].place
    (dump,) = (place / "recorder").iterdir()
    assert dump.name == "exception-1"
    keys = {path.stem for path in (dump / ".workers").iterdir()}
    assert {key.split("-")[1] for key in keys} == {"r0", "r1"}
    assert any("host2" in key for key in keys)
    seen = {}
    for path in (dump / ".workers").iterdir():
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        seen[path.stem] = [row["steps"] for row in rows if row["kind"] == "window"]
    assert set(map(str, seen.values())) == {"[[1, 2]]"}
    done = subprocess.run(
        [sys.executable, "-m", "accelprof", "report", str(dump)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "a worker raised" in done.stdout
    assert not list(place.glob(".recorder/*.ring"))
