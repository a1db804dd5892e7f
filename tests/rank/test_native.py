"""The C part compiles without a warning, and sanitizers find nothing in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import COMPILERS, compile_library

_ROOT = Path(__file__).parents[2]
_STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wshadow", "-Wstrict-prototypes")

# Ranks random pools with random forests; it must not import LightGBM, which sanitizers would complain about.
_PROGRAM = """
import sys
import numpy as np
from pathlib import Path
from ckh.features.engine import Depends, Feature, FeatureEngine
from ckh.rank import partial_c, partial_numpy, plan
from ckh.rank.evaluator import Ranker
from ckh.rank.forest_file import read_packed

partial_c.LIBRARY = Path(sys.argv[1])
assert partial_c.is_available(), partial_c.why_not()
forest = read_packed(Path(sys.argv[2]))
kernel, both = Depends.KERNEL, Depends.BOTH
names = "p q a b u v r s t w x y".split()
given = dict(p=lambda c: c["p"], q=lambda c: c["q"], a=lambda c: c["a"], b=lambda c: c["b"], u=lambda c: c["u"],
    v=lambda c: c["v"], r=lambda c: c["p"] + c["a"], s=lambda c: c["q"] - c["a"], t=lambda c: c["q"] < c["u"],
    w=lambda c: c["a"] * c["u"], x=lambda c: c["u"] * c["p"] + c["a"], y=lambda c: c["hw_units"])
engine = FeatureEngine("t", tuple(Feature(n, "", both, given[n]) for n in names), (), {}, {})
for seed, rows in enumerate([1, 3, 64, 65, 130, 300, 700]):
    plan.BLOCK = 4096 if seed % 2 else 128
    random = np.random.default_rng(seed)
    columns = {n: random.choice([-3.0, 0.0, 1.0, 2.0, 5.0, np.nan, 70.0, 1e300], rows) for n in "abuv"}
    if seed > 4:
        columns["a"] = random.normal(size=rows)
    problems = {n: random.normal(size=5) for n in "pq"}
    with np.errstate(all="ignore"):
        ranker = Ranker([forest], engine, names, {"units": 4.0}, columns, {"p": [1.0], "q": [1.0]})
        values = ranker._pool.values(problems, 5)
    out = np.empty((3, 5, rows))
    partial_c.scores(ranker._plans[0], values, out[0])
    partial_c.scores(ranker._plans[0], values, out[1], is_portable=True)
    partial_numpy.scores(ranker._plans[0], values, out[2])
    assert out[0].tobytes() == out[1].tobytes() == out[2].tobytes(), rows
assert "lightgbm" not in sys.modules and "pandas" not in sys.modules
print("clean")
"""


def _run(library: Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    from ckh.rank.forest_file import encode

    from .conftest import train

    (folder / "forest.bin").write_bytes(encode(train().forest))
    command = [sys.executable, "-c", _PROGRAM, str(library), str(folder / "forest.bin")]
    env = {**os.environ, "PYTHONPATH": str(_ROOT), "OPENBLAS_NUM_THREADS": "1", **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=100)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_compilers_have_nothing_to_say(tmp_path: Path, compiler: str) -> None:
    """Both gcc and clang accept it as C11 with all warnings as errors."""
    compile_library(tmp_path / "ckh_rank.so", "-O3", *_STRICT, compiler=compiler)


def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    """Pools of all shapes pass through code that checks addresses and undefined behaviour."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("no gcc")
    runtime = subprocess.run([gcc, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    asan = Path(runtime.stdout.strip())
    if not asan.is_absolute():
        pytest.skip("gcc has no address sanitizer")
    flags = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    library = compile_library(tmp_path / "ckh_rank.so", *flags, compiler="gcc")
    done = _run(library, tmp_path, LD_PRELOAD=str(asan), ASAN_OPTIONS="detect_leaks=0")
    assert done.stdout == "clean\n", done.stderr


def test_little_memory_for_sets_changes_nothing(tmp_path: Path) -> None:
    """When the sets of variants are forgotten after every tree, scores stay the same to the last bit."""
    if not COMPILERS:
        pytest.skip("no C compiler")
    library = compile_library(tmp_path / "ckh_rank.so", "-O1", "-DMOST_SETS=0")
    done = _run(library, tmp_path)
    assert done.stdout == "clean\n", done.stderr
