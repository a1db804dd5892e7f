"""First answers for irregular sizes against CK Tile's support check, restated (`support_check`)."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import ckh
from benchmarks.first_answers import ACCEPTED, DRAWN, answers, ask, problems_of
from ckh.archs import load_arch
from ckh.bench.devices.device import DeviceOptions
from ckh.bench.devices.hip_device import HipDevice
from ckh.bench.planning.plan import full_name
from ckh.ops.gemm_multi_d.operation import MULTI_D_RULES, GemmMultiDKernel
from ckh.ops.gemm_multi_d.problem import GemmMultiDProblem
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.pool import GPU
from ckh.ops.gemm_universal.kernels.problem_rules import GEMM_RULES
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, GemmProblem
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES
from ckh.problems import Direction
from tests.ops.support_check import accepts_conv, accepts_gemm
from tests.real import compiles, skip_without_compiler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.ops.grouped_conv.problem import ConvProblem

ARCHS = ("gfx942", "gfx950")


def accepts(kernel: Any, problem: Any) -> bool:
    """True if CK Tile accepts a problem of any operation for AMD GPUs."""
    if isinstance(problem, ckh.ConvProblem):
        return accepts_conv(kernel, problem)
    num_d, all_m = getattr(problem, "num_d", 0), getattr(problem, "all_m", (problem.m,))
    return all(accepts_gemm(kernel, m, problem.n, problem.k, problem.split_k, num_d) for m in all_m if m)


def kernels_of(dtype: str, layout: str, count: int, arch: str = "gfx942") -> Iterator[GemmKernel]:
    """Kernels that an architecture builds, drawn from the pool's space: every pipeline, padded along any axes."""
    rng, spec = Random(f"{dtype} {layout}"), load_arch(arch)
    space = GPU.narrowed(spec, dtype)
    while count:
        block = rng.choice(space.blocks)
        sizes = zip(("tile", "wave", "warp_tile"), (rng.choice(space.tiles), block.wave, block.warp_tile), strict=True)
        fields: dict[str, Any] = {
            f"{name}_{axis}": size for name, some in sizes for axis, size in zip("mnk", some, strict=True)
        }
        pads: dict[str, Any] = {f"pad_{axis}": rng.random() < 0.5 for axis in "mnk"}
        words = {name: rng.choice(getattr(space, f"{name}s")) for name in ("pipeline", "scheduler", "epilogue")}
        widths: dict[str, Any] = dict.fromkeys(("vector_a", "vector_b", "vector_c"), 0)
        kernel = GemmKernel(dtype, layout, **fields, **pads, **words, **widths, persistent=rng.random() < 0.5)
        if not GEMM_RULES.of_arch(kernel, spec):
            count -= 1
            yield kernel


def sizes_of(rng: Random) -> tuple[int, int, int]:
    """Multiples of few and of many elements, by chance of a tile."""
    m, n, k = (rng.choice((1, 8, 16, 32, 64, 256)) * rng.randrange(1, 13) for _ in "mnk")
    return m, n, k


@pytest.mark.parametrize("layout", GEMM_LAYOUTS)
@pytest.mark.parametrize("dtype", ["fp16", "fp8", "fp32"])
def test_rules_of_gemms_are_ck_tiles_support_check(dtype: str, layout: str) -> None:
    """Without split K, and unless K would be read beyond, a kernel applies exactly where CK Tile accepts it."""
    rng, arch = Random(layout), load_arch("gfx942")
    seen = set()
    for kernel in kernels_of(dtype, layout, 60):
        for _ in range(10):
            problem = GemmProblem(*sizes_of(rng), dtype, layout)
            reasons = [reason for reason in GEMM_RULES.of_problem(kernel, arch, problem) if "beyond" not in reason]
            assert (not reasons) is accepts(kernel, problem), (kernel, problem, reasons)
            seen.add((kernel.pipeline, not reasons))
    assert {("mem", True), ("mem", False), ("compv3", True), ("compv3", False)} <= seen


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_applicable_kernels_with_split_k_are_accepted(dtype: str) -> None:
    """The rules refuse more with split K than CK Tile does, never less."""
    rng, arch, applicable = Random(dtype), load_arch("gfx942"), 0
    for kernel in kernels_of(dtype, "rcr", 60):
        for _ in range(10):
            m, n, k = sizes_of(rng)
            problem = GemmProblem(m, n, 64 * k, dtype, split_k=rng.choice((2, 3, 8)))
            if not GEMM_RULES.of_problem(kernel, arch, problem):
                applicable += 1
                assert accepts(kernel, problem), (kernel, problem)
    assert applicable > 30


