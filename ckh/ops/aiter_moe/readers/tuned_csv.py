"""Format of AITER's tuned tables of mixtures of experts (tuned_fmoe.csv): columns, cells, and lookup.

As for GEMMs, measured rows have AITER's columns; predicted rows have an additional column `predicted`, separate tables,
and an upper bound for `us`. A row has a kernel for each of the two products.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError
from ckh.files.outputs import FileKind, head_of
from ckh.ops.aiter_gemm.readers.tuned_csv import (
    PREDICTED,
    fastest,
    rates,
    timed_rows,
    torch_dtype,
    write_lines,
    written,
)
from ckh.ops.aiter_moe.kernel import parts
from ckh.ops.aiter_moe.kernels.pool import kind_of, moe_pool, newer_name
from ckh.ops.aiter_moe.problem import BOTH, QUANTS, STAGE1, STAGE2, AiterMoe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ckh.data.formats import MeasuredRows

NAME, VARIABLE = "tuned_fmoe", "AITER_CONFIG_FMOE"  # name of the table, and the environment variable that names it
KEY = (
    *("gfx", "cu_num", "token", "model_dim", "inter_dim", "expert", "topk", "act_type", "dtype", "q_dtype_a"),
    *("q_dtype_w", "q_type", "use_g1u1", "doweight_stage1"),
)
_CHOICE = (
    *("block_m", "ksplit", "us1", "kernelName1", "err1", "us2", "kernelName2", "err2", "us", "run_1stage"),
    *("tflops", "bw", "_tag"),
)
COLUMNS = (*KEY, *_CHOICE)
_OUTPUT = "torch.bfloat16"
_FP4 = "torch.float4_e2m1fn_x2"
QUANT_NAMES = {"per_token": "per_Token", "per_1x128": "per_1x128", "per_1x32": "per_1x32", "none": "No"}
# AITER's get_padded_M: powers of two below the first tier, above it the largest tier that is not larger.
TIERS = (32768, 131072)

TUNED = FileKind("tuned table of AITER's mixtures of experts", lambda path: b"kernelName2" in head_of(path))


@dataclass(frozen=True, slots=True)
class TunedMixture:
    """A row of a tuned table.

    Attributes:
        arch: the architecture.
        problem: both products, with the device's compute units.
        kernel: the names of both kernels, as in `MoeChoice`.
        time_us: the measured time, or if predicted an upper bound.
        is_predicted: whether it was predicted and not measured.
        times_us: the time of each product, if known.
    """

    arch: str
    problem: AiterMoe
    kernel: str
    time_us: float
    is_predicted: bool
    times_us: tuple[float | None, float | None] = (None, None)

    @property
    def key(self) -> tuple[Any, ...]:
        """The values of `KEY`, by which AITER looks a row up."""
        problem, arch = self.problem, self.arch
        return (
            *(arch, problem.num_cus, problem.tokens, problem.model_dim, problem.inter_dim, problem.experts),
            *(problem.topk, f"ActivationType.{problem.activation.capitalize()}", _OUTPUT),
            *(_torch(problem.dtype, arch), _torch(QUANTS[problem.quant], arch)),
            *(f"QuantType.{QUANT_NAMES[problem.quant]}", 1, 0),
        )

    def key_cells(self) -> dict[str, Any]:
        """The cells by which AITER looks the row up."""
        return dict(zip(KEY, self.key, strict=True))

    def cells(self) -> dict[str, Any]:
        """The row by column."""
        problem, (first, second) = self.problem, parts(self.kernel)
        us1, us2 = ("" if time is None else f"{time:.10g}" for time in self.times_us)
        return {
            **self.key_cells(),
            "block_m": first.block_m,
            "ksplit": 0,
            "us1": us1,
            "kernelName1": newer_name(first.name),
            "err1": "",
            "us2": us2,
            "kernelName2": newer_name(second.name),
            "err2": "",
            "us": f"{self.time_us:.10g}",
            "run_1stage": 0,
            **rates(problem, None if self.is_predicted else self.time_us),
            "_tag": "",
            PREDICTED: 1,
        }


def _torch(dtype: str, arch: str) -> str:
    names = {"bf16": _OUTPUT, "pk_fp4": _FP4}
    return names[dtype] if dtype in names else torch_dtype(dtype, arch)


def looked_up(problem: AiterMoe) -> AiterMoe:
    """Return the problem that AITER looks up: tokens padded to the next power of two, or down to a large tier."""
    tokens = problem.tokens
    tiers = [tier for tier in TIERS if tier <= tokens]
    return replace(problem, tokens=tiers[-1] if tiers else 1 << (tokens - 1).bit_length())


def table_text(lines: Sequence[TunedMixture]) -> str:
    """Return the text of a table of rows."""
    if len({line.is_predicted for line in lines}) != 1:
        raise DataError(
            "rows of one table of AITER must not be both measured and predicted, nor empty",
            "write separate tables",
            code="mixed-data",
        )
    seen: set[tuple[Any, ...]] = set()
    for line in lines:
        if line.kernel not in {kernel.name for kernel in moe_pool(line.arch, *kind_of(line.problem))}:
            raise DataError(
                f"AITER has no kernels {line.kernel} for {line.problem.canonical()} on {line.arch}",
                code="unknown-kernel",
            )
        if line.key in seen:
            raise DataError(f"duplicate shape for AITER: {line.problem.canonical()}", code="duplicate-rows")
        seen.add(line.key)
    return written(lines, [*COLUMNS, *([PREDICTED] if lines[0].is_predicted else [])])


def write_tuned(rows: MeasuredRows, path: Path) -> list[str]:
    """Write a dataset's rows as a tuned table: the best choices for both products, or predictions read back."""
    lines = dataset_lines(rows)
    return write_lines(path, table_text(lines), len(rows) - len(lines), "slower kernels, single products and failures")


def dataset_lines(rows: MeasuredRows) -> list[TunedMixture]:
    """Return the best choices for both products in order of the rows, with the time of each, and predictions."""
    from ckh.ops.aiter_moe.operation import OPERATION

    both: list[TunedMixture] = []
    single: dict[tuple[str, AiterMoe, str], float] = {}
    for arch, problem, kernel, time_us, is_predicted in timed_rows(rows, OPERATION):
        if problem.stage == BOTH:
            both.append(TunedMixture(arch, problem, kernel, time_us, is_predicted))
        else:
            single[arch, problem, kernel] = time_us
    return [replace(line, times_us=_of_each(line, single)) for line in fastest(both)]


def _of_each(line: TunedMixture, single: dict[tuple[str, AiterMoe, str], float]) -> tuple[float | None, float | None]:
    """Return the time of each product, if measured."""
    first, second = (
        single.get((line.arch, replace(line.problem, stage=stage), part.name))
        for stage, part in zip((STAGE1, STAGE2), parts(line.kernel), strict=True)
    )
    return first, second
