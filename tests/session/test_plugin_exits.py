"""Who ends the process: ``sys.exit`` and panics in code of a plug-in are its failures, a signal is the user's and comes once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import accelprof
from accelprof.catalogue import make_catalogue
from accelprof.errors import ConfigError, PluginError, ReadError, failures
from accelprof.exporters.host import Exporters
from accelprof.testing import RecordingBackend, RecordingTool, capture


class Panic(BaseException):
    """What a Rust extension raises."""


def outcome(call: Callable[[], Any]) -> str:
    try:
        try:
            call()
        except failures() as error:
            return f"failure {type(error).__name__}"
    except BaseException as error:
        return f"user's {type(error).__name__}"
    return "nothing"


def raising(error: BaseException) -> Any:
    def call(*_: Any, **__: Any) -> Any:
        raise error

    return call


class Handler:
    def __call__(self, number: int, frame: Any) -> None:
        sys.exit(7)

    def method(self, number: int, frame: Any) -> None:
        raise TimeoutError("the user's watchdog")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("x"), "failure ValueError"),
        (SystemExit(3), "failure SystemExit"),
        (Panic(), "failure Panic"),
        (GeneratorExit(), "failure GeneratorExit"),
        (KeyboardInterrupt(), "user's KeyboardInterrupt"),
    ],
)
def test_whose_exception_it_is(error: BaseException, said: str) -> None:
    """Everything but an interrupt is the failure of the code that raised it."""
    assert outcome(raising(error)) == said


@pytest.mark.parametrize(
    "handler", [Handler(), lambda number, frame: sys.exit(7), partial(lambda code, *_: sys.exit(code), 7)]
)
def test_what_a_handler_raises_is_the_users(handler: Any) -> None:
    """A signal that comes while a plug-in's code runs ends the process as its handler says, whatever kind of callable it is."""
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        assert outcome(lambda: (signal.raise_signal(signal.SIGUSR1), len(range(9)))) == "user's SystemExit"
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("error", [SystemExit(3), Panic()], ids=["sys.exit", "panic"])
@pytest.mark.parametrize("method", ["open", "close", "step", "finalise", "emitter", "stop"])
def test_a_tool_that_ends_the_process_is_said(method: str, error: BaseException) -> None:
    """Training goes on, the next tool and window are delivered, and the tool is named with what it raised."""

    class Ending(RecordingTool):
        name = "ending"

    setattr(Ending, method, raising(error))
    with capture(tool="ending", tools=(Ending,), steps=[1, 2], merge_steps=method == "step") as run:
        for number in (1, 2, 3):
            with run.session.step(number):
                pass
        report = run.session.close()
    assert type(error).__name__ in "\n".join(report["problems"])
    traces = [row for row in report["journal"] if row["kind"] == "artifact" and row["tool"] == "trace"]
    assert len(traces) == (1 if method == "step" else 2)


def test_files_written_behind_training() -> None:
    """What a tool raises on the writing thread, an interrupt too, is said; the session does not wait for ever."""

    class Later(RecordingTool):
        name = "later"

        def stop(self, window: Any) -> Any:
            return raising(KeyboardInterrupt() if window.sequence == 1 else SystemExit(1))

    with capture(tool="later", tools=(Later,), steps=[1, 2]) as run:
        for number in (1, 2, 3):
            with run.session.step(number):
                pass
        said = "\n".join(run.session.close()["problems"])
    assert "KeyboardInterrupt" in said
    assert "SystemExit: 1" in said


@pytest.mark.parametrize(
    "method", ["probe", "bind", "push", "pop", "step_begin", "synchronize", "devices", "mark", "device_timer"]
)
def test_a_backend_that_ends_the_process_is_said(method: str) -> None:
    """The user's function runs, once; the backend is named."""

    class Ending(RecordingBackend):
        name = "ending"
        aliases = ()

    setattr(Ending, method, raising(SystemExit(3)))
    ran = []

    class Actor(accelprof.Worker):
        @accelprof.Worker.timer("work", device=True)
        def device(self) -> None:
            ran.append(2)

        @accelprof.Worker.timer("plain")
        def plain(self) -> None:
            ran.append(1)

    if method == "probe":
        from accelprof.contracts.answers import probe_of

        assert "SystemExit: 3" in probe_of(Ending()).reason
        return
    with capture(backend=Ending, steps=[1]) as run:
        with run.session.step(1):
            Actor().plain()
            Actor().device()
            accelprof.mark("here")
        problems = run.session.close()["problems"]
    assert ran == [1, 2]
    if method != "devices":  # what a machine has is only unknown then
        assert "SystemExit: 3" in "\n".join(problems)


