"""Sessions one after the other in one process, each with a window, a listener and a whole run at its end: nothing of them stays.

``python tests/fuzz/load.py --sessions 1000`` prints resident memory, descriptors and threads on the way; status 1 where, after
the first hundred, memory grew by more than 5 MB or a descriptor or thread is left. A short part of it is
``tests/session/test_session_load.py``.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import accelprof

GROWTH = 5 << 20


class Job(accelprof.Worker):
    @accelprof.Worker.timer("phase")
    def phase(self) -> None:
        pass


def one(place: str, number: int) -> None:
    session = accelprof.configure(
        steps=[1], on_demand=True, output_dir=place, run=f"r{number}", group="G", rank=0, timeline=True
    )
    with session.step(1):
        Job().phase()
    session.close()
    accelprof.reset()
    shutil.rmtree(Path(place, f"r{number}"))


def held() -> tuple[int, int, int]:
    """Resident bytes, descriptors, threads."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd")), threading.active_count()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1000)
    count = parser.parse_args().sessions
    logging.getLogger("accelprof").setLevel(logging.ERROR)
    began, first = time.monotonic(), (0, 0, 0)
    with tempfile.TemporaryDirectory() as place:
        for number in range(1, count + 1):
            one(place, number)
            if number % max(1, count // 10) == 0:
                memory, descriptors, threads = now = held()
                first = now if first == (0, 0, 0) else first
                print(
                    f"{number:,} sessions, {time.monotonic() - began:.0f} s: {memory / 1e6:.1f} MB, "
                    f"{descriptors} descriptors, {threads} threads",
                    flush=True,
                )
    return int(now[0] - first[0] > GROWTH or now[1:] != first[1:])


if __name__ == "__main__":
    sys.exit(main())
