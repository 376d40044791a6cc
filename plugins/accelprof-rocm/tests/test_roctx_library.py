"""Which ROCTX library wins, and how its functions are called: over recording libraries and under AMD's real bindings."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accelprof_rocm import roctx
from accelprof_rocm.backend import RocmBackend

from accelprof.contracts.backend import RangeSpec
from accelprof.texts import PLAIN_C_TEXT, encodable, unquoted

SHOW = "from accelprof_rocm import roctx; found = roctx.find({legacy}); print(found.source, found.path)"


def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A fresh process: a preload and the bindings' cached path are per process."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def both(compiled: Callable[..., Path], tmp_path: Path) -> Path:
    """A ROCm directory with the SDK's library and roctracer's."""
    root = tmp_path / "rocm" / "lib"
    root.mkdir(parents=True)
    for made, name in (
        (compiled("librocprofiler-sdk-roctx.so.1", "-DSDK"), "librocprofiler-sdk-roctx.so.1"),
        (compiled("libroctx64.so.4"), "libroctx64.so.4"),
    ):
        (root / name).symlink_to(made / "lib" / name)
    return root.parent


def test_the_sdks_library_comes_before_roctracers(both: Path) -> None:
    """With both installed and no tool, the one that current tools listen to is taken."""
    done = run(SHOW.format(legacy=False), ROCM_PATH=str(both))
    assert done.stdout.split() == ["sdk", str(both / "lib/librocprofiler-sdk-roctx.so.1")], done.stderr


def test_roctracers_library_comes_first_under_tools_up_to_6_3(both: Path) -> None:
    """Those tools listen nowhere else."""
    done = run(SHOW.format(legacy=True), ROCM_PATH=str(both))
    assert done.stdout.split()[0] == "roctx64", done.stderr


def test_omnitraces_environment_makes_it_a_legacy_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """omnitrace can be told from its settings alone."""
    assert not roctx.legacy_tool()
    monkeypatch.setenv("OMNITRACE_TRACE", "true")
    assert roctx.legacy_tool()


def test_a_preloaded_library_wins(both: Path) -> None:
    """A tool that was preloaded is heard only through the process's own symbols, pause and resume included."""
    preload = str(both / "lib/librocprofiler-sdk-roctx.so.1")
    done = run(SHOW.format(legacy=False) + "; print(found.resume(0))", ROCM_PATH=str(both), LD_PRELOAD=preload)
    assert done.stdout.split() == ["process", preload, "0"], done.stderr


@pytest.mark.parametrize("source", ["sdk", "roctx64", "process", "bindings", "module", "nonsense"])
def test_a_source_can_be_selected(both: Path, source: str) -> None:
    """ACCELPROF_ROCTX has only that one looked at; what it does not find is said with its reason."""
    done = run(SHOW.format(legacy=False), ROCM_PATH=str(both), ACCELPROF_ROCTX=source)
    if source in ("sdk", "roctx64"):
        assert done.stdout.split()[0] == source, done.stderr
    else:
        assert source in done.stderr
        assert "NotFoundError" in done.stderr


#: the probe's reason on a machine without AMD's bindings; a process of its own, for a library stays loaded
PROBE = """
    import sys
    from accelprof_rocm import vendor
    from accelprof_rocm.backend import RocmBackend
    vendor.DEFAULT_ROOT = "/nonexistent"
    sys.modules["rocm.bindings.roctx"] = None
    print(RocmBackend().probe())
"""


def test_without_a_library_the_probe_says_what_was_tried() -> None:
    """A machine without ROCTX: unavailable with the reason, and no crash."""
    done = run(PROBE)
    assert "Probe(priority=None" in done.stdout, done.stderr
    assert "unavailable: no ROCTX library; tried process: no roctx symbols; sdk:" in done.stdout


def test_a_library_with_push_only_is_refused(compiled: Callable[..., Path]) -> None:
    """A library without pop and mark is named with what it lacks; no range is half emitted."""
    root = compiled("libroctx64.so.4", "-DPUSH_ONLY")
    done = run(PROBE, ROCM_PATH=str(root))
    assert "Probe(priority=None" in done.stdout, done.stderr
    assert f"{root}/lib/libroctx64.so.4 has no roctxMarkA, roctxRangePop" in done.stdout


def test_a_library_without_pause_says_that_the_gate_cannot_open(compiled: Callable[..., Path], use: Any) -> None:
    """roctracer's library cannot pause; the trigger call raises in place of a silent success."""
    use(compiled("libroctx64.so.4"))
    backend = RocmBackend()
    with pytest.raises(Exception, match="cannot pause and resume"):
        backend.capture_start()
    backend.capture_stop()


