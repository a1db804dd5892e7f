"""Tuned tables for AITER, of shapes without tuning; predicted rows are separate from measured ones.

A shape for which AITER finds a measured row, padded or not, gets no predicted row, whether that row is in `--data` or
in the tables of the installed AITER. All other shapes get the best-ranked kernel that AITER builds.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.errors import DataError, NoKernelError
from ckh.export.consumers import ChoiceTable, Consumers, WrittenChoices
from ckh.export.groups import DTYPE, Code, Exported, ProblemKind, ruled_group
from ckh.ops.aiter_gemm.consumers.checking import check_tables
from ckh.ops.aiter_gemm.consumers.own_tables import (
    chosen,
    environment,
    how_to,
    kept_row,
    own_table,
    pads_rows,
    picked_gemms,
    row_above_all,
    written_row,
)
from ckh.ops.aiter_gemm.kernel import parse_kernel
from ckh.ops.aiter_gemm.kernels.installed import InstalledKernel, installed_kernels
from ckh.ops.aiter_gemm.kernels.pool import NUMBERED_BY, RULES, kernel_numbers, kernel_pool
from ckh.ops.aiter_gemm.problem import BATCHED, FAMILIES, FBGEMM, GROUPED, LIBRARIES, SIZES, AiterGemm, has_pool
from ckh.ops.aiter_gemm.readers.tuned_csv import (
    KEY,
    VARIABLES,
    TunedLine,
    by_family,
    columns_of,
    key_cells,
    looked_up,
    table_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ckh.data.dataset import Dataset
    from ckh.export.consumers import Choices
    from ckh.export.groups import Group
    from ckh.learn.answers.ranking import Ranking
    from ckh.learn.models.artifact import Model
    from ckh.ops.aiter_moe.problem import AiterMoe

# No winner of AMD's tables is slower than this factor times the roofline time plus this offset
# (tests/ops/aiter_gemm/test_consumed.py checks all shipped winners).
SLOWEST, ADDED_US = 250.0, 10.0
_HOW_TO = """
- `measured/` has measured times of the shapes, in AITER's own columns.
- `predicted/` has choices of a model: nobody measured them. The column `predicted` says so, in `merged/` too, and `us`
  is a bound from above, not a time.
- `kernelId` is {ids}.
"""


@dataclass(slots=True)
class _Measured:
    """Measured winners by the key without M, then by M; and all measured times of a kernel on a layer by M."""

    rows: dict[tuple[Any, ...], dict[int, TunedLine]] = field(default_factory=lambda: defaultdict(dict))
    times: dict[tuple[Any, ...], list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))

    def found(self, arch: str, problem: AiterGemm) -> TunedLine | None:
        """Return the row of a shape."""
        return self.rows.get(_layer(arch, problem), {}).get(problem.m)

    def at_most_us(self, arch: str, problem: AiterGemm, kernel: str) -> float | None:
        """Minimum measured time of a kernel for at least this many rows of the layer: an upper bound for this shape."""
        known = self.times.get((*_layer(arch, problem), kernel), [])
        return min((time for m, time in known if m >= problem.m), default=None)


def roofline_us(problem: AiterGemm | AiterMoe, arch: str) -> float:
    """Return the minimum time that a device's peak rates allow, in microseconds."""
    times = load_arch(arch).shortest_s(problem.dtype, problem.bytes, problem.flops, problem.num_cus)
    if times is None:
        raise DataError(f"unknown peak rates of {arch} for {problem.dtype}", code="unknown-hardware")
    return max(times) * 1e6


def write_tables(choices: Choices) -> WrittenChoices:
    """Write the tables for the problems of answers; problems without a kernel are listed as missing."""
    measured = _measured(choices.measured)
    lines: dict[tuple[Any, ...], TunedLine] = {}

    def choose(answer: Ranking) -> dict[str, Any]:
        line, basis = _kept(answer, measured, choices) or _predicted(answer, measured, choices.installed)
        if not isinstance(line, TunedLine):
            return kept_row(answer, line, line["kernelName"], basis)
        known = lines.setdefault(line.key, line)
        if known.kernel != line.kernel:
            raise DataError(
                f"{known.problem.canonical()} is a duplicate row for AITER",
                "choose one library for a shape",
                code="duplicate-rows",
            )
        return written_row(answer, line, basis)

    rows, missing = chosen(choices.answers, choose)
    files = {
        f"{'predicted' if is_predicted else 'measured'}/{family}_tuned_gemm.csv": table_text(some).encode()
        for is_predicted in (False, True)
        for family, some in by_family(line for line in lines.values() if line.is_predicted == is_predicted).items()
    }
    variables = {}
    for family, some in by_family(lines.values()).items():
        name = f"{family}_tuned_gemm"
        paths = [path for path in files if path.endswith(f"/{name}.csv")]
        variables[VARIABLES[family]] = environment(name, paths, is_merged=choices.installed is not None)
        if choices.installed is not None:
            own = own_table(choices.installed, name, KEY)
            files[f"merged/{name}.csv"] = own.merged(some, columns_of(family)).encode()
    numbered_by = NUMBERED_BY if choices.installed is None else f"that of the AITER in {choices.installed}"
    return WrittenChoices(
        files,
        tuple(rows.values()),
        how_to(variables, choices.installed, _HOW_TO.format(ids=numbered_by)),
        missing,
        variables,
    )


