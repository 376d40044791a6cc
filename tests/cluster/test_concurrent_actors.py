"""Threaded and async actors: control calls run on other threads than the work, and the work's operators are in the trace."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from accelprof import Worker, hookimpl, register, unregister
from accelprof.contracts.targets import ArtifactFile, WindowInfo
from accelprof.contracts.tool import Tool

torch = pytest.importorskip("torch", reason="torch is not installed")
ray = pytest.importorskip("ray", reason="ray is not installed")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.torch,
    pytest.mark.second_try("a cluster of processes starts and ends on a machine that may be busy"),
]
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Threaded(Worker):
    """Works on whichever of its threads Ray picks."""

    @Worker.timer("actor/update")
    def update(self, size: int) -> int:
        import torch

        weight = torch.ones(size, size)
        for _ in range(20):
            weight = torch.linalg.matrix_norm(weight @ weight) * weight / (size * size)
        return threading.get_ident()

    def ready(self) -> bool:
        import torch

        torch.ones(2) @ torch.ones(2)
        return True


class Async(Worker):
    """An async server that hands its work to a thread."""

    @Worker.timer("actor/serve")
    async def serve(self, size: int) -> int:
        return await asyncio.to_thread(self.work, size)

    @Worker.timer("actor/update")
    def work(self, size: int) -> int:
        return Threaded.update.__wrapped__(self, size)  # type: ignore[attr-defined, no-any-return]

    async def ready(self) -> bool:
        return True


class ThreadBound(Tool):
    """A profiler that must start and stop on the thread that works, as some vendors' do: it writes down where it was."""

    name: ClassVar[str] = "threadbound"
    thread: str = "starter"

    def trigger(self, target: Any) -> str:
        return "in_process"

    def open(self, window: WindowInfo) -> None:
        self.opened = threading.get_ident()

    def close(self, window: WindowInfo) -> list[ArtifactFile]:
        path = window.stem + ".threads.json"
        Path(path).write_text(json.dumps([self.opened, threading.get_ident()]))
        return [ArtifactFile(path, self.name, (window.id,), 1)]


def plugin() -> SimpleNamespace:
    return SimpleNamespace(accelprof_tools=hookimpl(lambda: [ThreadBound], specname="accelprof_tools"))


class Bound(Threaded):
    def __init__(self) -> None:
        register(plugin(), "threadbound")


class BoundAsync(Async):
    def __init__(self) -> None:
        register(plugin(), "threadbound")


def run(cls: type, tool: str, tmp_path: Path, method: str, **options: Any) -> tuple[Any, dict[str, Any], list[int]]:
    from accelprof.cluster import Controller

    actor = ray.remote(num_cpus=0, **options)(cls).remote()
    assert ray.get(actor.ready.remote())
    ctl = Controller(steps=[1, 3], tool=tool, output_dir=str(tmp_path))
    ctl.attach("Actors", actor)
    threads: list[int] = []
    for step in range(4):
        with ctl.step(step):
            threads += ray.get([getattr(actor, method).remote(8 + step) for _ in range(3)])
    manifest = ctl.close()
    ray.kill(actor)
    return ctl, manifest, threads


def operators(ctl: Any, manifest: dict[str, Any]) -> list[Sequence[str]]:
    found = []
    for artifact in manifest["artifacts"]:
        if artifact["tool"] == "torch":
            data = json.loads(gzip.decompress(Path(ctl.run_dir, artifact["path"]).read_bytes()))
            found.append([str(event.get("name")) for event in data["traceEvents"]])
    return found


@pytest.mark.parametrize(
    ("cls", "method", "options"),
    [(Threaded, "update", {"max_concurrency": 4}), (Async, "serve", {})],
    ids=["threaded", "async with to_thread"],
)
def test_each_window_holds_the_operators_of_its_own_step(
    ray_cluster: Any, tmp_path: Path, cls: type, method: str, options: dict[str, Any]
) -> None:
    """Both windows of torch.profiler are full: 60 products each, on the threads that worked, with the phase around them."""
    ctl, manifest, _ = run(cls, "torch", tmp_path, method, **options)
    assert manifest["status"] == "complete"
    traces = operators(ctl, manifest)
    assert len(traces) == 2
    for names in traces:
        assert names.count("aten::mm") == 60
        assert names.count("actor/update") == 3


@pytest.mark.parametrize(
    ("cls", "method", "options"),
    [(Bound, "update", {"max_concurrency": 4}), (BoundAsync, "serve", {})],
    ids=["threaded", "async with to_thread"],
)
def test_a_thread_bound_tool_starts_and_stops_where_the_work_is(
    ray_cluster: Any, tmp_path: Path, cls: type, method: str, options: dict[str, Any]
) -> None:
    """Every window of such a tool opened and closed on one thread, the one that ran a phase, never the announcing one."""
    register(plugin(), "threadbound")
    try:
        ctl, manifest, threads = run(cls, "threadbound", tmp_path, method, **options)
    finally:
        unregister("threadbound")
    files = [artifact for artifact in manifest["artifacts"] if artifact["tool"] == "threadbound"]
    assert {step for window in manifest["windows"] for step in window["steps"]} == {1, 3}
    assert files
    for artifact in files:
        opened, closed = json.loads(Path(ctl.run_dir, artifact["path"]).read_text())
        assert opened == closed
        assert opened in threads
