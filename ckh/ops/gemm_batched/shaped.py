"""Conversion of shapes to batches of matrix products."""

from __future__ import annotations

from ckh.ops.gemm_batched.problem import GemmBatchedProblem
from ckh.shapes.layers import BatchedMatmul
from ckh.shapes.shaped import Shaped


def _problem(shape: BatchedMatmul, dtype: str) -> GemmBatchedProblem:
    return GemmBatchedProblem(shape.m, shape.n, shape.k, shape.dtype or dtype, shape.layout, batch=shape.batch)


def _shape(problem: GemmBatchedProblem) -> BatchedMatmul:
    return BatchedMatmul(problem.batch, problem.m, problem.n, problem.k, problem.dtype, problem.layout)


SHAPED = Shaped(BatchedMatmul, _problem, _shape)
