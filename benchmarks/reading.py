"""CPU seconds and memory of readers by the size of their input: one table, with fitted exponents.

    python benchmarks/reading.py [--only READER...] [--scale 1.0]

The size of each input is doubled three times; the cost of a size is the least of three. The exponent of CPU seconds is
the slope of a line through the logarithms of all four, that of memory is between the two largest. Each reading is in a
process of its own, forked when the input and all modules are there; memory is the growth of its peak resident set.
Inputs are made up; those of code objects are hostile too.
"""

from __future__ import annotations

# ruff: noqa: SLF001 - steps of ckh tune and ckh export, without the commands
import argparse
import gc
import gzip
import json
import lzma
import os
import struct
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.scale import write_kernels, write_log
from ckh.bench.planning.registry import read_registry
from ckh.data.formats import ReadOptions
from ckh.data.readers import read_input
from ckh.emulator.codeobject import _MOST_ENTRIES, BUNDLE_MAGIC
from ckh.errors import CkhError
from ckh.isa.codefile import read_code
from ckh.learn.models.manifest import our_manifest, trained_problems
from ckh.learn.models.measured_set import read_measured
from ckh.ops import operation
from ckh.ops.aiter.installed import own_table
from ckh.ops.aiter_gemm.consumers import _table as gemm_table
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.shapes.layers import WeightedProblem
from ckh.tune import steps
from ckh.tune.page import page
from ckh.tune.settings import TuneSettings, progress_of
from ckh.tune.tuning import ModelTuning
from tests.isa.keep import FOLDER, LEAST
from tests.reliability import samples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SIZES, _TIMES, _MIB = 4, 3, 1 << 20
_LITTLE_MB = 10
_DYNAMIC_SYMBOLS = 11
_AITER = ("M", "N", "K", "q_dtype_w", "gfx", "cu_num", "kernelId", "splitK", "us", "kernelName")


@dataclass(frozen=True, slots=True)
class Reading:
    """A reader: its input, made in a folder for a size, and the call that reads it."""

    what: str
    unit: str
    first: int
    make: Callable[[Path, int], Callable[[], object]]


def _mapped(folder: Path, rows: int) -> Callable[[], object]:
    head, *lines = samples.tile_engine_csv()[0].decode().splitlines()
    place = head.split(",").index("M")
    cells = [lines[number % len(lines)].split(",") for number in range(rows)]
    texts = [",".join([*row[:place], str(number + 1), *row[place + 1 :]]) for number, row in enumerate(cells)]
    (folder / "t.csv").write_text("\n".join([head, *texts]), encoding="utf-8")
    maps = {"kernel": "kernel", "m": "M", "n": "N", "k": "K", "latency_us": "latency_ms"}
    options = ReadOptions("gfx942", op="gemm_universal", mapping=maps)
    return lambda: read_input(folder / "t.csv", options)


def _registry(folder: Path, kernels: int) -> Callable[[], object]:
    _apart(lambda: write_kernels(folder / "k.json", kernels))
    return lambda: read_registry(folder / "k.json", operation("gemm_universal"))


def _names(folder: Path, kernels: int) -> Callable[[], object]:
    op = operation("gemm_universal")

    def write() -> None:
        write_kernels(folder / "k.json", kernels)
        names = map(op.kernels.name, read_registry(folder / "k.json", op).kernels)
        (folder / "k.txt").write_text("\n".join(names), encoding="utf-8")

    _apart(write)
    return lambda: [op.kernels.parse(name) for name in (folder / "k.txt").read_text("utf-8").splitlines()]


def _apart(write: Callable[[], None]) -> None:
    """Make an input in a process of its own, so that what it parses is not cached here."""
    if not (child := os.fork()):
        write()
        os._exit(0)
    os.waitpid(child, 0)


class _Line:
    """A row to be merged."""

    is_predicted = True

    def __init__(self, m: int) -> None:
        self._m = m

    def cells(self) -> dict[str, Any]:
        """Its cells."""
        sizes = {"M": self._m, "N": 1280, "K": 8192, "q_dtype_w": "torch.int8", "gfx": "gfx942", "cu_num": 80}
        return {**sizes, "kernelId": 1, "splitK": 0, "us": 9.5, "kernelName": "k"}


def _merged(folder: Path, rows: int) -> Callable[[], object]:
    table = gemm_table("a8w8")
    (folder / "configs").mkdir()
    lines = [f"{2 * number},1280,8192,torch.int8,gfx942,80,1,0,9.5,k" for number in range(rows)]
    path = folder / "configs" / f"{table.name}.csv"
    path.write_text("\n".join([",".join(_AITER), *lines]), encoding="utf-8")
    own_table.cache_clear()

    def read() -> object:
        own = table.of_root(folder)
        added: list[Any] = [_Line(number) for number in range(rows)]
        near = [own.but_for("M", line.cells())[:1] for line in added]
        return near, own.merged(added, table.columns)

    return read


