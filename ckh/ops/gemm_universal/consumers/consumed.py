"""Programs that use choices of GEMM kernels: AMD's dispatcher, PyTorch Inductor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.export.consumers import Consumers
from ckh.export.dispatcher import DispatcherPart, dispatcher_header
from ckh.export.groups import element_types
from ckh.ops.gemm_universal.consumers.exported import KIND
from ckh.ops.gemm_universal.consumers.inductor import INSTANCES
from ckh.ops.gemm_universal.problem import OP_TYPE

if TYPE_CHECKING:
    from ckh.learn.models.artifact import Model

# The dispatcher's names begin with the element type, and its problems state the split of K.
_RENAME = f"""    const std::string before = "{OP_TYPE}_";
    if(name.compare(0, before.size(), before) == 0)
        name.erase(0, before.size());
    return {{std::move(name), 1}};"""
_DETAIL = """template <class P>
int split_k_of(const P&) { return 1; } // of kernels: the split is the problem's
"""
_FILL = """        p.dtype  = dtype_;
        p.layout = layout_;
        p.m = problem.M, p.n = problem.N, p.k = problem.K;
        p.split_k = problem.k_batch;"""


def _part(model: Model) -> DispatcherPart:
    dtype = element_types(model)[0]
    return DispatcherPart(
        kind=KIND.name,
        include="dispatcher.hpp",
        dispatcher="Dispatcher",
        problem="Problem",
        function="HeuristicFunction",
        rename=_RENAME,
        detail=_DETAIL,
        fill=_FILL,
        # A problem of the dispatcher does not say them: all kernels of a registry have the same.
        parameters=f",\n                       int dtype = CKH_{dtype.upper()}, int layout = CKH_GEMM_RCR",
        initializers="\n        : dtype_(dtype), layout_(layout)",
        members="\n    int dtype_;\n    int layout_;",
    )


CONSUMERS = Consumers(headers=(dispatcher_header(_part),), instances=(INSTANCES,))
