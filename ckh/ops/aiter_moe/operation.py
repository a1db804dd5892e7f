"""Record of the operation `aiter_moe`, its features, and files of its problems.

A kernel is one for a product, or a pair for both. `judged.json` has the accuracy of answers for AITER's mixtures by
another GPU's model (`benchmarks/transfer.py` prints it). Each GPU's kernels were chosen among the measured ones.

Problems are read from AITER's untuned CSV files, its logs, and canonical texts:

    token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1
    [fused_moe] using 2stage default for ('gfx950', 256, 64, 7168, 256, 256, 8, 'ActivationType.Silu', …)

The values of a log's line are the key of a tuned table. Unsupported mixtures, such as experts without a gate, are
skipped with a warning.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import DataError, UsageError
from ckh.features.engine import Columns, Feature, FeatureEngine, log2_of, pieces, raw
from ckh.files.untrusted import integer, read_text
from ckh.ops.aiter.problem_files import load_entries, nearest_row, torch_dtype, untuned_entries
from ckh.ops.aiter.record import UNKNOWN, coded, columns_of, judged_of, kernels_of, problems_of
from ckh.ops.aiter_moe.kernel import NUMBERS, MoeChoice, candidates, candidates_key, other_names, parse_choice, products
from ckh.ops.aiter_moe.problem import (
    DTYPES,
    GATES,
    IDENTITY,
    KINDS,
    OP_TYPE,
    PREFIX,
    QUANTS,
    RESULT_BYTES,
    SIZES,
    STAGES,
    UNANSWERED,
    AiterMoe,
    parse_aiter_moe,
)
from ckh.ops.base import Operation, Training, having, lazily
from ckh.problems import DTYPE_BYTES, dtype_name
from ckh.shapes.layers import ExpertProducts, Scaling
from ckh.shapes.misses import Lookup
from ckh.shapes.shaped import Shaped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    from ckh.ops.aiter.problem_files import Entries
    from ckh.shapes.misses import KeyTables
    from ckh.shapes.shaped import MissedLookup, NearKey

    Formula = Callable[[Columns], Any]

_WEIGHT_BYTES = {quant: DTYPE_BYTES[dtype] for quant, dtype in QUANTS.items()}


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


def _bytes(product: int) -> Formula:
    """Bytes that a product moves at least, as `AiterMoe.bytes`."""

    def formula(c: Columns) -> Any:
        element = c.codes("dtype", DTYPE_BYTES, UNKNOWN)
        rows = (c["tokens"] * c["k1"] * element, c["choices"] * c["k2"] * RESULT_BYTES)
        if product > 1:
            rows = (c["choices"] * c["k2"] * element, c["tokens"] * c["n2"] * RESULT_BYTES)
        return np.ceil(c["busy"] * c[f"n{product}"] * c[f"k{product}"] * c["weight_bytes"] + sum(rows))

    return formula


def _of_products(name: str, formula: Callable[[int], Formula]) -> dict[str, Formula]:
    return {f"{name}{product}": formula(product) for product in (1, 2)}


# Quantities shared by several features. Tokens are sorted by expert, in tiles of `block_m` rows.
_DERIVED: dict[str, Formula] = {
    "cus": lambda c: np.maximum(c["num_cus"], 1),
    "choices": lambda c: c["tokens"] * c["topk"],
    # Expected number of experts that some token chooses, for random choices.
    "active": lambda c: c["experts"] * (1 - np.exp2(c["choices"] * np.log2(np.maximum(1 - 1 / c["experts"], 1e-9)))),
    "rows_of_expert": lambda c: c["choices"] / c["active"],
    "row_tiles": lambda c: c["active"] * np.ceil(c["rows_of_expert"] / np.maximum(c["block_m"], 1)),
    "n1": lambda c: GATES * c["inter_dim"],
    "k1": lambda c: c["model_dim"],
    "n2": lambda c: c["model_dim"],
    "k2": lambda c: c["inter_dim"],
    **_of_products("tiles", _tiles),
    **_of_products("waves", lambda product: lambda c: c[f"tiles{product}"] / c["cus"]),
    **_of_products("work", _work),
    **_of_products("loads", _loads),
    "weight_bytes": lambda c: c.codes("quant", _WEIGHT_BYTES, UNKNOWN),
    "busy": lambda c: np.minimum(c["experts"], c["choices"]),
    "most_rows": lambda c: np.ceil(c["choices"] / c["busy"]),
    **_of_products("bytes", _bytes),
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


MARK = "[fused_moe] using "
_UNTUNED = (
    *("token", "model_dim", "inter_dim", "expert", "topk", "act_type", "dtype", "q_dtype_a", "q_dtype_w", "q_type"),
    *("use_g1u1", "doweight_stage1"),
)
_LOGGED = ("cu_num", *_UNTUNED)
KEY = ("gfx", *_LOGGED)  # the columns by which AITER looks a row up
_BF16, _FP4 = "torch.bfloat16", "torch.float4_e2m1fn_x2"
QUANT_NAMES = {"per_token": "per_Token", "per_1x128": "per_1x128", "per_1x32": "per_1x32", "none": "No"}
# AITER's get_padded_M: powers of two below the first tier, above it the largest tier that is not larger.
TIERS = (32768, 131072)
# Also logged: after a tuning on demand that failed, and where a default of another library is used.
UNTUNED = ("Fmoe tuning not support for ", "no tuned FlyDSL config for ")
_MISS = re.compile(
    rf"(?:\[fused_moe\] using [12]stage\b.{{0,20}} default for |{'|'.join(UNTUNED)})\((?P<key>[^)]{{1,600}})\)"
)
_QUOTES = "'\""
_GFX = re.compile(r"gfx[0-9a-f]{3,8}")
_SIZES = {"token": "tokens", "expert": "experts", "cu_num": "num_cus"} | {
    name: name for name in ("model_dim", "inter_dim", "topk")
}
# AITER's fused_moe replaces per_128x128 before it looks up a kernel (`quant_remap`).
QUANT_OF = {
    "per_token": "per_token",
    "per_1x128": "per_1x128",
    "per_128x128": "per_1x128",
    "per_1x32": "per_1x32",
    "no": "none",
}
_TRUE, _FALSE = ("1", "true"), ("0", "false")


def is_of_mixtures(source: str) -> bool:
    """True if a file has mixtures of experts and no other problems."""
    path = Path(source)
    if not path.is_file():
        return False
    text = read_text(path)
    if path.suffix.lower() == ".csv":
        return is_untuned(path, text)
    lines = text.splitlines()
    return any(line.strip().startswith(PREFIX) or _MISS.search(line) for line in lines) and "shape is M:" not in text


def looked_up(problem: AiterMoe) -> AiterMoe:
    """Return the problem that AITER looks up: tokens padded to the next power of two, or down to a large tier."""
    tokens = problem.tokens
    tiers = [tier for tier in TIERS if tier <= tokens]
    return replace(problem, tokens=tiers[-1] if tiers else 1 << (tokens - 1).bit_length())


def key_cells(arch: str, problem: AiterMoe) -> dict[str, Any]:
    """Return the cells by which AITER looks up a mixture's row."""
    named = {"bf16": _BF16, "pk_fp4": _FP4}
    types = (named.get(dtype) or torch_dtype(dtype, arch) for dtype in (problem.dtype, QUANTS[problem.quant]))
    sizes = (problem.tokens, problem.model_dim, problem.inter_dim, problem.experts, problem.topk)
    activation = f"ActivationType.{problem.activation.capitalize()}"
    quant = f"QuantType.{QUANT_NAMES[problem.quant]}"
    return dict(zip(KEY, (arch, problem.num_cus, *sizes, activation, _BF16, *types, quant, 1, 0), strict=True))


