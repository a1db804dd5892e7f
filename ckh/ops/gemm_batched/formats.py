"""File formats of measured batched matrix products: tables whose columns are mapped to the operation's."""

from __future__ import annotations

from functools import partial

from ckh.data.formats import Formats, MappedTable
from ckh.ops.gemm_batched.kernel import parse_batched_kernel
from ckh.ops.gemm_batched.problem import OP_TYPE, GemmBatchedProblem
from ckh.ops.gemm_universal.readers.gemm_table import TableForm, read_table

_TABLE = TableForm(OP_TYPE, GemmBatchedProblem, parse_batched_kernel, ("batch", "m", "n", "k"))
FORMATS = Formats(mapped=MappedTable(_TABLE.columns, partial(read_table, form=_TABLE)))
