"""Ranks random pools with random forests, and with damaged ones, under sanitizers.

    python tests/ranking/fuzz.py [--seed 0] [--seconds 600 | --cases 1000] [--forest PACKED]

Each case packs a random forest and ranks a pool in C, with and without special instructions, and in NumPy: all must
give the same numbers. Then the packed file is damaged again and again, mostly with checksums that fit: each time it
must be refused, or be ranked within bounds and the same in all three ways. The C part is compiled for this with the
address and undefined-behaviour sanitizers, which end the process at the first error; `--library` names one compiled
otherwise. LightGBM is never imported: sanitizers would complain about it.
A failure prints the seed of its case.
"""

from __future__ import annotations

# ruff: noqa: T201 - a script
import argparse
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np

from ckh.errors import ModelError
from ckh.features.engine import Feature, FeatureEngine
from ckh.ranking import forest_file, model_file, pool
from ckh.ranking import library as c_part
from ckh.ranking.axes import split
from ckh.ranking.evaluator import BACKEND_VARIABLE, Ranker
from ckh.ranking.forest_file import decode, encode
from ckh.ranking.layout import CSRC
from ckh.ranking.lightgbm_text import Forest
from ckh.ranking.packed import pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.ranking.packed import PackedForest

_ROOT = Path(__file__).parents[2]
_SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_NO_SANITIZERS = 3  # exit code: gcc has none here
_DAMAGES = 12  # of each forest
_REPAIRED = 0.8  # share of them with checksums that fit
_PROBLEMS, _SHARES = (3, 70, 130), (0.8, 0.15, 0.05)  # that are ranked at once; C takes many together

_FORMULAS: dict[str, Callable[[Any], Any]] = {
    **{name: lambda c, n=name: c[n] for name in "pqabuv"},  # type: ignore[misc]
    "sum": lambda c: c["p"] + c["a"],
    "difference": lambda c: c["q"] - c["a"],
    "less": lambda c: c["q"] < c["u"],
    "product": lambda c: c["a"] * c["u"],
    "all": lambda c: c["u"] * c["p"] + c["a"],
    "units": lambda c: c["hw_units"],
    "kind": lambda c: np.mod(c["q"], 5),
}
_ENGINE = FeatureEngine("fuzz", tuple(Feature(n, "", f) for n, f in _FORMULAS.items()), (), {}, {})
_CATEGORIES = tuple(map(_ENGINE.names.index, ("b", "v", "kind")))
_VALUES = np.array([-3.0, -0.0, 0.0, 1e-36, 1.0, 2.0, 5.0, 33.0, np.nan, np.inf, -np.inf, 5e-324, 1e300])
_ODD = np.array([-(2**31), -2, -1, 0, 1, 2, 7, 63, 64, 2**20, 2**31 - 1])


def random_forest(random: np.random.Generator) -> Forest:
    """Trees of any shape, with splits and leaf values of any kind."""
    table: list[tuple[int, float, int, int, int, int, int]] = []
    leaves = 0

    def grow(splits: int) -> int:
        nonlocal leaves
        if not splits:
            leaves += 1
            return -leaves
        number = len(table)
        table.append((0, 0.0, 0, 0, 0, 0, 0))
        below = int(random.integers(splits))
        left, right = grow(below), grow(splits - 1 - below)
        table[number] = (*_test(random), left, right)
        return number

    words = random.integers(0, 2**32, 64)
    roots = [grow(int(random.choice([0, 1, 2, 10, 30, 60]))) for _ in range(random.integers(1, 40))]
    columns = list(zip(*table, strict=True)) or [()] * 7
    threshold = np.array(columns.pop(1), np.float64)
    feature, decision, start, count, left, right = (np.array(column, np.int64) for column in columns)
    scale = float(random.choice([1e-3, 1.0, 1e6, 1e290]))
    values = random.normal(size=leaves) * scale
    values[random.random(leaves) < 0.1] *= float(random.choice([0.0, 1e-9, 1e4]))
    return Forest(
        _ENGINE.names, np.array(roots), feature, threshold, decision, left, right, values, start, count, words
    )


def _test(random: np.random.Generator) -> tuple[int, float, int, int, int]:
    """Feature, threshold, decision type, first word and number of words of a set."""
    feature = int(random.integers(len(_ENGINE.names)))
    if feature in _CATEGORIES and random.random() < 0.5:
        start = int(random.integers(0, 60))
        return feature, 0.0, 1, start, int(random.integers(0, 4))
    thresholds = [0.0, 1e-36, 0.5, 1.0, 1.5, 4.0, 1e300, -1e300, np.inf, float(random.normal())]
    return feature, float(random.choice(thresholds)), int(random.choice([0, 2, 4, 6, 8, 10])), 0, 0


