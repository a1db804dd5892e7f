"""Plans: kernels measured on each problem, in an order determined by the seed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import ArchSpec, load_arch
from ckh.bench.computation import measured_of
from ckh.bench.planning.plan import ALL, Plan, Task, full_name, make_plan
from ckh.data.settings import Settings
from ckh.errors import DataError, NoKernelError, UsageError
from ckh.ops import operation
from ckh.ops.gemm_universal.kernels.pool import gemm_pool
from ckh.ops.gemm_universal.kernels.problem_rules import GEMM_RULES
from ckh.ops.gemm_universal.measuring.measured import MEASURED as GEMM_MEASURED
from ckh.ops.gemm_universal.problem_sets import load_problems as gemm_problems
from ckh.ops.grouped_conv.kernel import amd_short_name
from ckh.ops.grouped_conv.kernels.pool import POOLS, conv_pool
from ckh.ops.grouped_conv.kernels.variants import PIPELINE_VARIANTS
from ckh.ops.grouped_conv.measuring.measured import SetCandidates
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.refusals import expect_refusal, expect_values, has_values

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


FORWARD = ConvProblem(Direction.FORWARD, n=1, c=16, k=16, g=1, hi=8, wi=8, y=3, x=3)
STRIDED = ConvProblem(Direction.FORWARD, n=1, c=16, k=16, g=1, hi=8, wi=8, y=3, x=3, stride_h=2)
BACKWARD = FORWARD.replaced(variant=Direction.BWD_DATA)
WEIGHT = ConvProblem(Direction.BWD_WEIGHT, n=1, c=16, k=16, g=1, hi=8, wi=8, y=3, x=3, ndim=3, di=3, z=1)
MIXED = (FORWARD, STRIDED, BACKWARD, WEIGHT)
SHORT = "grouped_conv_forward_fp32_2d_64x64x64_compv3_intrawave"
SHORT_DSB = "grouped_conv_forward_fp32_2d_64x128x64_compv3_intrawave_dsb_si"


@pytest.fixture(scope="module")
def host() -> ArchSpec:
    return load_arch("host")


def orders(plan: Plan) -> dict[str, list[str]]:
    """Names of each problem's kernels, in order, by canonical problem, in order."""
    return {task.problem.canonical(): [full_name(kernel) for kernel in task.kernels] for task in plan.tasks}


def short_names(plan: Plan) -> set[str]:
    return {name for kernel in plan.kernels for name in operation("grouped_conv").kernels.other_names(kernel)[1:]}


def test_all_takes_the_whole_pool_of_every_problem(host: ArchSpec) -> None:
    """300 forward and 260 backward kernels for each problem, every one once; the rest of the 300 is refused."""
    plan = make_plan(MIXED, ALL, host, 1, SetCandidates())
    assert {task.problem: len(task.kernels) for task in plan.tasks} == dict(
        zip(MIXED, (300, 300, 260, 260), strict=True)
    )
    for task in plan.tasks:
        assert set(task.kernels) == set(conv_pool(task.problem.variant, host, task.problem.ndim))
    assert plan.pairs == 2 * 300 + 2 * 260
    assert len(plan.kernels) == 300 + 2 * 260
    assert sum(plan.refused.values()) == 2 * 40
    assert all("compv5" in reason for reason in plan.refused)


def test_kernels_are_distinct_and_in_the_order_they_are_needed(host: ArchSpec) -> None:
    """A kernel of two problems is at the position of its first use."""
    plan = make_plan((FORWARD, STRIDED), "sample:200", host, 5, SetCandidates())
    first, second = plan.tasks
    assert plan.kernels == (*first.kernels, *(kernel for kernel in second.kernels if kernel not in first.kernels))


