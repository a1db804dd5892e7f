"""Record of the operation `aiter_gemm`, and its features: kernels are AITER's, measured by others; nothing is emitted.

`JUDGED` is the evaluated accuracy of answers for AITER's GEMMs by another GPU's model
(`benchmarks/transfer.py` prints it).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Columns, Feature, FeatureEngine, fill, log2_of, pieces, ratio, raw
from ckh.ops.aiter.record import UNKNOWN, coded, columns_of, kernels_of, problems_of
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
from ckh.ops.base import Measure, Operation, Training, Worth, having, lazily
from ckh.problems import DTYPE_BYTES
from ckh.schema import GROUPS as GROUPS_COLUMN
from ckh.schema import Column

if TYPE_CHECKING:
    from collections.abc import Callable

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

_CODES = {"family": FAMILIES, "library": LIBRARIES, "dtype": ("fp8", "int8", "pk_fp4", "bf16")}
_IS_GROUPED = dict.fromkeys(GROUPED, 1.0)
_GRIDS = (32, 64, 128, 256)  # widths of tiles whose number along N is a feature
_MOST_DIVISOR = 4096.0


def _divisor(name: str) -> Formula:
    """Base-2 logarithm of the largest power of two that divides a size."""

    def formula(c: Columns) -> Any:
        size = c[name].astype(np.int64)
        return np.log2(np.minimum(size & -size, _MOST_DIVISOR))

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
    "element_bytes": lambda c: c.codes("dtype", DTYPE_BYTES, UNKNOWN),
}

_PROBLEM_FEATURES = (
    *(coded(name, values) for name, values in _CODES.items()),
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
_DECODE_M, _MEDIUM_M = 64, 1024


def _mismatch(kernel: AiterKernel, problem: AiterGemm) -> str:
    serves = kernel.family == problem.family or (
        kernel.library != "ck" and problem.family.startswith(kernel.family + "_")
    )
    return "" if serves and kernel.library == problem.library else f"{kernel.name} on {problem.canonical()}"


def _train_defaults(_rows: int) -> TrainOptions:
    """Training options, as evaluated by `benchmarks/aiter_folds.py`."""
    from ckh.training import PLAIN_TREES, winner_options

    params = replace(PLAIN_TREES, n_estimators=150, learning_rate=0.1, num_leaves=63, colsample_bytree=0.5)
    return replace(winner_options(), params=params)


OPERATION = Operation(
    name=OP_TYPE,
    summary="AITER's quantised matrix products, from its tuned tables",
    prefix=PREFIX,
    problems=problems_of(
        __package__,
        AiterGemm,
        tuple(_TEXTS),
        tuple(SIZES),
        {"family": FAMILIES, "library": (CK,)},
        optional=(GROUPS,),
        parse=parse_aiter_gemm,
        slices={
            "family": {name: having("family", name) for name in FAMILIES},
            "library": {name: having("library", name) for name in LIBRARIES},
            "rows": {
                f"M up to {_DECODE_M}": lambda p: p.m <= _DECODE_M,
                f"M up to {_MEDIUM_M}": lambda p: _DECODE_M < p.m <= _MEDIUM_M,
                "large M": lambda p: p.m > _MEDIUM_M,
            },
        },
        split_by=("n", "k"),
        grows_with="m",
    ),
    kernels=kernels_of(
        AiterKernel,
        NUMBERS,
        ("pipeline",),
        parse=parse_kernel,
        name=lambda kernel: kernel.name,
        mismatch=_mismatch,
        candidates=candidates,
        key_of=candidates_key,
        slice_column="pipeline",
    ),
    training=Training(
        columns=columns_of(
            _TEXTS,
            {name: "compute units" if name == "num_cus" else f"problem size {name}" for name in SIZES},
            NUMBERS,
            (GROUPS_COLUMN,),
            (Column("pipeline", "string", "", "the kernel's pipeline"),),
        ),
        model_per=(),
        engine=AITER_GEMM,
        input_columns=(*IDENTITY, *NUMBERS),
        defaults=_train_defaults,
        formats=lazily(f"{__package__}.tuned:FORMATS"),
        judged=JUDGED,
    ),
    exported=lazily(f"{__package__}.consumers:EXPORTED"),
    consumers=lazily(f"{__package__}.consumers:CONSUMERS"),
)
