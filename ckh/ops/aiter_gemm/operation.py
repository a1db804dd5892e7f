"""Record of the operation `aiter_gemm`, and its features: kernels are AITER's, measured by others; nothing is emitted.

`JUDGED` is the evaluated accuracy of answers for AITER's GEMMs by another GPU's model
(`benchmarks/transfer.py` prints it).
"""

from __future__ import annotations

from dataclasses import replace
from math import isnan, log2
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Columns, Feature, FeatureEngine, fill, log2_of, pieces, ratio, raw
from ckh.kernels.table import column_of
from ckh.ops.aiter_gemm.kernel import NUMBERS, AiterKernel, candidates, candidates_key, parse_kernel
from ckh.ops.aiter_gemm.problem import (
    CK,
    CKTILE,
    FAMILIES,
    GROUPED,
    GROUPS,
    IDENTITY,
    LIBRARIES,
    OP_TYPE,
    PREFIX,
    SIZES,
    AiterGemm,
    parse_aiter_gemm,
)
from ckh.ops.base import Kernels, Measure, Operation, Problems, Training, Worth, called, having, lazily
from ckh.problems import DTYPE_BYTES
from ckh.schema import GROUPS as GROUPS_COLUMN
from ckh.schema import Column, dataset_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ckh.ops.base import Encoding
    from ckh.training import TrainOptions

    Formula = Callable[[Columns], Any]

# Source and target -> family, library, problems, shares of winners ranked first and in the top five, and the 95 %
# interval of the former.
_HITS = {
    ("gfx942", "gfx950"): (
        ("a4w4_blockscale", CK, 218, (0.234, 0.711), (0.171, 0.312)),
        ("a8w8", CK, 490, (0.439, 0.706), (0.370, 0.510)),
        ("a8w8_blockscale", CK, 1546, (0.541, 0.856), (0.487, 0.598)),
        ("a8w8_blockscale", CKTILE, 345, (0.032, 0.296), (0.012, 0.056)),
        ("a8w8_blockscale_bpreshuffle", CK, 1263, (0.528, 0.767), (0.471, 0.583)),
        ("a8w8_blockscale_bpreshuffle", CKTILE, 262, (0.134, 0.378), (0.085, 0.185)),
        ("a8w8_bpreshuffle", CK, 627, (0.284, 0.531), (0.240, 0.333)),
        ("a8w8_bpreshuffle", CKTILE, 305, (0.102, 0.403), (0.063, 0.145)),
    ),
    ("gfx950", "gfx942"): (
        ("a8w8", CK, 424, (0.399, 0.745), (0.336, 0.467)),
        ("a8w8_blockscale", CK, 1653, (0.500, 0.855), (0.450, 0.547)),
        ("a8w8_blockscale_bpreshuffle", CK, 566, (0.274, 0.511), (0.191, 0.368)),
        ("a8w8_bpreshuffle", CK, 1086, (0.141, 0.398), (0.110, 0.172)),
        ("a8w8_bpreshuffle", CKTILE, 401, (0.145, 0.354), (0.098, 0.193)),
    ),
}


JUDGED = tuple(
    Worth(
        of={"family": family, "library": library},
        target=target,
        problems=problems,
        on=f"GEMMs of {family} by {library}",
        figures=hits,
        interval=interval,
        measure=Measure.HITS,
        source=source,
    )
    for (source, target), pools in _HITS.items()
    for family, library, problems, hits, interval in pools
)

_UNKNOWN = -1.0
_CODES: dict[str, dict[str, float]] = {
    "family": {name: float(code) for code, name in enumerate(FAMILIES)},
    "library": {name: float(code) for code, name in enumerate(LIBRARIES)},
    "dtype": {"fp8": 0.0, "int8": 1.0, "pk_fp4": 2.0, "bf16": 3.0},
}
_IS_GROUPED = dict.fromkeys(GROUPED, 1.0)
_GRIDS = (32, 64, 128, 256)  # widths of tiles whose number along N is a feature
_MOST_DIVISOR = 4096.0


def _code(name: str) -> Formula:
    return lambda c: c.codes(name, _CODES[name], _UNKNOWN)


def _divisor(name: str) -> Formula:
    """Base-2 logarithm of the largest power of two that divides a size."""

    def formula(c: Columns) -> Any:
        whole = c[name].astype(np.int64)
        return np.log2(np.minimum(whole & -whole, _MOST_DIVISOR))

    return formula


def _products(c: Columns) -> Any:
    """Products of a launch: 1 unless batched or grouped."""
    return np.maximum(np.where(np.isnan(c[GROUPS]), 0.0, c[GROUPS]), 1)


def _rows_of_product(c: Columns) -> Any:
    """Rows of each product: of grouped ones the mean, as only their sum is known."""
    return np.where(c.codes("family", _IS_GROUPED, 0.0) > 0, c["m"] / c["products"], c["m"])


