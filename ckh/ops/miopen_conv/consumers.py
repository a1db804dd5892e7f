"""Consumers of solver choices: exported C, and MIOpen's user find database.

The database has measured rows as text that MIOpen reads (`fdb_line` parses it). The key is the output of MIOpen's
`conv::ProblemDescription::Serialize`. MIOpen uses the solvers of a record unchecked, so that a file must have only
times measured on the same kind of device, and no record without its solvers' workspace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.data.formats import RowsFormat
from ckh.errors import DataError
from ckh.export.consumers import Consumers
from ckh.export.groups import Exported, Group
from ckh.files.outputs import FileKind, head_of, write_output
from ckh.kernels.name_grammar import by
from ckh.ops.grouped_conv.consumers import KIND, smallest
from ckh.ops.miopen_conv.kernels.pool import CandidateTable, candidates, group_name, read_candidates
from ckh.ops.miopen_conv.kernels.solvers import Algorithm, parse_solver
from ckh.ops.miopen_conv.problem import DTYPES, LAYOUTS, MiopenProblem
from ckh.ops.miopen_conv.readers.fdb import FdbDevice, device_of, sniff
from ckh.ops.miopen_conv.readers.fdb_line import ALGORITHMS, DIRECTIONS, FdbLine, SolverTime
from ckh.problems import Direction
from ckh.schema import WORKSPACE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ckh.data.formats import MeasuredRows
    from ckh.export.groups import Reason
    from ckh.learn.models.artifact import Model


def _groups(model: Model) -> Iterator[Group]:
    """Candidates of dense and of grouped problems have different orders; a group has both, one after the other."""
    table = read_candidates(model.path)

    def reason(name: str, item: Any) -> Reason:
        alone = CandidateTable({name: (item,)})

        def why_not(problem: Any) -> str | None:
            return next(iter(candidates(problem, alone).refused), None) if group_name(problem) == name else ""

        return why_not

    kinds = [(d, t, n, layout) for d in Direction for t in DTYPES for n in LAYOUTS for layout in LAYOUTS[n]]
    for direction, dtype, ndim, layout in kinds:
        example = smallest(MiopenProblem, direction, dtype, ndim, layout)
        grouped = MiopenProblem(**{**example.to_dict(), "c": 2, "k": 2, "g": 2})
        result = [
            (parse_solver(solver_time.solver), (reason(name, solver_time),))
            for name in (group_name(example), group_name(grouped))  # type: ignore[arg-type] # it is a MiopenProblem
            for solver_time in table.groups.get(name, ())
        ]
        kernels, judgements = zip(*result, strict=True) if result else ((), ())
        yield Group(KIND.key(example), example, kernels, judgements, range(len(result)))


EXPORTED = Exported(KIND, _groups)


_LETTERS = {direction: letter for letter, direction in DIRECTIONS.items()}
_ALGORITHM_NAMES = {algorithm: name for name, algorithm in ALGORITHMS.items()}
_WORDS = {Direction.FORWARD: "Fwd", Direction.BWD_DATA: "BwdData", Direction.BWD_WEIGHT: "BwdWeights"}
_DEFAULT_LAYOUTS = ("nchw", "ncdhw")  # a key states these once, others once per tensor
_DIGITS = 6  # of a time, as MIOpen prints it


def line_text(line: FdbLine) -> str:
    """Return a record as MIOpen writes it, without the end of the line."""
    direction = Direction(line.problem.variant)
    entries = (
        f"{solver.solver}:{_time_text(solver.time_ms)},{solver.workspace_bytes},"
        f"miopenConvolution{_WORDS[direction]}Algo{_ALGORITHM_NAMES[solver.algorithm]}"
        for solver in line.solvers
    )
    return f"{key_text(line.problem)}={';'.join(entries)}"


def key_text(problem: MiopenProblem) -> str:
    """Return a problem as MIOpen's key; in the directions B and W the first tensor is dy."""
    x = (problem.c, *_axes(problem, "di", "hi", "wi"))
    y = (problem.k, *_axes(problem, "do", "ho", "wo"))
    direction = Direction(problem.variant)
    first, second = (x, y) if direction is Direction.FORWARD else (y, x)
    layout = problem.layout.upper()
    groups = f"_g{problem.g}" if problem.g != 1 else ""
    parts = [
        *first,
        by(_axes(problem, "z", "y", "x")),
        *second,
        problem.n,
        *(by(_axes(problem, f"{what}_d", f"{what}_h", f"{what}_w")) for what in ("pad", "stride", "dilation")),
        0,  # no bias
        *([layout] if problem.layout in _DEFAULT_LAYOUTS else [layout] * 3),
        problem.dtype.upper(),
        _LETTERS[direction],
    ]
    return "-".join(map(str, parts)) + groups


