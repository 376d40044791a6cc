"""``accelprof doctor``: one line says what the machine is ready for, the rest where it helps."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from accelprof.cli import doctor as command
from accelprof.contracts.doctor import Check
from accelprof.testing import RecordingBackend, capture

ROWS = [
    Check("core", "python", "ok", "3.11"),
    Check("backend", "cpu", "ok", "always there"),
    Check("backend", "cuda", "ok", "NVIDIA H100"),
    Check("backend", "npu", "info", "torch_npu is not installed"),
    Check("backend", "in use", "ok", "cuda"),
    Check("ascend", "torch_npu", "info", "torch_npu is not installed"),
    Check("rocm", "library", "warn", "libroctx64.so is not found"),
    Check("rocm", "ranges", "warn", "libroctx64.so is not found"),
]


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (ROWS, "cuda is ready; npu: not on this machine"),
        (ROWS[:2], "the CPU is ready"),
        ([*ROWS, Check("backend", "rocm", "ok", "MI300")], "cuda, rocm are ready; npu: not on this machine"),
        ([*ROWS[:2], Check("core", "output directory", "fail", "full")], "the CPU is ready; to mend: output directory"),
    ],
)
def test_the_conclusion_is_one_line(rows, line):
    """What is ready, what is not on this machine, what is to be mended."""
    assert command.conclusion(rows) == line


def test_a_reason_stands_once():
    """The second check with the same reason refers to the first; what is in order is left out, and is there with verbose."""
    assert [(row.name, row.detail) for row in command.to_show(ROWS, False)] == [
        ("library", "libroctx64.so is not found"),
        ("ranges", "as library"),
    ]
    shown = command.to_show(ROWS, True)
    assert len(shown) == len(ROWS)
    assert [row.detail for row in shown].count("torch_npu is not installed") == 1


def test_the_output_fits_a_screen_and_ends_with_the_conclusion(monkeypatch):
    """At most 24 lines of 80 columns; ``--verbose`` and ``--json`` have every check; a failure is status 1."""
    rows = [*ROWS, *(Check("core", f"library {n}", "ok", "x" * 60) for n in range(40))]
    monkeypatch.setattr(command, "checks", lambda output_dir: rows)
    brief = CliRunner().invoke(command.doctor, [])
    assert brief.exit_code == 0
    assert len(brief.output.splitlines()) <= 24
    assert "cuda is ready; npu: not on this machine (46 checks more with --verbose)" in brief.output.splitlines()[-1]
    whole = CliRunner().invoke(command.doctor, ["--verbose"]).output
    assert "library 39" in whole
    assert whole.splitlines()[-1].endswith("cuda is ready; npu: not on this machine")
    (told,) = json.loads(CliRunner().invoke(command.doctor, ["--json"]).output).values()
    assert len(told) == len(rows)
    rows.append(Check("core", "disk", "fail", "full"))
    assert CliRunner().invoke(command.doctor, []).exit_code == 1


@pytest.mark.parametrize("status", ["warn", "fail"])
@pytest.mark.parametrize("nodes", [1, 2])
def test_many_checks_to_mend_fit_a_screen_too(monkeypatch, status, nodes):
    """What does not fit is counted in the last line, failures come first, and nothing in a check acts on the terminal."""
    odd = "\x1b[2J[red]wide[/red] " * 6
    rows = [Check(f"area {n}", f"check {n}", "warn", f"{odd}{n}", "mend it " * 10) for n in range(40)]
    rows += [Check("core", f"last {n}", status, f"the last {n}", "") for n in range(9)]
    monkeypatch.setattr(command, "checks", lambda output_dir: rows)
    if nodes > 1:
        pytest.importorskip("ray", reason="ray is not installed")
        monkeypatch.setattr("accelprof.cluster.doctor.checks_on_nodes", lambda *_: {"a": rows, "b": rows})
    result = CliRunner().invoke(command.doctor, ["--nodes"] if nodes > 1 else [])
    lines = result.output.splitlines()
    assert len(lines) <= 24
    assert "\x1b" not in result.output
    assert "checks more with --verbose)" in lines[-1]
    assert len(lines[-1]) < 200
    if status == "fail":
        assert "last 0" in "".join(lines[:8])
        assert "and 4 more" in lines[-1]
    whole = CliRunner().invoke(command.doctor, ["--verbose"]).output
    assert "check 39" in whole
    assert "\\x1b[2J[red]" in whole.replace("\n", "")


def test_nothing_more_is_not_counted(monkeypatch):
    """Where every check is shown, or there is none, nothing is said of more."""
    monkeypatch.setattr(command, "checks", lambda output_dir: [])
    assert "more with" not in CliRunner().invoke(command.doctor, []).output


def test_facts_of_a_backend_stand_beside_its_reason():
    """What a probe found is shown with ``--verbose`` and as JSON; what it does not know is left out."""
    from accelprof.contracts.backend import Probe

    class Mine(RecordingBackend):
        name = "mine"
        aliases = ()

        def probe(self):
            return Probe(100, "2 devices", {"driver": "580.1", "build": None, "devices": [0, 1]})

    with capture(backend=Mine, tool=None, steps=[1]):
        (row,) = [row for row in command.checks("outputs") if row.name == "mine"]
    assert row.detail == "2 devices; driver: 580.1; devices: [0, 1]"


@pytest.mark.parametrize(
    ("priority", "line"),
    [(None, "the CPU is ready; mine"), (-1, "the CPU is ready; mine"), (1, "the CPU is ready; mine"), (10, "the CPU is ready; mine"), (100, "mine is ready")],
)  # fmt: skip
def test_a_backend_without_its_device_is_not_ready(priority, line):
    """A library that is installed, or a tool that records this process, is no device: by the priorities of the contract."""
    from accelprof.catalogue import get_catalogue
    from accelprof.contracts.backend import Probe

    class Mine(RecordingBackend):
        name = "mine"
        aliases = ()

        def probe(self):
            return Probe(priority, "what was found")

    with capture(backend=Mine, tool=None, steps=[1]):
        rows = [row for row in command.checks("outputs") if row.name in ("cpu", "mine")]
    assert command.conclusion(rows).startswith(line)
    assert "mine" not in get_catalogue().backend_names()
