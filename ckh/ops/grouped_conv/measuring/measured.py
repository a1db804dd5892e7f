"""Computing, building and measuring convolutions.

The kernels of a run come from a rule set or a registry, filtered.
"""

from __future__ import annotations

import ctypes
import hashlib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.bench.codegen.unit import staging_constants, translation_unit
from ckh.bench.computation import Computation, HipEmission, HostEmission, Measured, Split
from ckh.bench.planning.candidates import of_registry, registry_of, wanted_by
from ckh.errors import DataError, UsageError
from ckh.kernels.judging import ProblemRules, RefusedKernel
from ckh.kernels.table import SIZES, TRIPLES, KernelTable
from ckh.ops import operation
from ckh.ops.base import lazily
from ckh.ops.grouped_conv.features import GROUPED_CONV
from ckh.ops.grouped_conv.kernel import ConvKernel, parse_kernel_name
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES
from ckh.ops.grouped_conv.measuring import hip_rules, reference
from ckh.ops.grouped_conv.problem import CONV_COLUMNS, CONV_LAYOUTS
from ckh.ops.grouped_conv.requested import has_few_channels, pad_channels
from ckh.ops.grouped_conv.rules.sets import (
    DEFAULT_RULE_SET,
    FULL_RULE_SET,
    refused_of_rule_set,
    rule_set,
    weight_options,
)
from ckh.problems import Direction
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ckh.archs import ArchSpec
    from ckh.bench.codegen.unit import HostSimd
    from ckh.bench.computation import Case, MatrixSettings
    from ckh.data.settings import Settings
    from ckh.kernels.lists import Registry
    from ckh.ops.grouped_conv.problem import ConvProblem


_SPLITS = (1, 4, 16)  # splits of K of the default bwd_weight kernels on a GPU


@dataclass(frozen=True, slots=True)
class SetCandidates:
    """Source of the kernels of a run."""

    rule_set: str = DEFAULT_RULE_SET  # ignored with a registry
    registry: Registry[ConvKernel] | None = None  # kernels read from a file
    wants: Callable[[ConvKernel], bool] = lambda _: True
    split_k: tuple[int, ...] = (1,)
    """Splits of K for backward-weight kernels; (1,): on a GPU the default kernels use `_SPLITS` where parts are added
    in float32, and kernels with two stages and merged groups are added."""
    origin: str = f"rule set {DEFAULT_RULE_SET}"

    def group(self, problem: ConvProblem) -> tuple[Any, ...]:
        """Direction, number of dimensions and dtype; with few channels per group, the rule set that has kernels."""
        is_few = self.rule_set == DEFAULT_RULE_SET and has_few_channels(problem.c, problem.k, problem.g)
        return problem.variant, problem.ndim, problem.dtype, *([FULL_RULE_SET] if is_few else [])

    def problem_rules(self, kernels: Sequence[ConvKernel], arch: ArchSpec) -> ProblemRules:
        """Return the rules that decide which of some kernels support a problem."""
        return ProblemRules(CONV_RULES.problem, KernelTable.of(ConvKernel, kernels), arch)

    def of(
        self, variant: Direction, ndim_spatial: int, dtype: str, *rest: Any
    ) -> tuple[tuple[ConvKernel, ...], tuple[RefusedKernel[ConvKernel], ...]]:
        """Return the kernels that the architecture can build, and the rejected kernels with reasons."""
        *others, arch = rest
        if self.registry is None:
            name = others[0] if others and arch.vector_divisibility else self.rule_set
            kernels = rule_set(name, variant, ndim_spatial, dtype, arch)
            if self._has_options(variant, arch):
                kernels = (*kernels, *weight_options(ndim_spatial, dtype, arch))
            unbuilt = refused_of_rule_set(name, variant, ndim_spatial, dtype, arch)
        else:
            own = (variant, ndim_spatial, dtype)
            kernels = tuple(
                of_registry(
                    self.registry, arch, lambda kernel: (kernel.variant, kernel.ndim_spatial, kernel.dtype) == own, *own
                )
            )
            unbuilt = ()
        # A registry may have several splits of a kernel.
        counts = _SPLITS if self._has_options(variant, arch) else self.split_k
        distinct = dict.fromkeys(
            split
            for kernel in kernels
            for split in _splits(kernel, counts)
            if counts == self.split_k or not split.rounds_parts
        )
        wanted = filter(self.wants, distinct)
        judged = [RefusedKernel(kernel, CONV_RULES.of_arch(kernel, arch)) for kernel in wanted]
        refused = [kernel for kernel in (*unbuilt, *judged) if kernel.reasons and self.wants(kernel.kernel)]
        return tuple(kernel.kernel for kernel in judged if not kernel.reasons), tuple(refused)

    def _has_options(self, variant: Direction, arch: ArchSpec) -> bool:
        """True for the default bwd_weight kernels on a GPU, where a sum over all pixels occupies few blocks."""
        is_default = self.registry is None and self.rule_set == DEFAULT_RULE_SET and self.split_k == (1,)
        return is_default and arch.is_gpu and variant is Direction.BWD_WEIGHT


