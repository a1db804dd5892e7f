"""The kernels of a search, as the parameter space seen by its strategies."""

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
    from ckh.ops.base import AnyOperation, Kernel, Problem
    from ckh.search.kernels.product import KernelParameter, Product

_SAMPLE_SEED = 0  # the space of a problem is independent of the search's seed


@dataclass(frozen=True, slots=True, eq=False)
class KernelSpace:
    """Legal kernels, and the space with a configuration of the same index for each of them."""

    kernels: tuple[Kernel, ...]
    pool_size: int
    left_out: int
    space: Space

    def __len__(self) -> int:
        return len(self.kernels)

    def of(self, chosen: NDArray[np.int64]) -> KernelSpace:
        """Subset of the kernels, given by ascending indices."""
        columns = [
            np.array(parameter.values)[self.space.codes[chosen, i]] for i, parameter in enumerate(self.space.parameters)
        ]
        return KernelSpace(
            tuple(self.kernels[i] for i in chosen),
            int(np.count_nonzero(chosen < self.pool_size)),
            self.left_out,
            Space(self.space.names, columns),
        )


def kernel_space(
    problem: Problem,
    arch: ArchSpec,
    pool: Sequence[Kernel],
    limit: int,
    can_build: Callable[[Kernel], bool] = lambda _: True,
) -> KernelSpace:
    """Legal kernels for a problem: those of the pool, the bases, and a random part of all other combinations."""
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
        raise NoKernelError(f"no buildable kernel of {arch.name} applies to {problem.canonical()}")
    return KernelSpace(tuple(kernels), pool_size, left_out, _space_of(tuple(kernels), product.parameters))


def searched(op: AnyOperation) -> Searched[Any]:
    """How kernels of an operation are searched."""
    part = part_of(op, op.kernels.searched, Searched)
    if part is None:
        others = [name for name in built_in_names() if operation(name).kernels.searched]
        raise UsageError(
            f"{op.name} has no space of kernels to search",
            "there is one of " + " and ".join(others),
            code="unsupported",
        )
    return part


def product_of(problem: Problem, arch: ArchSpec) -> Product:
    """The kernels that may be proposed for a problem."""
    return searched(operation_of_problem(problem)).product(problem, arch)


def _in_order(product: Product, rows: NDArray[np.intp]) -> Iterator[tuple[int, int]]:
    """Bases and option sets: unmodified bases first, then all other combinations, both in random order."""
    rng = np.random.default_rng(_SAMPLE_SEED)
    count = len(product.bases) * len(rows)
    plain = np.flatnonzero(np.tile(rows == product.own, len(product.bases)))
    for numbers in (plain, np.setdiff1d(np.arange(count), plain)):
        for number in rng.permutation(numbers).tolist():
            base, place = divmod(number, len(rows))
            yield base, int(rows[place])


def _space_of(kernels: Sequence[Kernel], parameters: Sequence[KernelParameter]) -> Space:
    """Space without the parameters that all kernels share, unless they share all."""
    columns = {p.name: np.array([p.value(kernel) for kernel in kernels]) for p in parameters}
    varying = {name: column for name, column in columns.items() if (column != column[0]).any()} or columns
    return Space(tuple(varying), tuple(varying.values()))
