"""Programs that use choices of convolution kernels: AMD's dispatcher, PyTorch Inductor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.export.consumers import Consumers
from ckh.export.dispatcher import DispatcherPart, dispatcher_header
from ckh.kernels.pipelines import DOUBLE_SMEM_PIPELINES
from ckh.ops.grouped_conv.consumers.exported import KIND
from ckh.ops.grouped_conv.consumers.inductor import INSTANCES

if TYPE_CHECKING:
    from ckh.learn.models.artifact import Model

# The dispatcher's names leave out the blocks per CU, which it deduces.
_RENAME = """    without(name, "_bpc");
    const int split_k = without(name, "_splitk");
    std::string declared = declared_name(name);
    return {std::move(name), split_k, std::move(declared)};"""
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
# Before a kernel is renamed: what a declaration can say of it.
_BEFORE = """// The name of a declaration, which ends at the warp tile, of a kernel by its full name; empty if none
// can say all of it: it has no split image, specialization, explicit GEMM or stream-K, and double buffers where
// they must be.
inline std::string declared_name(const std::string& name)
{
    std::size_t end = name.find("wave_");
    for(int sizes = 0; sizes < 3 && end != std::string::npos; ++sizes)
        end = name.find('_', end + (sizes ? 1 : 5));
    const std::string rest = end == std::string::npos ? "" : name.substr(end);
    const bool is_double   = @DOUBLE@;
    return rest == (is_double ? "_dsb" : "") ? name.substr(0, end) : "";
}
"""
_REGISTERED = """
        const auto all = registry_ ? registry_->all_kernels() : detail::Registered{};"""
_NAMED = "registry_ ? detail::name_among(all, kernel) : kernel.name"
_METHODS = """    // Registered kernels of the model that no name tells from another: the dispatcher never gets them.
    std::vector<std::string> left_out() const
    {
        std::vector<std::string> names;
        const auto all = registry_ ? registry_->all_kernels() : detail::Registered{};
        for(const detail::Kernel& kernel : *kernels_)
            if(kernel.split_k == 1 && detail::name_among(all, kernel).empty() && detail::is_registered(all, kernel))
                names.push_back(kernel.name);
        return names;
    }

"""
_NAMES = """using Registered = decltype(std::declval<const ck_tile::dispatcher::GroupedConvRegistry&>().all_kernels());

// Whether one registered kernel has this name, and no other has it as a part of its own.
inline bool is_only(const Registered& all, const std::string& name)
{
    int exact = 0, parts = 0;
    for(const auto* kernel : all)
    {
        exact += kernel->name() == name;
        parts += kernel->name().find(name) != std::string::npos;
    }
    return exact == 1 && parts == 1;
}

inline bool has_name(const Registered& all, const std::string& name)
{
    for(const auto* kernel : all)
        if(!name.empty() && kernel->name() == name)
            return true;
    return false;
}

inline bool is_registered(const Registered& all, const Kernel& kernel)
{
    return has_name(all, kernel.name) || has_name(all, kernel.declared);
}

// The name by which the dispatcher finds this kernel and no other; empty if there is none.
inline std::string name_among(const Registered& all, const Kernel& kernel)
{
    if(is_only(all, kernel.name))
        return kernel.name;
    return !kernel.declared.empty() && is_only(all, kernel.declared) ? kernel.declared : "";
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
    double_buffered = " || ".join(f'name.find("_{one}_") != std::string::npos' for one in sorted(DOUBLE_SMEM_PIPELINES))
    return DispatcherPart(
        kind=KIND.name,
        include="grouped_conv_registry.hpp",
        dispatcher="GroupedConvDispatcher",
        problem="GroupedConvProblem",
        function="GroupedConvDispatcher::HeuristicFunction",
        rename=_RENAME,
        before=_BEFORE.replace("@DOUBLE@", double_buffered),
        detail=_NAMES + _DETAIL,
        parameters=(
            ",\n                       const ck_tile::dispatcher::GroupedConvRegistry* registry ="
            "\n                           &ck_tile::dispatcher::GroupedConvRegistry::instance()"
        ),
        initializers="\n        : registry_(registry)",
        members="\n    const ck_tile::dispatcher::GroupedConvRegistry* registry_;",
        registered=_REGISTERED,
        named=_NAMED,
        methods=_METHODS,
        fill=_FILL.replace("@DTYPE@", dtype).replace("@DTYPE_IN_C@", dtype.upper()),
    )


CONSUMERS = Consumers(headers=(dispatcher_header(_part),), instances=(INSTANCES,))
