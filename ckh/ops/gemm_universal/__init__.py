"""`gemm_universal`: C = A x B, one matrix product per problem. Here: how problems are requested.

Layouts are three letters for A (M x K), B (K x N) and C (M x N): `r` is row-major, `c` column-major.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.requested import Requested, SizeOption, as_option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_LAYOUT = "rcr"  # default layout of problems
# BLAS letters (N: as stored, T: transposed) of A and B in row-major order, as in PyTorch; C is row-major.
_BLAS = (("nn", "rrr"), ("nt", "rcr"), ("tn", "crr"), ("tt", "ccr"))
# The same letters in hipBLASLt and rocBLAS, which are column-major.
_COLUMN_MAJOR = {"nn": "rrr", "nt": "crr", "tn": "rcr", "tt": "ccr"}
_SAID = "--layout {0} is row-major here, {1}; hipBLASLt's column-major {0} is {2} with m and n swapped"
OPTIONS = (
    SizeOption("n", "Columns of the result"),
    SizeOption("k", "Reduction dimension"),
    SizeOption("m", "Rows of the result"),
    SizeOption(
        "layout",
        "Layouts of A, B, C, e.g. rrr; or NN to TT (row-major)",
        *(_LAYOUT, str),
        spellings=_BLAS,
        said=tuple((name, _SAID.format(name.upper(), layout, _COLUMN_MAJOR[name])) for name, layout in _BLAS),
    ),
    SizeOption("split_k", "Split-K factor", "1"),
)


def pool_of_layout(given: Mapping[str, Any]) -> str:
    """Return the layout: problems of one layout share a pool."""
    return str(given.get("layout", _LAYOUT))


_SIZE, _FLAG = r"\d+x\d+x\d+", "True|False"
_KERNEL = (
    r"[^_]+_[^_]+_(?P<pipeline>\w+?)_(?P<epilogue>[^_]+)_(?P<scheduler>[^_]+)"
    rf"_(?P<pad_m>{_FLAG})_(?P<pad_n>{_FLAG})_(?P<pad_k>{_FLAG})_(?P<persistent>{_FLAG})"
    rf"_(?P<tile>{_SIZE})_(?P<waves>{_SIZE})_(?P<instruction>{_SIZE})(?P<others>\w*)"
)


def requested_of(
    problem: str,
    options: tuple[SizeOption, ...],
    kernel: str,
    *,
    required: tuple[str, ...] = ("m", "n", "k"),
    what: str = "a GEMM",
    unsaid: str = "",
    pool: Callable[[Mapping[str, Any]], str] = pool_of_layout,
    refused: Mapping[str, tuple[str, str]] = MappingProxyType({}),
) -> Requested[Any]:
    """Return the requests of matrix products of a class.

    Args:
        problem: the class, `package.module:NAME`, which is imported on first use.
        options: the options that describe a problem.
        kernel: pattern of the first part of kernel names.
        required: options without a default.
        what: what needs them, for the message.
        unsaid: a field that follows from the others, which readers are not shown.
        pool: as of `Requested`.
        refused: as of `Requested`.
    """
    *first, last = (as_option(name) for name in required)

    def made(given: Mapping[str, Any], _variant: str, dtype: str) -> Any:
        if missing := [as_option(name) for name in required if name not in given]:
            needed = f"{', '.join(first)} and {last}"
            raise UsageError(f"{what} needs {needed}: {missing[0]} is missing", code="missing-option")
        module, _, name = problem.partition(":")
        return getattr(import_module(module), name)(**given, dtype=dtype)

    def words(problem: Any) -> str:
        """Format the fields; a distance of 0 is dense."""
        return ", ".join(f"{name} {value}" for name, value in problem.to_dict().items() if value and name != unsaid)

    return Requested(options, made, words, pool=pool, refused=refused, kernel=f"{kernel}_{_KERNEL}")


REQUESTED = requested_of("ckh.ops.gemm_universal.problem:GemmProblem", OPTIONS, "gemm_universal").replaced(own=("m",))