def problem_of(cells: Mapping[str, str]) -> AiterMoe | str:
    """Return the problem of a row of AITER's, by column; or a description if unsupported."""
    fields: dict[str, Any] = {}
    for column, name in _SIZES.items():
        if not cells.get(column, "").strip() and column == "cu_num":
            continue
        if column not in cells:
            raise DataError(f"missing {column}", code="missing-column")
        try:
            fields[name] = integer(cells[column].strip())
        except ValueError:
            raise DataError(f"{column} is {cells[column]!r}, not an integer", code="bad-number") from None
    if (foreign := _foreign(cells)) is not None:
        return foreign
    fields |= {"dtype": dtype_name(_word(cells["q_dtype_a"])), "quant": QUANT_OF[_word(cells["q_type"])]}
    return AiterMoe(**fields, activation=_word(cells["act_type"]))


def _foreign(cells: Mapping[str, str]) -> str | None:
    """Reason why a row is unsupported, or None."""
    if (cells.get("use_g1u1") or "1").strip().lower() not in _TRUE:
        return "experts without a gate"
    if (cells.get("doweight_stage1") or "0").strip().lower() not in _FALSE:
        return "weights before the first product"
    activation, quant = _word(cells.get("act_type", "")), _word(cells.get("q_type", ""))
    types = _word(cells.get("q_dtype_a", "")), _word(cells.get("q_dtype_w", ""))
    if activation not in ("silu", "swiglu"):
        return activation or "no activation"
    is_known = quant in QUANT_OF and dtype_name(types[0]) in DTYPES
    is_known = is_known and QUANTS[QUANT_OF[quant]] == dtype_name(types[1])
    if is_known:
        return None
    kind = f"{types[0]} by {types[1]}, {quant}"
    reason = UNANSWERED.get((dtype_name(types[0]), dtype_name(types[1]), quant))
    return f"{kind} ({reason})" if reason else kind


def _word(text: str) -> str:
    """Return a name of PyTorch or of an AITER enumeration, without its class and number."""
    bare = text.strip().strip("'\"<>").partition(":")[0].strip().strip("'\"<>")
    return bare.rpartition(".")[2].lower()


def untuned_rows(path: Path) -> Entries:
    """Return the line of each row of a CSV file, and a function: the problem, or a description if unsupported."""
    return untuned_entries(path, _UNTUNED[:-2], _UNTUNED, lambda cells, _dtype: problem_of(cells))


