"""File formats of measured Stream-K products: tables whose columns are mapped to the operation's."""

from __future__ import annotations

from functools import partial

from ckh.data.formats import Formats, MappedTable
from ckh.ops.gemm_streamk.kernel import parse_streamk_kernel
from ckh.ops.gemm_streamk.problem import OP_TYPE, GemmStreamKProblem
from ckh.ops.gemm_universal.readers.gemm_table import TableForm, read_table

_TABLE = TableForm(OP_TYPE, GemmStreamKProblem, parse_streamk_kernel)
FORMATS = Formats(mapped=MappedTable(_TABLE.columns, partial(read_table, form=_TABLE)))
