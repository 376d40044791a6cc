"""NeMo-RL's variables as a plan: both or neither, patterns of workers, a range whose end is exclusive, options that win."""

from __future__ import annotations

import fnmatch
import importlib.metadata
import json

import pytest

from accelprof.catalogue import make_catalogue
from accelprof.compat.nemo_rl import first_step
from accelprof.config.dialects import BUILTIN
from accelprof.config.load import load_config
from accelprof.contracts.targets import Target
from accelprof.errors import ConfigError
from tests.planning.plans import make_plan

BOTH = {"NRL_NSYS_WORKER_PATTERNS": "dtensor_policy_worker,vllm*", "NRL_NSYS_PROFILE_STEP_RANGE": "2:4"}


def load(variables):
    return load_config({"PATH": "/bin", "HOME": "${not ours}", **variables}, dialects=BUILTIN)


def test_patterns_and_range():
    """Workers whose name fits a pattern have one capture of the steps from start to before stop; nobody else is profiled."""
    pytest.importorskip("accelprof_cuda", reason="accelprof-cuda is not installed")
    loaded = load(BOTH)
    assert loaded.dialect == "nemo_rl"
    plan = make_catalogue().plan(loaded.config)
    for name in ("dtensor_policy_worker", "vllm_generation_worker"):
        row = plan.assign(Target(name, (), 3, 8))
        assert (row.tool, list(row.windows), row.count.exact) == ("nsys", [(2, 3)], 1)
        assert row.options["trace"] == "cuda,nvtx"
    assert not plan.assign(Target("megatron_policy_worker", (), 0)).selected


