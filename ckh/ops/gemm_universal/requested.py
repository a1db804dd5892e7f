"""Requests of matrix products: their options, and the problem that options state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.requested import Requested, SizeOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.ops.gemm_universal.problem import GemmProblem

_LAYOUT = "rcr"  # default layout of problems
# BLAS letters (N: as stored, T: transposed) of A and B in row-major order, as in PyTorch; C is row-major.
_BLAS = (("nn", "rrr"), ("nt", "rcr"), ("tn", "crr"), ("tt", "ccr"))
_OPTIONS = (
    SizeOption("n", "Columns of the result"),
    SizeOption("k", "Reduction dimension"),
    SizeOption("m", "Rows of the result"),
    SizeOption("layout", "Layouts of A, B, C, e.g. rrr; or NN to TT (row-major)", _LAYOUT, str, spellings=_BLAS),
    SizeOption("split_k", "Split-K factor", "1"),
)


def _problem(given: Mapping[str, Any], _variant: str, dtype: str) -> GemmProblem:
    from ckh.ops.gemm_universal.problem import GemmProblem

    if missing := [name for name in ("m", "n", "k") if name not in given]:
        raise UsageError(f"a GEMM needs --m, --n and --k: --{missing[0]} is missing", code="missing-option")
    return GemmProblem(**given, dtype=dtype)


def _pool(given: Mapping[str, Any]) -> str:
    return str(given.get("layout", _LAYOUT))


_SIZE, _FLAG = r"\d+x\d+x\d+", "True|False"
_KERNEL = (
    r"gemm_universal_[^_]+_[^_]+_(?P<pipeline>\w+?)_(?P<epilogue>[^_]+)_(?P<scheduler>[^_]+)"
    rf"_(?P<pad_m>{_FLAG})_(?P<pad_n>{_FLAG})_(?P<pad_k>{_FLAG})_(?P<persistent>{_FLAG})"
    rf"_(?P<tile>{_SIZE})_(?P<waves>{_SIZE})_(?P<instruction>{_SIZE})(?P<others>\w*)"
)
REQUESTED = Requested(_OPTIONS, _problem, own=("m",), pool=_pool, kernel=_KERNEL)
