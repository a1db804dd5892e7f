"""What the host does to launch a kernel that is timed, counted with a HIP runtime whose calls cost nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ckh.bench.computation import measured_of
from ckh.ops import operation_of_kernel
from tests.bench.codegen.real_gemm_kernels import REAL_GEMM_KERNELS
from tests.bench.codegen.real_kernels import REAL_KERNELS
from tests.bench.hip_stub.build import build_free_runtime
from tests.bench.hip_stub.launch_cost import LOOPS, SAMPLES
from tests.real import Real, compiles, interface_here

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOST_NS = 1000.0
REAL = [
    (arch, kernel)
    for tables in (REAL_KERNELS, REAL_GEMM_KERNELS)
    for arch, kernels in tables[interface_here()].items()
    for kernel in kernels
]


def wanted() -> Iterator[tuple[str, str, str]]:
    """Architecture, operation and name of every kernel."""
    for arch, kernel in REAL:
        op = operation_of_kernel(kernel)
        yield arch, op.name, op.kernel_name(kernel)


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Any]:
    """Measures libraries in a process that has the free runtime as its HIP."""
    runtimes = [build_free_runtime(tmp_path, major) for major in (6, 7)]  # whichever a compiler links to
    command = [sys.executable, "-m", "tests.bench.hip_stub.launch_cost", *map(str, runtimes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def answer(library: str, op: str, problem: str) -> dict[str, Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps({"library": library, "op": op, "problem": problem}), file=process.stdin, flush=True)
            found: dict[str, Any] = json.loads(process.stdout.readline())
            return found

        yield answer
        process.stdin.close()


@pytest.mark.slow
@compiles(*wanted())
def test_a_timed_launch_takes_the_host_less_than_a_microsecond(real_kernels: Real, ask: Any) -> None:
    """Of every kernel: arguments are made before the timed loop, and nothing is zeroed between its launches."""
    for arch, kernel in REAL:
        op = operation_of_kernel(kernel)
        trials = measured_of(op).trials
        assert trials is not None
        library = real_kernels[arch, kernel].library
        answers = (ask(library, op.name, problem.canonical()) for problem in trials().loop_ends(kernel))
        found = next(one for one in answers if not one["reason"])
        launches, rest = divmod(found["launches"], LOOPS * SAMPLES)
        name = op.kernel_name(kernel)
        # One kernel a launch, two of two stages; a last untimed launch where results are added to what is there.
        stages = 2 if getattr(kernel, "two_stage", False) else 1
        assert (launches, rest in {0, stages}) == (stages, True), (name, found)
        assert found["zeroed"] == (1 if rest else 0), (name, found)
        assert 0 < found["ns"] < MOST_NS, (name, found)
