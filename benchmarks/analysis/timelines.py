"""A merged timeline of a million spans as Perfetto's packets beside our JSON: processor time to write, and size."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

from benchmarks.harness import Result, Table

SPANS, ROWS = 1_000_000, 16
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
    title = f"a timeline of {SPANS:,} spans"
    limits = {"JSON": None, "JSON, gzip": None, "Perfetto": 1.0}
    written = Table(f"{title}: processor time to merge and write", "JSON")
    written.rows = [Result(name, ns, ns / times["JSON"], limits[name]) for name, ns in times.items()]
    large = Table(f"{title}: size", "JSON")
    large.rows = [
        Result(name, float(size), size / sizes["JSON"], 0.2 if name == "Perfetto" else None, note="bytes")
        for name, size in sizes.items()
    ]
    return [written, large]
