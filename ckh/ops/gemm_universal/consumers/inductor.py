"""PyTorch Inductor's GEMM instances as kernels: those of CK Tile as they are, CK's as the nearest of CK Tile."""

from __future__ import annotations

from typing import Any

from ckh.errors import UsageError
from ckh.export.consumers import Instances
from ckh.kernels.ck_instances import dtype_of, pads, tiled_fields, whole
from ckh.kernels.scheduler import Scheduler
from ckh.ops.gemm_universal.kernel import NATIVE_WIDTH, GemmKernel
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.problems import DTYPE_BYTES

_PIPELINES = {"CompV3": "compv3", "CompV4": "compv4", "Mem": "mem"}
_LETTERS = {"Row": "r", "Col": "c"}
_RANK = 2


def _problem(template: Any, instance: Any) -> GemmProblem | None:
    if not hasattr(_op(instance), "c_layout") and not hasattr(instance, "layout_c"):
        return None
    kind = _kind(instance)
    a, b = (node.get_layout() for node in template.input_nodes[:2])
    sizes = [whole(one.size) for one in (a, b)]
    if kind is None or any(size is None or len(size) != _RANK for size in sizes):
        return None
    (m, k), (_, n) = sizes  # type: ignore[misc] # none is None
    try:
        return GemmProblem(m, n, k, *kind, split_k=int(getattr(instance, "kBatch", 1)))
    except UsageError:
        return None


def _kind(instance: Any) -> tuple[str, str] | None:
    """Element type and layout of an instance."""
    one = _op(instance)
    if hasattr(one, "layout_c"):
        layouts, dtype = (one.layout_a, one.layout_b, one.layout_c), str(one.datatype_a).lower()
    else:
        layouts, dtype = (one.a_layout, one.b_layout, one.c_layout), dtype_of(one.a_element_dtype) or ""
    layout = "".join(_LETTERS.get(name, "") for name in layouts)
    return (dtype, layout) if dtype in DTYPE_BYTES and len(layout) == len(layouts) else None


def _kernel(_template: Any, instance: Any) -> GemmKernel | None:
    one, kind = _op(instance), _kind(instance)
    if kind is None:
        return None
    fields = _ck_tile(one) if hasattr(one, "layout_c") else _ck(one)
    if fields is None:
        return None
    fields |= dict.fromkeys(("vector_a", "vector_b", "vector_c"), NATIVE_WIDTH)
    return GemmKernel(dtype=kind[0], layout=kind[1], persistent=False, **fields)


def _ck_tile(one: Any) -> dict[str, Any] | None:
    pipeline, scheduler = _PIPELINES.get(one.pipeline), one.scheduler.lower()
    if pipeline is None or scheduler not in list(Scheduler):
        return None
    sizes = {
        f"{ours}_{axis}": int(getattr(one, f"{theirs}_{axis}"))
        for ours, theirs in (("tile", "tile"), ("wave", "warp"), ("warp_tile", "warp_tile"))
        for axis in "mnk"
    }
    padded = {f"pad_{axis}": getattr(one, f"{axis}_is_padded") == "true" for axis in "mnk"}
    return {
        "pipeline": pipeline,
        "scheduler": Scheduler(scheduler),
        "epilogue": one.epilogue.lower(),
        **sizes,
        **padded,
    }


def _ck(one: Any) -> dict[str, Any] | None:
    fields = tiled_fields(one)
    return None if fields is None else {"epilogue": "cshuffle", **fields, **pads(one.gemm_specialization)}


def _op(instance: Any) -> Any:
    """An instance of CK's without what K is split into."""
    return getattr(instance, "op", instance)


INSTANCES = Instances("inductor", _problem, _kernel)
