"""Converting inputs to a dataset file: read all, merge, write, and count what happened to the rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ckh.data.amd_export import AMD_CSV, write_amd_csv
from ckh.data.dataset import DATASET, save_blocks
from ckh.data.merge import merge
from ckh.data.readers import find_reader, read_input
from ckh.data.readers.aiter_csv import NAME as AITER_CSV
from ckh.data.readers.aiter_csv import WINNERS, read_winners, require_csv_name, write_winners
from ckh.errors import UsageError
from ckh.strenum import StrEnum

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ckh.data.readers import ReadOptions


class OutputFormat(StrEnum):
    """What a conversion writes."""

    PARQUET = "parquet"
    CSV = "csv"
    PROBLEMS = "problems"


# What a format's file is, where one exists already.
OUTPUT_KINDS = {OutputFormat.PARQUET: DATASET, OutputFormat.CSV: AMD_CSV, OutputFormat.PROBLEMS: WINNERS}


@dataclass(frozen=True, slots=True)
class Summary:
    """What a conversion did.

    `by_status` and `dropped` (by reason) count rows; `superseded` rows gave way to a later one of their run and
    `repeated` rows to one of another run; `sha256` is the dataset's content hash.
    """

    rows: int
    valid: int
    problems: int
    kernels: int
    archs: tuple[str, ...]
    variants: tuple[str, ...]
    by_status: dict[str, int]
    dropped: dict[str, int]
    superseded: int
    repeated: int
    sha256: str
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return asdict(self)


def convert(
    inputs: Sequence[Path],
    out: Path,
    options: ReadOptions,
    *,
    format_name: str | None = None,
    to: OutputFormat = OutputFormat.PARQUET,
    averages: bool = False,
) -> Summary:
    """Merge journals, run folders and CSV files into one dataset file; nothing is written unless all is well.

    With `averages` the time of a pair that several inputs measured is their geometric mean.

    Raises:
        CkhError: an input is unusable, or the output cannot be written.
    """
    import pyarrow.compute as pc

    readings = [read_input(path, options, format_name) for path in inputs]
    merged = merge(readings, averages=averages)
    dropped: Counter[str] = Counter()
    for reading in readings:
        dropped.update(reading.bad)
    warnings = [warning for reading in readings for warning in reading.warnings]
    if to is OutputFormat.CSV:
        warnings += write_amd_csv(merged.dataset, out)
    else:
        save_blocks(out, merged.op, merged.blocks(), merged.metadata, merged.content_hash)
    return Summary(
        rows=len(merged),
        valid=sum(int(pc.sum(block["is_valid"]).as_py()) for block in merged.blocks(["is_valid"])),
        problems=merged.problems,
        kernels=len(merged.distinct("kernel_name")),
        archs=merged.distinct("arch"),
        variants=merged.distinct("variant") if merged.op.has_directions else (),
        by_status=merged.by_status(),
        dropped=dict(dropped),
        superseded=merged.superseded,
        repeated=merged.repeated,
        sha256=merged.content_hash,
        warnings=tuple(warnings),
    )


@dataclass(frozen=True, slots=True)
class WinnerSummary:
    """What became of tables of winners: rows written, distinct problems, rows left out by reason or for faster ones."""

    winners: int
    problems: int
    archs: tuple[str, ...]
    dropped: dict[str, int]
    repeated: int
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return asdict(self)


def convert_winners(
    inputs: Sequence[Path], out: Path, options: ReadOptions, *, format_name: str | None = None
) -> WinnerSummary:
    """Write the winners of AITER's tuned tables as one problem file; nothing is written unless all is well.

    Raises:
        CkhError: an input is unusable or no such table, or the output cannot be written.
    """
    require_csv_name(out)
    for path in inputs:
        if (format_name or find_reader(path).name) != AITER_CSV:
            raise UsageError(f"{path} is no tuned table of AITER", "only of these are problems written")
    tables = [read_winners(path, options) for path in inputs]
    winners = [winner for table in tables for winner in table.winners]
    write_winners(winners, out)
    dropped: Counter[str] = Counter()
    for table in tables:
        dropped.update(table.bad)
    return WinnerSummary(
        winners=len(winners),
        problems=len({winner.problem for winner in winners}),
        archs=tuple(sorted({winner.arch for winner in winners})),
        dropped=dict(dropped),
        repeated=sum(table.repeated for table in tables),
        warnings=tuple(warning for table in tables for warning in table.warnings),
    )
