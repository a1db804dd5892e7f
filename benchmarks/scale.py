"""CPU seconds and peak memory of commands by the size of their input: one table, with exponents.

    python benchmarks/scale.py --out FOLDER [--only WORK ...] [--most SIZE]

Each work runs at several sizes, smaller ones first, each as a process of its own with at most 20 CPU minutes; inputs
are made in the folder from seeds and deleted afterwards. A measured row is a line of FOLDER/scale.jsonl and is not
measured again. An exponent is the slope of log cost over log size between the two largest sizes; below 1 a fixed part
still counts. Where 24 GiB end is extrapolated along the memory of these two. Times in inputs are made up.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs

from ckh.archs import load_arch
from ckh.bench.devices.device import HOST_KIND, DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.bench.planning.plan import Plan, Task
from ckh.bench.planning.registry import write_registry
from ckh.bench.planning.results import plan_records
from ckh.bench.supervision.runner import new_record
from ckh.data.journal import JOURNAL_NAME
from ckh.data.journal_records import ResultRow, RunRecord, record_line
from ckh.data.settings import Settings
from ckh.kernels.pipelines import Scheduler
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.grouped_conv.amd_csv import AMD_COLUMNS
from ckh.ops.grouped_conv.kernel import amd_short_name, kernel_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ckh.ops.grouped_conv.kernel import ConvKernel

_ARCH = "gfx942"
_TREES = ("--trees", "20", "--folds", "3", "--jobs", "1")
_CPU_MINUTES, _LIMIT_GIB = 20, 24
# A small process, whose children are the command alone: a child of this process would begin with its peak.
_PARENT = """
import json, resource, subprocess, sys
seconds = int(sys.argv[1])
limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
with open(sys.argv[2], "wb") as out:
    code = subprocess.call(sys.argv[3:], stdout=out, stdin=subprocess.DEVNULL, preexec_fn=limit)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"code": code, "seconds": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / 1024}))
"""


@dataclass(frozen=True, slots=True)
class _Measured:
    """A problem with its synthetic time on each kernel, in ms."""

    problem: ConvProblem
    ms: NDArray[np.float64]


def _pool() -> tuple[ConvKernel, ...]:
    """Kernels with distinct short names."""
    by_name = {amd_short_name(kernel): kernel for kernel in conv_pool(Direction.FORWARD, load_arch(_ARCH), 2, "bf16")}
    return tuple(by_name.values())


def _measured(kernels: int, rows: int, seed: int, dtype: str = "bf16") -> Iterator[_Measured]:
    """As many problems as needed, with a different speed of each kernel."""
    random = np.random.default_rng(seed)
    speed = random.uniform(20.0, 200.0, kernels)
    for number in range(-(-rows // kernels)):
        n, c, k = (int(2 ** random.integers(low, high)) for low, high in ((0, 7), (4, 11), (4, 11)))
        # Distinct problems, by their height.
        high, wide, taps = 7 + number // 50, 7 + number % 50, int(random.choice((1, 3)))
        problem = ConvProblem(
            Direction.FORWARD, n=n, c=c, k=k, g=1, hi=high, wi=wide, y=taps, x=taps,
            pad_h=taps // 2, pad_w=taps // 2, dtype=dtype,
        )  # fmt: skip
        yield _Measured(problem, problem.flops / (speed * random.uniform(0.5, 1.5, kernels)) / 1e9)


def write_amd_csv(path: Path, rows: int, seed: int = 0) -> None:
    """A CSV file of AMD's benchmark: every forward kernel on as many problems as needed."""
    names = list(map(amd_short_name, _pool()))
    with path.open("w", encoding="ascii", newline="") as file:
        file.write(",".join(AMD_COLUMNS) + "\r\n")
        for number, measured in enumerate(_measured(len(names), rows, seed)):
            size = ",".join(map(str, (number, *measured.problem.columns().values())))
            lines = [
                f"{name},{size},{ms:.6g},{measured.problem.flops / ms / 1e9:.6g},9\r\n"
                for name, ms in zip(names, measured.ms.tolist(), strict=True)
            ]
            file.writelines(lines[: rows - number * len(names)])


