"""Names in configurations, runs and answers may hold anything; no command lets them act on the terminal."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

import accelprof
from accelprof.cli.main import cli, main
from accelprof.testing import capture

NAME = "\x1b[2J\x1b]0;own\x07[red]x[/red]\u202e"
ACTS = re.compile(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202e]|\x1b(?!\[[\d;]*m)")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A configuration in two dialects and a run, with that name for group, phase, role and worker; and a live listener's word."""
    place = tmp_path_factory.mktemp("hostile")
    ours = {"steps": [1], "groups": {NAME: {"ranks": [0], "roles": [NAME]}, "B": {"ranks": [0], "tool": "torch"}}}
    (place / "h.yaml").write_text(json.dumps(ours))
    profiling = {
        "backend": "nsight",
        "worker_groups": [NAME],
        "steps": [1],
        "options": {"t": "cuda,nvtx", "env-var": NAME},
    }
    (place / "r.yaml").write_text(json.dumps({"cluster": {"component_placement": {}, "profiling": profiling}}))
    identity = {"group": NAME, "role": NAME, "rank": 0}
    with capture(directory=str(place), run="run", steps=[1], tool=None, on_demand=True, identity=identity) as run:
        for step in range(3):
            with run.session.step(step):
                accelprof.timer(NAME)(lambda: None)()
        run.session.close()
    return place


COMMANDS = [
    "config check h.yaml",
    "config check h.yaml ranks=@",
    "config show h.yaml",
    "config show h.yaml --world @=2",
    "config show r.yaml",
    "config check r.yaml",
    "config convert r.yaml",
    "config convert h.yaml",
    "report run",
    "report run --markdown -",
    "report @",
    "compare run run",
    "whatif run",
    "timeline run -o out.json",
    "timeline @",
    "window status --run run",
    "window open --run run",
    "window status --run @",
    "run -c h.yaml output_dir=new -- true",
    "run -c h.yaml -- @",
    "run -c @ -- true",
    "@",
]


@pytest.mark.parametrize("words", COMMANDS)
def test_nothing_of_a_name_acts(words, place, monkeypatch, capfd):
    """Whatever is printed, or said with an error, holds no control character but ends of lines and colours of our own."""
    monkeypatch.chdir(place)
    with pytest.raises(SystemExit):
        main([word.replace("@", NAME) for word in words.split()])
    said = "".join(capfd.readouterr())
    if words.startswith("config convert"):
        said = said.replace("\u202e", "")  # a file's text: YAML keeps it as it is
    assert said
    assert not ACTS.search(said), ascii(said)
    assert "internal error" not in said


def test_the_name_is_shown_whole(place, monkeypatch):
    """What would act is shown in its place, and brackets are no markup."""
    monkeypatch.chdir(place)
    shown = CliRunner().invoke(cli, ["config", "show", "h.yaml"]).output
    assert "x1b[2J" in shown.replace("\n", "").replace(" ", "")
    assert "[red]" in shown
    assert "x1b[2J" in CliRunner().invoke(cli, ["window", "status", "--run", "run"]).output
