"""Who uses choices of kernels of convolutions: exported C, and programs of others.

These are AMD's dispatcher, and PyTorch Inductor, whose instances are CK's: they become the nearest kernels of CK Tile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.errors import UsageError
from ckh.export.consumers import Consumers, Instances
from ckh.export.dispatcher import DispatcherPart, dispatcher_header
from ckh.export.groups import DIRECTION, DTYPE, Code, Exported, ProblemKind, element_types, ruled_group
from ckh.kernels.ck_instances import dtype_of, pads, tiled_fields, whole
from ckh.kernels.pipelines import DOUBLE_SMEM_PIPELINES
from ckh.ops.grouped_conv.kernel import ConvKernel, default_layout
from ckh.ops.grouped_conv.kernels.pool import POOLS
from ckh.ops.grouped_conv.kernels.problem_rules import PROBLEM_RULES
from ckh.ops.grouped_conv.kernels.variants import DEFAULT_SPECIALIZATION
from ckh.ops.grouped_conv.problem import CONV_COLUMNS, CONV_LAYOUTS, ConvProblem
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.export.groups import Group
    from ckh.learn.models.artifact import Model

_DEFAULT = "default"  # of the operation
_LAYOUTS = (_DEFAULT, *CONV_LAYOUTS.values(), "nchw", "nhwc", "ncdhw", "ndhwc")
KIND = ProblemKind(
    "conv",
    0,
    "a grouped convolution; all sizes are those of the forward pass, C and K totals over all groups. Its layout is "
    f"CKH_LAYOUT_{_DEFAULT.upper()}, the operation's own, or another of them. In 2D the depth has its defaults.",
    (
        DIRECTION,
        DTYPE,
        Code("layout", "layout", 2, _LAYOUTS, "CKH_LAYOUT_", "CKH_LAYOUTS"),
        Code("ndim", "ndim", 3, tuple(CONV_LAYOUTS), end=max(CONV_LAYOUTS) + 1, least=min(CONV_LAYOUTS)),
    ),
    CONV_COLUMNS,
    ConvProblem,
    {"n": 16, "c": 256, "k": 256, "g": 1, "hi": 28, "wi": 28, "y": 3, "x": 3, "pad_h": 1, "pad_w": 1},
)


def smallest(kind: type[ConvProblem], direction: str, dtype: str, ndim: int, layout: str) -> ConvProblem:
    """The problem all of whose sizes are 1."""
    sizes: dict[str, Any] = dict.fromkeys(("n", "c", "k", "g", "hi", "wi", "y", "x"), 1)
    return kind(variant=Direction(direction), dtype=dtype, ndim=ndim, layout=layout, **sizes)


def _groups(model: Model) -> Iterator[Group]:
    arch = load_arch(model.spec.arch)
    for direction in Direction if model.spec.variant is None else (model.spec.variant,):
        for dtype in element_types(model):
            for ndim, layout in CONV_LAYOUTS.items():
                pool = POOLS.sequence(arch, direction, ndim, dtype, model=model.candidates_of, only=model.only)
                yield ruled_group(
                    KIND, smallest(ConvProblem, direction, dtype, ndim, layout), pool, PROBLEM_RULES, arch
                )


EXPORTED = Exported(KIND, _groups)


_DOUBLE = "compv4"


def _problem(template: Any, instance: Any) -> ConvProblem | None:
    ndim, dtype = getattr(instance, "n_dim_spatial", 0), dtype_of(getattr(instance, "a_element_dtype", ""))
    if ndim not in CONV_LAYOUTS or dtype is None:
        return None
    x, w = (whole(node.get_layout().size) for node in template.input_nodes[:2])
    steps = [whole(one) for one in (template.stride, template.padding, template.dilation)]
    if x is None or w is None or len(x) != ndim + 2 or any(one is None or len(one) != ndim for one in steps):
        return None
    axes, taps = "dhw"[3 - ndim :], "zyx"[3 - ndim :]
    sizes: dict[str, Any] = dict(zip((f"{axis}i" for axis in axes), x[2:], strict=True)) | dict(
        zip(taps, w[2:], strict=True)
    )
    for name, values in zip(("stride", "pad", "dilation"), steps, strict=True):
        sizes |= {f"{name}_{axis}": value for axis, value in zip(axes, values or (), strict=True)}
    try:
        return ConvProblem(
            Direction.FORWARD, n=x[0], c=x[1], k=w[0], g=int(template.groups), ndim=ndim, dtype=dtype, **sizes
        )
    except UsageError:
        return None


def _kernel(_template: Any, instance: Any) -> ConvKernel | None:
    fields, dtype = tiled_fields(instance), dtype_of(instance.a_element_dtype)
    if fields is None or dtype is None:
        return None
    return ConvKernel(
        variant=Direction.FORWARD,
        dtype=dtype,
        ndim_spatial=instance.n_dim_spatial,
        layout=default_layout(instance.n_dim_spatial),
        epilogue="cshuffle",
        double_smem_buffer=fields["pipeline"] == _DOUBLE,
        explicit_gemm=False,
        specialization=DEFAULT_SPECIALIZATION,
        block_per_cu=1,
        vector_a=int(instance.a_block_transfer_src_scalar_per_vector),
        vector_b=int(instance.b_block_transfer_src_scalar_per_vector),
        vector_c=int(instance.cde_block_transfer_scalar_per_vector_n_per_block),
        **fields | pads(instance.gemm_specialization),
    )


INSTANCES = Instances("inductor", _problem, _kernel)


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