@pytest.mark.parametrize(
    "label", ["actor/update", "päth/ü", "", "a\0b", "a\\0b", "new\nline", 'a "b", c\\', "50 %%", "x" * 5000, "\udcff"]
)
def test_every_label_reaches_the_library_whole(compiled: Callable[..., Path], use: Any, label: str) -> None:
    """Text of any kind is passed as UTF-8, and readers give it back; nothing is in it where C or a tool's CSV would end it."""
    calls = use(compiled("libroctx64.so.4"))
    backend = RocmBackend()
    backend.push(RangeSpec(label))
    backend.pop(RangeSpec(label))
    [push, pop] = calls()
    assert not PLAIN_C_TEXT.search(push.message)
    assert unquoted(push.message) == encodable(label)
    assert (push.kind, pop.kind) == ("push", "pop")


def test_a_label_that_is_no_text_becomes_text(compiled: Callable[..., Path], use: Any) -> None:
    """A number would be taken for an address by AMD's bindings; everything is text before it gets there."""
    calls = use(compiled("libroctx64.so.4"))
    backend = RocmBackend()
    backend.mark(RangeSpec(4711))  # type: ignore[arg-type]
    assert [call.message for call in calls()] == ["4711"]


def test_domains_of_others_stand_before_the_label(compiled: Callable[..., Path], use: Any) -> None:
    """ROCTX has no domains: ours needs no name, another's stands in the message."""
    calls = use(compiled("libroctx64.so.4"))
    backend = RocmBackend()
    for domain in ("", "accelprof", "data"):
        backend.mark(RangeSpec("load", domain))
    assert [call.message for call in calls()] == ["load", "load", "data:load"]


BINDINGS = """
    from accelprof_rocm.backend import RocmBackend
    from accelprof_rocm import roctx
    from accelprof.contracts.backend import RangeSpec
    library = roctx.find()
    assert library.source == "bindings", library
    backend = RocmBackend()
    backend.push(RangeSpec("outer ü"))
    backend.push(RangeSpec(17))
    backend.pop(RangeSpec(17))
    backend.pop(RangeSpec("outer ü"))
    backend.mark(RangeSpec("mark"))
    number = library.start(library.message("by id"))
    assert type(number) is int, number
    library.stop(number)
    print("done")
"""


@pytest.mark.roctx
def test_amds_bindings_over_a_recording_library(compiled: Callable[..., Path], tmp_path: Path) -> None:
    """AMD's real package calls the library it finds; results are unwrapped and every message arrives as text."""
    pytest.importorskip("rocm.bindings.roctx", reason="rocm-bindings-systems (roctx) is not installed")
    root, log = compiled("libroctx64.so"), tmp_path / "log"
    done = run(BINDINGS, ROCM_PATH=str(root), ROCTX_RECORDER_LOG=str(log), ACCELPROF_ROCTX="bindings")
    assert done.stdout == "done\n", done.stderr
    assert done.stderr == ""
    rows = [line.split("\t")[2:4] for line in log.read_text().splitlines()]
    assert rows == [
        ["push", "outer ü"],
        ["push", "17"],
        ["pop", ""],
        ["pop", ""],
        ["mark", "mark"],
        ["start", "by id"],
        ["stop", ""],
    ]


@pytest.mark.roctx
def test_amds_bindings_without_a_library_are_asked_once(tmp_path: Path) -> None:
    """Nothing is called blind: the package would print a traceback a call and return a plausible level."""
    pytest.importorskip("rocm.bindings.roctx", reason="rocm-bindings-systems (roctx) is not installed")
    done = run("from accelprof_rocm.backend import RocmBackend; print(RocmBackend().probe().reason)")
    assert "bindings: " in done.stdout
    assert "finds no library with roctxMarkA" in done.stdout
    assert done.stderr == ""


MODULE = """
def _log(kind, message=""):
    with open({log!r}, "a") as file:
        assert isinstance(message, str)
        file.write(f"{{kind}} {{message}}\\n")
def mark(message): _log("mark", message)
def rangePush(message): _log("push", message); return 0
def rangePop(): _log("pop"); return 0
def rangeStart(message): _log("start", message); return 5
def rangeStop(number): _log("stop")
def profilerPause(tid=0): _log("pause"); return 0
def profilerResume(tid=0): _log("resume"); return 0
"""


def test_the_module_of_a_rocm_installation(tmp_path: Path) -> None:
    """The Python module ``roctx`` is found below the installation, not on sys.path, and can pause."""
    place = tmp_path / "rocm" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages" / "roctx"
    place.mkdir(parents=True)
    log = tmp_path / "log"
    (place / "__init__.py").write_text(MODULE.format(log=str(log)))
    code = """
        import sys
        from accelprof_rocm.backend import RocmBackend
        from accelprof.contracts.backend import RangeSpec
        before = list(sys.path)
        backend = RocmBackend()
        backend.capture_start()
        backend.push(RangeSpec("a")); backend.pop(RangeSpec("a"))
        backend.capture_stop(); backend.capture_stop()
        assert sys.path == before
    """
    done = run(code, ROCM_PATH=str(tmp_path / "rocm"), ACCELPROF_ROCTX="module")
    assert done.returncode == 0, done.stderr
    assert log.read_text().split("\n") == ["resume ", "push a", "pop ", "pause ", ""]
