"""Layering: imports only go down, an operation is named only in its folder, class names are unique."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
# From top to bottom, by package or module of `ckh`; "ops.*" is the folder of any operation, "" the names of `import
# ckh`.
FLOORS = (
    ("__main__",),
    ("entry",),
    ("cli",),
    ("commands",),
    ("integrations",),
    ("",),
    ("api",),
    ("ops.*",),
    ("quick",),
    ("export", "isa", "report", "running", "search", "tune"),
    ("bench",),
    ("emulator",),
    ("learn",),
    ("assess",),
    ("data",),
    ("shapes",),
    ("ops",),
    ("ranking", "requested", "training"),
    ("features",),
    ("kernels",),
    ("archs",),
    ("hardware",),
    ("boundary", "cluster", "schema"),
    ("problems", "declared"),
    ("files",),
    ("documents",),
    ("text",),
    ("callables",),
    ("errors", "records", "strenum", "version"),
)
LINES = 500  # per file of ckh; a longer one has more than one purpose
MODULES_A_ROOM = 15  # besides __init__.py: a folder should be readable at a glance
_OWN = (path.name for path in sorted((ROOT / "ckh" / "ops").iterdir()) if (path / "operation.py").is_file())
OPERATION = re.compile(r"(?i)(?<![a-z])(" + "|".join(_OWN) + ")(?![a-z])")
_FLOOR_OF = {name: len(FLOORS) - index for index, names in enumerate(FLOORS) for name in names}


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT / "ckh").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_module(path): path for path in sorted((ROOT / "ckh").rglob("*.py"))}


def _room(module: str) -> str:
    first, _, rest = module.partition(".")
    return "ops.*" if first == "ops" and rest not in ("", "base") else first


def _imports(path: Path) -> set[tuple[str, str]]:
    """Modules of ckh that a file imports anywhere, each with the imported name."""
    result = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ckh":
            inside = (node.module or "").removeprefix("ckh").lstrip(".")
            for alias in node.names:
                longer = f"{inside}.{alias.name}".lstrip(".")
                result.add((longer, "") if longer in MODULES else (inside, alias.name))
        elif isinstance(node, ast.Import):
            result |= {(alias.name.removeprefix("ckh."), "") for alias in node.names if alias.name.startswith("ckh.")}
    return result


@cache
def _arrows() -> list[tuple[str, str, str]]:
    """Each import of the package: its module, the imported module and name."""
    return [(module, *taken) for module, path in MODULES.items() for taken in sorted(_imports(path))]


def test_imports_point_to_lower_layers_only() -> None:
    """No module imports, anywhere in it, another package of its own layer or of a higher one."""
    between = {(importer, imported) for importer, imported, _ in _arrows() if _room(importer) != _room(imported)}
    up = {pair for pair in between if _FLOOR_OF[_room(pair[0])] <= _FLOOR_OF[_room(pair[1])]}
    assert not up


def _reached(module: str) -> set[str]:
    """Modules imported by a module, directly or indirectly."""
    result: set[str] = set()
    waiting = {module}
    while waiting:
        waiting = {imported for importer, imported, _ in _arrows() if importer in waiting} - result
        result |= waiting
    return result


def test_imports_have_no_cycles() -> None:
    """No module imports itself indirectly, including imports for types and inside functions."""
    # `import ckh` itself is left out: it provides problems of operations far above its errors.
    assert {module for module in MODULES if module in _reached(module) and module} == set()


def test_no_test_module_imports_another() -> None:
    """Tests share fixtures of conftest.py and plain modules, so that each can be merged, moved or deleted alone."""
    importing = re.compile(
        r"^\s*(from|import) .*\btest_\w+( import|$)|^\s*from tests[\w.]* import .*\btest_", re.MULTILINE
    )
    modules = (ROOT / "tests").rglob("*.py")
    assert [path.name for path in modules if importing.search(path.read_text(encoding="utf-8"))] == []


def test_no_source_file_is_too_long() -> None:
    """No source file of ckh, in Python or C, exceeds the limit."""
    sources = [path for path in (ROOT / "ckh").rglob("*") if path.suffix in {".py", ".c", ".h", ".hpp"}]
    assert [path.name for path in sources if len(path.read_text(encoding="utf-8").splitlines()) > LINES] == []


def test_packages_are_small() -> None:
    """No package has more modules than the limit."""
    sizes = Counter(path.parent for path in MODULES.values() if path.name != "__init__.py")
    assert {str(folder): size for folder, size in sizes.items() if size > MODULES_A_ROOM} == {}


# Module names that state a role: one in each operation, or where the role is defined.
ROLES = {
    *("operation", "problem", "problem_files", "requested", "shaped", "formats", "consumers", "files"),
    *("kernel", "columns", "features", "pool", "names", "validity", "arch_rules", "problem_rules", "search_space"),
    *("amd_lists", "hip", "hip_rules", "hip_headers", "host", "measured", "trials", "tuned", "tuned_csv", "base"),
    "problem_sets",
}
# For quick and for full answers; for values and shapes; for datasets and models; for a bench and a tuning.
ALIKE = {"answer", "problems", "tables", "settings"}


def test_only_role_modules_share_a_name() -> None:
    """Modules with the same name have the same role; those of commands are named like the commands."""
    names = Counter(path.stem for module, path in MODULES.items() if not module.startswith("commands"))
    assert {name for name, count in names.items() if count > 1} - ROLES - ALIKE == {"__init__"}


def test_private_names_stay_in_their_package() -> None:
    """A name that begins with an underscore is used only in its own package."""
    crossing = [
        arrow
        for arrow in _arrows()
        if _room(arrow[0]) != _room(arrow[1]) and re.search(r"(^|\.)_(?!_)", f"{arrow[1]}.{arrow[2]}")
    ]
    assert not crossing


def test_class_names_are_unique() -> None:
    """Two classes with the same name would be confused by readers."""
    texts = (path.read_text(encoding="utf-8") for path in MODULES.values())
    names = Counter(name for text in texts for name in re.findall(r"^ *class (\w+)[(:]", text, re.MULTILINE))
    assert [name for name, count in names.items() if count > 1] == []


def _names_operations(path: Path) -> bool:
    """True if a file has an operation's name in its code or strings, except in commands shown as examples."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "examples"]
    shown = {id(text) for call in calls for text in ast.walk(call)}
    return any(OPERATION.search(_text(node)) for node in ast.walk(tree) if id(node) not in shown)


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    names = ("id", "attr", "name", "module", "arg")
    return " ".join(str(getattr(node, name)) for name in names if isinstance(getattr(node, name, None), str))


def test_an_operation_is_named_only_in_its_folder() -> None:
    """Other places are the registry's table of ckh's own operations, and `import ckh`, which exports their problems."""
    naming = {module for module, path in MODULES.items() if _room(module) != "ops.*" and _names_operations(path)}
    assert naming == {"ops", ""}


def test_operations_import_only_what_a_plugin_may() -> None:
    """Shipped operations use exactly the parts of ckh that the guide lists for packages."""
    text = (ROOT / "docs" / "adding-an-operation.md").read_text(encoding="utf-8")
    table = text.partition("## What it may import")[2].partition("## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`ckh\.([\w.]+)`", row)}
    imported = {taken for importer, taken, _ in _arrows() if _room(importer) == "ops.*" and _room(taken) != "ops.*"}
    of_name = {name: {item for item in imported if f"{item}.".startswith(f"{name}.")} for name in named}
    assert imported - set().union(*of_name.values()) == set()
    assert {name for name, result in of_name.items() if not result} == set()


def test_the_architecture_page_shows_the_layers() -> None:
    """docs/architecture.md lists every package, in this order."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = [name for names in FLOORS for name in names if name]
    places = [text.find(f"`{name}`") for name in rooms]
    assert -1 not in places
    assert places == sorted(places)
