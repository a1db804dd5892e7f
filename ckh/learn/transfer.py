"""Answers where nothing was measured: the nearest model, or an analytic estimate, and how much that is worth.

A model of another GPU or element type ranks the kernels that the architecture builds, with features of the compute
units, memory and clock of this one. Models of another family of GPUs are used where there is no estimate. Host models
say nothing about a GPU, and so stand in for none. Nothing here is ever called measured.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ckh.archs import HOST, arch_names, load_arch
from ckh.errors import ModelError
from ckh.kernels.compiled import compiled
from ckh.learn.artifact import Model, find_model, fitting_models, list_models
from ckh.learn.estimate import KernelShapes, estimated_us
from ckh.learn.ranking_text import NotMeasured
from ckh.learn.spec import ANY, ModelSpec
from ckh.ops import operation
from ckh.ops.base import Elsewhere, Worth
from ckh.paths import model_folders
from ckh.problems import Direction
from ckh.training import RANK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.kernels.pools import Candidates
    from ckh.learn.artifact import ModelRef, Wanted
    from ckh.ops.base import Kernel, Problem
    from ckh.resources import Resources

ESTIMATE = "analytic estimate"
_BENCH_BUDGET = "15m"


# By `benchmarks/transfer.py`, each the nearest situation that could be judged.
_OF_ESTIMATE = Worth(
    0.940,
    0.805,
    "on 344 forward convolutions of gfx950 (random kernels: 67.7%); on other GPUs and of other operations nothing "
    "could be judged",
)
# Where an operation's own kernels were not measured on two GPUs, or in two element types.
_NOT_JUDGED = "; of these kernels nothing could be judged"
_ELSEWHERE = Elsewhere(
    Worth(
        0.835,
        0.396,
        "where MIOpen's solvers of the MI200 were chosen by the model of the MI300X (random ones: 60.1%)" + _NOT_JUDGED,
    ),
    Worth(
        0.919,
        0.689,
        "where MIOpen's solvers in fp32 were chosen by a model of other element types (random ones: 66.7%)"
        + _NOT_JUDGED,
    ),
)


class EstimateModel(Model):
    """Ranks by the analytic estimate, as a model would; it has no folder.

    Of what there is no estimate for (`has_estimate`) it knows the kernels that are refused, and ranks none.

    Attributes:
        compiled: what the compiler reported of kernels that were compiled here, by name.
    """

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
        self._tiled = op.tiled if has_estimate(wanted) else None
        self.compiled = {} if self._tiled is None else compiled(wanted.arch, wanted.op_type)
        # The last pool that was scored, and what is known of it, which takes longer to find than the estimate.
        self._pool: Sequence[Kernel] | None = None
        self._shapes = KernelShapes.of(())
        self._known: list[Resources | None] = []

    def score_pool(
        self,
        problems: Sequence[Problem],
        pool: Sequence[Kernel],
        *,
        tflops: bool = True,  # noqa: ARG002 - as of a model
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Minus the logarithm of the estimated times, shape (problems, kernels); no TFLOPS are expected."""
        if self._tiled is None:
            return np.zeros((len(problems), len(pool))), None
        if self._pool is not pool:
            name = self.spec.op.kernel_name
            known = [self.compiled.get(name(kernel)) for kernel in pool] if self.compiled else []
            self._pool, self._shapes, self._known = pool, KernelShapes.of(pool), known
        arch = load_arch(self.spec.arch)
        times = [estimated_us(one, self._tiled(one), self._shapes, arch, self._known) for one in problems]
        return -np.log(np.stack(times)), None

    def predict(self, problem: Problem, kernels: Sequence[Kernel], target: str = RANK) -> NDArray[np.float64]:
        """The scores of kernels, shape (kernels,)."""
        assert target == RANK
        found: NDArray[np.float64] = self.score_pool([problem], tuple(kernels))[0][0]
        return found

    def scores(self, dataset: Dataset) -> NDArray[np.float64]:
        """The score of every row of a dataset, shape (rows,)."""
        op, found = self.spec.op, np.zeros(len(dataset))
        kernel_of = {name: op.parse_kernel(name) for name in dataset.frame["kernel_name"].unique()}
        names = dataset.frame["kernel_name"].to_numpy()
        order = np.argsort(dataset.problem_ids, kind="stable")
        parts = np.split(order, np.cumsum(np.bincount(dataset.problem_ids))[:-1])
        for problem, rows in zip(dataset.problems(), parts, strict=True):
            found[rows] = self.predict(problem, [kernel_of[name] for name in names[rows]])
        return found


def has_estimate(wanted: Wanted) -> bool:
    """True if the analytic estimate can order these kernels: they have tiles, and the GPU's peaks are known."""
    return operation(wanted.op_type).tiled is not None and load_arch(wanted.arch).peaks is not None


def stand_in(wanted: Wanted, problem: Problem) -> Model:
    """The model that ranks kernels where there is none of its own, and says so (`Model.not_measured`).

    Args:
        wanted: what no model is for, or only one that knows no kernel for the problem.
        problem: one such problem.

    Returns:
        A model; where no kernel applies one without candidates, whose answers say why.

    Raises:
        ModelError: nothing can answer though there are kernels: of the host other machines say nothing.
    """
    near, far = ([_of_other(ref, wanted) for ref in refs] for refs in _others_nearest_first(wanted))
    if (model := _first_with_kernels(near, problem)) is not None:
        return model
    if has_estimate(wanted):
        estimate = EstimateModel(wanted)
        estimate.not_measured = _said("estimate", f"{ESTIMATE}: no data of any GPU", str(_OF_ESTIMATE), wanted)
        return estimate
    if (model := _first_with_kernels(far, problem)) is not None:
        return model
    # The reasons of the model that knows most such kernels say most.
    without = max([*near, *far], key=lambda model: _known_kernels(problem, model), default=EstimateModel(wanted))
    return find_model(wanted) if has_kernels(problem, without) else without


