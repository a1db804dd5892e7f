"""Which library wins: trees that a model of AITER's GEMMs gets from times of both libraries, and how well they choose.

    python benchmarks/aiter_libraries.py data/aiter-gemm-libraries-gfx950.parquet MODEL OUT
    python benchmarks/aiter_libraries.py data/aiter-gemm-libraries-gfx950.parquet MODEL --judge

OUT is the model with the trees. Some choose between CK and CK Tile, by the number of blocks of 256 x 256 on each
compute unit, others order CK Tile's kernels by their times; the order of CK's kernels stays as it is. The data are of
one family. In others, and on other GPUs, CK stays first: where a tuning run of AITER has winners of both libraries,
trees of blocks choose the winner's library on held-out layers hardly better than always CK, or worse (a8w8_blockscale
75.6 against 80.6 % of 9,568, a8w8_bpreshuffle 65.6 against 64.3 % of 698).

`--judge` answers as `ckh predict` does, each layer (N, K) by trees of the other layers: by range of M the efficiency of
the first kernel and of the first of each library, where all kernels have times, and of the library alone.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.data.dataset import read_dataset
from ckh.learn.answers.ranking import rankings_of
from ckh.learn.models.artifact import load_model
from ckh.learn.models.manifest import MANIFEST_NAME, problem_id
from ckh.learn.models.model_text import join_trees, scale_leaves, shorten, slim
from ckh.learn.models.published import read_forest
from ckh.ops.aiter_gemm.kernel import kernel_pool, parse_kernel
from ckh.ops.aiter_gemm.operation import AITER_GEMM, OPERATION
from ckh.ops.aiter_gemm.problem import ANY, CK, CKTILE, AiterGemm
from ckh.ops.base import Encoding

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from ckh.ops.aiter_gemm.kernel import AiterKernel

Times = dict[AiterGemm, dict[str, float]]
ARCH = "gfx950"
BLOCKS = "blocks_256_by_cu"
READ = ("family", "library", BLOCKS)  # inputs of the trees
FAMILIES = ("a8w8_bpreshuffle", "a8w8_blockscale", "a8w8_blockscale_bpreshuffle")  # those of both libraries
OTHERS = FAMILIES[:2]  # without times of both
RANGES = ((1, 64), (65, 512), (513, 2048), (2049, 10**9))
ALL = 40  # kernels with times, from which on they are all that apply
_CAP, _LEAST, _ONE_SIDED = 0.4, 0.02, 0.15  # weights by the logarithm of the libraries' times; of winners without both
_SCALE = 40.0  # more than the scores of kernels differ
_TREES = {"objective": "regression", "num_leaves": 8, "min_child_samples": 5, "learning_rate": 0.1}
_FIXED = {"verbose": -1, "num_threads": 1, "deterministic": True, "force_col_wise": True, "boost_from_average": False}
_ROUNDS = 60
_OF_KERNELS = {"num_leaves": 31, "min_child_samples": 10, "colsample_bytree": 0.6}
_FORESTS, _KERNEL_ROUNDS, _KERNEL_SCALE = 5, 60, 30.0  # the mean of several seeds: one alone is a matter of chance
_UNKNOWN = 0.75  # efficiency of a kernel without a time, where the best one is known
_EVERY = 40  # one of this many problems is enough of a family without times


def times_in(path: Path) -> Times:
    """Return the microseconds of each problem's kernels in a dataset."""
    data = read_dataset(path)
    times: Times = {problem: {} for problem in data.problems()}
    for problem, name, ms in zip(data.problem_ids, data.frame["kernel"], data.frame["latency_ms"], strict=True):
        times[data.problems()[problem]][name] = ms * 1e3
    return times


def best_of(times: Mapping[str, float]) -> dict[str, float]:
    """Return the fastest time of each library."""
    best: dict[str, float] = defaultdict(lambda: np.inf)
    for name, us in times.items():
        library = parse_kernel(name).library
        best[library] = min(best[library], us)
    return best