@pytest.mark.slow
def test_orders_follow_from_the_seed(host: ArchSpec) -> None:
    """The same seed gives the same orders of problems and kernels, and another seed others."""
    plan = make_plan(MIXED, ALL, host, 7, SetCandidates())
    assert make_plan(MIXED, ALL, host, 7, SetCandidates()) == plan
    other = make_plan(MIXED, ALL, host, 8, SetCandidates())
    for problem, order in orders(plan).items():
        assert sorted(orders(other)[problem]) == sorted(order)
        assert orders(other)[problem] != order
    assert len({tuple(orders(make_plan(MIXED, "sample:1", host, seed, SetCandidates()))) for seed in range(10)}) > 3


def test_orders_differ_between_problems(host: ArchSpec) -> None:
    """Problems of the same pool have different orders, none of them the table's."""
    first, second = orders(make_plan((FORWARD, STRIDED), ALL, host, 7, SetCandidates())).values()
    table = [full_name(kernel) for kernel in conv_pool(Direction.FORWARD, host)]
    assert first != second
    assert table not in (first, second)


def test_order_of_a_problem_does_not_depend_on_the_others(host: ArchSpec) -> None:
    """A run with more problems makes the same choices for the earlier ones."""
    many = orders(make_plan(MIXED, ALL, host, 7, SetCandidates()))
    for problem in MIXED:
        assert orders(make_plan([problem], ALL, host, 7, SetCandidates())) == {
            problem.canonical(): many[problem.canonical()]
        }


