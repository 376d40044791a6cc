"""What who-waited-for-whom takes of memory: a number of bytes for each stretch of a phase, and no more."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

from accelprof.analysis.summary import summarise

#: of one stretch, with its leaf, its places in the graph and what the answers need meanwhile
BYTES = 380
CALLS = 400


def peak(maker: Any, event: Any, ranks: int) -> tuple[int, int]:
    """``(bytes at most, stretches)`` of a run of ranks that all do the same nested phases."""
    events = []
    for at in range(CALLS):
        events.append(event("step", 10 + at * 50, 45))
        events += [event(name, 11 + at * 50 + place * 10, 9) for place, name in enumerate(("f", "b", "o", "g"))]
    for rank in range(ranks):
        maker.timeline(maker.target(rank), events, end_us=50 * CALLS + 20)
    directory = maker.write()
    tracemalloc.start()
    try:
        found = summarise(directory)
        return tracemalloc.get_traced_memory()[1], sum(len(step.leaves) for step in found.waits.of)
    finally:
        tracemalloc.stop()


def test_a_rank_more_takes_the_bytes_of_its_stretches(event: Any, tmp_path: Path) -> None:
    """Rows of columns, arrays of places and one object a stretch; nothing is kept twice."""
    from tests.analysis.conftest import RunMaker

    peak(RunMaker(tmp_path / "first"), event, 2)  # what is imported then belongs to none
    few, small = peak(RunMaker(tmp_path / "few"), event, 6)
    many, large = peak(RunMaker(tmp_path / "many"), event, 18)
    assert large == 3 * small > 6 * CALLS * 8
    assert (many - few) / (large - small) < BYTES
