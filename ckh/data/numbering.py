"""Numbering of rows by their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

_INT64_LIMIT = 2**62


def group_numbers(frame: Mapping[str, Any] | pd.DataFrame, columns: Sequence[str]) -> NDArray[np.int64]:
    """Number of each row's combination of values: 0, 1, … in order of appearance.

    Columns are taken from the frame one after the other.
    """
    import numpy as np
    import pandas as pd

    combined = np.zeros(len(frame[columns[0]]), dtype=np.int64)
    count = 1
    for name in columns:
        codes, values = pd.factorize(frame[name], use_na_sentinel=False)
        if count * max(len(values), 1) > _INT64_LIMIT:
            combined, seen = pd.factorize(combined)
            count = len(seen)
        combined *= len(values)
        combined += codes
        count *= max(len(values), 1)
    numbers: NDArray[np.int64] = pd.factorize(combined)[0].astype(np.int64)
    return numbers


def repeated_pairs(problem_ids: NDArray[np.int64], kernel_names: pd.Series) -> NDArray[np.bool_]:
    """Which rows hold a (problem, kernel) pair that an earlier row holds."""
    import pandas as pd

    codes, names = pd.factorize(kernel_names)
    repeated: NDArray[np.bool_] = pd.Series(problem_ids * max(len(names), 1) + codes).duplicated().to_numpy()
    return repeated
