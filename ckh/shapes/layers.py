"""Matrix products, convolutions and mixtures of experts as stated by models and logs, before conversion to problems."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ckh.errors import UsageError
from ckh.problems import as_integer
from ckh.strenum import StrEnum
from ckh.text.prose import one_of
from ckh.text.shown import Shown, ShownTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_SIZE = 2**31 - 1
UNQUANTISED = "unquantised"  # code of shapes without scales, for an operation that needs them
# Why products without a weight are left out.
ATTENTION = "attention's own products, as of one prompt: attention kernels compute them"
RECURRENCE = "products with recurrent states, step by step: kernels of linear attention and Mamba compute them"
_DIMENSIONS = (2, 3)
# Direction of a transposed convolution -> that of the convolution which computes it; weights have the same.
TRANSPOSED = {"": "bwd_data", "forward": "bwd_data", "bwd_data": "forward"}

# Sequences of a decode step, and tokens of prefills.
DEFAULT_TOKENS = (1, 16, 64, 256, 1024, 4096)
_DECODE, _PREFILL = (1, 4, 16, 64, 256), (512, 2048, 8192)
# Workload -> numbers of tokens, and how often each runs: a server runs thousands of decode steps per prefill.
WORKLOADS = {
    "decode": dict.fromkeys(_DECODE, 1),
    "prefill": dict.fromkeys(_PREFILL, 1),
    "mixed": dict.fromkeys(_DECODE, 1000) | dict.fromkeys(_PREFILL, 1),
}
MAX_TIMES, MAX_LIST = 1_000_000, 64


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options that determine the shapes of a model."""

    tp: int = 1  # ranks of tensor parallelism
    ep: int = 1  # ranks that have whole experts
    # rows of a language model's products: sequences of a decode step, tokens of a prefill
    tokens: tuple[int, ...] = DEFAULT_TOKENS
    times: tuple[int, ...] = ()  # how often each of `tokens` runs; empty: once
    batch: tuple[int, ...] = (1,)  # batch size of networks and encoders: images, clips or samples
    image: tuple[int, ...] = ()  # sizes that an ONNX model leaves open in its images, depth or height first
    dtype: str | None = None  # element type that replaces a model's; None: the model's
    default_dtype: str = "fp16"  # element type of shapes that state none, e.g. those of networks
    # direction of convolutions that state none, others are left out; None: forward, and all others
    variant: str | None = None
    fuse_shared: bool = False  # whether shared experts are fused with the routed ones
    strict: bool = False  # whether a shape that ckh does not understand is an error; else it is left out

    @property
    def weights(self) -> dict[int, int]:
        """How often each number of tokens runs."""
        return dict(zip(self.tokens, self.times or (1,) * len(self.tokens), strict=True))


DEFAULT = RunOptions()


class Scaling(StrEnum):
    """How quantised operands are scaled."""

    NONE = ""
    ROW = "row"  # one scale per row of A and column of B; includes one scale per tensor
    BLOCK_128 = "block128"  # one scale per 128 values of a row of A, and per 128 x 128 values of B
    BLOCK_32 = "block32"  # MX formats


@dataclass(frozen=True, slots=True)
class Matmul:
    """C (m x n) = A (m x k) x B (k x n)."""

    m: int
    n: int
    k: int
    dtype: str = ""  # of A and B; empty: unspecified
    layout: str = "rcr"  # of A, B and C: r (row-major) or c
    scaling: Scaling = Scaling.NONE
    is_shuffled: bool = False  # whether B is preshuffled, as for AITER's bpreshuffle kernels
    has_bias: bool = False  # whether a vector of n is added to each row of C
    result: str = ""  # element type of C; empty: that of the operation

    def __post_init__(self) -> None:
        require_sizes((name, getattr(self, name)) for name in "mnk")


@dataclass(frozen=True, slots=True)
class BatchedMatmul:
    """C_i (m x n) = A_i (m x k) x B_i (k x n) for i < batch; all matrices are dense."""

    batch: int
    m: int
    n: int
    k: int
    dtype: str = ""  # of A and B; empty: unspecified
    layout: str = "rcr"  # of A, B and C: r (row-major) or c

    def __post_init__(self) -> None:
        require_sizes((field.name, getattr(self, field.name)) for field in fields(self)[:4])


