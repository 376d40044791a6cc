"""What ``accelprof plugins new NAME`` writes: a distribution with a backend, a tool, a reader and their tests.

The templates beside this module are the example plug-in with its name taken out, so that what is written is what is tested.
"""

from __future__ import annotations

import keyword
import re
from pathlib import Path

from accelprof.errors import ConfigError, Problem

#: template -> where its text goes; ``@name@`` and its like are filled in in both
FILES = {
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
    "__init__.py.txt": "accelprof_@name@/__init__.py",
    "backend.py.txt": "accelprof_@name@/backend.py",
    "tool.py.txt": "accelprof_@name@/tool.py",
    "reader.py.txt": "accelprof_@name@/reader.py",
    "test_plugin.py.txt": "tests/test_@name@_plugin.py",
}
_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
LONGEST = 40
#: names whose classes pytest would take for tests or the plug-in's for its own, and words that stand for something else
RESERVED = frozenset(
    {"device", "backend", "reader", "tool", "plugin", "test", "tests", "pytest", "conftest", "auto", "none", "all"}
)


def skeleton(name: str, version: str = "0.1") -> dict[str, str]:
    """Relative path -> text of each file of the plug-in called ``name``.

    Raises:
        ConfigError: ``name`` cannot be a module's name.
    """
    plain = name.replace("-", "_")
    if not _NAME.fullmatch(name) or len(name) > LONGEST or keyword.iskeyword(plain):
        said = "it becomes the name of a module, an accelerator type and a distribution"
        allowed = f"lower-case letters, digits and single dashes between them, {LONGEST} at most; no word of Python"
        raise ConfigError(Problem("NAME", said, value=name, allowed=allowed, mend="my-accelerator"))
    if plain in RESERVED or plain.startswith("accelprof"):
        said = "accelprof, pytest or the plug-in's own modules have this name"
        mend = f"my-{name.removeprefix('accelprof').strip('-_') or 'accelerator'}"
        raise ConfigError(Problem("NAME", said, value=name, mend=mend))
    words = {
        "dist": plain.replace("_", "-"),
        "name": plain,
        "Name": "".join(word.capitalize() for word in plain.split("_")),
        "NAME": plain.upper(),
        "version": version,
    }

    def filled(text: str) -> str:
        return re.sub(r"@(\w+)@", lambda found: words[found[1]], text)

    here = Path(__file__).parent
    made = {filled(place): filled((here / source).read_text(encoding="utf-8")) for source, place in FILES.items()}
    made[filled("accelprof_@name@/py.typed")] = ""
    return made


def write(name: str, directory: Path, taken: tuple[str, ...] = ()) -> Path:
    """Write the skeleton of ``name`` into a new directory below ``directory`` and return that.

    Raises:
        ConfigError: the name cannot be one, is among ``taken``, or the directory is there already.
        OSError: it cannot be written.
    """
    made = skeleton(name)
    plain = name.replace("-", "_")
    place = directory / f"accelprof-{plain.replace('_', '-')}"
    if plain in taken or f"{plain}_log" in taken:
        raise ConfigError(Problem("NAME", "an installed plug-in has this name", value=name, mend="another name"))
    if place.exists():
        raise ConfigError(Problem("NAME", f"{place} is there already", value=name, mend="another name, or --directory"))
    for path, text in made.items():
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return place
