"""Record of the operation `miopen_conv`: a kernel is one of MIOpen's solvers, and nothing is emitted.

`JUDGED` is the evaluated accuracy of answers for MIOpen's solvers by another GPU's model
(`benchmarks/transfer.py` prints it).

Solvers were chosen among those in the find databases, the four fastest of a problem. Half of the MI200's problems have
no answer, as the MI300X's databases have none of their kind (3D, bf16), and are not counted.
"""

from __future__ import annotations

from functools import cache, lru_cache, partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.kernels.pools import Candidates
from ckh.ops.base import Kernels, Operation, Problems, Training, Worth, lazily
from ckh.ops.grouped_conv.columns import (
    CONV_IDENTITY,
    CONV_IDENTITY_COLUMNS,
    CONV_SIZES,
    MOVED_COLUMNS,
    moves_all,
    problem_of_row,
)
from ckh.ops.grouped_conv.operation import OPERATION as CONVOLUTION
from ckh.ops.grouped_conv.problem import CONV_COLUMNS
from ckh.ops.miopen_conv.features import INPUT_COLUMNS, MIOPEN_CONV
from ckh.ops.miopen_conv.kernels.pool import (
    CANDIDATES_NAME,
    CandidateTable,
    candidates,
    candidates_key,
    group_name,
    make_table,
    read_candidates,
)
from ckh.ops.miopen_conv.kernels.solvers import Algorithm, Serves, Solver, SolverOrigin, parse_solver
from ckh.ops.miopen_conv.problem import MiopenProblem, from_convolution, parse_miopen_problem
from ckh.problems import Direction
from ckh.schema import WORKSPACE, Column, dataset_columns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

    from ckh.archs import ArchSpec
    from ckh.ops.base import Encoding
    from ckh.training import TrainOptions

# Source, target, direction, problems, efficiency (mean, P10), the mean's 95 % interval, and the mean of random choices.
_EFFICIENCY = (
    ("gfx942", "gfx90a", Direction.FORWARD, 3304, (0.768, 0.442), (0.761, 0.776), 0.727),
    ("gfx942", "gfx90a", Direction.BWD_DATA, 3243, (0.755, 0.327), (0.745, 0.765), 0.633),
    ("gfx942", "gfx90a", Direction.BWD_WEIGHT, 3489, (0.883, 0.550), (0.876, 0.890), 0.586),
    ("gfx90a", "gfx942", Direction.FORWARD, 2769, (0.895, 0.631), (0.888, 0.902), 0.594),
    ("gfx90a", "gfx942", Direction.BWD_DATA, 2508, (0.923, 0.724), (0.916, 0.929), 0.626),
    ("gfx90a", "gfx942", Direction.BWD_WEIGHT, 2390, (0.957, 1.000), (0.951, 0.964), 0.428),
)
JUDGED = tuple(
    Worth(
        {"variant": str(direction)},
        target,
        f"{problems:,} {direction} convolutions with MIOpen's fastest solvers",
        figures,
        interval,
        random,
        source=source,
    )
    for source, target, direction, problems, figures, interval, random in _EFFICIENCY
)


# Availability on other GPUs of solvers that AMD measured on Instincts, by the devices in MIOpen's sources. Solvers
# of rocBLAS, OpenCL, FFT and the naive ones name none (src/solver/conv: gemm*.cpp, conv_ocl_*.cpp, fft.cpp,
# conv_direct_naive_conv*.cpp); Winograd RxS names gfx9, gfx10 and gfx11 (conv_winoRxS.cpp). All others name devices of
# gfx9, or need their matrix instructions.
_MEASURED_ON = "gfx9"
_ANYWHERE = (SolverOrigin.BLAS, SolverOrigin.OCL, SolverOrigin.NAIVE)
_WINOGRAD = "ConvBinWinogradRxS"
_WINOGRAD_ON = (_MEASURED_ON, "gfx11")


def runs_on(solver: Solver, arch: ArchSpec) -> bool:
    """True if MIOpen has a solver on a GPU, as far as the solver's name tells."""
    family = arch.target_family
    if family == _MEASURED_ON or solver.origin in _ANYWHERE or solver.algorithm is Algorithm.FFT:
        return True
    return solver.name.startswith(_WINOGRAD) and family in _WINOGRAD_ON


_MANY_ROWS = 100_000
_SOLVER_COLUMNS = (Column("algorithm", "string", "", "the solver's class of algorithm"), WORKSPACE)


