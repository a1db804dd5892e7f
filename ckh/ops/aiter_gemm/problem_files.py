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
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError, UsageError
from ckh.files.untrusted import csv_rows, integer, read_text
from ckh.ops.aiter_gemm.problem import FAMILIES, GROUPS, OP_TYPE, PREFIX, SIZES, UNANSWERED, AiterGemm, parse_aiter_gemm
from ckh.ops.aiter_gemm.readers.tuned_csv import key_cells, looked_up
from ckh.ops.aiter_gemm.tuned_device import compute_units
from ckh.problems import dtype_name
from ckh.shapes.layers import Matmul, Scaling
from ckh.shapes.misses import Lookup, nearest_key
from ckh.shapes.shaped import Shaped
from ckh.text.log import warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    # A file's entries: the line, and a function that returns the problem given the default element type, or a
    # description of an unsupported one.
    Entries = Iterator[tuple[int, Callable[[str], Any]]]
    from ckh.shapes.misses import KeyTables
    from ckh.shapes.shaped import MissedLookup, NearKey


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


def load_entries(
    op: str,
    source: str,
    variant: str | None,
    readers: tuple[Callable[[Path], Entries], Callable[[Path], Entries]],
    default_dtype: str,
    dtype: str | None = None,
) -> tuple[Any, ...]:
    """Return the distinct problems of a file, in order; a warning describes those that are skipped.

    Args:
        op: the operation.
        source: the path.
        variant: a direction, which is refused.
        readers: yield the entries of a CSV file, and of another one.
        default_dtype: element type of entries that state none.
        dtype: the element type that all must have; None: any.

    Raises:
        UsageError: there is no such file, or a direction was given.
        DataError: the file is unusable; the message names the line.
    """
    if variant is not None:
        raise UsageError(f"{op} has no directions", "omit --variant", code="inapplicable-option")
    path = Path(source)
    if not path.is_file():
        hint = "name an untuned CSV of AITER, a log of it, or a .txt file"
        raise UsageError(f"no such file: {source}", hint, code="no-file")
    problems: dict[Any, None] = {}
    passed_over: Counter[str] = Counter()
    for line, entry in readers[path.suffix.lower() != ".csv"](path):
        try:
            result = entry(default_dtype)
        except UsageError as error:
            raise DataError(f"{path}:{line}: {error.message}", error.hint, code=error.code) from error
        if isinstance(result, str):
            passed_over[result] += 1
        elif dtype is not None and result.dtype != dtype:
            raise DataError(f"{path}:{line}: the problem has dtype {result.dtype}, not {dtype}", code="mismatch")
        else:
            problems[result] = None
    others = ", ".join(f"{count} of {what}" for what, count in passed_over.items())
    if not problems:
        raise DataError(f"{path} has no problem of {op}" + (f", only {others}" if others else ""), code="no-problems")
    if others:
        warn(f"{path}: skipped, ckh knows no kernels of Composable Kernel for them: {others}", "skipped-problems")
    return tuple(problems)


def is_untuned(path: Path, head: str) -> bool:
    """True if a CSV file has AITER's format, by its header or its name."""
    names = {name.strip() for name in head.split("\n", 1)[0].split(",")}
    if not {"M", "N", "K"} <= names:
        return False
    return bool(names & {"q_dtype_w", "cu_num"} or _hinted(path.name))


def _foreign(values: dict[str, Any]) -> str:
    """Return the table, or family and element type, of a row that Composable Kernel does not support; else empty."""
    if _TABLE in values:
        return str(values[_TABLE])
    family, dtype = values.get("family"), values.get("dtype")
    is_other = family in FAMILIES and dtype in _DTYPES and dtype not in FAMILIES[family]
    if not is_other:
        return ""
    reason = UNANSWERED.get((str(family), str(dtype)))
    return f"{family} in {dtype}" + (f" ({reason})" if reason else "")


def _text(path: Path) -> Entries:
    """Yield canonical texts and a log's lookup misses; other lines of a log are skipped."""
    for line, text in enumerate(read_text(path).splitlines(), 1):
        if (missed := _missed(text)) is not None:
            yield line, partial(_entry, missed)
        elif text.strip().startswith(PREFIX):
            yield line, lambda _, text=text: parse_aiter_gemm(text)  # type: ignore[misc]


def _entry(values: dict[str, Any], dtype: str) -> AiterGemm | str:
    return _foreign(values) or _problem(values, dtype)


