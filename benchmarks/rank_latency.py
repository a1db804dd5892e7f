"""Time to rank a pool, from the problem to the sorted candidates: one process, one thread, methods interleaved.

    python benchmarks/rank_latency.py [--rounds 15] [--trees 2000] [--leaves 127]

Methods: the usual one (a dict per candidate, a DataFrame, features, `Booster.predict`, sorting), the same from NumPy
columns, NumPy only, and partial evaluation in C. All must give the same order. CPU times are medians; only ratios are
comparable between machines.
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse
import gzip
import itertools
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np
import pandas as pd

from ckh.archs import load_arch
from ckh.files.paths import cache_dir, data_dir
from ckh.learn.models.artifact import list_models, load_model
from ckh.learn.models.spec import ANY
from ckh.ops.gemm_universal.features import GEMM_UNIVERSAL, NAMES_72
from ckh.ops.gemm_universal.features import kernel_columns as gemm_kernel_columns
from ckh.ops.gemm_universal.kernels.pool import gemm_pool
from ckh.ops.grouped_conv.features import CORE_NAMES, GROUPED_CONV
from ckh.ops.grouped_conv.kernels.variants import PIPELINE_VARIANTS
from ckh.ranking import library
from ckh.ranking.evaluator import Ranker, best_first
from ckh.ranking.forest_file import forest_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.features.engine import FeatureEngine

Columns = dict[str, Any]
_CONV_CANDIDATES, _GEMM_CANDIDATES, _PROBLEMS = 1500, 4608, 8
_ROWS = 8000
_MANY = 10_000
_WAYS = ("usual way", "NumPy features, LightGBM", "NumPy alone", "partial evaluation, C")


@dataclass(frozen=True)
class Case:
    """A model, a pool and problems."""

    name: str
    text: str
    engine: FeatureEngine
    names: tuple[str, ...]
    hardware: Columns
    kernels: Columns
    problems: list[Columns]


def _conv_case(options: argparse.Namespace) -> Case:
    random = np.random.default_rng(0)
    tiles = list(
        itertools.islice(itertools.product((16, 32, 64, 128, 256), (16, 32, 64, 128, 256), (16, 32, 64, 128)), 100)
    )
    pairs = np.array([(t, v) for t in range(len(tiles)) for v in range(len(PIPELINE_VARIANTS))])
    pairs = pairs[np.sort(random.permutation(len(pairs))[:_CONV_CANDIDATES])]
    m, n, k = np.array(tiles, float)[pairs[:, 0]].T
    rows = [PIPELINE_VARIANTS[v] for v in pairs[:, 1]]
    kernels = {
        "gemm_m_per_block": m,
        "gemm_n_per_block": n,
        "block_size": k,
        "pipeline": np.array([row.pipeline for row in rows]),
        "wave_mode": np.array([str(row.scheduler) for row in rows]),
        "has_dsb": np.array([float(row.double_smem_buffer) for row in rows]),
        "has_si": np.array([float(row.split_image) for row in rows]),
    }
    problems = [_conv_problem(random) for _ in range(_ROWS)]
    hardware = load_arch("gfx942").hardware.to_dict()
    return _synthetic(options, "grouped_conv", GROUPED_CONV, CORE_NAMES, hardware, kernels, problems)


def _conv_problem(random: np.random.Generator) -> Columns:
    size, taps = random.choice([7, 14, 28, 56, 112]), random.choice([1, 3, 5])
    sizes = {"N": random.choice([1, 4, 16, 64, 128]), "G": 1, "C": 2 ** random.integers(3, 11)}
    sizes |= {"K": 2 ** random.integers(3, 11), "Hi": size, "Wi": size, "Y": taps, "X": taps, "Di": 1, "Z": 1}
    sizes |= {"stride_h": random.choice([1, 2]), "pad_h": taps // 2, "stride_d": 1, "pad_d": 0}
    sizes |= {"stride_w": sizes["stride_h"], "pad_w": taps // 2, "dilation_d": 1, "dilation_h": 1, "dilation_w": 1}
    columns = {name: np.array([float(value)]) for name, value in sizes.items()}
    return columns | {"variant": np.array(["forward"]), "dtype": np.array(["bf16"])}


def _gemm_case(options: argparse.Namespace) -> Case:
    random = np.random.default_rng(1)
    pool = gemm_pool(load_arch("gfx942"), "fp16")
    chosen = np.sort(random.permutation(len(pool))[:_GEMM_CANDIDATES])
    kernels = gemm_kernel_columns([pool[index] for index in chosen])
    problems = []
    for _ in range(_ROWS):
        m, n, k = (random.choice([2**e, 2**e + 2 ** (e - 1), 2**e - 8]) for e in random.integers(5, 14, 3))
        sizes = {"m": m, "n": n, "k": k, "split_k": random.choice([1, 1, 2, 4])}
        columns = {name: np.array([float(size)]) for name, size in sizes.items()}
        problems.append(columns | {"dtype": np.array(["fp16"]), "layout": np.array(["rcr"])})
    hardware = load_arch("gfx942").hardware.to_dict()
    return _synthetic(options, "gemm_universal", GEMM_UNIVERSAL, NAMES_72, hardware, kernels, problems)


def _synthetic(
    options: argparse.Namespace,
    name: str,
    engine: FeatureEngine,
    names: tuple[str, ...],
    hardware: Columns,
    kernels: Columns,
    problems: list[Columns],
) -> Case:
    """A case with a model of synthetic data, which is cached since training takes a minute."""
    kept = cache_dir() / f"benchmark-{name}-{options.trees}x{options.leaves}-v2.lgbm"
    if not kept.exists():
        print(f"training {kept.name}")
        random = np.random.default_rng(2)
        some = np.arange(_ROWS)
        of_problem = {key: np.concatenate([problems[i][key] for i in some]) for key in problems[0]}
        rows = random.integers(0, len(next(iter(kernels.values()))), _ROWS)
        x = engine.matrix(of_problem | {key: column[rows] for key, column in kernels.items()}, hardware, names)
        y = np.log1p(np.abs(x)) @ random.normal(size=x.shape[1])
        y += 3 * np.sin(np.log1p(np.abs(x)) @ random.normal(size=(x.shape[1], 8))).sum(axis=1)
        settings = {"num_leaves": options.leaves, "min_data_in_leaf": 5, "learning_rate": 0.02, "verbose": -1}
        settings |= {"feature_fraction": 0.5, "num_threads": 2, "objective": "regression"}
        booster = lightgbm.train(settings, lightgbm.Dataset(x, y), num_boost_round=options.trees)
        kept.write_text(booster.model_to_string())
    title = f"{name}, {options.trees} trees of {options.leaves} leaves"
    return Case(title, kept.read_text(), engine, names, hardware, kernels, problems[:_PROBLEMS])


def _shipped_cases() -> list[Case]:
    cases = []
    for ref in list_models([data_dir("models")]):
        model = load_model(ref.path)
        spec, op = model.spec, model.spec.op
        if not op.problems.set_names():  # no problem sets: AITER's problems are those of its tables
            continue
        variant = None if spec.variant is None else str(spec.variant)
        some = op.problems.load(op.problems.set_names()[0], variant, None if spec.dtype == ANY else spec.dtype)
        kernels = op.kernels.candidates(some[0], load_arch(spec.arch), ref.path).kernels
        text = gzip.decompress((ref.path / f"model_{spec.rank_by}.lgbm.gz").read_bytes()).decode()
        columns = op.kernels.features(kernels, spec.encoding)
        problems = [op.problems.features([problem]) for problem in some]
        names = tuple(spec.feature_names)
        cases.append(Case(ref.path.name, text, spec.engine, names, model.hardware, columns, problems))
    return cases


def _usual_way(case: Case, booster: lightgbm.Booster, dicts: list[Columns], problem: Columns) -> np.ndarray:
    of_problem = {name: column[0] for name, column in problem.items()}
    frame = pd.DataFrame([{**of_problem, **kernel} for kernel in dicts])
    columns = {name: frame[name].to_numpy() for name in frame.columns}
    matrix = case.engine.matrix(columns, case.hardware, case.names)
    return np.asarray(best_first(np.asarray(booster.predict(matrix, raw_score=True, num_threads=1))))


def _from_columns(case: Case, booster: lightgbm.Booster, problem: Columns) -> np.ndarray:
    matrix = case.engine.matrix({**problem, **case.kernels}, case.hardware, case.names)
    return np.asarray(best_first(np.asarray(booster.predict(matrix, raw_score=True, num_threads=1))))


def _partially(ranker: Ranker, backend: str, problem: Columns) -> np.ndarray:
    os.environ["CKH_RANK_BACKEND"] = backend
    return np.asarray(best_first(ranker.scores(problem)[0, 0]))


def measure(case: Case, rounds: int) -> None:
    """Print the median times of all methods, and that their orders agree."""
    booster = lightgbm.Booster(model_str=case.text)
    start = time.perf_counter()
    forest = forest_of(case.text.encode(), case.name)
    opened = time.perf_counter()
    ranker = Ranker([forest], case.engine, case.names, case.hardware, case.kernels, case.problems[0])
    prepared = time.perf_counter()
    count = ranker.candidates
    kernel_rows = {name: column.tolist() for name, column in case.kernels.items()}
    dicts = [{name: column[i] for name, column in kernel_rows.items()} for i in range(count)]
    ways: list[Callable[[Columns], np.ndarray]] = [
        lambda problem: _usual_way(case, booster, dicts, problem),
        lambda problem: _from_columns(case, booster, problem),
        lambda problem: _partially(ranker, "numpy", problem),
        lambda problem: _partially(ranker, "c", problem),
    ]
    if not library.is_available():
        ways.pop()
    times: list[list[float]] = [[] for _ in ways]
    differing = 0
    for turn in range(rounds):
        problem = case.problems[turn * len(case.problems) // rounds]
        orders = []
        for way, taken in zip(ways, times, strict=True):
            begin = time.process_time()
            orders.append(way(problem))
            taken.append((time.process_time() - begin) * 1e3)
        differing += not all(np.array_equal(orders[0], order) for order in orders)
    shape = " x ".join(map(str, ranker.shape or ("no", "C")))
    print(f"\n{case.name}: {count} candidates = {shape} (tiles x variants), {len(forest.nodes)} splits")
    print(f"  open {(opened - start) * 1e3:.1f} ms, prepare the pool {(prepared - opened) * 1e3:.1f} ms (once)")
    usual = statistics.median(times[0])
    for name, taken in zip(_WAYS, times, strict=False):
        median = statistics.median(taken)
        print(f"  {name:28} {median:9.3f} ms {usual / median:8.1f}x   fastest {min(taken):9.3f} ms")
    print(f"  {differing} of {rounds} orders differ")


def measure_many(case: Case) -> None:
    """Print the problems per second of a single call."""
    forest = forest_of(case.text.encode(), case.name)
    ranker = Ranker([forest], case.engine, case.names, case.hardware, case.kernels, case.problems[0])
    chosen = np.random.default_rng(0).integers(0, len(case.problems), _MANY)
    problems = {name: np.concatenate([case.problems[i][name] for i in chosen]) for name in case.problems[0]}
    for backend in ("c", "numpy"):
        if backend == "c" and not library.is_available():
            continue
        os.environ["CKH_RANK_BACKEND"] = backend
        count = _MANY if backend == "c" else 20
        part = {name: column[:count] for name, column in problems.items()}
        start = time.process_time()
        scores = ranker.scores(part)
        scored = time.process_time()
        best_first(scores)
        done = time.process_time()
        rate = f"{count / (scored - start):.0f} problems/s, {count / (done - start):.0f}/s with all candidates sorted"
        print(f"  {case.name}, {backend}: {count} problems in one call: {rate}")


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description="latency of ranking")
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--trees", type=int, default=2000)
    parser.add_argument("--leaves", type=int, default=127)
    parser.add_argument("--library", type=Path, help="a C part other than the installed one")
    options = parser.parse_args()
    if options.library:
        library.LIBRARY = options.library
    shipped = _shipped_cases()
    for case in (_conv_case(options), _gemm_case(options), *shipped):
        measure(case, options.rounds)
    print("\nmany problems (processor time of one core)")
    for case in shipped:
        measure_many(case)


if __name__ == "__main__":
    main()
