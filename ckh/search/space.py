"""The kernels of a search, and the parameter space of them that the surrogate sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import NoKernelError, UsageError
from ckh.ops import built_in_names, operation, operation_of_problem, part_of
from ckh.search.product import Searched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from ckh.archs import ArchSpec
    from ckh.ops.base import AnyOperation, Kernel, Problem
    from ckh.search.product import Product

_SAMPLE_SEED = 0  # the space of a problem is independent of the search's seed


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter and its values, ascending; numbers are ordered, all other values (also bool) are categories."""

    name: str
    values: tuple[Any, ...]
    is_ordered: bool


class Space:
    """The legal configurations, numbered from 0 in the given order, as indices of values (`codes`)."""

    def __init__(self, names: Sequence[str], columns: Sequence[ArrayLike]) -> None:
        """Number the values of each parameter, of which a configuration has one each; no two have the same."""
        arrays, parameters = [np.asarray(column) for column in columns], []
        codes = np.empty((len(arrays[0]), len(arrays)), dtype=np.int32)
        for i, (name, array) in enumerate(zip(names, arrays, strict=True)):
            values, codes[:, i] = np.unique(array, return_inverse=True)
            parameters.append(Parameter(name, tuple(values.tolist()), np.issubdtype(array.dtype, np.number)))
        codes.flags.writeable = False
        self.parameters = tuple(parameters)
        self.codes: NDArray[np.int32] = codes

    def __len__(self) -> int:
        return len(self.codes)

    def neighbours(self, index: int) -> NDArray[np.int64]:
        """Legal configurations that differ from one in one parameter, ascending."""
        return np.flatnonzero(np.count_nonzero(self.codes != self.codes[index], axis=1) == 1)


@dataclass(frozen=True, slots=True, eq=False)
class KernelSpace:
    """Legal kernels, the pool's first, and the space with a configuration of the same index for each of them."""

    kernels: tuple[Kernel, ...]
    pool_size: int
    left_out: int
    space: Space

    def __len__(self) -> int:
        return len(self.kernels)


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
    columns = {
        parameter.name: np.array([parameter.value(kernel) for kernel in kernels]) for parameter in product.parameters
    }
    # Parameters that all kernels share are left out, unless they share all.
    varying = {name: column for name, column in columns.items() if (column != column[0]).any()} or columns
    return KernelSpace(tuple(kernels), pool_size, left_out, Space(tuple(varying), tuple(varying.values())))


def _in_order(product: Product, rows: NDArray[np.intp]) -> Iterator[tuple[int, int]]:
    """Bases and option sets: unmodified bases first, then all other combinations, both in random order."""
    rng = np.random.default_rng(_SAMPLE_SEED)
    count = len(product.bases) * len(rows)
    plain = np.flatnonzero(np.tile(rows == product.own, len(product.bases)))
    for numbers in (plain, np.setdiff1d(np.arange(count), plain)):
        for number in rng.permutation(numbers).tolist():
            base, place = divmod(number, len(rows))
            yield base, int(rows[place])


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
