"""PyTorch Inductor's convolution instances, which are CK's, as the nearest kernels of CK Tile."""

from __future__ import annotations

from typing import Any

from ckh.errors import UsageError
from ckh.export.consumers import Instances
from ckh.kernels.ck_instances import dtype_of, pads, tiled_fields, whole
from ckh.ops.grouped_conv.kernel import ConvKernel, default_layout
from ckh.ops.grouped_conv.kernels.variants import DEFAULT_SPECIALIZATION
from ckh.ops.grouped_conv.problem import CONV_LAYOUTS, ConvProblem
from ckh.problems import Direction

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
