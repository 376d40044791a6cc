"""Runs as a process of its own with little memory: unpickles an allocator snapshot and prints what it holds as JSON.

A pickle may ask for any amount of memory in a few bytes (nine are enough for 2 GB), and only a limit of the operating
system holds it. Standard library only, started by path. Arguments: the file, and the bytes of address space it may take.
"""

from __future__ import annotations

import json
import pickle
import sys
from typing import Any, NoReturn


class Refusing(pickle.Unpickler):
    """Loads plain data and nothing else."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"the file asks for {module}.{name}; a snapshot holds plain data only")


def facts_of(data: Any) -> dict[str, int]:
    """Counts of a snapshot as ``torch.cuda.memory._snapshot`` makes it."""
    segments = [segment for segment in listed(data.get("segments")) if isinstance(segment, dict)]
    traces = [listed(trace) for trace in listed(data.get("device_traces"))]
    return {
        "segments": len(segments),
        "reserved_bytes": sum(size(segment.get("total_size")) for segment in segments),
        "allocated_bytes": sum(size(segment.get("allocated_size")) for segment in segments),
        "devices": sum(bool(trace) for trace in traces),
        "events": sum(map(len, traces)),
        "out_of_memory": sum(
            isinstance(event, dict) and event.get("action") == "oom" for trace in traces for event in trace
        ),
    }


def listed(value: object) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def size(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def main(path: str, limit: int) -> dict[str, object]:
    """``{"facts": …}`` or ``{"error": …}``."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    except (ImportError, OSError, ValueError):
        pass  # a system without limits
    try:
        with open(path, "rb") as file:
            data = Refusing(file).load()
        if not isinstance(data, dict):
            return {"error": f"no snapshot: it holds a {type(data).__name__}, not a dictionary"}
        return {"facts": facts_of(data)}
    except MemoryError:
        return {"error": f"no readable snapshot: it asks for more than {limit >> 20:,} MiB of memory"}
    except Exception as error:  # noqa: BLE001 - whatever the file holds, the reader gets a line
        return {"error": f"no readable snapshot: {error}", "position": True}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
