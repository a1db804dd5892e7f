"""Files of AITER's problems: untuned CSV files, logs of lookup misses, canonical texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.errors import CkhError, DataError, UsageError
from ckh.files.account import Account
from ckh.files.untrusted import by_column, csv_rows, read_text
from ckh.ops.aiter.devices import compute_units
from ckh.shapes.misses import nearest_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ckh.shapes.misses import KeyTable, Lookup
    from ckh.shapes.shaped import MissedLookup, NearKey

    # A file's entries: the line, and a function that returns the problem given the default element type, or a
    # description of an unsupported one.
    Entries = Iterator[tuple[int, Callable[[str], Any]]]


def load_entries(
    op: str,
    readers: tuple[Callable[[Path], Entries], Callable[[Path], Entries]],
    source: str,
    variant: str | None,
    dtype: str | None,
    default_dtype: str = "fp8",
    account: Account | None = None,
) -> tuple[Any, ...]:
    """Return the distinct problems of a file, in order; a warning describes those that are skipped.

    `readers` yield the entries of a CSV file, and of another one. All problems must have `dtype`; None: any.
    """
    if variant is not None:
        raise UsageError(f"{op} has no directions", "omit --variant", code="inapplicable-option")
    path = Path(source)
    if not path.is_file():
        hint = "name an untuned CSV of AITER, a log of it, or a .txt file"
        raise UsageError(f"no such file: {source}", hint, code="no-file")
    own = Account() if account is None else account
    problems: dict[Any, None] = {}
    for line, problem_of in readers[path.suffix.lower() != ".csv"](path):
        try:
            problem = problem_of(dtype or default_dtype)
        except CkhError as error:
            own.refuse(error, f"{path}:{line}")
            continue
        if isinstance(problem, str):
            own.leave_out(problem)
        elif dtype not in (None, problem.dtype):
            what = f"the problem has dtype {problem.dtype}, not {dtype}"
            own.refuse(UsageError(what, "omit --dtype", code="mismatch"), f"{path}:{line}")
        else:
            own.use()
            problems[problem] = None
    if not problems and not own.bad:
        words = "; ".join(own.words())
        raise DataError(f"{path} has no problem of {op}" + (f", only {words}" if words else ""), code="no-problems")
    own.settle(str(path))
    if account is None:
        own.report(str(path))
    return tuple(problems)


def untuned_entries(
    path: Path,
    required: Sequence[str],
    known: Sequence[str],
    problem: Callable[[dict[str, str], str], Any],
    column: Callable[[str], str] = str,
) -> Entries:
    """Yield the line of each row of a CSV file, and a function that returns `problem` of its cells and a type.

    Cells are by column, as `column` names it; the function refuses a row of another width than the header's.
    """
    rows = csv_rows(path, read_text(path))
    header = [column(name) for name in next(rows, (0, []))[1]]
    if missing := [name for name in required if column(name) not in header]:
        raise DataError(
            f"{path}: missing column {missing[0]}", "AITER's are " + ", ".join(known), code="missing-column"
        )
    for line, cells in rows:
        yield line, lambda dtype, cells=cells: problem(by_column(header, cells), dtype)  # type: ignore[misc]


def nearest_row(
    lookup: Lookup,
    missed: MissedLookup[Any],
    table: KeyTable,
    tried: Callable[[Any], tuple[int, ...]],
    key_cells: Callable[[str, Any], Mapping[str, Any]],
) -> NearKey:
    """Return the row of a table nearest to a missed lookup; `tried` has the rows' numbers that AITER looks up."""
    asked = replace(missed.problem, num_cus=compute_units(missed.problem.num_cus or missed.num_cus, missed.arch))
    key = {name: str(value) for name, value in key_cells(missed.arch, asked).items()} | dict(missed.stated)
    return nearest_key(lookup, key, tried(asked), table)


def torch_dtype(dtype: str, arch: str) -> str:
    """Return PyTorch's name of the element type on an architecture; 8-bit floats differ between generations."""
    if dtype == "fp8":
        return "torch.float8_e4m3fnuz" if load_arch(arch).fnuz_floats else "torch.float8_e4m3fn"
    return f"torch.{dtype}"
