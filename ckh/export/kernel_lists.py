"""`ckh export --to amd-registry`: kernel lists for AMD's tools, also as fallback lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.archs import load_arch
from ckh.errors import DataError, NoKernelError, UsageError
from ckh.export.answered import answered, measured_rows
from ckh.kernels.judging import ProblemRules
from ckh.kernels.lists import ListFormat
from ckh.kernels.table import KernelTable
from ckh.ops import part_of
from ckh.text.log import warn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.kernels.lists import WrittenList
    from ckh.learn.answers.ranking import Ranking
    from ckh.learn.models.choice import Chooser
    from ckh.ops.base import AnyOperation, Kernel, Problem


_LEAST_GAIN = 1e-9


@dataclass(frozen=True, slots=True)
class OrderedList:
    """A fallback list and its efficiency on the problems it was built from."""

    kernels: tuple[int, ...]  # indices of the kernels, in order
    efficiency: float  # mean efficiency of the first applicable kernel; 0 where none applies
    covered: int  # number of problems to which a kernel of the list applies
    single: int  # the best single kernel, with efficiency 0 where it does not apply
    single_efficiency: float  # its mean efficiency


def ordered_list(efficiency: NDArray[np.float64], applies: NDArray[np.bool_], most: int) -> OrderedList:
    """Build a list greedily, each time inserting the kernel and position with the largest gain."""
    reached = np.where(applies, efficiency, 0.0)
    means = reached.mean(axis=0)
    single = int(means.argmax())
    kernels: list[int] = []
    while len(kernels) < most:
        place, kernel, gain = _best_insertion(reached, applies, kernels)
        if gain < _LEAST_GAIN:
            break
        kernels.insert(place, kernel)
        taken = set(_first(applies, kernels).tolist())
        kernels = [kernel for number, kernel in enumerate(kernels) if number in taken]
    result = _speeds(reached, applies, kernels)
    covered = int((_first(applies, kernels) >= 0).sum())
    return OrderedList(tuple(kernels), float(result.mean()), covered, single, float(means[single]))


def _first(applies: NDArray[np.bool_], kernels: list[int]) -> NDArray[np.intp]:
    """Index in the list of the first kernel that applies to each problem, -1 if none does."""
    if not kernels:
        return np.full(len(applies), -1)
    there = applies[:, kernels]
    return np.where(there.any(axis=1), there.argmax(axis=1), -1)


def _speeds(reached: NDArray[np.float64], applies: NDArray[np.bool_], kernels: list[int]) -> NDArray[np.float64]:
    """Efficiency of the list for each problem."""
    first = _first(applies, kernels)
    if not kernels:
        return np.zeros(len(applies))
    taken = np.array(kernels)[np.maximum(first, 0)]
    return np.where(first >= 0, reached[np.arange(len(reached)), taken], 0.0)


def _best_insertion(
    reached: NDArray[np.float64], applies: NDArray[np.bool_], kernels: list[int]
) -> tuple[int, int, float]:
    """Return the position and kernel with the largest gain, and the gain in summed efficiency."""
    first, now = _first(applies, kernels), _speeds(reached, applies, kernels)
    gains = np.where(applies, reached - now[:, None], 0.0)
    # Inserted at a position, a kernel serves the problems to which no earlier kernel applies.
    is_free = np.stack([(first < 0) | (first >= place) for place in range(len(kernels) + 1)])
    total = is_free.astype(np.float64) @ gains
    place, kernel = divmod(int(total.argmax()), total.shape[1])
    return place, kernel, float(total[place, kernel])


TARGET = "amd-registry"
_TOP = 5  # kernels of each problem
_MOST = 64  # of a fallback list
_HOW_TO = """# Kernels for AMD's tools

{rows}

- A registry is read by `GroupedConvRegistry.from_json` of CK's dispatcher, or lists GEMMs as `export_registry_json` of
  the dispatcher does. The Python reader of convolutions takes no double buffer, split image, two stages,
  specialization or padding from a registry: {lost} of the {count} kernels here have such an option, which is in their
  names alone.
- A configuration is for the tile engine's instance builder, which builds the product of its values: the smallest one
  that has all of these kernels.
- `--registry` of ckh's commands reads both.
"""
_ORDERED = """
The registries are fallback lists: of the kernels in this order, the first that applies to a problem is taken. It is
what the dispatcher's FirstFit does where kernels are registered in this order.

| | mean efficiency on {problems} problems ({basis}) |
|---|---|
| this list, {kernels} kernels | {efficiency:.1%} |
| the best single kernel of each direction, element type and layout | {single_efficiency:.1%} |
| the best kernel of each problem | {oracle:.1%} |

