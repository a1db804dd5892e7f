"""The `hip` device: a Stream-K GEMM kernel as one CK Tile translation unit, for the interface of late 2025."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.codegen.ck_tile import PIPELINE_HEADERS
from ckh.bench.codegen.interfaces import Interface
from ckh.bench.codegen.unit_source import UnsupportedKernelError
from ckh.kernels.judging import RuleBook, given
from ckh.ops.gemm_streamk.kernel import REDUCTIONS
from ckh.ops.gemm_universal.measuring.hip import source_of
from ckh.ops.gemm_universal.measuring.hip_rules import missing, rules_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ckh.archs import ArchSpec
    from ckh.kernels.judging import Rule
    from ckh.ops.gemm_streamk.kernel import GemmStreamKKernel
    from ckh.ops.gemm_universal.measuring.hip_headers import GemmHeaders

_KERNEL = Path("ck_tile/ops/gemm/kernel/streamk_gemm_kernel.hpp")
# The second kernel of late 2025, which has both reductions and persistent blocks; the first one is in a namespace less.
_CLASS = "namespace reboot"
# How a pipeline's header declares that a loop's end may be a matter of run time.
_ANY_LOOP_END = re.compile(r"operator\(\)\([^)]*\bbool has_hot_loop\b")


@RuleBook().rule
def _refused(pipeline: str, *, headers: GemmHeaders) -> Iterator[str]:
    common = headers.common
    if common.interface is not Interface.LATE_2025:
        yield f"Stream-K kernels need CK Tile's interface of late 2025, this is {common.interface}"
    elif _CLASS not in common.text(_KERNEL):
        yield f"{common} have no Stream-K kernel with both reductions"
    elif pipeline in common.double_buffered:
        yield f"the Stream-K kernel of {common} has one buffer, {pipeline} needs two"
    elif pipeline not in PIPELINE_HEADERS or not _ANY_LOOP_END.search(common.text(PIPELINE_HEADERS[pipeline])):
        yield f"{pipeline} of {common} has its loop's end at compile time, but blocks that share tiles differ in it"


def streamk_rules(headers: GemmHeaders) -> tuple[Rule, ...]:
    """Return the rules for these headers: `gemm_universal`'s, and those of CK Tile's Stream-K kernel."""
    return *rules_of(headers), *given((_refused,), headers=headers)


def found_in(headers: GemmHeaders, plain: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the features of headers for Stream-K kernels, described, given those for `gemm_universal`'s."""
    (own,) = given((_refused,), headers=headers)
    pipelines = tuple(name for name in plain["pipelines"] if not list(own.function(name)))
    return {
        "pipelines": pipelines,
        "epilogues": plain["epilogues"],
        "interwave": tuple(name for name in plain["interwave"] if name in pipelines),
        "persistent": tuple(name for name in plain["persistent"] if name in pipelines),
    }


def emit(kernel: GemmStreamKKernel, headers: GemmHeaders, arch: ArchSpec) -> str:
    """Return the C++ source of one kernel for an architecture.

    Raises:
        UnsupportedKernelError: these headers cannot build it; states the reason.
    """
    (own,) = given((_refused,), headers=headers)
    if reasons := list(own(kernel, arch)) or missing(kernel, headers, arch):
        raise UnsupportedKernelError("; ".join(reasons))
    parameters = (
        f"inline constexpr auto strategy = ck_tile::StreamKReductionStrategy::{REDUCTIONS[kernel.reduction]};",
        f"inline constexpr int blocks_per_cu = {kernel.blocks_per_cu};",
    )
    includes = ("streamk_late2025.hpp", "gemm_exports.hpp")
    return source_of(kernel, headers, *includes, vocabulary="streamk_vocabulary.hpp", own=parameters)
