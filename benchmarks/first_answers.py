"""Whether CK Tile itself accepts the kernels that `ckh predict` puts first, asked of their compiled host code.

    python benchmarks/first_answers.py --out asked.jsonl                  # 200 irregular problems of each operation
    python benchmarks/first_answers.py --out asked.jsonl --op gemm_batched --arch gfx950 --problems 20
    python benchmarks/first_answers.py --out asked.jsonl --minutes 10     # as many as fit; the next call goes on
    python benchmarks/first_answers.py --out asked.jsonl --execute 30     # and run accepted ones on the emulated GPU
    python benchmarks/first_answers.py --out asked.jsonl --table

Problems are drawn with a fixed seed: sizes that are seldom multiples of a tile. The first answer of each is asked, and
after those of all architectures the first five of every tenth problem. Kernels are emitted as `ckh bench` does and
compiled for the host only, in units of one compiler at a time, once for all architectures whose source is the same; the
compiled function that checks a problem before a launch (`ckh_unsupported`, which calls CK Tile's `IsSupportedArgument`)
is then called, which needs no GPU. Every pair of problem and kernel is a line of --out and is not asked again. A
refusal is a rule of ckh's that is wrong: the table names it. It needs a HIP compiler (HIPCC) and CK Tile's headers
(CK_TILE_INCLUDE). The exit code is 1 if a pair was refused, or gave a wrong result.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import chain, cycle, islice
from multiprocessing import get_context
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

ARCHS = ("gfx90a", "gfx942", "gfx950")
_SEED = "first answers"
_TOP, _EVERY = 5, 10  # of every tenth problem, the first five answers are asked
_UNIT = 80  # kernels of a compiler
_TIMEOUT_S = 1800.0
_HALF, _FLOAT8 = ("fp16", "bf16"), ("fp16", "bf16", "fp8")
# Compile for the host only: the GPU's code is left out, and the runtime is the one that is loaded already.
_HOST_ONLY = ("--offload-host-only", "-O0", "-no-hip-rt", "-Wl,--defsym=__hip_fatbin=0")
_PREPARES = re.compile(r"^(inline Launch prepare\([^)]*\) \{\n).*?^\}", re.MULTILINE | re.DOTALL)
_FAILED = "host code: "
_LOGGING = "CK_TILE_LOGGING"  # CK Tile then says why it refuses
ACCEPTED, REFUSED, NOT_BUILT, NO_KERNEL = "accepted", "refused", "not built", "no kernel"
_MOST_DRAWN = 4  # problems without a kernel are replaced by others, up to this many times as many in all

_GEMM = "ckh.ops.gemm_universal.kernels.problem_rules"
_CONV = "ckh.ops.grouped_conv.kernels.problem_rules"
_BATCHED, _STREAMK = "ckh.ops.gemm_batched.operation", "ckh.ops.gemm_streamk.operation"
# Beginning of a name of `DRAWN` -> words of a reason of CK Tile's or of ckh's check before a launch, with the module
# and the rule of ckh's that should have refused the problem; the first that match apply.
RULES_OF_REASONS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "gemm_batched": (
        ("batch_stride", "ckh.ops.gemm_batched.problem", "GemmBatchedProblem"),
        ("2^16 - 1 products", _BATCHED, "_reaches_all"),
        ("too far from the first", _BATCHED, "_reaches_all"),
        ("begins within a vector", _BATCHED, "_aligned"),
        ("leading dimension", "ckh.ops.gemm_batched.problem", "GemmBatchedProblem"),
        ("overlap", "ckh.ops.gemm_batched.problem", "GemmBatchedProblem"),
    ),
    "gemm_multi_d": (("for D tensor", "ckh.ops.gemm_multi_d.operation", "_whole_d"),),
    "gemm_grouped": (
        ("1024 groups", "ckh.ops.gemm_grouped.problem", "GemmGroupedProblem"),
        ("2^31 - 1 tiles", "ckh.ops.gemm_grouped.operation", "GROUPED_RULES"),
    ),
    "gemm_streamk": (
        ("not a multiple of the tile", _STREAMK, "_whole_steps"),
        ("bf16 rows beyond", _STREAMK, "_rows_in_c"),
        ("stored one by one", _STREAMK, "_pairs"),
        ("splits K itself", "ckh.ops.gemm_streamk.problem", "GemmStreamKProblem"),
        ("partial sums take", _STREAMK, "STREAMK_RULES"),
    ),
    "gemm_preshuffle": (("Persistent mode", "ckh.ops.gemm_preshuffle.kernel_rules", "_flatmm"),),
    "gemm": (
        ("without padding", _GEMM, "_padding"),
        ("not padded if it has", _GEMM, "_overrun"),
        ("reads beyond it", _GEMM, "_overrun"),
        ("not padded", _GEMM, "_padding"),
        ("multiple of vector load size", _GEMM, "_whole_vectors"),
        ("Kbatch >1", _GEMM, "_split_k"),
        ("stored one by one", _GEMM, "_split_k"),
        ("leaves nothing", _GEMM, "_split_k"),
        ("2^16 - 1 parts", _GEMM, "_split_k"),
        ("runs and ends", _GEMM, "_parts_alike"),
        ("bf16 rows beyond", _GEMM, "_rows_of_c"),
        ("32-bit offsets", _GEMM, "_addressable"),
    ),
    "grouped_conv": (
        ("multiple of vector", _CONV, "_vector_divisibility"),
        ("NumGroupsToMerge", _CONV, "_merged_groups"),
        ("Kbatch >1", "ckh.ops.grouped_conv.kernels.arch_rules", "_split_k"),
        ("differ in how", _CONV, "_gemms_alike"),
        ("single step", _CONV, "_least_trips"),
        ("2^31 - 1", _CONV, "_addressable"),
    ),
    "grouped_conv bwd_data": (("IsSupportedArgument refuses it", _CONV, "_specialization or _countable"),),
    "grouped_conv ": (("IsSupportedArgument refuses it", _CONV, "_specialization"),),
}


def rule_of(name: str, reason: str) -> str:
    """The module and rule of ckh's that let a kernel of a name of `DRAWN` pass that CK Tile refuses for this reason."""
    if reason.startswith(_FAILED):
        return f"rules of ckh.ops.{name.partition(' ')[0]} for what the headers build"
    for beginning, rules in RULES_OF_REASONS.items():
        for words, module, rule in rules if name.startswith(beginning) else ():
            if words in reason:
                return f"{module}:{rule}"
    return "no rule of ckh's is known for this reason"


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


