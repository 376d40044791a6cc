"""rocprofv3's JSON (``*_results.json``). Kinds and operations are looked up by name: their numbers move between releases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from accelprof.contracts.spans import UNKNOWN, Kind, Origin, Trace
from accelprof.errors import ReadError
from accelprof.reading.kernels import kernel_kind
from accelprof.reading.lenient import until_damage
from accelprof.reading.numbers import identity, place
from accelprof_rocm.readers.building import RANGE_NAMES, Builder, call_kind, copy_name, launch_number
from accelprof_rocm.readers.packed import content

ROOT = "rocprofiler-sdk-tool"
CPU, GPU = 1, 2
Record = Mapping[str, Any]


def read(path: str, tool: str) -> Trace:
    build = Builder(path, tool)
    raw, odd = content(path, build.trace), 0
    try:
        raw.decode()
    except UnicodeDecodeError:  # a name of a program's own; the times around it are as good as any
        text = raw.decode("utf-8", "replace")
        raw, odd = text.encode(), text.count("\ufffd")
    rest = ""
    try:
        data = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        text = raw.decode()
        try:
            data, until = until_damage(text)
        except (ValueError, RecursionError):
            raise ReadError(path, f"not valid JSON: {error}") from None
        if until is not None:
            rest = f"damaged or cut off ({error}): what stands behind character {until:,} of {len(text):,} was not read"
    processes = data.get(ROOT) if isinstance(data, dict) else None
    if not isinstance(processes, list) or not processes:
        raise ReadError(path, f"no {ROOT!r} in it")
    facts: dict[str, Any] = {"format": "rocprofv3 json"}
    for number, process in enumerate(processes):
        try:
            one = _Process(process, build)
            one.read()
            facts.update(one.facts)
        except (KeyError, TypeError, AttributeError) as error:
            build.bad(f"{type(error).__name__} {error}", f"process {number}")
    trace = build.finish(facts)
    if rest:
        trace.completeness.cut = trace.completeness.cut or rest
        trace.problems.append(rest)
    if trace.completeness.cut and not trace.spans and not trace.marks:
        raise ReadError(path, f"no record of it could be read: {trace.completeness.cut}")
    if odd:
        trace.problems.append(f"{odd} byte{'s' * (odd != 1)} of its text are no UTF-8 and were replaced")
    if len(processes) == 1:
        trace.origin = Origin(host=facts.get("host"), pid=facts.get("pid"))
    return trace


class _Process:
    def __init__(self, data: Record, build: Builder) -> None:
        self.data, self.build = data, build
        metadata = data.get("metadata") or {}
        self.pid = place(metadata.get("pid") or 0)
        self.agents = self._keyed("agents", data.get("agents"), lambda agent: (agent["id"]["handle"], agent))
        counted = ("logical_node_type_id", "logical_node_id", "node_id")
        #: how this release numbers agents
        self.numbered = next((key for key in counted if any(key in agent for agent in self.agents.values())), "")
        self.symbols = self._keyed("kernel_symbols", data.get("kernel_symbols"), lambda row: (row["kernel_id"], row))
        strings = data.get("strings") or {}
        self.names = {
            index: (kind.get("kind", ""), kind.get("operations", ()))
            for index, kind in enumerate(strings.get("buffer_records", ()))
        }
        self.messages = self._keyed("marker_api", strings.get("marker_api"), lambda row: (row["key"], row["value"]))
        self.facts = {
            "host": (metadata.get("node") or {}).get("hostname"),
            "pid": metadata.get("pid"),
            "command": metadata.get("command"),
            "devices": {
                self.device(handle): agent.get("product_name") or agent.get("name")
                for handle, agent in self.agents.items()
                if agent.get("type") == GPU
            },
        }

    def _keyed(self, what: str, rows: Any, pair: Callable[[Any], tuple[object, Any]]) -> dict[Any, Any]:
        """A table of the process by its rows' keys; rows without are named and left out."""
        found = {}
        for index, row in enumerate(rows or ()):
            try:
                key, value = pair(row)
                found[key] = value
            except (KeyError, TypeError, AttributeError) as error:
                self.build.bad(f"{type(error).__name__} {error}", f"{what}[{index}]")
        return found

    def read(self) -> None:
        records = self.data.get("buffer_records") or {}
        handlers: dict[str, Callable[[Record, str], None]] = {
            "kernel_dispatch": self._kernel,
            "memory_copy": self._copy,
            "marker_api": self._marker,
            **dict.fromkeys(("hip_api", "hsa_api", "rccl_api", "rocdecode_api", "rocjpeg_api"), self._call),
        }
        for name, rows in records.items():
            handler = handlers.get(name)
            if handler is None:
                if rows:
                    self.build.skipped[name] += len(rows)
                continue
            for index, row in enumerate(rows):
                where = f"{name}[{index}]"
                try:
                    handler(row, where)
                except (KeyError, TypeError, AttributeError) as error:
                    self.build.bad(f"{type(error).__name__} {error}", where)

    # --- one record -------------------------------------------------------------------------------------------------

    def _kernel(self, row: Record, where: str) -> None:
        info = row["dispatch_info"]
        symbol, queue = self.symbols.get(info["kernel_id"]), info["queue_id"]["handle"]
        name = kernel_name(symbol) if symbol else ""
        stream = row["stream_id"]["handle"] if "stream_id" in row else queue
        device, args = self.device(info["agent_id"]["handle"]), {"queue": queue, "dispatch": info.get("dispatch_id")}
        self._span(name, kernel_kind(name), row, where, args, device=device, stream=stream)

    def _copy(self, row: Record, where: str) -> None:
        ends = [row[key]["handle"] for key in ("dst_agent_id", "src_agent_id") if isinstance(row.get(key), dict)]
        gpus = [handle for handle in ends if self.agents.get(handle, {}).get("type") == GPU]
        device = self.device(gpus[0] if gpus else (ends[0] if ends else None))
        stream, args = row["stream_id"]["handle"] if "stream_id" in row else None, {"bytes": row.get("bytes")}
        self._span(copy_name(self._operation(row)), Kind.COPY, row, where, args, device=device, stream=stream)

    def _call(self, row: Record, where: str) -> None:
        name = self._operation(row)
        self._span(name, call_kind(name), row, where, {}, category=self._kind(row))

    def _span(self, name: str, kind: Kind, row: Record, where: str, args: Record, **fields: Any) -> None:
        times, owner = (row["start_timestamp"], row["end_timestamp"]), identity(row.get("thread_id", 0))
        args = {"correlation": launch_number(_correlation(row)), **args}
        self.build.span(name, kind, *times, where, pid=self.pid, tid=owner, args=args, **fields)

    def _marker(self, row: Record, where: str) -> None:
        message = self.messages.get(_correlation(row))
        operation = self._operation(row)
        if operation not in self._operations(row) or not operation.startswith("roctx"):
            self.build.bad("a ROCTX record of no known operation", where)
            return
        if message is None and operation in RANGE_NAMES:
            self.build.lack("without the text of their range", where)
        text = message if message is not None else operation
        fields = {"pid": self.pid, "tid": identity(row.get("thread_id", 0))}
        self.build.marker(operation, text, row["start_timestamp"], row["end_timestamp"], where, **fields)

    # --- names ------------------------------------------------------------------------------------------------------

    def _kind(self, row: Record) -> str:
        name: str = self.names.get(row["kind"], ("", ()))[0]
        return name

    def _operations(self, row: Record) -> Sequence[str]:
        return [name for name in self.names.get(row["kind"], ("", ()))[1] if isinstance(name, str)]

    def _operation(self, row: Record) -> str:
        kind, operations = self.names.get(row["kind"], ("", ()))
        number = row["operation"]
        return str(operations[number]) if 0 <= number < len(operations) else f"{kind or row['kind']} operation {number}"

    def device(self, handle: Any) -> int | str:
        """A GPU's number among the GPUs of its node; unknown where the file does not know the agent."""
        agent = self.agents.get(handle)
        if agent is None:
            return UNKNOWN
        number, sort = agent.get(self.numbered), identity(agent.get("type"))
        return identity(number) if sort == GPU else f"cpu {number}" if sort == CPU else UNKNOWN


def kernel_name(symbol: Record) -> str:
    """The readable name of a kernel symbol."""
    names = [symbol.get(f"{form}kernel_name") for form in ("formatted_", "demangled_", "")]
    return next((name for name in names if isinstance(name, str) and name), "").removesuffix(".kd")


def _correlation(row: Record) -> Any:
    number = (row.get("correlation_id") or {}).get("internal")
    return None if number is None else place(number)