def contests(times: Times, arch: str) -> list[tuple[AiterGemm, str, float]]:
    """Return problems with the library that wins, and their weights."""
    if arch != ARCH:
        return [(replace(problem, family=family), CK, 1.0) for problem in times for family in FAMILIES]
    rows = []
    for problem, known in times.items():
        best = best_of(known)
        ratio = abs(np.log(best[CK] / best[CKTILE])) if len(best) > 1 else _ONE_SIDED
        rows.append((problem, min(best, key=lambda name: best[name]), min(ratio, _CAP) + _LEAST))
        rows += [(replace(problem, family=family), CK, _ONE_SIDED) for family in OTHERS]
    return rows


def library_trees(times: Times, names: Sequence[str], arch: str) -> str:
    """Return the text of trees that score the libraries of problems, with these inputs."""
    import lightgbm

    rows = [(problem, name, won, weight) for problem, won, weight in contests(times, arch) for name in (CK, CKTILE)]
    columns: dict[str, Any] = OPERATION.problems.features([problem for problem, *_ in rows])
    columns["library"] = np.array([name for _, name, _, _ in rows])
    matrix = np.zeros((len(rows), len(names)))
    matrix[:, [names.index(name) for name in READ]] = AITER_GEMM.matrix(columns, {}, READ)
    label = np.array([name == won for _, name, won, _ in rows], float)
    weight = np.array([weight for *_, weight in rows])
    data = lightgbm.Dataset(matrix, label, weight=weight, feature_name=list(names))
    return str(lightgbm.train({**_TREES, **_FIXED}, data, _ROUNDS).model_to_string())


def kernel_rows(times: Times) -> Iterator[tuple[AiterGemm, Sequence[AiterKernel], list[float]]]:
    """Yield problems with the kernels of their pool, and by how much each of CK Tile is better than their mean.

    Without the times of all of a problem's kernels, the best is better than the others, which are taken as equal.
    Kernels of CK, and of families without times, are neither better nor worse.
    """
    for problem, known in times.items():
        pool = [kernel for kernel in kernel_pool(problem.family, CKTILE, ARCH) if not kernel.split_k]
        own = {name: us for name, us in known.items() if parse_kernel(name).library == CKTILE}
        if own:
            least = min(own.values())
            efficiency = np.array([least / own[kernel.name] if kernel.name in own else _UNKNOWN for kernel in pool])
            yield problem, pool, (efficiency - efficiency.mean()).tolist()
            yield problem, (others := kernel_pool(problem.family, CK, ARCH)), [0.0] * len(others)
    for family in OTHERS:
        for problem in list(times)[::_EVERY]:
            yield replace(problem, family=family), (others := kernel_pool(family, ANY, ARCH)), [0.0] * len(others)


def kernel_trees(times: Times, names: Sequence[str]) -> list[str]:
    """Return texts of trees, one for each seed, that score kernels of CK Tile by their times, with these inputs."""
    import lightgbm

    matrices, labels = [], []
    for problem, kernels, label in kernel_rows(times):
        columns: dict[str, Any] = {**OPERATION.kernels.features(kernels, Encoding.on(ARCH))}
        for name, values in OPERATION.problems.features([problem]).items():
            columns[name] = np.repeat(values, len(kernels))
        matrices.append(AITER_GEMM.matrix(columns, {}, names))
        labels += label
    texts = []
    for seed in range(_FORESTS):
        data = lightgbm.Dataset(np.concatenate(matrices), labels, feature_name=list(names))
        parameters = {**_TREES, **_FIXED, **_OF_KERNELS, "seed": seed}
        texts.append(str(lightgbm.train(parameters, data, _KERNEL_ROUNDS).model_to_string()))
    return texts


def with_library(model: Path, out: Path, times: Times) -> None:
    """Write a model with the trees of libraries and of CK Tile's kernels."""
    shutil.copytree(model, out)
    spec = json.loads((out / "feature_spec.json").read_bytes())
    text, more = slim(read_forest(model, "rank")), [] if BLOCKS in spec["feature_names"] else [BLOCKS]
    spec["feature_names"] += more
    names = spec["feature_names"]
    for line, added in (("feature_names", more), ("feature_infos", ["[0:1e9]"] * len(more))):
        text = re.sub(rf"^({line}=.*)$", " ".join([r"\1", *added]), text, flags=re.MULTILINE)
    text = re.sub(r"^max_feature_idx=.*$", f"max_feature_idx={len(names) - 1}", text, flags=re.MULTILINE)
    parts = [text, scale_leaves(library_trees(times, names, spec["arch"]), _SCALE)]
    if spec["arch"] == ARCH:
        parts += [scale_leaves(trees, _KERNEL_SCALE / _FORESTS) for trees in kernel_trees(times, names)]
    joined = join_trees(parts)
    (out / "model_rank.lgbm.gz").write_bytes(gzip.compress(shorten(joined).encode(), mtime=0))
    (out / "feature_spec.json").write_text(json.dumps(spec, indent=1) + "\n")
    if spec["arch"] == ARCH:
        note_learned(out / MANIFEST_NAME, times)


