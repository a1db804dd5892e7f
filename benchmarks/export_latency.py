"""Time to rank one problem with the C export and with Python's C path: one process, one thread, interleaved.

    python benchmarks/export_latency.py [--rounds 200] [--problems 8] [--cc gcc]

Both get a problem's sizes and return all candidates in order; the orders are checked to agree. Python's path is
features in NumPy and partial evaluation in C (`Ranker`) of the whole pool, as in `answer` except for finding the
candidates; its C part is compiled here with the same options as the export. Times are medians; only ratios are
comparable between machines.
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse
import ctypes
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.archs import load_arch
from ckh.export.groups import ProblemKind, exported
from ckh.export.to_c import c_files
from ckh.files.outputs import write_folder
from ckh.files.paths import data_dir
from ckh.learn.models.artifact import Model, load_model
from ckh.ranking import library
from ckh.ranking.evaluator import Ranker, best_first
from ckh.ranking.layout import CSRC
from ckh.training import TFLOPS

if TYPE_CHECKING:
    from collections.abc import Callable

_MODELS = ("grouped_conv_forward_fp32_host", "grouped_conv_bwd_weight_fp32_host", "gemm_universal_fp32_host")
_SETS = {"grouped_conv": "host-holdout", "gemm_universal": "host-llm"}
_FLAGS = ("-std=c11", "-O3", "-ffp-contract=off", "-fPIC", "-shared")
_ORDER_ONLY = 1


class _Choice(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_int32),
        ("score", ctypes.c_double),
        ("tflops", ctypes.c_double),
        ("latency_ms", ctypes.c_double),
    )


def _compile(folder: Path, sources: list[Path], compiler: str, name: str, *flags: str) -> Path:
    library = folder / name
    command = [compiler, *_FLAGS, *flags, f"-I{sources[0].parent}", *map(str, sources), "-o", str(library), "-lm"]
    subprocess.run(command, check=True)
    return library


def _in_c(kind: ProblemKind, problem: Any) -> Any:
    """The problem in the layout of the header."""
    types = [ctypes.c_int32] * len(kind.codes) + [ctypes.c_int64] * len(kind.sizes)
    fields = [(f"field_{place}", type_) for place, type_ in enumerate(types)]
    return type("Problem", (ctypes.Structure,), {"_fields_": fields})(*kind.numbers(problem))


def _exported(library: Path, folder: Path, model: Model, problem: Any, flags: int) -> Callable[[], list[str]]:
    loaded, handle = ctypes.CDLL(str(library)), ctypes.c_void_p()
    loaded.ckh_kernel_name.restype = ctypes.c_char_p
    path = folder / "models" / f"{model.path.name}.ckhm"
    assert not loaded.ckh_open_file(str(path).encode(), ctypes.byref(handle))
    kind = exported(model.spec.op_type).kind
    choices, count, given = (_Choice * 4096)(), ctypes.c_size_t(), _in_c(kind, problem)
    rank = getattr(loaded, f"ckh_rank_{kind.name}")
    arguments = (handle, ctypes.byref(given), flags, choices, ctypes.c_size_t(len(choices)), ctypes.byref(count))

    def ask() -> list[str]:
        assert not rank(*arguments)
        return [loaded.ckh_kernel_name(handle, choices[i].kernel).decode() for i in range(count.value)]

    ask.once = lambda: rank(*arguments)  # type: ignore[attr-defined]
    return ask


def _in_python(model: Model, problem: Any, targets: list[str]) -> Callable[[], list[str]]:
    spec, op = model.spec, model.spec.op
    candidates = op.kernels.candidates(problem, load_arch(spec.arch), model.path)
    chosen = candidates.chosen
    columns = op.kernels.features(candidates.pool, spec.encoding)
    forests = [model.packed_forest(target) for target in targets]
    ranker = Ranker(forests, spec.engine, spec.feature_names, model.hardware, columns, op.problems.features([problem]))

    def order() -> Any:
        return chosen[best_first(ranker.scores(op.problems.features([problem]))[0, 0, chosen])]

    def ask() -> list[str]:
        return [op.kernels.name(candidates.pool[i]) for i in order()]

    ask.once = order  # type: ignore[attr-defined]
    return ask


def _times(ways: list[Any], rounds: int) -> list[float]:
    taken: list[list[float]] = [[] for _ in ways]
    for _ in range(rounds):
        for way, times in zip(ways, taken, strict=True):
            start = time.perf_counter()
            way.once()
            times.append(time.perf_counter() - start)
    return [statistics.median(times) * 1e3 for times in taken]


def measure(model: Model, library: Path, folder: Path, options: argparse.Namespace) -> None:
    """Print the times of both, with and without TFLOPS."""
    spec = model.spec
    some = spec.op.problems.load(_SETS[spec.op_type], None if spec.variant is None else str(spec.variant), spec.dtype)
    problems = some[:: len(some) // options.problems + 1]
    for text, targets, flags in (("order", [spec.rank_by], _ORDER_ONLY), ("order, TFLOPS", [spec.rank_by, TFLOPS], 0)):
        rows, differing = [], 0
        for problem in problems:
            ways = [_exported(library, folder, model, problem, flags), _in_python(model, problem, targets)]
            differing += ways[0]() != ways[1]()
            rows.append(_times(ways, options.rounds))
        export, python = np.median(rows, axis=0)
        worst = max(row[0] / row[1] for row in rows)
        print(
            f"{model.path.name:34} {text:14} export {export:7.3f} ms  Python {python:7.3f} ms  "
            f"export / Python {export / python:5.2f} (worst problem {worst:.2f})  {differing} orders differ"
        )


def main() -> None:
    """Measure the shipped models."""
    parser = argparse.ArgumentParser(description="latency of the C export")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--problems", type=int, default=8)
    parser.add_argument("--cc", default="gcc")
    options = parser.parse_args()
    models = [load_model(data_dir("models") / name) for name in _MODELS]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "c")
        write_folder(folder, c_files(models, embed=False)[0].items())
        python = [path for path in sorted(CSRC.glob("*.c")) if path.name != "ckh.c"]
        library.LIBRARY = _compile(Path(name), python, options.cc, "python.so", "-DCKH_SIZES_ONLY")
        sources = [path for path in sorted(folder.glob("*.c")) if path.name != "example.c"]
        exported = _compile(Path(name), sources, options.cc, "export.so")
        for model in models:
            measure(model, exported, folder, options)


if __name__ == "__main__":
    main()
