"""The notebooks in docs/notebooks run from the first cell to the last, and what they show is a table."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import ckh

FOLDER = Path(ckh.__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def _cells(path: Path) -> list[dict[str, Any]]:
    load: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return load


def _run(source: str, space: dict[str, Any], where: str) -> Any:
    """Execute a cell; the value of its last line, which a notebook shows, if that is an expression."""
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), where, "exec"), space)  # noqa: S102 - our own notebook
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), where, "eval"), space)  # noqa: S307 - the same


def test_both_notebooks_have_no_outputs() -> None:
    """They are kept without outputs, which depend on the machine."""
    assert len(NOTEBOOKS) == 2
    code = [cell for path in NOTEBOOKS for cell in _cells(path) if cell["cell_type"] == "code"]
    assert len(code) >= 10
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every code cell, in order, with nothing of the user's; what is shown has HTML or is a number."""
    for name in ("CKH_DATA_DIR", "CKH_CACHE_DIR", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("CKH_MODELS", raising=False)
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    shown = 0
    try:
        for number, cell in enumerate(_cells(path)):
            if cell["cell_type"] == "code":
                value = _run("".join(cell["source"]), space, f"{path.name}, cell {number}")
                shown += hasattr(value, "_repr_html_") and "<table" in value._repr_html_()
    finally:
        ckh.progress("auto")
    assert shown >= 4
