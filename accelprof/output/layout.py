"""Directories and names: ``<output_dir>/<run>/<group>/<group>-r<rank>-s<steps>[-<phase>]-w<seq>-<host>-<pid>``.

Nothing is overwritten: a run gets a directory of its own, and names carry host and pid.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accelprof.contracts.names import JOURNAL, WORKERS
from accelprof.contracts.targets import Target
from accelprof.errors import ConfigError, Problem

MARKER = ".accelprof-run"
MAX_NAME = 180  # bytes; suffixes of tools must fit below the 255 of common file systems
_UNSAFE = re.compile(r"[^A-Za-z0-9._+=@-]+")


@functools.lru_cache(1024)
def safe(label: str, limit: int = 60, *, distinct: bool = False) -> str:
    """``label`` as a part of a file name: separators and other characters become ``_``; long or emptied ones get a hash.

    ``distinct``: every label that had to be changed gets one, so that two labels never share a name.
    """
    cleaned = _UNSAFE.sub("_", label).strip("._-")
    if cleaned == label and len(cleaned) <= limit:
        return cleaned
    digest = hashlib.sha256(label.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    lossy = distinct or len(cleaned) > limit or not cleaned or any(ord(char) > 127 for char in label)
    return f"{cleaned[: limit - 9]}-{digest}".lstrip("-") if lossy else cleaned


def runs_of(steps: Iterable[int]) -> list[list[int]]:
    """First and last of each stretch of numbers without a gap, in order."""
    runs: list[list[int]] = []
    for step in sorted(set(steps)):
        if runs and step == runs[-1][1] + 1:
            runs[-1][1] = step
        else:
            runs.append([step, step])
    return runs


def steps_text(steps: Sequence[int]) -> str:
    """``2``, ``2-3``, ``2+5-7``: steps of a window for a file name; empty for none."""
    if len(steps) == 1:
        return str(steps[0])
    runs = runs_of(steps)
    text = "+".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return text if len(text) <= 40 else f"{runs[0][0]}..{runs[-1][1]}"


def seen_text(steps: Collection[int]) -> str:
    """The steps that a process has seen, for messages; none that lies between is said to be."""
    if len(steps) <= 8:
        return ", ".join(map(str, steps)) or "none"
    runs = [str(first) if first == last else f"{first}..{last}" for first, last in runs_of(steps)]
    return ", ".join(runs if len(runs) <= 8 else [*runs[:4], "…", *runs[-3:]])


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one run. ``run_dir`` is absolute."""

    run_dir: str

    def target_dir(self, target: Target) -> str:
        """Directory of one target's files; made by whoever writes, on the node that writes."""
        return os.path.join(self.run_dir, safe(target.group, distinct=True))

    def target_name(self, target: Target) -> str:
        """``ActorGroup-r0``, ``RolloutGroup-p1-r3``; an unknown rank is ``rX``."""
        replica = "" if target.replica is None else f"-p{target.replica}"
        rank = "X" if target.rank is None else str(target.rank)
        return f"{safe(target.group, distinct=True)}{replica}-r{rank}"

    def key(self, target: Target, host: str, pid: int) -> str:
        """Identity of a worker process in the run."""
        return f"{self.target_name(target)}-{safe(host)}-{pid}"

    def stems(self, target: Target, host: str, pid: int) -> Callable[[int, Sequence[int], str | None], str]:
        """What names the windows of one process: ``stem(sequence, steps, phase)`` is the absolute path without suffix of one
        window's files. All that stays the same is put together once."""
        directory, head, tail = self.target_dir(target), self.target_name(target), f"{safe(host, 40)}-{pid}"

        def stem(sequence: int, steps: Sequence[int], phase: str | None) -> str:
            when = f"-s{steps_text(steps)}" if steps else ""
            what = f"-{safe(phase, 40)}" if phase else ""
            name = f"{head}{when}{what}-w{sequence:04d}-{tail}"
            return f"{directory}{os.sep}{name if len(name) <= MAX_NAME else name[-MAX_NAME:].lstrip('-.')}"

        return stem

    @property
    def workers_dir(self) -> str:
        """Where each worker keeps its own journal."""
        return os.path.join(self.run_dir, WORKERS)

    def journal(self, key: str) -> str:
        """Where the worker of this key keeps it."""
        return os.path.join(self.workers_dir, key + JOURNAL)


