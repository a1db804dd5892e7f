"""Consumers of convolution kernel choices: exported C, AMD's dispatcher, and PyTorch Inductor.

Inductor's instances are CK's; they are mapped to the nearest kernels of CK Tile.
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
from ckh.ops.grouped_conv.kernels.names import amd_full_name
from ckh.ops.grouped_conv.kernels.pool import POOLS
from ckh.ops.grouped_conv.kernels.problem_rules import PROBLEM_RULES
from ckh.ops.grouped_conv.kernels.variants import DEFAULT_SPECIALIZATION
from ckh.ops.grouped_conv.problem import CONV_COLUMNS, CONV_LAYOUTS, ConvProblem
from ckh.problems import Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.export.groups import Group
    from ckh.learn.models.artifact import Model

_DEFAULT = "default"  # default layout of the operation
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
    """Return the problem whose sizes are all 1."""
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
    steps = [whole(item) for item in (template.stride, template.padding, template.dilation)]
    if x is None or w is None or len(x) != ndim + 2 or any(step is None or len(step) != ndim for step in steps):
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


def _template(_problem: Any) -> Any:
    raise UsageError("its instances of convolutions are those of ck4inductor, which is not tried", code="unsupported")


INSTANCES = Instances("inductor", _problem, _kernel, _template)


# The dispatcher's names omit the blocks per CU, which it deduces.
_RENAME = """    without(name, "_bpc");
    const int split_k = without(name, "_splitk");
    std::string declared = declared_name(name);
    return {std::move(name), split_k, std::move(declared)};"""
# Versions of the dispatcher differ in the fields of a problem; missing fields are ignored.
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
# Parts of a kernel's name that a declaration has, before the kernel is renamed.
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


# The selecting program registers kernels by their full names, as generated backends do.
_PICK = """template <class P>
auto split(P& problem, int parts, int) -> decltype(problem.split_k = parts, void())
{
    problem.split_k = parts;
}
template <class P>
void split(P&, int, long) {}

template <class P>
auto set_ndim(P& problem, int ndim, int) -> decltype(problem.ndim_spatial = ndim, void())
{
    problem.ndim_spatial = ndim;
}
template <class P>
void set_ndim(P&, int, long) {}

template <class P, class Sizes>
auto pad(P& problem, const Sizes& sizes, int) -> decltype(problem.padding_left = sizes, void())
{
    problem.padding_left = problem.padding_right = sizes;
}
template <class P, class Sizes>
void pad(P& problem, const Sizes& sizes, long) { problem.padding = sizes; }

struct Row
{
    GroupedConvOp op;
    int ndim_spatial, tile_m, tile_n, tile_k, wave_m, wave_n, wave_k, warp_m, warp_n, warp_k;
    int vector_size_a, vector_size_b, vector_size_c, num_groups_to_merge;
    const char *dtype_in, *layout, *pipeline, *scheduler, *epilogue, *name;
};

void add(const Row& row)
{
    GroupedConvKernelKey key;
    key.op = row.op, key.ndim_spatial = row.ndim_spatial;
    key.tile_m = row.tile_m, key.tile_n = row.tile_n, key.tile_k = row.tile_k;
    key.wave_m = row.wave_m, key.wave_n = row.wave_n, key.wave_k = row.wave_k;
    key.warp_m = row.warp_m, key.warp_n = row.warp_n, key.warp_k = row.warp_k;
    key.vector_size_a = row.vector_size_a, key.vector_size_b = row.vector_size_b, key.vector_size_c = row.vector_size_c;
    key.num_groups_to_merge = row.num_groups_to_merge;
    key.dtype_in = row.dtype_in, key.layout = row.layout, key.pipeline = row.pipeline;
    key.scheduler = row.scheduler, key.epilogue = row.epilogue;
    GroupedConvRegistry::instance().register_kernel(
        key, std::make_shared<GroupedConvKernelInstance>(key, row.name, nullptr));
}

std::string pick(const std::vector<std::int64_t>& v)
{
    static const Heuristic heuristic("@PATH@");
    static GroupedConvDispatcher dispatcher(&GroupedConvRegistry::instance());
    dispatcher.set_heuristic(heuristic);
    dispatcher.set_strategy(GroupedConvDispatcher::SelectionStrategy::Heuristic);
    const GroupedConvOp ops[] = {
        GroupedConvOp::Forward, GroupedConvOp::BackwardData, GroupedConvOp::BackwardWeight};
    using Sizes = std::array<std::int64_t, 3>;
    GroupedConvProblem p;
    p.op = ops[v[0]];
    set_ndim(p, int(v[3]), 0);
    p.N = v[4], p.C = v[5], p.K = v[6], p.G = v[7];
    p.input_spatial = {v[8], v[9], v[10]};
    p.filter_spatial = {v[11], v[12], v[13]};
    p.stride = {v[14], v[15], v[16]};
    pad(p, Sizes{v[17], v[18], v[19]}, 0);
    p.dilation = {v[20], v[21], v[22]};
    const int parts = heuristic.best_split_k(p);
    split(p, parts, 0);
    const GroupedConvKernelInstance* found = dispatcher.select_kernel(p);
    return (found ? found->name() : "no kernel") + (parts > 1 ? " splitK=" + std::to_string(parts) : "");
}

"""
_OPS = {Direction.FORWARD: "Forward", Direction.BWD_DATA: "BackwardData", Direction.BWD_WEIGHT: "BackwardWeight"}


def _row(kernel: ConvKernel) -> str:
    numbers = [
        kernel.ndim_spatial,
        *(getattr(kernel, f"{name}_{axis}") for name in ("tile", "wave", "warp_tile") for axis in "mnk"),
        *(getattr(kernel, f"vector_{item}") for item in "abc"),
        kernel.num_groups_to_merge,
    ]
    texts = (kernel.dtype, kernel.layout, kernel.pipeline, kernel.scheduler, kernel.epilogue, amd_full_name(kernel))
    fields = [f"GroupedConvOp::{_OPS[Direction(kernel.variant)]}", *map(str, numbers), *(f'"{text}"' for text in texts)]
    return "{" + ", ".join(fields) + "}"


def _called(kernel: ConvKernel) -> str:
    return amd_full_name(kernel) + (f" splitK={kernel.split_k}" if kernel.split_k > 1 else "")


def _part(model: Model) -> DispatcherPart:
    dtype = model.spec.dtype
    double_buffered = " || ".join(
        f'name.find("_{item}_") != std::string::npos' for item in sorted(DOUBLE_SMEM_PIPELINES)
    )
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
        pick=_PICK,
        row=_row,
    )


CONSUMERS = Consumers(headers=(dispatcher_header(_part, _called),), instances=(INSTANCES,))
