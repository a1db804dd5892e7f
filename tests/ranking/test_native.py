"""The C part compiles without warnings, and sanitizers find no error for any input."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ckh.ranking.forest_file import encode

from .conftest import COMPILERS, compile_library, train

_ROOT = Path(__file__).parents[2]
_FUZZ = Path(__file__).with_name("fuzz.py")
_STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wshadow", "-Wstrict-prototypes")
_REPORT = re.compile(r"(\d+) forests, (\d+) damaged files refused, (\d+) ranked\n")


def _fuzz(*arguments: str) -> tuple[int, int, int]:
    """The numbers of forests, of refused damaged files, and of ranked ones."""
    env = {**os.environ, "PYTHONPATH": str(_ROOT)}
    command = [sys.executable, str(_FUZZ), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode == 3:
        pytest.skip("no gcc with sanitizers")
    report = _REPORT.fullmatch(done.stdout)
    assert report, done.stderr
    assert not done.returncode, done.stderr
    forests, refused, ranked = map(int, report.groups())
    return forests, refused, ranked


@pytest.fixture
def packed(tmp_path: Path) -> str:
    """A forest trained by LightGBM, as a packed file."""
    path = tmp_path / "forest.bin"
    path.write_bytes(encode(train().forest))
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
def test_compilers_give_no_warnings(tmp_path: Path, compiler: str) -> None:
    """Both gcc and clang accept it as C11 with all warnings as errors."""
    compile_library(tmp_path / "ckh_rank.so", "-O3", *_STRICT, compiler=compiler)


@pytest.mark.slow
def test_sanitizers_find_nothing() -> None:
    """Forests and pools of all shapes, and damaged files: refused, or ranked as in NumPy within bounds."""
    forests, refused, ranked = _fuzz("--cases", "20", "--seed", "0")
    assert forests == 20
    assert refused > 100
    assert ranked > 20


@pytest.mark.slow
def test_sanitizers_find_nothing_in_a_trained_forest(packed: str) -> None:
    """The same with LightGBM's trees."""
    assert _fuzz("--cases", "2", "--seed", "1", "--forest", packed)[0] == 2


@pytest.mark.slow
@pytest.mark.skipif(not COMPILERS, reason="no C compiler")
def test_a_small_set_buffer_changes_nothing(tmp_path: Path, packed: str) -> None:
    """When the sets of variants are forgotten after every tree, scores stay the same to the last bit.

    The same when few problems are ranked together.
    """
    flags = ("-O1", "-DMOST_SETS=0", "-DFEWEST_TOGETHER=2", "-DMOST_TOGETHER=2")
    library = compile_library(tmp_path / "ckh_rank.so", *flags)
    assert _fuzz("--cases", "20", "--seed", "2", "--library", str(library))[0] == 20
    assert _fuzz("--cases", "5", "--seed", "3", "--library", str(library), "--forest", packed)[0] == 5
