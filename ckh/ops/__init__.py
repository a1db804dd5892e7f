"""Registry of operations. Each operation is a folder with a record of itself (`base.Operation`).

An operation is an entry point of the group `ckh.operations`: its name is the operation's name, its value is
`module:OPERATION`. Other packages register operations in the same way. ckh's own operations are found without reading
entry points, which takes as long as a quick answer: entry points are read when a name, a problem or a kernel belongs to
no operation of ckh's own, or when all operations are listed. An operation is imported on first use.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ckh.errors import UsageError, WrongTypeError
from ckh.files.paths import data_dir
from ckh.problems import dtype_name
from ckh.requested import Requested, fields_in_words
from ckh.text.log import warn
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from importlib.metadata import EntryPoint

    from ckh.ops.base import AnyOperation, Part, Problem

GROUPED_CONV, GEMM_UNIVERSAL = "grouped_conv", "gemm_universal"
AITER_GEMM, AITER_MOE = "aiter_gemm", "aiter_moe"
GEMM_BATCHED, GEMM_MULTI_D = "gemm_batched", "gemm_multi_d"
GEMM_PRESHUFFLE = "gemm_preshuffle"
GEMM_GROUPED = "gemm_grouped"
GEMM_STREAMK = "gemm_streamk"
DEFAULT_OPERATION = GROUPED_CONV  # for commands without --op, and for journals written before the key `op` existed
GROUP = "ckh.operations"  # of the entry points
T = TypeVar("T")


class _BuiltIn(NamedTuple):
    """Facts of a built-in operation that are known without importing it; its folder has its name."""

    prefix: str
    kernel_type: str
    other_names: tuple[str, ...] = ()


# In the order in which their readers are tried on a file.
_BUILT_IN = {
    GROUPED_CONV: _BuiltIn("conv_", "ConvKernel", ("conv", "convolution", "grouped_convolution")),
    GEMM_UNIVERSAL: _BuiltIn("gemm_", "GemmKernel", ("gemm", "matmul")),
    AITER_GEMM: _BuiltIn("aiter_gemm_", "AiterKernel", ("aiter",)),
    AITER_MOE: _BuiltIn("aiter_moe_", "MoeChoice", ("moe", "fused_moe")),
    GEMM_BATCHED: _BuiltIn("gemm_batched_", "GemmBatchedKernel", ("batched_gemm", "bmm")),
    GEMM_MULTI_D: _BuiltIn("gemm_multi_d_", "GemmMultiDKernel", ("multi_d",)),
    GEMM_PRESHUFFLE: _BuiltIn("gemm_preshuffle_", "GemmPreshuffleKernel", ("preshuffle",)),
    GEMM_GROUPED: _BuiltIn("gemm_grouped_", "GemmGroupedKernel", ("grouped_gemm",)),
    GEMM_STREAMK: _BuiltIn("gemm_streamk_", "GemmStreamKKernel", ("streamk", "stream_k")),
}
_of_class: dict[type, AnyOperation] = {}  # types of problems and kernels looked up so far


@cache
def _plug_ins() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {
        entry_point.name: entry_point for entry_point in entry_points(group=GROUP) if entry_point.name not in _BUILT_IN
    }


def operation_names() -> tuple[str, ...]:
    """Names of all operations, ckh's own first."""
    return (*_BUILT_IN, *_plug_ins())


def built_in_names() -> tuple[str, ...]:
    """Names of ckh's own operations, where installed ones are not needed."""
    return tuple(_BUILT_IN)


def is_operation(name: str) -> bool:
    """True if an operation of this name exists."""
    return name in _BUILT_IN or name in _plug_ins()


def operation_name(name: str) -> str:
    """Resolve an alias of an operation to its name; any other text is returned unchanged."""
    if is_operation(name):
        return name
    return next((own for own, facts in _BUILT_IN.items() if name.lower() in (own, *facts.other_names)), name)


