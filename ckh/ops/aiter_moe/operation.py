"""Record of the operation `aiter_moe`, and its features: a kernel is one for a product, or a pair for both.

`JUDGED` is the evaluated accuracy of answers for AITER's mixtures by another GPU's model
(`benchmarks/transfer.py` prints it). Each GPU's kernels were chosen among the measured ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.features.engine import Columns, Feature, FeatureEngine, log2_of, pieces, raw
from ckh.ops.aiter.record import UNKNOWN, coded, columns_of, kernels_of, problems_of
from ckh.ops.aiter_moe.kernel import NUMBERS, MoeChoice, candidates, candidates_key, other_names, parse_choice
from ckh.ops.aiter_moe.problem import (
    BOTH,
    IDENTITY,
    KINDS,
    OP_TYPE,
    PREFIX,
    QUANTS,
    SIZES,
    STAGE1,
    STAGE2,
    STAGES,
    AiterMoe,
    parse_aiter_moe,
)
from ckh.ops.base import Operation, Training, Worth, having, lazily
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckh.training import TrainOptions

    Formula = Callable[[Columns], Any]

# Source, target, stage, problems, efficiency (mean, P10), the mean's 95 % interval, and the mean of random choices.
_EFFICIENCY = (
    ("gfx942", "gfx950", STAGE1, 172, (0.970, 0.879), (0.959, 0.979), 0.828),
    ("gfx942", "gfx950", STAGE2, 172, (0.979, 0.934), (0.975, 0.983), 0.809),
    ("gfx942", "gfx950", BOTH, 172, (0.974, 0.930), (0.967, 0.981), 0.819),
    ("gfx950", "gfx942", STAGE1, 32, (0.943, 0.856), (0.912, 0.969), 0.714),
    ("gfx950", "gfx942", STAGE2, 32, (0.838, 0.653), (0.790, 0.887), 0.529),
    ("gfx950", "gfx942", BOTH, 32, (0.881, 0.745), (0.842, 0.919), 0.574),
)
_CUS = {"gfx942": "80", "gfx950": "256"}  # of the measured GPUs
JUDGED = tuple(
    Worth(
        {"stage": stage, "num_cus": _CUS[target]},
        target,
        problems,
        f"mixtures ({stage})",
        figures,
        interval,
        random,
        source=source,
    )
    for source, target, stage, problems, figures, interval, random in _EFFICIENCY
)

_GATES = 2  # halves of the first product
_WEIGHT_BYTES = {quant: DTYPE_BYTES[dtype] for quant, dtype in QUANTS.items()}


def _active(c: Columns) -> Any:
    """Expected number of experts that some token chooses, for random choices."""
    return c["experts"] * (1 - np.exp2(c["choices"] * np.log2(np.maximum(1 - 1 / c["experts"], 1e-9))))


def _tiles(product: int) -> Formula:
    """Number of tiles of a product, 0 without a kernel for it."""

    def formula(c: Columns) -> Any:
        tile_n = c[f"tile_n{product}"]
        return np.where(tile_n > 0, c["row_tiles"] * np.ceil(c[f"n{product}"] / np.maximum(tile_n, 1)), 0)

    return formula


def _work(product: int) -> Formula:
    """Work of a compute unit in its waves of tiles of a product."""
    return lambda c: (
        np.ceil(c[f"waves{product}"]) * c["block_m"] * np.maximum(c[f"tile_n{product}"], 1) * c[f"k{product}"]
    )


def _loads(product: int) -> Formula:
    return lambda c: np.ceil(c[f"waves{product}"]) * (c["block_m"] + c[f"tile_n{product}"]) * c[f"k{product}"]


def _of_products(name: str, formula: Callable[[int], Formula]) -> dict[str, Formula]:
    return {f"{name}{product}": formula(product) for product in (1, 2)}


# Quantities shared by several features. Tokens are sorted by expert, in tiles of `block_m` rows.
_DERIVED: dict[str, Formula] = {
    "cus": lambda c: np.maximum(c["num_cus"], 1),
    "choices": lambda c: c["tokens"] * c["topk"],
    "active": _active,
    "rows_of_expert": lambda c: c["choices"] / c["active"],
    "row_tiles": lambda c: c["active"] * np.ceil(c["rows_of_expert"] / np.maximum(c["block_m"], 1)),
    "n1": lambda c: _GATES * c["inter_dim"],
    "k1": lambda c: c["model_dim"],
    "n2": lambda c: c["model_dim"],
    "k2": lambda c: c["inter_dim"],
    **_of_products("tiles", _tiles),
    **_of_products("waves", lambda product: lambda c: c[f"tiles{product}"] / c["cus"]),
    **_of_products("work", _work),
    **_of_products("loads", _loads),
    "weight_bytes": lambda c: c.codes("quant", _WEIGHT_BYTES, UNKNOWN),
    "weight_read": lambda c: c["active"] * c["model_dim"] * c["inter_dim"] * c["weight_bytes"],
}

_PROBLEM_FEATURES = (
    *(coded(name, values) for name, values in KINDS.items()),
    *(
        Feature(f"log2_{name}", "log2", log2_of(name))
        for name in ("tokens", "model_dim", "inter_dim", "experts", "choices", "active", "weight_read")
    ),
    Feature("topk", "", raw("topk")),
    Feature("num_cus", "CUs", raw("num_cus")),
    Feature("rows_of_expert", "rows", raw("rows_of_expert")),
)
_KERNEL_FEATURES = tuple(Feature(name, "", raw(name)) for name in NUMBERS)
_BOTH_FEATURES = (
    Feature("fill_of_tile", "", lambda c: c["rows_of_expert"] / np.maximum(c["block_m"], 1)),
    Feature("log2_row_tiles", "log2", log2_of("row_tiles")),
    *(
        Feature(f"{name}{product}", unit, formula(product))
        for product in (1, 2)
        for name, unit, formula in (
            ("waves", "workgroups/CU", lambda number: raw(f"waves{number}")),
            (
                "last_round_fill",
                "",
                lambda number: lambda c: c[f"waves{number}"] / np.maximum(np.ceil(c[f"waves{number}"]), 1),
            ),
            ("log2_work_of_cu", "log2", lambda number: log2_of(f"work{number}")),
            ("log2_loads_of_cu", "log2", lambda number: log2_of(f"loads{number}")),
            ("steps_k", "", lambda number: pieces(f"k{number}", f"tile_k{number}")),
            ("n_tiles", "", lambda number: pieces(f"n{number}", f"tile_n{number}")),
        )
    ),
    Feature("log2_work_of_both", "log2", lambda c: np.log2(np.maximum(c["work1"] + c["work2"], 1))),
)

AITER_MOE = FeatureEngine(
    op_type=OP_TYPE,
    features=(*_PROBLEM_FEATURES, *_KERNEL_FEATURES, *_BOTH_FEATURES),
    categorical=(),
    derived=_DERIVED,
    defaults={},
    kernel_columns=frozenset(NUMBERS),
)


_FEW_TOKENS = 64


def _train_defaults(_rows: int) -> TrainOptions:
    """Training options, as evaluated by `benchmarks/aiter_moe_folds.py`."""
    from ckh.training import PLAIN_TREES, TFLOPS, RankObjective, TrainOptions

    small = replace(PLAIN_TREES, num_leaves=15, min_child_samples=10)
    params = replace(small, n_estimators=300, learning_rate=0.05, colsample_bytree=0.5)
    return TrainOptions(targets=(TFLOPS,), rank=RankObjective.LAMBDARANK, folds=0, seed=1, params=params)


OPERATION = Operation(
    name=OP_TYPE,
    summary="the two products of a mixture of experts, from AITER's tuning",
    prefix=PREFIX,
    problems=problems_of(
        __package__,
        AiterMoe,
        tuple(KINDS),
        tuple(SIZES),
        KINDS,
        parse=parse_aiter_moe,
        slices={
            "stage": {name: having("stage", name) for name in STAGES},
            "tokens": {
                f"up to {_FEW_TOKENS} tokens": lambda p: p.tokens <= _FEW_TOKENS,
                "more tokens": lambda p: p.tokens > _FEW_TOKENS,
            },
        },
        split_by=("model_dim", "inter_dim", "experts"),
        grows_with="tokens",
    ),
    kernels=kernels_of(
        MoeChoice,
        NUMBERS,
        parse=parse_choice,
        name=lambda choice: choice.name,
        other_names=other_names,
        mismatch=lambda choice, problem: (
            "" if choice.stage == problem.stage else f"{choice.name} on {problem.canonical()}"
        ),
        candidates=candidates,
        key_of=candidates_key,
        slice_column="block_m",
    ),
    training=Training(
        columns=columns_of(
            {name: f"{name} of the mixture" for name in KINDS},
            {name: name.replace("_", " ") for name in SIZES},
            NUMBERS,
        ),
        model_per=(),
        engine=AITER_MOE,
        input_columns=(*IDENTITY, *NUMBERS),
        defaults=_train_defaults,
        formats=lazily(f"{__package__}.tuned:FORMATS"),
        judged=JUDGED,
    ),
    exported=lazily(f"{__package__}.consumers:EXPORTED"),
    consumers=lazily(f"{__package__}.consumers:CONSUMERS"),
)