def impossible(output_dir: str) -> str:
    """Why ``output_dir`` cannot be made here; empty where it can, as far as this machine tells. Leaves nothing behind."""
    if "\0" in output_dir:
        return "a NUL character in its name"
    try:
        place = os.path.abspath(os.path.expanduser(output_dir))
        while not os.path.lexists(place) and place != os.path.dirname(place):
            place = os.path.dirname(place)
        too_long = [part for part in output_dir.split(os.sep) if len(os.fsencode(part)) > 255]
    except (OSError, ValueError) as error:
        return f"{error}"
    if too_long:
        return f"a name of {len(os.fsencode(too_long[0]))} bytes; at most 255 are allowed"
    if not os.path.isdir(place):
        return f"{place} is no directory"
    if not os.access(place, os.W_OK | os.X_OK):
        return f"{place} cannot be written"
    import tempfile  # it costs what training code should not wait for

    try:  # a right to write is no promise: /proc, a full quota, a disk that others hold
        os.rmdir(tempfile.mkdtemp(prefix=".accelprof-", dir=place))
    except OSError as error:
        return f"no directory can be made in {place}: {error.strerror}"
    return ""


def claim_run(output_dir: str, run: str, token: str, host: str, now: float | None = None) -> str:
    """Make (or join) the run's directory and return its absolute path.

    ``token`` tells one job from another: processes of a job share a directory, a second job gets ``<run>-2``. ``auto``
    names the directory by time and host.

    Raises:
        OSError: the directory cannot be made.
        ConfigError: no directory can have such a name.
    """
    if "\0" in output_dir:
        raise ConfigError(Problem("output_dir", "a NUL character, which no path has", value=output_dir))
    base = os.path.abspath(os.path.expanduser(output_dir))
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    name = f"{stamp}-{safe(host, 40)}" if run == "auto" else safe(run, 100)
    os.makedirs(base, exist_ok=True)
    if run == "auto":
        joined = _find_token(base, token)
        if joined is not None:
            return joined
    for attempt in range(1, 10_000):
        path = os.path.join(base, name if attempt == 1 else f"{name}-{attempt}")
        try:
            os.mkdir(path)
        except FileExistsError:
            if _token_of(path) == token:
                return path
            continue
        with open(os.path.join(path, MARKER), "x", encoding="utf-8") as file:
            file.write(token)
        return path
    raise OSError(f"no free name for run {run!r} below {base}")


def job_token(env: Mapping[str, str]) -> str:
    """What all processes of one job share, from their launcher's environment; random where there is none."""
    for names in (
        ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"),
        ("SLURM_JOB_ID", "SLURM_STEP_ID"),
        ("OMPI_MCA_orte_hnp_uri",),
        ("PMI_JOBID",),
    ):
        values = [env.get(name, "") for name in names]
        if values[0]:
            return f"{names[0]}={':'.join(values)}" + (f":{os.getppid()}" if names[0] == "TORCHELASTIC_RUN_ID" else "")
    return secrets.token_hex(8)


def _token_of(path: str) -> str | None:
    for _ in range(20):
        try:
            text = Path(path, MARKER).read_text(encoding="utf-8")
        except OSError:
            text = ""
        if text:
            return text
        time.sleep(0.01)  # the maker is between mkdir and write
    return None


def _find_token(base: str, token: str) -> str | None:
    """The newest run directory of the same job (its processes start within seconds, not within the same one)."""
    try:
        entries = sorted(
            (entry for entry in os.scandir(base) if entry.is_dir()),
            key=lambda entry: entry.stat().st_mtime,
            reverse=True,
        )
    except OSError:
        return None
    for entry in entries[:20]:
        marker = os.path.join(entry.path, MARKER)
        if os.path.exists(marker) and _token_of(entry.path) == token:
            return entry.path
    return None