@pytest.mark.parametrize(
    ("version", "reads", "trace", "notes"),
    [
        ("0.3.0", None, "cuda,cudnn,cublas,nvtx", (0, 1)),
        ("0.5.0rc0", None, "cuda,cudnn,cublas,nvtx", (0, 1)),
        ("0.6.0", None, "cuda,nvtx", (1, 0)),
        (None, None, "cuda,nvtx", (1, 0)),
        ("0.6.0", False, "cuda,cudnn,cublas,nvtx", (0, 1)),
        ("0.6.0", True, "cuda,nvtx", (0, 0)),
        (None, False, "cuda,cudnn,cublas,nvtx", (0, 1)),
        ("0.5.0", True, "cuda,nvtx", (0, 0)),
    ],
)
def test_defaults_are_those_of_what_is_installed(version, reads, trace, notes, monkeypatch, tmp_path):
    """A NeMo-RL without the variable for extra options traces cuDNN and cuBLAS too and leaves sampling to nsys: by its source, which
    is not imported, or by the release; where neither says, a note says both. With the variable given where nothing reads it, too."""

    def installed(name):
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", installed)
    if reads is not None:
        (tmp_path / "nemo_rl" / "distributed").mkdir(parents=True)
        (tmp_path / "nemo_rl" / "__init__.py").write_text("raise RuntimeError('imported')")
        variable = "NRL_NSYS_EXTRA_OPTIONS" if reads else "NRL_NSYS_WORKER_PATTERNS"
        (tmp_path / "nemo_rl" / "distributed" / "worker_group_utils.py").write_text(
            f"import os\nos.environ.get('{variable}')\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
    for given, count in zip(({}, {"NRL_NSYS_EXTRA_OPTIONS": "{}"}), notes, strict=True):
        loaded = load({**BOTH, **given})
        options = loaded.config.tools["nsys"]
        assert (options["trace"], options.get("sample")) == (trace, "none" if trace == "cuda,nvtx" else None)
        said = [note.text for note in loaded.notes if note.path == "NRL_NSYS_EXTRA_OPTIONS"]
        assert len(said) == count
        assert given or all("cuda,cudnn,cublas,nvtx" in text for text in said)


def test_options_of_the_user_win():
    """Extra options win over NeMo-RL's own, in short and long spelling; what the plan decides is left out with a note."""
    loaded = load(
        {
            **BOTH,
            "NRL_NSYS_EXTRA_OPTIONS": '{"t": "cuda", "cuda-graph-trace": "graph", "capture-range-end": "stop", "o": "x"}',
        }
    )
    assert loaded.config.tools["nsys"] == {
        "trace": "cuda", "stop-on-exit": "true", "sample": "none", "cuda-graph-trace": "graph",
    }  # fmt: skip
    assert {note.path.rpartition(".")[2] for note in loaded.notes if note.kind == "changed"} == {
        "capture-range-end",
        "o",
    }


@pytest.mark.parametrize(
    ("text", "steps"),
    [("+2:4", [2, 3]), (" 2 : 4 ", [2, 3]), ("02:+4", [2, 3]), ("1_0:1_1", [10]), ("\u0662:\u0664", [2, 3])],
)
def test_numbers_as_int_reads_them(text, steps, monkeypatch):
    """Signs, spaces, underscores and the digits of other scripts are read as NeMo-RL's ``int`` does, in the worker too."""
    loaded = load({**BOTH, "NRL_NSYS_PROFILE_STEP_RANGE": text})
    assert (list(loaded.config.steps), loaded.config.merge_steps) == (steps, True)
    monkeypatch.setenv("NRL_NSYS_PROFILE_STEP_RANGE", text)
    assert first_step() == steps[0]


@pytest.mark.parametrize(
    "pattern", ["policy", "Policy", "pol*", "Pol*", "[pP]olicy", "p?licy", "[!P]*", "_1", "_b", "\u00e4", "1", "all"]
)
def test_patterns_match_as_fnmatch_does(pattern):
    """Whom a pattern names is whom ``fnmatch`` finds on Linux: case counts, in a plain name too."""
    made = make_plan(load({**BOTH, "NRL_NSYS_WORKER_PATTERNS": pattern}).config)
    for name in ("policy", "Policy", "POLICY", "_1", "_b", "_B", "\u00e4", "\u00c4", "1", "all", "All", "vllm"):
        assert made.assign(Target(name, (), 0)).selected == fnmatch.fnmatchcase(name, pattern), name


@pytest.mark.parametrize("key", ["t", "trace", "stats"])
def test_options_are_named_as_they_were_written(key):
    """What is wrong with an option is said by the user's own spelling of it."""
    pytest.importorskip("accelprof_cuda", reason="accelprof-cuda is not installed")
    loaded = load({**BOTH, "NRL_NSYS_EXTRA_OPTIONS": json.dumps({key: "cuda"})})
    assert loaded.sources[f"tools.nsys.{'trace' if key == 't' else key}"] == f"NRL_NSYS_EXTRA_OPTIONS.{key}"
    if key != "stats":
        with pytest.raises(ConfigError, match=rf"NRL_NSYS_EXTRA_OPTIONS\.{key}: "):
            make_catalogue().plan(loaded.config).preview()


def test_empty_is_off():
    """Empty variables profile nobody, as NeMo-RL reads them."""
    assert not load({"NRL_NSYS_WORKER_PATTERNS": "", "NRL_NSYS_PROFILE_STEP_RANGE": ""}).config.enabled


@pytest.mark.parametrize(
    ("change", "path", "says"),
    [
        ({"NRL_NSYS_PROFILE_STEP_RANGE": ""}, "NRL_NSYS_PROFILE_STEP_RANGE", "must be given too"),
        ({"NRL_NSYS_WORKER_PATTERNS": " , "}, "NRL_NSYS_WORKER_PATTERNS", "must be given too"),
        ({"NRL_NSYS_PROFILE_STEP_RANGE": "3"}, "NRL_NSYS_PROFILE_STEP_RANGE", "start:stop"),
        ({"NRL_NSYS_PROFILE_STEP_RANGE": "3:3"}, "NRL_NSYS_PROFILE_STEP_RANGE", "Mend: 3:4"),
        ({"NRL_NSYS_PROFILE_STEP_RANGE": "0:3"}, "NRL_NSYS_PROFILE_STEP_RANGE", "the first step is 1"),
        ({"NRL_NSYS_PROFILE_STEP_RANGE": "-2:3"}, "NRL_NSYS_PROFILE_STEP_RANGE", "Mend: 1:3"),
        ({"NRL_NSYS_PROFILE_STEP_RANGE": "5:2"}, "NRL_NSYS_PROFILE_STEP_RANGE", "Mend: 5:6"),
        ({"NRL_NSYS_PROFILE_STEP_RANGE": "1:2:3"}, "NRL_NSYS_PROFILE_STEP_RANGE", "start:stop"),
        ({"NRL_NSYS_PROFILE_STEP_RANGE": ":3"}, "NRL_NSYS_PROFILE_STEP_RANGE", "start:stop"),
        ({"NRL_NSYS_PROFILE_STEP_RANGE": "2.0:3"}, "NRL_NSYS_PROFILE_STEP_RANGE", "start:stop"),
        ({"NRL_NSYS_PROFILE_STEP_RANGE": "²:3"}, "NRL_NSYS_PROFILE_STEP_RANGE", "start:stop"),
        ({"NRL_NSYS_PROFILE_STEP_RANGE": f"1:{10**30}"}, "NRL_NSYS_PROFILE_STEP_RANGE", "numbers up to"),
        ({"NRL_NSYS_PROFILE_STEP_RANGE": "1:" + "9" * 5000}, "NRL_NSYS_PROFILE_STEP_RANGE", "numbers up to"),
        ({"NRL_NSYS_EXTRA_OPTIONS": "{"}, "NRL_NSYS_EXTRA_OPTIONS", "not JSON"),
        ({"NRL_NSYS_EXTRA_OPTIONS": "[1]"}, "NRL_NSYS_EXTRA_OPTIONS", "no JSON object (got '[1]')"),
        ({"NRL_NSYS_EXTRA_OPTIONS": "null"}, "NRL_NSYS_EXTRA_OPTIONS", "no JSON object (got 'null')"),
        ({"NRL_NSYS_WORKER_PATTERN": "x"}, "NRL_NSYS_WORKER_PATTERN", "did you mean 'NRL_NSYS_WORKER_PATTERNS'"),
    ],
)  # fmt: skip
def test_what_is_refused(change, path, says):
    """One variable without the other, a range that is none or empty, options that are no JSON object, a misspelt name."""
    with pytest.raises(ConfigError) as caught:
        load({**BOTH, **change})
    assert says in {problem.path: str(problem) for problem in caught.value.problems}[path]