def write_find_db(rows: MeasuredRows, path: Path) -> list[str]:
    """Write a user find database of all solvers with a measured time, the fastest of a problem first.

    Raises:
        UsageError: the file's name does not state a device, as MIOpen's names do.
        DataError: the rows are of another device or of several, have no time, or lack a workspace.
        OutputError: the file cannot be written.
    """
    device = device_of(path)
    result = _records(rows)
    if not result:
        raise DataError("no row has a measured time: nothing to write", code="not-measured")
    records: dict[MiopenProblem, list[SolverTime]] = {}
    for own, problem, solver in result:
        if own != device:
            raise DataError(
                f"the rows are of {own.arch} with {own.num_cus} CUs, {path.name} is for {device.arch} with "
                f"{device.num_cus}",
                "a database is for the device that was measured: name the file as MIOpen does there",
                code="mismatch",
            )
        records.setdefault(problem, []).append(solver)
    lines = [FdbLine(problem, tuple(sorted(some, key=_by_time))) for problem, some in records.items()]
    write_output(path, "".join(line_text(line) + "\n" for line in lines).encode())
    omitted = len(rows) - len(result)
    return [f"rows without a measured time are not in {path}: {omitted}"] if omitted else []


def _records(rows: MeasuredRows) -> list[tuple[FdbDevice, MiopenProblem, SolverTime]]:
    from ckh.ops.miopen_conv.operation import OPERATION

    names = ["arch", "hw_num_cus", "kernel", "algorithm", "is_valid", "latency_ms", WORKSPACE.name]
    result = []
    for block in rows.blocks([*OPERATION.problems.identity, *names]):
        for row in block.to_pylist():
            if row["is_valid"]:
                device = FdbDevice(str(row["arch"]), int(row["hw_num_cus"] or 0))
                result.append((device, OPERATION.problems.of_row(row), _solver_time(row)))
    return result


def _solver_time(row: dict[str, Any]) -> SolverTime:
    workspace = row[WORKSPACE.name]
    if workspace is None:
        raise DataError(
            f"the workspace of {row['kernel']} is unknown, and MIOpen requires it",
            "convert the find database's text again: its Parquet form has no workspace",
            code="missing-field",
        )
    return SolverTime(row["kernel"], float(row["latency_ms"]), int(workspace), Algorithm(row["algorithm"]))


def _by_time(solver_time: SolverTime) -> tuple[float, str]:
    return solver_time.time_ms, solver_time.solver


def _axes(problem: MiopenProblem, *names: str) -> tuple[int, ...]:
    return tuple(getattr(problem, name) for name in names[3 - problem.ndim :])


def _time_text(time_ms: float) -> str:
    """Format a time as C++ prints a float, or with as many digits as needed."""
    short = f"{time_ms:.{_DIGITS}g}"
    return short if float(short) == time_ms else repr(time_ms)


FIND_DB = RowsFormat(
    "miopen",
    "MIOpen's user find-db",
    FileKind("find database of MIOpen", lambda path: sniff(head_of(path))),
    write_find_db,
)
CONSUMERS = Consumers(records=(FIND_DB,))
