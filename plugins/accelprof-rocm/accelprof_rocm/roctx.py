"""Which ROCTX library ranges go to, and its functions.

Order, and why. A tool that was preloaded is heard only through the process's own symbols: functions of a library that is
opened by name stay with that library, and the preloaded tool never sees the calls. Then the SDK's library, which rocprofv3
and rocprof-sys from ROCm 6.4 listen to and which alone can pause. Then roctracer's ``libroctx64``: nobody but the tools up
to ROCm 6.3 (and omnitrace, rocprof v1/v2) listens there, and for those it comes first. AMD's Python bindings open
``libroctx64`` themselves, cost more per call and cannot pause; they are for machines where opening a library fails.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from accelprof.texts import PLAIN_C_TEXT, quoted
from accelprof_rocm import vendor

#: set to one of the sources to have only that one looked at
SELECT_ENV = "ACCELPROF_ROCTX"
SDK_NAMES = ("librocprofiler-sdk-roctx.so.1", "librocprofiler-sdk-roctx.so", "librocprofiler-sdk-roctx.so.0")
ROCTX64_NAMES = ("libroctx64.so.4", "libroctx64.so")
#: environment of tools up to ROCm 6.3 that can be told from their name alone
LEGACY_ENV = "OMNITRACE_"
ORDER = ("process", "sdk", "roctx64", "bindings", "module")
LEGACY_ORDER = ("roctx64", "process", "sdk", "bindings", "module")
WHY: Mapping[str, str] = {
    "process": "the process's own symbols: a preloaded tool is heard only there",
    "sdk": "the SDK's library, which rocprofv3 and rocprof-sys from ROCm 6.4 listen to",
    "roctx64": "roctracer's library; only tools up to ROCm 6.3 listen to it",
    "bindings": "AMD's bindings from PyPI (rocm-bindings-systems) over libroctx64",
    "module": "the module roctx of a ROCm installation",
}
REQUIRED = ("roctxMarkA", "roctxRangePushA", "roctxRangePop")
RANGE_IDS = ("roctxRangeStartA", "roctxRangeStop")
PAUSE = ("roctxProfilerPause", "roctxProfilerResume")


@dataclass(frozen=True)
class Library:
    """One ROCTX library. ``message`` turns text into what its functions take; all but push, pop and mark may be missing.

    ``start`` returns an id (int) for ``stop``; ``pause`` and ``resume`` take a thread id (always 0) and return 0 on success.
    """

    source: str
    path: str
    message: Callable[[str], Any]
    push: Callable[[object], object]
    pop: Callable[[], object]
    mark: Callable[[Any], Any]
    start: Callable[[Any], int] | None = None
    stop: Callable[[int], Any] | None = None
    pause: Callable[[int], int] | None = None
    resume: Callable[[int], int] | None = None

    @property
    def sdk(self) -> bool:
        """Whether this is the SDK's library: only that one can pause."""
        return self.pause is not None

    @property
    def reason(self) -> str:
        return f"{self.path} ({WHY[self.source]})"


class NotFoundError(Exception):
    """No ROCTX library; the message says what was tried and why each failed."""


def plain(label: Any) -> bytes:
    """``label`` as C and AMD's tools keep it whole: text, UTF-8 (an int would be taken for an address)."""
    return quoted(str(label), PLAIN_C_TEXT).encode()


def _text(label: Any) -> str:
    return plain(label).decode("utf-8")


def legacy_tool() -> bool:
    """Whether the environment shows a tool that listens to ``libroctx64`` only."""
    return any(name.startswith(LEGACY_ENV) for name in os.environ)


@functools.lru_cache(maxsize=4)
def find(legacy: bool = False) -> Library:
    """The library that wins; see the module. ``legacy``: the process runs under a tool up to ROCm 6.3.

    Raises:
        NotFoundError: there is none.
    """
    order: tuple[str, ...] = LEGACY_ORDER if legacy else ORDER
    chosen = os.environ.get(SELECT_ENV)
    if chosen:
        if chosen not in ORDER:
            raise NotFoundError(f"{SELECT_ENV}={chosen!r} is no source; allowed: {', '.join(ORDER)}")
        order = (chosen,)
    tried: list[str] = []
    for source in order:
        for library in SOURCES[source](tried):
            return library
    raise NotFoundError(f"no ROCTX library; tried {'; '.join(tried) or 'nothing'}")


# --- the sources: each yields what it has, and says in ``tried`` what it has not ------------------------------------------


def _process(tried: list[str]) -> Iterator[Library]:
    everything = ctypes.CDLL(None)
    if not hasattr(everything, "roctxRangePushA"):
        tried.append("process: no roctx symbols")
        return
    yield from _bound(everything, "process", _file_of(everything.roctxRangePushA), tried)