def _missed(text: str) -> dict[str, Any] | None:
    """Return the fields of the shape that a log's line reports as missing, or None."""
    if (match := _MISS.search(text)) is None:
        return None
    table = Path(match["table"]).name or "a table without a name"
    family = {"family": _FAMILY_OF_WORDS[table]} if table in _FAMILY_OF_WORDS else _hinted(table)
    result: dict[str, Any] = {name: int(match[name]) for name in "mnk"} | (family or {_TABLE: table})
    stated = _DTYPE_IN_LOG.search(match["rest"])
    return result | ({"dtype": dtype_name(stated["dtype"])} if stated else {})


def stated_key(text: str) -> tuple[tuple[str, str], ...]:
    """Return the element type of a log's miss, as PyTorch names it, with its column."""
    match = _DTYPE_IN_LOG.search(text)
    return (("q_dtype_w", f"torch.{match['dtype']}"),) if match else ()


def missed_problem(text: str, _path: Path, _number: int) -> AiterGemm | str | None:
    """Return the problem that a log's line reports as missing; a description if unsupported; None for another line."""
    if (missed := _missed(text)) is None:
        return None
    return _entry(missed, _DEFAULT_DTYPE)


def untuned_rows(path: Path) -> Entries:
    """Yield the line of each row of a CSV file, and a function: the problem, or a description if unsupported."""
    rows = ((line, cells) for line, cells in csv_rows(path, read_text(path)) if any(cells))
    header = [_RENAMED.get(name.strip().lower(), name.strip().lower()) for name in next(rows, (0, []))[1]]
    if missing := [name for name in "mnk" if name not in header]:
        raise DataError(
            f"{path}: missing column {missing[0].upper()}",
            "AITER's are M, N, K and q_dtype_w",
            code="missing-column",
        )
    hinted = _hinted(path.name)
    for line, cells in rows:
        yield line, partial(_row, header, cells, hinted)


def _row(header: list[str], cells: list[str], hinted: dict[str, str], dtype: str) -> AiterGemm | str:
    if len(cells) != len(header):
        raise UsageError(f"{len(cells)} cells under {len(header)} columns", code="bad-row")
    values = {name: cell.strip() for name, cell in zip(header, cells, strict=True) if name in _FIELDS and cell}
    return _entry(hinted | _typed(values), dtype)


def _typed(values: dict[str, str]) -> dict[str, Any]:
    result: dict[str, Any] = dict(values)
    for name in _SIZES:
        if name in values:
            try:
                result[name] = integer(values[name])
            except ValueError:
                raise UsageError(f"{name} is {values[name]!r}, not an integer", code="bad-number") from None
    if "dtype" in values:
        result["dtype"] = dtype_name(values["dtype"].removeprefix("torch."))
    return result


def stated_family(name: str) -> str:
    """Return the longest family that a table's name contains; empty if none."""
    return max((family for family in FAMILIES if name.startswith(family) or f"_{family}" in name), key=len, default="")


def _hinted(name: str) -> dict[str, str]:
    family = stated_family(name)
    return {"family": family} if family else {}


def _problem(values: dict[str, Any], dtype: str) -> AiterGemm:
    if missing := [name for name in "mnk" if name not in values]:
        raise UsageError(f"{missing[0].upper()} is missing", code="missing-field")
    own = FAMILIES.get(values.get("family", "a8w8"), (dtype,))
    return AiterGemm(**{"dtype": dtype if dtype in own else own[0], **values})


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


def _is_scaled(shape: Matmul) -> bool:
    return bool(shape.scaling)


def _nearest(missed: MissedLookup[AiterGemm], tables: KeyTables) -> NearKey:
    num_cus = compute_units(missed.problem.num_cus or missed.num_cus, missed.arch)
    asked = replace(missed.problem, num_cus=num_cus)
    key = {name: str(value) for name, value in key_cells(missed.arch, asked).items()} | dict(missed.stated)
    table = tables.joined(lambda name: stated_family(name) in ("", asked.family))
    return nearest_key(_LOOKUP, key, looked_up(asked), table)


SHAPED = Shaped(
    Matmul,
    _of_shape,
    _shape,
    prefers=_is_scaled,
    row_dtype="fp8",
    marks=(MISSED,),
    line=missed_problem,
    recognises=is_untuned,
    rows=untuned_rows,
    stated=stated_key,
    nearest=_nearest,
)
