"""Record of the operation `aiter_gemm`, its features, and files of its problems; nothing is emitted.

Kernels are AITER's, measured by others. `judged.json` has the accuracy of answers for AITER's GEMMs by another GPU's
model (`benchmarks/transfer.py` prints it).

Problems are read from AITER's untuned CSV files, its logs, and canonical texts:

    M,N,K,q_dtype_w
    shape is M:16, N:7168, K:2048, not found tuned config in a8w8_bpreshuffle_tuned_gemm.csv, will use default config!

A log's line has the family in the name of its table; lines of other tables, such as bf16, are skipped with a warning,
as are element types for which AITER has no kernels of Composable Kernel. A CSV file may have columns of a problem's
other fields (`family`, `library`, `dtype`, `num_cus` or AITER's `cu_num`); a missing family is derived from the file's
name.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import UsageError
from ckh.features.engine import Columns, Feature, FeatureEngine, fill, log2_of, pieces, ratio, raw
from ckh.files.untrusted import integer, read_text
from ckh.kernels.pools import TIMED_NAME
from ckh.ops.aiter.problem_files import load_entries, nearest_row, torch_dtype, untuned_entries
from ckh.ops.aiter.record import UNKNOWN, coded, columns_of, judged_of, kernels_of, problems_of, timed_kernels
from ckh.ops.aiter_gemm.kernel import NUMBERS, AiterKernel, candidates, candidates_key, parse_kernel
from ckh.ops.aiter_gemm.problem import (
    ANY,
    ASM,
    FAMILIES,
    GROUPED,
    GROUPS,
    LIBRARIES,
    OP_TYPE,
    PREFIX,
    SIZES,
    UNANSWERED,
    AiterGemm,
    parse_aiter_gemm,
)
from ckh.ops.base import Operation, TiledSizes, Training, having, lazily
from ckh.problems import DTYPE_BYTES, dtype_name
from ckh.schema import GROUPS as GROUPS_COLUMN
from ckh.schema import Column
from ckh.shapes.layers import Matmul, Scaling
from ckh.shapes.misses import Lookup
from ckh.shapes.shaped import Shaped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ckh.ops.aiter.problem_files import Entries
    from ckh.shapes.misses import KeyTables
    from ckh.shapes.shaped import MissedLookup, NearKey
    from ckh.training import TrainOptions

    Formula = Callable[[Columns], Any]

_CODES = {"family": FAMILIES, "dtype": ("fp8", "int8", "pk_fp4", "bf16")}
_IS_GROUPED = dict.fromkeys(GROUPED, 1.0)
_GRIDS = (32, 64, 128, 256)  # widths of tiles whose number along N is a feature
_MOST_DIVISOR = 4096.0


def _divisor(name: str) -> Formula:
    """Base-2 logarithm of the largest power of two that divides a size."""

    def formula(c: Columns) -> Any:
        size = c[name].astype(np.int64)
        return np.log2(np.minimum(size & -size, _MOST_DIVISOR))

    return formula


def _grid(width: int) -> Formula:
    return lambda c: np.ceil(c["n"] / width) / c["cus"]


# Quantities shared by several features. `split_k` is an exponent of two, ASM's a number.
_DERIVED: dict[str, Formula] = {
    "cus": lambda c: np.maximum(c["num_cus"], 1),
    "parts": lambda c: np.where(
        c.codes("library", {ASM: 1.0}, 0.0) > 0, np.maximum(c["split_k"], 1), np.exp2(c["split_k"])
    ),
    "k_of_part": lambda c: c["k"] / c["parts"],
    "products": lambda c: np.maximum(np.where(np.isnan(c[GROUPS]), 0.0, c[GROUPS]), 1),  # of a launch
    # Of each product: of grouped ones the mean, as only their sum is known.
    "rows": lambda c: np.where(c.codes("family", _IS_GROUPED, 0.0) > 0, c["m"] / c["products"], c["m"]),
    "tiles_m": pieces("rows", "tile_m"),
    "tiles_n": pieces("n", "tile_n"),
    "tiles": lambda c: c["products"] * c["tiles_m"] * c["tiles_n"],
    "workgroups": lambda c: c["tiles"] * c["parts"],
    "blocks_256": lambda c: c["products"] * np.ceil(c["rows"] / 256) * np.ceil(c["n"] / 256),
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
    Feature("blocks_256_by_cu", "blocks/CU", lambda c: c["blocks_256"] / c["cus"]),
    Feature("log2_products", "log2", log2_of("products")),
    Feature("log2_rows_of_product", "log2", log2_of("rows")),
)
_KERNEL_FEATURES = (
    coded("library", LIBRARIES),
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
    kernel_columns=frozenset({"library", *NUMBERS}),
)

_TEXTS = {
    "family": "how operands are scaled and shuffled",
    "library": "the kernel's library",
    "dtype": "element type of A and B",
}
_DECODE_M, _MEDIUM_M = 64, 1024


def _mismatch(kernel: AiterKernel, problem: AiterGemm) -> str:
    serves = kernel.family == problem.family or (
        kernel.library != "ck" and problem.family.startswith(kernel.family + "_")
    )
    is_its = problem.library == ANY or kernel.library in problem.library.split("_")
    return "" if serves and is_its else f"{kernel.name} on {problem.canonical()}"


def _train_defaults(_rows: int) -> TrainOptions:
    """Training options, as evaluated by `benchmarks/aiter_folds.py`."""
    from ckh.training import PLAIN_TREES, winner_options

    params = replace(PLAIN_TREES, n_estimators=150, learning_rate=0.1, num_leaves=63, colsample_bytree=0.5)
    return replace(winner_options(), params=params)


KEY = ("gfx", "cu_num", "M", "N", "K", "q_dtype_w")  # of a shape, in tables that have the last column
# M up to a limit is padded to a multiple; above all limits to powers of two.
_FINE_STEPS = ((256, 16), (1024, 32), (4096, 64))
_FINEST_ABOVE = 128
_MOST_M, _WIDE_N = 8192, 4096

_TABLE = "table"  # of a log's line, if the table is of no family
MISSED = "not found tuned config"
_MISS = re.compile(
    r"shape is M:\s*(?P<m>[0-9]{1,19}),\s*N:\s*(?P<n>[0-9]{1,19}),\s*K:\s*(?P<k>[0-9]{1,19})"
    rf"(?P<rest>.*?){MISSED} in (?P<table>CKGEMM or asmGEMM|[^\s,]*)"
)
_FAMILY_OF_WORDS = {"CKGEMM or asmGEMM": "a4w4_blockscale"}  # where a line names no table
_DTYPE_IN_LOG = re.compile(r"q_dtype_w:\s*(?:torch\.)?(?P<dtype>\w+)")
_DEFAULT_DTYPE = "fp8"
_OPERANDS = re.compile(r"(?<![a-z0-9])a(?!16w16)\d{1,2}w\d{1,2}(?![0-9])")
_BATCH = "b"  # the column, as `untuned_rows` names it
_RENAMED = {"cu_num": "num_cus", "q_dtype_w": "dtype"}
_SIZES = (*SIZES, GROUPS)
_FIELDS = (*_SIZES, "family", "library", "dtype")


def padded_m(m: int, n: int, level: int) -> int:
    """Return the padded M that AITER looks up if a table lacks M (`getPaddedM` of its gemm_common.cu)."""
    if level == 0:
        step = next((step for most, step in _FINE_STEPS if m <= most), _FINEST_ABOVE)
        return -(-m // step) * step
    return _MOST_M if m > _MOST_M and n > _WIDE_N else 1 << (m - 1).bit_length()


def looked_up(problem: AiterGemm) -> tuple[int, ...]:
    """Return the values of M by which AITER looks a shape up, in order."""
    return tuple(dict.fromkeys([problem.m, *(padded_m(problem.m, problem.n, level) for level in (0, 1))]))


def key_cells(arch: str, problem: AiterGemm) -> dict[str, Any]:
    """Return the cells by which AITER looks up a shape's row; which of them its table has depends on the family."""
    sizes = (arch, problem.num_cus, problem.m, problem.n, problem.k)
    return dict(zip(KEY, (*sizes, torch_dtype(problem.dtype, arch)), strict=True))