def test_further_tensors_are_loaded_in_vectors_of_their_own() -> None:
    """A kernel that stores narrow vectors still reads its further tensors in native ones."""
    arch, applicable = load_arch("gfx942"), set()
    fields = {name: getattr(next(kernels_of("fp16", "rcr", 1)), name) for name in GemmKernel.__dataclass_fields__}
    padded: dict[str, Any] = {"pad_m": True, "pad_n": True, "pad_k": True, "epilogue": "cshuffle", "vector_c": 2}
    kernel = replace(GemmMultiDKernel(**fields, function="add", num_d=1), **padded)
    for n in (8, 12, 16, 20):
        problem = GemmMultiDProblem(64, n, 64, "fp16")
        reasons = MULTI_D_RULES.of_problem(kernel, arch, problem)
        assert (not reasons) is accepts(kernel, problem), reasons
        applicable.add((n, not reasons))
    assert applicable == {(8, True), (12, False), (16, True), (20, False)}


@pytest.mark.parametrize("direction", list(Direction))
def test_applicable_convolutions_are_accepted(direction: Direction) -> None:
    """Every kernel of the pool that the rules leave for an irregular problem is accepted."""
    arch, applicable = load_arch("gfx942"), 0
    problems: list[ConvProblem] = problems_of(f"grouped_conv {direction}", 12)  # type: ignore[assignment]
    for problem in problems:
        for kernel in conv_pool(direction, arch, problem.ndim, problem.dtype)[::7]:
            if not CONV_RULES.of_problem(kernel, arch, problem):
                applicable += 1
                assert accepts(kernel, problem), (kernel, problem)
    assert applicable > 30


def test_first_answers_of_listed_kernels_are_accepted() -> None:
    """The first of a list of unpadded and padded kernels of every pipeline, for sizes that divide no tile."""
    names = [full_name(kernel) for kernel in kernels_of("fp8", "rcr", 50)]
    problems = [
        replace(problem, dtype="fp8", layout="rcr", split_k=1)
        for problem in problems_of("gemm_universal", 8)
        if isinstance(problem, GemmProblem)
    ]
    best = ckh.rank_many(problems, top=1, tflops=False, arch="gfx942", kernels=names)
    answered = 0
    for problem, ranked in zip(problems, best, strict=True):
        for first in ranked:
            answered += 1
            assert accepts(first.kernel, first.padded or problem), (first.kernel, problem)
    assert answered > len(problems) // 2


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", [name for name in DRAWN if name != "gemm_preshuffle"])
def test_first_answers_are_accepted(name: str, arch: str) -> None:
    """The first answers of every operation for the gate's first irregular problems."""
    problems = problems_of(name, 12)
    answered = 0
    for problem, best in zip(problems, ckh.rank_many(problems, top=1, tflops=False, arch=arch), strict=True):
        for first in best:
            answered += 1
            assert accepts(first.kernel, first.padded or problem), (first.kernel, problem)
    assert answered > len(problems) // 2


@compiles()
@pytest.mark.parametrize("name", ["gemm_universal", "gemm_grouped", "grouped_conv bwd_data"])
def test_compiled_host_code_accepts_first_answers(name: str) -> None:
    """Two first answers of irregular problems, asked in the host code that CK Tile's headers make of them."""
    skip_without_compiler()
    pairs = [pair for pair in answers(name, "gfx942", 8) if pair[0].place == 1 and pair[2] is not None][-2:]
    asked = list(ask(HipDevice(DeviceOptions("gfx942")), pairs))
    assert [(item.status, item.reason) for item in asked] == [(ACCEPTED, "")] * 2