def _needed(rows: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Shares of operations and bytes that solvers need: Winograd's of a tile, none of a Fourier transform's."""
    numbers, names = rows["kernel"].factorize()
    work = np.array([_work(parse_solver(str(name))) for name in names], dtype=np.float64)
    return work[numbers], moves_all(rows)


def _work(solver: Solver) -> float:
    """Products of F(m, r), m + r - 1 instead of m r along each axis (Lavin and Gray, arXiv:1509.09308)."""
    if solver.algorithm is not Algorithm.WINOGRAD:
        return float(solver.algorithm is not Algorithm.FFT)
    axes = (solver.tile_h, solver.taps_h), (solver.tile_w, solver.taps_w)
    return prod((tile + taps - 1) / (tile * taps) for tile, taps in axes)


def _problem_features(problems: Sequence[MiopenProblem]) -> dict[str, Any]:
    return CONVOLUTION.problems.features(problems) | {
        "layout": np.array([problem.layout for problem in problems]),
        "ndim_spatial": np.array([float(problem.ndim) for problem in problems]),
    }


def _kernel_columns(solvers: Sequence[Solver], _encoding: Encoding) -> dict[str, list[Any]]:
    return {"algorithm": [str(solver.algorithm) for solver in solvers]}


def _kernel_features(solvers: Sequence[Solver], _encoding: Encoding) -> dict[str, Any]:
    return {"kernel": np.array([solver.name for solver in solvers], dtype=np.str_)}


def _mismatch(solver: Solver, problem: MiopenProblem) -> str:
    is_for = solver.serves in (Serves.ANY, str(problem.variant))
    return "" if is_for else f"{solver.name} on {problem.canonical()}"


def _candidates(problem: MiopenProblem, arch: ArchSpec, model: Path) -> Candidates[Solver]:
    if not arch.is_gpu:
        return Candidates((), np.zeros(0, np.intp), {"MIOpen runs on AMD GPUs only": 1})
    path = model / CANDIDATES_NAME
    table = _table(model, path.stat().st_mtime_ns if path.is_file() else 0)
    solver_candidates = candidates(problem, table)
    pool = _pool(tuple(item.solver for item in table.groups.get(group_name(problem), ())))
    place = {solver.name: index for index, solver in enumerate(pool)}
    chosen = np.array([place[solver] for solver in solver_candidates.solvers], np.intp)
    is_there = np.array([runs_on(pool[index], arch) for index in chosen.tolist()], bool)
    missing = {f"MIOpen has no {pool[index].name} on {arch.name}": 1 for index in chosen[~is_there].tolist()}
    return Candidates(pool, chosen[is_there], solver_candidates.refused | missing)


@lru_cache(maxsize=8)
def _table(model: Path, _changed: int) -> CandidateTable:
    return read_candidates(model)


@cache
def _pool(solvers: tuple[str, ...]) -> tuple[Solver, ...]:
    return tuple(map(parse_solver, solvers))


def _candidates_file(frame: pd.DataFrame, before: Path | None) -> bytes:
    return make_table(frame, None if before is None else read_candidates(before)).to_json().encode()


def _train_defaults(rows: int) -> TrainOptions:
    from ckh.ops.miopen_conv.recipe import RECIPE, SMALL_RECIPE

    return RECIPE if rows > _MANY_ROWS else SMALL_RECIPE


def _load_problems(
    source: str, variant: str | None, dtype: str | None, default_dtype: str = "fp32"
) -> tuple[MiopenProblem, ...]:
    result = CONVOLUTION.problems.load(source, variant, dtype, default_dtype)
    return tuple(dict.fromkeys(from_convolution(problem) for problem in result))


OPERATION = Operation(
    name=MIOPEN_CONV.op_type,
    summary="MIOpen's convolution solvers, from AMD's find databases",
    prefix="miopen_",
    problems=Problems(
        identity=CONV_IDENTITY,
        sizes=tuple(CONV_COLUMNS),
        parse=parse_miopen_problem,
        of_row=partial(problem_of_row, kind=MiopenProblem),
        columns=CONVOLUTION.problems.columns,
        features=_problem_features,
        slices=CONVOLUTION.problems.slices,
        place=CONVOLUTION.problems.place,
        split_by=tuple(CONV_COLUMNS),
        load=_load_problems,
        set_names=CONVOLUTION.problems.set_names,
        batch="n",
        shaped=lazily("ckh.ops.miopen_conv.shaped:SHAPED"),
        requested=lazily("ckh.ops.miopen_conv.requested:REQUESTED"),
    ),
    kernels=Kernels(
        type=Solver,
        parse=parse_solver,
        name=lambda solver: solver.name,
        columns=_kernel_columns,
        features=_kernel_features,
        mismatch=_mismatch,
        candidates=_candidates,
        key_of=candidates_key,
        slice_column="algorithm",
    ),
    training=Training(
        columns=dataset_columns(CONV_IDENTITY_COLUMNS, CONV_SIZES, _SOLVER_COLUMNS),
        model_per=(),
        engine=MIOPEN_CONV,
        input_columns=INPUT_COLUMNS,
        defaults=_train_defaults,
        model_files={CANDIDATES_NAME: _candidates_file},
        needed=_needed,
        needed_columns=(*MOVED_COLUMNS, "kernel"),
        timed=1,
        formats=lazily("ckh.ops.miopen_conv.readers.formats:FORMATS"),
        judged=JUDGED,
    ),
    exported=lazily("ckh.ops.miopen_conv.consumers:EXPORTED"),
    consumers=lazily("ckh.ops.miopen_conv.consumers:CONSUMERS"),
)
