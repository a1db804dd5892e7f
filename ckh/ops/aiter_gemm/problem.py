"""`AiterGemm`: a matrix product as AITER looks it up in its tuned tables, with complete identity."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ckh.errors import UsageError
from ckh.problems import DTYPE_BYTES, PasteableProblem, settle_size
from ckh.text.prose import one_of

OP_TYPE = "aiter_gemm"
PREFIX = "aiter_gemm_"

# Family -> its element types, the usual one first; further columns of its table; by library the pool, and the values of
# splitK that tunings have chosen.
FAMILY_FACTS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("families.json").read_bytes())
FAMILIES: dict[str, tuple[str, ...]] = {name: tuple(facts["dtypes"]) for name, facts in FAMILY_FACTS.items()}
# Families of several products in one launch: `m` is of each product, or the sum over all.
BATCHED = ("a8w8_batched",)
GROUPED = ("a8w8_grouped", "a16w16_grouped")
# Problems that AITER computes and ckh does not answer: family and element type -> reason.
UNANSWERED = {("a8w8_bpreshuffle", "int8"): "AITER's tuned kernels for it are assembly, none is Composable Kernel's"}
CK, CKTILE, FBGEMM, ANY = "ck", "cktile", "fbgemm", "any"
ASM, FLYDSL, OPUS = "asm", "flydsl", "opus"  # AITER's kernels that are not Composable Kernel's
LIBRARIES = (CK, CKTILE, FBGEMM, ASM, FLYDSL, OPUS)

# Sizes of every problem.
SIZES: dict[str, str] = {"m": "m", "n": "n", "k": "k", "num_cus": "num_cus"}
GROUPS = "groups"  # a size of batched and grouped products alone

_OUTPUT_BYTES = 2  # bf16 or fp16
_ANY_LIBRARY = "|".join(LIBRARIES)
_CANONICAL = (
    rf"{PREFIX}(?P<family>a\d{{1,2}}w\d{{1,2}}[a-z_]*?)(?:_(?P<library>(?:{_ANY_LIBRARY})(?:_(?:{_ANY_LIBRARY}))*))?"
    r"_(?P<dtype>fp8|int8|pk_fp4|bf16)_cu(?P<num_cus>[0-9]{1,10})"
    r"(?:_g(?P<groups>[0-9]{1,10}))?_m(?P<m>[0-9]{1,10})_n(?P<n>[0-9]{1,10})_k(?P<k>[0-9]{1,10})"
)

# Families of FBGEMM's kernels, all in the family's first element type. Only FBGEMM has batched and grouped ones.
_OF_FBGEMM = ("a8w8", "a8w8_bpreshuffle", *BATCHED, *GROUPED)


@dataclass(frozen=True, slots=True, order=True, repr=False)
class AiterGemm(PasteableProblem):
    """C (M x N) = A (M x K) x B (N x K)^T, with quantised, row-major operands."""

    m: int  # rows of A, the tokens; of grouped products the sum over the groups, of batched ones those of each
    n: int  # rows of B
    k: int  # the reduction dimension
    family: str = "a8w8"  # one of `FAMILIES`: how the operands are scaled and whether B is shuffled beforehand
    dtype: str = "fp8"  # element type of A and B
    library: str = ANY
    """The libraries whose kernels are candidates, such as `ck_cktile`, or `ANY`: all of AITER. FBGEMM is a program of
    its own, with kernels of CK, whose winners are known without times."""
    num_cus: int = 0
    """Compute units of the device, 0 for those of the GPU that is asked about (`devices.compute_units`)."""
    groups: int = 0  # products of a batched or grouped problem, 0 for other families

    def __post_init__(self) -> None:
        for name in (*SIZES.values(), GROUPS):
            settle_size(self, name, least=0 if name in ("num_cus", GROUPS) else 1)
        if self.family not in FAMILIES:
            raise UsageError(f"unknown family {self.family!r}", one_of(self.family, FAMILIES), code="unknown-name")
        if self.dtype not in FAMILIES[self.family]:
            reason = UNANSWERED.get((self.family, self.dtype))
            raise UsageError(
                f"{self.family} has no dtype {self.dtype!r}" + (f": {reason}" if reason else ""),
                one_of(self.dtype, FAMILIES[self.family]),
                code="unsupported" if reason else "unknown-name",
            )
        given = set(str(self.library).replace(",", "_").split("_"))
        if given != {ANY}:
            for name in sorted(given.difference(LIBRARIES)):
                raise UsageError(f"unknown library {name!r}", one_of(name, LIBRARIES), code="unknown-name")
            object.__setattr__(self, "library", "_".join(name for name in LIBRARIES if name in given))
        if not has_pool(self.family, self.library, self.dtype):
            raise UsageError(
                f"{self.library} has no kernels of {self.family} in {self.dtype}",
                f"{FBGEMM} has {', '.join(f'{family} in {FAMILIES[family][0]}' for family in _OF_FBGEMM)}",
                code="unsupported",
            )
        if bool(self.groups) != (self.family in (*BATCHED, *GROUPED)):
            raise UsageError(
                f"{self.family} has no groups, not {self.groups}" if self.groups else f"{self.family} needs groups",
                f"groups are of {', '.join((*BATCHED, *GROUPED))}",
                code="bad-number" if self.groups else "missing-field",
            )

    @property
    def flops(self) -> int:
        """Number of floating-point operations, 2 M N K, of all products."""
        return 2 * self.rows * self.n * self.k

    @property
    def rows(self) -> int:
        """Rows of the result, of all products."""
        return self.m * self.groups if self.family in BATCHED else self.m

    @property
    def bytes(self) -> int:
        """Bytes of A, B and C together, the minimum to move; scales are ignored."""
        weights = max(self.groups, 1) * self.n
        return math.ceil((self.rows + weights) * self.k * DTYPE_BYTES[self.dtype]) + self.rows * self.n * _OUTPUT_BYTES

    def canonical(self) -> str:
        """Text that holds the complete identity; `parse_aiter_gemm` parses it."""
        family = self.family if self.library == ANY else f"{self.family}_{self.library}"
        groups = f"_g{self.groups}" if self.groups else ""
        return f"{PREFIX}{family}_{self.dtype}_cu{self.num_cus}{groups}_m{self.m}_n{self.n}_k{self.k}"

    def to_dict(self) -> dict[str, Any]:
        """All fields but `groups` of a single product and any library, for JSON; `AiterGemm(**d)` restores them."""
        document = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in document.items() if value != {GROUPS: 0, "library": ANY}.get(name)}


def libraries_of(library: str) -> list[str]:
    """Return the libraries that a problem's `library` names."""
    return [name for name in LIBRARIES if (name != FBGEMM if library == ANY else name in library.split("_"))]


def has_pool(family: str, library: str, dtype: str) -> bool:
    """True if libraries have problems of a family and element type."""
    if FBGEMM in library:
        return family in _OF_FBGEMM and dtype == FAMILIES[family][0]
    return library == ANY or family not in (*BATCHED, *GROUPED)


def parse_aiter_gemm(text: str) -> AiterGemm:
    """Parse the text that `AiterGemm.canonical` returns."""
    match = re.fullmatch(_CANONICAL, text.strip())
    if match is None:
        raise UsageError(
            f"not a GEMM of AITER: {text!r}",
            f"e.g. {PREFIX}a8w8_bpreshuffle_fp8_cu304_m16_n7168_k2048",
            code="bad-problem",
        )
    sizes = {name: int(match[name] or 0) for name in (*SIZES.values(), GROUPS)}
    return AiterGemm(**sizes, family=match["family"], dtype=match["dtype"], library=match["library"] or ANY)


def family_of(dtype: str, default: str) -> str:
    """Return the default family if it has the element type, else the first family that has it."""
    having = [name for name, dtypes in FAMILIES.items() if dtype in dtypes]
    return default if default in having or not having else having[0]
