"""Which library wins: trees that a model of AITER's GEMMs gets, and how well they choose.

    python benchmarks/aiter_libraries.py data/aiter-gemm-gfx950.parquet MODEL OUT [--seeds MODEL ...]
    python benchmarks/aiter_libraries.py data/aiter-gemm-gfx950.parquet MODEL --judge [--seeds MODEL ...]
    python benchmarks/aiter_libraries.py data/aiter-gemm-gfx950.parquet --folds

OUT is the model of gfx950 with the trees. Some learn from AITER's tables in which several libraries were tuned whose
kernel wins. Others choose for block-scaled, preshuffled GEMMs, of which times are known (`TIMES`): between CK and CK
Tile by the number of blocks of 256 x 256 on each compute unit, between the better of them and ASM by K too, and among
CK Tile's kernels; the order of CK's kernels stays as it is. The model of gfx942 ranks libraries without trees: on the
folds it is above both baselines (but for 28 rows of a8w8_bpreshuffle on 304 compute units), and trees of its tables
were not better (rows of 80 compute units .65 and .43 after .66 and .44).

`--seeds` are models of the same data with other seeds; the mean of all orders the kernels.

`--judge` answers as `ckh predict` does over CK and CK Tile, each layer (N, K) of the times by trees of the others: by
range of M the efficiency of the first kernel and of the first of each library, where all kernels have times, of the
first over ASM's too, and of the library alone. `--folds` answers each fold of the tables' layers by a model, and trees,
of the others: how often the first kernel is of the winner's library, and is the winner, against libraries that are
always first: CK, and the one that won most often.
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
from ckh.learn.training.train import train
from ckh.learn.training.trained import save
from ckh.ops.aiter_gemm.kernel import kernel_pool, parse_kernel
from ckh.ops.aiter_gemm.operation import AITER_GEMM, OPERATION
from ckh.ops.aiter_gemm.problem import ANY, ASM, CK, CKTILE, FAMILIES, AiterGemm
from ckh.ops.base import Encoding

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from lightgbm import Booster
    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.ops.aiter_gemm.kernel import AiterKernel

Times = dict[AiterGemm, dict[str, float]]
ARCH = "gfx950"
BLOCKS = "blocks_256_by_cu"
READ = ("family", "library", BLOCKS)  # inputs of the trees of times
READ_OF_ASM = (*READ, "log2_k")
READ_OF_TABLES = (*READ[:2], "num_cus", "log2_m", "log2_n", "log2_k", BLOCKS, "n_128_by_cu")
TIMED = "a8w8_blockscale_bpreshuffle"  # the family of the times
OTHERS = ("a8w8_bpreshuffle", "a8w8_blockscale", "a4w4_blockscale")  # of several libraries, too
OWN = (CK, CKTILE)  # Composable Kernel's libraries, whose times are known
FOLDS, FEW = 5, 5
SMALL = 512
ROOT = Path(__file__).parents[1]
TIMES = ROOT / "data" / "aiter-gemm-libraries-gfx950.parquet"
RANGES = ((1, 64), (65, 512), (513, 2048), (2049, 10**9))
ALL = 40  # kernels with times, from which on they are all that apply
_CAP, _LEAST, _ONE_SIDED = 0.4, 0.02, 0.15  # weights by the logarithm of the libraries' times; of winners without both
_ASM_SCALE, _CLEAR = 10.0, 0.2  # as the scores of kernels differ; logarithm of times that is certain
_SCALE = 40.0  # more than the scores of kernels differ
_TABLES_SCALE = 5.0  # of 0, 1, 2, 5, 10, 20, 40, 80 on the folds: the least that is above both baselines everywhere
_TREES: dict[str, Any] = {"objective": "regression", "num_leaves": 8, "min_child_samples": 5, "learning_rate": 0.1}
_FIXED = {"verbose": -1, "num_threads": 1, "deterministic": True, "force_col_wise": True, "boost_from_average": False}
_ROUNDS = 60
_OF_KERNELS = {"num_leaves": 31, "min_child_samples": 10, "colsample_bytree": 0.6}
_FORESTS, _KERNEL_ROUNDS, _KERNEL_SCALE = 5, 60, 30.0  # the mean of several seeds: one alone is a matter of chance
_UNKNOWN = 0.75  # efficiency of a kernel without a time, where the best one is known
_EVERY, _SILENT = 10, 100.0  # one of this many problems is enough of a family without times, with this weight


def folds_of(dataset: Dataset, folds: int) -> NDArray[np.int64]:
    """Fold of each row, by its layer: the same in every file, with layers of a size distributed evenly."""
    layers = dataset.frame[list(dataset.op.problems.split_by)].to_numpy()
    mixed = (layers[:, 0] * 2654435761 + layers[:, 1] * 40503) % (2**32)
    return np.asarray((mixed >> 7) % folds, np.int64)


def times_in(path: Path) -> Times:
    """Return the microseconds of each problem's kernels in a dataset."""
    data = read_dataset(path)
    times: Times = {problem: {} for problem in data.problems()}
    for problem, name, ms in zip(data.problem_ids, data.frame["kernel"], data.frame["latency_ms"], strict=True):
        times[data.problems()[problem]][name] = ms * 1e3
    return times