def is_untuned(path: Path, head: str) -> bool:
    """True if a CSV file has AITER's format, by its header or its name."""
    names = {name.strip() for name in head.split("\n", 1)[0].split(",")}
    if not {"M", "N", "K"} <= names:
        return False
    return bool(names & {"q_dtype_w", "cu_num"} or _hinted(path.name))


def _text(path: Path) -> Entries:
    """Yield canonical texts and a log's lookup misses; other lines of a log are skipped."""
    for line, text in enumerate(read_text(path).splitlines(), 1):
        if (missed := _missed(text)) is not None:
            yield line, lambda dtype, missed=missed: _problem(missed, dtype)  # type: ignore[misc]
        elif text.strip().startswith(PREFIX):
            yield line, lambda _, text=text: parse_aiter_gemm(text)  # type: ignore[misc]


def _problem(fields: dict[str, Any], dtype: str) -> AiterGemm | str:
    """Return the problem of these fields; the table, or family and element type, if Composable Kernel has no kernel."""
    if _TABLE in fields:
        return str(fields[_TABLE])
    family, stated = str(fields.get("family", "a8w8")), fields.get("dtype")
    if stated and "family" in fields and stated not in FAMILIES.get(family, (stated,)):
        reason = UNANSWERED.get((family, str(stated)))
        return f"{family} in {stated}" + (f" ({reason})" if reason else "")
    if missing := [name for name in "mnk" if name not in fields]:
        raise UsageError(f"{missing[0].upper()} is missing", code="missing-field")
    own = FAMILIES.get(family, (dtype,))
    return AiterGemm(**{"dtype": dtype if dtype in own else own[0], **fields})


