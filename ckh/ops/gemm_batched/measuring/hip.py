"""The `hip` device: a batched GEMM kernel as one CK Tile translation unit, for the interfaces of 2025."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.codegen.unit_source import UnsupportedKernelError
from ckh.kernels.judging import RuleBook, given
from ckh.kernels.pipelines import wave_groups_of
from ckh.ops.gemm_universal.measuring.hip import source_of
from ckh.ops.gemm_universal.measuring.hip_rules import missing, rules_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import Rule
    from ckh.ops.gemm_batched.kernel import GemmBatchedKernel
    from ckh.ops.gemm_universal.measuring.hip_headers import GemmHeaders

_KERNEL = Path("ck_tile/ops/gemm/kernel/batched_gemm_kernel.hpp")
_ARGUMENTS = "UniversalGemmHostArgs<>"  # base of the batched kernel's, where it is built on the universal kernel


@RuleBook().rule
def _refused(pipeline: str, *, headers: GemmHeaders) -> Iterator[str]:
    common = headers.common
    if headers.is_current:
        yield f"batched kernels of {common} are not emitted"
    elif _ARGUMENTS not in common.text(_KERNEL):
        yield f"{common} have no batched kernel that is built on the universal one"
    if pipeline in common.double_buffered:
        yield f"the batched kernel of {common} has one buffer, {pipeline} needs two"
    elif wave_groups_of(pipeline):
        yield f"the batched kernel of {common} has one group of waves, {pipeline} needs two"


def batched_rules(headers: GemmHeaders) -> tuple[Rule, ...]:
    """Return the rules for these headers: `gemm_universal`'s, and those of CK Tile's batched kernel."""
    return *rules_of(headers), *given((_refused,), headers=headers)


def found_in(headers: GemmHeaders, plain: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the features of headers for batched kernels, described, given those for `gemm_universal`'s."""
    (own,) = given((_refused,), headers=headers)
    return {
        "pipelines": tuple(name for name in plain["pipelines"] if not list(own.function(name))),
        "epilogues": plain["epilogues"],
        "interwave": plain["interwave"],
    }


def emit(kernel: GemmBatchedKernel, headers: GemmHeaders, arch: ArchSpec) -> str:
    """Return the C++ source of one kernel for an architecture.

    Raises:
        UnsupportedKernelError: these headers cannot build it; states the reason.
    """
    (own,) = given((_refused,), headers=headers)
    if reasons := missing(kernel, headers, arch) or list(own(kernel, arch)):
        raise UnsupportedKernelError("; ".join(reasons))
    classes = f"gemm_{headers.common.interface}_classes.hpp"
    return source_of(kernel, headers, "gemm_plain.hpp", classes, "batched_launch.hpp", "batched_exports.hpp")
