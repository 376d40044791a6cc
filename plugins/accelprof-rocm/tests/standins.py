"""A ROCm installation of stand-ins, written from the documented behaviour of AMD's launchers (docs/rocm.md).

They have the originals' options, errors, exit statuses and treatment of what follows ``--``; they record ROCTX through a
compiled library in the worker and write when it ends in order. They are for machines without AMD hardware and software.
"""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent

#: the Python launcher: a shell script that has the interpreter run a module as a child; nothing is exec'ed
PYTHON_LAUNCHER = """\
#!/usr/bin/env bash
: "${{PYTHON_EXECUTABLE:={build_python}}}"
here=$(cd "$(dirname "${{BASH_SOURCE[0]}}")/.." && pwd)
export PYTHONPATH="$here/lib/python/site-packages:$PYTHONPATH"
export ROCPROFSYS_STANDIN_LIBRARY="$here/lib/librocprof-sys-dl.so" STANDIN_STYLE=sys
echo "##### :: executing '$PYTHON_EXECUTABLE -m {module}'... #####"
set -e
{call}
"""
QUOTED_CALL = 'eval $PYTHON_EXECUTABLE -m {module} "$(printf \' %q\' "$@")"'
#: up to ROCm 6.2 arguments go to eval as they are
UNQUOTED_CALL = "eval $PYTHON_EXECUTABLE -m {module} $@"

#: the module: options first, then ``--``, then a script that is compiled and run here; its exit status is lost
PYTHON_MODULE = """\
import argparse
import ctypes
import os
import sys
import traceback

library = ctypes.CDLL(os.environ["ROCPROFSYS_STANDIN_LIBRARY"], mode=ctypes.RTLD_GLOBAL)
finished = False


def finalize():
    global finished
    if finished:
        raise RuntimeError("already finalized")
    finished = True
    library.standin_finalize()


def main():
    arguments = sys.argv[1:]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    own, rest = arguments[:at], arguments[at + 1 :]
    parser = argparse.ArgumentParser(prog="{module}", add_help=True)
    parser.add_argument("-v", "--verbosity", type=int)
    parser.add_argument("-b", "--builtin", action="store_true")
    parser.add_argument("-c", "--config")
    parser.add_argument("-s", "--setup")
    parser.add_argument("-F", "--full-filepath", nargs="?", const=True)
    parser.add_argument("--label", nargs="*", choices=["args", "file", "line"])
    for short, long in (("I", "include"), ("E", "exclude"), ("R", "restrict")):
        parser.add_argument("-" + short, "--function-" + long, nargs="+")
        parser.add_argument("-M" + short, "--module-" + long, nargs="+")
    parser.add_argument("--trace-c", nargs="?", const=True)
    parser.add_argument("-a", "--annotate-trace", nargs="?", const=True)
    parser.parse_args(own)
    if not rest:
        print("no script given", file=sys.stderr)
        return 1
    script, sys.argv = rest[0], rest
    if not os.path.isfile(script):
        found = [os.path.join(p, script) for p in os.environ["PATH"].split(":") if os.path.isfile(os.path.join(p, script))]
        if not found:
            print("Could not find script", script, file=sys.stderr)
            return 1
        script = found[0]
    os.environ["ROCPROFSYS_PYTHON_SCRIPT_FILE"] = os.path.realpath(script)
    os.environ["ROCPROFSYS_COMMAND_LINE"] = " ".join(rest)
    print("[{module}]> profiling:", rest)
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    try:
        with open(script, "rb") as file:
            code = compile(file.read(), script, "exec")
        exec(code, {{"__name__": "__main__", "__file__": script, "__builtins__": __builtins__}})
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        finalize()
    return 0


if __name__ == "__main__":
    sys.modules["{module}"] = sys.modules["__main__"]
    sys.exit(main())
"""

#: run and sample: their options, a preload, and the command in their own place
BINARY_LAUNCHER = """\
#!{python}
import argparse
import os
import sys

root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
arguments = sys.argv[1:]
parser = argparse.ArgumentParser(prog="{program}", allow_abbrev=False)
for short, long in (("T", "trace"), ("P", "profile"), ("F", "flat-profile"), ("H", "host"), ("D", "device")):
    parser.add_argument("-" + short, "--" + long, nargs="?", const="true", choices=["true", "false"])
for short, long in (("c", "config"), ("w", "wait"), ("d", "duration"), ("f", "{freq}"), ("v", "verbose")):
    parser.add_argument("-" + short, "--" + long)
for short, long in (("o", "output"), ("t", "tids"), ("I", "include"), ("E", "exclude")):
    parser.add_argument("-" + short, "--" + long, nargs="+")
for long in ("trace-file", "trace-buffer-size", "trace-wait", "trace-duration", "trace-clock-id"):
    parser.add_argument("--" + long)
parser.add_argument("--trace-fill-policy", choices=["discard", "ring_buffer"])
parser.add_argument("--profile-format", nargs="+", choices=["text", "json", "console"])
parser.add_argument("--trace-periods", nargs="+")
if {has_regions}:
    parser.add_argument("--selected-regions")  # one value: a list with commas (argparse.cpp, count(1), dtype string)
if "--" not in arguments and not {{"-h", "--help"}} & set(arguments):
    os.execvp(arguments[0], arguments)  # everything is the command
at = arguments.index("--") if "--" in arguments else len(arguments)
own, command = parser.parse_args(arguments[:at]), arguments[at + 1 :]
for name, setting in (
    ("trace", "TRACE"), ("profile", "PROFILE"), ("{freq_dest}", "SAMPLING_FREQ"), ("selected_regions", "SELECTED_REGIONS"),
):
    if getattr(own, name, None):
        os.environ["{env}" + setting] = getattr(own, name)
os.environ["STANDIN_STYLE"] = "sys"
os.environ["LD_PRELOAD"] = ":".join(filter(None, [root + "/lib/librocprof-sys-dl.so", os.environ.get("LD_PRELOAD")]))
os.environ["OMP_TOOL_LIBRARIES"] = root + "/lib/librocprof-sys-dl.so"
os.execvp(command[0], command)
"""

