"""`GemmMultiDKernel`: a kernel of `gemm_universal` with a function of further tensors in its epilogue.

Names are those of `GemmKernel` with another beginning, which states the function and the number of tensors:
`gemm_multi_d_add_relu_2_fp16_rcr_...`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ckh.kernels.name_grammar import either
from ckh.ops.gemm_multi_d.problem import FUNCTIONS, MAX_TENSORS, PREFIX
from ckh.ops.gemm_universal.kernel import GROUP_FIELDS, GemmKernel
from ckh.ops.gemm_universal.kernels.names import parser_of


@dataclass(frozen=True, slots=True, order=True)
class GemmMultiDKernel(GemmKernel):
    """A kernel whose epilogue applies a function.

    Attributes:
        function: one of `FUNCTIONS`.
        num_d: number of further tensors.
    """

    group_fields = (*GROUP_FIELDS, "function", "num_d")

    function: str = "add"
    num_d: int = 1

    @property
    def op_type(self) -> str:  # type: ignore[override]
        """First part of names."""
        return f"{PREFIX}{self.function}_{self.num_d}"


_HEAD = rf"{PREFIX}(?P<function>{either(FUNCTIONS)})_(?P<num_d>[1-{MAX_TENSORS}])"
parse_multi_d_kernel = parser_of(
    GemmMultiDKernel, _HEAD, lambda match: {"function": match["function"], "num_d": int(match["num_d"])}
)
