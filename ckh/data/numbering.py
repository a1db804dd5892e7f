"""Numbering and hashing of rows by their values."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from ckh.data.resources import RESOURCE_NAMES
from ckh.data.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from ckh.data.schema import Column

_INT64_LIMIT = 2**62


def group_numbers(frame: pd.DataFrame, columns: Sequence[str]) -> NDArray[np.int64]:
    """Number of each row's combination of values: 0, 1, … in order of appearance."""
    import numpy as np
    import pandas as pd

    combined = np.zeros(len(frame), dtype=np.int64)
    count = 1
    for name in columns:
        codes, values = pd.factorize(frame[name], use_na_sentinel=False)
        if count * max(len(values), 1) > _INT64_LIMIT:
            combined, seen = pd.factorize(combined)
            count = len(seen)
        combined = combined * len(values) + codes
        count *= max(len(values), 1)
    numbers: NDArray[np.int64] = pd.factorize(combined)[0].astype(np.int64)
    return numbers


def repeated_pairs(problem_ids: NDArray[np.int64], kernel_names: pd.Series) -> NDArray[np.bool_]:
    """Which rows hold a (problem, kernel) pair that an earlier row holds."""
    import pandas as pd

    codes, names = pd.factorize(kernel_names)
    repeated: NDArray[np.bool_] = pd.Series(problem_ids * max(len(names), 1) + codes).duplicated().to_numpy()
    return repeated


def content_hash(frame: pd.DataFrame, columns: Sequence[Column]) -> str:
    """SHA-256 of the columns of a frame, row order included.

    What the compiler tells of GPU kernels does not count where it told nothing: a dataset of the host has the same hash
    as before there were such columns.
    """
    import numpy as np
    import pandas as pd

    digest = hashlib.sha256(f"ckh dataset {SCHEMA_VERSION} {len(frame)}\n".encode())
    for column in columns:
        values = frame[column.name]
        if column.name in RESOURCE_NAMES and values.isna().all():
            continue
        digest.update(f"{column.name} {column.type}\n".encode())
        if column.type == "string":
            codes, texts = pd.factorize(values)
            digest.update(codes.astype("<i8").tobytes() + json.dumps([str(text) for text in texts]).encode())
            continue
        empty = values.isna().to_numpy()
        numbers = np.where(empty, 0, values.to_numpy())
        kind = "<f8" if column.type == "float64" else "<i8"
        digest.update(np.packbits(empty).tobytes() + numbers.astype(kind).tobytes())
    return digest.hexdigest()
