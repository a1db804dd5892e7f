"""Consumers of GEMM kernel choices: exported C, AMD's dispatcher, and PyTorch Inductor.

Inductor's CK Tile instances are ckh's kernels; its CK instances are mapped to the nearest kernels.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.errors import UsageError
from ckh.export.consumers import Consumers, Instances
from ckh.export.dispatcher import DispatcherPart, dispatcher_header
from ckh.export.groups import DTYPE, Code, Exported, ProblemKind, element_types, ruled_group
from ckh.kernels.ck_instances import dtype_of, pads, tiled_fields, whole
from ckh.kernels.declaration import usual_values
from ckh.kernels.pipelines import Scheduler
from ckh.ops.gemm_universal.kernel import GemmKernel, kernel_name
from ckh.ops.gemm_universal.kernels.pool import POOLS
from ckh.ops.gemm_universal.kernels.problem_rules import PROBLEM_RULES
from ckh.ops.gemm_universal.problem import GEMM_COLUMNS, GEMM_LAYOUTS, OP_TYPE, GemmProblem
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.export.groups import Group
    from ckh.learn.models.artifact import Model

KIND = ProblemKind(
    "gemm",
    1,
    "C (M x N) = A (M x K) x B (K x N), where `split_k` blocks share the sum over K; `layout` is that of A, B and C.",
    (DTYPE, Code("layout", "layout", 2, GEMM_LAYOUTS, "CKH_GEMM_", "CKH_GEMM_LAYOUTS", added=1)),
    GEMM_COLUMNS,
    GemmProblem,
    {"m": 128, "n": 1536, "k": 7168},
)


def _groups(model: Model) -> Iterator[Group]:
    arch = load_arch(model.spec.arch)
    for dtype in element_types(model):
        for layout in GEMM_LAYOUTS:
            example = GemmProblem(1, 1, 1, dtype, layout)
            pool = POOLS.sequence(arch, dtype, layout, model=model.candidates_of, only=model.only)
            yield ruled_group(KIND, example, pool, PROBLEM_RULES, arch)


EXPORTED = Exported(KIND, _groups)


_PIPELINES = {"CompV3": "compv3", "CompV4": "compv4", "Mem": "mem"}
_LETTERS = {"Row": "r", "Col": "c"}
_RANK = 2


def _problem(template: Any, instance: Any) -> GemmProblem | None:
    if not hasattr(_op(instance), "c_layout") and not hasattr(instance, "layout_c"):
        return None
    kind = _kind(instance)
    a, b = (node.get_layout() for node in template.input_nodes[:2])
    sizes = [whole(problem.size) for problem in (a, b)]
    if kind is None or any(size is None or len(size) != _RANK for size in sizes):
        return None
    (m, k), (_, n) = sizes  # type: ignore[misc] # none is None
    try:
        return GemmProblem(m, n, k, *kind, split_k=int(getattr(instance, "kBatch", 1)))
    except UsageError:
        return None


def _kind(instance: Any) -> tuple[str, str] | None:
    """Element type and layout of an instance."""
    op = _op(instance)
    if hasattr(op, "layout_c"):
        layouts, dtype = (op.layout_a, op.layout_b, op.layout_c), str(op.datatype_a).lower()
    else:
        layouts, dtype = (op.a_layout, op.b_layout, op.c_layout), dtype_of(op.a_element_dtype) or ""
    layout = "".join(_LETTERS.get(name, "") for name in layouts)
    return (dtype, layout) if dtype in DTYPE_BYTES and len(layout) == len(layouts) else None


def _kernel(_template: Any, instance: Any) -> GemmKernel | None:
    op, kind = _op(instance), _kind(instance)
    if kind is None:
        return None
    fields = _ck_tile(op) if hasattr(op, "layout_c") else _ck(op)
    if fields is None:
        return None
    return GemmKernel(dtype=kind[0], layout=kind[1], persistent=False, **usual_values(GemmKernel), **fields)


def _ck_tile(kernel: Any) -> dict[str, Any] | None:
    pipeline, scheduler = _PIPELINES.get(kernel.pipeline), kernel.scheduler.lower()
    if pipeline is None or scheduler not in list(Scheduler):
        return None
    sizes = {
        f"{ours}_{axis}": int(getattr(kernel, f"{theirs}_{axis}"))
        for ours, theirs in (("tile", "tile"), ("wave", "warp"), ("warp_tile", "warp_tile"))
        for axis in "mnk"
    }
    padded = {f"pad_{axis}": getattr(kernel, f"{axis}_is_padded") == "true" for axis in "mnk"}
    return {
        "pipeline": pipeline,
        "scheduler": Scheduler(scheduler),
        "epilogue": kernel.epilogue.lower(),
        **sizes,
        **padded,
    }


def _ck(kernel: Any) -> dict[str, Any] | None:
    fields = tiled_fields(kernel)
    return None if fields is None else {"epilogue": "cshuffle", **fields, **pads(kernel.gemm_specialization)}


def _op(instance: Any) -> Any:
    """Return a CK instance without its split of K."""
    return getattr(instance, "op", instance)


_TORCH_DTYPES = {"fp16": "float16", "bf16": "bfloat16"}


def _template(problem: GemmProblem) -> Any:
    """Return Inductor's template of CK Tile kernels for a problem."""
    dtype = _TORCH_DTYPES.get(problem.dtype)
    if dtype is None or problem.layout[2] != "r" or problem.split_k > 1:
        raise UsageError(f"it has no template for {problem.canonical()}", code="unsupported")
    torch, ir = import_module("torch"), import_module("torch._inductor.ir")
    templates = import_module("torch._inductor.codegen.rocm.ck_tile_universal_gemm_template")

    def layout(rows: int, columns: int, letter: str) -> Any:
        strides = [columns, 1] if letter == "r" else [1, rows]
        return ir.FixedLayout(torch.device("cpu"), getattr(torch, dtype), [rows, columns], strides)

    m, n, k = problem.m, problem.n, problem.k
    a, b = (layout(*sizes, letter) for sizes, letter in zip(((m, k), (k, n)), problem.layout[:2], strict=True))
    inputs = [ir.Buffer(name=name, layout=own) for name, own in (("a", a), ("b", b))]
    return templates.CKTileGemmTemplate(inputs, layout(m, n, "r"))


