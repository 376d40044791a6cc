"""What is no argument is named; what a tool answers wrongly is said, and training's own exception stays what it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import accelprof
from accelprof.contracts.targets import ArtifactFile, Launch
from accelprof.errors import AccelprofError, CaptureError, ConfigError
from accelprof.output.requests import load
from accelprof.session.identity import RANK_VARIABLES
from accelprof.testing import RecordingTool, capture


class NoNumber:
    def __index__(self) -> int:
        raise RuntimeError("not today")


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"group": ["a"]}, "group"),
        ({"group": 5}, "group"),
        ({"accelerator": 5}, "accelerator"),
        ({"role": [3]}, "role"),
        ({"node": b"x"}, "node"),
        ({"rank": 10**5000}, "rank"),
        ({"rank": NoNumber()}, "rank"),
        ({"world_size": -1}, "world_size"),
    ],
)
def test_an_argument_of_another_kind_is_refused_by_name(tmp_path: Path, arguments: dict[str, Any], key: str) -> None:
    """Each is a ConfigError that begins with the argument's name and stays short."""
    with pytest.raises(ConfigError, match=rf"^{key}: ") as raised:
        accelprof.configure(steps=[1], tool=None, output_dir=str(tmp_path), **arguments)
    assert len(str(raised.value)) < 2000
    accelprof.reset()


def test_a_long_unknown_name_stays_short(tmp_path: Path) -> None:
    """A name of 5,000 characters is shortened in the message."""
    with pytest.raises(AccelprofError) as raised:
        accelprof.configure(steps=[1], tool=None, output_dir=str(tmp_path), accelerator="x" * 5000)
    assert len(str(raised.value)) < 2000
    accelprof.reset()


def test_a_directory_with_a_nul_costs_the_files_and_not_training(tmp_path: Path) -> None:
    """It cannot be made, is said, and the step goes on."""
    session = accelprof.configure(steps=[1], tool=None, output_dir=str(tmp_path / "a\0b"), group="G")
    with session.step(1):
        pass
    assert any("cannot be made" in text for text in session.problems)
    accelprof.reset()


def test_who_asked_to_have_it_raised_gets_our_error(tmp_path: Path) -> None:
    """With ``on_error: raise`` the same directory is a ConfigError with its key."""
    with pytest.raises(ConfigError, match=r"^output_dir: a NUL character"):
        accelprof.configure(steps=[1], tool=None, output_dir=str(tmp_path / "a\0b"), on_error="raise")
    accelprof.reset()


@pytest.mark.parametrize(
    ("variables", "rank", "named"),
    [
        ({"RANK": "x"}, None, ["RANK='x'"]),
        ({"RANK": "-1", "SLURM_PROCID": "3", "SLURM_NTASKS": "many"}, 3, ["RANK='-1'", "SLURM_NTASKS='many'"]),
        ({"RANK": "1.0", "PMI_RANK": "2", "PMI_SIZE": "4"}, 2, ["RANK='1.0'"]),
        ({"RANK": "", "WORLD_SIZE": "x"}, None, []),
        ({"RANK": "5", "WORLD_SIZE": "8"}, 5, []),
    ],
)
def test_a_launchers_variable_that_is_no_number_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], rank: int | None, named: list[str]
) -> None:
    """Each is passed over, said with its value and the mend, once; not where the rank was given."""
    for _, *names in RANK_VARIABLES:
        for name in names:
            monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    session = accelprof.configure(steps=[1], tool=None, output_dir=str(tmp_path), ranks="all")
    said = [text for text in session.problems if "in the environment" in text]
    assert session.target.rank == rank
    assert [text.split(" ")[0] for text in said] == named
    assert all("give rank=" in text for text in said)
    accelprof.reset()
    session = accelprof.configure(steps=[1], tool=None, output_dir=str(tmp_path), ranks="all", rank=0)
    assert not [text for text in session.problems if "in the environment" in text]
    accelprof.reset()


class Wrong(RecordingTool):
    name = "wrong"
    answer: Any = None

    def close(self, window: Any) -> Any:
        super().close(window)
        return self.answer


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "path",
        ["path"],
        [None],
        5,
        [ArtifactFile(None, "wrong")],
        [ArtifactFile("p", "wrong", 5)],
        [ArtifactFile("p", 3)],
    ],  # type: ignore[arg-type]
)
def test_a_wrong_answer_of_close_names_the_tool_and_leaves_trainings_exception(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    """Whatever a plug-in's ``close`` returns, the exception that leaves the step is the user's, and the tool is named once."""
    monkeypatch.setattr(Wrong, "answer", answer)
    with capture(tool="wrong", tools=(Wrong,), steps=[1]) as run:
        with pytest.raises(KeyError, match="mine"), run.session.step(1):
            raise KeyError("mine")
        said = [text for text in run.session.problems if "tool wrong" in text]
        assert len(said) == 1
        assert "close() of tool wrong returned" in said[0]


def test_a_directory_in_a_requests_place_costs_no_handle(tmp_path: Path) -> None:
    """It is refused with words that do not change, and nothing is left open."""
    place = tmp_path / "request.json"
    place.mkdir()
    before = len(os.listdir("/proc/self/fd"))
    texts = set()
    for _ in range(20):
        with pytest.raises(AccelprofError) as raised:
            load(str(place))
        texts.add(str(raised.value))
    assert len(texts) == 1
    assert len(os.listdir("/proc/self/fd")) == before


class Launched(RecordingTool):
    """A tool around the process, in a process that was started without it."""

    name = "launched"

    def launch(self, assignment: Any, directory: str) -> Launch:
        return Launch("prefix", ("launched",))

    def attach(self, context: Any) -> None:
        raise CaptureError("this process was not started under launched")


@pytest.mark.parametrize("on_error", ["warn", "raise"])
@pytest.mark.parametrize(
    ("role", "named"), [("actor", "role='actor'"), (["actor", "ref"], "role=['actor', 'ref']"), (None, "")]
)
def test_a_worker_with_a_role_says_where_its_start_needs_it(on_error: str, role: Any, named: str) -> None:
    """Where a tool's start is missing, a role that came with ``attach`` is named for ``options``; without roles nothing is."""
    asked = {"tool": "launched", "tools": (Launched,), "identity": {"role": role}, "steps": [1], "on_error": on_error}
    said = ""
    try:
        with capture(**asked) as run:
            said = next(text for text in run.session.problems if "not started under" in text)
    except CaptureError as error:
        assert on_error == "raise"
        said = str(error)
    assert ("options('Group', " + named + ")" in said) == bool(named)


@pytest.mark.parametrize(("role", "said"), [(None, True), ("actor", False), ("other", False)])
def test_a_process_without_the_role_that_every_rule_is_for_says_so(role: Any, said: bool) -> None:
    """It is not profiled, and its own problems name the roles and the argument; one with another role is just not meant."""
    groups = {"Group": [{"roles": ["actor"], "ranks": "all"}, {"roles": ["ref"], "ranks": "all"}]}
    with capture(groups=groups, identity={"role": role}, steps=[1]) as run:
        text = "every rule of Group is for a role (actor, ref), and none is given; give role= too"
        assert (text in run.session.problems) == said
        assert run.session.assignment.selected == (role == "actor")