def _grid(width: int) -> Formula:
    return lambda c: np.ceil(c["n"] / width) / c["cus"]


# Quantities shared by several features. `split_k` is a power of two.
_DERIVED: dict[str, Formula] = {
    "cus": lambda c: np.maximum(c["num_cus"], 1),
    "parts": lambda c: np.exp2(c["split_k"]),
    "k_of_part": lambda c: c["k"] / c["parts"],
    "products": _products,
    "rows": _rows_of_product,
    "tiles_m": pieces("rows", "tile_m"),
    "tiles_n": pieces("n", "tile_n"),
    "tiles": lambda c: c["products"] * c["tiles_m"] * c["tiles_n"],
    "workgroups": lambda c: c["tiles"] * c["parts"],
    "waves": lambda c: c["workgroups"] / c["cus"],
    "rounds": lambda c: np.ceil(c["waves"]),
    "sides": lambda c: c["tile_m"] + c["tile_n"],
    "area": lambda c: c["tile_m"] * c["tile_n"],
    "weight": lambda c: c["n"] * c["k"],
    "element_bytes": lambda c: c.codes("dtype", DTYPE_BYTES, _UNKNOWN),
}

_PROBLEM_FEATURES = (
    *(Feature(name, "category", _code(name)) for name in _CODES),
    Feature("m", "rows", raw("m")),
    Feature("num_cus", "CUs", raw("num_cus")),
    *(Feature(f"log2_{name}", "log2", log2_of(name)) for name in ("m", "n", "k", "weight")),
    Feature("log2_n_by_k", "log2", lambda c: np.log2(c["n"] / c["k"])),
    Feature("log2_n_by_cu", "log2", lambda c: np.log2(c["n"] / c["cus"])),
    *(Feature(f"n_{width}_by_cu", "tiles/CU", _grid(width)) for width in _GRIDS),
    *(Feature(f"divisor_{name}", "log2", _divisor(name)) for name in ("m", "n", "k")),
    Feature("log2_products", "log2", log2_of("products")),
    Feature("log2_rows_of_product", "log2", log2_of("rows")),
)
_KERNEL_FEATURES = (
    *(Feature(name, "", raw(name)) for name in NUMBERS),
    Feature("log2_area", "log2", log2_of("area")),
    Feature("lds_bytes", "bytes", lambda c: c["sides"] * c["tile_k"] * c["element_bytes"]),
    Feature("log2_tile_m_by_n", "log2", lambda c: np.log2(c["tile_m"] / c["tile_n"])),
)
_BOTH_FEATURES = (
    Feature("log2_tiles", "log2", log2_of("tiles")),
    Feature("log2_workgroups", "log2", log2_of("workgroups")),
    Feature("waves", "workgroups/CU", raw("waves")),
    Feature("last_round_fill", "", ratio("waves", "rounds")),
    Feature("busy_cus", "", lambda c: np.minimum(c["waves"], 1)),
    Feature("fill_m", "", fill("rows", "tile_m")),
    Feature("fill_n", "", fill("n", "tile_n")),
    Feature("fill_k", "", fill("k_of_part", "tile_k")),
    Feature("steps_k", "", pieces("k_of_part", "tile_k")),
    Feature("m_by_tile", "", lambda c: c["rows"] / c["tile_m"]),
    Feature("n_by_tile", "", lambda c: c["n"] / c["tile_n"]),
    Feature("log2_work_of_cu", "log2", lambda c: np.log2(c["rounds"] * c["area"] * c["k_of_part"])),
    Feature("log2_loads_of_cu", "log2", lambda c: np.log2(c["rounds"] * c["sides"] * c["k_of_part"])),
    Feature("log2_loads", "log2", lambda c: np.log2(c["tiles"] * c["sides"] * c["k"])),
)

AITER_GEMM = FeatureEngine(
    op_type=OP_TYPE,
    features=(*_PROBLEM_FEATURES, *_KERNEL_FEATURES, *_BOTH_FEATURES),
    categorical=(),
    derived=_DERIVED,
    defaults={GROUPS: 0.0},
    kernel_columns=frozenset(NUMBERS),
)

_TEXTS = {
    "family": "how operands are scaled and shuffled",
    "library": "pool of kernels: ck, cktile or fbgemm",
    "dtype": "element type of A and B",
}
_WEIGHT_OF_KIND = 4.0  # another family counts as much as a factor of 16 in a size
_DECODE_M, _MEDIUM_M = 64, 1024