def of_own(times: Times) -> Times:
    """Return the times of Composable Kernel's kernels."""
    return {
        problem: {name: us for name, us in known.items() if parse_kernel(name).library in OWN}
        for problem, known in times.items()
    }


def best_of(times: Mapping[str, float]) -> dict[str, float]:
    """Return the fastest time of each library."""
    best: dict[str, float] = defaultdict(lambda: np.inf)
    for name, us in times.items():
        library = parse_kernel(name).library
        best[library] = min(best[library], us)
    return best


def forest(
    rows: Sequence[tuple[AiterGemm, str, float, float]],
    names: Sequence[str],
    read: Sequence[str],
    family: str | None = None,
) -> Booster:
    """Return trees with these inputs, of which some are read, for rows: problem, library, label, weight.

    With a family, each tree tells it from the others first, so that they score 0 if all of their labels are.
    """
    import lightgbm

    matrix = matrix_of([row[0] for row in rows], [row[1] for row in rows], names, read)
    label, weight = np.array([row[2] for row in rows]), np.array([row[3] for row in rows])
    data = lightgbm.Dataset(matrix, label, weight=weight, feature_name=list(names))
    parameters: dict[str, Any] = {**_TREES, **_FIXED}
    with TemporaryDirectory() as work:
        if family is not None:
            at, code = names.index("family"), list(FAMILIES).index(family)
            split = {"feature": at, "threshold": code - 0.5, "right": {"feature": at, "threshold": code + 0.5}}
            path = Path(work) / "splits.json"
            path.write_text(json.dumps(split))
            parameters |= {"forcedsplits_filename": str(path), "num_leaves": _TREES["num_leaves"] + 2}
        return lightgbm.train(parameters, data, _ROUNDS)


def matrix_of(
    problems: Sequence[AiterGemm], libraries: Sequence[str], names: Sequence[str], read: Sequence[str]
) -> NDArray[np.float64]:
    """Return inputs of libraries for problems; those that are not read are 0."""
    columns: dict[str, Any] = OPERATION.problems.features(problems)
    columns["library"] = np.array(libraries)
    matrix = np.zeros((len(problems), len(names)))
    matrix[:, [names.index(name) for name in read]] = AITER_GEMM.matrix(columns, {}, read)
    return matrix


def in_family(problem: AiterGemm, family: str) -> AiterGemm:
    """Return a problem of another family with the same sizes."""
    return replace(problem, family=family, dtype=FAMILIES[family][0])


def library_trees(times: Times, names: Sequence[str]) -> tuple[Booster, Booster]:
    """Return trees that score CK Tile for problems with times, where CK is 0, and those that lift ASM to the better."""
    others, rows = silent_rows(times), []
    for problem, known in times.items():
        best = best_of(known)
        ratio = abs(np.log(best[CK] / best[CKTILE])) if len(best) > 1 else _ONE_SIDED
        weight, label = min(ratio, _CAP) + _LEAST, 1.0 if best[CKTILE] < best[CK] else -1.0
        rows += [(problem, CK, 0.0, weight), (problem, CKTILE, label, weight)]
    of_tile = forest([*rows, *others], names, READ, TIMED)
    score = np.asarray(of_tile.predict(matrix_of(list(times), [ASM] * len(times), names, READ)))
    lifted = [(problem, ASM, -lost, 1.0) for problem, lost in zip(times, score.clip(max=0).tolist(), strict=True)]
    own = [(problem, name, 0.0, 1.0) for problem in times for name in OWN]
    return of_tile, forest([*lifted, *own, *others], names, READ, TIMED)


