"""Record of the operation `gemm_universal`.

`JUDGED` is the evaluated accuracy of answers for GEMMs on unmeasured GPUs
(`benchmarks/gemm_winners.py` prints it).
"""

from __future__ import annotations

from collections.abc import Callable
from math import log2
from typing import TYPE_CHECKING, Any, TypeVar

from ckh.kernels.declaration import column_tokens, columns_of
from ckh.kernels.pools import TIMED_NAME
from ckh.ops.base import Kernels, Operation, Problems, TiledSizes, Training, Worth, called, having, lazily
from ckh.ops.gemm_universal.features import (
    GEMM_UNIVERSAL,
    INPUT_COLUMNS,
    KERNEL_COLUMNS,
    from_amd,
    kernel_columns,
    problem_columns,
)
from ckh.ops.gemm_universal.kernel import NAMES, GemmKernel, kernel_name, parse_kernel_name, short_name
from ckh.ops.gemm_universal.kernels.pool import POOLS
from ckh.ops.gemm_universal.kernels.problem_rules import rule_key
from ckh.ops.gemm_universal.problem import (
    GEMM_COLUMNS,
    GEMM_LAYOUTS,
    OP_TYPE,
    GemmProblem,
)
from ckh.schema import Column, dataset_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from ckh.archs import ArchSpec
    from ckh.kernels.pools import Candidates, KernelList
    from ckh.ops.base import Encoding

_PROBLEMS, _ON = 4, "GEMMs in fp16 with the 32 kernels of a tile"
_RANDOM = 0.931

JUDGED = (
    Worth({}, "gfx942", _PROBLEMS, _ON, figures=(0.951, 0.944), interval=(0.945, 0.958), random=_RANDOM),
    Worth(
        *({}, "gfx942", _PROBLEMS, _ON),
        figures=(0.983, 0.954),
        interval=(0.950, 1.0),
        random=_RANDOM,
        source="gfx950",
    ),
)


P = TypeVar("P", bound=GemmProblem)
_ProblemTest = Callable[[GemmProblem], bool]

# Limits of AMD's evaluation, so that figures are comparable.
_SMALL_M, _MEDIUM_M, _LARGE_M = 32, 256, 4096
_MEDIUM_K, _DEEP_K = 512, 4096


# Kind of slice -> slice -> membership test of a problem. Slices of one kind do not overlap.
SLICES: dict[str, dict[str, _ProblemTest]] = {
    "shape": {
        "tiny M": lambda p: p.m < _SMALL_M,
        "small M": lambda p: _SMALL_M <= p.m < _MEDIUM_M,
        "medium M": lambda p: _MEDIUM_M <= p.m < _LARGE_M,
        "large M": lambda p: p.m >= _LARGE_M,
    },
    "depth": {
        "shallow K": lambda p: p.k < _MEDIUM_K,
        "medium K": lambda p: _MEDIUM_K <= p.k < _DEEP_K,
        "deep K": lambda p: p.k >= _DEEP_K,
    },
    "layout": {layout: having("layout", layout) for layout in GEMM_LAYOUTS},
}


_WEIGHT_OF_KIND = 4.0  # another layout counts as much as a factor of 16 in a size


def dataset_of(sizes: Iterable[Column], kind: type[GemmKernel] = GemmKernel) -> tuple[Column, ...]:
    """Return the dataset columns of an operation on matrix products with these sizes and class of kernels."""
    identity = (
        Column("dtype", "string", "", "element type of A and B"),
        Column("layout", "string", "", "of A, B and C: r row-major, c column-major"),
    )
    return dataset_columns(identity, tuple(sizes), columns_of(kind, (*KERNEL_COLUMNS, *own_columns(kind))))


def own_columns(kind: type[GemmKernel]) -> tuple[str, ...]:
    """Return the columns of a class of kernels that `gemm_universal`'s do not have."""
    return tuple(name for name in column_tokens(kind) if name not in KERNEL_COLUMNS)


def problem_of_row(row: Mapping[str, Any], kind: type[P]) -> P:
    """Build a problem of a class from a dataset row."""
    fields: dict[str, Any] = {name: int(row[column]) for column, name in kind.size_columns.items()}
    return kind(**fields | {name: str(row[name]) for name in kind.text_columns})


def _problem_of_row(row: Mapping[str, Any]) -> GemmProblem:
    return problem_of_row(row, GemmProblem)


def identity_columns(problems: Sequence[GemmProblem], kind: type[GemmProblem] = GemmProblem) -> dict[str, list[Any]]:
    """Dataset columns of problems of a class."""
    columns = {name: name for name in kind.text_columns} | kind.size_columns
    return {column: [getattr(problem, name) for problem in problems] for column, name in columns.items()}