def test_a_later_open_that_is_interrupted_stops_the_earlier_ones() -> None:
    """Nothing goes on recording behind a window that never opened."""
    calls: list[str] = []

    class First(RecordingTool):
        name = "first"

        def open(self, window: Any) -> None:
            calls.append("open")

        def close(self, window: Any) -> Any:
            calls.append("close")
            return []

    class Second(First):
        name = "second"
        open = raising(KeyboardInterrupt())

    with capture(tool="first", tools=(First, Second), steps=[1]) as run:
        second = Second()
        run.session.tools.append(second)
        with pytest.raises(KeyboardInterrupt):
            run.session.begin_step(1)
        assert calls == ["open", "close"]
        assert run.session.window is None


def test_an_interrupt_while_the_run_is_written_comes_once_behind_it(tmp_path: Any) -> None:
    """SIGINT in the middle of a tool's close at the end: manifest and files are whole, then the interrupt is raised, once."""

    class Slow(RecordingTool):
        name = "slow"

        def close(self, window: Any) -> Any:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            return super().close(window)

    came = []
    before = signal.signal(
        signal.SIGINT, lambda number, frame: (came.append(number), signal.default_int_handler(number, frame))
    )
    try:
        with capture(tool="slow", tools=(Slow,), steps=[1], directory=str(tmp_path)) as run:
            run.session.begin_step(1)
            with pytest.raises(KeyboardInterrupt):
                run.session.close()
            assert (tmp_path / os.path.basename(run.run_dir) / "manifest.json").exists()
            assert came == [signal.SIGINT]
            assert run.session.closed
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def registered() -> Any:
    """A catalogue of its own with whatever is handed in."""
    catalogue = make_catalogue()

    def register(**answers: Any) -> Any:
        hooks = {
            f"accelprof_{kind}": accelprof.hookimpl(lambda found=found: [found], specname=f"accelprof_{kind}")
            for kind, found in answers.items()
        }
        catalogue.register(SimpleNamespace(**hooks), "ending")
        return catalogue

    return register


def test_constructors(registered: Any) -> None:
    """A backend, tool or exporter whose constructor ends the process is refused by name."""

    class Back(RecordingBackend):
        name = "back"
        aliases = ()
        __init__ = raising(SystemExit(3))

    class Tooling(RecordingTool):
        name = "tooling"
        __init__ = raising(SystemExit(4))

    catalogue = registered(backends=Back, tools=Tooling)
    assert "SystemExit: 3" in catalogue.probe("back").reason
    with pytest.raises((ConfigError, PluginError), match="tooling.*SystemExit: 4"):
        catalogue.make_tool("tooling")


def test_a_reader_that_ends_the_process_is_named(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """``read`` and ``can_read`` that call ``sys.exit`` leave the file named, and the command goes on."""
    from accelprof.analysis.reading import read_any

    path = tmp_path / "x.ending"
    path.write_text("no trace")

    class Reader(RecordingTool):
        name = "reader"
        can_read = classmethod(lambda cls, path: path.endswith(".ending"))
        read = raising(SystemExit(5))

    with capture(tool="reader", tools=(Reader,)), pytest.raises(ReadError, match="'reader' failed: SystemExit: 5"):
        read_any(path)


def test_an_exporter_that_ends_the_process_is_left_out() -> None:
    """It is said with its name; the thread of the exporters lives on and ends in order."""
    said: list[str] = []
    bad = SimpleNamespace(
        name="bad", start=raising(SystemExit(6)), step=print, finish=print, close=raising(SystemExit(7))
    )
    ends: list[str] = []
    good = SimpleNamespace(
        name="good",
        start=lambda run: None,
        step=print,
        finish=lambda *_: ends.append("finish"),
        close=lambda: ends.append("close"),
    )
    host = Exporters([bad, good], None, said.append)  # type: ignore[list-item, arg-type]
    host.finish({}, "", timeout=20)
    assert ends == ["finish", "close"]
    assert said == ["export: bad is left out from here on: start: SystemExit: 6"]
