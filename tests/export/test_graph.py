"""Generated C computes what NumPy computes."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from ckh.export.declarations import EVALUATOR
from ckh.export.graph import Graph
from ckh.export.pools import GroupPool, Output
from ckh.export.sources import Functions, features_function
from ckh.ranking.pool import Kind, Placed
from ckh.ranking.symbolic import FormulaError, Number, SymbolicColumns

from .conftest import COMPILERS, STRICT, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ckh.features.engine import Columns
    from ckh.ranking.pool import Pool

FORMULAS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b - 3,
    "product": lambda a, b: 2 * a * b,
    "quotient": lambda a, b: a / b,
    "whole quotient": lambda a, b: a // b,
    "rest": np.mod,
    "least and most": lambda a, b: np.minimum(np.maximum(a, 1), b),
    "clipped": lambda a, b: np.clip(a, -2, b),
    "rounded": lambda a, b: np.ceil(a) + 10 * np.floor(b) + 100 * np.rint(a) + np.trunc(b),
    "no numbers": lambda a, b: np.minimum(a, np.inf) + np.maximum(b, -np.inf) + np.where(a > b, np.inf, 1.0),
    "not one": lambda a, b: np.where(a > b, np.nan, b),
    "root": lambda a, b: np.sqrt(np.abs(a)),
    "negative": lambda a, b: -a,
    "truths": lambda a, b: (a > b) | ((a <= 2) & ~(b == 3)),
    "exclusive": lambda a, b: (a != b) ^ (b >= 1),
    "sum of truths": lambda a, b: sum((np.mod(a, 2.0**p) == 0).astype(float) for p in range(1, 4)),
    "truths as numbers": lambda a, b: (a > 0).astype(float) * b,
    "chosen": lambda a, b: np.where(a < b, a, 1),
    "chosen here": lambda a, b: np.where(np.array([True]), a, b),
    "selected": lambda a, b: np.select([a > 2, b > 2], [a, b]),
    "product of many": lambda a, b: np.prod(np.broadcast_arrays(a, b, a + b), axis=0),
    "all": lambda a, b: np.logical_and.reduce(np.broadcast_arrays(a == 1, b == 1)),
    "not": lambda a, b: np.logical_not(a),
    "integers": lambda a, b: (np.maximum(a, 1).astype(np.int64) & -np.maximum(a, 1).astype(np.int64)) + 3,
    "finite": lambda a, b: np.isfinite(a) & ~np.isnan(b),
    "with an array": lambda a, b: a * np.array([2.5]) + np.array([True]),
    "a constant": lambda a, b: np.array([7.5]),
}
VALUES = [0.0, -0.0, 1.0, 2.0, 3.0, -1.0, 0.5, -2.5, 1e300, 7.0, 64.0, 5.9604e-8, np.inf, -np.inf, np.nan, 2147483647.0]


def compiled(folder: Path, formulas: dict[str, Callable[[Any, Any], Any]]) -> Callable[[float, float], list[float]]:
    """The formulas as a function of C."""
    if not COMPILERS:
        pytest.skip("no C compiler")
    graph = Graph(1)
    a, b = graph.size(0), graph.size(1)
    outputs = tuple(
        Output(
            name.replace(" ", "_"),
            Placed(i, Kind.CONSTANT, is_dynamic=True, row=i, rows=1, partition=-1),
            graph.number_of(f(a, b), Number.REAL),
        )
        for i, (name, f) in enumerate(formulas.items())
    )
    functions = Functions()
    pool = cast("Pool", SimpleNamespace(partitions=np.zeros((0, 0))))
    name = features_function(functions, GroupPool(pool, (), graph, outputs))
    call = f"void call(const double *s, const double *const *l, double *out) {{ {name}(0, s, l, 0, 1, 1, out, 0); }}"
    source = folder / "formulas.c"
    head = (
        '#include <stddef.h>\n#include "ckh_numbers.h"\nenum { CKH_OK };\ntypedef struct ckh_program ckh_program;\n'
        "void call(const double *, const double *const *, double *);\n"
    )
    source.write_text(head + "\n".join(functions.texts) + call + "\n")
    run(
        [
            COMPILERS[0][0],
            "-std=c11",
            "-O1",
            *STRICT,
            "-shared",
            "-fPIC",
            f"-I{EVALUATOR}",
            source,
            "-o",
            folder / "f.so",
            "-lm",
        ]
    )
    library = ctypes.CDLL(str(folder / "f.so"))
    leaves = [np.ascontiguousarray(leaf.values) for leaf in graph.leaves]
    pointers = (ctypes.c_void_p * (len(leaves) + 1))(*(leaf.ctypes.data for leaf in leaves))

    def call_it(first: float, second: float) -> list[float]:
        assert len(leaves) < len(pointers)  # which point into them
        out = (ctypes.c_double * len(formulas))()
        library.call((ctypes.c_double * 2)(first, second), pointers, out)
        return list(out)

    return call_it


def test_every_operation_is_numpys(tmp_path: Path) -> None:
    """All operations on values of all kinds, equal bit by bit but for the sign of NaN."""
    function = compiled(tmp_path, FORMULAS)
    for a in VALUES:
        for b in VALUES:
            with np.errstate(all="ignore"):
                wanted = [
                    float(np.asarray(formula(np.array([a]), np.array([b])), np.float64).ravel()[0])
                    for formula in FORMULAS.values()
                ]
            for name, ours, reference in zip(FORMULAS, function(a, b), wanted, strict=True):
                assert ours == reference or (np.isnan(ours) and np.isnan(reference)), (name, a, b)


def test_logarithms_are_numpys_to_the_last_bit_but_one(tmp_path: Path) -> None:
    """Mathematical libraries differ by one unit in the last place at most; powers of two are exact."""
    functions: dict[str, Callable[[Any, Any], Any]] = {"log2": lambda a, b: np.log2(np.maximum(a, 1))}
    function = compiled(tmp_path, functions)
    random = np.random.default_rng(0)
    values = np.floor(np.exp(random.uniform(0, 40, 2000)))
    ours = np.array([function(float(value), 0.0)[0] for value in values])
    np.testing.assert_array_max_ulp(ours, np.log2(values), maxulp=1)
    assert [function(2.0**power, 0.0)[0] for power in range(60)] == list(range(60))


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        (lambda c: np.sort(c["a"]), "NumPy's sort"),
        (lambda c: np.sin(c["a"]), "NumPy's sin"),
        (lambda c: np.add.reduce(c["a"]), "add.reduce"),
        (lambda c: c["a"] if c["a"] > 1 else c["b"], "decides"),
        (lambda c: np.asarray(c["a"], np.float64) + 1, "needs the values"),
        (lambda c: int(c["a"]), "needs the values"),
        (lambda c: c["a"].reshape(-1), "reshape"),
        (lambda c: c.raw("a"), "the raw column a"),
        (lambda c: c["a"].astype(np.int64) // 3, "floor_divide"),
        (lambda c: c["a"] == "text", "text"),
        (lambda c: c["a"] + np.zeros((2, 2)), "shape"),
    ],
)
def test_what_cannot_be_written_in_c_is_refused(formula: Callable[[Columns], Any], words: str) -> None:
    """Nothing is exported wrongly in silence."""
    graph = Graph(1)
    columns = SymbolicColumns({"a": graph.size(0), "b": graph.size(1)}, {}, {}, {})
    with pytest.raises(FormulaError, match=words):
        formula(columns)
