"""Files of AITER's GEMM problems: its untuned CSV files, its logs, and canonical texts.

    M,N,K,q_dtype_w
    shape is M:16, N:7168, K:2048, not found tuned config in a8w8_bpreshuffle_tuned_gemm.csv, will use default config!

A log's line has the family in the name of its table; lines of other tables, as those of bf16, are passed over with a
warning, and so are element types that AITER has no kernels of Composable Kernel for. A CSV file may have columns of a
problem's other fields (`family`, `library`, `dtype`, `num_cus` or AITER's `cu_num`); without a family, the
file's name decides it.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError, UsageError
from ckh.files.untrusted import csv_rows, integer, read_text
from ckh.ops.aiter_gemm.problem import FAMILIES, PREFIX, AiterGemm, parse_aiter_gemm
from ckh.problems import dtype_name
from ckh.text.log import warn

if TYPE_CHECKING:
    from collections.abc import Iterator

_CSV = ".csv"
_TABLE = "table"  # of a log's line, where that is of no family
_MISS = re.compile(
    r"shape is M:\s*(?P<m>[0-9]{1,10}),\s*N:\s*(?P<n>[0-9]{1,10}),\s*K:\s*(?P<k>[0-9]{1,10})"
    r"(?P<rest>.*?)not found tuned config in (?P<table>CKGEMM or asmGEMM|[^\s,]*)"
)
_FAMILY_OF_WORDS = {"CKGEMM or asmGEMM": "a4w4_blockscale"}  # where a line names no table
_DTYPE_IN_LOG = re.compile(r"q_dtype_w:\s*(?:torch\.)?(?P<dtype>\w+)")
_DTYPES = ("int8", "fp8")
_RENAMED = {"cu_num": "num_cus", "q_dtype_w": "dtype"}
_FIELDS = ("m", "n", "k", "num_cus", "family", "library", "dtype")
_SIZES = ("m", "n", "k", "num_cus")


def load_problems(
    source: str, variant: str | None, dtype: str | None, default_dtype: str = "fp8"
) -> tuple[AiterGemm, ...]:
    """The distinct problems of a file, in order.

    Raises:
        UsageError: there is no such file, or a direction was given.
        DataError: the file is unusable; the message names the line.
    """
    if variant is not None:
        raise UsageError("aiter_gemm has no directions", "leave out --variant", code="inapplicable-option")
    path = Path(source)
    if not path.is_file():
        hint = "name an untuned CSV of AITER, a log of it, or a .txt file"
        raise UsageError(f"no such file: {source}", hint, code="no-file")
    read = _csv if path.suffix.lower() == _CSV else _text
    problems: dict[AiterGemm, None] = {}
    passed_over: Counter[str] = Counter()
    for line, values in read(path):
        if isinstance(values, dict) and (what := _foreign(values)):
            passed_over[what] += 1
            continue
        try:
            problem = values if isinstance(values, AiterGemm) else _problem(values, dtype or default_dtype)
        except UsageError as error:
            raise DataError(f"{path}:{line}: {error.message}", error.hint, code=error.code) from error
        problems[problem] = None
    others = ", ".join(f"{count} of {what}" for what, count in passed_over.items())
    if not problems:
        raise DataError(
            f"{path} has no problem of aiter_gemm" + (f", only {others}" if others else ""), code="no-problems"
        )
    if others:
        warn(
            f"{path}: passed over, for AITER has no kernels of Composable Kernel for them: {others}", "skipped-problems"
        )
    return tuple(problems)


def _foreign(values: dict[str, Any]) -> str:
    """The table, or family and element type, of a row that Composable Kernel does not serve; empty of another."""
    if _TABLE in values:
        return str(values[_TABLE])
    family, dtype = values.get("family"), values.get("dtype")
    is_other = family in FAMILIES and dtype in _DTYPES and dtype not in FAMILIES[family]
    return f"{family} in {dtype}" if is_other else ""


def _text(path: Path) -> Iterator[tuple[int, AiterGemm | dict[str, Any]]]:
    """Canonical texts and a log's misses; what else a log holds is passed over."""
    for line, text in enumerate(read_text(path).splitlines(), 1):
        if match := _MISS.search(text):
            table = Path(match["table"]).name or "a table without a name"
            family = {"family": _FAMILY_OF_WORDS[table]} if table in _FAMILY_OF_WORDS else _hinted(table)
            found: dict[str, Any] = {name: int(match[name]) for name in "mnk"} | (family or {_TABLE: table})
            stated = _DTYPE_IN_LOG.search(match["rest"])
            yield line, found | ({"dtype": dtype_name(stated["dtype"])} if stated else {})
        elif text.strip().startswith(PREFIX):
            try:
                yield line, parse_aiter_gemm(text)
            except UsageError as error:
                raise DataError(f"{path}:{line}: {error.message}", error.hint, code=error.code) from error


def _csv(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    rows = ((line, cells) for line, cells in csv_rows(path, read_text(path)) if any(cells))
    header = [_RENAMED.get(name.strip().lower(), name.strip().lower()) for name in next(rows, (0, []))[1]]
    if missing := [name for name in "mnk" if name not in header]:
        raise DataError(
            f"{path}: missing column {missing[0].upper()}",
            "AITER's are M, N, K and q_dtype_w",
            code="missing-column",
        )
    for line, cells in rows:
        if len(cells) != len(header):
            raise DataError(f"{path}:{line}: {len(cells)} cells under {len(header)} columns", code="bad-row")
        values = {name: cell.strip() for name, cell in zip(header, cells, strict=True) if name in _FIELDS and cell}
        yield line, _hinted(path.name) | _typed(path, line, values)


def _typed(path: Path, line: int, values: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = dict(values)
    for name in _SIZES:
        if name in values:
            try:
                found[name] = integer(values[name])
            except ValueError:
                raise DataError(
                    f"{path}:{line}: {name} is {values[name]!r}, not an integer", code="bad-number"
                ) from None
    if "dtype" in values:
        found["dtype"] = dtype_name(values["dtype"].removeprefix("torch."))
    return found


def _hinted(name: str) -> dict[str, str]:
    """The family that a table's name states: the longest that it holds."""
    inside = [family for family in FAMILIES if name.startswith(family) or f"_{family}" in name]
    return {"family": max(inside, key=len)} if inside else {}


def _problem(values: dict[str, Any], dtype: str) -> AiterGemm:
    if missing := [name for name in "mnk" if name not in values]:
        raise UsageError(f"{missing[0].upper()} is missing", code="missing-field")
    own = FAMILIES.get(values.get("family", "a8w8"), (dtype,))
    return AiterGemm(**{"dtype": dtype if dtype in own else own[0], **values})