@dataclass(frozen=True, slots=True)
class GroupedMatmul:
    """C_g (m_g x n) = A_g (m_g x k) x B_g (k x n) for all groups; the A_g are the rows of one matrix."""

    rows: tuple[int, ...]  # m of each group
    n: int
    k: int
    dtype: str = ""  # of A and B; empty: unspecified
    layout: str = "rcr"  # of A, B and C: r (row-major) or c


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of an input n x c x spatial with a filter k x c/g x taps; two or three spatial dimensions."""

    n: int  # images
    c: int  # input channels of all groups
    k: int  # output channels of all groups
    spatial: tuple[int, ...]  # input sizes; depth first
    taps: tuple[int, ...]  # filter sizes
    g: int = 1  # groups
    stride: tuple[int, ...] = (1, 1)
    pad: tuple[int, ...] = (0, 0)  # zeros on either side, in each dimension
    dilation: tuple[int, ...] = (1, 1)
    variant: str = ""  # the direction; empty: unspecified
    dtype: str = ""  # empty: unspecified
    layout: str = ""  # of all tensors in MIOpen's notation; empty: unspecified

    def __post_init__(self) -> None:
        lists = (self.spatial, self.taps, self.stride, self.pad, self.dilation)
        if len(self.spatial) not in _DIMENSIONS or {len(sizes) for sizes in lists} != {len(self.spatial)}:
            text = " ".join("x".join(map(str, sizes)) for sizes in lists)
            raise UsageError(f"not a convolution in two or three dimensions: {text:.80}", code="impossible-problem")
        require_sizes((name, getattr(self, name)) for name in "nckg")
        for name in ("spatial", "taps", "stride", "dilation"):
            require_sizes((name, size) for size in getattr(self, name))
        require_sizes((("pad", size) for size in self.pad), least=0)

    @property
    def outputs(self) -> tuple[int, ...]:
        """Output sizes; depth first."""
        lists = zip(self.spatial, self.taps, self.stride, self.pad, self.dilation, strict=True)
        return tuple((size + 2 * pad - gap * (tap - 1) - 1) // step + 1 for size, tap, step, pad, gap in lists)

    def transposed(self, more: Sequence[int] = ()) -> Convolution:
        """The convolution with which a transposed one of these sizes computes: in the other direction, C and K swapped.

        `more` is the output padding of the last dimensions; rows beyond the stride are zeros, which nothing computes.
        """
        lists = zip(self.spatial, self.taps, self.stride, self.pad, self.dilation, strict=True)
        sizes = [step * (size - 1) + gap * (tap - 1) + 1 - 2 * pad for size, tap, step, pad, gap in lists]
        whole = (*(0 for _ in sizes[len(more) :]), *more)
        added = [min(size, step - 1) for size, step in zip(whole, self.stride, strict=True)]
        spatial = tuple(map(sum, zip(sizes, added, strict=True)))
        return replace(self, c=self.k, k=self.c, spatial=spatial, variant=TRANSPOSED.get(self.variant, self.variant))

    def require_output(self, stated: Sequence[int | None]) -> None:
        """Refuse an output other than the one that the source states: channels and sizes, None where it states none.

        Dimensions that were added to the convolution are not among them.
        """
        own = [self.k, *self.outputs[len(self.spatial) - len(stated) + 1 :]]
        if len(own) != len(stated) or any(b not in (None, a) for a, b in zip(own, stated, strict=True)):
            texts = ["x".join("?" if size is None else str(size) for size in output) for output in (own, stated)]
            raise UsageError(
                f"a convolution's output is {texts[0]} (channels, sizes) by its operands, {texts[1]} by its source",
                code="impossible-problem",
            )


def convolution(n: int, c: int, k: int, g: int, lists: Sequence[Sequence[int]], dtype: str, layout: str) -> Convolution:
    """A convolution by its lists of spatial sizes, taps, strides, paddings and dilations.

    One of a single dimension has images of height 1.
    """
    if len(lists[0]) == 1:
        lists = [(is_pad ^ 1, *sizes) for is_pad, sizes in zip((0, 0, 0, 1, 0), lists, strict=True)]
    spatial, taps, stride, pad, dilation = map(tuple, lists)
    return Convolution(n, c, k, spatial, taps, g, stride, pad, dilation, dtype=dtype, layout=layout)


@dataclass(frozen=True, slots=True)
class ExpertProducts:
    """The two gated matrix products of a mixture of experts, on one device."""

    tokens: int  # rows of the input
    model_dim: int  # columns of the input
    inter_dim: int  # columns between the two products
    experts: int
    topk: int  # experts per token
    dtype: str = ""  # empty: unspecified
    scaling: Scaling = Scaling.NONE
    activation: str = "silu"  # between the products

    def __post_init__(self) -> None:
        require_sizes((field.name, getattr(self, field.name)) for field in fields(self)[:5])


Stated: TypeAlias = tuple[tuple[str, str], ...]
Shape: TypeAlias = Matmul | BatchedMatmul | GroupedMatmul | Convolution | ExpertProducts


class StatedTime(NamedTuple):
    """A time that a source states."""

    ms: float
    name: str  # kernel, solver or library that took it, as the source names it


@dataclass(frozen=True, slots=True)
class Layer:
    """A shape that runs `count` times."""

    name: str  # name of the layer; empty: unknown
    shape: Any  # a `Shape`, or a problem of `op`
    count: int = 1  # number of executions
    where: str = ""  # file and position of the source
    op: str = ""  # operation of a problem; empty: `shape` is not a problem
    stated: Stated = ()  # columns and values of a looked-up key, as stated by the source
    unread: str = ""  # why it is left out; empty: it is not
    time: StatedTime | None = None  # the least that the source states


@dataclass(frozen=True, slots=True, repr=False)
class WeightedProblem:
    """A problem and its number of executions."""

    op: str  # name of its operation
    problem: Any
    count: int  # number of executions
    layers: tuple[str, ...]  # names of layers or kernels, if any
    where: str  # position of its first occurrence
    stated: tuple[Stated, ...] = ()  # distinct looked-up keys stated by the sources
    time: StatedTime | None = None  # the least that the sources state, and of which kernel, solver or library

    @property
    def flops(self) -> int:
        """Floating-point operations of all executions."""
        return int(self.count * self.problem.flops)

    def __repr__(self) -> str:
        layers = f" ({', '.join(self.layers)})" if self.layers else ""
        return f"<{self.count} x {self.problem.canonical()}{layers}>"


class Shapes(list[WeightedProblem], Shown):
    """Weighted problems, and in `left_out` how many shapes of the sources are not among them, by reason."""

    def __init__(self, problems: Iterable[WeightedProblem] = (), left_out: Mapping[str, int] | None = None) -> None:
        super().__init__(problems)
        self.left_out = dict(left_out or {})

    def __repr__(self) -> str:
        return (
            f"<ckh.shapes.Shapes of {len(self)} problems, {sum(problem.count for problem in self)} with their counts>"
        )

    def table(self) -> ShownTable:
        """A row for each problem."""
        rows = [(shape.problem.canonical(), shape.op, shape.count, shape.layers, shape.flops) for shape in self]
        return ShownTable(f"{len(self)} problems", ("problem", "op", "count", "layers", "flops"), rows)


def typed(value: Any) -> str | None:
    """Numbers of the Python API, or those of a mapping with their weights, as they are typed."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ",".join(f"{number}:{times}" for number, times in value.items())
    return str(value) if isinstance(as_integer(value), int) else ",".join(map(str, value)) or None