def _tuned(folder: Path, shapes: int) -> Callable[[], object]:
    kernel = "gemm_universal_fp32_rcr_compv3_cshuffle_intrawave_False_False_False_False_64x64x64_2x2x1_32x32x8"
    problems = [f"gemm_fp32_rcr_m{number + 1}_n128_k64_splitk1" for number in range(shapes)]
    chosen = {"kernel": kernel, "latency_ms": 0.01}
    answers = [
        {"problem": text, "padded": None, "arch": "gfx942", "kernels": [chosen], "predicted_interval": [0.8, 1.2]}
        for text in problems
    ]
    choices = [{"problem": text, "kernel": kernel, "us": 11.0, "written": False} for text in problems]
    missing = [{"problem": text, "reason": "none"} for text in problems]
    document = json.dumps({"results": answers, "choices": choices, "missing": missing})
    settings = TuneSettings(tuple(problems), device="hip", to="aiter", installed="aiter")
    for name in (steps.BEFORE, steps.EXPORTED):
        (folder / name).write_text(document, encoding="ascii")
    progress_of(folder, settings)
    weighted = [WeightedProblem("gemm_universal", GemmProblem.parsed(text), 2, ("qkv",), "") for text in problems]

    def read() -> object:
        tuning: Any = object.__new__(ModelTuning)
        tuning.settings, tuning.out, tuning._measured_run, tuning._held_out_efficiency = settings, folder, None, None
        tuning._left_out = tuning._padded = ()
        rows, predicted, _ = tuning._rows("gemm_universal", weighted, None)
        return progress_of(folder, settings), page(tuning._document("gemm_universal", rows, predicted, None), "1m", ())

    return read


def _model(folder: Path, problems: int) -> Callable[[], object]:
    names = [f"{number:016x}" for number in range(problems)]
    manifest = {"ckh": {"rank_objective": "lambdarank", "problems": names, "rows": problems, "seed": 42}, "params": {}}
    (folder / "train_manifest.json").write_text(json.dumps(manifest), encoding="ascii")
    known = json.loads(samples.measured()[0])
    values = np.random.default_rng(0).integers(1, 9, (problems, len(known["sizes"]))).tolist()
    known |= {"problems": names, "values": values, "best": [[0, 0.5]] * problems}
    (folder / "measured.json.gz").write_bytes(gzip.compress(json.dumps(known).encode(), mtime=0))
    sizes = list(map(str.lower, operation("grouped_conv").problems.sizes))
    return lambda: (our_manifest(folder), trained_problems(folder), read_measured(folder, sizes))


def _forest(folder: Path, trees: int) -> Callable[[], object]:
    import lightgbm

    from ckh.ranking.lightgbm_text import parse_forest

    random = np.random.default_rng(0)
    data = lightgbm.Dataset(random.normal(size=(2000, 9)), random.normal(size=2000))
    text = lightgbm.train({"num_leaves": 31, "verbose": -1, "num_threads": 1}, data, trees).model_to_string()
    (folder / "m").write_text(text, encoding="ascii")
    return lambda: parse_forest((folder / "m").read_text(encoding="ascii"))


def _code() -> bytes:
    return lzma.decompress((FOLDER / f"{LEAST}.co.xz").read_bytes())


def _explained(folder: Path, content: bytes) -> Callable[[], object]:
    path = folder / "k.co"
    path.write_bytes(content)

    def read() -> object:
        try:
            return read_code(path, None)
        except CkhError as error:
            return error

    return read


def _sections(folder: Path, count: int) -> Callable[[], object]:
    """As many sections of symbols as symbols, all with the same symbols."""
    code = bytearray(_code())
    place, number = struct.unpack_from("<Q", code, 40)[0], struct.unpack_from("<H", code, 60)[0]
    sections = [bytes(code[place + 64 * i : place + 64 * i + 64]) for i in range(number)]
    symbols = list(
        struct.unpack("<IIQQQQIIQQ", next(s for s in sections if struct.unpack_from("<I", s, 4)[0] == _DYNAMIC_SYMBOLS))
    )
    symbol = bytes(code[symbols[4] + 24 : symbols[4] + 48])
    symbols[4], symbols[5] = len(code), 24 * count
    code += symbol * count
    struct.pack_into("<Q", code, 40, len(code))
    code += b"".join([*sections, *[struct.pack("<IIQQQQIIQQ", *symbols)] * count])
    struct.pack_into("<H", code, 60, number + count)
    return _explained(folder, bytes(code))


