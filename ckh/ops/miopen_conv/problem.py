"""`MiopenProblem`: a convolution with MIOpen's layouts, with complete identity."""

from __future__ import annotations

import re

from ckh.errors import UsageError
from ckh.ops.grouped_conv.problem import CONV_LAYOUTS, ConvProblem, parse_conv_problem
from ckh.problems import DTYPE_BYTES, unknown_dtype
from ckh.text.prose import one_of

DTYPES = ("fp32", "fp16", "bf16", "int8")
# Number of spatial dimensions -> layouts of all three tensors, MIOpen's default first.
LAYOUTS: dict[int, tuple[str, ...]] = {2: ("nchw", "nhwc"), 3: ("ncdhw", "ndhwc")}

_PREFIX = "miopen_"
_CANONICAL = rf"{_PREFIX}(?P<head>conv_[a-z_]+?_[a-z]+\d+)_(?P<layout>[a-z]+)_(?P<rest>(?P<ndim>[23])d_.*)"


class MiopenProblem(ConvProblem):
    """A `ConvProblem` whose tensors have one of MIOpen's layouts; sizes, flops, bytes and GEMM sizes are the same.

    Groups are not a dimension of these layouts: `input_shape` and similar are shapes by group, as for `ConvProblem`.

    Raises:
        UsageError: as `ConvProblem`; or MIOpen does not have the layout or dtype.
    """

    def __post_init__(self) -> None:
        layout = self.layout
        object.__setattr__(self, "layout", "")
        super().__post_init__()
        known = LAYOUTS[self.ndim]
        object.__setattr__(self, "layout", layout or known[0])
        if self.layout not in known:
            raise UsageError(
                f"layout {layout!r} is not one of MIOpen's in {self.ndim}D",
                one_of(layout, known),
                code="unknown-name",
            )
        if self.dtype not in DTYPES:
            raise UsageError(
                f"MIOpen's databases have no dtype {self.dtype!r}", one_of(self.dtype, DTYPES), code="unknown-dtype"
            )

    def canonical(self) -> str:
        """Text that holds the complete identity; `parse_miopen_problem` parses it."""
        return _PREFIX + super().canonical()


def parse_miopen_problem(text: str) -> MiopenProblem:
    """Parse the text that `MiopenProblem.canonical` returns.

    Raises:
        UsageError: the text is malformed, or its sizes are invalid.
    """
    match = re.fullmatch(_CANONICAL, text.strip())
    if match is None:
        raise UsageError(
            f"not a MIOpen problem: {text!r}",
            "e.g. miopen_conv_forward_fp32_nchw_2d_n1_c64_k64_g1_i28x28_f3x3_s1x1_p1x1_d1x1",
            code="bad-problem",
        )
    # ConvProblem, which has its own layout, validates the sizes.
    conv = parse_conv_problem(f"{match['head']}_{CONV_LAYOUTS[int(match['ndim'])]}_{match['rest']}")
    return _with_layout(conv, match["layout"])


def from_convolution(problem: ConvProblem, layout: str = "") -> MiopenProblem:
    """Return a convolution with one of MIOpen's layouts, by default NCHW or NCDHW.

    Raises:
        UsageError: MIOpen has no such layout or dtype.
    """
    if problem.dtype not in DTYPE_BYTES:
        raise unknown_dtype(problem.dtype)
    return _with_layout(problem, layout)


def _with_layout(problem: ConvProblem, layout: str) -> MiopenProblem:
    values = {name: getattr(problem, name) for name in problem.field_names}
    return MiopenProblem(**{**values, "layout": layout})
