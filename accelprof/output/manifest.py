"""The manifest: what was planned, which windows were opened, which files they left.

Each worker keeps a journal (JSON lines, flushed at every window) under ``.workers/`` in the run directory, so that a
worker that is killed loses nothing it had finished. The controller merges journals (and what it was told directly)
into ``manifest.json``. Fields are documented in docs/output.md.
"""

from __future__ import annotations

import datetime
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from accelprof.errors import ReadError

FORMAT = 1
NAME = "manifest.json"
_encode = json.JSONEncoder(default=str).encode


class Journal:
    """One worker's records, appended as they happen. A disk that cannot be written is reported once; records stay in memory."""

    def __init__(self, path: str | None, report: Callable[[str], None]) -> None:
        self.path, self._report = path, report
        self.records: list[dict[str, Any]] = []
        self._failed = False
        self._handle: int | None = None

    def add(self, kind: str, record: Mapping[str, Any]) -> None:
        """Append ``{"kind": kind, **record}``."""
        entry = {"kind": kind, **record}
        self.records.append(entry)
        if self.path is None or self._failed:
            return
        try:
            if self._handle is None:
                os.makedirs(os.path.dirname(self.path), exist_ok=True)
                self._handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            line = (_encode(entry) + "\n").encode()
            if os.write(self._handle, line) != len(line):
                raise OSError("only a part was written; is the disk full?")
        except OSError as error:
            self._failed = True
            self._report(
                f"the journal {self.path} cannot be written: {error}; records are kept in memory until the end"
            )

    def close(self) -> None:
        """Nothing more comes soon; a later record opens the file again."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def read_journals(run_dir: str) -> list[list[dict[str, Any]]]:
    """All journals of a run; a line that a killed worker left half-written is skipped."""
    journals = []
    for path in sorted(Path(run_dir, ".workers").glob("*.jsonl")):
        records = []
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                continue
        journals.append(records)
    return journals


def build(
    run_dir: str,
    *,
    version: str,
    config: Mapping[str, Any],
    plan: Mapping[str, Any],
    journals: Iterable[Sequence[Mapping[str, Any]]],
    clock_offsets: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
    problems: Sequence[str] = (),
    created: float | None = None,
) -> dict[str, Any]:
    """One manifest of journals; later records about the same target, window or file complete earlier ones."""
    targets: dict[str, dict[str, Any]] = {}
    windows: dict[str, dict[str, Any]] = {}
    artifacts: dict[tuple[str, str], dict[str, Any]] = {}
    said = list(problems)
    for journal in journals:
        for record in journal:
            fields = {key: value for key, value in record.items() if key != "kind"}
            if record["kind"] == "target":
                targets.setdefault(fields["key"], {}).update(fields)
            elif record["kind"] == "window":
                fields["kind"] = fields.pop("window_kind", None)
                windows.setdefault(fields["id"], {}).update(fields)
            elif record["kind"] == "artifact":
                path = relative(fields["path"], run_dir)
                artifacts.setdefault((fields.get("host") or "", path), {}).update({**fields, "path": path})
            elif record["kind"] == "problem":
                text = f"{fields.get('target', '')}: {fields['message']}".lstrip(": ")
                if text not in said:
                    said.append(text)
    offsets = dict(clock_offsets or {})
    for window in windows.values():
        clock = offsets.get(window.get("target", ""), {})
        for end in ("opened", "closed"):
            if isinstance(window.get(end), dict):
                offset = offset_at(clock, window[end]["epoch_ns"])
                if offset is not None:
                    window[end] = {**window[end], "driver_ns": window[end]["epoch_ns"] - offset}
        if window.get("closed") is None:
            window["state"] = "open"
            said.append(
                f"{window.get('target')}: window {window['id']} was opened and never closed; its worker ended first"
            )
    for artifact in artifacts.values():
        artifact.update(verify(os.path.join(run_dir, artifact["path"]), artifact))
    moment = (
        datetime.datetime.fromtimestamp(created, datetime.timezone.utc)
        if created
        else datetime.datetime.now(datetime.timezone.utc)
    )
    return {
        "format": FORMAT,
        "accelprof": version,
        "run": os.path.basename(run_dir),
        "created": moment.isoformat(timespec="seconds"),
        "config": dict(config),
        "plan": dict(plan),
        "clock_offsets": offsets,
        "targets": sorted(
            targets.values(), key=lambda item: (str(item.get("group")), item.get("rank") is None, item.get("rank") or 0)
        ),
        "windows": sorted(windows.values(), key=lambda item: (item.get("opened", {}).get("epoch_ns", 0), item["id"])),
        "artifacts": sorted(artifacts.values(), key=lambda item: item["path"]),
        "metrics": dict(metrics or {}),
        "problems": said,
    }


def verify(path: str, artifact: Mapping[str, Any]) -> dict[str, Any]:
    """``bytes`` and ``state`` as they are on disk now; files on other nodes keep what was said of them."""
    if os.path.isdir(path):
        size = sum(entry.stat().st_size for entry in Path(path).rglob("*") if entry.is_file())
        return {"bytes": size, "state": artifact.get("state", "complete") if size else "partial"}
    if not os.path.exists(path):
        if artifact.get("remote"):
            return {}
        return {"bytes": 0, "state": "missing"}
    size = os.path.getsize(path)
    return {"bytes": size, "state": artifact.get("state", "complete") if size else "truncated"}


def relative(path: str, run_dir: str) -> str:
    """``path`` relative to the run directory when it lies inside, absolute otherwise."""
    if path.startswith(run_dir + os.sep) and os.pardir not in path:
        return path[len(run_dir) + 1 :]
    inside = os.path.relpath(path, run_dir) if os.path.isabs(path) else path
    return path if inside.startswith("..") else inside


def offset_at(clock: Mapping[str, Any], epoch_ns: int | None = None) -> int | None:
    """A worker's clock minus the driver's (ns) when the worker's shows ``epoch_ns``; ``None`` where it was not measured.

    ``clock`` is a row of ``clock_offsets``. Where the measurement at the end differs by more than both can be wrong, the clocks
    drifted: then it lies on the line between the two.
    """
    first, closing = clock.get("offset_ns"), clock.get("closing")
    if not isinstance(first, int):
        return None
    if epoch_ns is None or not isinstance(closing, Mapping):
        return first
    begin, end, last = clock.get("at_ns"), closing.get("at_ns"), closing.get("offset_ns")
    if not (isinstance(begin, int) and isinstance(end, int) and isinstance(last, int)):
        return first
    if end <= begin or abs(last - first) <= clock.get("error_ns", 0) + closing.get("error_ns", 0):
        return first
    return int(first + (last - first) * min(max(epoch_ns - begin, 0), end - begin) // (end - begin))


def write(run_dir: str, manifest: Mapping[str, Any]) -> str:
    """Write ``manifest.json`` in one step (a reader never sees half of it); returns its path.

    Raises:
        OSError: the directory cannot be written.
    """
    path = os.path.join(run_dir, NAME)
    handle, temporary = tempfile.mkstemp(dir=run_dir, prefix=".manifest-", suffix=".json")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1, default=str, allow_nan=False)
            file.write("\n")
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    return path


def read(run_dir: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a run directory.

    Raises:
        ReadError: not there, not JSON, or of a newer format.
    """
    path = Path(run_dir, NAME)
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReadError(path, "no manifest; is this a run directory, and did the run end with close()?") from None
    except (OSError, ValueError) as error:
        raise ReadError(path, str(error)) from None
    if not isinstance(manifest, dict) or manifest.get("format", 0) > FORMAT:
        raise ReadError(
            path,
            f"format {manifest.get('format') if isinstance(manifest, dict) else '?'} is not known to this version (it reads up to {FORMAT})",
        )
    return manifest