def write_journal(path: Path, rows: int, seed: int = 0) -> None:
    """A journal with this many rows, the last ones of each problem being remeasurements."""
    kernels, arch = _pool(), load_arch(_ARCH)
    names = list(map(kernel_name, kernels))
    run = RunRecord(
        run_id="run",
        ckh_version="0",
        started="2026-01-01T00:00:00",
        device_kind="hip",
        arch=_ARCH,
        device="made up",
        clock_mhz=2100,
        hardware=arch.hardware.to_dict(),
        compiler="none",
        flags=(),
        seed=seed,
        samples=3,
        variant="forward",
        problems="made up",
        kernels="all",
        dtype="bf16",
    )
    again = names[::10]
    with path.open("w", encoding="ascii") as file:
        file.write(record_line(run))
        for number, measured in enumerate(_measured(len(names), rows, seed)):
            text = measured.problem.canonical()
            pairs = [
                *zip(names, measured.ms.tolist(), strict=True),
                *zip(again, (measured.ms[::10] * 1.01).tolist(), strict=True),
            ]
            file.writelines(
                record_line(_row(text, name, ms, is_again=place >= len(names)))
                for place, (name, ms) in enumerate(pairs[: max(0, rows - number * len(pairs))])
            )


def write_host_run(folder: Path, rows: int, seed: int = 0) -> None:
    """A run on this host's folder whose journal has its plan, with one pair more than rows, and the rows."""
    kernels = conv_pool(Direction.FORWARD, load_arch(HOST_KIND), 2, "fp32")
    settings = Settings(variant="forward", problems="made up", kernels="all", dtype="fp32", seed=seed, samples=3)
    measured = list(_measured(len(kernels), rows + 1, seed, "fp32"))
    tasks = [Task(item.problem, kernels) for item in measured]
    tasks[-1] = Task(measured[-1].problem, kernels[: rows + 1 - len(kernels) * (len(tasks) - 1)])
    plan = Plan(tuple(tasks), {})
    run = new_record(open_device(HOST_KIND, DeviceOptions()).identity(), settings, plan.pairs)
    folder.mkdir()
    with (folder / JOURNAL_NAME).open("w", encoding="ascii") as file:
        file.writelines(map(record_line, (run, *plan_records(run.run_id, plan))))
        for number, item in enumerate(measured):
            text, left = item.problem.canonical(), rows - number * len(kernels)
            for kernel, ms in list(zip(map(kernel_name, kernels), item.ms.tolist(), strict=True))[:left]:
                file.write(record_line(structs.replace(_row(text, kernel, ms, is_again=False), run_id=run.run_id)))


def _row(problem: str, kernel: str, ms: float, *, is_again: bool) -> ResultRow:
    samples = (ms * 1e6, ms * 1e6, ms * 1e6)
    return ResultRow("run", problem, kernel, Status.OK, "", ms, ms, 0.01, samples, 4, remeasured=is_again)


def write_problems(path: Path, count: int, seed: int = 0) -> None:
    """A list of distinct fp16 GEMMs as text."""
    random, names = np.random.default_rng(seed), dict[str, None]()
    while len(names) < count:
        m, n, k = random.integers((1, 8, 2), (8192, 2048, 256)).tolist()
        names[f"gemm_fp16_rcr_m{m}_n{8 * n}_k{64 * k}_splitk1"] = None
    path.write_text("\n".join(names) + "\n", encoding="ascii")


def write_convs(path: Path, count: int, seed: int = 0) -> None:
    """A list of distinct bf16 convolutions as text."""
    items = _measured(1, count, seed)
    path.write_text("\n".join(item.problem.canonical() for item in items) + "\n", encoding="ascii")


def write_kernels(path: Path, count: int) -> None:
    """A registry of distinct GEMM kernels, most of which no GPU can run: the tiles of a kernel, multiplied."""
    kernel = GemmKernel(
        "fp16", "rcr", 32, 32, 32, "compv3", Scheduler.INTRAWAVE, 2, 2, 1, 16, 16, 16, "cshuffle",
        pad_m=False, pad_n=False, pad_k=False, persistent=False,
        vector_a=0, vector_b=0, vector_c=0,
    )  # fmt: skip
    side = math.ceil(count ** (1 / 3))
    tiles = ((32 * (1 + n // side**2), 32 * (1 + n // side % side), 16 * (1 + n % side)) for n in range(count))
    write_registry(path, [replace(kernel, tile_m=m, tile_n=n, tile_k=k) for m, n, k in tiles], arch=_ARCH)


def write_onnx(path: Path, megabytes: int) -> None:
    """A graph of small matrix products in a row, each with its weights."""
    import onnx

    random, size, nodes, weights = np.random.default_rng(0), 16, [], []
    for number in range(megabytes * 1_000_000 // (2 * size**2 + 90)):
        values = random.normal(size=(size, size)).astype(np.float16)
        weights.append(onnx.numpy_helper.from_array(values, f"w{number}"))
        nodes.append(onnx.helper.make_node("MatMul", [f"x{number}", f"w{number}"], [f"x{number + 1}"]))
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT16, [64, size])
        for name in ("x0", f"x{len(nodes)}")
    ]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)), path)


