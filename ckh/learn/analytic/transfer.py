"""Substitute models without measurements: the nearest model or an analytic estimate, with evaluated accuracy.

A model of another GPU or element type ranks the kernels of the architecture, with features of its compute units, memory
and clock; the estimate ranks kernels unknown to the model. Of model and estimate the one with the better evaluation is
used. Models of another family of GPUs are used without an estimate, or if they were evaluated better. Host models are
not used for GPUs; without one, the CPU's kernels are in random order. Such answers are never called measured.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

from ckh.archs import HOST, arch_names, load_arch
from ckh.errors import ModelError
from ckh.learn.analytic.completed import Completion
from ckh.learn.analytic.estimate import ESTIMATE
from ckh.learn.analytic.estimator import EstimateScores, RandomScores, has_estimate
from ckh.learn.answers.answer import TUNE_BUDGET, NotMeasured
from ckh.learn.answers.batches import known_candidates, runnable
from ckh.learn.models.artifact import Model, find_model, first_model, fitting_models, list_models, wanted_for
from ckh.learn.models.spec import ANY, ModelSpec
from ckh.ops import operation
from ckh.problems import DTYPE_BYTES, Direction
from ckh.text.prose import shell_word
from ckh.training import RANK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.kernels.pools import Candidates
    from ckh.learn.models.artifact import ModelRef
    from ckh.learn.models.spec import Wanted
    from ckh.ops.base import Kernel, Problem, Worth

    Others = tuple[list[ModelRef], list[ModelRef]]


RANDOM = "random"  # basis of an answer in random order


def estimate_model(wanted: Wanted, scores: EstimateScores | None = None) -> Model:
    """A model that ranks by the analytic estimate alone, or by the given scores, without a folder.

    Without an estimate (`has_estimate`) it lists refused kernels and ranks none. It predicts no speeds.
    """
    spec = ModelSpec(
        op_type=wanted.op_type,
        variant=None if wanted.variant is None else Direction(wanted.variant),
        dtype=wanted.dtype,
        arch=wanted.arch,
        device="",
        feature_names=(),
        categorical_features=(),
        targets=(RANK,),
        log_targets=(),
        rank_by=RANK,
        hardware={"num_cus": wanted.gpu.hardware.num_cus},
        legacy_tiles=False,
    )
    return Model(Path(ESTIMATE if scores is None else RANDOM), spec, scores or EstimateScores(wanted), Completion.ALONE)


def _random_model(wanted: Wanted) -> Model:
    """A model that orders the kernels of the CPU at random, for commands that measure them."""
    model = estimate_model(wanted, RandomScores(wanted))
    commands = next_commands(wanted)
    model.not_measured = NotMeasured(RANDOM, "a random order, since no model is trained on a CPU", None, commands)
    return model


def stand_in(wanted: Wanted, problem: Problem, others: Others | None = None) -> Model:
    """Return the substitute model if no model fits, with a caveat (`Model.not_measured`).

    Of the nearest model of the family, the estimate and the nearest model of another family, the one with the best
    evaluation is used; options without evaluation come last, ties in this order. A model of this GPU in an element type
    of the same width and rate comes first, since it was measured on instructions with these rates. Kernels of the CPU
    are in random order. `others` are as of `others_nearest_first`.
    """
    if wanted.arch == HOST and operation(wanted.op_type).measured is not None:
        return _random_model(wanted)
    near, far = others or others_nearest_first(wanted)
    options = [_first_with_kernels(near, wanted, problem)]
    if options[0] is not None and options[0].ref is not None and _has_same_rates(options[0].ref.spec, wanted):
        return _answering(options[0], wanted)
    if has_estimate(wanted):
        judged = _judged("", wanted, problem)  # on this GPU, else the worst
        worth = min(judged, key=lambda worth: (worth.target != wanted.arch, worth.figures), default=None)
        options.append(_Option(estimate_model(wanted), worth))
    options.append(_first_with_kernels(far, wanted, problem))
    if usable := [option for option in options if option is not None]:
        return _answering(reduce(_better, usable), wanted)
    # The reasons of the model that knows most such kernels are most informative.
    models = [as_of(ref, wanted) for ref in [*near, *far]]
    without = max(models, key=lambda model: _known_kernels(problem, model), default=estimate_model(wanted))
    return find_model(wanted) if has_kernels(problem, without) else without


def is_for_all_sizes(problem: Problem, model: Model) -> bool:
    """True if the same substitute is selected for problems of all sizes with an applicable kernel known to it.

    False if another model would be selected once one of its kernels applied.
    """
    wanted = wanted_for(problem, model.spec.arch, model.gpu.hardware.num_cus)
    fitting = first_model(wanted)
    if fitting is not None and not runnable(problem, fitting)[1].unmeasured:
        return False
    for refs in others_nearest_first(wanted):
        for ref in refs:
            substitute = as_of(ref, wanted)
            if has_kernels(problem, substitute):
                break
            if _known_kernels(problem, substitute):
                return False
    return True


class _Option(NamedTuple):
    """A model that can answer, its evaluation if any, and the model that it is derived from."""

    model: Model
    judged: Worth | None
    ref: ModelRef | None = None


def _better(first: _Option, second: _Option) -> _Option:
    """The option with the better evaluation; the first if not comparable."""
    if first.judged is None or second.judged is None:
        return second if first.judged is None and second.judged is not None else first
    is_comparable = first.judged.measure == second.judged.measure
    return second if is_comparable and second.judged.figures > first.judged.figures else first


def _answering(option: _Option, wanted: Wanted) -> Model:
    """The model of an option with its caveat; the estimate ranks kernels unknown to it."""
    model, ref = option.model, option.ref
    if ref is None:
        basis, source = "estimate", f"{ESTIMATE} (no GPU data)"
    else:
        basis, source = "model", f"{ref.path.name}, measured on {ref.spec.device or ref.spec.arch}"
        model = with_estimate(model, ref, wanted)
    worth = None if option.judged is None else option.judged.stated("" if ref is None else ref.spec.arch, wanted.arch)
    model.not_measured = NotMeasured(basis, source, worth, next_commands(wanted))
    return model


def with_estimate(model: Model, ref: ModelRef, wanted: Wanted) -> Model:
    """Add the estimate to a substitute model of one element type: for unknown kernels, or for ties, and with a veto.

    Of AITER's GEMMs on another GPU, it would put fewer winners first (`benchmarks/veto.md`).
    """
    if not has_estimate(wanted) or ref.spec.dtype == ANY:
        return model
    if model.spec.op.kernels.knows is not None and (knows := model.spec.op.kernels.knows(model.path)) is not None:
        return Model(model.path, model.spec, EstimateScores(wanted), Completion.FILLED, knows)
    return Model(model.path, model.spec, EstimateScores(wanted), Completion.TIE_BROKEN)


def judged_model(source: str, wanted: Wanted, problem: Problem) -> Worth | None:
    """Evaluation of another GPU's models on such problems of this GPU.

    A model of this GPU in another element type was not evaluated and counts as the worst on another GPU.
    """
    of_pair = [worth for worth in _judged(source, wanted, problem) if wanted.arch in (source, worth.target)]
    return min(of_pair, key=lambda worth: worth.figures, default=None)


def _judged(source: str, wanted: Wanted, problem: Problem) -> list[Worth]:
    """Evaluations on such problems of a GPU's models, or of the estimate if the source is empty."""
    judged = operation(wanted.op_type).training.judged
    return [worth for worth in judged if worth.source == source and worth.holds_for(problem)]


