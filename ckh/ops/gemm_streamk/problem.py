"""`GemmStreamKProblem`: a matrix product of `gemm_universal`, whose split of K is the kernel's choice."""

from __future__ import annotations

import re

from ckh.errors import UsageError
from ckh.ops.gemm_universal.problem import GemmProblem

OP_TYPE = "gemm_streamk"
PREFIX = "gemm_streamk_"

_CANONICAL = (
    rf"{PREFIX}(?P<dtype>[a-z0-9]+)_(?P<layout>[rc]{{3}})_m(?P<m>[0-9]{{1,10}})_n(?P<n>[0-9]{{1,10}})"
    r"_k(?P<k>[0-9]{1,10})"
)


class GemmStreamKProblem(GemmProblem):
    """C (M x N) = A (M x K) x B (K x N).

    Raises:
        UsageError: as `GemmProblem`, or a split of K is stated.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split_k != 1:
            raise UsageError(
                f"split_k={self.split_k}: Stream-K kernels split K themselves", "omit split_k", code="out-of-range"
            )

    def canonical(self) -> str:
        """Text that holds the complete identity; `parse_streamk_problem` parses it."""
        return f"{PREFIX}{self.dtype}_{self.layout}_m{self.m}_n{self.n}_k{self.k}"


def parse_streamk_problem(text: str) -> GemmStreamKProblem:
    """Parse the text that `GemmStreamKProblem.canonical` returns.

    Raises:
        UsageError: the text is malformed, or its sizes are invalid.
    """
    match = re.fullmatch(_CANONICAL, text.strip())
    if match is None:
        raise UsageError(
            f"not a Stream-K GEMM problem: {text!r}", f"e.g. {PREFIX}fp16_rcr_m512_n512_k65536", code="bad-problem"
        )
    sizes = {name: int(match[name]) for name in "mnk"}
    return GemmStreamKProblem(**sizes, dtype=match["dtype"], layout=match["layout"])
