"""Export of rows as a CSV file of AMD's benchmark, for tools that read that format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.data.numbering import Numbering
from ckh.data.tables import plain
from ckh.errors import DataError
from ckh.files.outputs import FileKind, head_of, open_output
from ckh.ops.grouped_conv.columns import CONV_IDENTITY
from ckh.ops.grouped_conv.kernels.names import amd_short_name, parse_kernel_name
from ckh.ops.grouped_conv.problem import CONV_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from ckh.data.formats import MeasuredRows

AMD_COLUMNS = ("kernel", "problem_idx", *CONV_COLUMNS, "latency_ms", "tflops", "non_zero")
AMD_CSV = FileKind("CSV file of AMD's columns", lambda path: _is_headed(head_of(path)))

_TIME = ("is_valid", "non_zero", "latency_ms")


def write_amd_csv(rows: MeasuredRows, path: Path) -> list[str]:
    """Write AMD's 24 columns and return warnings about data that they cannot represent.

    As in AMD's files, only rows with a time are written. Kernels have AMD's short names if these are distinct for all
    kernels of the rows, else their complete names. `non_zero` is 1 if outputs were not counted but the result was
    correct.

    Raises:
        DataError: the rows come from several architectures or none has a time.
        OutputError: the file cannot be written.
    """
    if len(archs := rows.distinct("arch")) > 1:
        raise DataError(
            f"the rows come from several architectures: {', '.join(archs)}",
            "convert the rows of one architecture",
            code="mixed-data",
        )
    names = dict.fromkeys(name for frame in _timed(rows, ()) for name in frame["kernel"].unique())
    if not names:
        raise DataError("no row has a time: nothing to write", code="not-measured")
    short = {name: amd_short_name(parse_kernel_name(name)) for name in names}
    is_clear = len(set(short.values())) == len(names)
    written = 0
    with open_output(path) as file:
        file.write((",".join(AMD_COLUMNS) + "\r\n").encode())
        for frame in _timed(rows, (*CONV_COLUMNS, "tflops")):
            kernel = frame["kernel"].map(short) if is_clear else frame["kernel"]
            out = frame.assign(kernel=kernel, non_zero=frame["non_zero"].fillna(1).astype("int64"))
            file.write(out[list(AMD_COLUMNS)].to_csv(index=False, header=False, lineterminator="\r\n").encode())
            written += len(out)
    omitted = len(rows) - written
    warnings = [f"rows without a time are not in {path}: {omitted}"] if omitted else []
    return (
        warnings if is_clear else [*warnings, "AMD's short names are not distinct for all kernels: names are complete"]
    )


def _timed(rows: MeasuredRows, names: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield the rows with a time in blocks, with these columns, their kernels and the indices of their problems."""
    numbers = Numbering((*CONV_IDENTITY, "arch"))
    wanted = ["kernel", *_TIME, *names]
    for block in rows.blocks(list(dict.fromkeys([*wanted, *CONV_IDENTITY, "arch"]))):
        frame = plain(block.select(wanted)).to_pandas().assign(problem_idx=numbers.of(block))
        yield frame[frame["is_valid"] | ((frame["non_zero"] == 0) & (frame["latency_ms"] > 0))]


def _is_headed(head: bytes) -> bool:
    return head.split(b"\n", 1)[0].strip() == ",".join(AMD_COLUMNS).encode()
