"""Candidate solvers of a problem: the solvers of the training data, stored in the model's directory.

A solver is a candidate if it was measured in the same group (direction, dtype, layout, dimensions, with or without
groups) and the problem has what all its measured problems of the group have in common: a solver that was only measured
with stride 1, or with channels divisible by 16, is assumed to require that. A solver whose name has 1x1 is for such
filters, however few problems it was measured on. MIOpen itself may reject more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import DataError, ModelError
from ckh.files.jsonfields import model_fields
from ckh.ops.miopen_conv.kernels.solvers import parse_solver

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

    from ckh.files.jsonfields import JsonFields
    from ckh.ops.miopen_conv.problem import MiopenProblem

CANDIDATES_NAME = "candidates.json"
# With fewer measured problems than this, common properties may be chance.
_ENOUGH = 50
_GROUP = ("variant", "dtype", "layout", "ndim_spatial")
# Quantities that a solver may require one value of.
_FIXED = (
    *("Z", "Y", "X", "stride_d", "stride_h", "stride_w", "pad_d", "pad_h", "pad_w"),
    *("dilation_d", "dilation_h", "dilation_w"),
)
_FILTER = ("Z", "Y", "X")
# Quantities that a solver may require a divisor of.
_DIVISIBLE = ("c_per_group", "k_per_group")
_DIVISORS = (64, 32, 16, 8, 4, 2)


@dataclass(frozen=True, slots=True)
class SolverCandidate:
    """A solver in a group: how often it was measured, and its assumed requirements.

    `fixed` maps columns to their only value, `divisors` quantities to their common divisor.
    """

    solver: str
    measured: int
    fixed: dict[str, int]
    divisors: dict[str, int]

    def reason(self, sizes: Mapping[str, int]) -> str:
        """Reason why the solver is not a candidate for these sizes; empty if it is."""
        for name, value in self.fixed.items():
            if sizes[name] != value:
                return f"{self.solver} was only measured with {name} = {value}"
        for name, divisor in self.divisors.items():
            if sizes[name] % divisor:
                return f"{self.solver} was only measured with {name} divisible by {divisor}"
        is_other = parse_solver(self.solver).is_1x1 and any(sizes[name] != 1 for name in _FILTER)
        return f"{self.solver} is for 1x1 filters" if is_other else ""


@dataclass(frozen=True, slots=True)
class CandidateTable:
    """The candidates of every group, by `group_name`."""

    groups: dict[str, tuple[SolverCandidate, ...]]

    def to_json(self) -> str:
        """Text that `read_candidates` parses."""
        groups = {
            name: {
                candidate.solver: {
                    "measured": candidate.measured,
                    "fixed": candidate.fixed,
                    "divisors": candidate.divisors,
                }
                for candidate in many
            }
            for name, many in self.groups.items()
        }
        return json.dumps({"groups": groups}, indent=1) + "\n"


@dataclass(frozen=True, slots=True)
class SolverCandidates:
    """Solvers to rank, the most measured first, and the number of rejected solvers by reason."""

    solvers: tuple[str, ...]
    refused: dict[str, int]


def group_name(problem: MiopenProblem) -> str:
    """Return the group in which a problem's candidates are looked up."""
    return _name(problem.variant, problem.dtype, problem.layout, problem.ndim, is_grouped=problem.g > 1)


def candidates(problem: MiopenProblem, table: CandidateTable) -> SolverCandidates:
    """Return the solvers to rank for a problem; for a group that was never measured none, with that reason."""
    name = group_name(problem)
    if name not in table.groups:
        return SolverCandidates((), {f"nothing was measured for {name}": 1})
    sizes = _sizes(problem)
    kept, refused = [], {}
    for candidate in table.groups[name]:
        if reason := candidate.reason(sizes):
            refused[reason] = 1
        else:
            kept.append(candidate.solver)
    return SolverCandidates(tuple(kept), refused)


def candidates_key(problem: MiopenProblem) -> Hashable:
    """Return the part of a problem that `candidates` reads."""
    sizes = _sizes(problem)
    fixed = (sizes[name] for name in _FIXED)
    return group_name(problem), *fixed, *(gcd(sizes[name], max(_DIVISORS)) for name in _DIVISIBLE)


def _sizes(problem: MiopenProblem) -> dict[str, int]:
    return problem.columns() | {"c_per_group": problem.c_per_group, "k_per_group": problem.k_per_group}


