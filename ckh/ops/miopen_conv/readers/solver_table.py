"""Solver times as columns, with the names that datasets and features use.

`kernel` holds the solver's name: for evaluation and ranking, a solver is a kernel.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.data.readers.reader import parquet_frame
from ckh.errors import DataError
from ckh.ops.grouped_conv.columns import CONV_IDENTITY, problem_of_row
from ckh.ops.grouped_conv.problem import CONV_COLUMNS
from ckh.ops.miopen_conv.problem import DTYPES, LAYOUTS, MiopenProblem
from ckh.ops.miopen_conv.readers.fdb import NAME, FdbDevice, Tally, device_of, iter_rows
from ckh.ops.miopen_conv.readers.fdb_line import DIRECTIONS
from ckh.schema import SHORTEST_MS, Column

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

SIZES: tuple[str, ...] = tuple(CONV_COLUMNS)
IDENTITY = CONV_IDENTITY
_RENAMED = {"ndim": "ndim_spatial", "solver": "kernel", "time_ms": "latency_ms"}
_OUTPUTS = ("Do", "Ho", "Wo")
_TEXTS = ("direction", "dtype", "layout", "solver")
_COLUMNS = (
    *(Column(name, "string", "", "", nullable=True) for name in _TEXTS),
    *(Column(name, "int64", "", "") for name in ("ndim", *SIZES)),
    Column("time_ms", "float64", "ms", "", nullable=True),
    *(Column(name, "int64", "", "", nullable=True) for name in _OUTPUTS),
)


@dataclass(frozen=True, slots=True, eq=False)
class SolverTable:
    """Times of solvers, one row per (problem, solver) pair.

    Attributes:
        frame: `IDENTITY`, kernel, latency_ms, and if the source has them algorithm and workspace_bytes.
        device: the measured device.
        without_time: number of rows skipped because their time was 0.
        bad: number of other rows skipped, by reason.
    """

    frame: pd.DataFrame
    device: FdbDevice
    without_time: int
    bad: dict[str, int]

    def problem_ids(self) -> NDArray[np.int64]:
        """Index of each row's problem, 0, 1, … in order of appearance, shape (rows,)."""
        return _numbers(self.frame, IDENTITY)

    def size_ids(self) -> NDArray[np.int64]:
        """Index of each row's sizes, ignoring direction, dtype, layout and number of dimensions, shape (rows,).

        Splits use these: the same layer in another dtype or direction would leak its answer.
        """
        return _numbers(self.frame, SIZES)

    def of_choice(self) -> SolverTable:
        """Return the rows of problems with a choice, of two or more solvers."""
        ids = self.problem_ids()
        return self.select(np.bincount(ids)[ids] > 1)

    def select(self, rows: NDArray[Any]) -> SolverTable:
        """Return the rows of a mask or of indices."""
        return SolverTable(self.frame.iloc[rows].reset_index(drop=True), self.device, self.without_time, self.bad)

    def problems(self) -> list[MiopenProblem]:
        """Return the problems, so that `problems()[problem_ids()[i]]` is the problem of row `i`."""
        first = np.unique(self.problem_ids(), return_index=True)[1]
        return [problem_of_row(row, MiopenProblem) for row in self.frame.iloc[first][list(IDENTITY)].to_dict("records")]


def read_fdb(
    path: Path | str, arch: str | None = None, num_cus: int | None = None, *, skip_bad: bool = False
) -> SolverTable:
    """Read a find database; peak memory is below the size of the table.

    Raises:
        UsageError: the file name does not state the device, and it is not given.
        DataError: the file is unusable or has duplicate problems; or has bad lines, unless `skip_bad`.
    """
    import pandas as pd

    device, tally = device_of(Path(path), arch, num_cus), Tally()
    problems, rows = _Distinct(), array("q")
    solvers, algorithms = (_Distinct(), array("q")), (_Distinct(), array("q"))
    workspace, times = array("q"), array("d")
    for row in iter_rows(Path(path), tally, skip_bad=skip_bad):
        rows.append(problems.code(row.problem))
        for (texts, codes), text in ((solvers, row.solver.solver), (algorithms, str(row.solver.algorithm))):
            codes.append(texts.code(text))
        workspace.append(row.solver.workspace_bytes)
        times.append(row.solver.time_ms)
    identities = [(str(p.variant), p.dtype, p.layout, p.ndim, *p.columns().values()) for p in problems.known]
    frame = pd.DataFrame(identities, columns=list(IDENTITY)).iloc[np.asarray(rows)].reset_index(drop=True)
    named = {"kernel": solvers, "algorithm": algorithms}
    more = {name: np.array(texts.known, dtype=object)[np.asarray(codes)] for name, (texts, codes) in named.items()}
    frame = frame.assign(**more, workspace_bytes=np.asarray(workspace), latency_ms=np.asarray(times))
    _refuse_repeated(frame, Path(path))
    return SolverTable(frame, device, tally.without_time, tally.bad)


class _Distinct:
    """Distinct values by index."""

    def __init__(self) -> None:
        self._codes: dict[Any, int] = {}

    def code(self, value: Any) -> int:
        """Return the index of a value, which is added if it is new."""
        return self._codes.setdefault(value, len(self._codes))

    @property
    def known(self) -> list[Any]:
        """Return all values in order of their indices."""
        return list(self._codes)