def problems_of(name: str) -> Iterator[Problem]:
    """Draw the irregular problems of a name of `DRAWN`, the same in every run."""
    draw, dtypes = DRAWN[name]
    rng = Random(f"{_SEED} {name}")
    return (draw(rng, dtype) for dtype in cycle(dtypes))


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
Library = KernelLibrary | str  # or why it cannot be compiled


def answers(name: str, arch: str, count: int) -> Iterator[Pair]:
    """Yield predict's own answers for problems of which this many have one, not asked yet."""
    answered = 0
    for number, problem in enumerate(islice(problems_of(name), _MOST_DRAWN * count)):
        if answered == count:
            return
        try:
            best = ckh.rank(problem, top=_TOP if number % _EVERY == 0 else 1, arch=arch)
        except NoKernelError:
            yield Asked(name, arch, problem.canonical(), 1, "", NO_KERNEL), problem, None
            continue
        answered += 1
        for place, ranked in enumerate(best, 1):
            run = ranked.padded or problem
            yield Asked(name, arch, run.canonical(), place, full_name(ranked.kernel), ACCEPTED), run, ranked.kernel


def host_libraries(device: HipDevice, first: Kernel, sources: Sequence[str], folder: Path) -> Iterator[Library]:
    """Compile the host code of kernels of an operation as one unit, and yield their libraries in order.

    A kernel that does not compile has the reason.
    """
    source, library = folder / "unit.cpp", folder / "unit.so"
    # The check instantiates all that it reads; what a launch instantiates beside takes a quarter of the time.
    source.write_text(_PREPARES.sub(r"\1return {};\n}", device.emit_unit(first, sources)), encoding="utf-8")
    command = [word for word in device.compile_command(first, source, library) if not word.startswith("-Rpass")]
    run = run_compiler([*command, *_HOST_ONLY], source, _TIMEOUT_S, lambda: False)
    if run is None or run.status is not Status.OK:
        if len(sources) == 1:
            yield f"{_FAILED}{run.message if run else 'stopped'}"
            return
        for half in (sources[: len(sources) // 2], sources[len(sources) // 2 :]):
            yield from host_libraries(device, first, half, folder)
        return
    ctypes.CDLL(str(emulated_runtime()), ctypes.RTLD_GLOBAL)
    unit = library.read_bytes()
    for number in range(len(sources)):
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".so") as one:
            one.write(chosen(unit, number))
            one.flush()
            yield KernelLibrary(one.name)


@contextmanager
def _stderr() -> Iterator[Callable[[], str]]:
    """Collect what C++ writes to stderr; what it writes to stdout is left out."""
    with tempfile.TemporaryFile() as file, Path(os.devnull).open("wb") as nowhere:
        own = {number: os.dup(number) for number in (1, 2)}
        os.dup2(nowhere.fileno(), 1)
        os.dup2(file.fileno(), 2)

        def text() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        try:
            yield text
        finally:
            for number, saved in own.items():
                os.dup2(saved, number)
                os.close(saved)


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


def sources_of(pairs: Sequence[Pair]) -> tuple[dict[str, list[Pair]], list[Asked]]:
    """Emit the kernels of pairs; return the pairs of each source, and those that cannot be emitted, with the reason."""
    devices = {arch: HipDevice(DeviceOptions(arch)) for arch in {asked.arch for asked, _, _ in pairs}}
    sources: dict[str, list[Pair]] = defaultdict(list)
    not_built = []
    for pair in pairs:
        try:
            sources[devices[pair[0].arch].emit(pair[2])].append(pair)
        except UnsupportedKernelError as error:  # noqa: PERF203 - each kernel may be refused
            not_built.append(replace(pair[0], status=NOT_BUILT, reason=str(error)))
    return dict(sources), not_built


def ask(sources: dict[str, list[Pair]]) -> Iterator[Asked]:
    """Yield what CK Tile says about pairs of one operation, whose kernels are compiled together."""
    first = next(iter(sources.values()))[0]
    device = HipDevice(DeviceOptions(first[0].arch))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        libraries = host_libraries(device, first[2], list(sources), Path(folder))
        for library, pairs in zip(libraries, sources.values(), strict=True):
            for asked, problem, _ in pairs:
                reason = library if isinstance(library, str) else refusal(library, problem)
                yield replace(asked, status=REFUSED if reason else ACCEPTED, reason=reason)


def asked_of(sources: dict[str, list[Pair]]) -> list[Asked]:
    """List what CK Tile says about pairs of one operation."""
    return list(ask(sources))


def units(sources: dict[str, list[Pair]]) -> Iterator[dict[str, list[Pair]]]:
    """Group sources so that each group has at most as many kernels as a compiler takes."""
    groups = iter(sources.items())
    while unit := dict(islice(groups, _UNIT)):
        yield unit


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
            wrong = f" ({rule_of(asked.name, asked.reason)})" if asked.status == REFUSED else ""
            others[f"{asked.status}: {asked.reason}{wrong}"].append(asked)
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
    parser.add_argument("--problems", type=int, default=200, help="problems of each operation and architecture")
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
    known = {asked.key for asked in read(options.out)}
    pairs: dict[str, list[Pair]] = {}
    for is_first in (True, False):
        for name in options.op:
            if name not in pairs:
                pairs[name] = [pair for arch in options.arch for pair in answers(name, arch, options.problems)]
            left = [pair for pair in pairs[name] if pair[0].key not in known and (pair[0].place == 1) is is_first]
            record(options.out, [asked for asked, _, kernel in left if kernel is None])
            sources, not_built = sources_of([pair for pair in left if pair[2] is not None])
            record(options.out, not_built)
            for unit in units(sources):
                if time.monotonic() > until:
                    break
                with get_context("fork").Pool(1) as process:  # which ends with the libraries that it has loaded
                    record(options.out, process.apply(asked_of, (unit,)))
            print(f"{name}: {len(left)} answers, {len(sources)} kernels", file=sys.stderr, flush=True)
    every = list(chain.from_iterable(pairs.values()))
    fine = {asked.key for asked in read(options.out) if asked.status == ACCEPTED}
    done = {asked.key for asked in read(options.out) if asked.status in map(str, Status)}
    to_run = to_execute([pair for pair in every if pair[0].key in fine], options.execute)
    for arch in options.arch:
        for asked in run(arch, [pair for pair in to_run if pair[0].arch == arch and pair[0].key not in done]):
            record(options.out, [asked])
    keys = {asked.key for asked, _, _ in every}
    return [asked for asked in read(options.out) if asked.key in keys]


if __name__ == "__main__":
    sys.exit(main())
