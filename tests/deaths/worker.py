"""A job of one process that ends in the way its first argument says, in step 2 of windows 1, 2 and 3. Run by test_plain_deaths.py."""

import atexit
import ctypes
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import accelprof
from accelprof import hookimpl
from accelprof.contracts.targets import ArtifactFile
from accelprof.contracts.tool import Tool

HOW = sys.argv[1]
PLACE = sys.argv[2] if len(sys.argv) > 2 else "o"
OWN = {
    "steps": [1, 2, 3],
    "merge_steps": False,
    "tool": "slow",
    "ranks": "all",
    "output_dir": PLACE,
    "run": "r",
    "budget": {"free_space": None},
}


class Slow(Tool):
    """Its files take a while to write; in the second window the process says so."""

    name = "slow"

    def trigger(self, target):
        return "in_process"

    def open(self, window):
        pass

    def close(self, window):
        path = window.stem + ".slow"
        with open(path, "w", encoding="utf-8") as file:
            file.write("first half, ")
            file.flush()
            if window.sequence == 2 and HOW.endswith("while writing"):
                print("writing", flush=True)
                time.sleep(1.0)
            file.write("second half")
        return [ArtifactFile(path, "slow", (window.id,), os.path.getsize(path))]


@accelprof.timer("work")
def work():
    time.sleep(0.002)


def child(value):
    work()
    return value + 1


def wait_inside():
    with accelprof.profiling_range("inside"):
        time.sleep(60)


def with_a_session():
    """What a child that profiles itself does; what it calls is the child's alone."""
    if not HOW.endswith(" fork"):  # which has what its parent registered
        register()
    session = accelprof.configure(group="Kid", **{**OWN, "steps": [1, 2]})
    for number in range(1, 4):
        with session.step(number):
            work()


def fork_soon():
    """A child is forked while the main thread is in the middle of writing window 2."""
    time.sleep(0.3)
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    if os.waitpid(pid, 0)[1] != 0:
        os._exit(99)


def fill():
    with open(Path(PLACE, "fill"), "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 65536) == 65536:
                pass
        except OSError:
            pass


def end(session):
    other = Path(PLACE, "other")
    if HOW == "directory removed inside" and "RANK" in os.environ:
        removed = Path(PLACE, "removed")
        if os.environ["RANK"] == "0":
            while not other.exists():
                time.sleep(0.01)
            shutil.rmtree(session.layout.run_dir)
            removed.touch()
        else:
            other.touch()
            while not removed.exists():
                time.sleep(0.01)
        return
    if os.environ.get("RANK", "0") != "0" and HOW != "nothing":
        other.touch()
        os.write(1, b"waiting\n")  # in one piece, beside the other rank's
        time.sleep(60)  # as in a collective that the rank that ends never enters: the launcher's signal comes
    while "RANK" in os.environ and HOW != "nothing" and not other.exists():
        time.sleep(0.01)
    if HOW == "wait":
        os.write(1, b"waiting\n")  # in one piece, beside the other rank's
        time.sleep(60)
    if HOW == "exit":
        sys.exit(3)
    if HOW == "exception":
        raise ValueError("the user's own")
    if HOW == "os._exit":
        os._exit(5)
    if HOW == "hung in C":
        print("hung", flush=True)
        ctypes.PyDLL(None).sleep(60)  # holds the interpreter's lock: no thread and no handler of Python runs
    if HOW.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, HOW.split()[0]))
        time.sleep(0 if HOW.endswith("ignored") else 1)
    if HOW == "os._exit at exit":
        atexit.register(os._exit, 7)
        sys.exit(3)
    if HOW == "a thread goes on":
        threading.Thread(target=wait_inside, daemon=True).start()
        sys.exit(3)
    if HOW == "descriptors closed":
        os.closerange(3, 256)
    if HOW == "working directory removed":
        os.mkdir("gone")
        os.chdir("gone")
        os.rmdir("../gone")
    if HOW == "out of memory":
        raise MemoryError
    if HOW in ("fork and _exit", "fork and exit"):
        pid = os.fork()
        if pid == 0:
            work()
            if HOW == "fork and exit":
                sys.exit(0)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    if HOW.startswith("sessions of"):
        process = multiprocessing.get_context(HOW.split()[-1]).Process(target=with_a_session)
        process.start()
        process.join()
        left = list(Path(PLACE, "r-2", "Kid").glob("*.slow"))
        if process.exitcode or len(left) != 2 or any(path.read_text() != "first half, second half" for path in left):
            os._exit(99)
    if HOW.startswith("multiprocessing"):
        with multiprocessing.get_context(HOW.split()[-1]).Pool(1) as pool:
            assert pool.map(child, [1]) == [2]
    if HOW == "pool terminated":
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.apply_async(time.sleep, (60,))
            pool.terminate()
            pool.join()
    if HOW == "os.execv":
        os.execv(sys.executable, [sys.executable, "-c", "raise SystemExit(6)"])
    if HOW == "fork while writing":
        threading.Thread(target=fork_soon).start()
    if HOW == "directory removed inside":
        shutil.rmtree(session.layout.run_dir)
    if HOW.startswith("disk full inside"):
        fill()


def register():
    plugin = SimpleNamespace(accelprof_tools=hookimpl(lambda: [Slow], specname="accelprof_tools"))
    accelprof.register(plugin, "deaths")


def main():
    register()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests under nohup have it ignored
    if HOW.endswith("ignored"):
        signal.signal(getattr(signal, HOW.split()[0]), signal.SIG_IGN)
    if HOW == "disk full from the start":
        fill()
    session = accelprof.configure(group="G", **({} if "ACCELPROF_RUN" in os.environ else OWN))
    for number in range(1, 5):
        with session.step(number):
            work()
            if number == 2:
                end(session)
        if number == 2 and HOW == "os._exit between windows":
            os._exit(5)
        if number == 2 and HOW == "killed between windows":
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 2 and HOW == "disk full inside, freed":
            os.unlink(Path(PLACE, "fill"))
    if HOW == "killed in the manifest":
        replace = os.replace
        os.replace = lambda old, new: (
            os.kill(os.getpid(), signal.SIGKILL) if str(new).endswith("manifest.json") else replace(old, new)
        )
    if HOW == "directory removed after":
        shutil.rmtree(session.layout.run_dir)
    session.close()


if __name__ == "__main__":
    main()
