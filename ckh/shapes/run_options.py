"""`RunOptions`: options that determine the shapes of a model."""

from __future__ import annotations

from dataclasses import dataclass

# Sequences of a decode step, and tokens of prefills.
DEFAULT_TOKENS = (1, 16, 64, 256, 1024, 4096)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options that determine the shapes of a model.

    Attributes:
        tp: ranks of tensor parallelism.
        tokens: rows of a language model's products: sequences of a decode step, tokens of a prefill.
        batch: batch size of networks and encoders: images, clips or samples.
        dtype: element type that replaces a model's; None: the model's.
        default_dtype: element type of shapes that state none, e.g. those of networks.
        variant: direction of convolutions that state none; those with another direction are left out; None: forward,
            and all others.
        fuse_shared: whether shared experts are fused with the routed ones.
        skip_bad: whether bad shapes are left out, with a warning.
    """

    tp: int = 1
    tokens: tuple[int, ...] = DEFAULT_TOKENS
    batch: tuple[int, ...] = (1,)
    dtype: str | None = None
    default_dtype: str = "fp16"
    variant: str | None = None
    fuse_shared: bool = False
    skip_bad: bool = False


DEFAULT = RunOptions()