def canonical_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a command's options with canonical names of operation, element type, architecture and layout.

    A product with other compute units than its architecture's name means (`load_arch`) keeps its name; for an operation
    whose problems state compute units it sets --num-cus instead.
    """
    options = dict(given)
    if op := options.get("op"):
        options["op"] = operation_name(str(op))
    if dtype := options.get("dtype"):
        options["dtype"] = dtype_name(str(dtype))
    present = {name for name, value in options.items() if value is not None}
    op = options.get("op") or meant_operation(present, built_in_requested())
    part = requested(op or DEFAULT_OPERATION) if op is None or is_operation(op) else None
    own = {option.name: option for option in part.options} if part is not None else {}
    options |= {name: own[name].meant(options[name]) for name in own if name in options}
    arch = options.get("arch")
    # Importing the aliases takes longer than a quick answer may.
    if arch and not (data_dir("archspecs") / f"{arch}.json").is_file():
        from ckh.archs import arch_of_gpu, typed_arch

        options["arch"], num_cus = arch_of_gpu(str(arch))
        if num_cus and (typed := typed_arch(str(arch))) != options["arch"]:
            if "num_cus" in own and "num_cus" in options:
                options["num_cus"] = options["num_cus"] or num_cus
            else:
                options["arch"] = typed
    return options


@cache
def operation(name: str) -> AnyOperation:
    """Return the operation of a name."""
    if not is_operation(name):
        if (known := operation_name(name)) != name:
            return operation(known)
        aliases = (alias for own in _BUILT_IN.values() for alias in own.other_names)
        hint = one_of(name, operation_names(), also=aliases)
        raise UsageError(f"unknown operation {name!r}", hint, code="unknown-op")
    if name in _BUILT_IN:
        op: AnyOperation = import_module(f"{__name__}.{name}.operation").OPERATION
        return op
    return _loaded(_plug_ins()[name])


def _loaded(entry: EntryPoint) -> AnyOperation:
    """Load the record of an installed operation."""
    try:
        op = entry.load()
    except Exception as error:
        raise _broken(entry.name, f"{type(error).__name__}: {error}") from error
    from ckh.ops.base import Operation

    if not isinstance(op, Operation) or op.name != entry.name:
        raise _broken(entry.name, f"a record of the name {entry.name!r} was expected, not {op!r:.80}")
    if unknown := op.unknown_columns():
        raise _broken(entry.name, "it has no columns " + ", ".join(unknown))
    for name, own in _BUILT_IN.items():
        if entry.name not in _BUILT_IN and (op.prefix.startswith(own.prefix) or own.prefix.startswith(op.prefix)):
            raise _broken(entry.name, f"its problem prefix {op.prefix!r} conflicts with that of {name}")
    return op


def _broken(name: str, what: str) -> UsageError:
    entry = _plug_ins()[name]
    package = "" if entry.dist is None else f" of the package {entry.dist.name}"
    where = f"the operation {name!r}{package} ({entry.value}) cannot be used"
    return UsageError(f"{where}: {what}", "fix or uninstall the package", code="bad-plugin")


def part_of(op: AnyOperation, make: Part | None, kind: type[T]) -> T | None:
    """Return an optional part of an operation's record, such as `op.measured`; None if absent."""
    if make is None:
        return None
    try:
        part = make()
    except Exception as error:
        if op.name in _BUILT_IN:
            raise
        raise _broken(op.name, f"its {kind.__name__} raises {type(error).__name__}: {error}") from error
    if not isinstance(part, kind):
        raise _broken(op.name, f"its {kind.__name__} is {part!r:.80}")
    return part


def operation_of(problem: str) -> AnyOperation:
    """Return the operation of a problem, given its canonical text."""
    return operation(_name_of(problem))


def _name_of(problem: str) -> str:
    if own := [name for name, built_in in _BUILT_IN.items() if problem.startswith(built_in.prefix)]:
        return max(own, key=lambda name: len(_BUILT_IN[name].prefix))
    for name in _plug_ins():
        if problem.startswith(operation(name).prefix):
            return name
    raise UsageError(
        f"{problem!r} is not a problem of any operation", "these are " + ", ".join(operation_names()), code="unknown-op"
    )


def as_problem(problem: Problem | str) -> Problem:
    """Return the problem, parsed if given as canonical text."""
    if isinstance(problem, str):
        return operation_of(problem.strip()).problems.parse(problem.strip())
    if not hasattr(problem, "canonical"):
        raise WrongTypeError("a problem", "a ckh.ConvProblem, a ckh.GemmProblem or such", problem)
    return problem


def operation_of_problem(problem: Problem) -> AnyOperation:
    """Return the operation of a problem."""
    kind = type(problem)
    if kind not in _of_class:
        _of_class[kind] = operation_of(problem.canonical())
    return _of_class[kind]


def operation_of_kernel(kernel: object) -> AnyOperation:
    """Return the operation of a kernel."""
    kind = type(kernel)
    if kind not in _of_class:
        own = [name for name, built_in in _BUILT_IN.items() if built_in.kernel_type == kind.__name__]
        ops = (operation(name) for names in (own, _plug_ins()) for name in names)
        op = next((op for op in ops if op.kernels.type is kind), None)
        if op is None:
            raise WrongTypeError("a kernel", "a kernel of an operation", kernel)
        _of_class[kind] = op
    return _of_class[kind]


def requested(name: str) -> Requested[Any] | None:
    """Return how problems of an operation are requested; None if they cannot be.

    Of a built-in operation, only this part is imported.
    """
    if name in _BUILT_IN:
        package = import_module(f"{__name__}.{name}")
        if not hasattr(package, "REQUESTED"):
            package = import_module(f"{__name__}.{name}.requested")
        part: Requested[Any] = package.REQUESTED
        return part
    return part_of(operation(name), operation(name).problems.requested, Requested)


def built_in_requested() -> dict[str, Requested[Any]]:
    """Operation name -> how its problems are requested, for ckh's own operations."""
    return {name: part for name in _BUILT_IN if (part := requested(name))}


@cache
def all_requested() -> dict[str, Requested[Any]]:
    """Operation name -> how its problems are requested; broken packages are skipped with a warning."""
    parts = built_in_requested()
    for name in _plug_ins():
        try:
            part = requested(name)
        except UsageError as error:
            warn(error.message, error.code)
            continue
        if part is not None:
            parts[name] = part
    return parts


def own_options(parts: Mapping[str, Requested[Any]]) -> dict[str, str]:
    """Option -> the operation that it implies without --op: the first operation that has it as an own option."""
    op_of_option: dict[str, str] = {}
    taken: set[str] = set()
    for name, part in parts.items():
        op_of_option |= {option: name for option in part.own if option not in taken}
        taken.update(option.name for option in part.options)
    return op_of_option


def meant_operation(given: Collection[str], parts: Mapping[str, Requested[Any]]) -> str | None:
    """Return the operation implied by the given options, if any."""
    return next((name for option, name in own_options(parts).items() if option in given), None)


def in_words(problem: Problem) -> str:
    """Describe all sizes of a problem for a reader."""
    part = requested(_name_of(problem.canonical()))
    return fields_in_words(problem) if part is None else part.words(problem)
