"""Driver of ``test_two_hosts.py``: runs, one after the other, on a Ray cluster of this machine and a second "host", which has a
name and files of its own. Prints one line of JSON a run.

usage: two_hosts.py OUTPUT CONFIGURATIONS, the latter JSON by the name of a run; a run ``NAME`` leaves ``OUTPUT/NAME``

The second raylet runs in namespaces of its own (``unshare``), where an empty file system hides the output directory. Both run
on one kernel, so their clocks are one.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from accelprof import Worker
from accelprof.cluster import Controller

AWAY = "host2"
START = """
set -e
hostname "$1"
mount -t tmpfs none "$2"
exec "$3" start --address="$4" --num-cpus=2 --resources='{"away": 2}' --object-store-memory=80000000 --disable-usage-stats --block
"""


class Trainer(Worker):
    @Worker.timer("actor/update")
    def update(self) -> str:
        return os.uname().nodename

    def fail(self) -> None:
        """What is wrong is seen on this host alone."""
        from accelprof.output.dumps import Cause
        from accelprof.session.configure import current_session

        current_session().course.recorder.want(Cause("exception", 2, "a worker raised"))
        raise RuntimeError("a worker raised")


def second_host(address: str, hidden: str) -> subprocess.Popen[bytes]:
    tool = str(Path(sys.executable).with_name("ray"))
    argv = ["unshare", "--mount", "--uts", "bash", "-c", START, "bash", AWAY, hidden, tool, address]
    return subprocess.Popen(argv, stdout=sys.stderr, stderr=sys.stderr)


def main() -> None:
    output, configs = sys.argv[1], json.loads(sys.argv[2])
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 2,
            "resources": {"here": 2},
            "include_dashboard": False,
            "object_store_memory": 80_000_000,
        },
    )
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    away = second_host(cluster.address, output)
    try:
        limit = time.monotonic() + 60
        while sum(node["Alive"] for node in ray.nodes()) < 2:
            assert time.monotonic() < limit, "the second host did not join"
            time.sleep(0.2)
        for name, config in configs.items():
            print(json.dumps({"name": name, **run(output, name, config)}, default=str))
    finally:
        ray.shutdown()
        away.terminate()
        away.wait(timeout=30)
        cluster.shutdown()


def run(output: str, name: str, config: dict[str, Any]) -> dict[str, Any]:
    killed, fails = config.pop("killed", False), config.pop("fails", None)
    ctl = Controller({"output_dir": output, "run": name, "ranks": "all", **config})
    here = ray.remote(num_cpus=0, resources={"here": 1})(Trainer).options(**ctl.options("Actors", rank=0)).remote()
    there = ray.remote(num_cpus=0, resources={"away": 1})(Trainer).options(**ctl.options("Actors", rank=1)).remote()
    hosts = ray.get([here.update.remote(), there.update.remote()], timeout=120)
    ctl.attach("Actors", [here, there])
    timings: dict[str, Any] = {}
    for step in (1, 2):
        try:
            with ctl.step(step):
                ray.get([here.update.remote(), there.update.remote()], timeout=60)
                if step == fails:
                    ray.get(there.fail.remote(), timeout=60)
        except ray.exceptions.RayTaskError:
            pass
        if step == 1:
            timings = dict(ctl.metrics(per_rank=True))
    if fails is not None:  # the driver's own host has seen nothing wrong
        limit = time.monotonic() + 60
        while not list(Path(output, name).glob("recorder/*/.workers/*")) and time.monotonic() < limit:
            time.sleep(0.2)
    before = sorted(str(path.relative_to(output)) for path in Path(output, name).glob("Actors/*"))
    if killed:
        ray.kill(there)
        time.sleep(1)
    manifest = ctl.close(end_workers=not killed)
    for actor in [here] if killed else [here, there]:
        ray.kill(actor)
    return {"hosts": hosts, "before": before, "manifest": manifest, "timings": timings}


if __name__ == "__main__":
    main()