def make_table(frame: pd.DataFrame, before: CandidateTable | None = None) -> CandidateTable:
    """Return the table of all measured solvers, from rows of a problem and a solver with a dataset's columns.

    Args:
        frame: the measurements.
        before: the table of earlier measurements to extend.
    """
    values = {name: frame[name].to_numpy() for name in _FIXED}
    divided = {f"{side}_per_group": frame[side.upper()].to_numpy() // frame["G"].to_numpy() for side in "ck"}
    keys = [*(frame[name].to_numpy() for name in _GROUP), frame["G"].to_numpy() > 1]
    names = [_name(*key[:4], is_grouped=key[4]) for key in zip(*keys, strict=True)]
    solvers = frame["kernel"].to_numpy()
    rows_of: dict[tuple[str, str], list[int]] = {}
    for row, pair in enumerate(zip(names, solvers, strict=True)):
        rows_of.setdefault(pair, []).append(row)
    known = {} if before is None else before.groups
    earlier = {(name, candidate.solver): candidate for name, many in known.items() for candidate in many}
    groups: dict[str, list[SolverCandidate]] = {}
    for name, solver in sorted({*rows_of, *earlier}):
        solver_candidate = earlier.get((name, solver))
        if rows := rows_of.get((name, solver)):
            solver_candidate = _candidate(solver, np.array(rows), values, divided, solver_candidate)
        assert solver_candidate is not None
        groups.setdefault(name, []).append(solver_candidate)
    return CandidateTable(
        {name: tuple(sorted(many, key=lambda candidate: -candidate.measured)) for name, many in groups.items()}
    )


def read_candidates(folder: Path) -> CandidateTable:
    """Read the table in a model's directory.

    Raises:
        ModelError: it is missing or damaged.
    """
    path = folder / CANDIDATES_NAME
    if not path.is_file():
        raise ModelError(f"{folder} has no {CANDIDATES_NAME}", code="missing-target")
    with model_fields(path) as fields:
        groups = fields.part("groups")
        return CandidateTable({name: _read_group(groups.part(name)) for name in groups.names()})


def _read_group(fields: JsonFields) -> tuple[SolverCandidate, ...]:
    made = []
    for solver in fields.names():
        try:
            parse_solver(solver)
        except DataError as error:
            fields.fail(solver[:80], f"is not a solver: {error.message}")
        json_fields = fields.part(solver)
        fixed = _read_integers(json_fields.part("fixed"), _FIXED, 0)
        divisors = _read_integers(json_fields.part("divisors"), _DIVISIBLE, 1)
        made.append(SolverCandidate(solver, json_fields.scalar("measured", int), fixed, divisors))
        json_fields.finish()
    return tuple(made)


def _read_integers(fields: JsonFields, known: Sequence[str], least: int) -> dict[str, int]:
    result = {name: fields.scalar(name, int) for name in known if fields.has(name)}
    fields.finish()
    for name, value in result.items():
        if value < least:
            fields.fail(name, f"must be {least} or more, not {value}")
    return result


def _candidate(
    solver: str,
    rows: NDArray[np.int64],
    values: Mapping[str, NDArray[Any]],
    divided: Mapping[str, NDArray[Any]],
    before: SolverCandidate | None,
) -> SolverCandidate:
    """Return a solver's requirements, common to the rows of its problems and to its earlier entry."""
    if before is None and len(rows) < _ENOUGH:
        return SolverCandidate(solver, len(rows), {}, {})
    fixed = {name: int(column[rows[0]]) for name, column in values.items() if (column[rows] == column[rows[0]]).all()}
    common = {
        name: next((divisor for divisor in _DIVISORS if not (divided[name][rows] % divisor).any()), 1)
        for name in _DIVISIBLE
    }
    if before is not None:
        fixed = {name: value for name, value in fixed.items() if before.fixed.get(name) == value}
        common = {name: gcd(divisor, before.divisors.get(name, 1)) for name, divisor in common.items()}
    measured = len(rows) + (0 if before is None else before.measured)
    return SolverCandidate(solver, measured, fixed, {name: divisor for name, divisor in common.items() if divisor > 1})


def _name(variant: Any, dtype: Any, layout: Any, ndim: Any, *, is_grouped: Any) -> str:
    return f"{variant} {dtype} {layout} {ndim}D {'grouped' if is_grouped else 'dense'}"
