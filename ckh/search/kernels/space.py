"""The kernels that a search proposes, as the space of parameters that its strategies see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import NoKernelError, UsageError
from ckh.ops import built_in_names, operation, operation_of_problem, part_of
from ckh.search.kernels.product import Searched
from ckh.search.strategy_space import Space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import AnyOperation, Kernel, Problem
    from ckh.search.kernels.product import KernelParameter, Product

_SAMPLE_SEED = 0  # a problem has the same space whatever the seed of the search


@dataclass(frozen=True, slots=True, eq=False)
class KernelSpace:
    """Legal kernels, and the space whose configuration of the same number each of them is.

    Attributes:
        kernels: the candidate pool's first, in its order.
        pool_size: how many of them are the pool's.
        left_out: combinations that nobody looked at, because the space was large enough.
        space: what strategies see.
    """

    kernels: tuple[Kernel, ...]
    pool_size: int
    left_out: int
    space: Space

    def __len__(self) -> int:
        return len(self.kernels)

    def of(self, chosen: NDArray[np.int64]) -> KernelSpace:
        """Some of these kernels, given by ascending numbers."""
        columns = [
            np.array(parameter.values)[self.space.codes[chosen, i]] for i, parameter in enumerate(self.space.parameters)
        ]
        return KernelSpace(
            tuple(self.kernels[i] for i in chosen),
            int(np.count_nonzero(chosen < self.pool_size)),
            self.left_out,
            Space(self.space.names, columns),
        )


@dataclass(frozen=True, slots=True, eq=False)
class LookAlikes:
    """Kernels by what a model reads of them.

    Attributes:
        first: the first kernel of each kind, ascending.
        kind: of each kernel, as a position in `first`.
    """

    first: NDArray[np.int64]
    kind: NDArray[np.int64]


def kernel_space(
    problem: Problem,
    arch: ArchSpec,
    pool: Sequence[Kernel],
    limit: int,
    can_build: Callable[[Kernel], bool] = lambda _: True,
) -> KernelSpace:
    """The legal kernels for a problem: the pool's, the bases, and of all other combinations a random part.

    Args:
        problem: what is to be computed.
        arch: what the kernels run on.
        pool: the candidates, which are in the space whatever the limit.
        limit: how many kernels there are at most, the pool's aside.
        can_build: what else a kernel must pass, such as whether a device's headers have what it needs.

    Raises:
        UsageError: kernels of the problem's operation are not made of parameters.
        NoKernelError: there is none.
    """
    product = product_of(problem, arch)
    legal = product.legal(problem)
    rows = product.useful(problem)
    total = len(legal) * len(rows)
    kernels = dict.fromkeys(kernel for kernel in pool if can_build(kernel))
    pool_size = len(kernels)
    left_out = 0
    for looked_at, (base, row) in enumerate(_in_order(product, rows)):
        if len(kernels) >= max(limit, pool_size):
            left_out = total - looked_at
            break
        if legal[base, row]:
            kernel = product.kernel(base, row)
            if kernel not in kernels and can_build(kernel):
                kernels[kernel] = None
    if not kernels:
        raise NoKernelError(f"no kernel of {arch.name} that can be built applies to {problem.canonical()}")
    return KernelSpace(tuple(kernels), pool_size, left_out, _space_of(tuple(kernels), product.parameters))


def searched(op: AnyOperation) -> Searched[Any]:
    """How kernels of an operation are searched for.

    Raises:
        UsageError: they are not made of parameters.
    """
    found = part_of(op, op.kernels.searched, Searched)
    if found is None:
        others = [name for name in built_in_names() if operation(name).kernels.searched]
        raise UsageError(
            f"{op.name} has no space of kernels to search",
            "there is one of " + " and ".join(others),
            code="unsupported",
        )
    return found


def look_alikes(kernels: Sequence[Kernel], model: Model) -> LookAlikes:
    """Which kernels are the same to a model."""
    columns = model.spec.op.kernels.features(kernels, model.spec.encoding)
    codes = [np.unique(column, return_inverse=True)[1].reshape(-1) for column in columns.values()]
    _, first, kind = np.unique(np.stack(codes, axis=1), axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    return LookAlikes(first[order], position[kind.reshape(-1)])


def product_of(problem: Problem, arch: ArchSpec) -> Product:
    """The kernels that may be proposed for a problem.

    Raises:
        UsageError: kernels of the problem's operation are not made of parameters.
    """
    return searched(operation_of_problem(problem)).product(problem, arch)


def _in_order(product: Product, rows: NDArray[np.intp]) -> Iterator[tuple[int, int]]:
    """Bases and sets of options: those that are a base as it stands, then all others, both in random order."""
    rng = np.random.default_rng(_SAMPLE_SEED)
    count = len(product.bases) * len(rows)
    plain = np.flatnonzero(np.tile(rows == product.own, len(product.bases)))
    for numbers in (plain, np.setdiff1d(np.arange(count), plain)):
        for number in rng.permutation(numbers).tolist():
            base, place = divmod(number, len(rows))
            yield base, int(rows[place])


def _space_of(kernels: Sequence[Kernel], parameters: Sequence[KernelParameter]) -> Space:
    """Without the parameters that all kernels share, unless that is all of them."""
    columns = {p.name: np.array([p.value(kernel) for kernel in kernels]) for p in parameters}
    varying = {name: column for name, column in columns.items() if (column != column[0]).any()} or columns
    return Space(tuple(varying), tuple(varying.values()))
