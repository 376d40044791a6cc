"""``accelprof timeline``: where the trace goes, what is said of it, and how the command ends."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest


def test_a_run_becomes_one_trace(call, finished, tmp_path):
    """The trace goes where ``-o`` says, packed or not by its name, and the number of events is said."""
    for name, opened in (("out.json", open), ("out.json.gz", gzip.open)):
        status, out, _ = call("timeline", finished, "-o", tmp_path / name)
        with opened(tmp_path / name, "rt") as file:
            events = json.load(file)["traceEvents"]
        assert status == 0
        assert "events of" in out
        assert "actor/update" in {event.get("name") for event in events}


def test_json_says_what_was_merged(call, finished, tmp_path):
    """``--json`` prints path and counts alone."""
    status, out, _ = call("timeline", finished, "-o", tmp_path / "out.json", "--json")
    found = json.loads(out)
    assert status == 0
    assert found.keys() == {"path", "read", "written", "added", "left_out", "moved", "problems", "notes"}
    assert found["read"] >= 4
    assert found["problems"] == []


def test_perfettos_own_format(call, finished, tmp_path):
    """``--format perfetto`` writes packets, not JSON."""
    assert call("timeline", finished, "--format", "perfetto", "-o", tmp_path / "out.pftrace")[0] == 0
    assert (tmp_path / "out.pftrace").read_bytes()[:1] != b"{"


def test_mistakes_are_status_two(call, tmp_path):
    """No source, an unknown format, a directory that is no run, files without a name for the result."""
    file = tmp_path / "a.json"
    file.write_text('{"traceEvents": []}')
    assert call("timeline")[0] == 2
    assert call("timeline", file, "--format", "csv")[0] == 2
    status, _, err = call("timeline", tmp_path)
    assert (status, "is no run directory" in err) == (2, True)
    status, _, err = call("timeline", file)
    assert (status, "-o FILE" in err) == (2, True)


def test_no_file_that_is_merged_is_replaced(call, finished, tmp_path):
    """``-o`` names one of them, by another spelling too: of single files, and of a run."""
    run = shutil.copytree(finished, tmp_path / "run")
    of_run = run / json.loads((run / "manifest.json").read_text())["artifacts"][0]["path"]
    file, link = tmp_path / "a.json", tmp_path / "link.json"
    file.write_text('{"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}')
    link.symlink_to(file)
    for words, out, there in ((run, of_run, of_run), (file, file, file), (link, file, file), (file, link, file)):
        before = there.read_bytes()
        status, _, err = call("timeline", words, "-o", out)
        assert (status, "would be replaced" in err, there.read_bytes() == before) == (2, True, True)
    assert not list(tmp_path.glob("**/*.part*"))


@pytest.mark.parametrize("kind", ["json", "perfetto"])
@pytest.mark.parametrize("put", [lambda path: path.write_bytes(b"no trace"), lambda path: None, Path.mkdir, os.mkfifo])
def test_a_run_of_which_nothing_is_left_is_an_error(call, finished, tmp_path, kind, put):
    """Files that are no traces, gone, or no files: the status says so with the reasons, and nothing is written."""
    run = shutil.copytree(finished, tmp_path / "run")
    files = [run / row["path"] for row in json.loads((run / "manifest.json").read_text())["artifacts"]]
    assert len(files) >= 2
    for path in files:
        path.unlink()
        put(path)
    status, _, err = call("timeline", run, "--format", kind, "-o", tmp_path / "out")
    assert (status, "none of its files is in the timeline: " in err) == (2, True), err
    assert all(path.name in err for path in files)
    assert not (tmp_path / "out").exists()
