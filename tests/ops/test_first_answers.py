"""First answers for irregular sizes against CK Tile's support check, restated (`support_check`)."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from importlib import import_module
from itertools import islice, product
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import ckh
from benchmarks.first_answers import ACCEPTED, DRAWN, RULES_OF_REASONS, answers, ask, problems_of, rule_of, sources_of
from ckh import ops
from ckh.archs import load_arch
from ckh.bench.codegen.unit import UnsupportedKernelError
from ckh.bench.planning.plan import full_name
from ckh.cli import run
from ckh.errors import ExitCode
from ckh.ops import operation, requested
from ckh.ops.gemm_multi_d.operation import MULTI_D_RULES, GemmMultiDKernel
from ckh.ops.gemm_multi_d.problem import GemmMultiDProblem
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.pool import GPU
from ckh.ops.gemm_universal.kernels.problem_rules import GEMM_RULES
from ckh.ops.gemm_universal.measuring.hip import emit
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, GemmProblem
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES
from ckh.problems import Direction
from tests.bench.codegen.gemm_headers import CURRENT, LATE_2025, MID_2025
from tests.ops.support_check import accepts_conv, accepts_gemm
from tests.real import compiles, skip_without_compiler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.ops.gemm_universal.measuring.hip_rules import GemmHeaders
    from ckh.ops.grouped_conv.problem import ConvProblem

ARCHS = ("gfx942", "gfx950")
_OPS = Path(ops.__file__).parent


# Reasons that no rule of ckh gives.
WITHOUT_RULE = {
    "a size is not positive",
    "a group has a negative M or more rows than all groups",
    "M is not the sum of the groups' M",
    "C and K must be divisible by G",
    "a 2D kernel cannot run a 3D problem",
    "split-K needs parts of equally many whole tiles of K",
    "flatmm of mid-2025 multiplies tiles of K in pairs, and their number is odd",
    "CK Tile's IsSupportedArgument refuses it",  # of a GEMM, without its reason
}


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


@pytest.mark.slow
@pytest.mark.parametrize("headers", [MID_2025, LATE_2025, CURRENT], ids=lambda headers: str(headers.common.interface))
def test_what_is_emitted_is_padded_as_the_rules_have_it(headers: GemmHeaders) -> None:
    """An uneven M, N or K that is contiguous needs the padding that the source states, of mem as of other pipelines."""
    seen = set()
    for arch, dtype, layout in product(("gfx90a", *ARCHS), ("fp16", "bf16", "fp8"), GEMM_LAYOUTS):
        if dtype not in load_arch(arch).dtypes:
            continue
        for kernel in kernels_of(dtype, layout, 4, arch):
            try:
                source = emit(kernel, headers, load_arch(arch))
            except UnsupportedKernelError:
                continue
            for axis, tile in zip("mnk", kernel.tile, strict=True):
                sizes = {
                    **dict(zip("mnk", (16 * size for size in kernel.tile), strict=True)),
                    axis: 16 * tile + tile // 2,
                }
                reasons = GEMM_RULES.of_problem(
                    kernel, load_arch(arch), GemmProblem(**sizes, dtype=dtype, layout=layout)
                )
                is_refused = any("nor padded" in reason for reason in reasons)
                is_padded = f"inline constexpr bool pad_{axis} = true;" in source
                contiguous = {"m": layout[0] == "c", "n": True, "k": layout[0] == "r" or layout[1] == "c"}
                assert is_refused is (contiguous[axis] and not is_padded), (kernel, axis, reasons)
                seen.add((kernel.pipeline, axis, is_refused))
    assert {("mem", axis, is_refused) for axis in "mnk" for is_refused in (True, False)} <= seen


@pytest.mark.slow
@pytest.mark.parametrize("op", ["gemm_batched", "gemm_grouped", "gemm_preshuffle"])
def test_lists_for_amd_hold_what_ck_tile_accepts(op: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each kernel of a list made of irregular problems is accepted for one of them, as it is or padded."""
    problems = [problem for problem in islice(problems_of(op), 24) if problem.dtype == "fp16"]
    (tmp_path / "p.txt").write_text("".join(f"{problem.canonical()}\n" for problem in problems), encoding="utf-8")
    command = ["export", "--to", "amd-registry", "--op", op, "--arch", "gfx942", "--problems", str(tmp_path / "p.txt")]
    assert run([*command, "--out", str(tmp_path / "out"), "--json"]) == ExitCode.OK
    kernels = [operation(op).kernels.parse(name) for name in json.loads(capsys.readouterr().out)["kernels"]]
    part = requested(op)
    assert part is not None
    tried = [*problems, *map(part.padded, problems)]
    assert [kernel for kernel in kernels if not any(accepts(kernel, problem) for problem in tried)] == []
    assert len(kernels) > 3


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
    problems: list[ConvProblem] = list(islice(problems_of(f"grouped_conv {direction}"), 12))  # type: ignore[arg-type]
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
        for problem in islice(problems_of("gemm_universal"), 8)
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
    problems = list(islice(problems_of(name), 12))
    answered = 0
    for problem, best in zip(problems, ckh.rank_many(problems, top=1, tflops=False, arch=arch), strict=True):
        for first in best:
            answered += 1
            assert accepts(first.kernel, first.padded or problem), (first.kernel, problem)
    assert answered > len(problems) // 2