def _missed(text: str) -> dict[str, Any] | None:
    """Return the fields of the shape that a log's line reports as missing, or None."""
    if (match := _MISS.search(text)) is None:
        return None
    table = PurePath(match["table"]).name or "a table without a name"
    family = {"family": _FAMILY_OF_WORDS[table]} if table in _FAMILY_OF_WORDS else _hinted(table)
    fields: dict[str, Any] = {name: int(match[name]) for name in "mnk"} | (family or {_TABLE: table})
    stated = _DTYPE_IN_LOG.search(match["rest"])
    return fields | ({"dtype": dtype_name(stated["dtype"])} if stated else {})


def stated_key(text: str) -> tuple[tuple[str, str], ...]:
    """Return the element type of a log's miss, as PyTorch names it, with its column."""
    match = _DTYPE_IN_LOG.search(text)
    return (("q_dtype_w", f"torch.{match['dtype']}"),) if match else ()


def missed_problem(text: str) -> AiterGemm | str | None:
    """Return the problem that a log's line reports as missing; a description if unsupported; None for another line."""
    missed = _missed(text)
    return None if missed is None else _problem(missed, _DEFAULT_DTYPE)


def untuned_rows(path: Path) -> Entries:
    """Return the line of each row of a CSV file, and a function: the problem, or a description if unsupported."""
    hinted = _hinted(path.name)
    known = ("M", "N", "K", "q_dtype_w")

    def problem(cells: dict[str, str], dtype: str) -> AiterGemm | str:
        return "batches of quantised products" if _BATCH in cells else _problem(hinted | _typed(cells), dtype)

    return untuned_entries(path, known[:3], known, problem, lambda name: _RENAMED.get(name.lower(), name.lower()))


load_problems = partial(load_entries, OP_TYPE, (untuned_rows, _text))