INSTANCES = Instances("inductor", _problem, _kernel, _template)


# The dispatcher's kernel names begin with the element type, and split_k belongs to its problems.
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


# The selecting program takes the first registered identifier, as AMD's dispatcher does; the dispatcher itself is a
# library.
_PICK = """using Row = const char*;

std::set<std::string> registered;

void add(Row name) { registered.insert(name); }

std::string pick(const std::vector<std::int64_t>& v)
{
    static std::map<std::pair<std::int64_t, std::int64_t>, Heuristic> heuristics;
    const auto kind = std::make_pair(v[0], v[1]);
    auto at = heuristics.find(kind);
    if(at == heuristics.end())
        at = heuristics.emplace(kind, Heuristic("@PATH@", int(v[0]), int(v[1]))).first;
    Problem p;
    p.M = v[2], p.N = v[3], p.K = v[4], p.k_batch = int(v[5]);
    for(const std::string& name : at->second(p))
        if(registered.count(name))
            return name;
    return "no kernel";
}

"""


def _called(kernel: GemmKernel) -> str:
    return kernel_name(kernel).removeprefix(f"{OP_TYPE}_")


def _row(kernel: GemmKernel) -> str:
    return f'"{_called(kernel)}"'


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
        pick=_PICK,
        row=_row,
        # The dispatcher's problems have no dtype and layout: all kernels of a registry share them.
        parameters=f",\n                       int dtype = CKH_{dtype.upper()}, int layout = CKH_GEMM_RCR",
        initializers="\n        : dtype_(dtype), layout_(layout)",
        members="\n    int dtype_;\n    int layout_;",
    )


CONSUMERS = Consumers(headers=(dispatcher_header(_part, _called),), instances=(INSTANCES,))
