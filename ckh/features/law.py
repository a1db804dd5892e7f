"""The terms whose sum is a kernel's time: they hold for sizes that were never measured, where trees are constant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TimeLaw:
    """Terms whose sum, each times a coefficient of the kernel that is not negative, is about the kernel's time.

    Attributes:
        terms: names of columns that an engine derives, none ever negative; a constant is always one more.
        shared: names of columns of kernels, none negative, by which coefficients of like kernels differ: of a family
            each is about a sum of these, each times a factor that is not negative; a constant is always one more.
        varied: problems of other sizes around given ones: raw columns of problems by name, shape (problems,), and a
            source of random numbers -> the same columns.
    """

    terms: tuple[str, ...]
    shared: tuple[str, ...]
    varied: Callable[[Mapping[str, NDArray[Any]], np.random.Generator], dict[str, NDArray[Any]]]
