"""``accelprof compare``: its forms, its gate, and how it ends."""

from __future__ import annotations

import json


def test_a_run_against_itself_has_no_change(call, finished):
    """Status 0 and the same words for a reader as for a machine."""
    status, out, _ = call("compare", finished, finished)
    assert (status, "No change." in out) == (0, True)
    status, out, _ = call("compare", finished, finished, "--json")
    found = json.loads(out)
    assert status == 0
    assert found["unchanged"] is True
    assert {"headline", "before", "after", "changes", "notes", "partial"} <= found.keys()
    assert all(row["delta_ns"] == 0 for row in found["changes"] if "delta_ns" in row)


def test_a_stored_baseline_is_a_before(call, finished, tmp_path):
    """``--save`` stores what a later ``compare`` takes; one that cannot be written is status 1."""
    assert call("compare", finished, finished, "--save", tmp_path / "base.json")[0] == 0
    status, out, _ = call("compare", tmp_path / "base.json", finished)
    assert (status, "No change." in out) == (0, True)
    status, _, err = call("compare", finished, finished, "--save", tmp_path / "none" / "base.json")
    assert status == 1
    assert "cannot be written" in err


def test_a_baseline_replaces_nothing_but_baselines(call, finished, tmp_path):
    """One may be stored anew; a trace, one of those compared say, stays."""
    (tmp_path / "empty.json").touch()
    for path in (tmp_path / "empty.json", tmp_path / "base.json", tmp_path / "base.json"):
        assert call("compare", finished, finished, "--save", path)[0] == 0
    trace = tmp_path / "a.json"
    trace.write_text('{"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}')
    before = trace.read_bytes()
    status, _, err = call("compare", trace, trace, "--save", trace)
    assert (status, "no stored baseline" in err, trace.read_bytes() == before) == (2, True, True)


def test_the_gate_names_what_is_slower(call, finished, slower):
    """``--fail-above`` ends with 1 and says which phase took longer; the other way round it ends with 0."""
    status, _, err = call("compare", finished, slower, "--fail-above", "500")  # a busy machine doubles a short phase
    assert status == 1
    assert "actor/update" in err
    assert "rollout/generate" not in err
    status, _, err = call("compare", slower, finished, "--fail-above", "50")
    assert "actor/update" not in err
    assert call("compare", finished, slower)[0] == 0


def test_markdown_and_a_page(call, finished, tmp_path):
    """``--markdown`` is tables alone; ``--html`` is AFTER's page with the comparison in it."""
    status, out, _ = call("compare", finished, finished, "--markdown", "--html", tmp_path / "page.html")
    assert status == 0
    assert "Page:" not in out
    assert "<html" in (tmp_path / "page.html").read_text()


def test_mistakes_are_status_two(call, finished, tmp_path):
    """One side only, a percentage below nought, a page of a baseline: named, with status 2."""
    assert call("compare", finished)[0] == 2
    assert call("compare", finished, finished, "--fail-above", "-1")[0] == 2
    call("compare", finished, finished, "--save", tmp_path / "base.json")
    status, _, err = call("compare", finished, tmp_path / "base.json", "--html", tmp_path / "page.html")
    assert status == 2
    assert "is a stored baseline" in err
