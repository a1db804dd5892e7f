"""One line of MIOpen's find databases: a problem and the times of its solvers.

    256-14-14-3x3-128-14-14-32-1x1-1x1-1x1-0-NCHW-FP32-F_g2=ConvAsm3x3U:0.25,0,miopenConvolutionFwdAlgoDirect;...

The key is C-[D-]H-W-[Zx]YxX-K-[Do-]Ho-Wo-N-pads-strides-dilations-bias-layout-dtype-direction[_gG]. In the directions B
and W its first tensor is dy, so that C, H, W are the K, Ho, Wo of the forward pass and vice versa. The value is
`solver:time,workspace,algorithm` for every solver, in older files `algorithm:solver,time,workspace,library[,...]`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ckh.errors import DataError, UsageError
from ckh.ops.miopen_conv.kernels.solvers import Algorithm
from ckh.ops.miopen_conv.problem import DTYPES, LAYOUTS, MiopenProblem
from ckh.problems import Direction
from ckh.schema import SHORTEST_MS

DIRECTIONS = {"F": Direction.FORWARD, "B": Direction.BWD_DATA, "W": Direction.BWD_WEIGHT}
_LAYOUTS = {name.upper(): ndim for ndim, names in LAYOUTS.items() for name in names}
ALGORITHMS = {
    "GEMM": Algorithm.GEMM,
    "Direct": Algorithm.DIRECT,
    "FFT": Algorithm.FFT,
    "Winograd": Algorithm.WINOGRAD,
    "ImplicitGEMM": Algorithm.IMPLICIT_GEMM,
}
_ALGORITHM = re.compile(r"miopenConvolution(?:Fwd|BwdData|BwdWeights)Algo(\w+)")
_TAIL = re.compile(
    r"-(?P<bias>\d+)-(?P<layout>[A-Z]+)(?:-(?P<weights>[A-Z]+)-(?P<out>[A-Z]+))?"
    r"-(?P<dtype>[A-Z]+\d+)-(?P<direction>[FBW])(?:_g(?P<groups>\d+))?"
)
_SIZES = {
    2: re.compile(r"(\d+)-(\d+)-(\d+)-(\d+x\d+)-(\d+)-(\d+)-(\d+)-(\d+)-(\d+x\d+)-(\d+x\d+)-(\d+x\d+)"),
    3: re.compile(
        r"(\d+)-(\d+)-(\d+)-(\d+)-(\d+x\d+x\d+)-(\d+)-(\d+)-(\d+)-(\d+)-(\d+)"
        r"-(\d+x\d+x\d+)-(\d+x\d+x\d+)-(\d+x\d+x\d+)"
    ),
}
_FIELDS_NEW, _FIELDS_OLD = 3, 4
_MAX_BYTES = 1 << 63
_MAX_KEY = 1000  # far above any key, far below the 4300 digits that int() takes


class LineError(DataError):
    """A line that is not valid in a find database; `reason` is the kind of fault, by which lines are counted."""

    default_code = "bad-row"

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class SolverTime:
    """The time of a solver in milliseconds, 0 if missing, and bytes of workspace."""

    solver: str
    time_ms: float
    workspace_bytes: int
    algorithm: Algorithm


@dataclass(frozen=True, slots=True)
class FdbLine:
    """A problem and its solvers, in the order of the line."""

    problem: MiopenProblem
    solvers: tuple[SolverTime, ...]


def parse_line(text: str) -> FdbLine:
    """Parse a line.

    Raises:
        LineError: it is malformed, or has an impossible problem or a duplicate solver.
    """
    key, equals, value = text.strip().partition("=")
    if not equals:
        raise LineError("no key=value pair", _short(text))
    problem = parse_key(key)
    solvers = tuple(_solver_time(entry) for entry in value.rstrip(";").split(";"))
    names = [solver.solver for solver in solvers]
    if len(set(names)) < len(names):
        raise LineError("solver twice", next(name for name in names if names.count(name) > 1))
    return FdbLine(problem, solvers)


def parse_key(key: str) -> MiopenProblem:
    """Parse the problem of a key.

    Raises:
        LineError: the key is malformed, or its sizes do not result in the output size that it states.
    """
    tail = _TAIL.search(key)
    if tail is None or tail.end() != len(key):
        raise LineError("key", _short(key))
    if tail["layout"] not in _LAYOUTS or {tail["weights"], tail["out"]} - {None, tail["layout"]}:
        raise LineError("layout", _short(key))
    if tail["dtype"].lower() not in DTYPES:
        raise LineError("dtype", tail["dtype"])
    ndim = _LAYOUTS[tail["layout"]]
    sizes = _SIZES[ndim].fullmatch(key[: tail.start()])
    if sizes is None or len(key) > _MAX_KEY:
        raise LineError("key", _short(key))
    return _problem(key, sizes.groups(), tail)


def _problem(key: str, parts: tuple[str, ...], tail: re.Match[str]) -> MiopenProblem:
    layout, direction = tail["layout"], DIRECTIONS[tail["direction"]]
    ndim = _LAYOUTS[layout]
    first, taps, second = parts[: ndim + 1], parts[ndim + 1], parts[ndim + 2 : 2 * ndim + 3]
    x, y = (first, second) if direction is Direction.FORWARD else (second, first)
    depth = 3 - ndim
    axes = "dhw"[depth:]
    filters, pads, strides, dilations = (text.split("x") for text in (taps, *parts[2 * ndim + 4 :]))
    values: dict[str, int] = {"n": int(parts[2 * ndim + 3]), "c": int(x[0]), "k": int(y[0])}
    values["g"] = int(tail["groups"] or 1)
    for i, axis in enumerate(axes):
        values |= {f"{axis}i": int(x[1 + i]), "zyx"[depth + i]: int(filters[i])}
        values |= {
            f"pad_{axis}": int(pads[i]),
            f"stride_{axis}": int(strides[i]),
            f"dilation_{axis}": int(dilations[i]),
        }
    try:
        problem = MiopenProblem(
            variant=direction, ndim=ndim, dtype=tail["dtype"].lower(), layout=layout.lower(), **values
        )
    except UsageError as error:
        raise LineError("impossible problem", f"{_short(key)}: {error.message}") from error
    stated = tuple(int(size) for size in y[1:])
    if stated != (problem.do, problem.ho, problem.wo)[depth:]:
        raise LineError("output size", f"{_short(key)}: the sizes give {problem.do}x{problem.ho}x{problem.wo}")
    return problem


def _solver_time(entry: str) -> SolverTime:
    head, colon, rest = entry.partition(":")
    fields = rest.split(",")
    is_old = head.startswith("miopenConvolution")
    if not colon or not head or len(fields) < (_FIELDS_OLD if is_old else _FIELDS_NEW):
        raise LineError("value", _short(entry))
    solver, time, workspace, algorithm = (*fields[:3], head) if is_old else (head, *fields[:3])
    named = _ALGORITHM.fullmatch(algorithm)
    if named is None or named[1] not in ALGORITHMS:
        raise LineError("algorithm", _short(algorithm))
    try:
        time_ms, workspace_bytes = float(time), int(workspace)
        time_ms = time_ms if math.isfinite(time_ms) else 0.0  # no time
    except ValueError as error:
        raise LineError("number", _short(entry)) from error
    is_time = time_ms == 0 or time_ms >= SHORTEST_MS
    if not is_time or not 0 <= workspace_bytes < _MAX_BYTES or not solver:
        raise LineError("number", _short(entry))
    return SolverTime(solver, time_ms, workspace_bytes, ALGORITHMS[named[1]])


def _short(text: str) -> str:
    limit = 80
    return text if len(text) <= limit else text[:limit] + "…"