def write_log(path: Path, megabytes: int) -> None:
    """A log of hipBLASLt's and MIOpen's lines, of 4,000 shapes, among as many of a server."""
    random = np.random.default_rng(0)
    sizes = (2 ** random.integers(4, 13, (4000, 3))).tolist()
    parts = [
        f"[2026-01-01 00:00:{number % 60:02}] INFO engine step {number}: 17 running, 3 waiting\n"
        f"hipblaslt-bench --api_method c -m {m} -n {n} -k {k} --lda {k} --ldb {k} --ldc {m} --ldd {m} --stride_a 0 "
        "--stride_b 0 --stride_c 0 --stride_d 0 --alpha 1.000000 --beta 0.000000 --transA T --transB N "
        "--batch_count 1 --a_type bf16_r --b_type bf16_r --c_type bf16_r --d_type bf16_r --compute_type f32_r\n"
        f"MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convbfp16 -n {1 + number % 8} -c {m} -H 28 -W 28 "
        f"-k {n} -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1\n"
        for number, (m, n, k) in enumerate(sizes)
    ]
    block = "".join(parts)
    with path.open("w", encoding="ascii") as file:
        for _ in range(max(1, megabytes * 1_000_000 // len(block))):
            file.write(block)


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of a command and its children, and the largest resident set of one of them, in MB of 2**20 bytes."""

    seconds: float
    peak_mb: float


def cost(*arguments: str | Path, folder: Path | None = None) -> Cost:
    """Cost of a ckh command; its standard output goes to a file in the folder."""
    out = Path("/dev/null") if folder is None else folder / "stdout"
    command = [sys.executable, "-m", "ckh", *map(str, arguments)]
    parent = [sys.executable, "-I", "-S", "-c", _PARENT, str(60 * _CPU_MINUTES), str(out)]
    done = subprocess.run([*parent, *command], check=True, capture_output=True, text=True)
    used = json.loads(done.stdout)
    if used.pop("code"):
        raise SystemExit(f"{' '.join(command)}:\n{done.stderr[-2000:]}")
    return Cost(**used)


def _converted(folder: Path, rows: int, seed: int = 0) -> Path:
    """A dataset of this many rows, made once."""
    data, table = folder / f"{rows}-{seed}.parquet", folder / f"{rows}-{seed}.csv"
    if not data.exists():
        write_amd_csv(table, rows, seed)
        cost("convert", table, "--arch", _ARCH, "--out", data)
        table.unlink()
    return data


def _trained(folder: Path, rows: int) -> Path:
    """A model of this many rows, made once."""
    model = folder / f"{rows}.model"
    if not model.exists():
        cost("train", _converted(folder, rows), "--out", model, *_TREES)
    return model


@dataclass(frozen=True, slots=True)
class Work:
    """A command whose cost is measured, the smallest size first."""

    what: str
    unit: str
    sizes: tuple[int, ...]
    command: Callable[[Path, int], tuple[str | Path, ...]]  # makes its input in a folder

    def rows(self, folder: Path, known: Path, most: int) -> Iterator[tuple[int, Cost]]:
        """Measure what is not known yet, and yield all."""
        lines = known.read_text(encoding="ascii").splitlines() if known.exists() else []
        done = {(row["what"], row["size"]): Cost(row["seconds"], row["peak_mb"]) for row in map(json.loads, lines)}
        for size in self.sizes:
            if (self.what, size) not in done and size <= most:
                inside = folder / "made"
                shutil.rmtree(inside, ignore_errors=True)
                inside.mkdir(parents=True)
                measured = done[self.what, size] = cost(*self.command(inside, size), folder=inside)
                shutil.rmtree(inside)
                with known.open("a", encoding="ascii") as file:
                    file.write(json.dumps({"what": self.what, "size": size, **asdict(measured)}) + "\n")
                print(f"{self.what} {size}: {measured}", file=sys.stderr, flush=True)
            if (self.what, size) in done:
                yield size, done[self.what, size]


def _of(write: Callable[[Path, int], None], name: str, *arguments: str, out: str = "") -> Callable[[Path, int], Any]:
    """The command on a file that `write` makes; `@` stands for the file."""

    def command(folder: Path, size: int) -> tuple[str | Path, ...]:
        write(folder / name, size)
        words = [folder / name if word == "@" else word for word in arguments]
        return (*words, *(("--out", folder / out) if out else ()))

    return command


_1K, _10K, _100K, _1M, _10M = (10**power for power in range(3, 8))
_GPU, _MANY = ("--arch", _ARCH), ("--top", "1", "--json")
WORKS = (
    Work("predict --problems, GEMMs by the estimate", "problems", (_1K, _10K, _100K),
         _of(write_problems, "list.txt", "predict", "--problems", "@", *_GPU, *_MANY)),
    Work("predict --problems, convolutions by a model", "problems", (_1K, _10K, _100K),
         _of(write_convs, "list.txt", "predict", "--problems", "@", "--arch", "gfx950", *_MANY)),
    Work("predict --kernels, a registry", "kernels", (_1K, _10K, _100K),
         _of(write_kernels, "list.json", "predict", "--m", "512", "--n", "512", "--k", "512", *_GPU,
             "--dtype", "fp16", "--kernels", "@")),
    Work("convert, AMD's CSV", "rows", (_100K, _1M, _10M),
         _of(write_amd_csv, "t.csv", "convert", "@", *_GPU, out="o")),
    Work("convert --to csv, AMD's CSV", "rows", (_100K, _1M),
         _of(write_amd_csv, "t.csv", "convert", "@", *_GPU, "--to", "csv", out="o")),
    Work("convert, a journal", "rows", (_100K, _1M), _of(write_journal, "j.jsonl", "convert", "@", out="o")),
    Work("bench --resume --dry-run", "rows", (_100K, _1M),
         _of(write_host_run, "run", "bench", "--resume", "--device", HOST_KIND, "--dry-run", "--out", "@")),
    Work("train, 20 trees, 3 folds", "rows", (_10K, _100K, _1M),
         lambda folder, rows: ("train", _converted(folder, rows), "--out", folder / "m", *_TREES)),
    Work("evaluate", "rows", (_1K, _10K, _100K, _1M),
         lambda folder, rows: ("evaluate", "--model", _trained(folder, _10K), "--data", _converted(folder, rows, 1))),
    Work("report of a model", "rows", (_1K, _10K, _100K, _1M),
         lambda folder, rows: ("report", _trained(folder, _10K), "--data", _converted(folder, rows, 1),
                               "--out", folder / "r.html")),
    Work("report of data", "rows", (_1K, _10K, _100K, _1M),
         lambda folder, rows: ("report", _converted(folder, rows), "--out", folder / "r.html")),
    Work("search set, 20 kernels", "rows", (_1K, _10K, _100K),
         lambda folder, rows: ("search", "set", "--size", "20", "--data", _converted(folder, rows))),
    Work("shapes of an ONNX file", "MB", (1, 5, 50), _of(write_onnx, "m.onnx", "shapes", "@")),
    Work("shapes of a log", "MB", (10, 100, 1000), _of(write_log, "l.log", "shapes", "@")),
)  # fmt: skip


def exponent(costs: list[tuple[int, float]]) -> float:
    """Slope of log cost over log size between the two largest sizes; NaN for one size."""
    if len(costs) < 2:  # noqa: PLR2004
        return math.nan
    (few, little), (many, much) = costs[-2:]
    return math.log(much / little) / math.log(many / few)


def end_of_memory(peaks: list[tuple[int, float]]) -> float:
    """Size at which memory ends, along a line through the two largest sizes; infinite if it does not grow."""
    (few, little), (many, much) = peaks[-2:]
    slope = (much - little) / (many - few)
    return math.inf if much < 1.1 * little else few + (_LIMIT_GIB * 1024 - little) / slope


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the rows, and of inputs while they are used")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORK", help="works that begin so")
    parser.add_argument("--most", type=int, default=_10M, help="largest size to measure")
    options = parser.parse_args()
    print(f"| work | by | CPU seconds, peak MB | exponents | {_LIMIT_GIB} GiB end at |\n|---|---|---|---|---|")
    for work in WORKS:
        if not work.what.startswith(tuple(options.only)):
            continue
        rows = list(work.rows(options.out, options.out / "scale.jsonl", options.most))
        seconds, peaks = ([(size, getattr(row, name)) for size, row in rows] for name in ("seconds", "peak_mb"))
        cells = "; ".join(f"{size:,}: {row.seconds:.1f}, {row.peak_mb:.0f}" for size, row in rows)
        end = end_of_memory(peaks) if len(rows) > 1 else math.nan
        limit = "no growth" if math.isinf(end) else f"{end:.1e}"
        print(f"| {work.what} | {work.unit} | {cells} | {exponent(seconds):.2f}, {exponent(peaks):.2f} | {limit} |")


if __name__ == "__main__":
    main()
