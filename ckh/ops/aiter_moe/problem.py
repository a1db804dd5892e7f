"""`AiterMoe`: the two matrix products of a mixture of experts, as AITER tunes them, with complete identity."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from typing import Any

from ckh.errors import UsageError
from ckh.problems import DTYPE_BYTES, PasteableProblem, settle_size
from ckh.text.prose import one_of

OP_TYPE = "aiter_moe"
PREFIX = "aiter_moe_"

BOTH, STAGE1, STAGE2 = "both", "stage1", "stage2"
STAGES = (BOTH, STAGE1, STAGE2)
DTYPES = ("fp8", "bf16", "pk_fp4")  # of the inputs of the products
# Scaling of the experts -> their element type.
QUANTS: dict[str, str] = {"per_token": "fp8", "per_1x128": "fp8", "per_1x32": "pk_fp4", "none": "bf16"}
ACTIVATIONS = ("silu", "swiglu")
# Problems that AITER computes and ckh does not answer: element types of tokens and experts, scaling -> reason.
UNANSWERED: dict[tuple[str, str, str], str] = {
    ("fp8", "fp8", "per_1x32"): "mxfp8: AITER tunes FlyDSL's kernels for it, none of Composable Kernel's",
    ("fp8", "int4", "per_token"): "no measurement is public, and no estimate covers int4 experts",
    ("int8", "int8", "per_token"): "no measurement is public, and no estimate covers int8 experts",
}

# Dataset column -> field; all are sizes.
SIZES: dict[str, str] = {name: name for name in ("tokens", "model_dim", "inter_dim", "experts", "topk", "num_cus")}
KINDS: dict[str, tuple[str, ...]] = {
    "stage": STAGES,
    "dtype": DTYPES,
    "quant": tuple(QUANTS),
    "activation": ACTIVATIONS,
}
IDENTITY: tuple[str, ...] = (*KINDS, *SIZES)

RESULT_BYTES = 2  # bf16
GATES = 2  # halves of the first product, one of which gates the other
_SHORT = {"tokens": "t", "model_dim": "d", "inter_dim": "i", "experts": "e", "topk": "k"}
_CANONICAL = (
    PREFIX
    + "_".join(rf"(?P<{name}>{'|'.join(values)})" for name, values in KINDS.items())
    + r"_cu(?P<num_cus>[0-9]{1,10})"
    + "".join(rf"_{letter}(?P<{name}>[0-9]{{1,10}})" for name, letter in _SHORT.items())
)


@dataclass(frozen=True, slots=True, order=True, repr=False)
class AiterMoe(PasteableProblem):
    """Y = (act(X W1) * (X W1')) W2 for the experts that each token chooses."""

    tokens: int  # rows of X
    model_dim: int  # columns of X and of Y
    inter_dim: int  # columns of the intermediate result, per device
    experts: int  # number of experts on the device
    topk: int  # number of experts that each token chooses
    stage: str = BOTH  # both products, whose tiles have the same number of rows, or one of them
    dtype: str = "fp8"  # element type of the first product's input
    quant: str = "per_token"  # scaling of the experts, which determines their element type
    activation: str = "silu"  # activation between the products
    num_cus: int = 0  # compute units of the device, 0 for those of the GPU that is asked about

    def __post_init__(self) -> None:
        for name in SIZES:
            settle_size(self, name, least=0 if name == "num_cus" else 1)
        if self.dtype not in DTYPES and (reason := UNANSWERED.get((self.dtype, self.dtype, self.quant))):
            raise UsageError(f"no answer for {self.dtype} by {self.dtype}, {self.quant}: {reason}", code="unsupported")
        for name, values in KINDS.items():
            if getattr(self, name) not in values:
                raise UsageError(
                    f"unknown {name} {getattr(self, name)!r}",
                    one_of(getattr(self, name), values),
                    code="unknown-name",
                )
        if self.topk > self.experts:
            raise UsageError(f"a token cannot choose {self.topk} of {self.experts} experts", code="out-of-range")

    @property
    def flops(self) -> int:
        """Number of floating-point operations of its stages."""
        each = 2 * self.tokens * self.topk * self.model_dim * self.inter_dim
        return each * ((self.stage != STAGE2) * GATES + (self.stage != STAGE1))

    @property
    def bytes(self) -> int:
        """Minimum bytes that its stages move, if choices are spread over as many experts as possible."""
        active, rows = min(self.experts, self.tokens * self.topk), self.tokens * self.topk
        weight, element = DTYPE_BYTES[QUANTS[self.quant]], DTYPE_BYTES[self.dtype]
        product = self.model_dim * self.inter_dim
        first = active * GATES * product * weight + self.tokens * self.model_dim * element
        first += rows * self.inter_dim * RESULT_BYTES
        second = active * product * weight + rows * self.inter_dim * element
        second += self.tokens * self.model_dim * RESULT_BYTES
        return math.ceil((self.stage != STAGE2) * first + (self.stage != STAGE1) * second)

    def canonical(self) -> str:
        """Text that holds the complete identity; `parse_aiter_moe` parses it."""
        kind = "_".join(str(getattr(self, name)) for name in KINDS)
        sizes = "".join(f"_{letter}{getattr(self, name)}" for name, letter in _SHORT.items())
        return f"{PREFIX}{kind}_cu{self.num_cus}{sizes}"

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON; `AiterMoe(**d)` restores the problem."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def parse_aiter_moe(text: str) -> AiterMoe:
    """Parse the text that `AiterMoe.canonical` returns."""
    match = re.fullmatch(_CANONICAL, text.strip())
    if match is None:
        example = AiterMoe(64, 7168, 256, 256, 8, num_cus=256).canonical()
        raise UsageError(f"not a mixture of experts: {text!r}", f"e.g. {example}", code="bad-problem")
    given: dict[str, Any] = {name: int(match[name]) for name in SIZES}
    given |= {name: match[name] for name in KINDS}
    return AiterMoe(**given)
