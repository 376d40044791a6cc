"""A merged timeline of a million spans, of a Chrome trace and of an nsys export: processor time to read and write, and size;
Perfetto's packets beside our JSON."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

from benchmarks.analysis.traces import write_nsys
from benchmarks.harness import Result, Table

SPANS, ROWS = 1_000_000, 16
#: of a million rows
NSYS_BYTES = 63 << 20
LIMIT_NS = 4e9
NAMES = [
    f"phase/{name}" for name in ("rollout", "reward", "update", "forward", "backward", "optimizer", "gather", "pack")
]


def write_spans(path: Path, spans: int = SPANS, seed: int = 0) -> None:
    """A Chrome trace of nested spans on :data:`ROWS` rows: five calls in one, one behind the other, lengths at random."""
    rng = random.Random(seed)
    at = [0.0] * ROWS
    with path.open("w") as file:
        file.write('{"traceEvents":[\n')
        for number in range(0, spans, 6):
            row = number // 6 % ROWS
            lengths = [rng.randrange(1_000, 60_000) / 1000 for _ in range(5)]
            begin, inner = at[row], at[row] + 0.5
            lines = [_event(NAMES[0], row, begin, sum(lengths) + 6)]
            for length in lengths:
                lines.append(_event(rng.choice(NAMES[1:]), row, inner, length))
                inner += length + 1
            at[row] = begin + sum(lengths) + 6 + rng.randrange(1_000, 9_000) / 1000
            file.write((",\n" if number else "") + ",\n".join(lines[: spans - number]))
        file.write("\n]}\n")


def _event(name: str, row: int, at: float, length: float) -> str:
    return (
        f'{{"ph":"X","cat":"phase","name":"{name}","pid":{row // 4},"tid":{row},"ts":{1_795_852_566_000_000 + at:.3f},'
        f'"dur":{length:.3f},"args":{{"domain":"accelprof"}}}}'
    )


def run() -> list[Table]:
    """The tables of this benchmark."""
    from accelprof.analysis.perfetto import PerfettoWriter
    from accelprof.analysis.timeline import TimelineWriter, merge_files

    times: dict[str, float] = {}
    sizes: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="accelprof-bench-") as scratch:
        source = Path(scratch) / "spans.json"
        write_spans(source)
        first = Path(scratch) / "first.json"
        write_spans(first, 60)
        export = Path(scratch) / "export.sqlite"
        rows = write_nsys(export, NSYS_BYTES)
        for writer in (TimelineWriter, PerfettoWriter):  # what is imported and made once belongs to neither
            merge_files([str(first)], str(Path(scratch) / "first.out"), writer)
        for name, file, chosen in (
            ("JSON", "a.json", TimelineWriter),
            ("JSON, gzip", "a.json.gz", TimelineWriter),
            ("Perfetto", "a.pftrace", PerfettoWriter),
        ):
            began = time.process_time()
            merged = merge_files([str(source)], str(Path(scratch) / file), chosen)
            times[name] = (time.process_time() - began) * 1e9
            sizes[name] = Path(merged.path).stat().st_size
            if merged.left_out or merged.written < SPANS:
                raise RuntimeError(f"{name}: {merged.left_out} events left out, {merged.written} written")
        began = time.process_time()
        merged = merge_files([str(export)], str(Path(scratch) / "b.json.gz"), TimelineWriter)
        of_nsys = (time.process_time() - began) * 1e9 / rows * SPANS
        if merged.left_out or merged.read != rows:
            raise RuntimeError(f"nsys: {merged.left_out} events left out, {merged.read} of {rows} read")
    title = f"a timeline of {SPANS:,} spans"
    limits = {"JSON": None, "JSON, gzip": None, "Perfetto": 1.0}
    written = Table(f"{title}: processor time to merge and write", "JSON")
    written.rows = [Result(name, ns, ns / times["JSON"], limits[name]) for name, ns in times.items()]
    large = Table(f"{title}: size", "JSON")
    large.rows = [
        Result(name, float(size), size / sizes["JSON"], 0.2 if name == "Perfetto" else None, note="bytes")
        for name, size in sizes.items()
    ]
    whole = Table(f"{title}: processor time to merge and write, whole", "4 s")
    whole.rows = [
        Result("a Chrome trace to JSON, gzip", times["JSON, gzip"], times["JSON, gzip"] / LIMIT_NS, 1.0),
        Result("an nsys export to JSON, gzip (a million of its rows)", of_nsys, of_nsys / LIMIT_NS, 1.0),
    ]
    return [written, large, whole]
