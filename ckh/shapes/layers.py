"""Matrix products, convolutions and mixtures of experts as models and logs have them, before they are problems."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from ckh.errors import UsageError
from ckh.strenum import StrEnum
from ckh.text.shown import Shown, ShownTable

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_SIZE = 2**31 - 1
_DIMENSIONS = (2, 3)


class Scaling(StrEnum):
    """How quantised operands are scaled."""

    NONE = ""
    ROW = "row"  # one scale a row of A and a column of B; one for a tensor counts as such
    BLOCK_128 = "block128"  # of A a scale for 128 values of a row, of B for 128 x 128
    BLOCK_32 = "block32"  # MX formats


@dataclass(frozen=True, slots=True)
class Matmul:
    """C (m x n) = A (m x k) x B (k x n).

    Attributes:
        m: rows of A.
        n: columns of B.
        k: what is summed over.
        dtype: element type of A and B; empty: left open.
        layout: of A, B and C, r (row-major) or c.
        scaling: how the operands are scaled.
        is_shuffled: whether B is shuffled beforehand, as AITER's bpreshuffle kernels read it.

    Raises:
        UsageError: a size is not from 1 to `MAX_SIZE`.
    """

    m: int
    n: int
    k: int
    dtype: str = ""
    layout: str = "rcr"
    scaling: Scaling = Scaling.NONE
    is_shuffled: bool = False

    def __post_init__(self) -> None:
        require_sizes((name, getattr(self, name)) for name in "mnk")


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of an input n x c x spatial with a filter k x c/g x taps; two or three spatial dimensions.

    Attributes:
        n: images.
        c: input channels of all groups.
        k: output channels of all groups.
        spatial: sizes of the input; depth first.
        taps: sizes of the filter.
        g: groups.
        stride: in each dimension.
        pad: zeros on either side, in each dimension.
        dilation: in each dimension.
        variant: the direction; empty: left open.
        dtype: element type; empty: left open.
        layout: of all tensors, as MIOpen writes it; empty: left open.

    Raises:
        UsageError: a size is out of range, or lists have not a value for each of two or three dimensions.
    """

    n: int
    c: int
    k: int
    spatial: tuple[int, ...]
    taps: tuple[int, ...]
    g: int = 1
    stride: tuple[int, ...] = (1, 1)
    pad: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    variant: str = ""
    dtype: str = ""
    layout: str = ""

    def __post_init__(self) -> None:
        lists = (self.spatial, self.taps, self.stride, self.pad, self.dilation)
        if len(self.spatial) not in _DIMENSIONS or {len(one) for one in lists} != {len(self.spatial)}:
            values = " ".join("x".join(map(str, one)) for one in lists)
            raise UsageError(f"not a convolution in two or three dimensions: {values:.80}", code="impossible-problem")
        require_sizes((name, getattr(self, name)) for name in "nckg")
        for name in ("spatial", "taps", "stride", "dilation"):
            require_sizes((name, size) for size in getattr(self, name))
        require_sizes((("pad", size) for size in self.pad), least=0)


@dataclass(frozen=True, slots=True)
class ExpertProducts:
    """The two gated matrix products of a mixture of experts, on one device.

    Attributes:
        tokens: rows of the input.
        model_dim: its columns.
        inter_dim: columns between the two products.
        experts: how many there are.
        topk: how many each token chooses.
        dtype: element type; empty: left open.
        scaling: how the operands are scaled.
        activation: between the products.

    Raises:
        UsageError: a size is not from 1 to `MAX_SIZE`.
    """

    tokens: int
    model_dim: int
    inter_dim: int
    experts: int
    topk: int
    dtype: str = ""
    scaling: Scaling = Scaling.NONE
    activation: str = "silu"

    def __post_init__(self) -> None:
        require_sizes((one.name, getattr(self, one.name)) for one in fields(self)[:5])


Stated: TypeAlias = tuple[tuple[str, str], ...]
Shape: TypeAlias = Matmul | Convolution | ExpertProducts


@dataclass(frozen=True, slots=True)
class Layer:
    """A shape that runs `count` times.

    Attributes:
        name: of the layer; empty: not known.
        shape: what is computed: a `Shape`, or a problem of `op`.
        count: how often.
        where: the file and place that it was read from.
        op: the operation of a problem; empty: `shape` is none.
        stated: what the source states of a key that was looked up: columns and their values.
    """

    name: str
    shape: Any
    count: int = 1
    where: str = ""
    op: str = ""
    stated: Stated = ()


@dataclass(frozen=True, slots=True, repr=False)
class WeightedProblem:
    """A problem and how often it runs.

    Attributes:
        op: name of its operation.
        problem: the problem.
        count: how often it runs.
        layers: names of layers, of kernels, or none.
        where: where it was read first.
        stated: what sources state of keys that were looked up, each once.
    """

    op: str
    problem: Any
    count: int
    layers: tuple[str, ...]
    where: str
    stated: tuple[Stated, ...] = ()

    @property
    def flops(self) -> int:
        """Operations of all its runs."""
        return int(self.count * self.problem.flops)

    def __repr__(self) -> str:
        layers = f" ({', '.join(self.layers)})" if self.layers else ""
        return f"<{self.count} x {self.problem.canonical()}{layers}>"


class Shapes(list[WeightedProblem], Shown):
    """Weighted problems."""

    def __repr__(self) -> str:
        return f"<ckh.shapes.Shapes of {len(self)} problems, {sum(one.count for one in self)} with their counts>"

    def table(self) -> ShownTable:
        """A row for each problem."""
        rows = [(one.problem.canonical(), one.op, one.count, one.layers, one.flops) for one in self]
        return ShownTable(f"{len(self)} problems", ("problem", "op", "count", "layers", "flops"), rows)


def require_sizes(sizes: Iterable[tuple[str, int]], least: int = 1) -> None:
    """Refuse a size that is not from `least` to `MAX_SIZE`.

    Raises:
        UsageError: there is one.
    """
    for name, size in sizes:
        if not least <= size <= MAX_SIZE:
            raise UsageError(f"{name} must be {least} or more (and below 2^31), not {size}", code="out-of-range")
