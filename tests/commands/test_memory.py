"""Peak memory of the commands by the number of rows: what a further row may take."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "memory.py"
FEW, MANY = 60_000, 240_000
QUICK = ("--folds", "0", "--trees", "2", "--targets", "tflops", "--jobs", "1")
# Bytes a row, of which the 200,000 rows that LightGBM samples are a part.
# Before rows were compact and came in blocks it was 1,700, 3,800 and 4,200.
MOST = {"convert": 700, "train": 3000, "evaluate": 1500}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The benchmark that measures peaks."""
    spec = importlib.util.spec_from_file_location("memory_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def test_what_a_row_takes(script: Any, tmp_path: Path) -> None:
    """Four times the rows take no more than a stated number of bytes for each further one, in every command."""
    few, many = (script.measure(tmp_path, rows, QUICK) for rows in (FEW, MANY))
    for command, most in MOST.items():
        slope = (getattr(many, command) - getattr(few, command)) * 2**20 / (MANY - FEW)
        assert slope < most, f"{command}: {slope:.0f} bytes a row, of {few} and {many}"
