"""Warm start: LightGBM's `init_model`, a model of the same operation, direction, inputs and targets to add trees to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ckh.archs import HOST
from ckh.declared import Declared, declarations
from ckh.errors import DataError, ModelError, UsageError
from ckh.files.jsonfields import model_fields
from ckh.files.untrusted import read_bytes
from ckh.learn.models.artifact import load_model
from ckh.learn.models.manifest import our_manifest, trained_problems
from ckh.learn.models.spec import SPEC_NAME
from ckh.training import RANK, RankObjective, TreeParams

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.learn.models.artifact import Model
    from ckh.learn.models.measured_set import MeasuredSet
    from ckh.learn.models.spec import ModelSpec
    from ckh.training import TrainOptions

NEW_TREES = 500  # as in AMD's trainer
_FOLDS = 3
_MOST_PARAM = 2**31 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """A model to add trees to, and what the new model states of it."""

    model: Model
    params: TreeParams
    trees: dict[str, int]
    """Number of trees by target."""
    measured: MeasuredSet | None
    sha256: dict[str, str]
    """Digests of its files by name."""
    manifest: dict[str, Any]
    """Entries of its manifest that are ckh's (`our_manifest`)."""
    problems: frozenset[str]
    """Its training problems (`problem_id`); empty if unknown."""
    differs: tuple[str, ...] = ()
    """What differs from the new training, which is printed and recorded: GPU, hardware, element type."""

    @property
    def path(self) -> Path:
        """Its folder."""
        return self.model.path

    @property
    def spec(self) -> ModelSpec:
        """Its purpose and inputs."""
        return self.model.spec

    @property
    def objective(self) -> RankObjective | None:
        """What its ranking model was trained for; None if unknown."""
        named = self.manifest.get("rank_objective") if self.spec.rank_by == RANK else RankObjective.TFLOPS
        return next((objective for objective in RankObjective if objective == named), None)


def read_start(path: Path) -> Start:
    """Read all of the model in a folder, to be continued."""
    model = load_model(path)
    try:
        sha256 = {file.name: hashlib.sha256(read_bytes(file)).hexdigest() for file in path.iterdir() if file.is_file()}
    except DataError as error:
        raise ModelError(error.message, error.hint, code=error.code) from error
    return Start(
        model=model,
        params=_params(path),
        trees={target: len(model.forest(target).roots) for target in model.spec.targets},
        measured=model.measured,
        sha256=dict(sorted(sha256.items())),
        manifest=our_manifest(path),
        problems=trained_problems(path) or frozenset(),
    )


def _params(folder: Path) -> TreeParams:
    """Parameters of the newest trees; those that the spec does not state are the defaults."""
    known: dict[str, Any] = {}
    with model_fields(folder / SPEC_NAME) as spec:
        params = spec.part("params") if spec.has("params") else None
        for field in fields(TreeParams):
            if params is None or not params.has(field.name):
                continue
            is_whole = isinstance(getattr(TreeParams(), field.name), int)
            stated = params.scalar(field.name, int) if is_whole else params.number(field.name)
            option = declarations(TreeParams).get(field.name, Declared("", low=-1, high=_MOST_PARAM))  # -1: no limit
            low, high = option.low, _MOST_PARAM if option.high is None else option.high
            if low is None or not low <= stated <= high:  # also fails for NaN
                params.fail(field.name, f"must be from {low} to {high:g}, not {stated:g}")
            known[field.name] = stated
    return TreeParams(**known)


def continued(start: Start, options: TrainOptions) -> TrainOptions:
    """Options of a warm start: targets, objective and parameters of the start, and folds."""
    return replace(
        options,
        targets=tuple(target for target in start.spec.targets if target != RANK),
        rank=start.objective or options.rank,
        folds=options.folds or _FOLDS,
        prior=0.0,
        params=replace(start.params, n_estimators=NEW_TREES),
    )


def recipe_of(start: Start, options: TrainOptions) -> TrainOptions:
    """Options that a model was trained with, as far as its files state them, with the folds of others."""
    seed, prior = (start.manifest.get(name) for name in ("seed", "prior"))
    return replace(
        options,
        targets=(),
        rank=start.objective or options.rank,
        seed=seed if isinstance(seed, int) else options.seed,
        prior=prior if isinstance(prior, (int, float)) else 0.0,
        params=start.params,
    )


def check_start(start: Start, spec: ModelSpec, options: TrainOptions) -> tuple[str, ...]:
    """Return what differs in architecture, hardware and element type; refuse other targets or inputs, naming all."""
    old = start.spec
    if old.estimate and not start.model.forest(RANK).leaf_value.any():
        raise UsageError(
            f"{start.path} ranks by the analytic estimate and few measurements: it has no trees to continue",
            "train on its data and the new, without --warm-start",
            code="not-continuable",
        )
    stated = [(name, getattr(old, name), getattr(spec, name)) for name in ("dtype", "arch")]
    profile = sorted({*old.hardware, *spec.hardware})
    stated += [(f"hardware {name}", old.hardware.get(name), spec.hardware.get(name)) for name in profile]
    required = [
        ("operation", old.op_type, spec.op_type),
        ("direction", str(old.variant or "any"), str(spec.variant or "any")),
        ("rank objective", str(start.objective or "unknown"), str(options.rank)),
    ]
    allowed, differences = (
        [f"{name}: {was} there, {now} here" for name, was, now in values if was != now] for values in (stated, required)
    )
    if old.legacy_tiles:
        differences.insert(0, "encoding: AMD's tools made it, whose kernel columns mean something else")
    for name in ("feature_names", "categorical_features", "targets", "log_targets"):
        was, now = list(getattr(old, name)), list(getattr(spec, name))
        both = (was, now) if name == "feature_names" else (sorted(was), sorted(now))
        if both[0] != both[1]:
            lost = " ".join(f"-{feature}" for feature in was if feature not in now)
            new = " ".join(f"+{feature}" for feature in now if feature not in was)
            differences.append(f"{name.replace('_', ' ')}: {f'{lost} {new}'.strip() or 'another order'}")
    if differences or (old.arch == HOST) != (spec.arch == HOST):  # times of a CPU do not apply to a GPU
        hint = "a start must have the same targets and inputs; train without --warm-start"
        why = "; ".join([*differences, *allowed])
        raise UsageError(f"{start.path} cannot be continued with this training: {why}", hint, code="not-continuable")
    return tuple(allowed)
