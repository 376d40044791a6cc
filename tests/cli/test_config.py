"""``accelprof config check`` and ``show``: what they print, what they refuse, and how they end."""

from __future__ import annotations

import json

import pytest

OURS = "steps: [2, 4]\ntool: torch\ngroups: {Actor: {ranks: [0]}}\n"


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "ours.yaml"
    made.write_text(OURS)
    return made


def test_a_right_file_is_said_to_be(call, file):
    """``check`` names the dialect, with status 0; a file that profiles nothing says why."""
    status, out, _ = call("config", "check", file)
    assert (status, "right (accelprof dialect)" in out) == (0, True)
    status, out, _ = call("config", "check", file, "steps=[]")
    assert status == 0
    assert "nothing is profiled: steps is absent (or empty)" in " ".join(out.split())
    status, out, _ = call("config", "check", file, "enabled=false")
    assert (status, "enabled is false" in out) == (0, True)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["steeps=[1]"], "steeps"),
        (["tool=torhc"], "torch"),
        (["output_dir=/proc/nowhere"], "output_dir"),
        (["steps"], "steps"),
    ],
)
@pytest.mark.parametrize("command", ["check"])
def test_a_wrong_one_is_status_two_with_the_key(call, file, command, overrides, says):
    """What is wrong is named by its key, with status 2 and nothing on standard output."""
    status, out, err = call("config", command, file, *overrides)
    assert (status, out) == (2, "")
    assert says in err


def test_a_file_that_is_not_there(call, tmp_path):
    """Both commands name it."""
    for command in ("check", "show"):
        status, _, err = call("config", command, tmp_path / "none.yaml")
        assert status == 2
        assert "none.yaml" in err


def test_show_has_a_row_for_each_rank(call, file):
    """``--world`` lists the ranks of a group; ``--json`` has the same rows for a machine."""
    status, out, _ = call("config", "show", file, "--world", "Actor=2", "--json")
    found = json.loads(out)
    assert status == 0
    rows = found["targets"]
    assert [(row["rank"], row["selected"]) for row in rows] == [(0, True), (1, False)]
    assert rows[0]["tool"] == "torch"
    status, out, _ = call("config", "show", file, "--world", "Actor=2")
    assert status == 0
    assert "torch" in out


@pytest.mark.parametrize("tool", ["torch", "torch_memory"])
def test_a_tools_name_is_not_broken(call, tmp_path, monkeypatch, tool):
    """On 80 columns the names of tools stand whole, beside long groups and roles and windows with many words."""
    monkeypatch.setenv("COLUMNS", "80")
    made = tmp_path / "long.yaml"
    made.write_text(
        f"tool: {tool}\nsteps: ['1-200']\nmerge_steps: false\ngroups: {{actor_rollout_reference_group: {{roles: [actor_and_rollout]}}}}\n"
    )
    status, out, _ = call("config", "show", made)
    assert status == 0
    words = out.replace(",", " ").split()
    assert {tool, "timeline"} <= set(words)


@pytest.mark.parametrize("world", ["Actor", "Actor=0", "Actor=x", "Actor=-1"])
def test_a_world_that_is_none(call, file, world):
    """``--world`` wants GROUP=SIZE, and says how that looks."""
    status, _, err = call("config", "show", file, "--world", world)
    assert status == 2
    assert "GROUP=SIZE" in err
