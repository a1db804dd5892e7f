"""Terms that the problems of several operations share: directions of a convolution, and element types."""

from __future__ import annotations

from ckh.strenum import StrEnum


class Direction(StrEnum):
    """Which of the three computations of a convolution."""

    FORWARD = "forward"
    BWD_DATA = "bwd_data"
    BWD_WEIGHT = "bwd_weight"


DTYPE_BYTES: dict[str, float] = {
    "fp64": 8.0,
    "fp32": 4.0,
    "int32": 4.0,
    "fp16": 2.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "bf8": 1.0,
    "int8": 1.0,
    "int4": 0.5,
    "pk_fp4": 0.5,
}