def asm_trees(times: Times, names: Sequence[str]) -> Booster:
    """Return trees that score ASM for problems with its times, where the better one of Composable Kernel's is 0."""
    bests = {problem: best for problem, known in times.items() if ASM in (best := best_of(known))}
    rows = silent_rows(bests)
    for problem, best in bests.items():
        gain = np.log(min(best[name] for name in OWN) / best[ASM]) / _CLEAR
        rows += [(problem, name, 0.0, 1.0) for name in OWN]
        rows.append((problem, ASM, float(np.clip(gain, -1, 1)), 1.0))
    return forest(rows, names, READ_OF_ASM, TIMED)


def silent_rows(problems: Iterable[AiterGemm]) -> list[tuple[AiterGemm, str, float, float]]:
    """Return rows of families without times, whose libraries all score 0."""
    return [
        (in_family(problem, other), name, 0.0, _ONE_SIDED)
        for problem in problems
        for other in OTHERS
        for name in (*OWN, ASM)
    ]


def tried_libraries(tables: Dataset) -> list[tuple[str, ...]]:
    """Return the libraries that the tuner of each row's table tried; none where it is not stated."""
    sources = [source for source in tables.metadata["sources"] if "tried" in source]
    stated = {f"{source['name']}:{source['sha256'][:12]}": tuple(source["tried"]["library"]) for source in sources}
    return [stated.get(run, ()) for run in tables.frame["run_id"]]


def contested(tables: Dataset) -> Dataset:
    """Return the rows of tables in which several libraries were tuned."""
    return tables.select(np.array([len(libraries) > 1 for libraries in tried_libraries(tables)], bool))


def table_trees(tables: Dataset, names: Sequence[str]) -> Booster:
    """Return trees that score libraries by the winners of tables in which several were tuned.

    Where times choose between CK and CK Tile, both score alike.
    """
    rows, problems = [], tables.problems()
    for number, won, libraries in zip(
        tables.problem_ids, tables.frame["library"], tried_libraries(tables), strict=True
    ):
        problem = problems[number]
        alike = OWN if problem.family == TIMED and won in OWN else (won,)
        rows += [(problem, name, float(name in alike), 1.0) for name in libraries]
    return forest(rows, names, READ_OF_TABLES)


def kernel_rows(times: Times) -> Iterator[tuple[AiterGemm, Sequence[AiterKernel], list[float]]]:
    """Yield problems with the kernels of their pool, and by how much each of CK Tile is better than their mean.

    Without the times of all of a problem's kernels, the best is better than the others, which are taken as equal.
    Kernels of other libraries, and of families without times, are neither better nor worse.
    """
    for problem, known in times.items():
        pool = [kernel for kernel in kernel_pool(problem.family, CKTILE, ARCH) if not kernel.split_k]
        own = {name: us for name, us in known.items() if parse_kernel(name).library == CKTILE}
        if own:
            least = min(own.values())
            efficiency = np.array([least / own[kernel.name] if kernel.name in own else _UNKNOWN for kernel in pool])
            yield problem, pool, (efficiency - efficiency.mean()).tolist()
            yield problem, (others := kernel_pool(problem.family, f"{CK}_{ASM}", ARCH)), [0.0] * len(others)
    for family in OTHERS:
        for problem in list(times)[::_EVERY]:
            yield in_family(problem, family), (others := kernel_pool(family, ANY, ARCH)), [0.0] * len(others)


def kernel_trees(times: Times, names: Sequence[str]) -> list[str]:
    """Return texts of trees, one for each seed, that score kernels of CK Tile by their times, with these inputs."""
    import lightgbm

    matrices, labels, weights = [], [], list[float]()
    for problem, kernels, label in kernel_rows(times):
        columns: dict[str, Any] = {**OPERATION.kernels.features(kernels, Encoding.on(ARCH))}
        for name, values in OPERATION.problems.features([problem]).items():
            columns[name] = np.repeat(values, len(kernels))
        matrices.append(AITER_GEMM.matrix(columns, {}, names))
        labels += label
        weights += [1.0 if problem.family == TIMED else _SILENT] * len(label)
    texts = []
    for seed in range(_FORESTS):
        data = lightgbm.Dataset(np.concatenate(matrices), labels, weight=weights, feature_name=list(names))
        parameters = {**_TREES, **_FIXED, **_OF_KERNELS, "seed": seed}
        texts.append(str(lightgbm.train(parameters, data, _KERNEL_ROUNDS).model_to_string()))
    return texts


