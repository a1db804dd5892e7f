"""`RunOptions`: options that determine the shapes of a model."""

from __future__ import annotations

from dataclasses import dataclass

# Sequences of a decode step, and tokens of prefills.
DEFAULT_TOKENS = (1, 16, 64, 256, 1024, 4096)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options that determine the shapes of a model."""

    tp: int = 1  # ranks of tensor parallelism
    # rows of a language model's products: sequences of a decode step, tokens of a prefill
    tokens: tuple[int, ...] = DEFAULT_TOKENS
    batch: tuple[int, ...] = (1,)  # batch size of networks and encoders: images, clips or samples
    dtype: str | None = None  # element type that replaces a model's; None: the model's
    default_dtype: str = "fp16"  # element type of shapes that state none, e.g. those of networks
    # direction of convolutions that state none, others are left out; None: forward, and all others
    variant: str | None = None
    fuse_shared: bool = False  # whether shared experts are fused with the routed ones
    skip_bad: bool = False  # whether bad shapes are left out, with a warning


DEFAULT = RunOptions()
