"""The shape of the house: floors as the page draws them, no circles, one owner's worth of code a module, few values of any type."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from accelprof.contracts import names

tomllib = pytest.importorskip("tomllib", reason="tomllib is in the standard library from 3.11 on")

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "accelprof"
PLUGINS = sorted(path for path in (ROOT / "plugins").glob("*/accelprof_*") if path.is_dir() and path.suffix == "")
#: of every 1000 lines; it was 48 when counting began
ANY_PER_1000 = 20


def modules(root: Path) -> dict[str, Path]:
    """Every module below a package by its dotted name; a package by that of its folder."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = (root.name, *path.relative_to(root).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(root: Path) -> dict[str, set[str]]:
    """What each module imports of its own package: at its top, in functions, and for type checking."""
    known = modules(root)
    graph = {}
    for name, path in known.items():
        wanted: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                wanted.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                deeper = {f"{node.module}.{alias.name}" for alias in node.names}
                wanted.update(deeper & known.keys() or {node.module})
        graph[name] = (wanted & known.keys()) - {name}
    return graph


def circles(graph: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Sets of modules each of which reaches all the others."""
    reached: dict[str, set[str]] = {}
    for name in graph:
        seen, todo = set(), [name]
        while todo:
            for other in graph[todo.pop()]:
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        reached[name] = seen
    found: list[set[str]] = []
    for name, seen in reached.items():
        if name in seen and not any(name in circle for circle in found):
            found.append({other for other in seen if name in reached[other]})
    return found


def test_circles_are_found():
    """The search finds a circle of two, one of three, and leaves a chain alone."""
    graph = {"a": ["b"], "b": ["a"], "c": ["d"], "d": ["e"], "e": ["c", "f"], "f": []}
    assert circles(graph) == [{"a", "b"}, {"c", "d", "e"}]


@pytest.mark.parametrize("root", [CORE, *PLUGINS], ids=lambda path: path.name)
def test_imports_run_in_no_circle(root):
    """No module of the core or of a vendor's distribution imports itself over others, not in a function or for type checking either."""
    assert circles(imports(root)) == []


def floors(text: str) -> list[set[str]]:
    return [
        {word.strip("()") for word in re.split(r"\s*[·+|:]\s*", line.strip())} for line in text.strip().splitlines()
    ]


def test_the_pictures_floors_are_the_linted_ones():
    """docs/architecture.md draws the floors, rooms and order that import-linter holds, and every room of the package is drawn; of
    all but two import-linter holds that they do not import Ray."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    drawn = floors(re.search(r"```floors\n(.*?)```", page, re.S)[1])
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert settings["exclude_type_checking_imports"] is False
    (layers,) = [contract["layers"] for contract in settings["contracts"] if contract["type"] == "layers"]
    assert drawn == floors("\n".join(layers))
    rooms = {path.stem for path in CORE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    moved = {path.stem for path in CORE.glob("*.py") if "moved(" in path.read_text()} | {"runtime"}
    assert rooms - moved - {"__init__", "__main__"} - set.union(*drawn) == set()
    (without_ray,) = [one["source_modules"] for one in settings["contracts"] if one.get("forbidden_modules") == ["ray"]]
    assert {f"accelprof.{room}" for room in set.union(*drawn) - {"cluster", "demo"}} == {*without_ray}


def test_the_page_names_every_import_that_goes_up():
    """Each exception of the floors stands on the page with its reason, none is there that nothing needs, and none is for a whole room."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (floors_,) = [contract for contract in contracts if contract["type"] == "layers"]
    named = re.findall(r"^- `([\w.]+)` → `([\w.]+)`: \w", page, re.M)
    assert {*floors_["ignore_imports"]} == {f"accelprof.{one} -> {other}" for one, other in named}
    # import-linter's own default is an error
    assert {contract.get("unmatched_ignore_imports_alerting", "error") for contract in contracts} == {"error"}


@pytest.mark.parametrize("root", [CORE, *PLUGINS], ids=lambda path: path.name)
def test_no_module_of_ours_is_looked_up_by_its_name(root):
    """What is imported by a text is seen by nobody who follows imports: floors and circles would hold for the others only."""
    known = set(modules(root)) - {root.name}
    found = [
        f"{name}:{node.lineno}: {node.value}"
        for name, path in modules(root).items()
        for node in literals(ast.parse(path.read_text()))
        if node.value.partition(":")[0] in known
    ]
    assert found == []


def test_only_the_sessions_room_sees_the_session():
    """Timers, and frameworks beside them, see the small protocol of ``timing/gate.py``: who reads ``gate.session`` sees all of it."""
    reads = {
        path.relative_to(CORE).parts[0]
        for path in modules(CORE).values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "gate.session"
    }
    assert reads == {"session"}


@pytest.mark.parametrize("root", [CORE, *PLUGINS], ids=lambda path: path.name)
def test_no_module_asks_for_other_threads_frames(root):
    """They may be freed while one reads them (CPython 3.11 ends with a segmentation fault)."""
    asking = [name for name, path in modules(root).items() if "_current_frames" in path.read_text()]
    assert asking == []


def test_a_long_module_says_why():
    """One owner in place of a limit of lines: who passes 500 says in the docstring why it is "one module, because ..."."""
    silent = []
    for root in (CORE, *PLUGINS):
        for name, path in modules(root).items():
            text = path.read_text()
            said = " ".join((ast.get_docstring(ast.parse(text)) or "").split())
            if len(text.splitlines()) > 500 and not re.search(r"\b[Oo]ne module, because \w", said):
                silent.append(name)
    assert silent == []


@pytest.mark.parametrize("wing", ["accelprof_xpu", "accelprof_xla"])
def test_a_wing_is_small(wing):
    """Under 600 lines: what several of them need is the core's."""
    (root,) = (path for path in PLUGINS if path.name == wing)
    assert sum(len(path.read_text().splitlines()) for path in root.rglob("*.py")) < 600


def test_values_of_any_type_get_fewer():
    """``Any`` per 1000 lines of the core and the vendors' distributions stays below the mark, which only goes down."""
    count = lines = 0
    for path in (path for root in (CORE, *PLUGINS) for path in root.rglob("*.py")):
        text = path.read_text()
        lines += len(text.splitlines())
        count += sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(ast.parse(text)))
    assert 1000 * count / lines <= ANY_PER_1000


def literals(tree: ast.AST) -> Iterator[ast.Constant]:
    """Every text in a module that is no docstring, parts of f-strings too."""
    said = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node


#: where a tool's name means something else: words of other programs, the category of Kineto's window, a slot
OTHER_TRACES = ("config/dialects/", "engines/", "compat/", "reading/chrome.py", "session/window.py")


def test_names_of_a_run_have_one_owner() -> None:
    """The files of a run's directory and the tool of our timelines are named in ``contracts/names.py`` and nowhere else."""
    files = re.compile(
        rf"(?<![\w.-])(?:{'|'.join(map(re.escape, (names.MANIFEST, names.TIMELINE, names.REPORT, names.WORKERS)))})(?![\w.])"
        rf"|^\*?{re.escape(names.JOURNAL)}$"
    )
    found = []
    for name, path in modules(CORE).items():
        place = path.relative_to(CORE).as_posix()
        if place == "contracts/names.py":
            continue
        for node in literals(ast.parse(path.read_text())):
            tool = node.value == names.TIMELINE_TOOL and not place.startswith(OTHER_TRACES)
            if tool or files.search(node.value):
                found.append(f"{name}:{node.lineno}: {node.value!r}")
    assert not found, found
