"""Facts of a torch allocator snapshot, read without running anything that stands in the file.

A snapshot is a pickle of plain lists and dictionaries (``torch.cuda.memory._snapshot``). A pickle can name any function
to call; here every such name is refused before it is looked up.
"""

from __future__ import annotations

import pickle
import pickletools
from dataclasses import dataclass
from typing import Any, NoReturn

from accelprof.errors import ReadError


@dataclass
class SnapshotFacts:
    """Sizes in bytes. ``events`` counts allocator events, ``out_of_memory`` those that are OOM; ``protocol`` the pickle's."""

    protocol: int
    segments: int = 0
    reserved_bytes: int = 0
    allocated_bytes: int = 0
    devices: int = 0
    events: int = 0
    out_of_memory: int = 0


class _Refusing(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"the file asks for {module}.{name}; a snapshot holds plain data only")


def read_snapshot(path: str) -> SnapshotFacts:
    """Count what a snapshot holds.

    Raises:
        ReadError: empty, cut off, no pickle, or it asks for code to be loaded.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(2)
            if not head:
                raise ReadError(path, "the file is empty (0 bytes)")
            file.seek(0)
            protocol = head[1] if head[0] == pickle.PROTO[0] else 0
            data = _Refusing(file).load()
    except OSError as error:
        raise ReadError(path, error.strerror or str(error)) from None
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        MemoryError,
    ) as error:
        raise ReadError(path, f"no readable snapshot: {error}{_position(path)}") from None
    if not isinstance(data, dict):
        raise ReadError(path, f"no snapshot: it holds a {type(data).__name__}, not a dictionary")
    return _facts(data, protocol)


def _facts(data: dict[Any, Any], protocol: int) -> SnapshotFacts:
    facts = SnapshotFacts(protocol)
    segments = [segment for segment in _list(data.get("segments")) if isinstance(segment, dict)]
    facts.segments = len(segments)
    facts.reserved_bytes = sum(_size(segment.get("total_size")) for segment in segments)
    facts.allocated_bytes = sum(_size(segment.get("allocated_size")) for segment in segments)
    traces = [_list(trace) for trace in _list(data.get("device_traces"))]
    facts.devices = sum(bool(trace) for trace in traces)
    facts.events = sum(map(len, traces))
    facts.out_of_memory = sum(
        isinstance(event, dict) and event.get("action") == "oom" for trace in traces for event in trace
    )
    return facts


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _size(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _position(path: str) -> str:
    """Where the opcodes stop making sense, if they do; only the opcodes are looked at, nothing is run."""
    try:
        with open(path, "rb") as file:
            for _ in pickletools.genops(file):
                pass
    except (ValueError, EOFError, OSError) as error:
        return f" ({error})"
    return ""
