"""Whether CK Tile itself accepts the kernels that `ckh predict` puts first, asked of their compiled host code.

    python benchmarks/first_answers.py --out asked.jsonl                  # 60 irregular problems of each operation
    python benchmarks/first_answers.py --out asked.jsonl --op gemm_batched --arch gfx950 --problems 20
    python benchmarks/first_answers.py --out asked.jsonl --minutes 10     # as many as fit; the next call goes on
    python benchmarks/first_answers.py --out asked.jsonl --execute 30     # and run accepted ones on the emulated GPU
    python benchmarks/first_answers.py --out asked.jsonl --table

Problems are drawn with a fixed seed: sizes that are seldom multiples of a tile. The first answer of each is asked, and
of every fourth problem the first five. Kernels are emitted as `ckh bench` does and compiled for the host only, in units
of one compiler at a time; the compiled function that checks a problem before a launch (`ckh_unsupported`, which calls
CK Tile's `IsSupportedArgument`) is then called, which needs no GPU. Every pair of problem and kernel is a line of --out
and is not asked again. A refusal is a rule that ckh lacks. It needs a HIP compiler (HIPCC) and CK Tile's headers
(CK_TILE_INCLUDE). The exit code is 1 if a pair was refused, or gave a wrong result.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import ckh
from ckh.bench.codegen.unit import UnsupportedKernelError, chosen
from ckh.bench.compilation.toolchain import run_compiler
from ckh.bench.computation import measured_of
from ckh.bench.devices.device import EMULATED_KIND, DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.bench.devices.hip_device import HipDevice, emulated_runtime
from ckh.bench.isolated.kernel_library import KernelLibrary
from ckh.bench.planning.plan import full_name
from ckh.bench.supervision.driver import Driver
from ckh.bench.supervision.harness import execute
from ckh.bench.supervision.limits import BenchLimits
from ckh.errors import NoKernelError
from ckh.ops import operation_of_problem
from ckh.ops.gemm_batched.problem import GemmBatchedProblem
from ckh.ops.gemm_grouped.problem import GemmGroupedProblem
from ckh.ops.gemm_multi_d.problem import FUNCTIONS, GemmMultiDProblem
from ckh.ops.gemm_preshuffle.problem import GemmPreshuffleProblem
from ckh.ops.gemm_streamk.problem import GemmStreamKProblem
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, GemmProblem
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from ckh.schema import RIGHT, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ckh.ops.base import Kernel, Problem

ARCHS = ("gfx942", "gfx950")
_SEED = "first answers"
_TOP, _EVERY = 5, 4  # of every fourth problem, the first five answers are asked
_UNIT = 40  # kernels of a compiler
_TIMEOUT_S = 1800.0
_HALF, _FLOAT8 = ("fp16", "bf16"), ("fp16", "bf16", "fp8")
# Compile for the host only: the GPU's code is left out, and the runtime is the one that is loaded already.
_HOST_ONLY = ("--offload-host-only", "-O0", "-no-hip-rt", "-Wl,--defsym=__hip_fatbin=0")
_FAILED = "host code: "
_LOGGING = "CK_TILE_LOGGING"  # CK Tile then says why it refuses
ACCEPTED, REFUSED, NOT_BUILT, NO_KERNEL = "accepted", "refused", "not built", "no kernel"


def _size(rng: Random, most: int, steps: Sequence[int]) -> int:
    """Draw a multiple of one of the steps, uniformly on a logarithmic scale."""
    step = rng.choice(steps)
    return step * max(1, round(math.exp(rng.random() * math.log(most / step))))


def _mnk(rng: Random) -> tuple[int, int, int]:
    return _size(rng, 4096, (1, 2, 4, 8)), _size(rng, 6144, (8, 16, 24, 40)), _size(rng, 6144, (8, 16, 32, 72))


def _gemm(rng: Random, dtype: str) -> Problem:
    return GemmProblem(*_mnk(rng), dtype, rng.choice(GEMM_LAYOUTS), rng.choice((1, 1, 1, 2, 3, 8)))


def _batched(rng: Random, dtype: str) -> Problem:
    m, n, k = _mnk(rng)
    gap = rng.choice((0, 0, 8, 64))
    distances = {"lda": k + gap, "ldb": k + gap, "ldc": n + gap}
    return GemmBatchedProblem(m, n, k, dtype, "rcr", rng.choice((1, 1, 2)), batch=rng.choice((1, 3, 32)), **distances)


def _multi_d(rng: Random, dtype: str) -> Problem:
    ds = rng.choice(("v", "r", "vr", "rr"))
    return GemmMultiDProblem(*_mnk(rng), dtype, rng.choice(GEMM_LAYOUTS), function=rng.choice(list(FUNCTIONS)), ds=ds)


def _preshuffle(rng: Random, dtype: str) -> Problem:
    n, k = _size(rng, 6144, (32, 96, 192, 320)), _size(rng, 6144, (64, 128, 192, 320))
    return GemmPreshuffleProblem(_size(rng, 4096, (1, 2, 16)), n, k, dtype, b_order=rng.choice(("16x16", "32x16")))


def _grouped(rng: Random, dtype: str) -> Problem:
    _, n, k = _mnk(rng)
    ms = "+".join(str(_size(rng, 512, (1, 8))) for _ in range(rng.choice((1, 3, 8))))
    layout, split_k = rng.choice(GEMM_LAYOUTS), rng.choice((1, 1, 2))
    return GemmGroupedProblem(ms=ms, n=n, k=k, dtype=dtype, layout=layout, split_k=split_k)


def _streamk(rng: Random, dtype: str) -> Problem:
    m, n, _ = _mnk(rng)
    return GemmStreamKProblem(m, n, _size(rng, 16384, (32, 64, 96, 320)), dtype, rng.choice(GEMM_LAYOUTS))


def _conv(direction: Direction) -> Callable[[Random, str], Problem]:
    def draw(rng: Random, dtype: str) -> Problem:
        ndim = rng.choice((2, 2, 3))
        groups = rng.choice((1, 1, 1, 2, 8, 32))
        c, k = (groups * _size(rng, 512 // groups, (1, 2, 4, 8, 24)) for _ in "ck")
        taps, strides, dilations, sizes, pads = ([0] * ndim for _ in range(5))
        for axis in range(ndim):
            taps[axis], strides[axis] = rng.choice((1, 1, 3, 3, 5, 7)), rng.choice((1, 1, 1, 2, 3))
            dilations[axis] = rng.choice((1, 1, 1, 2))
            sizes[axis] = (taps[axis] - 1) * dilations[axis] + rng.randrange(1, 30)
            pads[axis] = rng.choice((0, (taps[axis] - 1) * dilations[axis] // 2))
        names = ("hw", "dhw")[ndim - 2]
        fields: dict[str, Any] = {
            **{f"{axis}i": size for axis, size in zip(names, sizes, strict=True)},
            **dict(zip(("yx", "zyx")[ndim - 2], taps, strict=True)),
            **{f"stride_{axis}": value for axis, value in zip(names, strides, strict=True)},
            **{f"pad_{axis}": value for axis, value in zip(names, pads, strict=True)},
            **{f"dilation_{axis}": value for axis, value in zip(names, dilations, strict=True)},
        }
        n = rng.choice((1, 2, 7, 32))
        return ConvProblem(direction, n=n, c=c, k=k, g=groups, ndim=ndim, dtype=dtype, **fields)

    return draw


# Name -> how a problem is drawn, and the element types that are drawn in turn.
DRAWN: dict[str, tuple[Callable[[Random, str], Problem], tuple[str, ...]]] = {
    "gemm_universal": (_gemm, _FLOAT8),
    "gemm_batched": (_batched, _FLOAT8),
    "gemm_multi_d": (_multi_d, _FLOAT8),
    "gemm_preshuffle": (_preshuffle, _FLOAT8),
    "gemm_grouped": (_grouped, _FLOAT8),
    "gemm_streamk": (_streamk, _FLOAT8),
    **{f"grouped_conv {direction}": (_conv(direction), (*_HALF, "fp32")) for direction in Direction},
}


def problems_of(name: str, count: int) -> list[Problem]:
    """The first irregular problems of a name of `DRAWN`."""
    draw, dtypes = DRAWN[name]
    rng = Random(f"{_SEED} {name}")
    return [draw(rng, dtypes[number % len(dtypes)]) for number in range(count)]


@dataclass(frozen=True, slots=True)
class Asked:
    """What became of an answer.

    Attributes:
        name: what was drawn, as in `DRAWN`.
        arch: the architecture.
        problem: the problem, as the kernel runs it.
        place: place in the answer, from 1.
        kernel: the kernel; empty if there is none.
        status: accepted, refused, not built (the headers lack it, as the answer says) or no kernel; executed kernels
            have a row's status.
        reason: why it is refused.
    """

    name: str
    arch: str
    problem: str
    place: int
    kernel: str
    status: str
    reason: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """The pair that is asked once."""
        return self.arch, self.problem, self.kernel


Pair = tuple[Asked, Any, Any]  # with the problem that runs, and the kernel


def answers(name: str, arch: str, count: int) -> Iterator[Pair]:
    """Yield predict's own answers, not asked yet."""
    for number, problem in enumerate(problems_of(name, count)):
        try:
            best = ckh.rank(problem, top=_TOP if number % _EVERY == 0 else 1, arch=arch)
        except NoKernelError:
            yield Asked(name, arch, problem.canonical(), 1, "", NO_KERNEL), problem, None
            continue
        for place, ranked in enumerate(best, 1):
            run = ranked.padded or problem
            yield Asked(name, arch, run.canonical(), place, full_name(ranked.kernel), ACCEPTED), run, ranked.kernel