def damaged(forest: PackedForest, random: np.random.Generator) -> bytes:
    """The packed file of a forest with a defect, sometimes with matching checksums."""
    content = bytearray(encode(forest))
    header = forest_file._HEADER.size
    kind = random.integers(5)
    if kind == 0:
        for _ in range(random.integers(1, 9)):
            content[random.integers(len(content))] ^= 1 << int(random.integers(8))
    elif kind == 1:
        del content[random.integers(len(content)) :]
    elif kind == 2:
        content += bytes(int(random.integers(1, 64)))
    elif kind == 3:
        _set_number(content, 8 * int(random.integers(1, 1 + (header - 8) // 8)), random)
    else:
        for _ in range(random.integers(1, 4)):
            _set_number(content, int(random.integers(forest_file._START // 4, len(content) // 4)) * 4, random)
    if random.random() < _REPAIRED and len(content) >= forest_file._START:
        content[header - 4 : header] = struct.pack("=I", zlib.crc32(content[forest_file._START :]))
        content[header : header + 4] = struct.pack("=I", zlib.crc32(content[:header]))
    return bytes(content)


def _set_number(content: bytearray, at: int, random: np.random.Generator) -> None:
    (old,) = struct.unpack_from("=i", content, at)
    new = int(random.choice(_ODD)) if random.random() < 0.7 else old + int(random.integers(-2, 3))
    struct.pack_into("=I", content, at, new % 2**32)


def rank(forest: PackedForest, random: np.random.Generator) -> None:
    """Rank a pool in all ways.

    Raises:
        AssertionError: they differ.
        ModelError: the forest does not fit the features.
    """
    rows = int(random.choice([1, 2, 63, 64, 65, 130, 300]))
    model_file.BLOCK = int(random.choice([4096, 128]))
    columns = {name: random.choice(_VALUES, rows) for name in "abuv"}
    if random.random() < 0.2:
        columns["a"] = random.normal(size=rows)
    count = int(random.choice(_PROBLEMS, p=_SHARES))
    problems = {name: random.choice(_VALUES, count) for name in "pq"}
    tile = frozenset(name for name in "abuv" if random.random() < 0.5)
    given_split = split if random.random() < 0.5 else lambda codes, *_: tile & codes.keys()
    given = ([forest], _ENGINE, _ENGINE.names, {"units": 4.0}, columns, {"p": [1.0], "q": [1.0]})
    with np.errstate(all="ignore"), patch.object(pool, "split", given_split):
        ranker = Ranker(*given)
        out = [ranker.scores(problems), portable_scores(ranker, problems)]
        some = random.integers(0, rows, (count, int(random.choice([1, 4, 8, 19]))))
        few = ranker.some(problems, some, 0)
        with patch.dict(os.environ, {BACKEND_VARIABLE: "numpy"}):
            out.append(ranker.scores(problems))
    np.testing.assert_array_equal(few, np.take_along_axis(out[0][0], some, axis=1))
    for other in out[1:]:
        np.testing.assert_array_equal(out[0], other)


def portable_scores(ranker: Ranker, problems: dict[str, Any]) -> Any:
    """Scores computed in C with baseline instructions only."""
    (known,) = ranker._prepared.values()
    assert known is not None
    sizes = np.empty((len(problems["p"]), len(known[0].numbers)))
    for index, name in enumerate(known[0].numbers):
        sizes[:, index] = problems[name]
    scores = np.empty((1, len(sizes), ranker.candidates))
    known[1].score(len(sizes), sizes.ctypes.data, 1, scores.ctypes.data, is_portable=True)
    return scores


def one_case(seed: int, given: PackedForest | None) -> tuple[int, int]:
    """Rank with one forest and its damaged copies; return the numbers of refused and ranked copies."""
    random = np.random.default_rng(seed)
    forest = pack(random_forest(random)) if given is None else given
    rank(forest, random)
    refused = sum(_is_refused(damaged(forest, random), random) for _ in range(_DAMAGES))
    return refused, _DAMAGES - refused


def _is_refused(content: bytes, random: np.random.Generator) -> bool:
    try:
        rank(decode(content), random)
    except ModelError:
        return True
    return False


def under_sanitizers(arguments: list[str]) -> int:
    """Compile the C part with sanitizers and run this script with it; its exit code, or 3 if gcc has none."""
    gcc = shutil.which("gcc")
    if gcc is None:
        return _NO_SANITIZERS
    done = subprocess.run([gcc, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    runtime = Path(done.stdout.strip())
    if not runtime.is_absolute():
        return _NO_SANITIZERS
    sources = sorted(str(path) for path in CSRC.glob("*.c") if path.name != "ckh.c")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "ckh_rank.so")
        command = [
            gcc,
            "-std=c11",
            "-fPIC",
            "-shared",
            "-DCKH_SIZES_ONLY",
            "-ffp-contract=off",
            *_SANITIZERS,
            *sources,
            "-o",
            str(library),
            "-lm",
        ]
        subprocess.run(command, check=True)
        environment = {"LD_PRELOAD": str(runtime), "ASAN_OPTIONS": "detect_leaks=0", "OPENBLAS_NUM_THREADS": "1"}
        paths = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        command = [sys.executable, __file__, "--library", str(library), *arguments]
        run = subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": paths, **environment})
    return run.returncode


def main(arguments: list[str]) -> int:
    """Run cases up to the given number or time."""
    parser = argparse.ArgumentParser(description="fuzz packed forests and the C part of ranking")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=sys.maxsize)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--forest", type=Path, help="a packed file to use instead of random forests")
    parser.add_argument("--library", type=Path, help="the compiled C part; compiled with sanitizers by default")
    options = parser.parse_args(arguments)
    if options.library is None:
        return under_sanitizers(arguments)
    c_part.LIBRARY = options.library
    assert c_part.is_available(), c_part.why_not()
    given = None if options.forest is None else forest_file.read_packed(options.forest)
    end = time.monotonic() + options.seconds
    done = refused = ranked = 0
    for seed in range(options.seed, min(options.seed + options.cases, sys.maxsize)):
        if time.monotonic() > end:
            break
        try:
            counts = one_case(seed, given)
        except BaseException:
            print(f"failed: --seed {seed} --cases 1", file=sys.stderr)
            raise
        done, refused, ranked = done + 1, refused + counts[0], ranked + counts[1]
    print(f"{done} forests, {refused} damaged files refused, {ranked} ranked")
    assert "lightgbm" not in sys.modules
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
