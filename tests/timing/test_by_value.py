"""Classes of a driver's script travel by value: their timers must find the process they arrive in, not the one they left."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from pathlib import Path

import pytest

import accelprof

cloudpickle = pytest.importorskip("ray.cloudpickle", reason="ray is not installed (its cloudpickle is what is tested)")
pytestmark = pytest.mark.ray

SCRIPT = """
import time
import accelprof

class Actor(accelprof.Worker):
    @accelprof.Worker.timer("first")
    def first(self, depth=0):
        time.sleep(0.002)
        return self.first(depth - 1) if depth else None

    @accelprof.Worker.timer("second")
    def second(self):
        time.sleep(0.02)

@accelprof.timer("plain")
def plain():
    return 1
"""

ARRIVAL = """
import json, pickle, sys
import accelprof
from accelprof.testing import capture
Actor, plain = pickle.load(open(sys.argv[1], "rb"))
actor = Actor()
for _ in range(2):
    actor.second()
    actor.first(3)
    plain()
with capture(steps=[1], output_dir=sys.argv[2]) as captured:
    with captured.session.step(1):
        actor.second()
        actor.first()
        plain()
    labels = captured.backend.labels()
print(json.dumps({"stats": actor.timing_stats(), "labels": labels}))
"""


def test_timers_of_a_class_that_came_by_value_count_and_emit_where_they_are(tmp_path: Path) -> None:
    """Each tag has its own times whatever ran first, recursion counts once, and ranges go to the window of that process."""
    module = types.ModuleType("a_script")
    sys.modules["a_script"] = module
    try:
        exec(compile(SCRIPT, "a_script.py", "exec"), module.__dict__)
        for value in (module.Actor, module.plain):
            value.__module__ = "a_script"
        module.plain()
        cloudpickle.register_pickle_by_value(module)
        (tmp_path / "class.pickle").write_bytes(cloudpickle.dumps((module.Actor, module.plain)))
    finally:
        del sys.modules["a_script"]
        accelprof.pop_execution_times()
    arguments = [sys.executable, "-c", ARRIVAL, str(tmp_path / "class.pickle"), str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["stats"]["first"]["count"] == told["stats"]["second"]["count"] == 3
    assert told["stats"]["second"]["min"] >= 0.02
    assert 0.002 <= told["stats"]["first"]["min"] < 0.02
    assert told["labels"] == ["second", "first", "plain"]