@pytest.mark.slow
def test_orders_are_the_same_in_another_process(host: ArchSpec) -> None:
    """Nothing depends on Python's random hashes of strings."""
    program = (
        "from ckh.archs import load_arch\n"
        "from ckh.bench.planning.plan import full_name, make_plan\n"
        "from ckh.ops.grouped_conv.measuring.measured import SetCandidates\n"
        "from ckh.ops.grouped_conv.problem import parse_conv_problem\n"
        f"problems = [parse_conv_problem(text) for text in {[p.canonical() for p in MIXED]}]\n"
        "for task in make_plan(problems, '*_compv3_*', load_arch('host'), 3, SetCandidates()).tasks:\n"
        "    print(task.problem.canonical(), *map(full_name, task.kernels))\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    text = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    plan = orders(make_plan(MIXED, "*_compv3_*", host, 3, SetCandidates()))
    assert text.splitlines() == [" ".join([problem, *names]) for problem, names in plan.items()]


@pytest.mark.parametrize("count", [1, 17, 299, 1000])
def test_sample_is_the_head_of_the_order_of_all(host: ArchSpec, count: int) -> None:
    """A larger sample therefore includes the smaller one."""
    everything = orders(make_plan(MIXED, ALL, host, 7, SetCandidates()))
    sample = orders(make_plan(MIXED, f"sample:{count}", host, 7, SetCandidates()))
    assert sample == {problem: names[:count] for problem, names in everything.items()}
    assert list(sample) == list(everything)


def test_refused_pairs_are_counted_by_their_first_reason() -> None:
    """On gfx942 pairs and refusals sum to 300 per problem, and each reason has the number computed from the table."""
    arch = load_arch("gfx942")
    narrow = ConvProblem(Direction.FORWARD, n=1, c=12, k=16, g=1, hi=8, wi=8, y=3, x=3, dtype="bf16")
    wide = ConvProblem(Direction.FORWARD, n=1, c=64, k=64, g=1, hi=8, wi=8, y=3, x=3, dtype="bf16")
    plan = make_plan((narrow, wide), ALL, arch, 1, SetCandidates())
    assert [task.problem for task in plan.tasks] == [wide]
    assert plan.pairs == 208
    assert plan.pairs + sum(plan.refused.values()) == 2 * 300
    (count,) = [count for why, count in plan.refused.items() if has_values(why, "C/G = 12", "vector_b = 8")]
    assert count == 208
    # Both problems lose two tiles of 30 kernels whose waves gfx942 does not support; some break the LDS rule first. Of
    # the eight other tiles they lose the four kernels of compv5.
    reasons = [row.reasons[0] for row in POOLS.refused(arch, Direction.FORWARD, 2, "bf16")]
    assert len(reasons) == 2 * 30 + 8 * 4
    assert all(plan.refused[reason] == 2 * reasons.count(reason) for reason in reasons)
    assert sum(count for reason, count in plan.refused.items() if "waves 4x4x1" in reason) == 2 * 30
    assert list(plan.refused.values()) == sorted(plan.refused.values(), reverse=True)


def test_pattern_matches_complete_names(host: ArchSpec) -> None:
    """One pipeline has ten tiles with or without two flags."""
    plan = make_plan([FORWARD], "*_compv3_*", host, 1, SetCandidates())
    rows = [row for row in PIPELINE_VARIANTS if row.pipeline == "compv3"]
    assert plan.pairs == 10 * len(rows) == 40
    assert {asdict(kernel)["pipeline"] for kernel in plan.kernels} == {"compv3"}
    exact = full_name(plan.kernels[0])
    assert make_plan([FORWARD], exact, host, 1, SetCandidates()).kernels == plan.kernels[:1]


def test_pattern_matches_amds_short_names(host: ArchSpec) -> None:
    """A short name is one kernel of the pool, and `_si` is a suffix of short names only."""
    assert short_names(make_plan([FORWARD], SHORT, host, 1, SetCandidates())) == {SHORT}
    split = make_plan([FORWARD], "*_si", host, 1, SetCandidates())
    assert split.pairs == 150
    assert all(asdict(kernel)["split_image"] for kernel in split.kernels)


def test_a_pattern_of_one_direction_excludes_other_problems(host: ArchSpec) -> None:
    """A problem without a kernel is not a task."""
    plan = make_plan(MIXED, "grouped_conv_bwd_data_*", host, 1, SetCandidates())
    assert [task.problem for task in plan.tasks] == [BACKWARD]
    assert plan.pairs == 260


def test_patterns_are_case_sensitive(host: ArchSpec) -> None:
    """Names are lower case, on every system."""
    with expect_refusal(UsageError, "no-match", "300"):
        make_plan([FORWARD], "*_COMPV3_*", host, 1, SetCandidates())


def test_file_names_kernels_with_comments(host: ArchSpec, tmp_path: Path) -> None:
    """Complete and short names, blank lines and comments; a kernel named twice is measured once."""
    complete = full_name(conv_pool(Direction.FORWARD, host)[77])
    path = tmp_path / "kernels.txt"
    path.write_text(f"# the best\n\n{SHORT}  # of last week\n  {SHORT_DSB}\n{complete}\n{SHORT}\n", encoding="utf-8")
    plan = make_plan([FORWARD, STRIDED], str(path), host, 1, SetCandidates())
    expected = {SHORT, SHORT_DSB, amd_short_name(conv_pool(Direction.FORWARD, host)[77])}
    assert short_names(plan) == expected
    assert plan.pairs == 2 * 3


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((SHORT, "", "# fine so far", "compv9"), ":4: 'compv9' "),
        (("grouped_conv_bwd_data_fp32_2d_64x64x64_mem_intrawave",), ":1: 'grouped_conv_bwd_data_fp32"),
        (("*_compv3_*",), ":1: '*_compv3_*' "),
        (("# nothing", ""), " has no kernels"),
    ],
)
def test_an_error_in_a_file_names_the_line(host: ArchSpec, tmp_path: Path, lines: Sequence[str], words: str) -> None:
    """A name outside the problems' pool is reported with file and line, and so is a file without names."""
    path = tmp_path / "kernels.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        make_plan([FORWARD], str(path), host, 1, SetCandidates())
    assert f"{path}{words}" in caught.value.message


def test_a_binary_file_is_bad_data(host: ArchSpec, tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are an error with the file's name."""
    path = tmp_path / "kernels.txt"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError) as caught:
        make_plan([FORWARD], str(path), host, 1, SetCandidates())
    assert caught.value.code == "not-text"
    expect_values(caught.value.message, f"{path}:1")