def with_library(models: Sequence[Path], out: Path, times: Times, tables: Dataset) -> None:
    """Write the mean of models of several seeds, on gfx950 with the trees of libraries and of CK Tile's kernels."""
    shutil.copytree(models[0], out)
    spec = json.loads((out / "feature_spec.json").read_bytes())
    text = join_trees([scale_leaves(slim(read_forest(model, "rank")), 1 / len(models)) for model in models])
    more = [] if BLOCKS in spec["feature_names"] else [BLOCKS]
    spec["feature_names"] += more
    names = spec["feature_names"]
    for line, added in (("feature_names", more), ("feature_infos", ["[0:1e9]"] * len(more))):
        text = re.sub(rf"^({line}=.*)$", " ".join([r"\1", *added]), text, flags=re.MULTILINE)
    text = re.sub(r"^max_feature_idx=.*$", f"max_feature_idx={len(names) - 1}", text, flags=re.MULTILINE)
    parts = [text]
    if spec["arch"] == ARCH:
        own = of_own(times)
        if any(len(known) > len(own[problem]) for problem, known in times.items()):
            parts.append(scale_leaves(asm_trees(times, names).model_to_string(), _ASM_SCALE))
        if len(several := contested(tables)):
            parts.append(scale_leaves(table_trees(several, names).model_to_string(), _TABLES_SCALE))
        parts += [scale_leaves(trees.model_to_string(), _SCALE) for trees in library_trees(own, names)]
        parts += [scale_leaves(trees, _KERNEL_SCALE / _FORESTS) for trees in kernel_trees(own, names)]
    joined = join_trees(parts)
    (out / "model_rank.lgbm.gz").write_bytes(gzip.compress(shorten(joined).encode(), mtime=0))
    (out / "feature_spec.json").write_text(json.dumps(spec, indent=1) + "\n")
    if spec["arch"] == ARCH:
        note_learned(out / MANIFEST_NAME, times)


def with_trees_of_others(model: Path, out: Path, held: Dataset, learned: Dataset, times: Times) -> None:
    """Write a model with trees, of these rows, and of times of the layers that held-out rows do not have."""
    layers = set(held.frame[["n", "k"]].itertuples(index=False, name=None))
    others = {problem: known for problem, known in times.items() if (problem.n, problem.k) not in layers}
    with_library([model], out, others, learned)


def note_learned(path: Path, problems: Collection[AiterGemm]) -> None:
    """Add problems to those that a manifest says were learned from, so that `ckh evaluate` leaves them out."""
    manifest = json.loads(path.read_bytes())
    for name, learned in (("problems", problems), ("layers", map(OPERATION.layer, problems))):
        manifest["ckh"][name] = sorted({*manifest["ckh"][name], *map(problem_id, learned)})
    path.write_text(json.dumps(manifest, indent=1) + "\n")


def names_by(model: Path, problems: Sequence[AiterGemm]) -> list[list[str]]:
    """Return the kernels for problems, best first."""
    rankings = rankings_of(problems, load_model(model))
    return [[ranking.pool[at].name for at in ranking.order.tolist()] for ranking in rankings]


def left_out(models: Sequence[Path], times: Times, tables: Dataset) -> dict[AiterGemm, list[str]]:
    """Return the answers for each layer by the mean of models with the trees of the other layers."""
    answers: dict[AiterGemm, list[str]] = {}
    layers = tables.frame[["n", "k"]].to_numpy()
    for layer in sorted({(problem.n, problem.k) for problem in times}):
        own = [problem for problem in times if (problem.n, problem.k) == layer]
        others = {problem: known for problem, known in times.items() if problem not in own}  # in order
        with TemporaryDirectory() as work:
            folder = Path(work) / models[0].name
            with_library(models, folder, others, tables.select((layers != layer).any(axis=1)))
            answers |= dict(zip(own, names_by(folder, own), strict=True))
    return answers


def efficiency(known: Mapping[str, float], answer: Iterable[str], *, each: bool = False) -> float:
    """Efficiency of the first measured kernel, or of the better of the first of each library."""
    first: dict[str, str] = {}
    for name in answer:
        if name in known:
            first.setdefault(parse_kernel(name).library if each else "", name)
    return min(known.values()) / min(known[name] for name in first.values())


def library_of_answer(problem: AiterGemm, times: Times, answer: Sequence[str]) -> float:
    """Efficiency of the first kernel's library, at least.

    A library without a time takes at most as long as for more rows of the layer.
    """
    library = parse_kernel(answer[0]).library
    more = (best_of(known)[library] for other, known in times.items() if _is_above(other, problem))
    return min(1.0, float(min(times[problem].values()) / min(more, default=np.inf)))


def _is_above(other: AiterGemm, problem: AiterGemm) -> bool:
    return (other.n, other.k) == (problem.n, problem.k) and other.m >= problem.m