The list was made of these problems: of others it is worth less.
"""


@dataclass(frozen=True, slots=True)
class RegistryWanted:
    """Options that select the kernels."""

    problems: str | None  # a set or file
    data: Sequence[Path]  # measured rows
    registry: Path | None  # a list of kernels
    top: int | None  # kernels of each problem, or of a fallback list; None: the default
    is_ordered: bool  # whether to make a fallback list
    name: str  # name of the list


@dataclass(frozen=True, slots=True, eq=False)
class _Speeds:
    """Efficiency of kernels on problems, shape (problems, kernels), with the mask of applicable ones."""

    problems: Sequence[Problem]
    kernels: tuple[Kernel, ...]
    efficiency: NDArray[np.float64]
    applies: NDArray[np.bool_]
    basis: str


def registry_files(chooser: Chooser, wanted: RegistryWanted) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Make the files, and the description of their contents for JSON."""
    lists = part_of(chooser.op, chooser.op.kernels.lists, ListFormat)
    if lists is None:
        raise UsageError(
            f"AMD's registries have no kernels of {chooser.op.name}",
            "omit --op or name another",
            code="unsupported",
        )
    arch = load_arch(chooser.arch)
    ordered: dict[str, Any] | None = None
    if wanted.registry is not None:
        kernels = _of_file(wanted.registry, chooser.op, arch, chooser.dtype)
    elif wanted.is_ordered:
        speeds = _measured(chooser, wanted, lists, arch) if wanted.data else _predicted(chooser, wanted)
        kernels, ordered = _ordered(speeds, wanted.top or _MOST, chooser.op)
    else:
        rankings = _answers(chooser, str(wanted.problems))
        best = (ranked.kernel for ranking in rankings for ranked in ranking.best(wanted.top or _TOP))
        kernels = tuple(dict.fromkeys(best))
    files = lists.write(kernels, arch, wanted.name)
    if ordered is not None:  # a configuration is a Cartesian product, which has no order
        files = {name: file for name, file in files.items() if file.form == "registry"}
    names = [chooser.op.kernels.name(kernel) for kernel in kernels]
    report = {
        "to": TARGET,
        "op_type": chooser.op.name,
        "arch": arch.name,
        "kernels": names,
        "described": {name: {"form": file.form, "kernels": file.kernels} for name, file in files.items()},
        "ordered": ordered,
    }
    made = {name: file.content for name, file in files.items()}
    return made | {"README.md": _readme(files, kernels, ordered).encode()}, report


def _readme(files: dict[str, WrittenList], kernels: Sequence[Any], ordered: dict[str, Any] | None) -> str:
    rows = ["| file | form | kernels |", "|---|---|---|"]
    rows += [f"| `{name}` | {file.form} | {file.kernels} |" for name, file in files.items()]
    text = _HOW_TO.format(rows="\n".join(rows), count=len(kernels), lost=sum(map(_is_lost, kernels)))
    if ordered is None:
        return text
    return text + _ORDERED.format(**{**ordered, "kernels": len(kernels)})


def _is_lost(kernel: Any) -> bool:
    """True if a convolution kernel has an option without a field in the registry."""
    flags = ("double_smem_buffer", "split_image", "two_stage", "explicit_gemm", "streamk")
    is_special = getattr(kernel, "specialization", "default") != "default"
    return is_special or any(getattr(kernel, flag, False) for flag in flags)


def _of_file(path: Path, op: AnyOperation, arch: ArchSpec, dtype: str) -> tuple[Kernel, ...]:
    from ckh.bench.planning.registry import read_registry

    registry = read_registry(path, op)
    registry.require(arch.name)
    kernels = registry.built(arch, dtype)
    if not kernels:
        raise NoKernelError(f"{path} describes no kernel that {arch.name} builds for {dtype}")
    return tuple(kernels)


def _answers(chooser: Chooser, source: str) -> list[Ranking]:
    """Rankings of the problems with applicable kernels."""
    rankings = list(answered(chooser, chooser.load_problems(source, None, None)))
    failures = [failure for ranking in rankings if (failure := ranking.failure)]
    if failures and len(failures) == len(rankings):
        raise failures[0]
    if failures:
        warn(
            f"{len(failures)} of {len(rankings)} problems have no kernel and are left out; {failures[0].message}",
            "no-kernel",
        )
    return [ranking for ranking in rankings if len(ranking.order)]


def _ordered(speeds: _Speeds, most: int, op: AnyOperation) -> tuple[tuple[Kernel, ...], dict[str, Any]]:
    """Fallback lists of each kind of problem (direction, element type, layout), joined, and their efficiency."""
    columns = op.problems.columns(speeds.problems)
    kinds = list(zip(*(columns[name] for name in op.problems.identity if name not in op.problems.sizes), strict=True))
    kernels: list[Kernel] = []
    singles: list[str] = []
    totals = np.zeros(3)
    for kind in dict.fromkeys(kinds):
        rows = np.array([item == kind for item in kinds])
        result = ordered_list(speeds.efficiency[rows], speeds.applies[rows], most)
        kernels += [speeds.kernels[number] for number in result.kernels]
        singles.append(op.kernels.name(speeds.kernels[result.single]))
        totals += rows.sum() * np.array([result.efficiency, result.single_efficiency, result.covered / rows.sum()])
    efficiency, single, covered = (totals / len(kinds)).tolist()
    return tuple(kernels), {
        "problems": len(kinds),
        "covered": round(covered * len(kinds)),
        "basis": speeds.basis,
        "efficiency": efficiency,
        "single_kernels": singles,
        "single_efficiency": single,
        "oracle": float(np.where(speeds.applies, speeds.efficiency, 0.0).max(axis=1).mean()),
    }


