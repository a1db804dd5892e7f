"""The record of an operation of AITER: what its GEMMs and its mixtures of experts share."""

from __future__ import annotations

import json
from math import isnan, log2
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ckh.features.engine import Feature
from ckh.kernels.pools import TIMED_NAME, read_timed, timed_file
from ckh.kernels.table import column_of
from ckh.ops.base import Kernel, Kernels, Measure, Problem, Problems, Worth, called, lazily
from ckh.schema import Column, dataset_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from ckh.ops.base import Encoding

P = TypeVar("P", bound=Problem)
K = TypeVar("K", bound=Kernel)

UNKNOWN = -1.0  # code of a text that a feature does not know
_WEIGHT_OF_KIND = 4.0  # another kind counts as much as a factor of 16 in a size


def judged_of(module: str) -> tuple[Worth, ...]:
    """Return the evaluated accuracies in `judged.json` beside a module's file."""
    rows: list[dict[str, Any]] = json.loads(Path(module).with_name("judged.json").read_bytes())
    for row in rows:
        row |= {name: tuple(row[name]) for name in ("figures", "interval")}
        row["measure"] = Measure(row.get("measure", "efficiency"))
    return tuple(Worth(**row) for row in rows)


def coded(name: str, values: Iterable[str]) -> Feature:
    """Return the feature of a text of problems: the position of its value among these."""
    codes = {value: float(code) for code, value in enumerate(values)}
    return Feature(name, "category", lambda c: c.codes(name, codes, UNKNOWN))


def problems_of(
    package: str,
    kind: type[P],
    texts: Sequence[str],
    sizes: Sequence[str],
    kinds: Mapping[str, Iterable[str]],
    *,
    optional: tuple[str, ...] = (),
    **others: Any,
) -> Problems[P]:
    """Return the part of a record for problems whose fields are columns of these names.

    `kinds` are the texts and their values by which problems are near to each other; `optional` sizes are 0 in problems,
    and missing in data, if a problem has none.
    """

    def of_row(row: Mapping[str, Any]) -> P:
        stated = [name for name in optional if row.get(name) is not None and not isnan(row[name])]
        fields: dict[str, Any] = {name: int(row[name]) for name in (*sizes, *stated)}
        return kind(**fields, **{name: str(row[name]) for name in texts})

    def columns(problems: Sequence[P]) -> dict[str, list[Any]]:
        required = {name: [getattr(problem, name) for problem in problems] for name in (*texts, *sizes)}
        return required | {name: [getattr(problem, name) or None for problem in problems] for name in optional}

    def features(problems: Sequence[P]) -> dict[str, Any]:
        types = dict.fromkeys((*sizes, *optional), np.float64)
        return {name: np.array(values, types.get(name)) for name, values in columns(problems).items()}

    def place(problem: P) -> list[float]:
        logs = [log2(max(getattr(problem, name), 1)) for name in (*sizes, *optional)]
        matches = [getattr(problem, name) == value for name, values in kinds.items() for value in values]
        return logs + [_WEIGHT_OF_KIND * is_match for is_match in matches]

    return Problems(
        identity=(*texts, *sizes, *optional),
        sizes=tuple(sizes),
        of_row=of_row,
        columns=columns,
        features=features,
        place=place,
        load=called(f"{package}.operation:load_problems"),
        set_names=tuple,
        shaped=lazily(f"{package}.operation:SHAPED"),
        requested=lazily(f"{package}:REQUESTED"),
        **others,
    )


def kernels_of(kind: type[K], numbers: Sequence[str], texts: tuple[str, ...] = (), **others: Any) -> Kernels[Any, K]:
    """Return the part of a record for kernels whose columns are fields of these names; features are the same."""

    def columns(kernels: Sequence[K], _encoding: Encoding) -> dict[str, list[Any]]:
        return {name: [getattr(kernel, name) for kernel in kernels] for name in (*texts, *numbers)}

    def features(kernels: Sequence[K], _encoding: Encoding) -> dict[str, Any]:
        numeric = {name: column_of(kernels, name).astype(np.float64) for name in numbers}
        return numeric | {name: column_of(kernels, name).astype(str) for name in texts}

    return Kernels(type=kind, columns=columns, features=features, **others)


def timed_kernels(frame: pd.DataFrame, before: Path | None) -> bytes:
    """Return the content of a model's file of the kernels with times, of its rows and of the model it started from."""
    names = set(frame.loc[frame["is_valid"].to_numpy(dtype=bool), "kernel"].unique())
    if before is not None and (path := before / TIMED_NAME).is_file():
        names |= set(read_timed(path, str).kernels)
    return timed_file(str(frame["arch"].iloc[0]), names)


def columns_of(
    texts: Mapping[str, str],
    sizes: Mapping[str, str],
    numbers: Sequence[str],
    optional: tuple[Column, ...] = (),
    kernel_texts: tuple[Column, ...] = (),
) -> tuple[Column, ...]:
    """Return a dataset's columns: texts and sizes of problems by name, with their meaning, and of kernels."""
    identity = tuple(Column(name, "string", "", meaning) for name, meaning in texts.items())
    of_sizes = tuple(Column(name, "int64", "", meaning) for name, meaning in sizes.items())
    kernel = tuple(Column(name, "int64", "", f"kernel parameter {name}") for name in numbers)
    return dataset_columns(identity, (*of_sizes, *optional), (*kernel_texts, *kernel))
