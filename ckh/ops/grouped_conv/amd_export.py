"""Writing a dataset as the CSV file of AMD's benchmark, for tools that read that."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from ckh.errors import DataError
from ckh.ops.grouped_conv.names import amd_short_name, parse_kernel_name
from ckh.ops.grouped_conv.problem import CONV_COLUMNS
from ckh.outputs import FileKind, head_of, write_output

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.formats import MeasuredRows

AMD_COLUMNS = ("kernel", "problem_idx", *CONV_COLUMNS, "latency_ms", "tflops", "non_zero")
AMD_CSV = FileKind("CSV file of AMD's columns", lambda path: _is_headed(head_of(path)))


def write_amd_csv(dataset: MeasuredRows, path: Path) -> list[str]:
    """Write AMD's 24 columns and give warnings about what they cannot hold.

    As in AMD's files, only rows with a time are there. Kernels have AMD's short names where those tell all kernels
    of the dataset apart, else their complete names. `non_zero` is 1 where nobody counted but the result was right.

    Raises:
        DataError: the rows come from several architectures or none has a time.
    """
    _ = dataset.arch
    frame = dataset.frame.assign(problem_idx=dataset.problem_ids)
    frame = frame[frame["is_valid"] | ((frame["non_zero"] == 0) & (frame["latency_ms"] > 0))]
    if frame.empty:
        raise DataError("no row has a time: there is nothing to write")
    names = list(frame["kernel_name"].unique())
    short = {name: amd_short_name(parse_kernel_name(name)) for name in names}
    is_clear = len(set(short.values())) == len(names)
    kernel = frame["kernel_name"].map(short) if is_clear else frame["kernel_name"]
    text = io.StringIO()
    out = frame.assign(kernel=kernel, non_zero=frame["non_zero"].fillna(1).astype("int64"))
    out[list(AMD_COLUMNS)].to_csv(text, index=False, lineterminator="\r\n")
    write_output(path, text.getvalue().encode())
    omitted = len(dataset) - len(frame)
    warnings = [f"rows without a time are not in {path}: {omitted}"] if omitted else []
    return warnings if is_clear else [*warnings, "AMD's short names do not tell the kernels apart: names are complete"]


def _is_headed(head: bytes) -> bool:
    return head.split(b"\n", 1)[0].strip() == ",".join(AMD_COLUMNS).encode()