def _kept(answer: Ranking, measured: _Measured, choices: Choices) -> tuple[TunedLine | Mapping[str, str], str] | None:
    """Return the measured row that AITER finds for a problem: of --data or its own, the faster if both have it."""
    arch, problem, root = answer.model.spec.arch, _problem(answer), choices.installed
    own = None if root is None or choices.replaces else own_table(root, f"{problem.family}_tuned_gemm", KEY)
    for m in looked_up(problem) if pads_rows(root, problem.family) else (problem.m,):
        padded = replace(problem, m=m)
        row, kept = measured.found(arch, padded), None if own is None else own.find(key_cells(arch, padded))
        at = "" if m == problem.m else f" at M={m}"
        if row is not None and (kept is None or row.time_us < float(kept["us"])):
            return replace(row, built_as=_built(row.kernel, row.problem, root)), "measured" + at
        if kept is not None:
            return kept, at
    largest = None if own is None else row_above_all(own, root, key_cells(arch, problem))
    return None if largest is None else (largest, f" at M={largest['M']}")


def _predicted(answer: Ranking, measured: _Measured, root: Path | None) -> tuple[TunedLine, str]:
    """Return the row of the best-ranked kernel that AITER builds, and the basis of its time."""
    arch, problem = answer.model.spec.arch, _problem(answer)
    if problem.library == FBGEMM:
        raise NoKernelError(f"AITER has no kernels of FBGEMM: {problem.canonical()}")
    if answer.failure is not None:
        raise answer.failure
    names = None if root is None else installed_kernels(root, problem.family, problem.library)
    kernel = next(
        (candidate.name for candidate in answer.ranked if names is None or parse_kernel(candidate.name).base in names),
        None,
    )
    if kernel is None:
        raise NoKernelError(f"AITER in {root} has no kernel for {problem.canonical()}")
    bound = measured.at_most_us(arch, problem, kernel)
    time_us = SLOWEST * (roofline_us(problem, arch) + ADDED_US) if bound is None else bound
    basis = "bounded by the slowest of all winners" if bound is None else "bounded by a measured time"
    built = _built(kernel, problem, root)
    return TunedLine(arch, problem, kernel, time_us, is_predicted=True, built_as=built), basis


def _built(kernel: str, problem: AiterGemm, root: Path | None) -> InstalledKernel:
    """Return name and number of a kernel in the installed AITER, or in the shipped list."""
    base = parse_kernel(kernel).base
    if root is None:
        if base not in kernel_numbers():
            raise DataError(
                f"the number of {base} differs between versions of AITER",
                "name yours with --installed AITER",
                code="aiter-version",
            )
        return InstalledKernel(base, kernel_numbers()[base])
    names = installed_kernels(root, problem.family, problem.library)
    if base not in names:
        raise DataError(
            f"AITER in {root} has no kernel {base}, which {problem.canonical()} was measured with",
            code="unknown-kernel",
        )
    return names[base]


def _measured(dataset: Dataset | None) -> _Measured:
    measured = _Measured()
    if dataset is None:
        return measured
    usable = dataset.valid()
    problems = usable.problems()
    columns = (usable.frame[name].tolist() for name in ("arch", "kernel", "latency_ms"))
    for number, arch, kernel, latency_ms in zip(usable.problem_ids.tolist(), *columns, strict=True):
        problem: AiterGemm = problems[number]
        line = TunedLine(arch, problem, kernel, latency_ms * 1e3, is_predicted=False)
        layer = _layer(arch, problem)
        rows = measured.rows[layer]
        if problem.m not in rows or line.time_us < rows[problem.m].time_us:
            rows[problem.m] = line
        measured.times[layer + (kernel,)].append((problem.m, line.time_us))  # noqa: RUF005 - Python 3.10
    return measured


def _layer(arch: str, problem: AiterGemm) -> tuple[Any, ...]:
    return arch, problem.family, problem.dtype, problem.num_cus, problem.n, problem.k


def _problem(answer: Ranking) -> AiterGemm:
    problem: Any = answer.problem
    aiter_gemm: AiterGemm = problem
    return aiter_gemm


CONSUMERS = Consumers(
    tables=(ChoiceTable("aiter", "tuned tables for a list of shapes", write_tables, check_tables, picked=picked_gemms),)
)


_FAMILIES = tuple(name for name in FAMILIES if name not in (*BATCHED, *GROUPED))  # C's struct has no groups
KIND = ProblemKind(
    "aiter_gemm",
    2,
    "a GEMM of AITER: M tokens, B of N x K; `num_cus` compute units must be stated.",
    (
        DTYPE,
        Code("family", "family", 2, _FAMILIES, "CKH_AITER_", "CKH_AITER_FAMILIES", added=1),
        Code("library", "library", 3, LIBRARIES, "CKH_AITER_", "CKH_AITER_LIBRARIES"),
    ),
    SIZES,
    AiterGemm,
    {"m": 16, "n": 7168, "k": 2048, "num_cus": 256},
)


def _groups(model: Model) -> Iterator[Group]:
    arch = load_arch(model.spec.arch)
    for family in _FAMILIES:
        for library in LIBRARIES:
            for dtype in (item for item in FAMILIES[family] if has_pool(family, library, item)):
                example = AiterGemm(1, 1, 1, family, dtype, library, num_cus=1)
                yield ruled_group(KIND, example, kernel_pool(family, library, arch.name), RULES, arch)


EXPORTED = Exported(KIND, _groups)
