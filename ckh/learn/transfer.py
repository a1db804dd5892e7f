"""Answers where nothing was measured: the nearest model, or an analytic estimate, and how much that is worth.

A model of another GPU or element type ranks the kernels that the architecture builds, with features of the compute
units, memory and clock of this one. Host models say nothing about a GPU, and so stand in for none. Nothing here is ever
called measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ckh.archs import HOST, arch_names, load_arch
from ckh.learn.artifact import Model, find_model, list_models
from ckh.learn.estimate import estimated_us
from ckh.learn.ranking_text import NotMeasured
from ckh.learn.spec import ANY, ModelSpec
from ckh.ops import operation
from ckh.paths import model_folders
from ckh.problems import Direction
from ckh.training import RANK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.learn.artifact import ModelRef, Wanted
    from ckh.ops.base import Kernel, Problem

ESTIMATE = "analytic estimate"
_BENCH_BUDGET = "15m"


@dataclass(frozen=True, slots=True)
class Worth:
    """Held-out efficiency of choices made in one way, and where that was judged (`benchmarks/transfer.py`)."""

    mean: float
    p10: float
    where: str

    def __str__(self) -> str:
        return f"{self.mean:.1%} of the best speed on average, {self.p10:.1%} at the tenth percentile, {self.where}"


# By `benchmarks/transfer.py`, each the nearest situation that could be judged.
_OF_ESTIMATE = Worth(
    0.895,
    0.711,
    "on 344 forward convolutions of gfx950 (random kernels: 67.7%); on other GPUs and of other operations nothing "
    "could be judged",
)
_OF_OTHER_GPU = Worth(
    0.835,
    0.396,
    "where MIOpen's solvers of the MI200 were chosen by the model of the MI300X (random ones: 60.1%); nothing else was "
    "measured on two GPUs",
)
_UNKNOWN_DTYPE = "; of another element type nothing could be judged"


class EstimateModel(Model):
    """Ranks by the analytic estimate, as a model would; it has no folder."""

    def __init__(self, wanted: Wanted) -> None:
        op = operation(wanted.op_type)
        variant = None if wanted.variant is None else Direction(wanted.variant)
        spec = ModelSpec(
            op_type=wanted.op_type,
            variant=variant,
            dtype=wanted.dtype,
            arch=wanted.arch,
            device="",
            feature_names=(),
            categorical_features=(),
            targets=(RANK,),
            log_targets=(),
            rank_by=RANK,
            hardware={},
            legacy_tiles=False,
        )
        super().__init__(Path(ESTIMATE), spec)
        assert op.tiled is not None
        self._tiled = op.tiled

    def score_pool(
        self,
        problems: Sequence[Problem],
        pool: tuple[Kernel, ...],
        *,
        tflops: bool = True,  # noqa: ARG002 - as of a model
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Minus the logarithm of the estimated times, shape (problems, kernels); no TFLOPS are expected."""
        arch = load_arch(self.spec.arch)
        times = [estimated_us(problem, self._tiled(problem), pool, arch) for problem in problems]
        return -np.log(np.stack(times)), None


def has_estimate(wanted: Wanted) -> bool:
    """True if the analytic estimate can order these kernels: they have tiles, and the GPU's peaks are known."""
    return operation(wanted.op_type).tiled is not None and load_arch(wanted.arch).peaks is not None


def stand_in(wanted: Wanted, problem: Problem) -> Model:
    """The model that ranks kernels where there is none of its own, and says so (`Model.not_measured`).

    Args:
        wanted: what no model is for.
        problem: one such problem.

    Raises:
        ModelError: nothing can answer: of the host other machines say nothing, or the kernels are no tiles.
    """
    arch, op = load_arch(wanted.arch), operation(wanted.op_type)
    for near in _nearest_first(wanted):
        if not len(op.candidates(problem, arch, near.path).chosen):
            continue
        spec = replace(near.spec, arch=wanted.arch, dtype=_dtype(near.spec, wanted), hardware={}, targets=(RANK,))
        model = Model(near.path, spec)
        source = f"{near.path.name}, measured on {near.spec.device or near.arch}"
        model.not_measured = _said("model", source, _worth(near.spec, wanted), wanted)
        return model
    if not has_estimate(wanted):
        return find_model(wanted)
    model = EstimateModel(wanted)
    model.not_measured = _said("estimate", f"{ESTIMATE}: no data of any GPU", str(_OF_ESTIMATE), wanted)
    return model


def _dtype(spec: ModelSpec, wanted: Wanted) -> str:
    return ANY if spec.dtype == ANY else wanted.dtype


def _nearest_first(wanted: Wanted) -> list[ModelRef]:
    """The models of this GPU, in another element type, and of GPUs of its generation or family, the nearest first."""
    known = {ref.path.resolve(): ref for folder in model_folders() for ref in list_models([folder])}
    fits = [ref for ref in known.values() if _is_kin(ref.spec, wanted)]
    return sorted(fits, key=lambda ref: _distance(ref.spec, wanted))


def _is_kin(spec: ModelSpec, wanted: Wanted) -> bool:
    """True if a model orders the same kernels on a GPU of the same family."""
    same = spec.op_type == wanted.op_type and spec.variant in (None, wanted.variant)
    if not same or spec.arch == HOST or spec.rank_by != RANK:
        return False
    here, there = load_arch(wanted.arch), load_arch(spec.arch)
    return here.target_family == there.target_family


def _distance(spec: ModelSpec, wanted: Wanted) -> tuple[bool, bool, bool, int, str]:
    here, there = load_arch(wanted.arch), load_arch(spec.arch)
    # Half a precision more or less changes tiles and instructions; another generation, mostly the rates.
    width = spec.dtype not in (ANY, wanted.dtype)
    # Of other generations the later: names of GPUs ascend with them.
    earlier = sum(other < there.family for other in {load_arch(name).family for name in arch_names()})
    return spec.arch != wanted.arch, width, here.family != there.family, -earlier, spec.arch


def _worth(spec: ModelSpec, wanted: Wanted) -> str:
    """The measured worth of a model of another GPU or element type."""
    other_dtype = _UNKNOWN_DTYPE if spec.dtype not in (ANY, wanted.dtype) else ""
    return f"{_OF_OTHER_GPU}{other_dtype}"


def _said(basis: str, source: str, worth: str, wanted: Wanted) -> NotMeasured:
    return NotMeasured(basis, source, worth, _next_commands(wanted))


def _next_commands(wanted: Wanted) -> tuple[str, ...]:
    """The command that measures, after `--probe`; or that learns from others' times, where ckh builds no kernels."""
    if operation(wanted.op_type).measured is None:
        return (f"ckh convert TIMES --out own.parquet && ckh train --data own.parquet --out MODEL    (of {wanted})",)
    direction = "" if wanted.variant is None else f" --variant {wanted.variant}"
    bench = f"ckh bench --op {wanted.op_type}{direction} --arch {wanted.arch} --dtype {wanted.dtype} --device hip"
    plan = f"--plan auto --budget {_BENCH_BUDGET} --out runs/{wanted.arch}    (takes {_BENCH_BUDGET} at most)"
    return (f"{bench} {plan}",)
