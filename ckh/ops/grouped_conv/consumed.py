"""Programs that use choices of convolution kernels: AMD's dispatcher, PyTorch Inductor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.export.consumers import Consumers
from ckh.export.dispatcher import DispatcherPart, dispatcher_header
from ckh.ops.grouped_conv.exported import KIND
from ckh.ops.grouped_conv.inductor import INSTANCES

if TYPE_CHECKING:
    from ckh.learn.artifact import Model

# The dispatcher's names leave out the blocks per CU, which it deduces.
_RENAME = """    without(name, "_bpc");
    const int split_k = without(name, "_splitk");
    return {std::move(name), split_k};"""
# Versions of the dispatcher differ in the fields of a problem: those that are missing say nothing.
_DETAIL = """template <class P>
auto split_k_of(const P& problem, int) -> decltype(static_cast<int>(problem.split_k))
{
    return problem.split_k > 1 ? static_cast<int>(problem.split_k) : 1;
}
template <class P>
int split_k_of(const P&, long) { return 1; }
template <class P>
int split_k_of(const P& problem) { return split_k_of(problem, 0); }

template <class P>
auto padding_of(const P& problem, int) -> decltype(problem.padding_left)
{
    return problem.padding_left;
}
template <class P>
auto padding_of(const P& problem, long) -> decltype(problem.padding)
{
    return problem.padding;
}
template <class P>
auto is_symmetric(const P& problem, int) -> decltype(problem.padding_left == problem.padding_right)
{
    return problem.padding_left == problem.padding_right;
}
template <class P>
bool is_symmetric(const P&, long) { return true; }

// Whether a problem that states an element type states this one.
template <class P>
auto has_dtype(const P& problem, const char* dtype, int) -> decltype(problem.dtype_in == dtype)
{
    return problem.dtype_in.empty() || problem.dtype_in == dtype;
}
template <class P>
bool has_dtype(const P&, const char*, long) { return true; }

template <class P>
auto ndim_of(const P& problem, int) -> decltype(static_cast<int>(problem.ndim_spatial))
{
    return problem.ndim_spatial;
}
template <class P>
int ndim_of(const P& problem, long)
{
    const bool is_flat = problem.input_spatial[0] == 1 && problem.filter_spatial[0] == 1;
    return is_flat ? 2 : 3;
}
"""
_FILL = """        using Op = ck_tile::dispatcher::GroupedConvOp;
        if(!detail::is_symmetric(problem, 0) || !detail::has_dtype(problem, "@DTYPE@", 0))
            return false;
        const auto padding = detail::padding_of(problem, 0);
        p.direction = problem.op == Op::Forward        ? CKH_FORWARD
                      : problem.op == Op::BackwardData ? CKH_BWD_DATA
                                                       : CKH_BWD_WEIGHT;
        p.dtype = CKH_@DTYPE_IN_C@;
        p.ndim  = detail::ndim_of(problem, 0);
        p.n = problem.N, p.c = problem.C, p.k = problem.K, p.g = problem.G;
        p.di = problem.input_spatial[0], p.hi = problem.input_spatial[1], p.wi = problem.input_spatial[2];
        p.z = problem.filter_spatial[0], p.y = problem.filter_spatial[1], p.x = problem.filter_spatial[2];
        p.stride_d = problem.stride[0], p.stride_h = problem.stride[1], p.stride_w = problem.stride[2];
        p.pad_d = padding[0], p.pad_h = padding[1], p.pad_w = padding[2];
        p.dilation_d = problem.dilation[0], p.dilation_h = problem.dilation[1], p.dilation_w = problem.dilation[2];"""


def _part(model: Model) -> DispatcherPart:
    dtype = model.spec.dtype
    return DispatcherPart(
        kind=KIND.name,
        include="grouped_conv_registry.hpp",
        dispatcher="GroupedConvDispatcher",
        problem="GroupedConvProblem",
        function="GroupedConvDispatcher::HeuristicFunction",
        rename=_RENAME,
        detail=_DETAIL,
        fill=_FILL.replace("@DTYPE@", dtype).replace("@DTYPE_IN_C@", dtype.upper()),
    )


CONSUMERS = Consumers(headers=(dispatcher_header(_part),), instances=(INSTANCES,))