def _files(source: str, names: tuple[str, ...], wheel: str) -> Callable[[list[str]], Iterator[Library]]:
    def look(tried: list[str]) -> Iterator[Library]:
        for path in [*_of_wheel(wheel), *_in_roots(names), *names]:
            try:
                library = ctypes.CDLL(path)
            except OSError as error:
                tried.append(f"{source}: {error}")
                continue
            yield from _bound(library, source, path, tried)

    return look


def _of_wheel(name: str) -> list[str]:
    """What AMD's ``rocm-sdk`` wheels have under ``name``."""
    try:
        found = importlib.import_module("rocm_sdk").find_libraries(name)
    except ImportError:
        return []
    except Exception as error:  # noqa: BLE001 - the wheel raises its own kinds when a part is not installed
        return [f"rocm_sdk: {type(error).__name__}: {error}"]  # fails to open, and so is named among what was tried
    return [str(path) for path in found]


def _in_roots(names: tuple[str, ...]) -> list[str]:
    paths = (os.path.join(root, where, name) for root in vendor.roots() for where in ("lib", "lib64") for name in names)
    return [path for path in paths if os.path.exists(path)]


def _bound(library: Any, source: str, path: str, tried: list[str]) -> Iterator[Library]:
    """CDLL, not PyDLL: a tool's callback may wait for a lock whose holder waits for the GIL."""
    missing = [name for name in REQUIRED if not hasattr(library, name)]
    if missing:
        tried.append(f"{source}: {path} has no {', '.join(missing)}")
        return
    for name in (*REQUIRED[:2], RANGE_IDS[0]):
        if hasattr(library, name):
            getattr(library, name).argtypes = [ctypes.c_char_p]
    library.roctxMarkA.restype = None
    library.roctxRangePushA.restype = library.roctxRangePop.restype = ctypes.c_int
    library.roctxRangePop.argtypes = []
    start = stop = pause = resume = None
    if all(hasattr(library, name) for name in RANGE_IDS):
        start, stop = library.roctxRangeStartA, library.roctxRangeStop
        start.restype, stop.argtypes, stop.restype = ctypes.c_uint64, [ctypes.c_uint64], None
    if all(hasattr(library, name) for name in PAUSE):
        pause, resume = library.roctxProfilerPause, library.roctxProfilerResume
        for function in (pause, resume):
            function.argtypes, function.restype = [ctypes.c_uint64], ctypes.c_int
    functions = (library.roctxRangePushA, library.roctxRangePop, library.roctxMarkA)
    yield Library(source, path, plain, *functions, start, stop, pause, resume)


def _bindings(tried: list[str]) -> Iterator[Library]:
    try:
        roctx: Any = importlib.import_module("rocm.bindings.roctx")
    except ImportError as error:
        tried.append(f"bindings: {error}")
        return
    # asked once: a call of a missing function prints a traceback and returns a plausible level
    missing = [name for name in REQUIRED if not roctx.has_symbol(name)]
    if missing:
        tried.append(f"bindings: {roctx.__file__} finds no library with {', '.join(missing)}")
        return
    start = stop = None
    if all(roctx.has_symbol(name) for name in RANGE_IDS):
        stop = roctx.roctxRangeStop

        def start(message: Any) -> int:
            number: int = roctx.roctxRangeStartA(message)[0]
            return number

    functions = (roctx.roctxRangePushA, roctx.roctxRangePop, roctx.roctxMarkA)
    yield Library("bindings", str(roctx.__file__), _text, *functions, start, stop)


def _module(tried: list[str]) -> Iterator[Library]:
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    where = [os.path.join(root, "lib", version, "site-packages") for root in vendor.roots()]
    added = [path for path in where if os.path.isdir(os.path.join(path, "roctx")) and path not in sys.path]
    sys.path.extend(added)
    try:
        roctx: Any = importlib.import_module("roctx")
    except ImportError as error:
        tried.append(f"module: {error}")
        return
    finally:
        for path in added:
            sys.path.remove(path)
    names = ("rangePush", "rangePop", "mark", "rangeStart", "rangeStop", "profilerPause", "profilerResume")
    functions = [getattr(roctx, name, None) for name in names]
    if None in functions[:3]:
        tried.append(f"module: {roctx.__file__} has no {', '.join(names[:3])}")
        return
    yield Library("module", str(roctx.__file__), _text, *functions)  # type: ignore[arg-type]


SOURCES: Mapping[str, Callable[[list[str]], Iterator[Library]]] = {
    "process": _process,
    "sdk": _files("sdk", SDK_NAMES, "rocprofiler-sdk-roctx"),
    "roctx64": _files("roctx64", ROCTX64_NAMES, "roctx64"),
    "bindings": _bindings,
    "module": _module,
}


class _DlInfo(ctypes.Structure):
    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def _file_of(function: Any) -> str:
    """The file that a function of the global scope comes from."""
    info = _DlInfo()
    dladdr = getattr(ctypes.CDLL(None), "dladdr", None)
    if dladdr is None or not dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(info)) or not info.file:
        return "(this process)"
    return os.fsdecode(info.file)