def nearest_model(wanted: Wanted) -> Path:
    """Folder of the model that fits, or of the nearest: of another element type, or GPU of the family."""
    near, _ = others_nearest_first(wanted)
    folders = [ref.path for ref in [*fitting_models(wanted), *near]]
    return folders[0] if folders else find_model(wanted).path


def has_kernels(problem: Problem, model: Model) -> bool:
    """True if a kernel of the model applies to a problem, or to the padded one; False for a damaged model."""
    each = (_kernels(run, model) for run in dict.fromkeys((problem, model.spec.op.padded(problem))))
    return any(candidates is not None and len(candidates.chosen) for candidates in each)


def _known_kernels(problem: Problem, model: Model) -> int:
    candidates = _kernels(problem, model)
    return -1 if candidates is None else len(candidates.pool)


def _kernels(problem: Problem, model: Model) -> Candidates[Kernel] | None:
    try:
        return model.spec.op.kernels.candidates(problem, load_arch(model.spec.arch), model.path)
    except ModelError:
        return None


def _first_with_kernels(refs: Sequence[ModelRef], wanted: Wanted, problem: Problem) -> _Option | None:
    for ref in refs:
        model = as_of(ref, wanted)
        if has_kernels(problem, model) and not (has_estimate(wanted) and known_candidates(problem, model).unmeasured):
            return _Option(model, judged_model(ref.spec.arch, wanted, problem), ref)
    return None