def _columns() -> tuple[Column, ...]:
    identity = tuple(Column(name, "string", "", meaning) for name, meaning in _TEXTS.items())
    sizes = tuple(
        Column(name, "int64", "", "compute units" if name == "num_cus" else f"problem size {name}") for name in SIZES
    )
    kernel = (
        Column("pipeline", "string", "", "the kernel's pipeline"),
        *(Column(name, "int64", "", f"kernel parameter {name}") for name in NUMBERS),
    )
    return dataset_columns(identity, (*sizes, GROUPS_COLUMN), kernel)


def _problem_of_row(row: Mapping[str, Any]) -> AiterGemm:
    fields: dict[str, Any] = {name: int(row[column]) for column, name in SIZES.items()}
    fields |= {name: str(row[name]) for name in _TEXTS}
    groups = row.get(GROUPS)
    fields[GROUPS] = 0 if groups is None or isnan(groups) else int(groups)
    return AiterGemm(**fields)


def _problem_columns(problems: Sequence[AiterGemm]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [getattr(problem, name) for problem in problems] for name in IDENTITY}
    return columns | {GROUPS: [problem.groups or None for problem in problems]}


def _problem_features(problems: Sequence[AiterGemm]) -> dict[str, Any]:
    columns = {name: np.array(values) for name, values in _problem_columns(problems).items()}
    return {name: column.astype(np.float64) if name in (*SIZES, GROUPS) else column for name, column in columns.items()}


def _kernel_columns(kernels: Sequence[AiterKernel], _encoding: Encoding) -> dict[str, list[Any]]:
    numbers = {name: [getattr(kernel, name) for kernel in kernels] for name in NUMBERS}
    return {"pipeline": [kernel.pipeline for kernel in kernels], **numbers}


def _mismatch(kernel: AiterKernel, problem: AiterGemm) -> str:
    serves = kernel.family == problem.family or (
        kernel.library != "ck" and problem.family.startswith(kernel.family + "_")
    )
    return "" if serves and kernel.library == problem.library else f"{kernel.name} on {problem.canonical()}"


def _place(problem: AiterGemm) -> list[float]:
    """Logarithms of the sizes, and the family and library."""
    sizes = [log2(max(size, 1)) for size in (problem.m, problem.n, problem.k, problem.num_cus, problem.groups)]
    kinds = [*(problem.family == name for name in FAMILIES), problem.library == "ck"]
    return sizes + [_WEIGHT_OF_KIND * is_kind for is_kind in kinds]


def _train_defaults(_rows: int) -> TrainOptions:
    """Training options, as evaluated by `benchmarks/aiter_folds.py`."""
    from ckh.training import PLAIN_TREES, winner_options

    params = replace(PLAIN_TREES, n_estimators=150, learning_rate=0.1, num_leaves=63, colsample_bytree=0.5)
    return replace(winner_options(), params=params)


OPERATION = Operation(
    name=OP_TYPE,
    summary="AITER's quantised matrix products, from its tuned tables",
    prefix=PREFIX,
    problems=Problems(
        identity=IDENTITY,
        sizes=tuple(SIZES),
        parse=parse_aiter_gemm,
        of_row=_problem_of_row,
        columns=_problem_columns,
        features=_problem_features,
        slices={
            "family": {name: having("family", name) for name in FAMILIES},
            "library": {name: having("library", name) for name in LIBRARIES},
            "rows": {
                f"M up to {_DECODE_M}": lambda p: p.m <= _DECODE_M,
                f"M up to {_MEDIUM_M}": lambda p: _DECODE_M < p.m <= _MEDIUM_M,
                "large M": lambda p: p.m > _MEDIUM_M,
            },
        },
        place=_place,
        split_by=("n", "k"),
        load=called("ckh.ops.aiter_gemm.problem_files:load_problems"),
        set_names=tuple,
        shaped=lazily("ckh.ops.aiter_gemm.problem_files:SHAPED"),
        requested=lazily("ckh.ops.aiter_gemm.requested:REQUESTED"),
        grows_with="m",
    ),
    kernels=Kernels(
        type=AiterKernel,
        parse=parse_kernel,
        name=lambda kernel: kernel.name,
        columns=_kernel_columns,
        features=lambda kernels, _: {name: column_of(kernels, name).astype(np.float64) for name in NUMBERS},
        mismatch=_mismatch,
        candidates=candidates,
        key_of=candidates_key,
        slice_column="pipeline",
    ),
    training=Training(
        columns=_columns(),
        model_per=(),
        engine=AITER_GEMM,
        input_columns=(*IDENTITY, *NUMBERS),
        defaults=_train_defaults,
        formats=lazily("ckh.ops.aiter_gemm.tuned:FORMATS"),
        judged=JUDGED,
    ),
    exported=lazily("ckh.ops.aiter_gemm.consumers:EXPORTED"),
    consumers=lazily("ckh.ops.aiter_gemm.consumers:CONSUMERS"),
)
