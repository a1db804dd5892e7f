"""Worker replies for kernels whose runs differ: rounded partial sums may differ, and nothing else."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from ckh.bench.compilation.toolchain import find_compiler
from ckh.bench.isolated.measure import Bench, KernelFailure
from ckh.bench.isolated.memory import HostMemory
from ckh.bench.supervision.process import WorkerProcess
from ckh.bench.supervision.protocol import Job, Op, PhaseClock, Reply, WorkerConfig
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.schema import Status
from tests.bench.faults import FaultyDevice
from tests.refusals import expect_values

if TYPE_CHECKING:
    from pathlib import Path

# A product of rcr matrices of bf16 or fp32 in four parts, added by each run in another order, all rounded. Runs from
# the given one on omit a part; timed runs count too.
_KERNEL = """
#include <stdint.h>
#include <string.h>
typedef struct { int64_t m, n, k, split_k; } problem;
static int runs = 0;
#if @bits@ == 16
typedef uint16_t number;
static float widened(number x) { const uint32_t bits = (uint32_t)x << 16; float y; memcpy(&y, &bits, 4); return y; }
static number stored(float x) { uint32_t bits; memcpy(&bits, &x, 4); return (number)(bits >> 16); }
#else
typedef float number;
static float widened(number x) { return x; }
static number stored(float x) { return x; }
#endif
int32_t ckh_abi_version(void) { return 2; }
int32_t ckh_operand_count(void) { return 4; }
const char* ckh_unsupported(const problem* p) { return 0; }
int64_t ckh_workspace_bytes(const problem* p) { return @workspace@; }
int32_t ckh_run(const problem* p, void* const* operands) {
    const number *a = operands[0], *b = operands[1];
    number* out = operands[2];
    const int64_t length = p->k / 4;
    for (int64_t i = 0; i < p->m * p->n; ++i) {
        number total = 0;
        for (int64_t part = 0; part < 4; ++part) {
            const int64_t first = (part + runs * @turn@) % 4 * length;
            float sum = 0;
            for (int64_t k = first; k < first + length; ++k)
                sum += widened(a[i / p->n * p->k + k]) * widened(b[i % p->n * p->k + k]);
            if (first != 0 || runs < @forgets@) total = stored(widened(total) + widened(stored(sum)));
        }
        out[i] = total;
    }
    ++runs;
    return 0;
}
int32_t ckh_time(const problem* p, void* const* operands, int32_t loops, int32_t samples, double* ns) {
    for (int32_t i = 0; i < samples; ++i) {
        ckh_run(p, operands);
        ns[i] = 1e6;
    }
    return 0;
}
"""
_NEVER = 1_000_000


def built(folder: Path, dtype: str, *, turn: int, forgets: int, workspace: int = 0) -> Path:
    """The library of a kernel of four parts, in the same order each time if turn is 0."""
    bits = {"bf16": 16, "fp32": 32}[dtype]
    text = _KERNEL
    for name, value in {"bits": bits, "turn": turn, "forgets": forgets, "workspace": workspace}.items():
        text = text.replace(f"@{name}@", str(value))
    source, library = folder / f"kernel{workspace}.c", folder / f"kernel{workspace}.so"
    source.write_text(text, encoding="utf-8")
    command = [*find_compiler().command, "-x", "c", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return library


def answers(folder: Path, dtype: str, split_k: int, *, turn: int = 1, forgets: int = _NEVER) -> list[Reply]:
    """Replies to measuring and timing such a kernel."""
    library = built(folder, dtype, turn=turn, forgets=forgets)
    problem = GemmProblem(32, 32, 512, split_k=split_k, dtype=dtype, layout="rcr")
    worker = WorkerProcess(FaultyDevice(), WorkerConfig(0, None))
    try:
        replies = []
        for job in (
            Job(Op.PROBLEM, 1, problem=problem.canonical()),
            Job(Op.MEASURE, 2, library=str(library), samples=3),
            Job(Op.TIME, 3, library=str(library), samples=1, loops=1),
        ):
            worker.send(job)
            replies.append(worker.receive(time.monotonic() + 60))
        return replies[1:]
    finally:
        worker.kill()


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_parts_added_in_any_order_are_correct(tmp_path: Path, dtype: str) -> None:
    """For a problem with split K, different bits in every run are all right."""
    assert [(reply.status, reply.message) for reply in answers(tmp_path, dtype, 4)] == [(Status.OK, "")] * 2


def test_varying_order_without_split_is_a_race(tmp_path: Path) -> None:
    """The sums are right within float32's limits each time, but without atomic additions they must be equal."""
    measured, _ = answers(tmp_path, "fp32", 1)
    assert measured.status is Status.NONDETERMINISTIC
    expect_values(measured.message, "of 1024", "race")


@pytest.mark.usefixtures("optimized")  # a slower kernel would warm up by itself, and run less often
@pytest.mark.parametrize(("dtype", "split_k"), [("bf16", 4), ("fp32", 4), ("fp32", 1)])
@pytest.mark.parametrize("forgets", [1, 4])
def test_a_part_missing_in_later_runs_is_detected(tmp_path: Path, dtype: str, split_k: int, forgets: int) -> None:
    """Whether the second run or only the timed ones are wrong, the kernel fails."""
    measured, timed = answers(tmp_path, dtype, split_k, turn=int(split_k > 1), forgets=forgets)
    assert (measured.samples_ns, timed.samples_ns, timed.status) == ((), (), Status.WRONG_RESULT)
    if split_k > 1:
        assert measured.status is Status.WRONG_RESULT
        assert "later run" in measured.message
        assert " of 1024 outputs wrong" in measured.message
    else:
        assert measured.status is Status.NONDETERMINISTIC
        expect_values(measured.message, 1024, 1024, "race", 1024)


@pytest.mark.parametrize(("forgets", "workspace"), [(1, 64), (2, 64), (1, 0)])
def test_without_times_a_kernel_with_a_workspace_runs_twice(tmp_path: Path, forgets: int, workspace: int) -> None:
    """The second time with what the first run left; a kernel that is wrong then fails. Others run once."""
    bench = Bench(HostMemory(), PhaseClock(), has_times=False)
    problem = GemmProblem(8, 8, 64, dtype="fp32", layout="rcr")
    bench.set_problem(Job(Op.PROBLEM, 1, problem=problem.canonical()))
    job = Job(Op.MEASURE, 2, library=str(built(tmp_path, "fp32", turn=0, forgets=forgets, workspace=workspace)))
    if forgets == 1 and workspace:
        with pytest.raises(KernelFailure) as failure:
            bench.measure(job)
        assert failure.value.status is Status.NONDETERMINISTIC
    else:
        assert bench.measure(job).status is Status.VERIFIED
