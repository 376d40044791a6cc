"""``accelprof report``: what it takes, what it writes where, and how it ends."""

from __future__ import annotations

import gzip
import json

import pytest

import accelprof
from accelprof.testing import capture


def test_a_run_gives_tables_and_a_page(call, finished, tmp_path):
    """Status 0, the phases on standard output, and the page beside the run or where ``--html`` says."""
    status, out, _ = call("report", finished, "--html", tmp_path / "page.html")
    assert status == 0
    assert "actor/update" in out
    assert "<html" in (tmp_path / "page.html").read_text()
    status, out, _ = call("report", finished, "--no-html")
    assert (status, "Page:" in out) == (0, False)


def test_json_is_all_of_standard_output(call, finished):
    """``--json`` prints one document, with times in ns under stable names."""
    status, out, _ = call("report", finished, "--json", "--no-html")
    found = json.loads(out)
    assert status == 0
    assert found["delivered"] is True
    assert found["undelivered"] == []
    names = ("format", "run", "directory", "workers", "phases", "devices", "seconds", "steps", "problems", "metrics")
    assert set(names) <= found.keys()
    assert {row["phase"] for row in found["phases"]} == {"actor/update", "rollout/generate"}
    assert found["first"]


def test_what_did_not_come_is_status_one(call, missing):
    """A window that was asked for and never opened ends the command with 1, and says so in both forms."""
    status, out, _ = call("report", missing, "--no-html")
    assert status == 1
    assert "0 windows opened" in " ".join(out.split())
    status, out, _ = call("report", missing, "--json", "--no-html")
    assert (status, json.loads(out)["delivered"]) == (1, False)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["/nowhere/at/all"], "does not exist"),
        (["RUN", "RUN"], "one run at a time"),
        (["EMPTY"], "is no run"),
        (["RUN", "--csv"], "requires an argument"),
    ],
)
def test_mistakes_are_status_two(call, finished, tmp_path, words, says):
    """What the user got wrong is named, with status 2 and no traceback."""
    places = {"RUN": finished, "EMPTY": tmp_path}
    status, _, err = call("report", *(places.get(word, word) for word in words))
    assert status == 2
    assert says in " ".join(err.split())
    assert "Traceback" not in err


def test_tables_as_files(call, finished, tmp_path):
    """``--csv`` writes each table and names them; a directory that cannot be made is said, with status 1."""
    status, out, _ = call("report", finished, "--no-html", "--csv", tmp_path / "tables")
    written = {path.stem for path in (tmp_path / "tables").glob("*.csv")}
    assert status == 0
    assert "phases" in written
    assert all(name in out for name in written)
    (tmp_path / "file").write_text("")
    status, _, err = call("report", finished, "--no-html", "--csv", tmp_path / "file" / "below")
    assert status == 1
    assert "cannot be written" in err


def test_the_newest_run_is_taken_and_named(call, finished, monkeypatch):
    """Without a source the newest run below is reported, by its name."""
    monkeypatch.chdir(finished.parent)
    status, out, _ = call("report", "--no-html")
    assert status == 0
    assert out.startswith("run (the newest run)")


def test_where_there_is_no_run(call, tmp_path, monkeypatch):
    """A directory without runs is named, with what to give."""
    monkeypatch.chdir(tmp_path)
    status, _, err = call("report")
    assert status == 2
    assert "no run in" in err


@pytest.mark.parametrize("packed", [False, True])
def test_a_cut_file_is_status_one_wherever_it_lies(call, tmp_path, packed):
    """A single file that was cut, or cannot be read, ends the command as one of a run does; what lies beside traces in a directory
    and is none of them does not."""
    rows = [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 100 * at, "dur": 10} for at in range(500)
    ]
    text = json.dumps({"traceEvents": rows}).encode()
    data = gzip.compress(text) if packed else text
    name = "t.json.gz" if packed else "t.json"
    (tmp_path / name).write_bytes(data)
    (tmp_path / "other.json").write_text('{"no": "trace"}')
    assert call("report", tmp_path / name)[0] == 0
    assert call("report", tmp_path)[0] == 0
    assert call("report", tmp_path / name, tmp_path / "other.json")[0] == 1
    (tmp_path / name).write_bytes(data[: len(data) // 2])
    for source in (tmp_path / name, tmp_path):
        status, out, _ = call("report", source, "--json")
        assert status == 1
        assert json.loads(out)["delivered"] is False
        assert name in json.loads(out)["undelivered"][0]


def test_a_file_that_nobody_here_reads_is_there_all_the_same(call, tmp_path):
    """Its tool's plug-in may be elsewhere, or have no reader: that is said, and the run is delivered."""
    with capture(directory=str(tmp_path), run="run", steps=[1], tool="recording") as run:
        with run.session.step(1):
            accelprof.timer("work")(int)()
        run.session.close()
    status, out, _ = call("report", tmp_path / "run", "--json", "--no-html")
    told = json.loads(out)
    assert (status, told["delivered"], told["undelivered"]) == (0, True, [])
    assert any("no registered tool reads this file" in line for line in told["problems"])


def odd_place(tmp_path, kind):
    """Something that is named to a command and cannot be read."""
    place = tmp_path / f"{kind}.json"
    if kind == "directory":
        place.mkdir()
    elif kind == "loop":
        place.symlink_to(place)
    else:
        place.symlink_to(tmp_path / "nowhere")
    return place


@pytest.mark.parametrize("kind", ["directory", "loop", "broken link"])
def test_what_cannot_be_read_is_named_beside_the_others(call, tmp_path, kind):
    """An empty directory and links that lead nowhere are named, with status 1, and the file beside them counts."""
    odd, good = odd_place(tmp_path, kind), tmp_path / "good.json"
    event = {"ph": "X", "cat": "user_annotation", "name": "update", "pid": 1, "tid": 1, "ts": 0, "dur": 50}
    good.write_text(json.dumps({"traceEvents": [event]}))
    status, out, _ = call("report", odd, good, "--json")
    found = json.loads(out)
    assert (status, [row["phase"] for row in found["phases"]]) == (1, ["update"])
    assert any(odd.name in line and "was not read" in line for line in found["undelivered"])
    assert call("report", odd)[0] == 2, "and nothing is beside it"
    status, out, err = call("timeline", odd, good, "-o", tmp_path / "all.json")
    assert odd.name in err
    assert "1 events of 2 files" in out


@pytest.mark.parametrize("value", [[1], {"a": 1}, 1, 1.5, True, "g", None])
@pytest.mark.parametrize("key", ["group", "host", "rank", "replica", "pid", "roles", "steps", "window"])
def test_an_odd_value_of_one_timeline_ends_nothing(call, tmp_path, key, value):
    """Whatever a file says of the worker that left it; the file beside it counts."""
    facts = {
        "format": 1,
        "group": "G",
        "roles": ["a"],
        "window": "w",
        "steps": [2],
        "dropped": 0,
        "rank": 0,
        key: value,
    }
    event = {"ph": "X", "cat": "phase", "name": "update", "pid": 1, "tid": 1, "ts": 0, "dur": 50}
    odd, good = tmp_path / "odd.json", tmp_path / "good.json"
    odd.write_text(json.dumps({"traceEvents": [event], "otherData": {"accelprof": facts}}))
    good.write_text(json.dumps({"traceEvents": [{**event, "name": "other", "cat": "user_annotation"}]}))
    status, out, _ = call("report", odd, good, "--json")
    assert (status, {row["phase"] for row in json.loads(out)["phases"]}) == (0, {"update", "other"})
