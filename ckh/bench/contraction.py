"""Sums of products as loops over strided operands: what the reference kernel of a GPU executes."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

AXES, BEFORE, SPATIAL = 7, 2, 3  # of the result: all, those before the spatial ones, and these
_TERMS = SPATIAL + 1


class Contraction(ctypes.Structure):
    """`struct Contraction` of checks.hip: for each element of a dense result, a sum over four axes.

    The factors of a product are the elements of a and b at the sum, over all axes, of index times stride. Three
    axes of the result are spatial, and each meets one of the first three axes of the sum in a third, whose
    index follows from theirs: (`times` * result + `ahead` * term + `offset`) / `divisor`. Where that is no integer, or
    not in 0 to `limit`, there is no product.
    """

    _fields_: ClassVar[Sequence[Any]] = [
        *((name, ctypes.c_int64) for name in ("first", "first_a", "first_b")),
        *((name, ctypes.c_int64 * AXES) for name in ("size", "a", "b")),
        *((name, ctypes.c_int64 * _TERMS) for name in ("terms", "terms_a", "terms_b")),
        *((name, ctypes.c_int64 * SPATIAL) for name in ("times", "ahead", "offset", "divisor", "limit")),
        *((name, ctypes.c_int64 * SPATIAL) for name in ("met_a", "met_b")),
    ]


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Distance of neighbours along each axis of a dense tensor in C order, in elements."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides))


def matrix_product(
    batch: int,
    sizes: tuple[int, int, int],
    strides: Sequence[Sequence[int]],
    layout: str,
    firsts: tuple[int, int, int] = (0, 0, 0),
) -> Contraction:
    """Return a batch of products of M, N and K, given the strides of A and B as stored: batch, line and element.

    C has rows one after the other. `firsts` are the places of the first elements of C, A and B.
    """
    (m, n, k), ((batch_a, *of_a), (batch_b, *of_b)) = sizes, strides
    a_m, a_k = of_a if layout[0] == "r" else reversed(of_a)
    b_k, b_n = of_b if layout[1] == "r" else reversed(of_b)
    axes = ((batch, batch_a, batch_b), *((1, 0, 0),) * (AXES - 3), (m, a_m, 0), (n, 0, b_n))
    size, strides_a, strides_b = zip(*axes, strict=True)
    ones, zeros = (1,) * SPATIAL, (0,) * SPATIAL
    return Contraction(
        *firsts, size, strides_a, strides_b, (*ones, k), (*zeros, a_k), (*zeros, b_k), divisor=ones, limit=ones
    )
