"""Makes a home of CANN that the installed torch_npu can be imported with: ``build(torch_npu_dir, home)``."""

from __future__ import annotations

import glob
import os
import re
import stat
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
#: C functions of CANN; those that cannstub.c has not are generated and answer 0
_FUNCTION = re.compile(r"^(acl|Hccl|hccl|rt[A-Z]|Msprof|hal)[A-Za-z0-9]*$")
_DEFINED = re.compile(r"^(?:[a-z][\w ]*?[ \*])(\w+)\(", re.M)
_NEEDED = re.compile(r"NEEDED.*\[(lib(?:hccl|ascendcl|acl_|ge_|graph|atb|ascend|runtime).*?)\]")
#: loaded later by name, so no library of the wheel says that it needs them
_LATER = frozenset(
    f"lib{name}.so"
    for name in ("msprofiler", "ms_tools_ext", "ascend_hal", "acl_op_compiler", "ascendcl", "ascend_dump")
)


def build(package: str, home: str) -> None:
    """Compile one library; every name that torch_npu asks for is a link to it, so that all of them share its state."""
    for place in (
        "lib64",
        "opp",
        "runtime",
        "compiler",
        "tools/profiler/bin",
        "tools/profiler/profiler_tool/analysis/msprof",
    ):
        os.makedirs(os.path.join(home, place), exist_ok=True)
    libraries = glob.glob(package + "/lib/*.so") + glob.glob(package + "/_C*.so")
    undefined, needed = set(), set()
    for library in libraries:
        undefined |= {
            line.split()[-1].split("@")[0] for line in _output("nm", "-D", "--undefined-only", library) if line
        }
        needed |= {found.group(1) for line in _output("readelf", "-d", library) if (found := _NEEDED.search(line))}
    source = os.path.join(HERE, "cannstub.c")
    with open(source, encoding="utf-8") as file:
        written = set(_DEFINED.findall(file.read()))
    generated = os.path.join(home, "generated.c")
    with open(generated, "w", encoding="utf-8") as file:
        file.write("void cannstub_noise(const char*);\n")
        for name in sorted(name for name in undefined - written if _FUNCTION.match(name)):
            file.write(f'long {name}(void){{cannstub_noise("{name}");return 0;}}\n')
    made = os.path.join(home, "lib64", "libcannstub.so")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-w", "-o", made, source, generated], check=True, timeout=120)
    for name in needed | _LATER:
        os.symlink("libcannstub.so", os.path.join(home, "lib64", name))
    with open(os.path.join(home, "ascend_toolkit_install.info"), "w", encoding="utf-8") as file:
        file.write("package_name=Ascend-cann-toolkit\nversion=8.5.0\narch=x86_64\n")
    msprof = os.path.join(home, "tools/profiler/bin/msprof")
    with open(os.path.join(HERE, "msprof.py"), encoding="utf-8") as file, open(msprof, "w", encoding="utf-8") as target:
        target.write(f"#!{sys.executable}\n{file.read()}")
    os.chmod(msprof, os.stat(msprof).st_mode | stat.S_IXUSR)
    open(os.path.join(home, "tools/profiler/profiler_tool/analysis/msprof/msprof.py"), "w").close()


def _output(*argv: str) -> list[str]:
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    return [line.strip() for line in done.stdout.splitlines()]
