"""Rows of AITER's tuned tables, from any file format: for each shape the winning kernel and its time.

Times of the other kernels are unknown, so that such data are for `ckh train --labels winners`. Rows of other libraries,
and of kernels that are not in AITER's current lists, are skipped and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ckh.errors import DataError, UsageError
from ckh.ops.aiter_gemm.kernel import parse_kernel
from ckh.ops.aiter_gemm.kernels.pool import known_names, resolved
from ckh.ops.aiter_gemm.problem import CKTILE, FAMILIES, OP_TYPE, AiterGemm
from ckh.ops.aiter_gemm.readers.tuned_csv import bound_message
from ckh.ops.aiter_gemm.tuned_device import ARCH_OF_CUS
from ckh.problems import dtype_name

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from ckh.data.formats import ReadOptions
    from ckh.ops.aiter_gemm.kernel import AiterKernel

FOREIGN = "of a library other than Composable Kernel"
UNLISTED = "of a kernel that is not in AITER's lists"
UNKNOWN_ARCH = "of an architecture that is unknown or not stated"
OTHER_ARCH = "of another architecture than --arch"
NO_TIME = "without a time"
BAD = "with a size, time or element type that is impossible"

_SHUFFLED = "bpreshuffle"
_US_PER_MS = 1000.0


class TunedRow(NamedTuple):
    """A row of a table, as stated there.

    Attributes:
        arch: empty if only compute units are stated.
        dtype: element type of the weights, without `torch.`; empty if the table has no such column.
        hint: a family, or the file's name; it selects the family of kernels that serve two.
        is_predicted: whether ckh predicted the kernel, and the time is an upper bound.
    """

    arch: str
    num_cus: int
    m: int
    n: int
    k: int
    dtype: str
    kernel: str
    split_k: int
    time_us: float
    hint: str
    is_predicted: bool = False


class LeftOut(Exception):  # noqa: N818 - the row is left out and counted
    """A skipped row, with the reason. Impossible rows stop a conversion."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, slots=True)
class Won:
    """A winner: architecture, problem, kernel, and its time, or an upper bound if predicted."""

    arch: str
    problem: AiterGemm
    kernel: AiterKernel
    time_us: float
    is_predicted: bool


def winner_of(row: TunedRow, options: ReadOptions) -> Won:
    """Return the winner of a row.

    Raises:
        LeftOut: the row is unsupported, or impossible.
    """
    try:
        kernel = parse_kernel(_named(row))
    except DataError:
        raise LeftOut(FOREIGN) from None
    arch = _arch(row, options)
    family = _family(kernel, row.hint)
    try:
        problem = AiterGemm(row.m, row.n, row.k, family, _dtype(row, family), kernel.library, num_cus=row.num_cus or -1)
    except UsageError as error:
        raise LeftOut(BAD, error.message) from None
    if not np.isfinite(row.time_us) or row.time_us == 0:
        raise LeftOut(NO_TIME)
    if row.time_us < 0:
        raise LeftOut(BAD, f"the time of {problem.canonical()} is {row.time_us:g}")
    if kernel.name not in known_names(family, kernel.library, arch):
        raise LeftOut(UNLISTED)
    return Won(arch, problem, kernel, row.time_us, row.is_predicted)


def tables(rows: Iterable[TunedRow], options: ReadOptions, path: Path, left_out: Counter[str]) -> Iterator[pa.Table]:
    """Yield the winners as rows of a dataset, a table per device; skipped rows are counted.

    Raises:
        DataError: a row is impossible and not to be skipped, or no row is left.
    """
    result: dict[tuple[str, int], list[Won]] = {}
    for row in rows:
        try:
            won = winner_of(row, options)
        except LeftOut as why:
            if why.reason == BAD and not options.skip_bad:
                raise DataError(
                    f"{path}: a row {BAD}: {why.detail}", "skip such rows with --skip-bad", code="bad-row"
                ) from None
            left_out[why.reason] += 1
            continue
        result.setdefault((won.arch, won.problem.num_cus), []).append(won)
    if not result:
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise DataError(f"{path}: no usable row ({reasons or 'the file has no rows'})", code="empty")
    for (arch, num_cus), some in sorted(result.items()):
        yield _table(arch, num_cus, some, path.name)


def _table(arch: str, num_cus: int, some: list[Won], run_id: str) -> pa.Table:
    from ckh.data.rows import Origin, Pairs, Results, build_table, status_of
    from ckh.schema import Status

    is_predicted = np.array([won.is_predicted for won in some])
    latency_ms = np.where(is_predicted, np.nan, np.array([won.time_us for won in some]) / _US_PER_MS)
    messages = [bound_message(won.time_us) if won.is_predicted else None for won in some]
    return build_table(
        Pairs.of(((won.problem, won.kernel) for won in some), OP_TYPE),
        Results(status_of(~is_predicted, Status.PREDICTED), latency_ms, {"message": messages}),
        Origin.on_gpu(arch, num_cus, run_id),
    )


def _named(row: TunedRow) -> str:
    base = resolved(row.kernel)
    return f"{base}_splitk{row.split_k}" if row.split_k else base


def _arch(row: TunedRow, options: ReadOptions) -> str:
    from ckh.archs import arch_names

    wanted = (options.arch or "").split(":", 1)[0]
    arch = row.arch.split(":", 1)[0] or wanted or ARCH_OF_CUS.get(row.num_cus, "")
    if arch not in arch_names():
        raise LeftOut(UNKNOWN_ARCH)
    if wanted and arch != wanted:
        raise LeftOut(OTHER_ARCH)
    return arch


def _family(kernel: AiterKernel, hint: str) -> str:
    """Return a kernel's own family; CK Tile's block-scaled kernels serve shuffled operands too."""
    serves_both = kernel.library == CKTILE and kernel.family == "a8w8_blockscale"
    return f"{kernel.family}_{_SHUFFLED}" if serves_both and _SHUFFLED in hint else kernel.family


def _dtype(row: TunedRow, family: str) -> str:
    """Return the element type; AITER's tuner of `a8w8` used int8 before its tables had a column for it."""
    if len(FAMILIES[family]) == 1:
        return FAMILIES[family][0]
    if not row.dtype:
        return "int8"
    if (name := dtype_name(row.dtype)) not in FAMILIES[family]:
        raise LeftOut(BAD, f"the element type is {row.dtype!r}")
    return name
