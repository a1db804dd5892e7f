"""Features computed by programs for each candidate, for comparison with the formulas."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.ranking.model_file import FileFacts, PreparedPool, is_number, make_plan, model_file, whole_group
from ckh.ranking.packed import PackedForest
from ckh.ranking.pool import Kind, Pool
from ckh.ranking.program import trace_program

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.features.engine import FeatureEngine

    Floats = NDArray[np.float64]


def no_forest(names: tuple[str, ...]) -> PackedForest:
    """Return a forest of one leaf."""
    ints = np.zeros((0, 4), np.int32)
    return PackedForest(
        feature_names=names,
        roots=np.array([-1], np.int32),
        nodes=ints[:, :3],
        leaves=np.zeros((1, 2), np.int64),
        families=ints,
        thresholds=np.zeros(0),
        sets=ints[:, :2],
        words=np.zeros(0, np.uint32),
        high_exponent=0,
        low_exponent=-43,
    )


def computed(
    library: Path,
    engine: FeatureEngine,
    hardware: dict[str, Any],
    kernels: dict[str, Any],
    problems: dict[str, Any],
    names: tuple[str, ...] | None = None,
) -> Floats:
    """All features as the C part has them, shape (problems, candidates, features).

    Args:
        library: the C part, with features.c.
        engine: the features.
        hardware: the hardware profile.
        kernels: raw columns of candidates.
        problems: raw columns of problems, of one text.
        names: which features; all by default.
    """
    names = engine.names if names is None else names
    texts = {name: column[0] for name, column in problems.items() if not is_number(column)}
    engine = replace(engine, defaults={**engine.defaults, **texts})
    example = {name: column[:1] for name, column in problems.items() if name not in texts}
    pool = Pool(engine, names, hardware, kernels, example, np.ones(len(names), np.int64))
    program = trace_program(pool, pool.numbers)
    forest = no_forest(names)
    made = PreparedPool(pool, (make_plan(forest, pool),), program)
    content = model_file(FileFacts(("", "", "")), [forest], [False], [whole_group(made)])
    count = max(map(len, problems.values()))
    sizes = np.empty((count, len(pool.numbers)))
    for index, name in enumerate(pool.numbers):
        sizes[:, index] = problems[name]
    constants, rows = np.empty((count, program.constants)), np.empty((count, program.rows, pool.tiles))
    data = (ctypes.c_int64 * (len(content) // 8)).from_buffer_copy(content)
    pointers = (ctypes.c_void_p(array.ctypes.data) for array in (sizes, constants, rows))
    size = ctypes.c_size_t
    assert not ctypes.CDLL(str(library)).features_of(data, size(len(content)), size(count), *pointers)
    return _by_candidate(pool, constants, rows)


def _by_candidate(pool: Pool, constants: Floats, rows: Floats) -> Floats:
    """Features at their positions, expanded over the candidates."""
    result = np.empty((len(constants), len(pool.tile_of), len(pool.features)))
    for index, place in enumerate(pool.placed):
        if place.kind == Kind.CONSTANT:
            result[:, :, index] = constants[:, [place.row]]
        elif place.kind == Kind.VARIANT:
            result[:, :, index] = pool.variant_rows[place.row][pool.variant_of]
        else:
            of_class = pool.partitions[place.partition][pool.variant_of] if place.kind == Kind.MIXED else 0
            given = rows if place.is_dynamic else pool.static_rows[None]
            result[:, :, index] = given[:, place.row + of_class, pool.tile_of]
    return result


def by_formulas(
    engine: FeatureEngine,
    hardware: dict[str, Any],
    kernels: dict[str, Any],
    problems: dict[str, Any],
    names: tuple[str, ...] | None = None,
) -> Floats:
    """The same features computed by the formulas, for every candidate and problem."""
    count = max(map(len, problems.values()))
    rows = []
    for problem in range(count):
        item = {name: column if len(column) == 1 else column[[problem]] for name, column in problems.items()}
        rows.append(engine.matrix({**item, **kernels}, hardware, names))
    return np.array(rows)
