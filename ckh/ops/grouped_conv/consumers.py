"""Consumers of convolution kernel choices: exported C, AMD's dispatcher, and PyTorch Inductor.

Inductor's instances are CK's; they are mapped to the nearest kernels of CK Tile.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.errors import UsageError
from ckh.export.consumers import Consumers, Instances
from ckh.export.dispatcher import DispatcherPart, dispatcher_header
from ckh.export.groups import DIRECTION, DTYPE, Code, Exported, ProblemKind, element_types, ruled_group
from ckh.kernels.ck_instances import dtype_of, pads, tiled_fields, whole
from ckh.kernels.pipelines import DOUBLE_SMEM_PIPELINES
from ckh.ops.grouped_conv.kernel import ConvKernel, amd_full_name, usual_fields
from ckh.ops.grouped_conv.kernels.pool import POOLS
from ckh.ops.grouped_conv.kernels.problem_rules import PROBLEM_RULES
from ckh.ops.grouped_conv.problem import CONV_COLUMNS, CONV_LAYOUTS, ConvProblem
from ckh.ops.grouped_conv.shaped import sizes_of
from ckh.problems import Direction
from ckh.shapes.layers import Convolution

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


def _groups(model: Model) -> Iterator[Group]:
    arch = load_arch(model.spec.arch)
    sizes: dict[str, Any] = dict.fromkeys(("n", "c", "k", "g", "hi", "wi", "y", "x"), 1)
    for direction in Direction if model.spec.variant is None else (model.spec.variant,):
        for dtype in element_types(model):
            for ndim, layout in CONV_LAYOUTS.items():
                pool = POOLS.sequence(arch, direction, ndim, dtype, model=model.candidates_of, only=model.only)
                example = ConvProblem(direction, dtype=dtype, ndim=ndim, layout=layout, **sizes)
                yield ruled_group(KIND, example, pool, PROBLEM_RULES, arch)


EXPORTED = Exported(KIND, _groups)


_DOUBLE = "compv4"


def _problem(template: Any, instance: Any) -> ConvProblem | None:
    ndim, dtype = getattr(instance, "n_dim_spatial", 0), dtype_of(getattr(instance, "a_element_dtype", ""))
    if ndim not in CONV_LAYOUTS or dtype is None:
        return None
    x, w = (whole(node.get_layout().size) for node in template.input_nodes[:2])
    stride, pad, dilation = (whole(sizes) or () for sizes in (template.stride, template.padding, template.dilation))
    if x is None or w is None or len(x) != ndim + 2:
        return None
    try:
        shape = Convolution(x[0], x[1], w[0], x[2:], w[2:], int(template.groups), stride, pad, dilation)
        sizes: dict[str, Any] = sizes_of(shape)
        return ConvProblem(Direction.FORWARD, dtype=dtype, **sizes)
    except UsageError:
        return None


def _kernel(_template: Any, instance: Any) -> ConvKernel | None:
    fields, dtype = tiled_fields(instance), dtype_of(instance.a_element_dtype)
    if fields is None or dtype is None:
        return None
    own = {
        "double_smem_buffer": fields["pipeline"] == _DOUBLE,
        "vector_a": int(instance.a_block_transfer_src_scalar_per_vector),
        "vector_b": int(instance.b_block_transfer_src_scalar_per_vector),
        "vector_c": int(instance.cde_block_transfer_scalar_per_vector_n_per_block),
        **fields,
        **pads(instance.gemm_specialization),
    }
    return ConvKernel(Direction.FORWARD, dtype, **usual_fields(instance.n_dim_spatial) | own)


def _template(_problem: Any) -> Any:
    raise UsageError("its instances of convolutions are those of ck4inductor, which is not tried", code="unsupported")


INSTANCES = Instances("inductor", _problem, _kernel, _template)


# C++ for the dispatcher's header, and for the program that compares it, which registers kernels by their full names, as
# generated backends do. Versions of the dispatcher differ in the fields of a problem; missing fields are ignored.
_FOLDER = Path(__file__).parent / "templates" / "dispatcher"
# The dispatcher's names omit the blocks per CU, which it deduces.
_RENAME = """    without(name, "_bpc");
    const int split_k = without(name, "_splitk");
    std::string declared = declared_name(name);
    return {std::move(name), split_k, std::move(declared)};"""
_REGISTERED = """
        const auto all = registry_ ? registry_->all_kernels() : detail::Registered{};"""
_NAMED = "registry_ ? detail::name_among(all, kernel) : kernel.name"
_OPS = {Direction.FORWARD: "Forward", Direction.BWD_DATA: "BackwardData", Direction.BWD_WEIGHT: "BackwardWeight"}


def _row(kernel: ConvKernel) -> str:
    numbers = [
        kernel.ndim_spatial,
        *(*kernel.tile, *kernel.wave, *kernel.warp_tile, *kernel.vectors),
        kernel.num_groups_to_merge,
    ]
    texts = (kernel.dtype, kernel.layout, kernel.pipeline, kernel.scheduler, kernel.epilogue, amd_full_name(kernel))
    fields = [f"GroupedConvOp::{_OPS[Direction(kernel.variant)]}", *map(str, numbers), *(f'"{text}"' for text in texts)]
    return "{" + ", ".join(fields) + "}"


def _called(kernel: ConvKernel) -> str:
    return amd_full_name(kernel) + (f" splitK={kernel.split_k}" if kernel.split_k > 1 else "")


def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8").rstrip("\n")


def _part(model: Model) -> DispatcherPart:
    dtype = model.spec.dtype
    double_buffered = " || ".join(
        f'name.find("_{pipeline}_") != std::string::npos' for pipeline in sorted(DOUBLE_SMEM_PIPELINES)
    )
    return DispatcherPart(
        kind=KIND.name,
        include="grouped_conv_registry.hpp",
        dispatcher="GroupedConvDispatcher",
        problem="GroupedConvProblem",
        function="GroupedConvDispatcher::HeuristicFunction",
        rename=_RENAME,
        before=_text("before.hpp").replace("@DOUBLE@", double_buffered) + "\n",
        detail=_text("detail.hpp") + "\n",
        parameters=(
            ",\n                       const ck_tile::dispatcher::GroupedConvRegistry* registry ="
            "\n                           &ck_tile::dispatcher::GroupedConvRegistry::instance()"
        ),
        initializers="\n        : registry_(registry)",
        members="\n    const ck_tile::dispatcher::GroupedConvRegistry* registry_;",
        registered=_REGISTERED,
        named=_NAMED,
        methods=_text("methods.hpp") + "\n\n",
        fill=_text("fill.hpp").replace("@DTYPE@", dtype).replace("@DTYPE_IN_C@", dtype.upper()),
        pick=_text("pick.cpp") + "\n\n",
        row=_row,
    )


CONSUMERS = Consumers(headers=(dispatcher_header(_part, _called),), instances=(INSTANCES,))
