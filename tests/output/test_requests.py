"""The files of windows on demand are read between versions: what one has and the other does not is no trouble."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from accelprof.contracts.targets import Target
from accelprof.output.requests import (
    ACTIONS,
    DIRECTORY,
    REQUEST,
    STATES,
    AnswerRow,
    OddRequest,
    RequestRow,
    read_request,
    status,
    write_answer,
)
from accelprof.processes import Writer
from accelprof.testing import capture

#: as they lay on disk before rows had types
OLD_REQUEST = {
    "id": "5f0c", "action": "open", "group": "G*", "role": ["actor", "ref"], "rank": "0-3", "seconds": 30.0,
    "by": {"host": "node7", "pid": 4711, "started": "123", "space": "pid:[4026531836]"},
}  # fmt: skip
OLD_ANSWER = {
    "key": "G-rank0", "label": "G/rank0", "group": "G", "roles": ["actor"], "rank": 0, "pid": 4711, "started": "123",
    "space": "pid:[4026531836]", "host": "node7", "tools": ["torch"], "cannot": "", "state": "open", "window": "w1",
    "request": "5f0c", "meant": True, "text": "window 1, for 30 s at most",
}  # fmt: skip


@pytest.fixture
def control(tmp_path: Path) -> Path:
    directory = tmp_path / DIRECTORY
    directory.mkdir(mode=0o700)
    return directory


def put(place: Path, data: object) -> None:
    place.write_text(json.dumps(data))
    place.chmod(0o600)


def test_a_request_of_an_older_version_is_written_the_same_again(control: Path) -> None:
    """Every field is read, and an old worker finds every field of a new request under its name."""
    put(control / REQUEST, OLD_REQUEST)
    row = read_request(str(control.parent))
    assert isinstance(row, RequestRow)
    assert row.to_json() == OLD_REQUEST
    assert (row.by, row.seconds) == (Writer("node7", 4711, "123", "pid:[4026531836]"), 30.0)
    assert row.fits(Target("G1", ("actor",), 3))
    assert not row.fits(Target("G1", ("critic",), 3))
    assert not row.fits(Target("G1", ("actor",), 4))


@pytest.mark.parametrize("action", ACTIONS)
def test_a_request_needs_an_id_and_an_action(control: Path, action: str) -> None:
    """All else may be absent, or be of a later version: nobody is left out then, and the worker knows how long."""
    put(control / REQUEST, {"id": "x", "action": action, "of a later version": [1]})
    row = read_request(str(control.parent))
    assert isinstance(row, RequestRow)
    assert (row.action, row.seconds, row.by) == (action, None, None)
    assert row.fits(Target("any"))


def test_an_odd_chooser_asks_nobody(control: Path) -> None:
    """What is no name of a group is not as if none was given, which would ask all."""
    put(control / REQUEST, {"id": "x", "action": "open", "group": 3})
    assert read_request(str(control.parent)) == OddRequest("x", "group is no name")


def test_an_answer_of_an_older_version_is_read_whole() -> None:
    """It has no ``seconds``, which are the schema's then; an old asker finds every field of a new one under its name."""
    row = AnswerRow.read(OLD_ANSWER)
    assert row is not None
    assert row.to_json() == {**OLD_ANSWER, "seconds": 30.0}


@pytest.mark.parametrize("name", ["key", "label", "pid", "host", "state", "text", "cannot", "window", "request"])
def test_what_lacks_a_workers_field_is_no_answer(name: str) -> None:
    """Anything may lie in the directory: each of these is in what every version writes."""
    assert AnswerRow.read({key: value for key, value in OLD_ANSWER.items() if key != name}) is None


@pytest.mark.parametrize("state", STATES)
def test_every_state_is_read_as_it_was_written(control: Path, state: str) -> None:
    """Written and read, a row is the same."""
    row = AnswerRow.read({**OLD_ANSWER, "state": state, "seconds": 7.0})
    assert row is not None
    write_answer(str(control.parent), row)
    assert AnswerRow.read(json.loads((control / "worker-G-rank0.json").read_text())) == row
    assert [one.state for one in status(str(control.parent))] == [state]


def test_a_state_of_a_later_version_is_shown_and_counts_as_none(control: Path) -> None:
    """Who asks sees the word; the command does not take it for an open window."""
    put(control / "worker-x.json", {**OLD_ANSWER, "state": "warming", "text": "soon"})
    [answer] = status(str(control.parent))
    assert (answer.state, answer.text) == ("silent", "it says 'warming': soon")


def test_a_live_worker_writes_what_is_read() -> None:
    """Its file has the fields of older versions, and how long it would open a window."""
    with capture(on_demand={"seconds": 45}, identity={"group": "G", "rank": 0}) as run:
        [path] = Path(run.run_dir, DIRECTORY).glob("worker-*.json")
        data = json.loads(path.read_text())
        assert data.keys() >= OLD_ANSWER.keys()
        row = AnswerRow.read(data)
        assert row is not None
        assert (row.seconds, row.state, row.target.group, row.target.rank) == (45.0, "listening", "G", 0)
