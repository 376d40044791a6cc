"""What the tests of commands share: the command line as a user types it, and a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import accelprof
from accelprof.cli.main import main
from accelprof.testing import capture

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """``call("report", …)``: exit status, standard output and standard error of the command."""

    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return run


def recorded(place: Path, numbers: int) -> Path:
    """A run of one worker with windows on steps 1 and 2, two phases in each, and nothing that is missing."""
    with capture(directory=str(place), run="run", steps=[1, 2], tool=None) as run:
        for step in range(4):
            with run.session.step(step):
                accelprof.timer("actor/update")(sum)(range(numbers))
                accelprof.timer("rollout/generate")(time.sleep)(0.01)
        run.session.close()
    return place / "run"


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run."""
    return recorded(tmp_path_factory.mktemp("finished"), 1000)


@pytest.fixture(scope="session")
def slower(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run with an ``actor/update`` that takes a thousand times as long."""
    return recorded(tmp_path_factory.mktemp("slower"), 1_000_000)


@pytest.fixture(scope="session")
def missing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose planned window never opened."""
    place = tmp_path_factory.mktemp("missing")
    with capture(directory=str(place), run="run", steps=[9], tool=None) as run:
        with run.session.step(1):
            accelprof.timer("actor/update")(lambda: None)()
        run.session.close()
    return place / "run"