def _typed(cells: dict[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {name: cell for name, cell in cells.items() if name in _FIELDS and cell}
    for name in (name for name in _SIZES if name in fields):
        try:
            fields[name] = integer(fields[name])
        except ValueError:  # noqa: PERF203 - it ends the loop
            raise UsageError(f"{name} is {fields[name]!r}, not an integer", code="bad-number") from None
    if "dtype" in fields:
        fields["dtype"] = dtype_name(fields["dtype"].removeprefix("torch."))
    return fields


def _hinted(name: str) -> dict[str, str]:
    """The longest family in a table's name, or the operands that no family has (a6w6)."""
    families = [family for family in FAMILIES if name.startswith(family) or f"_{family}" in name]
    if families:
        return {"family": max(families, key=len)}
    other = _OPERANDS.search(name)
    return {_TABLE: f"{other[0]} products"} if other else {}


_FAMILY_OF = {
    (Scaling.ROW, False): "a8w8",
    (Scaling.ROW, True): "a8w8_bpreshuffle",
    (Scaling.BLOCK_128, False): "a8w8_blockscale",
    (Scaling.BLOCK_128, True): "a8w8_blockscale_bpreshuffle",
    (Scaling.BLOCK_32, False): "a4w4_blockscale",
}
_SCALING_OF = {family: key for key, family in _FAMILY_OF.items()}
_LOOKUP = Lookup(rows="M", columns="N", others=("K",), dtypes=("q_dtype_w",), foreign=("B", "outdtype"))


def _of_shape(shape: Matmul, dtype: str) -> AiterGemm:
    family = _FAMILY_OF.get((shape.scaling, shape.is_shuffled))
    if family is None:
        own = shape.dtype or dtype
        raise UsageError(f"{own} without scales, which AITER's tables of quantised GEMMs need", code="unquantised")
    if shape.layout != "rcr":
        raise UsageError(f"layout {shape.layout}: AITER's quantised GEMMs are rcr", code="unsupported")
    return AiterGemm(shape.m, shape.n, shape.k, family, shape.dtype or FAMILIES[family][0])


def _shape(problem: AiterGemm) -> Matmul:
    if problem.family not in _SCALING_OF:
        raise UsageError(f"{problem.family} is several products, not one", code="unsupported")
    scaling, is_shuffled = _SCALING_OF[problem.family]
    return Matmul(problem.m, problem.n, problem.k, problem.dtype, scaling=scaling, is_shuffled=is_shuffled)


def _nearest(missed: MissedLookup[AiterGemm], tables: KeyTables) -> NearKey:
    table = tables.joined(lambda name: _hinted(name) in ({}, {"family": missed.problem.family}))
    return nearest_row(_LOOKUP, missed, table, looked_up, key_cells)


SHAPED = Shaped(
    Matmul,
    _of_shape,
    _shape,
    prefers=lambda shape: bool(shape.scaling),
    marks=(MISSED,),
    line=missed_problem,
    recognises=is_untuned,
    stated=stated_key,
    nearest=_nearest,
)


def _tiled(problem: AiterGemm) -> TiledSizes:
    """Grouped products have the mean M: the tables do not state each."""
    number = max(problem.groups, 1)
    return TiledSizes(-(-problem.rows // number), problem.n, problem.k, number)


def _tried(problem: AiterGemm, rows: Any) -> AiterGemm:
    """Limit a problem to the libraries of its rows' kernels: tables of one library say nothing of others."""
    return replace(problem, library="_".join(set(rows["library"])))


OPERATION = Operation(
    name=OP_TYPE,
    summary="AITER's quantised matrix products, from its tuned tables",
    prefix=PREFIX,
    problems=problems_of(
        __package__,
        AiterGemm,
        ("family", "dtype"),
        tuple(SIZES),
        {"family": FAMILIES},
        optional=(GROUPS,),
        parse=parse_aiter_gemm,
        slices={
            "family": {name: having("family", name) for name in FAMILIES},
            "rows": {
                f"M up to {_DECODE_M}": lambda p: p.m <= _DECODE_M,
                f"M up to {_MEDIUM_M}": lambda p: _DECODE_M < p.m <= _MEDIUM_M,
                "large M": lambda p: p.m > _MEDIUM_M,
            },
        },
        split_by=("n", "k"),
        grows_with="m",
        tiled=_tiled,
        tried=_tried,
    ),
    kernels=kernels_of(
        AiterKernel,
        NUMBERS,
        ("library", "pipeline"),
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
        input_columns=("family", "dtype", *SIZES, GROUPS, "library", *NUMBERS),
        defaults=_train_defaults,
        formats=lazily(f"{__package__}.tuned:FORMATS"),
        model_files={TIMED_NAME: timed_kernels},
        judged=judged_of(__file__),
    ),
    exported=lazily(f"{__package__}.consumers:EXPORTED"),
    consumers=lazily(f"{__package__}.consumers:CONSUMERS"),
)