def _symbols(folder: Path, count: int) -> Callable[[], object]:
    """One section of many symbols."""
    code = bytearray(_code())
    place, number = struct.unpack_from("<Q", code, 40)[0], struct.unpack_from("<H", code, 60)[0]
    at = next(
        place + 64 * i
        for i in range(number)
        if struct.unpack_from("<I", code, place + 64 * i + 4)[0] == _DYNAMIC_SYMBOLS
    )
    start, size = struct.unpack_from("<QQ", code, at + 24)
    own = bytes(code[start : start + size])
    struct.pack_into("<QQ", code, at + 24, len(code), size + 24 * count)
    return _explained(folder, bytes(code) + own + own[24:48] * count)


def _bundled(offset: int, size: int, name: bytes) -> bytes:
    return BUNDLE_MAGIC + struct.pack("<QQQQ", 1, offset, size, len(name)) + name


def _bundles_of_one_code(folder: Path, count: int) -> Callable[[], object]:
    """Many bundles before a code object, each of which has all that follows it."""
    name, code = b"hip-amdgcn-amd-amdhsa--gfx942", _code() * (count // 100 + 1)
    size = len(_bundled(0, 0, name))
    parts = [_bundled((count - number) * size, len(code), name) for number in range(count)]
    return _explained(folder, b"\0" + b"".join(parts) + code)


def _bundles_in_bundles(folder: Path, count: int) -> Callable[[], object]:
    """Many bundles, whose entries are those of all that follow: each is the name of an entry of those before."""
    inner = struct.pack("<QQQ", 0, 0, len(BUNDLE_MAGIC) + 8)
    starts = (BUNDLE_MAGIC + struct.pack("<Q", min(left, _MOST_ENTRIES)) for left in range(count, 0, -1))
    return _explained(folder, b"\0" + b"".join(start + inner for start in starts))


def _logged(folder: Path, megabytes: int) -> Callable[[], object]:
    from ckh.shapes.problems import shapes_of

    write_log(folder / "l.log", megabytes)
    return lambda: shapes_of([str(folder / "l.log")])


READINGS = (
    Reading("table by --map", "rows", 5_000, _mapped),
    Reading("registry", "kernels", 2_500, _registry),
    Reading("list of names", "kernels", 2_500, _names),
    Reading("AITER's tables, merged with as many rows", "rows", 10_000, _merged),
    Reading("folder of ckh tune", "shapes", 2_000, _tuned),
    Reading("model folder: problems", "problems", 2_500, _model),
    Reading("model folder: trees", "trees", 50, _forest),
    Reading("log", "MB", 1, _logged),
    Reading("code object: symbols", "symbols", 5_000, _symbols),
    Reading("code object: sections x symbols", "of each", 2_500, _sections),
    Reading("code object: bundles of one code", "bundles", 250, _bundles_of_one_code),
    Reading("code object: bundles in bundles", "bundles", 500, _bundles_in_bundles),
)


def cost(read: Callable[[], object]) -> tuple[float, float]:
    """CPU seconds of a call in a forked process, and the growth of its peak memory in MB."""
    gc.collect()
    gc.freeze()  # what is there already is not searched, and copied, again
    receive, send = os.pipe()
    if not (child := os.fork()):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        before, start = _memory("VmRSS"), time.process_time()
        read()
        used = time.process_time() - start
        os.write(send, f"{used} {(_memory('VmHWM') - before) / _MIB}".encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as file:
        seconds, memory = map(float, file.read().split())
    os.waitpid(child, 0)
    return seconds, memory


def _memory(name: str) -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    return int(fields[name].split()[0]) * 1024


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Slope of a line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(costs, 1e-9)), 1)[0])


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], metavar="READER", help="readers that begin so")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of all sizes")
    options = parser.parse_args()
    print("| input | by | CPU seconds, MB more | exponents |\n|---|---|---|---|")
    for reading in READINGS:
        if not reading.what.startswith(tuple(options.only)):
            continue
        sizes = [max(1, round(reading.first * options.scale)) << doubling for doubling in range(_SIZES)]
        costs = []
        for size in sizes:
            with tempfile.TemporaryDirectory() as folder:
                read = reading.make(Path(folder), size)
                tried = [cost(read) for _ in range(_TIMES)]
                costs.append((min(seconds for seconds, _ in tried), min(memory for _, memory in tried)))
        cells = "; ".join(f"{size:,}: {s:.3f}, {m:.0f}" for size, (s, m) in zip(sizes, costs, strict=True))
        slope = f"{exponent(sizes, [seconds for seconds, _ in costs]):.2f}"
        memory = [most for _, most in costs]
        growth = f"{exponent(sizes[-2:], memory[-2:]):.2f}" if memory[-1] > _LITTLE_MB else "no growth"
        print(f"| {reading.what} | {reading.unit} | {cells} | {slope}, {growth} |", flush=True)


if __name__ == "__main__":
    main()