def _splits(kernel: ConvKernel, counts: tuple[int, ...]) -> Iterator[ConvKernel]:
    if kernel.variant is not Direction.BWD_WEIGHT or counts == (1,):
        yield kernel
        return
    for count in counts:
        yield replace(kernel, split_k=count)


def candidate_source(settings: Settings) -> SetCandidates:
    """Return the source of candidates for a run's settings."""
    if settings.registry is not None and settings.rule_set != DEFAULT_RULE_SET:
        raise UsageError("--registry and --rule-set exclude each other", "omit one of them", code="conflicting-options")
    return SetCandidates(
        settings.rule_set,
        registry_of(settings.registry, operation(GROUPED_CONV.op_type)),
        wanted_by(settings.filter, ConvKernel),
        settings.split_k,
        settings.registry or f"rule set {settings.rule_set}",
    )


_COMPILE_S = {"": 16.0}  # observed for seven translation units
ALL_DIRECTIONS = "all"
_TEMPLATES = Path(__file__).parents[1] / "templates"
_FIELDS = (*CONV_COLUMNS.values(), "do", "ho", "wo")


class CConvProblem(ctypes.Structure):
    """`struct ckh_conv_problem`."""

    _fields_ = [(name, ctypes.c_int64) for name in _FIELDS]


def c_problem(problem: ConvProblem) -> CConvProblem:
    """Return the convolution as kernels take it."""
    return CConvProblem(**{name: getattr(problem, name) for name in _FIELDS})


def _split(_problem: ConvProblem, kernel_name: str) -> Split:
    """Return the kernel's split of K; none for a library kernel without a name or with a name of its own.

    All are held to the limits of float32 sums, as gradients are used like results without a split. CK Tile's epilogue
    rounds 16-bit parts before it adds them atomically (`ConvKernel.rounds_parts`): such kernels miss these limits.
    """
    try:
        kernel = parse_kernel_name(kernel_name)
    except DataError:
        return Split()
    return Split(kernel.split_k, in_fp32=True)


def _problems(settings: Settings) -> tuple[ConvProblem, ...]:
    """Return the problems of a set or file for the direction and number of dimensions, with padded channels if set."""
    by_direction = _by_direction(settings.problems, _directions(settings.variant), settings.dtype)
    problems = tuple(p for group in by_direction for p in group if settings.ndim in (None, p.ndim))
    if not problems:
        raise DataError(f"{settings.problems} has no {settings.ndim}D problem", code="no-problems")
    return pad_channels(problems) if settings.pad_channels else problems