def _kernel_columns(kernels: Sequence[GemmKernel], encoding: Encoding) -> dict[str, list[Any]]:
    features = _kernel_features(kernels, encoding)
    columns = ((name, features[name]) for name in KERNEL_COLUMNS)
    return {name: (values if values.dtype.kind == "U" else values.astype(int)).tolist() for name, values in columns}


def _kernel_features(kernels: Sequence[GemmKernel], encoding: Encoding) -> dict[str, Any]:
    """Treat kernels of `mem` as padded where they run every size: on a GPU, and in AMD's data and models."""
    return kernel_columns(kernels, mem_is_padded=encoding.legacy or encoding.is_gpu)


def _mismatch(kernel: GemmKernel, problem: GemmProblem) -> str:
    is_same = (kernel.dtype, kernel.layout) == (problem.dtype, problem.layout)
    return "" if is_same else f"{short_name(kernel)} on {problem.canonical()}"


def _candidates(
    problem: GemmProblem, arch: ArchSpec, model: Path, only: KernelList[GemmKernel] | None = None
) -> Candidates[GemmKernel]:
    return POOLS.candidates(problem, arch, problem.dtype, problem.layout, model=model, only=only)


def _place(problem: GemmProblem) -> list[float]:
    """Logarithms of the sizes, and the letters of the layout."""
    sizes = [log2(size) for size in (problem.m, problem.n, problem.k, problem.split_k)]
    return sizes + [_WEIGHT_OF_KIND * (letter == "r") for letter in problem.layout]


def _tiled(problem: GemmProblem) -> TiledSizes:
    return TiledSizes(problem.m, problem.n, -(-problem.k // problem.split_k), problem.split_k)


def _shaped() -> object:
    from ckh.shapes.layers import Matmul
    from ckh.shapes.shaped import Shaped

    def problem(shape: Matmul, dtype: str) -> GemmProblem:
        return GemmProblem(shape.m, shape.n, shape.k, shape.dtype or dtype, shape.layout)

    def shape(of: GemmProblem) -> Matmul:
        return Matmul(of.m, of.n, of.k, of.dtype, of.layout)

    # Scales of operands are not read by this operation's kernels.
    return Shaped(Matmul, problem, shape, prefers=lambda shape: not (shape.scaling or shape.has_bias))


def _formats() -> object:
    from ckh.data.formats import Formats, MappedTable, Reader
    from ckh.ops.gemm_universal.readers import bench_log, tile_engine_json
    from ckh.ops.gemm_universal.readers import gemm_table as table

    readers = (
        *(Reader(module.NAME, module.sniff, module.read) for module in (tile_engine_json, bench_log)),
        Reader(table.CSV, table.sniff_csv, table.read),
        Reader(table.MASTER, table.sniff_master, table.read),
        Reader(table.PARQUET, table.sniff_parquet, table.read),
    )
    return Formats(readers=readers, mapped=MappedTable(table.GEMMS.columns, table.read_table))


OPERATION = Operation(
    name=OP_TYPE,
    summary="matrix products",
    prefix=GemmProblem.prefix,
    problems=Problems(
        identity=GemmProblem.identity(),
        sizes=tuple(GEMM_COLUMNS),
        parse=GemmProblem.parsed,
        of_row=_problem_of_row,
        columns=identity_columns,
        features=problem_columns,
        slices=SLICES,
        place=_place,
        split_by=GemmProblem.identity(),
        load=called("ckh.ops.gemm_universal.problem_sets:load_problems"),
        set_names=called("ckh.ops.gemm_universal.problem_sets:set_names"),
        batch="m",
        shaped=_shaped,
        requested=lazily("ckh.ops.gemm_universal:REQUESTED"),
        tiled=_tiled,
    ),
    kernels=Kernels(
        type=GemmKernel,
        parse=parse_kernel_name,
        name=kernel_name,
        name_parts=NAMES[GemmKernel].parts,
        other_names=lambda kernel: (short_name(kernel),),
        columns=_kernel_columns,
        features=_kernel_features,
        mismatch=_mismatch,
        candidates=_candidates,
        key_of=rule_key,
        slice_column="pipeline",
        listed=_candidates,
        searched=lazily("ckh.ops.gemm_universal.kernels.search_space:SEARCHED"),
        lists=lazily("ckh.ops.gemm_universal.kernels.amd_lists:LISTS"),
    ),
    training=Training(
        columns=dataset_of(Column(name, "int64", "", f"problem size {name}") for name in GEMM_COLUMNS),
        model_per=("dtype",),
        engine=GEMM_UNIVERSAL,
        input_columns=INPUT_COLUMNS,
        legacy_columns=from_amd,
        model_files={TIMED_NAME: POOLS.timed_file},
        judged=JUDGED,
        formats=_formats,
    ),
    measured=lazily("ckh.ops.gemm_universal.measuring.measured:MEASURED"),
    exported=lazily("ckh.ops.gemm_universal.consumers:EXPORTED"),
    consumers=lazily("ckh.ops.gemm_universal.consumers:CONSUMERS"),
)
