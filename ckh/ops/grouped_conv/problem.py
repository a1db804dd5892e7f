"""`ConvProblem`: one grouped convolution with its complete identity.

It has every dimension that can change a measured time. Two problems are equal only if all fields are equal; grouping,
joins and splits always use the complete identity.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any

from ckh.errors import UsageError
from ckh.problems import DTYPE_BYTES, Direction, PasteableProblem, as_integer, settle_size, unknown_dtype
from ckh.records import Record
from ckh.text.prose import one_of

CONV_LAYOUTS: dict[int, str] = {2: "nhwgc", 3: "ndhwgc"}

# Reasons why other layouts and 1D are rejected, and remedies.
ONE_DIMENSION = "1D convolutions are not supported"
AS_2D = "give it as 2D with Hi = 1 and Y = 1, which is the same convolution"
CHANNELS_LAST = "ckh builds channels-last kernels of CK Tile only"
TRANSPOSED = "transpose to channels last, as MIOpen does"

# Dataset column -> ConvProblem field, in the order of AMD's benchmark CSV. The columns keep AMD's names.
CONV_COLUMNS: dict[str, str] = {
    name: name.lower()
    for name in (
        *("N", "C", "K", "G", "Di", "Hi", "Wi", "Z", "Y", "X"),
        *(f"{what}_{axis}" for what in ("stride", "pad", "dilation") for axis in "dhw"),
    )
}

_MAY_BE_ZERO = frozenset({"pad_d", "pad_h", "pad_w"})

_SIZE = "[0-9]{1,10}"
_HEAD_1D = re.compile(r"conv_[a-z0-9_]+_1d_")
_CANONICAL = (  # compiled on first use, never in quick answers
    r"conv_(?P<variant>forward|bwd_data|bwd_weight)_(?P<dtype>[a-z0-9]+)_(?P<layout>[a-z]+)_(?P<ndim>[23])d"
    + "".join(f"_{key}(?P<{key}>{_SIZE})" for key in "nckg")
    + "".join(f"_{key}(?P<{key}>{_SIZE}(?:x{_SIZE}){{1,2}})" for key in "ifspd")
)


class ConvProblem(PasteableProblem, Record):
    """One grouped convolution.

    Sizes are those of the forward pass in every direction: input N x C x [Di x] Hi x Wi, filter K x C/G x [Z x] Y x X.
    `c` and `k` are totals over all groups. In 2D the depth fields keep their defaults.

    Raises:
        UsageError: a size is not a positive integer (paddings: not negative), C or K is not divisible by G, the filter
            is larger than the padded input, the dtype is unknown, or a 2D problem has a depth.
    """

    variant: Direction
    n: int
    c: int
    k: int
    g: int
    hi: int
    wi: int
    y: int
    x: int
    stride_h: int = 1
    stride_w: int = 1
    pad_h: int = 0
    pad_w: int = 0
    dilation_h: int = 1
    dilation_w: int = 1
    ndim: int = 2
    di: int = 1
    z: int = 1
    stride_d: int = 1
    pad_d: int = 0
    dilation_d: int = 1
    dtype: str = "fp32"
    layout: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "variant", _direction(self.variant))
        object.__setattr__(self, "ndim", as_integer(self.ndim))
        if self.ndim not in CONV_LAYOUTS:
            raise not_2d_or_3d(self.ndim)
        if not self.layout:
            object.__setattr__(self, "layout", CONV_LAYOUTS[self.ndim])
        if self.layout != CONV_LAYOUTS[self.ndim]:
            raise UsageError(
                f"layout {self.layout!r} is not supported in {self.ndim}D: {CHANNELS_LAST}",
                f"use {CONV_LAYOUTS[self.ndim]}: {TRANSPOSED}",
                code="unknown-name",
            )
        if self.dtype not in DTYPE_BYTES:
            raise unknown_dtype(self.dtype)
        for column, name in CONV_COLUMNS.items():
            settle_size(self, name, column, 0 if name in _MAY_BE_ZERO else 1)
        depth = (self.di, self.z, self.stride_d, self.pad_d, self.dilation_d)
        if self.ndim == min(CONV_LAYOUTS) and depth != (1, 1, 1, 0, 1):
            raise UsageError(
                "a 2D convolution has no depth",
                "set ndim to 3 or omit Di, Z, stride_d, pad_d, dilation_d",
                code="bad-problem",
            )
        for name in ("c", "k"):
            if getattr(self, name) % self.g:
                raise UsageError(
                    f"{name.upper()}={getattr(self, name)} is not divisible by G={self.g}", code="indivisible"
                )
        if min(self.do, self.ho, self.wo) < 1:
            raise UsageError(
                f"the filter {self.z}x{self.y}x{self.x} does not fit the padded input of {self.canonical()}",
                code="impossible-problem",
            )

    @property
    def do(self) -> int:
        """Output depth; 1 in 2D."""
        return _output(self.di, self.z, self.stride_d, self.pad_d, self.dilation_d)

    @property
    def ho(self) -> int:
        """Output height."""
        return _output(self.hi, self.y, self.stride_h, self.pad_h, self.dilation_h)

    @property
    def wo(self) -> int:
        """Output width."""
        return _output(self.wi, self.x, self.stride_w, self.pad_w, self.dilation_w)

    @property
    def c_per_group(self) -> int:
        """Input channels per group."""
        return self.c // self.g

    @property
    def k_per_group(self) -> int:
        """Output channels per group."""
        return self.k // self.g

    @property
    def flops(self) -> int:
        """Floating-point operations, 2 N K (C/G) outputs taps: equal for all directions, including padding."""
        return 2 * self.n * self.k * self.c_per_group * self.do * self.ho * self.wo * self.z * self.y * self.x

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of X: N, [D,] H, W, G, C/G."""
        spatial = (self.di, self.hi, self.wi)[3 - self.ndim :]
        return (self.n, *spatial, self.g, self.c_per_group)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """Shape of W: G, K/G, [Z,] Y, X, C/G."""
        taps = (self.z, self.y, self.x)[3 - self.ndim :]
        return (self.g, self.k_per_group, *taps, self.c_per_group)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of Y: N, [Do,] Ho, Wo, G, K/G."""
        spatial = (self.do, self.ho, self.wo)[3 - self.ndim :]
        return (self.n, *spatial, self.g, self.k_per_group)

    @property
    def bytes(self) -> int:
        """Bytes of X, W and Y together: the minimum to move."""
        elements = prod(self.input_shape) + prod(self.weight_shape) + prod(self.output_shape)
        return int(elements * DTYPE_BYTES[self.dtype])

    @property
    def gemm_sizes(self) -> tuple[int, int, int]:
        """M, N, K of one group's implicit GEMM.

        forward: pixels x K/G x taps*C/G; bwd_data: input pixels x C/G x taps*K/G; bwd_weight: K/G x taps*C/G x pixels.
        """
        taps = self.z * self.y * self.x
        pixels = self.n * self.do * self.ho * self.wo
        if self.variant is Direction.FORWARD:
            return pixels, self.k_per_group, taps * self.c_per_group
        if self.variant is Direction.BWD_DATA:
            return self.n * self.di * self.hi * self.wi, self.c_per_group, taps * self.k_per_group
        return self.k_per_group, taps * self.c_per_group, pixels

    def canonical(self) -> str:
        """Text that holds the complete identity; `parse_conv_problem` parses it."""
        join = self._join
        return (
            f"conv_{self.variant}_{self.dtype}_{self.layout}_{self.ndim}d_n{self.n}_c{self.c}_k{self.k}_g{self.g}"
            f"_i{join(self.di, self.hi, self.wi)}_f{join(self.z, self.y, self.x)}"
            f"_s{join(self.stride_d, self.stride_h, self.stride_w)}_p{join(self.pad_d, self.pad_h, self.pad_w)}"
            f"_d{join(self.dilation_d, self.dilation_h, self.dilation_w)}"
        )

    def _join(self, *sizes: int) -> str:
        return "x".join(str(size) for size in sizes[3 - self.ndim :])

    def columns(self) -> dict[str, int]:
        """The 19 sizes by AMD's column names."""
        return {column: getattr(self, name) for column, name in CONV_COLUMNS.items()}

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON; `ConvProblem(**d)` restores the problem."""
        return {name: getattr(self, name) for name in self.field_names} | {"variant": str(self.variant)}


def parse_conv_problem(text: str) -> ConvProblem:
    """Parse the text that `ConvProblem.canonical` returns.

    Raises:
        UsageError: the text is malformed, or its sizes are invalid.
    """
    match = re.fullmatch(_CANONICAL, text.strip())
    if match is None and _HEAD_1D.match(text.strip()):
        raise not_2d_or_3d(1)
    if match is None:
        raise UsageError(
            f"not a problem: {text!r}",
            "e.g. conv_forward_fp32_nhwgc_2d_n1_c64_k64_g1_i28x28_f3x3_s1x1_p1x1_d1x1",
            code="bad-problem",
        )
    ndim = int(match["ndim"])
    groups = {key: [int(part) for part in match[key].split("x")] for key in "ifspd"}
    if any(len(parts) != ndim for parts in groups.values()):
        raise UsageError(
            f"not a {ndim}D problem: {text!r}", f"i, f, s, p and d need {ndim} numbers each", code="bad-problem"
        )
    three = {key: [*([0 if key == "p" else 1] * (3 - ndim)), *parts] for key, parts in groups.items()}
    triples = dict(zip("ifspd", (("di", "hi", "wi"), ("z", "y", "x"), *_TRIPLES), strict=True))
    sizes = {name: size for key, names in triples.items() for name, size in zip(names, three[key], strict=True)}
    return ConvProblem(
        variant=Direction(match["variant"]),
        **{key: int(match[key]) for key in ("n", "c", "k", "g")},
        **sizes,
        ndim=ndim,
        dtype=match["dtype"],
        layout=match["layout"],
    )


_TRIPLES = tuple(tuple(f"{what}_{axis}" for axis in "dhw") for what in ("stride", "pad", "dilation"))


def not_2d_or_3d(ndim: object) -> UsageError:
    """Return the error for another number of dimensions; for 1D with a remedy."""
    if ndim == 1:
        return UsageError(f"ndim must be 2 or 3, not 1: {ONE_DIMENSION}", AS_2D, code="unsupported")
    return UsageError(f"ndim must be 2 or 3, not {ndim!r}", code="out-of-range")


def _direction(name: str) -> Direction:
    try:
        return Direction(name)
    except ValueError:
        raise UsageError(f"unknown direction {name!r}", one_of(name, Direction), code="unknown-name") from None


def _output(size: int, taps: int, stride: int, pad: int, dilation: int) -> int:
    return (size + 2 * pad - dilation * (taps - 1) - 1) // stride + 1