def note_learned(path: Path, problems: Collection[AiterGemm]) -> None:
    """Add problems to those that a manifest says were learned from, so that `ckh evaluate` leaves them out."""
    manifest = json.loads(path.read_bytes())
    for name, learned in (("problems", problems), ("layers", map(OPERATION.layer, problems))):
        manifest["ckh"][name] = sorted({*manifest["ckh"][name], *map(problem_id, learned)})
    path.write_text(json.dumps(manifest, indent=1) + "\n")


def answers_by(model: Path, times: Times, others: Times) -> dict[AiterGemm, list[str]]:
    """Return the kernels for problems, best first, by a model with the trees of other problems."""
    with TemporaryDirectory() as work:
        with_library(model, Path(work) / model.name, others)
        rankings = rankings_of(times, load_model(Path(work) / model.name))
        names = [[ranking.pool[at].name for at in ranking.order.tolist()] for ranking in rankings]
        return dict(zip(times, names, strict=True))


def left_out(model: Path, times: Times) -> dict[AiterGemm, list[str]]:
    """Return the answers for each layer by the trees of the other layers."""
    answers: dict[AiterGemm, list[str]] = {}
    for layer in sorted({(problem.n, problem.k) for problem in times}):
        own = {problem: known for problem, known in times.items() if (problem.n, problem.k) == layer}
        others = {problem: known for problem, known in times.items() if problem not in own}  # in order
        answers |= answers_by(model, own, others)
    return answers


def efficiency(known: Mapping[str, float], answer: Iterable[str], *, each: bool = False) -> float:
    """Efficiency of the first measured kernel, or of the better of the first of each library."""
    first: dict[str, str] = {}
    for name in answer:
        if name in known:
            first.setdefault(parse_kernel(name).library if each else "", name)
    return min(known.values()) / min(known[name] for name in first.values())


def library_of_answer(known: Mapping[str, float], answer: Sequence[str]) -> float:
    """Efficiency of the first kernel's library; of a library without a time 0, unless it won."""
    best = best_of(known)
    return float(min(best.values()) / best[parse_kernel(answer[0]).library])


def judge(
    times: Times, answers: Mapping[AiterGemm, Sequence[str]], show: Callable[[str, Sequence[float]], None]
) -> None:
    """Show efficiencies by range of M, and of the library alone."""
    every = {problem: known for problem, known in times.items() if len(known) > ALL}
    for low, high in (*RANGES, (1, 10**9)):
        inside = [problem for problem in every if low <= problem.m <= high]
        where = f"M {low} to {high}" if high < RANGES[-1][1] else f"M from {low}"
        show(f"both, {where}", [efficiency(every[p], answers[p]) for p in inside])
        show(f"first of each, {where}", [efficiency(every[p], answers[p], each=True) for p in inside])
        for library in (CK, CKTILE):
            own = {p: {n: us for n, us in every[p].items() if parse_kernel(n).library == library} for p in inside}
            show(f"{library}, {where}", [efficiency(own[p], answers[p]) for p in inside])
    pairs = [problem for problem, known in times.items() if len(best_of(known)) > 1]
    show("library alone, times of both", [library_of_answer(times[p], answers[p]) for p in pairs])
    winners = [problem for problem in times if problem not in pairs]
    show("library alone, the winner's", [library_of_answer(times[p], answers[p]) for p in winners])


def main() -> None:
    """Write a model, or judge the trees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--judge", action="store_true")
    given = parser.parse_args()
    times = times_in(given.data)
    if given.out is not None:
        with_library(given.model, given.out, times)
    if given.judge:
        judge(
            times,
            left_out(given.model, times),
            lambda what, of: print(f"{what:40} {len(of):4} mean {np.mean(of):.4f} min {np.min(of):.3f}", flush=True),
        )


if __name__ == "__main__":
    main()
