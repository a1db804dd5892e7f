"""Ranking and feature programs in C: finding the library, and handing it a plan or steps."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.ranking.packed import PackedForest
    from ckh.ranking.plan import Block, Plan
    from ckh.ranking.pool import Values

LIBRARY = Path(__file__).with_name("_ckh_rank.so")  # where hatch_build.py puts it, on every system
_ABI = 3  # this and what follows: as csrc/ckh_rank.h has it
_NO_MEMORY, _TOO_DEEP = 1, 2
_MESSAGES = {_NO_MEMORY: "not enough memory to rank", _TOO_DEEP: "a tree of the model is too deep"}


class _Forest(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in ("trees", "families", "tests", "leaves", "high_exponent", "low_exponent")),
        *(
            (name, ctypes.c_void_p)
            for name in ("roots", "nodes", "family", "sets", "leaf_values", "thresholds", "words")
        ),
    ]


class _Plan(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in ("tiles", "variants", "candidates", "constants")),
        *((name, ctypes.c_int32) for name in ("rows", "static_masks", "all_masks", "variant_tests")),
        *((name, ctypes.c_void_p) for name in ("family", "class_starts", "tile_of", "variant_of")),
        *((name, ctypes.c_void_p) for name in ("masks", "variant_masks", "class_masks")),
    ]


@cache
def _load(path: Path) -> tuple[ctypes.CDLL | None, str]:
    """The library, or why it cannot be used."""
    try:
        library = ctypes.CDLL(str(path))
        library.ckh_rank_abi.restype = ctypes.c_int32
        abi = library.ckh_rank_abi()
    except (OSError, AttributeError) as error:
        return None, str(error) if path.exists() else "ckh was installed without a C compiler"
    if abi != _ABI:
        return None, f"{path} is of another version"
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    library.ckh_rank_open.restype = pointer
    library.ckh_rank_open.argtypes = [pointer, pointer]
    library.ckh_rank_close.restype = None
    library.ckh_rank_close.argtypes = [pointer]
    library.ckh_rank_scores.restype = ctypes.c_int32
    library.ckh_rank_compute.restype = None
    library.ckh_rank_compute.argtypes = [size, size, pointer, pointer, pointer, size]
    library.ckh_rank_scores.argtypes = [pointer, size, pointer, pointer, pointer, size, ctypes.c_int32]
    return library, ""


class _State:
    """What the library remembers of a plan and a block from one call to the next; one thread uses it at a time."""

    def __init__(self, library: ctypes.CDLL, plan: Plan, block: Block, constants: int, rows: int) -> None:
        self.library = library
        # The library points into these.
        self._keep = plan.forest, plan.families, plan.class_starts, plan.variant_masks, plan.class_masks, block
        self._forest, self._plan = _forest(plan.forest), _plan(plan, block, constants, rows)
        self._handle = library.ckh_rank_open(ctypes.byref(self._forest), ctypes.byref(self._plan))
        if not self._handle:
            raise ModelError(_MESSAGES[_NO_MEMORY])

    def scores(
        self, constants: NDArray[np.float64], rows: NDArray[np.float64], out: NDArray[np.float64], *, is_portable: bool
    ) -> None:
        """Rank problems."""
        pointers = (constants.ctypes.data, rows.ctypes.data, out.ctypes.data)
        failed = self.library.ckh_rank_scores(self._handle, len(out), *pointers, out.shape[1], is_portable)
        if failed:
            raise ModelError(_MESSAGES[failed])

    def __del__(self) -> None:
        """Give the memory back."""
        if getattr(self, "_handle", None):
            self.library.ckh_rank_close(self._handle)


def is_available() -> bool:
    """Whether the library is there and loads."""
    return _load(LIBRARY)[0] is not None


def why_not() -> str:
    """Why it cannot be used; empty if it can."""
    return _load(LIBRARY)[1]


def compute(code: NDArray[np.int32], constants: NDArray[np.float64], registers: NDArray[np.float64]) -> None:
    """Run the steps of a program (`ckh.ranking.program`) over the registers of problems, shape (problems, size)."""
    library, reason = _load(LIBRARY)
    assert library is not None, reason
    pointers = (registers.ctypes.data, constants.ctypes.data, code.ctypes.data)
    library.ckh_rank_compute(len(registers), registers.shape[1], *pointers, len(code))


def scores(plan: Plan, values: Values, out: NDArray[np.float64], *, is_portable: bool = False) -> None:
    """Write the score of each candidate for each problem to `out`, shape (problems, candidates).

    `is_portable` keeps to instructions that every processor of this kind has.

    Raises:
        ModelError: the forest is so deep that memory does not suffice.
    """
    library, reason = _load(LIBRARY)
    assert library is not None, reason
    constants = np.ascontiguousarray(values.constants)
    for block in plan.blocks:
        rows = np.ascontiguousarray(values.rows[:, :, block.tiles])
        is_all = len(block.candidates) == out.shape[1] and out.flags.c_contiguous
        target = out if is_all else np.empty((len(out), len(block.candidates)))
        try:
            state = block.idle.pop()
        except IndexError:
            state = None
        if state is None or state.library is not library:
            state = _State(library, plan, block, constants.shape[1], rows.shape[1])
        state.scores(constants, rows, target, is_portable=is_portable)
        block.idle.append(state)  # but not after an error
        if not is_all:
            out[:, block.candidates] = target


def _forest(forest: PackedForest) -> _Forest:
    numbers = (len(forest.roots), len(forest.families), len(forest.thresholds), len(forest.leaves))
    arrays: tuple[NDArray[Any], ...] = (forest.roots, forest.nodes, forest.families, forest.sets)
    arrays += (forest.leaves, forest.thresholds, forest.words)
    exponents = (forest.high_exponent, forest.low_exponent)
    return _Forest(*numbers, *exponents, *(array.ctypes.data for array in arrays))


def _plan(plan: Plan, block: Block, constants: int, rows: int) -> _Plan:
    tiles = block.tiles.stop - block.tiles.start
    numbers = (tiles, plan.variants, len(block.candidates), constants, rows, *plan.masks, len(plan.variant_masks))
    arrays: tuple[NDArray[Any], ...] = (plan.families, plan.class_starts, block.tile_of, block.variant_of)
    arrays += (block.masks, plan.variant_masks, plan.class_masks)
    return _Plan(*numbers, *(array.ctypes.data for array in arrays))
