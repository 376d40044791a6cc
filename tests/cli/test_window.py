"""``accelprof window``: who is asked, what is shown, and what the command ends with."""

from __future__ import annotations

import json
import threading
import time

import pytest
from click.testing import CliRunner

from accelprof import Worker
from accelprof.cli.window import window
from accelprof.errors import ConfigError, IncompleteError, UserError
from accelprof.testing import capture


class Job(Worker):
    @Worker.timer("job/work")
    def work(self):
        return None


@pytest.fixture
def listening():
    with capture(on_demand=True, identity={"group": "G", "rank": 0}) as run:
        yield run


def invoke(run, *args):
    return CliRunner().invoke(window, [args[0], "--run", run.run_dir, *args[1:]])


def worked(run, *args):
    """The command while the worker's own thread goes on working, as an asked window may wait for a phase."""
    done, job = [], Job()
    asking = threading.Thread(target=lambda: done.append(invoke(run, *args)))
    asking.start()
    while asking.is_alive():
        job.work()
        time.sleep(0.01)
    return done[0]


def test_a_window_is_opened_looked_at_and_closed(listening):
    """open, status and close say the same of one worker, in words and as JSON; what was opened is one window of the run."""
    opened = worked(listening, "open", "--seconds", "60", "--timeout", "20")
    assert opened.exit_code == 0, opened.output
    assert opened.output.startswith("G/rank0 (")
    (row,) = json.loads(invoke(listening, "status", "--json").output)
    assert (row["label"], row["pid"]) == ("G/rank0", listening.session.process.pid)
    assert row["state"] in ("open", "armed")
    worked(listening, "close", "--timeout", "20")
    assert listening.session.window is None
    assert [row.kind for row in listening.session.windows] == ["on_demand"]


@pytest.mark.parametrize(("asked", "seconds"), [((), "45"), (("--seconds", "60"), "60")])
def test_a_window_is_as_long_as_the_configuration_says_unless_the_command_does(asked, seconds):
    """``on_demand.seconds`` counts for who asks by command as it does for signals."""
    with capture(on_demand={"seconds": 45}, identity={"group": "G", "rank": 0}) as run:
        assert f"for {seconds} s at most" in worked(run, "open", *asked, "--timeout", "20").output


def test_nobody_fits(listening):
    """Choosers that fit no worker are status 1 and say so: nothing was opened."""
    done = invoke(listening, "open", "--rank", "7", "--timeout", "20")
    assert isinstance(done.exception, IncompleteError)
    assert "no selected worker fits" in str(done.exception)
    assert listening.session.windows == []


def test_a_second_window_is_refused_by_name(listening):
    """Who has a window open already says so; the command ends as incomplete with that worker's words."""
    assert worked(listening, "open", "--seconds", "60", "--timeout", "20").exit_code == 0
    again = worked(listening, "open", "--timeout", "20")
    assert isinstance(again.exception, IncompleteError)
    assert str(again.exception).startswith("G/rank0 refused: ")


@pytest.mark.parametrize("command", ["open", "close", "status"])
def test_a_directory_without_listeners_is_the_users_mistake(command, tmp_path):
    """No run, or one in which nobody listens, is said with its path."""
    done = CliRunner().invoke(window, [command, "--run", str(tmp_path)])
    assert isinstance(done.exception, UserError)
    assert str(tmp_path) in str(done.exception)
    done = CliRunner().invoke(window, [command, "--run", str(tmp_path / "none")])
    assert isinstance(done.exception, UserError)


def test_what_is_no_set_of_ranks_is_refused(listening):
    """--rank is checked before anybody is asked."""
    done = invoke(listening, "open", "--rank", "some")
    assert isinstance(done.exception, ConfigError)
    assert "--rank" in str(done.exception)


@pytest.mark.parametrize("value", ["0", "-1", "soon"])
def test_seconds_are_more_than_none(listening, value):
    """A window of no time is refused by the command itself."""
    done = invoke(listening, "open", "--seconds", value)
    assert done.exit_code == 2
    assert "--seconds" in done.output


def test_a_dump_without_a_recorder_says_what_is_missing(listening):
    """A run whose workers have no flight recorder is named with what its configuration lacks."""
    done = invoke(listening, "dump", "--timeout", "0.2")
    assert isinstance(done.exception, (IncompleteError, UserError))
    assert "recorder" in str(done.exception)
