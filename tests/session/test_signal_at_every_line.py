"""A signal that ends the process may come between any two lines: the session closes there, at once, and what was recorded is written.

A process runs steps, windows and a plain phase with everything switched on that writes: timeline, recorder, windows on demand
and by signal, budget, exporters. SIGTERM is raised when a line runs on the main thread for the first time, in a process of its own for
each line; whoever waits there for a lock that its own interrupted frame holds would never end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from accelprof.threads import each

#: how many of the lines are tried, two thirds of them while steps run and the others while the session closes; more by `make fuzz`
TRIED = 15

JOB = """
import os, signal, sys, threading, time, faulthandler
import accelprof

mode, at, run = sys.argv[1], int(sys.argv[2]), sys.argv[3]
package = os.path.dirname(accelprof.__file__)
others = {threading.__file__, signal.__file__}
seen, lines = set(), 0

def here(frame):
    name = frame.f_code.co_filename
    return name.startswith(package) or name in others

def trace(frame, event, arg):
    global lines
    if not here(frame):
        return None
    if event == "line":
        back = frame
        while back is not None and not back.f_code.co_filename.startswith(package):
            back = back.f_back
        key = (frame.f_code, frame.f_lineno, back and (back.f_code, back.f_lineno))
        if key not in seen:
            seen.add(key)
            lines += 1
            if mode == "raise" and lines == at:
                sys.settrace(None)
                faulthandler.dump_traceback_later(15, exit=True)
                print(f"{frame.f_code.co_filename}:{frame.f_lineno}", flush=True)
                os.kill(os.getpid(), signal.SIGTERM)
    return trace

def work():
    for number in range(1, 4):
        with session.step(number):
            plain(0)
            if number == 1:
                signal.raise_signal(signal.SIGUSR2)  # a window is asked for
            with accelprof.profiling_range("block"):
                plain(0)

plain = accelprof.timer("plain")(time.sleep)
session = accelprof.configure(
    tool="trace", steps=[3], recorder={"hang": 30, "slow": 1.0001}, output_dir=run, run="r", group="G", rank=0, world_size=1,
    on_demand={"signal": True}, budget={"per_window": "1GB"}, export={"jsonl": {}}, on_error="warn",
)
plain(0)
sys.settrace(trace)
work()
in_steps = lines
session.close()
sys.settrace(None)
print(in_steps, lines)
"""


def run(tmp_path: Path, mode: str, at: int) -> tuple[subprocess.CompletedProcess[str], Path]:
    directory = tmp_path / f"{mode}-{at}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", JOB, mode, str(at), str(directory)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done, directory


def test_sigterm_ends_the_process_wherever_it_comes(tmp_path: Path) -> None:
    """It ends by that signal, without a traceback, with a manifest."""
    counted, _ = run(tmp_path, "count", 0)
    assert counted.returncode == 0, counted.stderr
    in_steps, lines = map(int, counted.stdout.split()[-2:])
    assert 300 < in_steps < lines - 500
    wrong: list[str] = []
    unreached: list[int] = []
    third = int(os.environ.get("ACCELPROF_SIGNAL_LINES", TRIED)) // 3
    of_steps, of_end = range(1, in_steps, in_steps // (2 * third)), range(in_steps, lines, (lines - in_steps) // third)
    places = [*of_steps, *of_end]

    def one(at: int) -> None:
        done, directory = run(tmp_path, "raise", at)
        where = done.stdout.strip()
        if not done.returncode and where.replace(" ", "").isdigit() and int(where.split()[1]) < at:
            unreached.append(at)  # how many lines the session's end takes depends on what its threads have done by then
        elif done.returncode != -signal.SIGTERM:
            wrong.append(f"line {at}, {where}: status {done.returncode}\n{done.stderr}")
        elif "Traceback" in done.stderr or "failed" in done.stderr:
            wrong.append(f"line {at}, {where}:\n{done.stderr}")
        else:
            try:
                json.loads((directory / "r" / "manifest.json").read_text())
            except (OSError, ValueError) as error:
                wrong.append(f"line {at}, {where}: {error!r}\n{done.stderr}")

    each(one, places, 2, "signals")
    assert all(at > in_steps for at in unreached)
    assert len(unreached) < third
    assert not wrong, f"{len(wrong)} of {len(places)}\n" + "\n".join(wrong[:5])