def _by_direction(source: str, directions: Sequence[Direction], dtype: str) -> Iterator[tuple[ConvProblem, ...]]:
    """Yield the problems of each direction; of several directions a source may lack some."""
    from ckh.ops.grouped_conv.operation import OPERATION
    from ckh.shapes.problems import problems_of

    missing: list[DataError] = []
    for direction in directions:
        try:
            yield problems_of(OPERATION, source, direction, dtype)
        except DataError as error:  # noqa: PERF203 - one of three
            if error.code != "no-problems":
                raise
            missing.append(error)
    if len(missing) == len(directions):
        raise missing[0]


_conv_headers = cache(hip_rules.detect_conv)


def _matrix(name: str, settings: MatrixSettings) -> tuple[Case[ConvProblem, ConvKernel], ...]:
    from ckh.ops.grouped_conv.measuring.trials import matrix

    directions = _directions(settings.variant or ALL_DIRECTIONS)
    ndims = tuple(CONV_LAYOUTS) if settings.ndim is None else (settings.ndim,)
    return matrix(name, settings.arch, directions, ndims, settings.dtype)


def _directions(text: str) -> tuple[Direction, ...]:
    if text != ALL_DIRECTIONS and text not in list(Direction):
        raise UsageError(f"unknown direction {text!r}", one_of(text, (*Direction, ALL_DIRECTIONS)), code="unknown-name")
    return tuple(Direction) if text == ALL_DIRECTIONS else (Direction(text),)


_INTEGERS = (*SIZES, *TRIPLES["vectors"])
_BOOLEANS = ("double_smem_buffer", "split_image")


def emit_host(kernel: ConvKernel, simd: HostSimd) -> str:
    """Return the C++17 source of one kernel for this CPU; the same for 2D and 3D, since 2D is depth 1."""
    if missing := [name for name in _INTEGERS if getattr(kernel, name) is None]:
        raise UsageError(
            f"the kernel lacks {', '.join(missing)}", "only complete kernels can be built", code="incomplete-kernel"
        )
    if kernel.dtype != "fp32":
        raise UsageError(f"the host device computes fp32, not {kernel.dtype}", code="unknown-dtype")
    flags = {name: getattr(kernel, name) for name in _BOOLEANS} | staging_constants(kernel.pipeline)
    lines = [
        f"inline constexpr int vector_bytes = {simd.vector_bytes};",
        f"inline constexpr int registers = {simd.registers};",
        f"inline constexpr Variant variant = Variant::{kernel.variant};",
        f"inline constexpr Scheduler scheduler = Scheduler::{kernel.scheduler};",
        *(f"inline constexpr int {name} = {getattr(kernel, name)};" for name in _INTEGERS),
        *(f"inline constexpr bool {name} = {str(value).lower()};" for name, value in flags.items()),
    ]
    source_id = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    lines.append(f'inline constexpr const char* source_id = "{source_id}";')
    return translation_unit("kernel.hpp", lines, "conv.hpp")


MEASURED: Measured[ConvProblem, ConvKernel] = Measured(
    computation=Computation(
        reference.operands,
        reference.convolve,
        reference.reduction_length,
        ("fp32", "fp16", "bf16"),
        c_problem,
        _split,
        contractions=reference.contractions,
        factors=reference.factors,
        arrays=reference.array_forms,
    ),
    host=HostEmission(emit_host, (_TEMPLATES / "host",), "host-train"),
    hip=HipEmission(
        lambda kernel, headers, arch: hip_rules.emit(kernel, _conv_headers(headers), arch),
        (_TEMPLATES / "ck_tile",),
        "train",
        ("GroupedConvolution",),
        lambda headers: hip_rules.found_words(_conv_headers(headers)),
        lambda headers: hip_rules.rules_of(_conv_headers(headers)),
        _COMPILE_S,
    ),
    problems=_problems,
    candidate_source=candidate_source,
    reasons=CONV_RULES.check,
    matrix=_matrix,
    trials=lazily("ckh.ops.grouped_conv.measuring.trials:TRIALS"),
)