def nearest_model(wanted: Wanted) -> Path:
    """The folder of the model that fits, or of the nearest: of another element type, or GPU of the family.

    Raises:
        ModelError: there is none.
    """
    near, _ = _others_nearest_first(wanted)
    folders = [ref.path for ref in [*fitting_models(wanted), *near]]
    return folders[0] if folders else find_model(wanted).path


def has_kernels(problem: Problem, model: Model) -> bool:
    """True if a kernel that the model may rank applies to a problem; a model that is damaged ranks none."""
    found = _kernels(problem, model)
    return found is not None and bool(len(found.chosen))


def _known_kernels(problem: Problem, model: Model) -> int:
    found = _kernels(problem, model)
    return -1 if found is None else len(found.pool)


def _kernels(problem: Problem, model: Model) -> Candidates[Kernel] | None:
    try:
        return model.spec.op.candidates(problem, load_arch(model.spec.arch), model.path)
    except ModelError:
        return None


def _first_with_kernels(models: Sequence[Model], problem: Problem) -> Model | None:
    return next((model for model in models if has_kernels(problem, model)), None)


def _of_other(ref: ModelRef, wanted: Wanted) -> Model:
    """A model of another GPU or element type as one of this."""
    spec = replace(ref.spec, arch=wanted.arch, dtype=_dtype(ref.spec, wanted), hardware={}, targets=(RANK,))
    model = Model(ref.path, spec)
    source = f"{ref.path.name}, measured on {ref.spec.device or ref.arch}"
    model.not_measured = _said("model", source, _worth(ref.spec, wanted), wanted)
    return model


def _dtype(spec: ModelSpec, wanted: Wanted) -> str:
    return ANY if spec.dtype == ANY else wanted.dtype


def _others_nearest_first(wanted: Wanted) -> tuple[list[ModelRef], list[ModelRef]]:
    """The models of this GPU, in another element type, and of others: of its family, and of other families."""
    if not load_arch(wanted.arch).is_gpu:
        return [], []
    known = {ref.path.resolve(): ref for folder in model_folders() for ref in list_models([folder])}
    fits = [ref for ref in known.values() if _orders_the_same(ref.spec, wanted)]
    fits.sort(key=lambda ref: _distance(ref.spec, wanted))
    near = [ref for ref in fits if _is_kin(ref.spec, wanted)]
    return near, [ref for ref in fits if ref not in near]


def _orders_the_same(spec: ModelSpec, wanted: Wanted) -> bool:
    """True if a model of a GPU orders the kernels of the same operation and direction."""
    same = spec.op_type == wanted.op_type and spec.variant in (None, wanted.variant)
    return same and spec.arch != HOST and spec.rank_by == RANK


def _is_kin(spec: ModelSpec, wanted: Wanted) -> bool:
    return load_arch(wanted.arch).target_family == load_arch(spec.arch).target_family


def _distance(spec: ModelSpec, wanted: Wanted) -> tuple[bool, bool, bool, int, str]:
    here, there = load_arch(wanted.arch), load_arch(spec.arch)
    # Half a precision more or less changes tiles and instructions; another generation, mostly the rates.
    width = spec.dtype not in (ANY, wanted.dtype)
    # Of other generations the later: names of GPUs ascend with them.
    earlier = sum(other < there.family for other in {load_arch(name).family for name in arch_names()})
    return spec.arch != wanted.arch, width, here.family != there.family, -earlier, spec.arch


def _worth(spec: ModelSpec, wanted: Wanted) -> str:
    """The measured worth of a model of another GPU or element type."""
    elsewhere = operation(wanted.op_type).elsewhere or _ELSEWHERE
    is_other_gpu = spec.arch != wanted.arch
    # A model of this GPU and of all element types stands in for kinds of problems that it has not seen.
    is_other_dtype = spec.dtype not in (ANY, wanted.dtype) or not is_other_gpu
    found = [elsewhere.other_gpu] * is_other_gpu + [elsewhere.other_dtype] * is_other_dtype
    return "; ".join(map(str, found))


def _said(basis: str, source: str, worth: str, wanted: Wanted) -> NotMeasured:
    return NotMeasured(basis, source, worth, _next_commands(wanted))


def _next_commands(wanted: Wanted) -> tuple[str, ...]:
    """The command that measures, after `--probe`; or that learns from others' times, where ckh builds no kernels."""
    if operation(wanted.op_type).measured is None:
        return (f"ckh convert TIMES --out own.parquet && ckh train --data own.parquet --out MODEL  # of {wanted}",)
    direction = "" if wanted.variant is None else f" --variant {wanted.variant}"
    bench = f"ckh bench --op {wanted.op_type}{direction} --arch {wanted.arch} --dtype {wanted.dtype} --device hip"
    plan = f"--plan auto --budget {_BENCH_BUDGET} --out runs/{wanted.arch}  # takes {_BENCH_BUDGET} at most"
    return (f"{bench} {plan}",)
