"""An installed AITER, or its source: its files, its code, and the tuned tables that it reads by default.

The tables are its own and those of models, joined as AITER joins them. AITER ignores its tables of models if a variable
names a file, and newer versions rewrite the files of a list that has a duplicate shape. All versions read a single file
unchanged, so that an export has one with all rows.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.errors import CkhError, DataError, NoKernelError, UsageError
from ckh.export.consumers import ExportedChoice, MissingChoice, WrittenChoices
from ckh.files.untrusted import csv_rows, read_text
from ckh.ops.aiter.devices import ARCH_OF_CUS
from ckh.ops.aiter.tables import PREDICTED, TableRow, csv_text
from ckh.text.log import note_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ckh.learn.answers.ranking import Ranking

TAG = "_tag"  # of rows that are alternatives and not the choice for a shape
_MODELS, _UNTUNED = "model_configs", "untuned"
_TRUTHS = {"True": "1", "False": "0"}
_TEMPLATES = Path(__file__).with_name("templates")  # of READMEs
# No winner of AMD's tables is slower than this factor times the roofline time plus this offset
# (tests/ops/aiter_gemm/test_consumed.py checks all shipped winners).
SLOWEST, ADDED_US = 250.0, 10.0


def source_file(root: Path, *patterns: str) -> Path | None:
    """Return the first path of AITER's source that matches a pattern, in or beside its package; None without one."""
    if not root.is_dir():
        raise UsageError(f"no such folder: {root}", "name AITER's source, or its installed package", code="no-file")
    bases = (root, root / "aiter_meta", root.parent / "aiter_meta", root.parent)
    paths = (path for base in bases for pattern in patterns for path in sorted(base.glob(pattern)))
    return next(paths, None)


def configs_of(root: Path) -> Path | None:
    """Return the folder of AITER's tuned tables; None if there is none."""
    return source_file(root, "aiter/configs", "configs")


@cache
def source_text(root: Path | None, name: str) -> str:
    """Return the text of a file of AITER's package; empty if it does not exist."""
    folder = None if root is None else configs_of(root)
    path = None if folder is None else folder.parent / name
    return read_text(path) if path is not None and path.is_file() else ""


def run_aiter(
    command: list[str], text: str = "", environment: Mapping[str, str] | None = None, *, most_s: int = 600
) -> subprocess.CompletedProcess[str]:
    """Run a program of AITER's."""
    try:
        return subprocess.run(
            command,
            input=text,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=most_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"cannot run AITER's code: {error}", code="aiter-failed") from error


def last_line(text: str) -> str:
    """Return the last line of a program's output."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "it failed")


def bound_us(problem: Any, arch: str) -> float:
    """Return the time of the slowest winner, by the minimum time that a device's peak rates allow."""
    return SLOWEST * (roofline_us(problem, arch) + ADDED_US)


def roofline_us(problem: Any, arch: str) -> float:
    """Return the minimum time that a device's peak rates allow, in microseconds."""
    times = load_arch(arch).shortest_s(problem.dtype, problem.bytes, problem.flops, problem.num_cus)
    if times is None:
        raise DataError(f"unknown peak rates of {arch} for {problem.dtype}", code="unknown-hardware")
    return max(times) * 1e6


def best_kernel(answer: Ranking, root: Path | None, is_built: Callable[[str], bool]) -> str:
    """Return the best-ranked kernel that AITER builds; where none is known of an unnamed AITER, the best-ranked one."""
    if answer.failure is not None:
        raise answer.failure
    first = answer.best(1)[0].name if root is None else None
    kernel = next((choice.name for choice in answer.ranked if is_built(choice.name)), first)
    if kernel is None:
        raise NoKernelError(f"AITER in {root} has no kernel for {answer.problem.canonical()}")
    return kernel


@dataclass(frozen=True, slots=True, eq=False)
class OwnTable:
    """The rows of AITER's own tables for one family, without duplicate shapes."""

    columns: tuple[str, ...]  # of all tables
    key: tuple[str, ...]  # the columns among them by which AITER looks a row up
    rows: Mapping[tuple[str, ...], Mapping[str, str]]  # by their values of the key

    def find(self, cells: Mapping[str, Any]) -> Mapping[str, str] | None:
        """Return the row that AITER finds for the key of these cells."""
        return self.rows.get(_key(cells, self.key))

    def but_for(self, column: str, cells: Mapping[str, Any]) -> list[Mapping[str, str]]:
        """Return the rows whose key equals that of these cells except in a column, in the order of the tables."""
        return _by_others(self, column).get(_key(cells, _others(self, column)), [])

    def merged(self, lines: Iterable[TableRow], columns: Sequence[str]) -> str:
        """Return the text of one table that includes these rows, which replace rows of the same shape."""
        added = [{**line.cells(), PREDICTED: int(line.is_predicted)} for line in lines]
        replaced = {_key(row, self.key) for row in added}
        names = list(self.columns) or list(columns)
        kept = [{**row, PREDICTED: 0} for at, row in self.rows.items() if at not in replaced]
        filled = [{**dict.fromkeys(names, "0"), **row} for row in added]
        return csv_text([*kept, *filled], [*dict.fromkeys([*names, PREDICTED])])