def host_libraries(device: HipDevice, kernels: Sequence[Kernel], folder: Path) -> dict[Any, KernelLibrary | str]:
    """Compile the host code of kernels of an operation as one unit; those that cannot be emitted have the reason."""
    sources: dict[Any, str] = {}
    result: dict[Any, KernelLibrary | str] = {}
    for kernel in kernels:
        try:
            sources[kernel] = device.emit(kernel)
        except UnsupportedKernelError as error:  # noqa: PERF203 - each kernel may be refused
            result[kernel] = str(error)
    if not sources:
        return result
    first = next(iter(sources))
    source, library = folder / "unit.cpp", folder / "unit.so"
    source.write_text(device.emit_unit(first, list(sources.values())), encoding="utf-8")
    command = [word for word in device.compile_command(first, source, library) if not word.startswith("-Rpass")]
    run = run_compiler([*command, *_HOST_ONLY], source, _TIMEOUT_S, lambda: False)
    if run is None or run.status is not Status.OK:
        return result | dict.fromkeys(sources, f"{_FAILED}{run.message if run else 'stopped'}")
    ctypes.CDLL(str(emulated_runtime()), ctypes.RTLD_GLOBAL)
    unit = library.read_bytes()
    for number, kernel in enumerate(sources):
        one = folder / f"{number}.so"
        one.write_bytes(chosen(unit, number))
        result[kernel] = KernelLibrary(str(one))
    return result


