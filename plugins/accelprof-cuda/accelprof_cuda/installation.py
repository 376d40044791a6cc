"""Where Nsight Systems is on this machine, and the programs it is made of: ``nsys`` and its importer.

``nsys`` collects a ``.qdstrm`` and has ``QdstrmImporter`` make the report of it. Debian's package and slim images put
the importer where nsys does not look; then windows leave ``.qdstrm`` files that can be converted afterwards.
"""

from __future__ import annotations

import functools
import glob
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from accelprof.errors import ReadError
from accelprof_cuda.domains import INJECTION_ENV

#: after PATH; the newest of each is tried first
NSYS_GLOBS = (
    "/usr/local/cuda*/bin/nsys",
    "/opt/nvidia/nsight-systems/*/bin/nsys",
    "/opt/nvidia/nsight-systems/*/target-linux-*/nsys",
    "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
    "/usr/local/cuda*/nsight-compute-*/host/target-linux-*/nsys",
)
#: below the directory above nsys's own, then where Debian puts it
IMPORTER_GLOBS = (
    "{root}/host-linux-*/QdstrmImporter",
    "{root}/linux-desktop-*/QdstrmImporter",  # inside Nsight Compute
    "{home}/QdstrmImporter",
    "/usr/lib/nsight-systems/host-linux-*/QdstrmImporter",
)
#: what nsys puts into the environment of the process it profiles, and what a child must not inherit
PRELOAD_ENV = "LD_PRELOAD"
SESSION_ENV = "NSYS_PROFILING_SESSION_ID"
CUDA_INJECTION_ENV = "CUDA_INJECTION64_PATH"
PRELOADED = re.compile(r"libToolsInjection|libLinuxKeyboardInterceptorProxy|nsight-?systems", re.IGNORECASE)


def find(program: str = "nsys") -> str | None:
    """Absolute path of ``program``: as given, on PATH, then in CUDA and Nsight installations."""
    found = shutil.which(program)
    if found is not None or os.path.basename(program) != program:
        return found
    return next((path for path in _installed() if os.access(path, os.X_OK)), None)


def command(program: str) -> str:
    """How to start ``program``: its bare name where PATH has it or nobody knows it, its own path where a bare name would fail."""
    return program if shutil.which(program) else find(program) or program


def _installed() -> Iterator[str]:
    for pattern in NSYS_GLOBS:
        yield from sorted(glob.glob(pattern), key=_numbers, reverse=True)


def _numbers(path: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path)]


def session_here() -> str | None:
    """Id of the nsys session that records this very process; ``None`` for a child that only inherited the variable."""
    session = os.environ.get(SESSION_ENV)
    if not session:
        return None
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            return session if any("libToolsInjection" in line for line in file) else None
    except OSError:
        return session  # no /proc: the variable is all there is


def clean_environment() -> dict[str, str]:
    """The environment without what nsys injects, for helpers that must not be profiled themselves."""
    env = dict(os.environ)
    for name in (INJECTION_ENV, CUDA_INJECTION_ENV, SESSION_ENV):
        env.pop(name, None)
    rest = other_preloads(env)
    if rest:
        env[PRELOAD_ENV] = rest
    else:
        env.pop(PRELOAD_ENV, None)
    return env


def other_preloads(env: Mapping[str, str]) -> str:
    """``LD_PRELOAD`` without nsys's libraries; what the user preloads stays."""
    parts = re.split(r"[: ]+", env.get(PRELOAD_ENV, ""))
    return ":".join(part for part in parts if part and not PRELOADED.search(part))


def run(argv: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Run an nsys program unprofiled, with its output as text.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it took longer than ``timeout`` seconds.
    """
    return subprocess.run(
        argv, capture_output=True, text=True, errors="replace", timeout=timeout, env=clean_environment(), check=False
    )


@functools.cache
def version(nsys: str) -> str:
    """``2022.4.2.1`` of the nsys at this path; empty when it does not answer."""
    try:
        text = run([nsys, "--version"], 30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r"\d+(?:\.\d+)+", text)
    return match[0] if match else ""


def real_directory(nsys: str) -> str:
    """Directory of the real nsys program, behind links and the wrapper script that toolkits put on PATH."""
    path = os.path.realpath(nsys)
    if _is_script(path):
        links = [target for target in _installed() if not _is_script(os.path.realpath(target))]
        path = os.path.realpath(links[0]) if links else path
    return os.path.dirname(path)


def _is_script(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def importer(nsys: str | None = None) -> str | None:
    """``QdstrmImporter`` that belongs to this nsys, or any that is here; ``None`` where there is none."""
    nsys = nsys or find()
    home = real_directory(nsys) if nsys else "/nonexistent"
    for pattern in IMPORTER_GLOBS:
        found = sorted(glob.glob(pattern.format(root=glob.escape(os.path.dirname(home)), home=glob.escape(home))))
        if found:
            return found[-1]
    for other in _installed():
        root = os.path.dirname(real_directory(other))
        for pattern in IMPORTER_GLOBS[:2]:
            found = sorted(glob.glob(pattern.format(root=glob.escape(root))))
            if found:
                return found[-1]
    return None


def convert(path: str, output: str | None = None, timeout: float = 300) -> str:
    """Make the ``.nsys-rep`` of a ``.qdstrm``; returns its path. The raw file stays.

    Raises:
        ReadError: no importer here, or it refused the file.
    """
    program = importer()
    output = output or os.path.splitext(path)[0] + ".nsys-rep"
    if program is None:
        why = "raw data of nsys, and its importer (QdstrmImporter) is not on this machine; open the file where Nsight Systems is installed in full"
        raise ReadError(path, why)
    try:
        done = run([program, "--input-file", path, "--output-file", output], timeout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReadError(path, f"{program} failed: {error}") from None
    if done.returncode != 0 or not os.path.exists(output):
        raise ReadError(path, f"{program} ended with status {done.returncode}: {last_line(done)}")
    return output


def export_sqlite(path: str, output: str, timeout: float = 600) -> None:
    """Export a report to SQLite with the nsys of this machine.

    Raises:
        ReadError: no nsys here, or it refused the file (a report of a newer version, say).
    """
    nsys = find()
    if nsys is None:
        why = "an nsys report is read through 'nsys export', and nsys is not on this machine; export it to .sqlite elsewhere, or install Nsight Systems"
        raise ReadError(path, why)
    argv = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true", "--output", output, path]
    try:
        done = run(argv, timeout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReadError(path, f"nsys export failed: {error}") from None
    if done.returncode != 0 or not os.path.exists(output) or os.path.getsize(output) == 0:
        raise ReadError(path, f"nsys {version(nsys)} export ended with status {done.returncode}: {last_line(done)}")


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """What a program said last, for a message."""
    lines = [line.strip() for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