def test_problems_without_a_kernel_are_replaced() -> None:
    """As many problems are asked as are wanted; those without a kernel stay in the record, in the order of drawing."""
    pairs = list(answers("gemm_batched", "gfx90a", 4))
    asked = [item for item, _, _ in pairs if item.place == 1]
    assert Counter(item.status for item in asked)[ACCEPTED] == 4
    assert "_fp8_" in " ".join(item.problem for item in asked if item.status != ACCEPTED)
    assert [item.problem.split("_")[2] for item in asked] == (["fp16", "bf16", "fp8"] * 9)[: len(asked)]


@pytest.mark.parametrize(
    ("name", "reason", "rule"),
    [
        (
            "gemm_universal",
            "Can't support K that is not a multiple of KPerBlock without padding!",
            "_padding",
        ),
        (
            "gemm_multi_d",
            "Can't support N for tensor D that is no multiple without padding!",
            "_padding",
        ),
        ("gemm_multi_d", "N is not a multiple of vector load size for D tensor!", "_whole_d"),
        ("gemm_grouped", "K is not a multiple of vector load size for A tensor!", "_whole_vectors"),
        ("gemm_streamk", "Conditions not met for Kbatch >1 !", "_split_k"),
        ("gemm_batched", "batch_stride_A must be non-negative and at least K * M!", "GemmBatchedProblem"),
        ("grouped_conv forward", "Conv C is not a multiple of vector load size for weight!", "_vector_divisibility"),
        ("grouped_conv bwd_weight", "ConvG must be a multiple of NumGroupsToMerge!", "_merged_groups"),
        ("grouped_conv bwd_weight", "", "_specialization"),
        ("grouped_conv bwd_data", "", "_specialization or _countable"),
        ("gemm_universal", "", "no rule of ckh's is known for this reason"),
    ],
)
def test_a_refusal_names_the_rule_that_was_wrong(name: str, reason: str, rule: str) -> None:
    """The words of CK Tile's check, and its silence, lead to a rule of the operation's own."""
    assert rule_of(name, f"CK Tile's IsSupportedArgument refuses it: {reason}").rpartition(":")[2] == rule


def test_named_rules_are_there() -> None:
    """A renamed rule is renamed in the gate."""
    for _, module, rules in (row for rows in RULES_OF_REASONS.values() for row in rows):
        for rule in rules.split(" or "):
            assert hasattr(import_module(module), rule), (module, rule)


def test_reasons_of_the_check_before_a_launch_name_rules() -> None:
    """All that ckh's templates refuse themselves, except what no problem can be and what headers of mid-2025 lack."""
    unknown = set()
    for name in {name.partition(" ")[0] for name in DRAWN}:
        for folder in {name, "gemm_universal" if name.startswith("gemm") else name}:
            texts = (path.read_text(encoding="utf-8") for path in (_OPS / folder / "templates/ck_tile").glob("*.hpp"))
            for reason in re.findall(r'(?:return|[?:]) "([^"]+ [^"]+)"', "\n".join(texts)):
                if "no rule" in rule_of(f"{name} forward" if name == "grouped_conv" else name, reason):
                    unknown.add(reason)
    assert unknown == WITHOUT_RULE


@compiles()
@pytest.mark.parametrize("name", ["gemm_universal", "gemm_grouped", "grouped_conv bwd_data"])
def test_compiled_host_code_accepts_first_answers(name: str) -> None:
    """Two first answers of irregular problems, asked in the host code that CK Tile's headers make of them."""
    skip_without_compiler()
    pairs = [pair for pair in answers(name, "gfx942", 8) if pair[0].place == 1 and pair[2] is not None][-2:]
    sources, not_built = sources_of(pairs)
    assert [(item.status, item.reason) for item in ask(sources)] == [(ACCEPTED, "")] * 2
    assert not_built == []