def judge(times: Times, full: Mapping[AiterGemm, Sequence[str]], show: Callable[[str, Sequence[float]], None]) -> None:
    """Show efficiencies by range of M, and of the library alone."""
    answers = {
        problem: [name for name in answer if parse_kernel(name).library in OWN] for problem, answer in full.items()
    }
    own = of_own(times)
    every = {problem: known for problem, known in own.items() if len(known) > ALL}
    for low, high in (*RANGES, (1, 10**9)):
        inside = [problem for problem in every if low <= problem.m <= high]
        where = f"M {low} to {high}" if high < RANGES[-1][1] else f"M from {low}"
        show(f"both, {where}", [efficiency(every[p], answers[p]) for p in inside])
        show(f"first of each, {where}", [efficiency(every[p], answers[p], each=True) for p in inside])
        for library in OWN:
            of_one = {p: {n: us for n, us in every[p].items() if parse_kernel(n).library == library} for p in inside}
            show(f"{library}, {where}", [efficiency(of_one[p], answers[p]) for p in inside])
    more = [problem for problem in every if len(times[problem]) > len(every[problem])]
    show("over ASM too", [efficiency(times[p], full[p]) for p in more])
    show("CK and CK Tile, over ASM too", [efficiency(times[p], answers[p]) for p in more])
    pairs = [problem for problem, known in own.items() if len(best_of(known)) > 1]
    show("library alone, times of both", [library_of_answer(p, own, answers[p]) for p in pairs])
    for most, few in (("up to", [p for p in own if p.m <= SMALL]), ("above", [p for p in own if p.m > SMALL])):
        show(f"library alone, M {most} {SMALL}", [library_of_answer(p, own, answers[p]) for p in few])
        right = [best_of(own[p])[parse_kernel(answers[p][0]).library] == min(own[p].values()) for p in few]
        show(f"library is right, M {most} {SMALL}", right)


def folds(tables: Dataset, times: Times) -> None:
    """Print the shares of winners whose library, and which themselves, are first, by pool and range of M."""
    options = tables.op.training.defaults(len(tables))
    of_tables, judged = folds_of(tables, FOLDS), contested(tables)
    of_judged = folds_of(judged, FOLDS)
    shares: dict[tuple[Any, ...], list[tuple[bool, ...]]] = defaultdict(list)
    for fold in range(FOLDS):
        held, learned = judged.select(of_judged == fold), tables.select(of_tables != fold)
        with TemporaryDirectory() as work:
            save(train(learned, options, lambda *_: None), Path(work) / "model")
            with_trees_of_others(Path(work) / "model", Path(work) / "both", held, learned, times)
            names = names_by(Path(work) / "both", held.problems())
        frame = contested(learned).frame
        for number, row, tried in zip(
            held.problem_ids, held.frame.to_dict("records"), tried_libraries(held), strict=True
        ):
            like = (
                (frame["family"] == row["family"]) & (frame["num_cus"] == row["num_cus"]) & frame["library"].isin(tried)
            )
            ranked = [name for name in names[number] if parse_kernel(name).library in tried]
            at = ranked.index(row["kernel"]) if row["kernel"] in ranked else len(ranked)
            most = frame["library"][like].mode()
            places = (parse_kernel(ranked[0]).library, CK, most[0] if len(most) else CK)
            hits = (*(place == row["library"] for place in places), at < 1, at < FEW)
            low, high = next(part for part in RANGES if part[0] <= row["m"] <= part[1])
            for where in ("all M", f"M {low} to {high}" if high < RANGES[-1][1] else f"M from {low}"):
                shares[row["family"], row["num_cus"], where].append(hits)
    print("pool, rows: the winner's library is first, is CK, is the most frequent; the winner is first, in five")
    for key, hits_of_rows in sorted(shares.items(), key=str):
        print(*key, len(hits_of_rows), *(f"{share:.3f}" for share in np.mean(hits_of_rows, axis=0)), flush=True)


def main() -> None:
    """Write a model, or judge the trees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--seeds", type=Path, nargs="+", default=[])
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--folds", action="store_true")
    given = parser.parse_args()
    times, tables = times_in(TIMES), read_dataset(given.tables).valid()
    if given.out is not None:
        with_library([given.model, *given.seeds], given.out, times, tables)
    if given.judge:
        judge(
            times,
            left_out([given.model, *given.seeds], times, tables),
            lambda what, of: print(f"{what:40} {len(of):4} mean {np.mean(of):.4f} min {np.min(of):.3f}", flush=True),
        )
    if given.folds:
        folds(tables, times)


if __name__ == "__main__":
    main()