@pytest.mark.parametrize(
    "text",
    [
        "sample:0",
        "sample:-3",
        "sample:",
        "sample:ten",
        "sample:1.5",
        "sample:5+5",
    ],
)
def test_a_sample_without_a_number_is_refused(host: ArchSpec, text: str) -> None:
    """A sample needs a number of kernels, at least one."""
    with expect_refusal(UsageError, "bad-number"):
        make_plan([FORWARD], text, host, 1, SetCandidates())


def test_nothing_to_measure_reports_the_reason() -> None:
    """If every pair is refused, the most frequent reason is given."""
    problem = ConvProblem(Direction.FORWARD, n=1, c=60, k=64, g=1, hi=8, wi=8, y=3, x=3, dtype="bf16")
    with pytest.raises(NoKernelError) as caught:
        make_plan([problem], ALL, load_arch("gfx950"), 1, SetCandidates())
    words = "no kernel of gfx950 applies to any of the 1 problems: C/G = 60 is not a multiple of vector_b = 8"
    assert caught.value.message == words


def test_an_unsupported_dtype_has_no_kernels(host: ArchSpec) -> None:
    """The pool is empty, and the reason is the architecture's."""
    problem = ConvProblem(Direction.FORWARD, n=1, c=16, k=16, g=1, hi=8, wi=8, y=3, x=3, dtype="bf16")
    with expect_refusal(NoKernelError, "no-kernel", "host", "bf16"):
        make_plan([problem], ALL, host, 1, SetCandidates())


def test_without_excludes_exactly_the_finished_pairs(host: ArchSpec) -> None:
    """The remaining pairs keep their order, and the refusals are those of the whole plan."""
    plan = make_plan(MIXED, "sample:20", host, 1, SetCandidates())
    done = {(problem, name) for problem, names in orders(plan).items() for name in names[::3]}
    left = plan.without(lambda problem, name: (problem, name) in done)
    assert orders(left) == {
        problem: [name for i, name in enumerate(names) if i % 3] for problem, names in orders(plan).items()
    }
    assert left.pairs == 4 * 13
    assert left.refused == plan.refused


def test_without_nothing_and_without_everything(host: ArchSpec) -> None:
    """A fresh run has everything to do, a finished one nothing."""
    plan = make_plan(MIXED, "sample:20", host, 1, SetCandidates())
    assert plan.without(lambda _problem, _name: False) == plan
    finished = plan.without(lambda _problem, _name: True)
    assert (finished.pairs, finished.kernels) == (0, ())


@pytest.mark.slow
def test_a_plan_of_many_problems_from_a_large_pool_agrees_with_its_rules() -> None:
    """Of bench's 16,120 candidates of fp16 on gfx942, each of many problems gets two that apply."""
    arch = load_arch("gfx942")
    problems = gemm_problems("gemm-train", None, "fp16")[::8]
    gemm = operation("gemm_universal")
    plan = make_plan(
        problems,
        "sample:2",
        arch,
        0,
        GEMM_MEASURED.candidate_source(Settings(variant="", problems="", kernels="", dtype="fp16", seed=0, samples=1)),
    )
    assert (len(plan.tasks), plan.pairs) == (92, 184)
    for task in plan.tasks:
        assert all(measured_of(gemm).reasons(kernel, arch, task.problem) == [] for kernel in task.kernels)
    refused_all = [problem for problem in problems if problem not in {task.problem for task in plan.tasks}]
    pool = gemm_pool(arch, "fp16", refused_all[0].layout)
    assert all(GEMM_RULES.of_problem(kernel, arch, refused_all[0]) for kernel in pool[::100])


def test_a_further_kernel_comes_first() -> None:
    """It is not repeated if the problem has it already; a problem without such a kernel is unchanged."""
    kernels: dict[str, Any] = {"a": ("k1", "k2"), "b": ("k1", "k2"), "c": ("k2",)}
    further: dict[str, Any] = {"a": "k2", "b": "k3"}
    plan = Plan(tuple(Task(*kernel) for kernel in kernels.items()), {}).with_first(further.get)
    assert [",".join(map(str, task.kernels)) for task in plan.tasks] == ["k2,k1", "k3,k1,k2", "k2"]