def as_of(ref: ModelRef, wanted: Wanted) -> Model:
    """A model of another GPU or element type, adapted to the requirements."""
    estimate = ref.spec.estimate and has_estimate(wanted)
    dtype = _dtype(ref.spec, wanted)
    hardware = {"num_cus": wanted.gpu.hardware.num_cus}
    spec = replace(ref.spec, arch=wanted.arch, dtype=dtype, hardware=hardware, targets=(RANK,), estimate=estimate)
    return Model(ref.path, spec)


def _dtype(spec: ModelSpec, wanted: Wanted) -> str:
    return ANY if spec.dtype == ANY else wanted.dtype


def others_nearest_first(wanted: Wanted) -> Others:
    """Models of another element type or GPU, by distance: of the GPU's family, and of other families."""
    if not load_arch(wanted.arch).is_gpu:
        return [], []
    known = {ref.path.resolve(): ref for ref in list_models(op_type=wanted.op_type)}
    fits = [ref for ref in known.values() if _orders_the_same(ref.spec, wanted)]
    fits.sort(key=lambda ref: _distance(ref.spec, wanted))
    kin = load_arch(wanted.arch).target_family
    near = [ref for ref in fits if load_arch(ref.spec.arch).target_family == kin]
    return near, [ref for ref in fits if ref not in near]


def _orders_the_same(spec: ModelSpec, wanted: Wanted) -> bool:
    """True if a GPU model ranks kernels of the same operation and direction."""
    same = spec.op_type == wanted.op_type and spec.variant in (None, wanted.variant)
    return same and spec.arch != HOST and spec.rank_by == RANK


def _has_same_rates(spec: ModelSpec, wanted: Wanted) -> bool:
    """True if a model is of the same GPU, and of an element type of the same width and rate."""
    peaks = load_arch(wanted.arch).peaks
    if spec.arch != wanted.arch or ANY in (spec.dtype, wanted.dtype) or peaks is None:
        return False
    rates = peaks.flops_per_cu_clock
    is_as_wide = DTYPE_BYTES[spec.dtype] == DTYPE_BYTES[wanted.dtype]
    return is_as_wide and rates.get(spec.dtype) == rates.get(wanted.dtype)


def _distance(spec: ModelSpec, wanted: Wanted) -> tuple[bool, bool, bool, int, str]:
    here, there = load_arch(wanted.arch), load_arch(spec.arch)
    # Another width of the element type changes tiles and instructions; another generation mostly the rates.
    width = spec.dtype not in (ANY, wanted.dtype)
    # Among other generations the later comes first: names of GPUs ascend with them.
    earlier = sum(family < there.family for family in {load_arch(name).family for name in arch_names()})
    return spec.arch != wanted.arch, width, here.family != there.family, -earlier, spec.arch


def next_commands(wanted: Wanted, problems: str = "") -> tuple[str, ...]:
    """The command that measures; or trains on others' times, if ckh builds no kernels."""
    op = operation(wanted.op_type)
    if op.measured is None:
        return (f"ckh convert TIMES --out own.parquet && ckh train --data own.parquet --out MODEL  # of {wanted}",)
    if not problems:
        return ()
    from ckh.shapes.sources import STDIN  # not for single problems: it takes long to import

    direction = "" if wanted.variant is None else f" --variant {wanted.variant}"
    options = f"--op {wanted.op_type}{direction} --arch {wanted.arch} --dtype {wanted.dtype}"
    name = PurePath(problems).stem if problems != STDIN else ""
    folder = "-".join(filter(None, (wanted.variant or wanted.op_type, wanted.arch, wanted.dtype, name)))
    if problems in op.problems.set_names():  # in the sizes that the set has for the operation
        plan = f"--problems {shell_word(problems)} --plan auto --budget {TUNE_BUDGET}"
        return (f"ckh bench {options} --device hip {plan} --out {shell_word(f'runs/{folder}')}",)
    out = shell_word(f"tuned/{folder}")
    return (f"ckh tune {shell_word(problems)} {options} --budget {TUNE_BUDGET} --out {out}",)
