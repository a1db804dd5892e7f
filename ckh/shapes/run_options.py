"""`RunOptions`: how a model runs, from which its shapes follow."""

from __future__ import annotations

from dataclasses import dataclass

# Tokens of a decode step of that many sequences, and of prefills.
DEFAULT_TOKENS = (1, 16, 64, 256, 1024, 4096)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a model runs.

    Attributes:
        tp: ranks of tensor parallelism.
        tokens: rows of a language model's products: sequences of a decode step, tokens of a prefill.
        batch: images, clips or samples at a time, of networks and encoders.
        dtype: element type that takes the place of a model's; None: the model's.
        default_dtype: element type of shapes that state none, as those of networks.
        variant: direction of convolutions that state none; others are left out; None: forward, and all others.
        quantised_as: element type that a model without a quantisation is quantised to; empty: it is not.
        fuse_shared: whether shared experts are further experts that each token chooses.
        skip_bad: whether what is bad is left out, with a warning.
    """

    tp: int = 1
    tokens: tuple[int, ...] = DEFAULT_TOKENS
    batch: tuple[int, ...] = (1,)
    dtype: str | None = None
    default_dtype: str = "fp16"
    variant: str | None = None
    quantised_as: str = ""
    fuse_shared: bool = False
    skip_bad: bool = False


DEFAULT = RunOptions()
