"""Share of AITER's own tables that ckh understands, and what it leaves out of each and why.

Untuned lists are read as by `ckh shapes`, tuned tables as by `ckh convert`.

    python benchmarks/aiter_files.py path/of/aiter
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.data.formats import ReadOptions
from ckh.data.readers import read_input
from ckh.errors import CkhError
from ckh.files.account import Account
from ckh.ops.aiter.installed import configs_of
from ckh.shapes.layers import DEFAULT
from ckh.shapes.sources import found_in, source_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class TableRead:
    """A table of AITER's, and what was read of it."""

    name: str
    account: Account
    refused: str = ""  # the error of a file of which nothing is usable

    @property
    def lines(self) -> Iterator[str]:
        """What is left out."""
        yield from ([self.refused] if self.refused else self.account.words())


def read_tables(folder: Path) -> list[TableRead]:
    """Read all tables of an installed AITER, or of its source."""
    configs = configs_of(folder)
    return [_read(path, configs) for path in sorted(configs.rglob("*.csv"))] if configs is not None else []


def _read(path: Path, configs: Path) -> TableRead:
    name = path.relative_to(configs).as_posix()
    try:
        if "untuned" in path.name:
            return TableRead(name, found_in(source_of(str(path)), DEFAULT).account)
        return TableRead(name, read_input(path, ReadOptions()).account)
    except CkhError as error:
        return TableRead(name, Account(), f"refused: {error.message}")


def main() -> None:
    """Print what is left out of each table, and the shares."""
    tables = read_tables(Path(sys.argv[1]))
    total = Account()
    for table in tables:
        total.add(table.account)
        for line in table.lines:
            print(f"{table.name}: {line}")
    rows = max(total.total, 1)
    refused = sum(bool(table.refused) for table in tables)
    print(
        f"{len(tables)} tables, {refused} refused; of the rows of the others {total.used / rows:.1%} are used, "
        f"{total.known.total() / rows:.1%} are known and left out, {total.bad.total() / rows:.1%} are not understood"
    )


if __name__ == "__main__":
    main()