def _refuse_repeated(frame: pd.DataFrame, path: Path) -> None:
    repeated = frame.duplicated([*IDENTITY, "kernel"])
    if repeated.any():
        first = frame[repeated].iloc[0]
        problem = problem_of_row(first, MiopenProblem)
        raise DataError(
            f"{path}: {int(repeated.sum())} rows repeat others, e.g. {first['kernel']} on {problem.canonical()}",
            code="duplicate-rows",
        )


def from_frame(frame: pd.DataFrame, device: FdbDevice, *, skip_bad: bool = False) -> SolverTable:
    """Return a table from a frame with the columns direction (F, B, W), dtype, layout, ndim, sizes, solver and time_ms.

    Sizes are those of the forward pass. Columns Do, Ho and Wo, if present, must agree with the sizes.

    Raises:
        DataError: a column is missing; or rows are bad, unless `skip_bad`.
    """
    if missing := [name for name in (*_TEXTS, "ndim", *SIZES, "time_ms") if name not in frame.columns]:
        raise DataError(f"{NAME}: missing columns: {', '.join(missing)}", code="missing-column")
    texts = {name: frame[name].astype("string").to_numpy(dtype=object, na_value="") for name in _TEXTS}
    table = frame.assign(
        variant=[str(DIRECTIONS.get(code, "")) for code in texts["direction"]],
        **{name: [value.lower() for value in texts[name]] for name in ("dtype", "layout")},
        solver=texts["solver"],
        time_ms=frame["time_ms"].astype("float64"),
        **{name: _integers(frame[name]) for name in ("ndim", *SIZES)},
    ).rename(columns=_RENAMED)
    reasons = _reasons(table)
    bad = {str(reason): int((reasons == reason).sum()) for reason in np.unique(reasons[reasons != ""])}
    if bad and not skip_bad:
        counts = ", ".join(f"{count} {reason}" for reason, count in bad.items())
        raise DataError(f"{NAME}: {sum(bad.values())} bad rows ({counts})", "skip them with skip_bad", code="bad-row")
    has_time = np.isfinite(table["latency_ms"].to_numpy()) & (table["latency_ms"].to_numpy() > 0)
    kept = table.loc[(reasons == "") & has_time, [*IDENTITY, "kernel", "latency_ms"]]
    without_time = int(np.count_nonzero((reasons == "") & ~has_time))
    return SolverTable(kept.reset_index(drop=True), device, without_time, bad)


def _integers(column: pd.Series[Any]) -> pd.Series[Any]:
    """Convert a column of sizes, which must be whole numbers, to integers."""
    try:
        whole = column.astype("int64")
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"{NAME}: column {column.name} has a value that is not an integer: {error}", code="bad-number"
        ) from error
    if column.dtype.kind == "f" and (whole != column).any():
        raise DataError(
            f"{NAME}: column {column.name} holds {column[whole != column].iloc[0]}, not an integer",
            code="bad-number",
        )
    return whole


def read_parquet(path: Path | str, device: FdbDevice, *, skip_bad: bool = False) -> SolverTable:
    """Read a Parquet file, as `from_frame`.

    Raises:
        DataError: it cannot be read, or as `from_frame`.
    """
    frame = parquet_frame(Path(path), _COLUMNS)
    frame = frame.drop(columns=[name for name in _OUTPUTS if frame[name].isna().any()])
    return from_frame(frame, device, skip_bad=skip_bad)


def _reasons(table: pd.DataFrame) -> NDArray[np.str_]:
    """Reason why each row is bad, by the first broken rule; empty for valid rows. Shape (rows,)."""
    sizes = {name: table[name].to_numpy() for name in SIZES}
    ndim, layout = table["ndim_spatial"].to_numpy(), table["layout"].to_numpy()
    outputs = _outputs(sizes)
    stated = [table[name].to_numpy() for name in _OUTPUTS if name in table.columns]
    fits = [known == made for known, made in zip(stated, outputs, strict=False)]
    time = table["latency_ms"].to_numpy()
    # No size is below 1, but padding may be 0; nor is the output of a filter that fits.
    least = np.min([values + name.startswith("pad") for name, values in sizes.items()], axis=0)
    known_layout = np.logical_or.reduce([(ndim == n) & np.isin(layout, names) for n, names in LAYOUTS.items()])
    group = np.maximum(sizes["G"], 1)
    rules = {
        "direction": table["variant"].to_numpy() == "",
        "dtype": ~np.isin(table["dtype"].to_numpy(), DTYPES),
        "layout": ~known_layout,
        "solver": table["kernel"].to_numpy() == "",
        "impossible problem": (least < 1) | (sizes["C"] % group > 0) | (sizes["K"] % group > 0),
        "output size": (np.min(outputs, axis=0) < 1) | (~np.logical_and.reduce(fits) if fits else False),
        "number": (time != 0) & (time < SHORTEST_MS),
        "solver twice": table.duplicated([*IDENTITY, "kernel"]).to_numpy(),
    }
    return np.select([*rules.values()], [np.str_(name) for name in rules], default=np.str_(""))


def _outputs(sizes: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    made = []
    for size, taps, axis in (("Di", "Z", "d"), ("Hi", "Y", "h"), ("Wi", "X", "w")):
        room = sizes[size] + 2 * sizes[f"pad_{axis}"] - sizes[f"dilation_{axis}"] * (sizes[taps] - 1) - 1
        made.append(room // np.maximum(sizes[f"stride_{axis}"], 1) + 1)
    return made


def _numbers(frame: pd.DataFrame, names: tuple[str, ...]) -> NDArray[np.int64]:
    return np.asarray(frame.groupby(list(names), sort=False, observed=True).ngroup().to_numpy(), dtype=np.int64)
