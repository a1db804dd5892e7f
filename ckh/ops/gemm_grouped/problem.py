"""`GemmGroupedProblem`: matrix products that share N and K, each with an M of its own, with complete identity.

The M of the groups are a multiset: `ms` is its text, each M with the number of its groups, largest first. 512+64x8 is
one group of 512 rows and eight of 64. Kernels get the groups in this order.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from ckh.errors import UsageError
from ckh.ops.gemm_universal.problem import GEMM_TEXTS, SPLIT_K, GemmProblem, K, N, Stated, output_dtype
from ckh.problems import DTYPE_BYTES, check_size

OP_TYPE = "gemm_grouped"
MAX_GROUPS = 1024

_RUN = re.compile(r"([0-9]{1,10})(?:x([0-9]{1,10}))?")

Groups = tuple[tuple[int, int], ...]  # distinct M, largest first, each with the number of its groups


@lru_cache(maxsize=4096)
def parse_groups(text: str) -> Groups:
    """Parse the M of groups, in any order, such as 64x8+512."""
    counts: dict[int, int] = {}
    for part in text.split("+"):
        match = _RUN.fullmatch(part.strip())
        if match is None:
            what = f"{part!r} of ms={text!r} is not the M of a group" if text else "ms is empty: there are no groups"
            raise UsageError(what, "M and number of groups, e.g. 512+64x8", code="bad-problem")
        m = int(match[1])
        counts[m] = counts.get(m, 0) + int(match[2] or 1)
    groups = tuple(sorted(((m, count) for m, count in counts.items() if count), reverse=True))
    number = sum(count for _, count in groups)
    if not 1 <= number <= MAX_GROUPS:
        raise UsageError(f"ms has {number} groups, 1 to {MAX_GROUPS} are supported", code="out-of-range")
    return groups


def groups_text(groups: Groups) -> str:
    """Return the canonical text of groups."""
    return "+".join(f"{m}x{count}" if count > 1 else str(m) for m, count in groups)


class GemmGroupedProblem(GemmProblem, kw_only=True):
    """C_g (M_g x N) = A_g (M_g x K) x B_g (K x N) for all groups g.

    The A_g are the rows of one matrix, and so are the C_g; the B_g follow one another. Groups without rows have a B.

    Raises:
        UsageError: as `GemmProblem`, or there is no group with rows, too many groups, or `m` is not their sum.
    """

    op_type = OP_TYPE
    prefix = f"{OP_TYPE}_"
    noun = "a grouped GEMM problem"
    example = "fp16_rcr_m512+64x8_n4096_k4096_splitk1"
    stated = (Stated("ms", "m", "[0-9x+]{1,12000}"), N, K, SPLIT_K)
    text_columns = (*GEMM_TEXTS, "ms")
    required = ("ms", "n", "k")

    m: int = 0
    ms: str

    def __post_init__(self) -> None:
        groups = parse_groups(self.ms)
        rows = sum(m * count for m, count in groups)
        check_size("the sum of ms", rows)
        if self.m not in {0, rows}:
            raise UsageError(f"m={self.m} is not {rows}, the sum of ms={self.ms}", "omit m", code="impossible-problem")
        object.__setattr__(self, "ms", groups_text(groups))
        object.__setattr__(self, "m", rows)
        super().__post_init__()

    @property
    def groups(self) -> Groups:
        """M of the groups, largest first, and the number of groups with each."""
        return parse_groups(self.ms)

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return sum(count for _, count in self.groups)

    @property
    def all_m(self) -> tuple[int, ...]:
        """M of each group in order."""
        return tuple(m for m, count in self.groups for _ in range(count))

    @property
    def bytes(self) -> int:
        """Bytes of all A and C, and of the B of groups with rows, the minimum to move."""
        used = sum(count for m, count in self.groups if m)
        read = (self.m * self.k + used * self.k * self.n) * DTYPE_BYTES[self.dtype]
        return math.ceil(read + self.m * self.n * DTYPE_BYTES[output_dtype(self.dtype)])

    @property
    def lines(self) -> tuple[tuple[int, int], ...]:
        """Number and length of the contiguous lines of A, B and C, of the largest group; the A are one matrix."""
        most, _ = self.groups[0]
        a = (most, self.k) if self.layout[0] == "r" else (self.k, self.m)
        return a, (self.k, self.n) if self.layout[1] == "r" else (self.n, self.k), (most, self.n)

    def size(self, axis: str) -> int:
        """The size along "n" or "k"; along "m" the greatest common divisor of the groups' M."""
        return math.gcd(*(m for m, _ in self.groups)) if axis == "m" else super().size(axis)
