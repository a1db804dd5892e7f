"""Python children: one start for all, without the current folder."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ckh.files import child
from ckh.files.child import bare_command, code_command, drop_relative_search_paths, module_command
from tests.planted import plant, ran

PACKAGE = Path(child.__file__).parents[1]
# What starts a Python process: the interpreter's path, and libraries that start processes of their own.
STARTS = {"executable", "multiprocessing", "ProcessPoolExecutor", "loky", "get_executable", "orig_argv"}
_WORDS = re.compile("|".join([*STARTS, "Parallel", "python"]))
ALLOWED = {
    "files/child.py": {"executable"},
    "cluster/connection.py": {"multiprocessing", "get_executable", "python"},  # LocalCluster's, by `isolated_script`
    "commands/doctor/__init__.py": {"executable"},  # a field of its own
}


def _starts(path: Path) -> set[str]:
    """Names in a file that start Python, and parallel calls of joblib that do not name threads."""
    result, text = set(), path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if _WORDS.search(text) else ():
        names = {
            *(part for alias in getattr(node, "names", []) if hasattr(alias, "name") for part in alias.name.split(".")),
            *(getattr(node, "module", None) or "").split("."),
            getattr(node, "attr", ""),
            getattr(node, "id", ""),
        }
        result |= names & STARTS
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Parallel":
            backend = [ast.literal_eval(item.value) for item in node.keywords if item.arg == "backend"]
            result |= {"Parallel"} if backend != ["threading"] else set()
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in {"python", "python3"}:
            result.add(node.value)
    return result


def test_every_python_child_has_the_same_start() -> None:
    """No other module knows the interpreter, or a library that starts processes."""
    found = {str(path.relative_to(PACKAGE)): names for path in PACKAGE.rglob("*.py") if (names := _starts(path))}
    assert found == ALLOWED


def _output(command: list[str], folder: Path, path: str, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


@pytest.mark.parametrize("path", ["", ".", ":.:"])
def test_children_do_not_import_from_the_current_folder(tmp_path: Path, path: str) -> None:
    """Neither modules with the names of Python's, nor sitecustomize, by empty and relative entries of PYTHONPATH."""
    plant(tmp_path)
    for command in (
        module_command("ckh.version"),
        code_command("import dataclasses, json, sys; print(sys.argv[1:])", "an argument"),
        bare_command(str(PACKAGE / "version.py")),
    ):
        assert _output(command, tmp_path, path) in {"", "['an argument']"}
    assert ran(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("PYTHONUSERBASE", "."), ("PYTHONHOME", "."), ("PYTHONSTARTUP", "planted.py"), ("PYTHONINSPECT", "1")),
        *(("PYTHONWARNINGS", "error::planted.Warning"), ("PYTHONBREAKPOINT", "planted.run"), ("PYTHONPLATLIBDIR", ".")),
        *(("PYTHONCASEOK", "1"), ("PYTHONPYCACHEPREFIX", "."), ("PYTHONSAFEPATH", ""), ("PYTHONVERBOSE", "1")),
    ],
)
def test_children_ignore_pythons_variables(tmp_path: Path, name: str, value: str) -> None:
    """Those that name folders, files and modules of the current folder, or change what is printed."""
    plant(tmp_path)
    show = "import sys; print(sys.argv[1:])"
    assert _output(code_command(show, "an argument"), tmp_path, "", **{name: value}) == "['an argument']"
    assert _output(bare_command(str(PACKAGE / "version.py")), tmp_path, "", **{name: value}) == ""
    assert ran(tmp_path) == []


def test_a_child_runs_the_ckh_of_its_parent(tmp_path: Path) -> None:
    """Another checkout, as the current folder or by PYTHONPATH, is not its ckh; absolute folders there are searched."""
    for name in ("ckh/__init__.py", "ckh/version.py", "extension.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("print('the other')\n", encoding="utf-8")
    assert _output(module_command("ckh.version"), tmp_path, str(tmp_path)) == ""
    show = "import extension, sys; print(sys.path[0])"
    assert _output(code_command(show), Path("/"), f"lib:{tmp_path}") == f"the other\n{tmp_path}"


def test_a_child_fits_every_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command has no option that Python 3.10 lacks, and leaves out the user's packages if the parent does."""
    assert module_command("json.tool")[1:] == ["-E", child.__file__, "-m", "json.tool"]
    monkeypatch.setattr(sys, "flags", type("Flags", (), {"no_user_site": 1}))
    assert module_command("json.tool")[1:3] == ["-E", "-s"]


def test_relative_search_paths_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty entries mean the current folder: of programs, libraries and headers; without others a variable is unset."""
    for name, value in (("PATH", ":/usr/bin:.:bin:/bin:"), ("LD_LIBRARY_PATH", "/opt/rocm/lib:"), ("CPATH", ":.")):
        monkeypatch.setenv(name, value)
    drop_relative_search_paths()
    assert os.environ["PATH"] == "/usr/bin:/bin"
    assert os.environ["LD_LIBRARY_PATH"] == "/opt/rocm/lib"
    assert "CPATH" not in os.environ