@contextmanager
def _stderr() -> Iterator[Callable[[], str]]:
    """Collect what C++ writes to stderr."""
    with tempfile.TemporaryFile() as file:
        own = os.dup(2)
        os.dup2(file.fileno(), 2)

        def text() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        try:
            yield text
        finally:
            os.dup2(own, 2)
            os.close(own)


def refusal(library: KernelLibrary, problem: Any) -> str:
    """Why a compiled kernel refuses a problem; empty if it does not."""
    structure = measured_of(operation_of_problem(problem)).computation.c_problem(problem)
    with _stderr() as said:
        reason = library.unsupported(ctypes.byref(structure))
        if reason is None:
            return ""
        return ": ".join(
            (reason.decode(), *dict.fromkeys(line.strip() for line in said().splitlines() if line.strip()))
        )


def ask(device: HipDevice, pairs: Sequence[Pair]) -> Iterator[Asked]:
    """Yield what CK Tile says about pairs of one operation, whose kernels are compiled together."""
    kernels = list(dict.fromkeys(kernel for _, _, kernel in pairs))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        libraries = host_libraries(device, kernels, Path(folder))
        for asked, problem, kernel in pairs:
            library = libraries[kernel]
            if isinstance(library, str):
                status, reason = (REFUSED if library.startswith(_FAILED) else NOT_BUILT), library
            else:
                reason = refusal(library, problem)
                status = REFUSED if reason else ACCEPTED
            yield Asked(asked.name, asked.arch, asked.problem, asked.place, asked.kernel, status, reason)


