"""ckh: finds the fastest Composable Kernel Tile kernel for a GEMM or a grouped convolution (docs/python.md).

>>> import ckh
>>> problem = ckh.ConvProblem(ckh.Direction.FORWARD, n=16, c=256, k=256, g=1, hi=28, wi=28, y=3, x=3, pad_h=1, pad_w=1)
>>> best = ckh.rank(problem, top=1)[0]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import TypedDict, overload

    from typing_extensions import Unpack

    from ckh import shapes
    from ckh.api.benching import BenchRun, bench
    from ckh.api.evaluating import Evaluated, evaluate
    from ckh.api.inputs import problem, progress
    from ckh.api.learning import train
    from ckh.api.ranker import KernelRanker
    from ckh.api.tuner import tune
    from ckh.data.dataset import Dataset, read_dataset
    from ckh.errors import CkhError, DataError, DeviceError, ModelError, NoKernelError, OutputError, UsageError
    from ckh.files.paths import shipped_data
    from ckh.isa.anatomy import Anatomy
    from ckh.isa.source import explain
    from ckh.learn.answers.answer import Answer, Caveat, NotMeasured
    from ckh.learn.answers.api import answer, rank_many
    from ckh.learn.answers.known import Known
    from ckh.learn.answers.ranked import Ranked, RankedList
    from ckh.learn.models.artifact import Model, load_model
    from ckh.ops.base import Kernel, Problem
    from ckh.ops.gemm_universal.kernel import GemmKernel
    from ckh.ops.gemm_universal.problem import GemmProblem
    from ckh.ops.grouped_conv.kernel import ConvKernel
    from ckh.ops.grouped_conv.problem import ConvProblem
    from ckh.problems import Direction
    from ckh.running.runnable import RunnableKernel, kernel, run
    from ckh.tune.gains import TuneDocument
    from ckh.version import __version__ as __version__

    class _RankOptions(TypedDict, total=False):
        arch: str | None
        require_measured: bool
        kernels: Iterable[str | Kernel] | None
        rule_set: str | None

    _Loaded = Model | Path | str | None

    @overload
    def rank(
        problem: GemmProblem, top: int | None = None, model: _Loaded = None, **options: Unpack[_RankOptions]
    ) -> RankedList[GemmKernel]: ...

    @overload
    def rank(
        problem: ConvProblem, top: int | None = None, model: _Loaded = None, **options: Unpack[_RankOptions]
    ) -> RankedList[ConvKernel]: ...

    @overload
    def rank(
        problem: Problem | str, top: int | None = None, model: _Loaded = None, **options: Unpack[_RankOptions]
    ) -> RankedList[Any]: ...

    def rank(problem: Any, top: int | None = None, model: _Loaded = None, **options: Any) -> RankedList[Any]: ...


__all__ = [
    "Anatomy",
    "Answer",
    "BenchRun",
    "Caveat",
    "CkhError",
    "ConvProblem",
    "DataError",
    "Dataset",
    "DeviceError",
    "Direction",
    "Evaluated",
    "GemmProblem",
    "KernelRanker",
    "Known",
    "Model",
    "ModelError",
    "NoKernelError",
    "NotMeasured",
    "OutputError",
    "Ranked",
    "RunnableKernel",
    "TuneDocument",
    "UsageError",
    "answer",
    "bench",
    "evaluate",
    "explain",
    "kernel",
    "load_model",
    "problem",
    "progress",
    "rank",
    "rank_many",
    "read_dataset",
    "run",
    "shapes",
    "shipped_data",
    "train",
    "tune",
]

# Public name -> its module, imported on first use, so that `import ckh` is cheap. Importing a module or folder of ckh
# with such a name sets the attribute, so it must have the same meaning (`_PACKAGES`).
_PACKAGES = ("bench", "shapes", "tune")
_HOMES = {
    **dict.fromkeys(("Evaluated", "evaluate"), "ckh.api.evaluating"),
    "BenchRun": "ckh.api.benching",
    "TuneDocument": "ckh.tune.gains",
    "KernelRanker": "ckh.api.ranker",
    "problem": "ckh.api.inputs",
    "progress": "ckh.api.inputs",
    "train": "ckh.api.learning",
    **dict.fromkeys(("Dataset", "read_dataset"), "ckh.data.dataset"),
    **dict.fromkeys(
        ("CkhError", "DataError", "DeviceError", "ModelError", "NoKernelError", "OutputError", "UsageError"),
        "ckh.errors",
    ),
    "shipped_data": "ckh.files.paths",
    **dict.fromkeys(("answer", "rank", "rank_many"), "ckh.learn.answers.api"),
    "Anatomy": "ckh.isa.anatomy",
    "explain": "ckh.isa.source",
    **dict.fromkeys(("Model", "load_model"), "ckh.learn.models.artifact"),
    "Known": "ckh.learn.answers.known",
    "Ranked": "ckh.learn.answers.ranked",
    **dict.fromkeys(("Answer", "Caveat", "NotMeasured"), "ckh.learn.answers.answer"),
    "GemmProblem": "ckh.ops.gemm_universal.problem",
    "ConvProblem": "ckh.ops.grouped_conv.problem",
    "Direction": "ckh.problems",
    **dict.fromkeys(("RunnableKernel", "kernel", "run"), "ckh.running.runnable"),
    "__version__": "ckh.version",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name in _PACKAGES:
        return importlib.import_module(f"ckh.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'ckh' has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOMES[name]), name)
    if name[0].islower():  # a function
        found = globals()[name] = importlib.import_module("ckh.callables").public(name, found)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_PACKAGES})
