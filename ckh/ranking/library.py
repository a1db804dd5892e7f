"""The C part: locating it, opening models, and ranking. Imports no NumPy."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

LIBRARY = Path(__file__).with_name("_ckh_rank.so")  # written by hatch_build.py, with this name on every system
_ABI = 8  # CKH_ABI of csrc/ckh_internal.h
_MOST_SIZES, _KEYS = 32, 4  # CKH_MOST_SIZES and CKH_KEYS there


class RankedCandidate(ctypes.Structure):
    """A ranked kernel."""

    _fields_ = (("kernel", c_int32), ("score", c_double), ("tflops", c_double), ("latency_ms", c_double))


_SIZES = (c_void_p, POINTER(c_int32), POINTER(c_int64))
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ckh_abi": (c_int32, ()),
    "ckh_open_file": (c_int32, (c_char_p, POINTER(c_void_p))),
    "ckh_open_memory": (c_int32, (c_void_p, c_size_t, POINTER(c_void_p))),
    "ckh_close": (None, (c_void_p,)),
    "ckh_error_string": (c_char_p, (c_int32,)),
    "ckh_rank_sizes": (c_int32, (*_SIZES, c_uint32, POINTER(RankedCandidate), c_size_t, POINTER(c_size_t))),
    "ckh_count_reasons": (c_int32, (*_SIZES, c_char_p, c_int32, c_int32, c_void_p, c_void_p)),
    "ckh_score": (c_int32, (c_void_p, c_int32, c_size_t, c_void_p, c_int32, c_void_p, c_int32)),
    "ckh_score_some": (
        c_int32,
        (c_void_p, c_int32, c_int32, c_size_t, c_void_p, c_void_p, c_int32, c_void_p),
    ),
}


@cache
def _load(path: Path) -> tuple[ctypes.CDLL | None, str]:
    """Load the library, or return the reason why it cannot be used."""
    try:
        library = ctypes.CDLL(str(path))
        for name, signature in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = signature
        if library.ckh_abi() != _ABI:
            return None, f"{path} is of another version"
    except OSError as error:
        return None, str(error) if path.exists() else "ckh was installed without a C compiler"
    except AttributeError:
        return None, f"{path} is of another version"
    return library, ""


def is_available() -> bool:
    """True if the library exists and loads."""
    return _load(LIBRARY)[0] is not None


def why_not() -> str:
    """Reason why the library cannot be used; empty if it can."""
    return _load(LIBRARY)[1]


class OpenModel:
    """A model validated and opened by the C part, from a file or from content, of which it keeps a copy."""

    def __init__(self, source: Path | bytes) -> None:
        library, reason = _load(LIBRARY)
        if library is None:
            raise ModelError(f"ranking in C is not possible: {reason}", code="no-c-backend")
        self._library, self._handle = library, c_void_p()
        if isinstance(source, bytes):
            self._content = (c_int64 * (len(source) // 8)).from_buffer_copy(source)  # aligned
            self._check(library.ckh_open_memory(self._content, len(source), byref(self._handle)))
        else:
            self._check(library.ckh_open_file(bytes(source), byref(self._handle)))

    def __del__(self) -> None:
        """Free the memory."""
        if getattr(self, "_handle", None):
            self._library.ckh_close(self._handle)

    def rank(self, key: Sequence[int], sizes: Sequence[int], top: int) -> tuple[int, list[RankedCandidate]]:
        """Return the number of kernels that apply to a problem, and the best of them."""
        choices, count = (RankedCandidate * top)(), c_size_t()
        self._check(self._library.ckh_rank_sizes(*self._problem(key, sizes), 0, choices, top, byref(count)))
        return count.value, choices[: min(top, count.value)]

    def count_reasons(
        self, key: Sequence[int], sizes: Sequence[int], kind_of: bytes, kinds: int, reasons: int
    ) -> tuple[Sequence[int], list[Sequence[int]]]:
        """Number of candidates of each kind that apply to a problem and, by reason, of those that do not.

        Also the first candidate of each of these.
        """
        row = c_int32 * (reasons + 1)
        first, counts = row(), (row * kinds)()
        given = *self._problem(key, sizes), kind_of, len(kind_of), reasons, first, counts
        self._check(self._library.ckh_count_reasons(*given))
        return list(first), [list(count) for count in counts]

    def score(self, problems: int, sizes: int, forests: int, scores: int, *, is_portable: bool = False) -> None:
        """Score all candidates of the first group for problems."""
        self._check(self._library.ckh_score(self._handle, 0, problems, sizes, forests, scores, is_portable))

    def score_some(self, forest: int, problems: int, sizes: int, candidates: int, count: int, scores: int) -> None:
        """Score some candidates of the first group for each problem with one forest, like `score`."""
        given = self._handle, 0, forest, problems, sizes, candidates, count, scores
        self._check(self._library.ckh_score_some(*given))

    def _problem(self, key: Sequence[int], sizes: Sequence[int]) -> tuple[Any, ...]:
        return self._handle, (c_int32 * _KEYS)(*key), (c_int64 * _MOST_SIZES)(*sizes)

    def _check(self, error: int) -> None:
        if error:
            raise ModelError(f"ranking in C: {self._library.ckh_error_string(error).decode()}", code="damaged-model")
