"""Reasons of missed lookups in tuned tables: the nearest key, and its differences."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.errors import DataError
from ckh.files.account import Account
from ckh.files.untrusted import by_column, csv_rows, read_text
from ckh.shapes.shaped import NearKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_DEVICE = ("gfx", "cu_num")
# Each outweighs all before it: a row of the same GPU with another size is nearer than one of another GPU.
_OTHER_DTYPE, _OTHER_ROWS, _OTHER_CUS, _OTHER_ARCH, _OTHER_COLUMNS = 1, 2, 4, 8, 16
_FNUZ = "fnuz"
_TUNED, _UNTUNED = "*tuned*.csv", "untuned"


@dataclass(frozen=True, slots=True)
class Lookup:
    """The columns of a tuned table's key."""

    rows: str  # the padded size, i.e. the rows of A
    columns: str  # the size that depends on fusion
    others: tuple[str, ...]  # columns that must agree for a row to be near
    dtypes: tuple[str, ...]  # element types
    foreign: tuple[str, ...] = ()  # columns of tables that another lookup reads


class KeyTable:
    """The rows of tuned tables, grouped by columns on first use."""

    def __init__(self, rows: Iterable[Mapping[str, str]]) -> None:
        self._rows = list(rows)
        self._groups: dict[tuple[str, ...], dict[tuple[str, ...], list[Mapping[str, str]]]] = {}

    def agreeing(self, columns: tuple[str, ...], key: Mapping[str, str]) -> Sequence[Mapping[str, str]]:
        """The rows that agree with a key in the given columns."""
        if columns not in self._groups:
            groups: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
            for row in self._rows:
                groups.setdefault(tuple(row.get(name, "") for name in columns), []).append(row)
            self._groups[columns] = groups
        return self._groups[columns].get(tuple(key[name] for name in columns), ())


class KeyTables:
    """Tuned tables by file name."""

    def __init__(self, tables: Mapping[str, Sequence[Mapping[str, str]]]) -> None:
        self._tables = tables
        self._joined: dict[tuple[str, ...], KeyTable] = {}

    def joined(self, is_wanted: Callable[[str], bool]) -> KeyTable:
        """Rows of the tables with matching names."""
        names = tuple(name for name in self._tables if is_wanted(name))
        if names not in self._joined:
            self._joined[names] = KeyTable(row for name in names for row in self._tables[name])
        return self._joined[names]


def read_tables(paths: Iterable[Path], account: Account) -> KeyTables:
    """Read the tuned tables in files, or in folders such as an installed AITER; `account` counts their rows."""
    by_name: dict[str, list[Mapping[str, str]]] = {}
    for path in paths:
        folder = next(filter(Path.is_dir, (path / "aiter" / "configs", path / "configs")), path)  # of an AITER
        tuned = sorted(file for file in folder.rglob(_TUNED) if _UNTUNED not in file.name)
        files = tuned if path.is_dir() else [path]
        if not files:
            raise DataError(f"{path} has no tuned tables ({_TUNED})", "name AITER's folder", code="no-aiter")
        for file in files:
            by_name.setdefault(file.name, []).extend(_table_rows(file, account, is_strict=not path.is_dir()))
    return KeyTables(by_name)


def _table_rows(path: Path, account: Account, *, is_strict: bool) -> Iterator[Mapping[str, str]]:
    rows = csv_rows(path, read_text(path))
    header = next(rows, (0, []))[1]
    if "cu_num" not in header and not is_strict:
        return  # another kind of table, e.g. of kernels
    if "cu_num" not in header:
        raise DataError(f"{path}: missing column cu_num", "--table reads AITER's tuned tables", code="missing-column")
    own = Account()
    for line, cells in rows:
        try:
            yield by_column(header, cells)
            own.use()
        except DataError as error:  # noqa: PERF203 - one row is no reason to drop the others
            own.refuse(error, f"{path}:{line}")
    if own.bad:
        own.settle(str(path))
        own.report(str(path))
    account.add(own)


def nearest_key(lookup: Lookup, key: Mapping[str, str], looked_up: Sequence[int], table: KeyTable) -> NearKey:
    """The row with the nearest key; `looked_up` are the values of `lookup.rows` that are tried, padded ones too."""
    near = [
        (cost, number)
        for number, row in enumerate(table.agreeing(lookup.others, key))
        if (cost := _cost(lookup, key, looked_up, row)) is not None
    ]
    if not near:
        wanted = ", ".join(f"{name} {key[name]}" for name in lookup.others)
        return NearKey({}, {}, f"no row has {wanted}")
    row = table.agreeing(lookup.others, key)[min(near)[1]]
    names = [*_DEVICE, lookup.rows, lookup.columns, *lookup.others, *lookup.dtypes]
    own = {name: row[name] for name in names if name in row}
    differs = {name: key[name] for name, value in own.items() if value != key[name]}
    if int(row[lookup.rows]) in looked_up:
        differs.pop(lookup.rows, None)
    return NearKey(own, differs, _why(lookup, row, differs, looked_up))


def _cost(
    lookup: Lookup, key: Mapping[str, str], looked_up: Sequence[int], row: Mapping[str, str]
) -> tuple[int, float] | None:
    """Distance of a row: the sum of its differences, then the distance of its sizes; None: it has none."""
    if any(name in row for name in lookup.foreign):
        return None
    try:
        rows, columns = int(row[lookup.rows]), int(row[lookup.columns])
    except (KeyError, ValueError):
        return None
    wanted = int(key[lookup.columns])
    far = abs(rows - looked_up[0]) / looked_up[0] + abs(columns - wanted) / wanted
    differs = {name for name in (*_DEVICE, *lookup.dtypes) if row.get(name, key[name]) != key[name]}
    cost = _OTHER_ARCH * ("gfx" in differs) + _OTHER_CUS * ("cu_num" in differs)
    cost += _OTHER_DTYPE * bool(differs.intersection(lookup.dtypes))
    cost += _OTHER_ROWS * (rows not in looked_up) + _OTHER_COLUMNS * (columns != wanted)
    return cost, far


def _why(lookup: Lookup, row: Mapping[str, str], differs: Mapping[str, str], looked_up: Sequence[int]) -> str:
    if not differs:
        if int(row[lookup.rows]) == looked_up[0]:
            return "the table has this key: the program read another table"
        return f"the table has this key padded to {row[lookup.rows]}: the program read another table, or does not pad"
    reasons = []
    if any(name in differs for name in _DEVICE):
        device = " ".join(f"{name} {row[name]}" for name in _DEVICE if name in row)
        reasons.append(f"tuned for another GPU ({device})")
    for name in lookup.dtypes:
        if name in differs:
            both = differs[name], row[name]
            of_chips = ": FNUZ floats are gfx942's" if sum(_FNUZ in dtype for dtype in both) == 1 else ""
            reasons.append(f"tuned in {row[name]}, not {differs[name]}{of_chips}")
    if lookup.rows in differs:
        tried = ", ".join(map(str, looked_up))
        reasons.append(f"{lookup.rows} {row[lookup.rows]} is not looked up ({tried} are)")
    if lookup.columns in differs:
        reasons.append(
            f"{lookup.columns} {row[lookup.columns]} instead of {differs[lookup.columns]}: fused, split or padded "
            "otherwise"
        )
    return "; ".join(reasons)
