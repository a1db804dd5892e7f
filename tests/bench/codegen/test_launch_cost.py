"""Host cost of launching a timed kernel, counted with a HIP runtime whose calls cost nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ckh.bench.computation import measured_of
from ckh.bench.isolated.kernel_library import BY_GRAPH, OF_NOTHING
from ckh.ops import operation, operation_of_kernel
from tests.bench.codegen.real_gemm_kernels import REAL_GEMM_KERNELS
from tests.bench.codegen.real_kernels import REAL_KERNELS
from tests.bench.hip_stub.build import build_free_runtime
from tests.bench.hip_stub.launch_cost import LOOPS, SAMPLES
from tests.real import Real, compiles, interface_here, sampled
from tests.refusals import expect_values

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOST_NS = 1000.0
REAL: list[tuple[str, Any]] = [
    item
    for tables in (REAL_KERNELS, REAL_GEMM_KERNELS)
    for item in sampled((arch, kernel) for arch, kernels in tables[interface_here()].items() for kernel in kernels)
]


def wanted() -> Iterator[tuple[str, str, str]]:
    """Architecture, operation and name of every kernel."""
    for arch, kernel in REAL:
        op = operation_of_kernel(kernel)
        yield arch, op.name, op.kernels.name(kernel)


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Any]:
    """Measure libraries in a process whose HIP runtime is the free one."""
    runtimes = [build_free_runtime(tmp_path, major) for major in (6, 7)]  # whichever version a compiler links
    command = [sys.executable, "-m", "tests.bench.hip_stub.launch_cost", *map(str, runtimes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def answer(library: str, op: str, problem: str, **how: int) -> dict[str, Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps({"library": library, "op": op, "problem": problem, **how}), file=process.stdin, flush=True)
            document: dict[str, Any] = json.loads(process.stdout.readline())
            return document

        yield answer
        process.stdin.close()


@pytest.mark.slow
@compiles(*wanted())
def test_a_timed_launch_takes_the_host_less_than_a_microsecond(real_kernels: Real, ask: Any) -> None:
    """For every kernel: arguments are prepared before the timed loop, and nothing is zeroed between launches."""
    for arch, kernel in REAL:
        op = operation_of_kernel(kernel)
        trials = measured_of(op).trials
        assert trials is not None
        library = real_kernels[arch, kernel].library
        problems = (problem.canonical() for problem in trials().loop_ends(kernel))
        result, problem = next((item, text) for text in problems if not (item := ask(library, op.name, text))["reason"])
        launches, rest = divmod(result["launches"], LOOPS * SAMPLES)
        name = op.kernels.name(kernel)
        # One kernel per launch, two with two stages; a last untimed launch if results are accumulated.
        stages = 2 if getattr(kernel, "two_stage", False) else 1
        assert (launches, rest in {0, stages}) == (stages, True), (name, result)
        assert result["zeroed"] == (1 if rest else 0), (name, result)
        assert 0 < result["ns"] < MOST_NS, (name, result)

        turns = ask(library, op.name, problem, how=0, sets=5)
        assert turns["launches"] == result["launches"], (name, turns)
        assert 0 < turns["ns"] < MOST_NS, (name, turns)

        # A graph has 35 launches, seven of each set of operands, and is started 58 times per sample and once before.
        graph = ask(library, op.name, problem, how=BY_GRAPH, sets=5)
        assert graph["launches"] == 35 * (58 * SAMPLES + 1) * stages + rest, (name, graph)
        assert (graph["graphs"], graph["open"]) == (1, 0), (name, graph)
        assert 0 < graph["ns"] < MOST_NS, (name, graph)

        empty = ask(library, op.name, problem, how=OF_NOTHING, sets=1)
        assert (empty["launches"], empty["zeroed"]) == (LOOPS * SAMPLES, 0), (name, empty)


GROUPED = "gemm_grouped_fp16_rcr_compv3_cshuffle_intrawave_True_True_True_False_32x32x32_2x2x1_16x16x16"


@compiles(("gfx942", "gemm_grouped", GROUPED))
def test_arguments_in_memory_are_copied_before_launches_are_timed(real_kernels: Real, ask: Any) -> None:
    """The arguments of groups are copied once for each set of operands, and their memory is freed."""
    library = real_kernels["gfx942", operation("gemm_grouped").kernels.parse(GROUPED)].library
    for split_k in (1, 2):
        problem = f"gemm_grouped_fp16_rcr_m96x5+32+0_n64_k128_splitk{split_k}"
        for how in (0, BY_GRAPH):
            result = ask(library, "gemm_grouped", problem, how=how, sets=5)
            assert (result["reason"], result["copies"], result["open"]) == ("", 5 + split_k - 1, 0), result
            assert result["launches"] >= LOOPS * SAMPLES
            assert 0 < result["ns"] < MOST_NS, result


@compiles(next(wanted()))
def test_a_graph_that_cannot_be_made_is_an_error(
    monkeypatch: pytest.MonkeyPatch, real_kernels: Real, request: pytest.FixtureRequest
) -> None:
    """HIP's reason is reported; nothing is launched, and nothing is left open."""
    monkeypatch.setenv("CKH_STUB_NO_GRAPH", "1")
    arch, kernel = REAL[0]
    op = operation_of_kernel(kernel)
    trials = measured_of(op).trials
    assert trials is not None
    ask = request.getfixturevalue("ask")  # the process has the variable
    for problem in trials().loop_ends(kernel):
        library = real_kernels[arch, kernel].library
        if not ask(library, op.name, problem.canonical())["reason"]:
            result = ask(library, op.name, problem.canonical(), how=BY_GRAPH, sets=1)
            expect_values(result["reason"], "hipStreamBeginCapture")
            assert (result["launches"], result["open"]) == (0, 0)
            return
    pytest.fail("no problem is supported")