def _text(path: Path) -> Entries:
    """Yield canonical texts and a log's lookup misses; other lines of a log are skipped, in a list they are errors."""
    is_log = False
    for line, text in enumerate(read_text(path).splitlines(), 1):
        content = text.partition("#")[0].strip()
        if _MISS.search(text) is not None:
            is_log = True
            yield line, lambda _, text=text: missed_problem(text)  # type: ignore[misc]
        elif content.startswith(PREFIX) or (content and not is_log and path.suffix == ".txt"):
            yield line, lambda _, content=content: parse_aiter_moe(content)  # type: ignore[misc]


load_problems = partial(load_entries, OP_TYPE, (untuned_rows, _text))


def missed_problem(text: str) -> AiterMoe | str | None:
    """Return the problem that a log's line reports as missing; a description if unsupported; None for another line."""
    if (match := _MISS.search(text)) is None:
        return None
    values = [text.strip() for text in match["key"].split(",")]
    values = values[1:] if _GFX.fullmatch(values[0].strip(_QUOTES)) else values
    if len(values) != len(_LOGGED):
        raise DataError(f"{len(values)} values where AITER prints {len(_LOGGED)}", code="bad-row")
    return problem_of(dict(zip(_LOGGED, values, strict=True)))


def stated_key(text: str) -> tuple[tuple[str, str], ...]:
    """Return the complete key of a log's miss, except its flags, by column."""
    match = _MISS.search(text)
    values = [text.strip().strip(_QUOTES) for text in match["key"].split(",")] if match else []
    names = (*(("gfx",) if len(values) > len(_LOGGED) else ()), *_LOGGED)
    flags = _UNTUNED[-2:]
    return tuple((name, value) for name, value in zip(names, values, strict=False) if name not in flags)


def is_untuned(_path: Path, head: str) -> bool:
    """True if a CSV file has AITER's format, by its header."""
    return {"model_dim", "inter_dim"} <= {name.strip() for name in head.split("\n", 1)[0].split(",")}


_QUANT_OF = {
    Scaling.NONE: "none",
    Scaling.ROW: "per_token",
    Scaling.BLOCK_128: "per_1x128",
    Scaling.BLOCK_32: "per_1x32",
}
_SCALING_OF = {quant: scaling for scaling, quant in _QUANT_OF.items()}
_LOOKUP = Lookup(
    rows="token",
    columns="inter_dim",
    others=("model_dim", "expert", "topk", "act_type", "q_type"),
    dtypes=("q_dtype_a", "q_dtype_w"),
    foreign=("tp",),
)


def _problem(shape: ExpertProducts, dtype: str) -> AiterMoe:
    quant = _QUANT_OF[shape.scaling]
    own = shape.dtype or dtype
    if own not in (DTYPES if quant == QUANT_OF["per_1x32"] else [QUANTS[quant]]):  # its tokens have any type
        raise UsageError(
            f"mixtures of experts in {own} ({quant}), not supported by AITER's kernels", code="unsupported"
        )
    sizes = (shape.tokens, shape.model_dim, shape.inter_dim, shape.experts, shape.topk)
    return AiterMoe(*sizes, dtype=own, quant=quant, activation=shape.activation)


def _shape(problem: AiterMoe) -> ExpertProducts:
    sizes = (problem.tokens, problem.model_dim, problem.inter_dim, problem.experts, problem.topk)
    return ExpertProducts(*sizes, problem.dtype, _SCALING_OF[problem.quant], problem.activation)


def _nearest(missed: MissedLookup[AiterMoe], tables: KeyTables) -> NearKey:
    table = tables.joined(lambda _: True)
    return nearest_row(_LOOKUP, missed, table, lambda asked: (looked_up(asked).tokens,), key_cells)


SHAPED = Shaped(
    ExpertProducts,
    _problem,
    _shape,
    marks=(MARK, *UNTUNED),
    line=missed_problem,
    recognises=is_untuned,
    stated=stated_key,
    nearest=_nearest,
)


def _reached(rows: pd.DataFrame) -> Any:
    """Share of the experts that tokens can choose at most (`AiterMoe.bytes`) that random tokens choose on average."""
    tokens, experts, topk = (rows[name].to_numpy(dtype=np.float64) for name in ("tokens", "experts", "topk"))
    return (1 - (1 - topk / experts) ** tokens) * experts / np.minimum(experts, tokens * topk)


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
        products=products,
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
        needed=lambda rows: (1.0, _reached(rows)),
        needed_columns=("tokens", "experts", "topk"),
        estimated=tuple(("most_rows", f"n{number}", f"k{number}", "busy", f"bytes{number}") for number in (1, 2)),
        formats=lazily(f"{__package__}.tuned:FORMATS"),
        judged=judged_of(__file__),
    ),
    exported=lazily(f"{__package__}.consumers:EXPORTED"),
    consumers=lazily(f"{__package__}.consumers:CONSUMERS"),
)