def units(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    """Group pairs so that each group has at most as many kernels as a compiler takes."""
    by_kernel: dict[Any, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_kernel[pair[2]].append(pair)
    groups = list(by_kernel.values())
    for start in range(0, len(groups), _UNIT):
        yield [pair for group in groups[start : start + _UNIT] for pair in group]


def read(path: Path) -> list[Asked]:
    """Read a file of results, without a truncated last line."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [Asked(**json.loads(line)) for line in lines]


def record(path: Path, some: Sequence[Asked]) -> None:
    """Append results."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(asked)) + "\n" for asked in some)


def table(result: Sequence[Asked]) -> str:
    """Refused and asked answers by operation and architecture as Markdown, and the reasons with an example each."""
    head = "| answers | architecture | problems | asked | refused | executed | right |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    groups: dict[tuple[str, str], list[Asked]] = defaultdict(list)
    for asked in result:
        groups[asked.name, asked.arch].append(asked)
    for (name, arch), some in sorted(groups.items()):
        counts = Counter(asked.status for asked in some)
        asks, right = counts[ACCEPTED] + counts[REFUSED], sum(counts[str(status)] for status in RIGHT)
        executed = sum(counts[str(status)] for status in Status)
        problems = len({asked.problem for asked in some if asked.status in (ACCEPTED, REFUSED)})
        lines.append(f"| {name} | {arch} | {problems} | {asks} | {counts[REFUSED]} | {executed} | {right} |")
    others: dict[str, list[Asked]] = defaultdict(list)
    for asked in result:
        if asked.status not in (ACCEPTED, *map(str, RIGHT)):
            others[f"{asked.status}: {asked.reason}"].append(asked)
    lines += [f"{len(some)} x {why}, e.g. {some[0].kernel} on {some[0].problem}" for why, some in others.items()]
    return "\n".join(lines)


def run(arch: str, some: Sequence[Pair]) -> Iterator[Asked]:
    """Compile accepted kernels for the GPU, and execute them on the emulated one with verification."""
    if not some:
        return
    device = open_device(EMULATED_KIND, DeviceOptions(arch))
    driver = Driver(device, BenchLimits(timeout_s=_TIMEOUT_S, compile_timeout_s=_TIMEOUT_S, jobs=1), lambda: False)
    built = driver.build([kernel for _, _, kernel in some])
    for asked, problem, kernel in some:
        status, reason = built[kernel].status, built[kernel].message
        if status is Status.OK:
            with driver.worker() as worker:
                ((_, reply),) = execute(worker, built[kernel].library, [problem])
            status, reason = reply.status, reply.message
        yield Asked(asked.name, asked.arch, asked.problem, asked.place, asked.kernel, str(status), reason)


def to_execute(pairs: Sequence[Pair], count: int) -> list[Pair]:
    """Choose first answers to execute: of each name in turn the problem with the least work, each kernel once."""
    queues: dict[str, list[Pair]] = defaultdict(list)
    for pair in sorted(pairs, key=lambda pair: pair[1].flops):
        if pair[0].place == 1 and pair[2] not in {kernel for _, _, kernel in queues[pair[0].name]}:
            queues[pair[0].name].append(pair)
    rounds = [queue[turn] for turn in range(count) for queue in queues.values() if turn < len(queue)]
    return rounds[:count]


def main() -> int:
    """Ask, record and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="results, one a line")
    parser.add_argument("--op", nargs="*", default=list(DRAWN), choices=list(DRAWN), help="what to draw")
    parser.add_argument("--arch", nargs="*", default=ARCHS)
    parser.add_argument("--problems", type=int, default=60, help="problems of each operation and architecture")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no compiler after this time")
    parser.add_argument("--execute", type=int, default=0, help="first answers to execute on the emulated GPU")
    parser.add_argument("--table", action="store_true", help="print the results, and ask nothing")
    options = parser.parse_args()
    result = read(options.out) if options.table else asked_now(options)
    print(table(result))
    fine = {ACCEPTED, NO_KERNEL, NOT_BUILT, *map(str, RIGHT)}
    return 0 if all(asked.status in fine for asked in result) else 1


def asked_now(options: argparse.Namespace) -> list[Asked]:
    """Ask what is not in the file, and return the results of today's answers, in the file or new."""
    os.environ[_LOGGING] = "1"
    until = time.monotonic() + 60 * options.minutes
    accepted: list[Pair] = []
    keys: set[tuple[str, str, str]] = set()
    for arch in options.arch:
        device = HipDevice(DeviceOptions(arch))
        for name in options.op:
            known = {asked.key for asked in read(options.out)}
            pairs = list(answers(name, arch, options.problems))
            keys |= {asked.key for asked, _, _ in pairs}
            record(options.out, [asked for asked, _, kernel in pairs if kernel is None and asked.key not in known])
            for unit in units([pair for pair in pairs if pair[2] is not None and pair[0].key not in known]):
                if time.monotonic() > until:
                    break
                record(options.out, list(ask(device, unit)))
            fine = {asked.key for asked in read(options.out) if asked.status == ACCEPTED}
            accepted += [pair for pair in pairs if pair[0].key in fine]
            print(f"{name} {arch}: {len(pairs)} answers", file=sys.stderr, flush=True)
    done = {asked.key for asked in read(options.out) if asked.status in map(str, Status)}
    left = [pair for pair in to_execute(accepted, options.execute) if pair[0].key not in done]
    for arch in options.arch:
        for asked in run(arch, [pair for pair in left if pair[0].arch == arch]):
            record(options.out, [asked])
    return [asked for asked in read(options.out) if asked.key in keys]


if __name__ == "__main__":
    sys.exit(main())