@cache
def _by_others(own: OwnTable, column: str) -> dict[tuple[str, ...], list[Mapping[str, str]]]:
    """Return the rows of a table by the values of its key except a column."""
    rows_by_key: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for row in own.rows.values():
        rows_by_key.setdefault(_key(row, _others(own, column)), []).append(row)
    return rows_by_key


def _others(own: OwnTable, column: str) -> tuple[str, ...]:
    return tuple(name for name in own.key if name != column)


def table_files(root: Path, name: str) -> list[Path]:
    """Return the files that AITER joins if no variable names any: its own table and those of models."""
    folder = configs_of(root)
    if folder is None:
        return []
    models = sorted((folder / _MODELS).glob(f"*{name}*.csv"))
    files = [folder / f"{name}.csv", *(path for path in models if _UNTUNED not in path.name)]
    return [path for path in files if path.is_file()]


@cache
def own_table(root: Path, name: str, key: tuple[str, ...]) -> OwnTable:
    """Return the rows of a table that AITER reads by default; the fastest of duplicate rows, as AITER does.

    `key` has the columns by which newer versions of AITER look a row up; older tables lack some.
    """
    columns, read = _read(table_files(root, name))
    present = tuple(column for column in key if column in columns)
    full_rows = ({column: row.get(column, _missing(column, row)) for column in columns} for row in read)
    return OwnTable(columns, present, _by_key(full_rows, present))


def _read(paths: Iterable[Path]) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """Return the columns of all tables, and their rows."""
    columns: dict[str, None] = {}
    read: list[dict[str, str]] = []
    for path in paths:
        lines = (cells for _, cells in csv_rows(path, read_text(path)))
        header = next(lines, [])
        columns |= dict.fromkeys(header)
        read += [dict(zip(header, cells, strict=False)) for cells in lines]
    return tuple(columns), read


def _by_key(read: Iterable[dict[str, str]], key: tuple[str, ...]) -> dict[tuple[str, ...], Mapping[str, str]]:
    """Return the rows by their values of the key; the fastest of duplicate rows."""
    rows: dict[tuple[str, ...], Mapping[str, str]] = {}
    for row in read:
        at = _key(row, key)
        if at not in rows or _time(row) < _time(rows[at]):
            rows[at] = row
    return rows


def _missing(column: str, row: Mapping[str, str]) -> str:
    """Return the default of a missing cell: for the architecture, the one with these compute units."""
    if column == "gfx":
        return next((arch for cus, arch in ARCH_OF_CUS.items() if str(cus) == row.get("cu_num")), "0")
    return "" if column == TAG else "0"


def _key(row: Mapping[str, Any], columns: tuple[str, ...]) -> tuple[str, ...]:
    cells = (str(row[column]).strip() for column in columns)
    return tuple(_TRUTHS.get(cell, cell) for cell in cells)


def _time(row: Mapping[str, str]) -> float:
    try:
        return float(row.get("us", ""))
    except ValueError:
        return float("inf")


@dataclass(frozen=True, slots=True)
class TunedTable:
    """One of AITER's tuned tables."""

    name: str  # without `.csv`
    variable: str  # environment variable that names its file
    key: tuple[str, ...]  # the columns by which AITER looks a row up
    columns: Sequence[str]  # of measured rows
    source: str  # AITER's file with the lookup, below its package
    tags: tuple[str, ...] = ()  # further columns that distinguish the rows of a key

    def of_root(self, root: Path) -> OwnTable:
        """Return the rows that AITER reads by default."""
        return own_table(root, self.name, (*self.key, *self.tags))


