"""Source of a kernel's machine code: a file, the cache of compiled kernels, or a HIP compiler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.archs import arch_of_gpu
from ckh.bench.codegen.unit import UnsupportedKernelError
from ckh.bench.compilation.compile import KernelBuilder
from ckh.bench.computation import measured_of
from ckh.bench.devices.device import HIP_KIND, DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.bench.devices.hip_device import EMULATED_ARCHS
from ckh.errors import CkhError, DataError, DeviceError, NoKernelError, UsageError, WrongTypeError
from ckh.files.paths import path_of
from ckh.hardware.gpus import visible_gpus
from ckh.isa.codefile import read_code
from ckh.isa.describe import Asked, anatomy_of
from ckh.ops import as_problem, operation, operation_names, operation_of_problem
from ckh.schema import Status
from ckh.text.log import note

if TYPE_CHECKING:
    from ckh.isa.anatomy import Anatomy
    from ckh.ops.base import AnyOperation, Kernel, Problem


def explain(
    kernel: str,
    problem: Problem | str | None = None,
    *,
    arch: str | None = None,
    code_object: Path | str | None = None,
) -> Anatomy:
    """Cycle breakdown of a kernel from its machine code (docs/explain.md).

    Args:
        kernel: complete name; with a code object, also a part of the names of its GPU functions.
        problem: a problem for the kernel, or its canonical text: its iterations over K determine which function runs.
        arch: the architecture; by default that of the code object, else this machine's GPU.
        code_object: a file with the code; by default the compiled kernel in the cache, or the output of a HIP compiler.

    Raises:
        UsageError: there is no such kernel or architecture, the architecture's instructions are not decoded, or the
            kernel chooses its loop when it runs.
        NoKernelError: the kernel does not apply to the problem.
        DeviceError: there is neither a compiled kernel nor a compiler, or the compiler fails.
        DataError: the code cannot be read, or is damaged.
    """
    if not isinstance(kernel, str):
        raise WrongTypeError("kernel", "the complete name of a kernel", kernel)
    problem = None if problem is None else as_problem(problem)
    file = None if code_object is None else path_of(code_object, "code_object")
    return described(kernel, problem, arch, file)


def described(name: str, problem: Problem | None, arch: str | None, file: Path | None, num_cus: int = 0) -> Anatomy:
    """Same as `explain`; `num_cus` are the compute units, 0 for the GPU's."""
    named = kernel_named(name)
    if arch is not None:
        arch, of_product = arch_of_gpu(arch)
        num_cus = num_cus or of_product
    if named is None and (problem is not None or file is None):
        raise UsageError(
            f"{name!r} is not a complete name of a kernel", "a file is --code-object FILE", code="incomplete-kernel"
        )
    if named is None:
        assert file is not None
        return anatomy_of(read_code(file, arch, (name,)), Asked(name, str(file)))
    op, kernel = named
    if getattr(kernel, "chooses_loop", False):
        raise UsageError(
            f"{name} has all its loops in one GPU function, which cannot be told apart",
            "explain the kernel that is not persistent, with compv3 or mem",
            code="unsupported",
        )
    path = file or _compiled(op, kernel, arch or this_gpu())
    code = read_code(path, arch, _functions(op))
    sizes = None
    if problem is not None:
        if operation_of_problem(problem) is not op:
            raise UsageError(f"{name} is of {op.name}, not of {problem.canonical()}", code="bad-problem")
        _require_applies(op, kernel, problem, code.arch)
        sizes = None if op.problems.tiled is None else op.problems.tiled(problem)
    return anatomy_of(code, Asked(op.kernels.name(kernel), str(path), kernel, problem, sizes, num_cus))


def kernel_named(name: str) -> tuple[AnyOperation, Any] | None:
    """Operation and kernel of a complete name; None if it is not of an operation that ckh builds."""
    for op in map(operation, operation_names()):
        if op.measured is None:
            continue
        try:
            kernel: Any = op.kernels.parse(name)
            op.kernels.name(kernel)
        except (DataError, UsageError):  # another operation's, or a short name
            continue
        return op, kernel
    return None


def this_gpu() -> str:
    """Architecture of this machine's GPU.

    Raises:
        UsageError: it has none.
    """
    gpus = visible_gpus()
    if not gpus:
        raise UsageError("no AMD GPU is found", "name an architecture with --arch", code="no-gpu")
    return gpus[0].arch


def _functions(op: AnyOperation) -> tuple[str, ...]:
    emission = measured_of(op).hip
    return () if emission is None else emission.functions


def _require_applies(op: AnyOperation, kernel: Any, problem: Problem, arch: str) -> None:
    from ckh.archs import load_arch

    if reasons := measured_of(op).reasons(kernel, load_arch(arch), problem):
        raise NoKernelError(f"{op.kernels.name(kernel)} does not apply to {problem.canonical()}: {'; '.join(reasons)}")


def of_compiled(name: str, problem: Problem, arch: str, num_cus: int) -> Anatomy | None:
    """Anatomy of a kernel compiled here before; None if it was not compiled, or cannot be described."""
    named = kernel_named(name)
    if named is None or arch not in EMULATED_ARCHS:
        return None
    _, kernel = named
    try:
        builder = _builder(arch)
        if builder.missing([kernel]):
            return None
        return described(name, problem, arch, builder.library(kernel), num_cus)
    except (
        CkhError,
        UnsupportedKernelError,
    ):  # no compiler or decoder, or these headers cannot build the kernel
        return None


def _builder(arch: str) -> KernelBuilder:
    return KernelBuilder(open_device(HIP_KIND, DeviceOptions(arch)))


def _compiled(op: AnyOperation, kernel: Kernel, arch: str) -> Path:
    """Library of a kernel in the cache, compiled if it is missing."""
    builder = _builder(arch)
    if builder.missing([kernel]):
        note(f"compiling {op.kernels.name(kernel)} for {arch}")
    built = builder.build([kernel], 1, lambda _steps, _text: None)[kernel]
    if built.status is not Status.OK:
        message = f"{op.kernels.name(kernel)} cannot be compiled for {arch}: {built.message}"
        raise DeviceError(message, "name a file with the code with --code-object", code="not-compiled")
    return Path(built.library)
