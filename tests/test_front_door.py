"""The front door: importing is light and quick, names are listed, attributes come lazily."""

from __future__ import annotations

import resource
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import accelprof

HEAVY = (
    "torch",
    "ray",
    "pydantic",
    "pluggy",
    "yaml",
    "numpy",
    "rich",
    "click",
    "nvtx",
    "torch_npu",
    "roctx",
    "asyncio",
)


def test_importing_loads_no_heavy_module():
    """``import accelprof`` imports the standard library only, and not asyncio."""
    code = f"import sys, accelprof; print([name for name in {HEAVY!r} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.strip() == "[]"


def test_importing_loads_little_of_the_standard_library():
    """Nothing of it that takes longer to import than accelprof itself does: not typing, and with it no expressions and enums."""
    code = f"import sys; sys.path.insert(0, {str(Path(accelprof.__file__).parents[1])!r}); import accelprof; print(sorted({{'typing', 're', 'enum', 'inspect'}} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.strip() == "[]"


def test_importing_is_quick():
    """Importing takes less than 60 ms of processor time more than the bare interpreter, and where the machine is slow less than 2.5
    times what a few modules of the standard library take (best of seven, interleaved)."""

    def seconds(code):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    bare, standard, ours = [], [], []
    for _ in range(7):
        bare.append(seconds("pass"))
        standard.append(seconds("import json, logging, dataclasses"))
        ours.append(seconds("import accelprof"))
    least = min(bare)
    assert min(ours) - least < max(0.060, 2.5 * (min(standard) - least))


def test_timing_works_without_a_session():
    """With nothing configured and no plug-in loaded, timers time and nothing else is imported."""
    code = (
        "import sys, accelprof\n"
        "class A(accelprof.Worker):\n"
        "    @accelprof.Worker.timer('a')\n"
        "    def a(self):\n"
        "        with accelprof.profiling_range('r'): accelprof.mark('m')\n"
        "worker = A(); worker.a()\n"
        "assert list(worker.pop_execution_times()) == ['a']\n"
        "assert 'pluggy' not in sys.modules and 'pydantic' not in sys.modules\n"
        "assert accelprof.current_session() is None"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_reading_a_file_makes_no_model_of_the_configuration(tmp_path):
    """They take a tenth of a second to make, and a file is read without any."""
    path = tmp_path / "x.json"
    path.write_text('{"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}')
    code = (
        "import sys\nfrom accelprof.analysis.reading import read_any\n"
        "assert len(read_any(sys.argv[1], 'torch')) == 1\nassert 'accelprof.config.model' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=60)


def test_hints_of_public_names_can_be_asked_for():
    """Although importing loads no typing."""
    for told in (accelprof.timer, accelprof.profiling_range, accelprof.configure, accelprof.Worker.timer):
        assert "return" in typing.get_type_hints(told)


def test_all_is_sorted_and_complete():
    """``__all__`` is sorted, and every name in it can be had."""
    assert accelprof.__all__ == sorted(accelprof.__all__)
    for name in accelprof.__all__:
        assert getattr(accelprof, name) is not None
    assert set(dir(accelprof)) == set(accelprof.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        accelprof.no_such_name  # noqa: B018
