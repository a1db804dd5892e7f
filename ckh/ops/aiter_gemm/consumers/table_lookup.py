"""AITER's lookup in the tables of an export, by its rules only: the exact key, then M as AITER pads it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ckh.files.untrusted import csv_rows, read_text
from ckh.ops.aiter_gemm.kernels.pool import resolved
from ckh.ops.aiter_gemm.readers.tuned_csv import KEY, key_cells, looked_up

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ckh.ops.aiter_gemm.problem import AiterGemm

_FOLDERS = ("measured", "predicted")  # used if there is no merged table
_TRUTHS = {"True": "1", "False": "0"}

Rows = dict[tuple[str, ...], dict[str, str]]


def found_rows(folder: Path, name: str, key: Sequence[str], wanted: Sequence[Sequence[Mapping[str, Any]]]) -> list[Any]:
    """Return the row that AITER uses for each shape; None where it uses its default.

    Args:
        folder: the export.
        name: name of the table, without `.csv`.
        key: the key columns of a shape; columns that a table lacks are ignored.
        wanted: for each shape the keys that AITER tries, in order.

    Raises:
        DataError: a table is not CSV.
    """
    columns, rows = _rows(folder, name, key)
    return [
        next((row for cells in keys if (row := rows.get(_key(cells, columns))) is not None), None) for keys in wanted
    ]


def _rows(folder: Path, name: str, key: Sequence[str]) -> tuple[tuple[str, ...], Rows]:
    """Return the key columns that the tables have, and their rows by key; the fastest of duplicate rows."""
    merged = folder / "merged" / f"{name}.csv"
    paths = [merged] if merged.is_file() else [folder / item / f"{name}.csv" for item in _FOLDERS]
    columns: tuple[str, ...] = ()
    rows: Rows = {}
    for path in (path for path in paths if path.is_file()):
        lines = (cells for _, cells in csv_rows(path, read_text(path)) if any(cells))
        header = next(lines, [])
        columns = tuple(column for column in key if column in header)
        for cells in lines:
            row = dict(zip(header, cells, strict=False))
            known = rows.get(_key(row, columns))
            if known is None or float(row["us"]) < float(known["us"]):
                rows[_key(row, columns)] = row
    return columns, rows


def _key(cells: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(_TRUTHS.get(text, text) for text in (str(cells[column]).strip() for column in columns))


def picked_gemms(folder: Path, arch: str, problems: Sequence[AiterGemm]) -> list[str]:
    """Return the kernels, with their split of K, that AITER finds in an export; empty where it finds no row.

    Raises:
        DataError: a table is not CSV.
    """
    result: dict[AiterGemm, str] = {}
    for family in dict.fromkeys(problem.family for problem in problems):
        some = [problem for problem in problems if problem.family == family]
        keys = [[key_cells(arch, replace(item, m=m)) for m in looked_up(item)] for item in some]
        for item, row in zip(some, found_rows(folder, f"{family}_tuned_gemm", KEY, keys), strict=True):
            result[item] = "" if row is None else _name(row)
    return [result[problem] for problem in problems]


def _name(row: Mapping[str, str]) -> str:
    base, split = resolved(row["kernelName"]), int(float(row["splitK"]))
    return f"{base}_splitk{split}" if split else base
