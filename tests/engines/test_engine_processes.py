"""Engine processes that inherit the environment join the run: stand-ins with the engines' own dotted names, real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from accelprof.output.manifest import read_journals
from accelprof.testing import capture

WORKER = """
class Worker:
    def __init__(self, rank): self.rank = rank
    def execute_model(self, batch): return batch + 1
"""
SERVER = """
import multiprocessing, sys

def serve(rank, plugins):
    if plugins:  # as vllm.plugins.load_general_plugins does, in every process of the engine
        from importlib.metadata import entry_points
        for entry in entry_points(group="vllm.general_plugins"):
            entry.load()()
            entry.load()()
    from vllm.v1.worker.gpu_worker import Worker
    worker = Worker(rank)
    for batch in range(80):
        assert worker.execute_model(batch) == batch + 1

def scheduler():
    pass  # a process of the engine that runs no model

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    plugins = sys.argv[1] == "plugins"
    children = [context.Process(target=serve, args=(rank, plugins)) for rank in range(2)]
    children.append(context.Process(target=scheduler))
    for child in children: child.start()
    for child in children: child.join()
    sys.exit(max(child.exitcode for child in children))
"""


def stand_in(directory, package, version, modules):
    """A package of the engine's name and release below ``directory``."""
    for dotted, source in modules.items():
        path = directory.joinpath(*dotted.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        for parent in path.parents:
            if parent == directory:
                break
            (parent / "__init__.py").touch()
        path.write_text(textwrap.dedent(source))
    info = directory / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")


def windows_of(run_dir):
    """``{key of the process: its windows}`` and the problems of all."""
    windows, targets, problems = {}, {}, []
    for journal in read_journals(run_dir):
        for record in journal:
            if record["kind"] == "window":
                windows.setdefault(record["target"], {})[record["id"]] = record
            elif record["kind"] == "target":
                targets[record["key"]] = record
            elif record["kind"] == "problem":
                problems.append(record["message"])
    return {key: list(rows.values()) for key, rows in windows.items()}, targets, problems


@pytest.mark.parametrize("way", ["plugins", "startup"])
def test_vllm_workers_in_spawned_processes(tmp_path, monkeypatch, way):
    """Decode steps 30-59 of tensor-parallel rank 0, whose process was spawned by the engine; other ranks stay as they are."""
    stand_in(tmp_path, "vllm", "0.33.0", {"vllm.v1.worker.gpu_worker": WORKER})
    (tmp_path / "server.py").write_text(SERVER)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    schedule = {"phase": "rollout/decode_step", "wait": 29, "warmup": 1, "active": 30}
    with capture(
        tool=None,
        presets=["vllm.decode_step"],
        schedule=schedule,
        identity={"group": "RolloutGroup", "role": "rollout"},
    ) as run:
        if way == "plugins":  # the entry points alone: start-up modules may be switched off with -I or -S
            monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        else:
            assert "startup" in os.environ["PYTHONPATH"]
        done = subprocess.run(
            [sys.executable, str(tmp_path / "server.py"), way], capture_output=True, text=True, timeout=200, check=False
        )
        assert done.returncode == 0, done.stderr
        windows, targets, _ = windows_of(run.run_dir)
        [(key, [window])] = windows.items()
        assert window["schedule"] == {
            "phase": "rollout/decode_step", "first": 30, "calls": 30, "planned": 30, "partial": False,
        }  # fmt: skip
        assert window["closed"] is not None
        assert targets[key]["group"] == "RolloutGroup"
        assert targets[key]["pid"] != os.getpid()
        assert len(targets) == 2, "the worker that started the engine, and the rank that was selected; nobody else"
        assert len(list(Path(run.run_dir).rglob("*.trace.json.gz"))) == 1
    assert "ACCELPROF_RUN" not in os.environ
    assert os.environ["PYTHONPATH"] == str(tmp_path)


def test_a_child_that_uses_nothing_is_left_alone(tmp_path):
    """A process that inherits the environment and imports no instrumented module loads nothing of accelprof."""
    with capture(steps=[1], instrument=[{"target": "wave:open", "required": False}]) as run:
        code = "import sys, json; print(json.dumps(sorted(m for m in sys.modules if m.startswith(('accelprof', 'wrapt')))))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        loaded = [name for name in json.loads(done.stdout) if "cuda" not in name]
        assert loaded == []
        assert done.stderr == ""
        assert len(windows_of(run.run_dir)[1]) == 1


def test_the_other_sitecustomize_still_runs(tmp_path, monkeypatch):
    """The start-up module stands before another of its name, which runs as it would have."""
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs = 'ran'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with capture(steps=[1], instrument=[{"target": "wave:open", "required": False}]):
        code = "import sys, sitecustomize; print(theirs, sitecustomize.__file__)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.split() == ["ran", str(tmp_path / "sitecustomize.py")]


def test_install_without_a_run_does_nothing(monkeypatch):
    """Engines call the entry point in every process; without our environment it returns at once."""
    from accelprof.session import children
    from accelprof.session.joining import install

    monkeypatch.delenv("ACCELPROF_RUN", raising=False)
    install()
    assert children.watching is None


def test_a_run_that_is_gone_is_said_once(monkeypatch, caplog, tmp_path):
    """An engine starts although the run's directory is not there; that is said, once."""
    from accelprof.session import children
    from accelprof.session.joining import install

    monkeypatch.setenv("ACCELPROF_RUN", str(tmp_path / "gone"))
    monkeypatch.setenv("ACCELPROF_PARENT", json.dumps({"group": "G"}))
    try:
        install()
        install()
        texts = [record.getMessage() for record in caplog.records]
        assert len([text for text in texts if "cannot be put into this process" in text]) == 1
    finally:
        children.forget()


def test_engine_ranks_of_the_configuration():
    """``engines.<engine>.ranks`` chooses ranks within the engine, under its package or distribution name; else rank 0."""
    from accelprof.config.model import Config
    from accelprof.session.instrument import rank_fits
    from accelprof.session.joining import engine_ranks

    config = Config(engines={"vllm": {"ranks": "0-1"}, "vllm-ascend": {"ranks": "all"}})
    assert [rank_fits(engine_ranks(config, "vllm.v1.worker"), rank) for rank in (0, 1, 2, None)] == [
        True,
        True,
        False,
        False,
    ]
    assert rank_fits(engine_ranks(config, "vllm_ascend.worker"), 7)
    assert engine_ranks(config, "sglang.srt") == 0


def test_preset_of_a_package_that_is_not_installed():
    """A preset whose framework is not there is said in the process that asked for it."""
    with capture(steps=[1], presets=["sglang.batch"]) as run:
        assert "preset sglang.batch: sglang is not installed here" in run.session.problems


def test_preset_of_a_release_the_table_does_not_know(tmp_path, monkeypatch):
    """A release outside the table is named, with what the table knows and what to do instead."""
    stand_in(tmp_path, "sglang", "0.3.0", {"sglang.srt.managers.scheduler": "class Scheduler: ...\n"})
    monkeypatch.syspath_prepend(str(tmp_path))
    with capture(steps=[1], presets=["sglang.batch"]) as run:
        [text] = [text for text in run.session.problems if "sglang" in text]
        assert "it knows sglang >=0.4.6, but 0.3.0 is installed; name the method under instrument" in text
