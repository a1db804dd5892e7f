"""Files of AITER's GEMM problems: its untuned CSV files, its logs, canonical texts; and shapes of models.

    M,N,K,q_dtype_w
    shape is M:16, N:7168, K:2048, not found tuned config in a8w8_bpreshuffle_tuned_gemm.csv, will use default config!

A log's line has the family in the name of its table; lines of other tables, such as bf16, are skipped with a warning,
as are element types for which AITER has no kernels of Composable Kernel. A CSV file may have columns of a problem's
other fields (`family`, `library`, `dtype`, `num_cus` or AITER's `cu_num`); a missing family is derived from the file's
name.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.files.untrusted import integer, read_text
from ckh.ops.aiter.problem_files import load_entries, nearest_row, torch_dtype, untuned_cells
from ckh.ops.aiter_gemm.problem import FAMILIES, GROUPS, OP_TYPE, PREFIX, SIZES, UNANSWERED, AiterGemm, parse_aiter_gemm
from ckh.problems import dtype_name
from ckh.shapes.layers import Matmul, Scaling
from ckh.shapes.misses import Lookup
from ckh.shapes.shaped import Shaped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ckh.ops.aiter.problem_files import Entries
    from ckh.shapes.misses import KeyTables
    from ckh.shapes.shaped import MissedLookup, NearKey

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
_DTYPES = ("int8", "fp8")
_DEFAULT_DTYPE = "fp8"
_RENAMED = {"cu_num": "num_cus", "q_dtype_w": "dtype"}
_SIZES = (*SIZES, GROUPS)
_FIELDS = (*_SIZES, "family", "library", "dtype")


def load_problems(
    source: str, variant: str | None, dtype: str | None, default_dtype: str = _DEFAULT_DTYPE
) -> tuple[AiterGemm, ...]:
    """Return the distinct problems of a file, in order."""
    return load_entries(OP_TYPE, source, variant, (untuned_rows, _text), dtype or default_dtype)


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
    if "family" in fields and family in FAMILIES and stated in _DTYPES and stated not in FAMILIES[family]:
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


def missed_problem(text: str, _path: Path, _number: int) -> AiterGemm | str | None:
    """Return the problem that a log's line reports as missing; a description if unsupported; None for another line."""
    missed = _missed(text)
    return None if missed is None else _problem(missed, _DEFAULT_DTYPE)


def untuned_rows(path: Path) -> Entries:
    """Yield the line of each row of a CSV file, and a function: the problem, or a description if unsupported."""
    hinted = _hinted(path.name)
    known = ("M", "N", "K", "q_dtype_w")
    for line, cells in untuned_cells(path, known[:3], known, lambda name: _RENAMED.get(name.lower(), name.lower())):

        def problem(dtype: str, cells: Callable[[], dict[str, str]] = cells) -> AiterGemm | str:
            return _problem(hinted | _typed(cells()), dtype)

        yield line, problem


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


def stated_family(name: str) -> str:
    """Return the longest family that a table's name contains; empty if none."""
    return max((family for family in FAMILIES if name.startswith(family) or f"_{family}" in name), key=len, default="")


def _hinted(name: str) -> dict[str, str]:
    family = stated_family(name)
    return {"family": family} if family else {}


_FAMILY_OF = {
    (Scaling.ROW, False): "a8w8",
    (Scaling.ROW, True): "a8w8_bpreshuffle",
    (Scaling.BLOCK_128, False): "a8w8_blockscale",
    (Scaling.BLOCK_128, True): "a8w8_blockscale_bpreshuffle",
    (Scaling.BLOCK_32, False): "a4w4_blockscale",
}
_SCALING_OF = {family: key for key, family in _FAMILY_OF.items()}
_LOOKUP = Lookup(rows="M", columns="N", others=("K",), dtypes=("q_dtype_w",))


def _of_shape(shape: Matmul, dtype: str) -> AiterGemm:
    family = _FAMILY_OF.get((shape.scaling, shape.is_shuffled))
    if family is None:
        raise UsageError(
            f"products in {shape.dtype or dtype} without scales, which AITER's tables of quantised GEMMs need",
            "pass --dtype fp8 if the model is served quantised",
            code="unsupported",
        )
    return AiterGemm(shape.m, shape.n, shape.k, family, shape.dtype or FAMILIES[family][0])


def _shape(problem: AiterGemm) -> Matmul:
    if problem.family not in _SCALING_OF:
        raise UsageError(f"{problem.family} is several products, not one", code="unsupported")
    scaling, is_shuffled = _SCALING_OF[problem.family]
    return Matmul(problem.m, problem.n, problem.k, problem.dtype, scaling=scaling, is_shuffled=is_shuffled)


def _nearest(missed: MissedLookup[AiterGemm], tables: KeyTables) -> NearKey:
    table = tables.joined(lambda name: stated_family(name) in ("", missed.problem.family))
    return nearest_row(_LOOKUP, missed, table, looked_up, key_cells)


SHAPED = Shaped(
    Matmul,
    _of_shape,
    _shape,
    prefers=lambda shape: bool(shape.scaling),
    row_dtype="fp8",
    marks=(MISSED,),
    line=missed_problem,
    recognises=is_untuned,
    rows=untuned_rows,
    stated=stated_key,
    nearest=_nearest,
)