ROCPROFV3 = """\
#!{python}
import argparse
import os
import sys

root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
release = {release}
parser = argparse.ArgumentParser(prog="rocprofv3", allow_abbrev=False)


def truth(text):
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError("invalid truth value " + text)


def flag(*names):
    parser.add_argument(*names, nargs="?", const=True, type=truth, metavar="BOOL")


parser.add_argument("-v", "--version", action="store_true")
parser.add_argument("-i", "--input")
parser.add_argument("-o", "--output-file")
parser.add_argument("-d", "--output-directory")
formats = ("csv", "json", "pftrace", "otf2") + (("rocpd",) if release >= (7, 0) else ())
parser.add_argument("-f", "--output-format", nargs="+", choices=formats, type=str.lower)
flag("-s", "--sys-trace")
for name in ("hip", "marker", "kernel", "memory-copy", "hsa", "scratch-memory"):
    flag("--" + name + "-trace")
if release >= (6, 3):
    flag("-r", "--runtime-trace")
    flag("--kernel-rename")
    flag("--rccl-trace")
    parser.add_argument("--pmc", nargs="*")
if release >= (6, 4):
    parser.add_argument("-P", "--collection-period", nargs="+")
if release >= (7, 0):
    flag("--selected-regions")
    flag("--group-by-queue")
arguments = sys.argv[1:]
at = arguments.index("--") if "--" in arguments else len(arguments)
own, command = parser.parse_args(arguments[:at]), arguments[at + 1 :]
if not command:
    print("[rocprofv3] Fatal error: No application provided", file=sys.stderr)
    sys.exit(1)
env = os.environ
preload = [root + "/lib/rocprofiler-sdk/librocprofiler-sdk-tool.so", root + "/lib/librocprofiler-sdk-roctx.so"]
env["LD_PRELOAD"] = ":".join(preload + [word for word in [env.get("LD_PRELOAD")] if word])
env["ROCP_TOOL_LIBRARIES"] = preload[0]
env["ROCPROFILER_LIBRARY_CTOR"] = "1"
env["ROCPROF_OUTPUT_PATH"] = own.output_directory or os.getcwd()
if own.output_file:
    env["ROCPROF_OUTPUT_FILE_NAME"] = own.output_file
chosen = own.output_format or ["rocpd" if release >= (7, 0) else "csv"]
env["ROCPROF_OUTPUT_FORMAT"] = ",".join([word for word in [env.get("ROCPROF_OUTPUT_FORMAT")] if word] + chosen)
env["ROCPROF_MARKER_API_TRACE"] = "1"
if getattr(own, "selected_regions", None):
    env["ROCPROF_SELECTED_REGIONS"] = "1"
os.execvp(command[0], command)
"""


@dataclass(frozen=True)
class Installation:
    """A directory laid out as ROCm is."""

    root: Path
    release: tuple[int, int]

    def program(self, name: str) -> str:
        return str(self.root / "bin" / name)


def compile_library(source: str, target: Path, *flags: str) -> Path:
    """A shared library out of one of the C files beside this module."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    target.parent.mkdir(parents=True, exist_ok=True)
    argv = [compiler, "-O1", "-shared", "-fPIC", "-pthread", *flags, str(HERE / source), "-o", str(target), "-ldl"]
    subprocess.run(argv, check=True, timeout=60)
    return target


def install(root: Path, release: tuple[int, int]) -> Installation:
    """Stand-ins of one release below ``root``."""
    legacy_names = release < (6, 3)
    module, env = ("omnitrace", "OMNITRACE_") if legacy_names else ("rocprofsys", "ROCPROFSYS_")
    prefix = "omnitrace" if legacy_names else "rocprof-sys"
    (root / ".info").mkdir(parents=True)
    (root / ".info" / "version").write_text(f"{release[0]}.{release[1]}.0-1\n")
    call = (UNQUOTED_CALL if legacy_names else QUOTED_CALL).format(module=module)
    launcher = PYTHON_LAUNCHER.format(build_python="/nowhere/python3.10", module=module, call=call)
    _program(root / "bin" / f"{prefix}-python", launcher)
    package = root / "lib" / "python" / "site-packages" / module
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(PYTHON_MODULE.format(module=module))
    for name, freq in (("run", "sampling-freq"), ("sample", "freq")):
        text = BINARY_LAUNCHER.format(
            python=sys.executable,
            program=f"{prefix}-{name}",
            env=env,
            freq=freq,
            freq_dest=freq.replace("-", "_"),
            has_regions=release >= (7, 13),
        )
        _program(root / "bin" / f"{prefix}-{name}", text)
    _program(root / "bin" / "rocprofv3", ROCPROFV3.format(python=sys.executable, release=release))
    flags = ["-DREGIONS"] if release >= (7, 13) else ["-Wno-unused-function", "-Wno-unused-variable"]
    tool = compile_library("standin_tool.c", root / "lib" / "rocprofiler-sdk" / "librocprofiler-sdk-tool.so", *flags)
    shutil.copy(tool, root / "lib" / "librocprof-sys-dl.so")
    compile_library("roctx_recorder.c", root / "lib" / "libroctx64.so.4")
    sdk = compile_library("roctx_recorder.c", root / "lib" / "librocprofiler-sdk-roctx.so", "-DSDK")
    shutil.copy(sdk, root / "lib" / "librocprofiler-sdk-roctx.so.1")
    return Installation(root, release)


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