def chosen(
    answers: Iterable[Ranking], choose: Callable[[Ranking], ExportedChoice]
) -> tuple[dict[Any, ExportedChoice], tuple[MissingChoice, ...]]:
    """Return the row of each problem, and the problems without a row with the reason."""
    rows: dict[Any, ExportedChoice] = {}
    errors: list[tuple[str, CkhError]] = []
    for answer in answers:
        try:
            rows[answer.problem] = choose(answer)
        except CkhError as error:  # noqa: PERF203 - one problem is no reason to drop the others
            errors.append((answer.problem.canonical(), error))
    if errors and not rows:
        raise errors[0][1]
    return rows, tuple(MissingChoice(problem, error.message) for problem, error in errors)


def written_choices(
    lines: Sequence[Any],
    table_of: Callable[[Any], TunedTable],
    text: Callable[[Sequence[Any]], str],
    rows: Iterable[ExportedChoice],
    missing: tuple[MissingChoice, ...],
    root: Path | None,
    notes: str,
    measured: str = "",
) -> WrittenChoices:
    """Return the files of an export: measured and predicted rows by table, and joined with those of an installed AITER.

    `text` makes a table of rows; `notes` and `measured` complete the README about its content.
    """
    for line in lines:
        if line.problem.dtype == "fp8":
            note_once(f"fp8 is {line.cells()['q_dtype_w']} on {line.arch}")
    files: dict[str, bytes] = {}
    for is_predicted, folder in ((False, "measured"), (True, "predicted")):
        folder_lines = [line for line in lines if line.is_predicted == is_predicted]
        files |= {f"{folder}/{table.name}.csv": text(own).encode() for table, own in _by_table(folder_lines, table_of)}
    variables = {}
    for table, table_lines in _by_table(lines, table_of):
        name = table.name
        if root is not None:
            files[f"merged/{name}.csv"] = table.of_root(root).merged(table_lines, table.columns).encode()
            variables[table.variable] = f"OUT/merged/{name}.csv"
            continue
        paths = [f"OUT/{path}" for path in files if path.endswith(f"/{name}.csv")]
        own = f"$AITER/configs/{name}.csv $AITER/configs/{_MODELS}/*{name}*.csv"
        joined = f"$(ls {own} 2>/dev/null | grep -v {_UNTUNED} | paste -sd:)"
        variables[table.variable] = ":".join([joined, *paths])
    return WrittenChoices(
        files,
        tuple(rows),
        _how_to(variables, root, measured=measured, notes=notes),
        missing,
        variables,
    )


def _by_table(lines: Iterable[Any], table_of: Callable[[Any], TunedTable]) -> list[tuple[TunedTable, list[Any]]]:
    tables: dict[str, tuple[TunedTable, list[Any]]] = {}
    for line in lines:
        table = table_of(line)
        tables.setdefault(table.name, (table, []))[1].append(line)
    return list(tables.values())


def choice_row(answer: Ranking, row: TableRow | Mapping[str, str], kernel: str, basis: str) -> ExportedChoice:
    """Return the choice for a problem: a row that is written, or AITER's own, by column."""
    is_written = isinstance(row, TableRow)
    time_us, is_predicted = (row.time_us, row.is_predicted) if isinstance(row, TableRow) else (_time(row), False)
    return ExportedChoice(
        answer.problem.canonical(),
        kernel,
        time_us if time_us < float("inf") else None,
        basis if is_written else "AITER's own table" + basis,
        predicted=is_predicted,
        model=str(answer.model.path.name) if is_predicted else None,
        arch=answer.model.spec.arch,
        written=is_written,
    )


def _how_to(variables: Mapping[str, str], root: Path | None, **content: str) -> str:
    """Return the README of an export: how to use it with AITER, and its content."""
    exports = "\n".join(f'export {name}="{value.replace("OUT/", "$PWD/")}"' for name, value in variables.items())
    if not variables:
        return "AITER has rows for all shapes: nothing is to be set.\n"
    text = (_TEMPLATES / ("joined.md" if root is None else "merged.md")).read_text(encoding="utf-8")
    return text.format(exports=exports, root=root, **content)


def found_rows(folder: Path, name: str, key: Sequence[str], wanted: Sequence[Sequence[Mapping[str, Any]]]) -> list[Any]:
    """Return the row of an export that AITER uses for each shape, by its rules; None where it uses its default.

    `wanted` has for each shape the keys that AITER tries, in order; key columns that a table lacks are ignored.
    """
    merged = folder / "merged" / f"{name}.csv"
    paths = [merged] if merged.is_file() else [folder / kind / f"{name}.csv" for kind in ("measured", "predicted")]
    columns, read = _read(path for path in paths if path.is_file())
    present = tuple(column for column in key if column in columns)
    rows = _by_key(read, present)
    return [next(filter(None, (rows.get(_key(cells, present)) for cells in keys)), None) for keys in wanted]
