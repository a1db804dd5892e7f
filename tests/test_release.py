"""What a release needs: a dated version, metadata, a conda recipe, a manual page, and answers without native parts."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ckh.cli import COMMANDS
from ckh.version import __version__

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")
ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# As on macOS: no libraries of our own, no calls of Linux.
_FOREIGN = """
import ctypes, os, sys, sysconfig
sysconfig.get_config_vars()
import numpy
for name in ("sched_getaffinity", "sched_setaffinity", "memfd_create", "pidfd_open", "O_TMPFILE", "O_PATH"):
    delattr(os, name) if hasattr(os, name) else None
def missing(*_args, **_options):
    raise OSError("no such library")
ctypes.CDLL = ctypes.PyDLL = missing
sys.platform = "darwin"
from ckh.entry import main
main()
"""


def test_the_version_has_a_date() -> None:
    """In the changelog, whose first release is the version."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first = re.search(r"^## (\S+) – (\d{4}-\d{2}-\d{2})$", text, re.MULTILINE)
    assert first is not None
    assert first[1] == __version__


def test_the_conda_recipe_has_the_facts_of_the_project() -> None:
    """Rendered: version, dependencies, Python and the entry point of pyproject.toml."""
    jinja2 = pytest.importorskip("jinja2", reason="Jinja2 is absent")
    yaml = pytest.importorskip("yaml", reason="PyYAML is absent")

    def regex(path: str, pattern: str, **_: object) -> Any:
        return re.search(pattern, (ROOT / "conda" / path).read_text(encoding="utf-8"))

    text = jinja2.Template((ROOT / "conda" / "meta.yaml").read_text(encoding="utf-8")).render(
        load_file_data=lambda path, **_: tomllib.loads((ROOT / "conda" / path).read_text(encoding="utf-8")),
        load_file_regex=lambda path, pattern, **_: SimpleNamespace(group=regex(path, pattern).group),
        compiler=lambda language: f"{language}-compiler",
        PYTHON="python",
    )
    recipe = yaml.safe_load(text)
    assert recipe["package"] == {"name": "ckh", "version": __version__}
    assert recipe["requirements"]["run"] == [f"python {PROJECT['requires-python']}", *PROJECT["dependencies"]]
    assert recipe["build"]["entry_points"] == ["ckh = ckh.entry:main"]


@pytest.mark.slow
def test_the_manual_page_has_all_commands(tmp_path: Path) -> None:
    """It is typeset without a warning, with the help of every command and the exit codes."""
    page = runpy.run_path(str(ROOT / "docs" / "_man.py"))["manual"]()
    assert all(f"\n.SS ckh {name}\n" in page for name in COMMANDS)
    if (groff := shutil.which("groff")) is None:
        pytest.skip("groff is absent")
    source = tmp_path / "ckh.1"
    source.write_text(page, encoding="utf-8")
    command = [groff, "-man", "-ww", "-Tutf8", "-P-cbou", "-k", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "Usage: ckh predict [OPTIONS]" in done.stdout
    assert "--probe" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", ["--n 5 --c 48 --k 96 --hi 13 --arch gfx950 --top 20", "--m 300 --n 1536 --k 7000 --arch gfx942"]
)
def test_answers_are_the_same_without_native_parts(words: str, tmp_path: Path) -> None:
    """The same text, where neither the C part nor Linux's own calls exist."""
    printed = []
    for number, start in enumerate((_FOREIGN, "from ckh.entry import main; main()")):
        command = [sys.executable, "-c", start, "predict", *words.split()]
        environment = {"CKH_CACHE_DIR": str(tmp_path / str(number)), "CKH_DATA_DIR": str(tmp_path), "COLUMNS": "100"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=ROOT)
        printed.append(done.stdout)
    assert printed[0] == printed[1]
    assert len(printed[0].splitlines()) >= 5