def token_options(tokens: str | None, workload: str | None) -> dict[str, Any]:
    """Options of a run by the typed numbers of tokens with their weights, or by the name of a workload."""
    if tokens is not None and workload is not None:
        raise UsageError("--tokens and --workload exclude each other", "omit one of them", code="conflicting-options")
    if workload is not None and workload not in WORKLOADS:
        raise UsageError(f"unknown workload {workload!r:.40}", one_of(workload, WORKLOADS), code="unknown-name")
    if tokens is None:
        weights = WORKLOADS.get(workload or "", {})
        return {"tokens": tuple(weights), "times": tuple(weights.values())} if weights else {}
    weights = {}
    for part in (text.strip() for text in tokens.split(",")):
        if (match := re.fullmatch(r"([0-9]{1,20})(?::([0-9]{1,20}))?", part)) is None or len(weights) >= MAX_LIST:
            hint = "e.g. --tokens 1,64 or, with weights, --tokens 1:2000,64:200,8192:1"
            raise UsageError(f"--tokens: {part!r:.40} is not N or N:TIMES, in whole numbers", hint, code="bad-number")
        number, times = int(match[1]), int(match[2] or 1)
        require_sizes([("--tokens", number)])
        if number in weights or not 1 <= times <= MAX_TIMES:
            why = "it is there twice" if number in weights else f"TIMES must be from 1 to {MAX_TIMES}"
            raise UsageError(f"--tokens: {part}: {why}", code="out-of-range")
        weights[number] = times
    return {"tokens": tuple(weights), "times": tuple(weights.values()) if ":" in tokens else ()}


def require_sizes(sizes: Iterable[tuple[str, int]], least: int = 1) -> None:
    """Refuse a size that is not from `least` to `MAX_SIZE`."""
    for name, size in sizes:
        if not least <= size <= MAX_SIZE:
            raise UsageError(f"{name} must be {least} or more (and below 2^31), not {size}", code="out-of-range")
