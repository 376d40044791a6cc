"""Files are read in blocks and times in columns; what comes out is what a plain parser says, wherever a block ends."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelprof.analysis.files import summarise_files
from accelprof.contracts.spans import FURTHEST_NS
from accelprof.errors import ReadError
from accelprof.reading import gzipped
from accelprof.reading import times as times_module
from accelprof.reading.chrome import read_chrome
from accelprof.reading.chrome_file import BadTimeError, exact_ns, load
from accelprof.reading.times import exact_column

patient = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], max_examples=60
)
tricky = st.sampled_from(
    ('a"b', "}, {", '{"traceEvents": [', '"},{"ph"', "\\", "]", "ü}", '\\"traceEvents": [', "x", '"traceEvents":[')
)
values = st.recursive(
    st.integers(-5, 5) | tricky | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(tricky, inner, max_size=3),
    max_leaves=6,
)
events = st.lists(
    st.fixed_dictionaries(
        {"ph": st.just("X"), "name": tricky, "pid": st.integers(0, 2), "tid": st.integers(0, 2),
         "ts": st.integers(0, 50), "dur": st.integers(0, 9)},
        optional={"args": st.dictionaries(tricky, values, max_size=3)},
    ),
    max_size=12,
)  # fmt: skip


@patient
@given(events, st.dictionaries(tricky, values, max_size=2), st.dictionaries(tricky, values, max_size=2), st.data())
def test_where_a_block_ends_changes_nothing(
    tmp_path: Path, found: list[Any], before: dict[str, Any], after: dict[str, Any], data: st.DataObject
) -> None:
    """With blocks of a few bytes each event and each other key is what a plain parser gives, plain or compressed."""
    after = {key: value for key, value in after.items() if key not in before}
    top = {**before, "traceEvents": found, **after}
    indent = data.draw(st.sampled_from((None, 0, 2)))
    text = json.dumps(top if data.draw(st.booleans()) else (top := found) or found, indent=indent)
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(text.encode()) if data.draw(st.booleans()) else text.encode())
    size = data.draw(st.sampled_from((16, 33, 100, 1000)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gzipped, "PART", size)
        file = load(str(path))
        trace = read_chrome(str(path), "t")
    assert [(event.name, json.loads(bytes(event.ts))) for event in file.events] == [(e["name"], e["ts"]) for e in found]
    assert file.completeness.complete
    assert not file.completeness.repaired
    assert file.top == ({**before, **after} if isinstance(top, dict) else {})
    assert [(s.name, s.start_ns, s.end_ns) for s in trace.spans] == [
        (e["name"], e["ts"] * 1000, (e["ts"] + e["dur"]) * 1000) for e in found
    ]
    assert [dict(s.args) for s in trace.spans] == [e.get("args", {}) for e in found]


numbers = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**17), max_value=10**17).map(str),
    st.integers(-(10**17), 10**17).map(str),
    st.sampled_from(
        ("1795852566123456.789", '"1795852566123456.789"', "1e3", "1E-7", "1e999999", "1e-999999", "NaN", '"x"', "null", "",
         "0.1239", "9" * 30, "0" * 23, "0" * 24 + "1", "-0", "5.", ".5", "1.2.3", '"5"', "[1]", "true", "4611686018427387.904")
    ),
)  # fmt: skip


#: what tools write: one width or several, up to 16 digits before the point
decimals = st.from_regex(r"\A(0|[1-9][0-9]{0,15})(\.[0-9]{1,3})?\Z")
of_one_width = st.integers(0, 3).flatmap(
    lambda places: st.lists(
        st.integers(10**15, 10**16 - 1).map(lambda number: f"{number}.{number % 10**places:0{places}}".rstrip(".")),
        max_size=12,
    )
)


@patient
@given(st.one_of(st.lists(numbers, max_size=20), st.lists(decimals, max_size=12), of_one_width))
def test_times_of_a_column_are_those_of_one(texts: list[str]) -> None:
    """Each time of a column, short or long, is what reading it alone gives, or is left out for the same reason."""
    long = texts * (times_module._FEW // max(len(texts), 1) + 1)
    for column in (texts, long):
        _is_read_as_one_by_one(column)


def _is_read_as_one_by_one(texts: list[str]) -> None:
    times, bad = exact_column([msgspec.Raw(text.encode()) for text in texts])
    for row, text in enumerate(texts):
        try:
            expected = exact_ns(text.encode())
        except BadTimeError as error:
            assert bad[row] == str(error)
            continue
        if abs(expected) >= FURTHEST_NS:
            assert bad[row] == "endless"
        else:
            assert row not in bad
            assert times[row] == expected


def test_a_wrong_checksum_loses_no_event_and_is_said(tmp_path: Path) -> None:
    """A gzip file whose content inflates but whose checksum is wrong is read whole, and is not taken for complete."""
    text = json.dumps({"traceEvents": [{"ph": "X", "name": "a", "ts": at, "dur": 1} for at in range(3000)]})
    packed = bytearray(gzip.compress(text.encode()))
    packed[-8] ^= 255
    path = tmp_path / "t.json.gz"
    path.write_bytes(bytes(packed))
    trace = read_chrome(str(path), "t")
    assert len(trace) == 3000
    assert "checksum" in trace.completeness.cut
    (problem,) = summarise_files([str(path)]).problems
    assert problem.count("t.json.gz") == 1


def test_a_stream_that_grows_without_end_is_refused(tmp_path: Path) -> None:
    """A file that decompresses to more than 200 times its size is not read, whatever would come out."""
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(b'{"traceEvents":[')
        for _ in range(300):
            file.write(b" " * (1 << 20))
        file.write(b"]}")
    with pytest.raises(ReadError, match="more than 200 times its size"):
        read_chrome(str(path), "t")


def test_two_documents_in_a_row_are_said(tmp_path: Path) -> None:
    """Of two traces one behind the other the first is read, and that there is a second is said."""
    text = json.dumps({"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1}]})
    path = tmp_path / "t.json"
    path.write_text(text + text)
    trace = read_chrome(str(path), "t")
    assert len(trace) == 1
    assert f"a second document from character {len(text)} on" in trace.completeness.unread[0]


@pytest.mark.parametrize("text", ['[{"a": 1}, {"b": 2}]', "[1, 2, 3]", '["x"]', "[[]]"])
def test_a_json_list_of_something_else_is_no_trace(tmp_path: Path, text: str) -> None:
    """A list whose entries are no events is refused as what it is."""
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(ReadError, match="no trace"):
        read_chrome(str(path), "t")


def test_memory_follows_the_table_and_not_the_file(tmp_path: Path) -> None:
    """While a file of 40 MB is read, no more than a few blocks of it are in memory at once."""
    import tracemalloc

    path = tmp_path / "t.json"
    filler = "x" * 4000
    with path.open("w") as file:
        file.write('{"traceEvents":[')
        for at in range(10_000):
            text = f'{{"ph":"X","name":"a","ts":{at},"dur":1,"pid":1,"tid":1,"args":{{"text":"{filler}"}}}}'
            file.write(("," if at else "") + text)
        file.write("]}")
    tracemalloc.start()
    trace = read_chrome(str(path), "t")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(trace) == 10_000
    assert peak < 30e6