def _predicted(chooser: Chooser, wanted: RegistryWanted) -> _Speeds:
    """Predicted efficiencies."""
    result = _answers(chooser, str(wanted.problems))
    columns: dict[Kernel, int] = {}
    column_of: dict[int, NDArray[np.intp]] = {}
    for ranking in result:
        if ranking.tflops is None or not np.isfinite(ranking.tflops).all():
            raise DataError(
                f"{ranking.model.path.name} predicts no speed of {ranking.problem.canonical()}",
                "name measured rows with --data",
                code="no-speed",
            )
        if id(ranking.pool) not in column_of:
            column_of[id(ranking.pool)] = np.array(
                [columns.setdefault(kernel, len(columns)) for kernel in ranking.pool]
            )
    efficiency = np.zeros((len(result), len(columns)))
    applies = np.zeros(efficiency.shape, np.bool_)
    for row, ranking in enumerate(result):
        assert ranking.tflops is not None
        places = column_of[id(ranking.pool)][ranking.order]
        applies[row, places] = True
        efficiency[row, places] = ranking.tflops / ranking.tflops.max()
    return _Speeds([item.problem for item in result], tuple(columns), efficiency, applies, "predicted, not measured")


def _measured(chooser: Chooser, wanted: RegistryWanted, lists: ListFormat, arch: ArchSpec) -> _Speeds:
    """Measured efficiencies; unmeasured and failed kernels have none."""
    from ckh.assess.times import judged, times_of

    dataset = judged(measured_rows(wanted.data, chooser.op, arch.name))
    problems = list(dataset.problems())
    if wanted.problems is not None:
        asked = set(chooser.load_problems(wanted.problems, None, None))
        numbers = np.array([number for number, problem in enumerate(problems) if problem in asked], np.intp)
        if not len(numbers):
            raise DataError(f"none of {wanted.problems} was measured in --data", "omit --problems", code="not-measured")
        dataset = dataset.select(np.isin(dataset.problem_ids, numbers))
        problems = list(dataset.problems())
    if strange := set(dataset.frame["arch"].astype(str)) - {arch.name}:
        raise DataError(
            f"the rows of --data are of {', '.join(sorted(strange))}, not {arch.name}", "add --arch", code="mixed-data"
        )
    rows = dataset.frame["kernel"].astype(str).to_numpy()
    kernel_of = _complete(chooser, problems, set(rows.tolist()))
    kernels = tuple(dict.fromkeys(kernel_of.values()))
    if not kernels:
        raise DataError(
            "no kernel of --data has a complete name or is in the pool",
            "its names omit parameters",
            code="unknown-kernel",
        )
    if unknown := set(rows.tolist()) - set(kernel_of):
        count = len(unknown) + len(kernel_of)
        warn(
            f"{len(unknown)} of {count} kernels of --data are left out: their short names are not unique in the pool",
            "unknown-kernel",
        )
    column = {kernel: number for number, kernel in enumerate(kernels)}
    times = times_of(dataset)
    oracle = times.oracle_ms()
    efficiency = np.zeros((len(problems), len(kernels)))
    for name, problem, latency in zip(rows, dataset.problem_ids.tolist(), times.latency_ms.tolist(), strict=True):
        if name in kernel_of:
            place = problem, column[kernel_of[name]]
            efficiency[place] = max(efficiency[place], oracle[problem] / latency)
    applies = np.zeros(efficiency.shape, np.bool_)
    rules = ProblemRules(lists.rules.problem, KernelTable.of(chooser.op.kernels.type, kernels), arch)
    for row, problem in enumerate(problems):
        mine = [number for number, kernel in enumerate(kernels) if not chooser.op.kernels.mismatch(kernel, problem)]
        applies[row, np.intersect1d(rules.judge(problem)[0], mine)] = True
    return _Speeds(problems, kernels, efficiency, applies, "measured")


def _complete(chooser: Chooser, problems: Sequence[Problem], names: set[str]) -> dict[str, Kernel]:
    """Kernels by name: complete names, and abbreviations that are unique in the pool."""
    from ckh.learn.answers.batches import known_candidates

    op = chooser.op
    by_name: dict[str, set[Kernel]] = {}
    pools = {op.kernels.key_of(problem): problem for problem in problems}
    for problem in pools.values():
        pool = known_candidates(problem, chooser.model(problem, stands_in=True)).pool
        for kernel in pool:
            for name in (op.kernels.name(kernel), *op.kernels.other_names(kernel)):
                if name in names:
                    by_name.setdefault(name, set()).add(kernel)
    result = {name: next(iter(some)) for name, some in by_name.items() if len(some) == 1}
    for name in names - set(result):
        kernel = op.kernels.parse(name)
        if getattr(kernel, "is_complete", False):
            result[name] = kernel
    return result
