"""File formats of measured products with a shuffled B: tables whose columns are mapped to the operation's.

A kernel states the order of B.
"""

from __future__ import annotations

from functools import partial

from ckh.data.formats import Formats, MappedTable
from ckh.ops.gemm_preshuffle.kernel import parse_preshuffle_kernel
from ckh.ops.gemm_preshuffle.problem import OP_TYPE, GemmPreshuffleProblem
from ckh.ops.gemm_universal.readers.gemm_table import TableForm, read_table

_TABLE = TableForm(OP_TYPE, GemmPreshuffleProblem, parse_preshuffle_kernel)
FORMATS = Formats(mapped=MappedTable(_TABLE.columns, partial(read_table, form=_TABLE)))
