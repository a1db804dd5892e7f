"""`GemmBatchedProblem`: a batch of equal matrix products, with complete identity.

A leading dimension is the distance of the rows of a row-major matrix, or of the columns of a column-major one. A batch
stride is the distance of the matrices of consecutive products. Both are in elements; 0 is dense, and distances that are
dense or without effect are stored as 0, so that equal memory layouts are equal problems.
"""

from __future__ import annotations

from ckh.errors import UsageError
from ckh.ops.gemm_universal.problem import GEMM_COLUMNS, SPLIT_K, GemmProblem, K, M, N, Stated
from ckh.problems import settle_size

OP_TYPE = "gemm_batched"

LEADING = ("lda", "ldb", "ldc")
BATCH_STRIDES = ("batch_stride_a", "batch_stride_b", "batch_stride_c")
# Dataset column -> GemmBatchedProblem field.
BATCHED_COLUMNS: dict[str, str] = {
    "batch": "batch",
    **GEMM_COLUMNS,
    **{name: name for name in (*LEADING, *BATCH_STRIDES)},
}


class GemmBatchedProblem(GemmProblem):
    """C_i (M x N) = A_i (M x K) x B_i (K x N) for i < batch.

    Raises:
        UsageError: as `GemmProblem`, or matrices or their rows overlap, which CK Tile's batched kernels refuse.
    """

    op_type = OP_TYPE
    prefix = f"{OP_TYPE}_"
    noun = "a batched GEMM problem"
    example = "fp16_rcr_b64_m1024_n1024_k128_splitk1"
    stated = (
        *(Stated("batch", "b"), M, N, K, SPLIT_K),
        *(Stated(name, name, is_optional=True) for name in LEADING),
        *(Stated(name, f"s{name[-1]}", is_optional=True) for name in BATCH_STRIDES),
    )
    size_columns = BATCHED_COLUMNS

    batch: int = 1
    lda: int = 0
    ldb: int = 0
    ldc: int = 0
    batch_stride_a: int = 0
    batch_stride_b: int = 0
    batch_stride_c: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        settle_size(self, "batch")
        for name in (*LEADING, *BATCH_STRIDES):
            settle_size(self, name, least=0)
        for operand, (name, (lines, length)) in zip("ABC", zip(LEADING, self.lines, strict=True), strict=True):
            self._settle(name, length, length, f"elements of a {self._line(operand)} of {operand}", lines)
        for operand, name, span, dense in zip("ABC", BATCH_STRIDES, self.spans, self._dense_strides, strict=True):
            self._settle(name, span, dense, f"elements that a matrix {operand} extends over", self.batch)

    def _settle(self, name: str, least: int, dense: int, what: str, count: int) -> None:
        """Store a distance that is dense, or that nothing is at, as 0, and refuse one that is too short."""
        given = getattr(self, name)
        if count == 1 or given == dense:
            object.__setattr__(self, name, 0)
        elif 0 < given < least:
            raise UsageError(
                f"{name}={given} is less than the {least} {what}: they would overlap",
                "0 is dense",
                code="impossible-problem",
            )

    def _line(self, operand: str) -> str:
        return "row" if self.layout["ABC".index(operand)] == "r" else "column"

    @property
    def leading(self) -> tuple[int, ...]:
        """Distances of the lines of A, B and C in elements."""
        return tuple(getattr(self, name) or length for name, (_, length) in zip(LEADING, self.lines, strict=True))

    @property
    def _dense_strides(self) -> tuple[int, ...]:
        return tuple(lines * distance for (lines, _), distance in zip(self.lines, self.leading, strict=True))

    @property
    def batch_strides(self) -> tuple[int, ...]:
        """Distances of the matrices A, B and C of consecutive products in elements."""
        dense = self._dense_strides
        return tuple(getattr(self, name) or stride for name, stride in zip(BATCH_STRIDES, dense, strict=True))

    @property
    def flops(self) -> int:
        """Number of floating-point operations of all products."""
        return self.batch * super().flops

    @property
    def bytes(self) -> int:
        """Bytes of all matrices together, without gaps."""
        return self.batch * super().bytes
