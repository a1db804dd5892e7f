"""`feature_spec.json`: what a model was trained on, and its inputs. AMD's keys, and one key of ckh's own."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from math import isinf
from typing import TYPE_CHECKING, Any

from ckh.archs import arch_names, load_arch
from ckh.errors import DataError, ModelError, UsageError
from ckh.files.jsonfields import model_fields
from ckh.files.untrusted import MOST_MODEL_BYTES, read_bytes, require_name
from ckh.learn.models import published
from ckh.learn.models.manifest import problem_count
from ckh.ops import is_operation, operation, operation_names
from ckh.ops.base import Encoding
from ckh.problems import DTYPE_BYTES, Direction
from ckh.schema import HARDWARE
from ckh.text.log import one_line
from ckh.text.prose import one_of
from ckh.text.shown import Shown, ShownTable
from ckh.training import LOG_TARGETS, RANK, TFLOPS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ckh.archs import ArchSpec
    from ckh.data.dataset import Dataset
    from ckh.features.engine import FeatureEngine
    from ckh.files.jsonfields import JsonFields
    from ckh.ops.base import AnyOperation

SPEC_NAME = "feature_spec.json"

_MOST_OF_HARDWARE = 2**40  # upper bound: features multiply them

_RANK_WITH_ESTIMATE = "estimate+rank"  # versions of ckh without such models refuse it

_WITH_WIDTHS = "_vec"  # after an operation's name: AMD's feature engine of it that has vector widths

ANY = "any"  # element type of models for all types
BETWEEN_DEVICES = ", "

_DIRECTION_IN_NAME = re.compile("|".join(direction.value for direction in Direction))


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The data that a model was trained on."""

    op_type: str
    variant: Direction | None
    dtype: str
    arch: str
    device: str
    feature_names: tuple[str, ...]
    categorical_features: tuple[str, ...]
    targets: tuple[str, ...]
    log_targets: tuple[str, ...]
    rank_by: str
    hardware: dict[str, int]
    legacy_tiles: bool
    estimate: bool = False
    """Ranking scores are minus the logarithm of the analytic estimate, corrected by the trees."""

    @property
    def op(self) -> AnyOperation:
        """The operation."""
        return operation(self.op_type)

    @property
    def gpu(self) -> ArchSpec:
        """The architecture with the compute units of the measured GPU, where AMD's tools did not state them."""
        return load_arch(self.arch).sized(0 if self.legacy_tiles else self.hardware.get("num_cus", 0))

    @property
    def encoding(self) -> Encoding:
        """The model's encoding of kernels."""
        return Encoding.on(self.arch, legacy=self.legacy_tiles)

    def peak_of(self, dtype: str) -> tuple[float, int]:
        """Peak TFLOPS of a compute unit, 0 if unknown or kernels leave operations out, and units of the largest GPU."""
        arch, may_leave_out = load_arch(self.arch), "kernel" in self.op.training.needed_columns
        known = arch.peak_tflops(dtype, 1)
        return 0.0 if may_leave_out or isinf(known) else known, arch.largest_gpu

    @property
    def engine(self) -> FeatureEngine:
        """The feature engine of the operation."""
        return self.op.training.engine

    @property
    def purpose(self) -> str:
        """The model's purpose as text."""
        variant = f"{self.variant or 'any direction'} " if self.op.has_directions else ""
        return f"{self.op_type} {variant}{self.dtype} on {self.arch}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Requirements on a model."""

    op_type: str
    variant: str | None
    dtype: str
    arch: str
    num_cus: int = 0
    """Compute units of the GPU; 0: those of `load_arch`."""

    @property
    def gpu(self) -> ArchSpec:
        """The architecture with the GPU's compute units."""
        return load_arch(self.arch).sized(self.num_cus)

    def __str__(self) -> str:
        """Text for messages."""
        variant = "" if self.variant is None else f"{self.variant} "
        return f"{self.op_type} {variant}{self.dtype} on {self.arch}"

    def fits(self, spec: ModelSpec) -> bool:
        """True if a model meets the requirements."""
        same = (spec.op_type, spec.arch) == (self.op_type, self.arch) and spec.dtype in (ANY, self.dtype)
        return same and spec.variant in (None, self.variant)


class ShownModel(Shown):
    """Base of models: how they are represented."""

    path: Path
    spec: ModelSpec
    only: object
    not_measured: object

    def __repr__(self) -> str:
        path, is_as_stored = str(self.path), self.only is None and self.not_measured is None
        return f"ckh.load_model({path!r})" if is_as_stored else f"<ckh.Model {path}: {self.spec.purpose}>"

    def table(self) -> ShownTable:
        """One row: what the model is for, and the number of problems it was trained on."""
        shown = ("op_type", "variant", "dtype", "arch", "device", "rank_by", "targets")
        row = (str(self.path), problem_count(self.path) or None, *(getattr(self.spec, name) for name in shown))
        return ShownTable(repr(self), ("model", "problems", *shown), [row])


def spec_of(dataset: Dataset, targets: tuple[str, ...]) -> ModelSpec:
    """Build the spec of a model of these targets, trained on all rows of a dataset."""
    frame, op = dataset.frame, dataset.op
    devices = sorted(frame["device"].dropna().unique())
    hardware = {name: value for name, value in dataset.hardware().items() if isinstance(value, int)}
    return ModelSpec(
        op_type=op.name,
        variant=Direction(frame["variant"].iloc[0]) if "variant" in op.training.model_per else None,
        dtype=str(frame["dtype"].iloc[0]) if "dtype" in op.training.model_per else ANY,
        arch=dataset.arch,
        device=BETWEEN_DEVICES.join(devices),
        feature_names=op.training.engine.names,
        categorical_features=op.training.engine.categorical,
        targets=targets,
        log_targets=tuple(target for target in LOG_TARGETS if target in targets),
        rank_by=RANK if RANK in targets else TFLOPS,
        hardware=hardware,
        legacy_tiles=False,
    )


def spec_text(spec: ModelSpec, params: dict[str, Any]) -> str:
    """Format the content of a spec file; `params` are LightGBM's."""
    ours: dict[str, Any] = {
        "variant": None if spec.variant is None else str(spec.variant),
        "device": spec.device,
        "rank_by": _RANK_WITH_ESTIMATE if spec.estimate else spec.rank_by,
        "tile_naming": "true",
    }
    document = {
        "op_type": spec.op_type,
        "feature_encoding_version": spec.engine.encodings[0],
        "feature_engine": spec.op_type,
        "hardware": spec.hardware,
        "dtype": spec.dtype,
        "arch": spec.arch,
        "feature_names": list(spec.feature_names),
        "categorical_features": list(spec.categorical_features),
        "targets": list(spec.targets),
        "log_targets": sorted(spec.log_targets),
        "params": params,
        "ckh": ours,
    }
    return json.dumps(document, indent=1) + "\n"


def may_be_for(folder: Path, names: Sequence[str]) -> bool:
    """True if the spec in a folder contains the names of an operation or architecture; if not, it is of another.

    It is not parsed, so that a prediction does not depend on other models and operations.
    """
    try:
        content = read_bytes(folder / SPEC_NAME, MOST_MODEL_BYTES)
    except DataError:
        return True
    is_plain = b"\\" not in content and b"\0" not in content  # otherwise text may be encoded differently
    return not is_plain or all(f'"{name}'.encode() in content for name in names)


def read_spec(folder: Path) -> ModelSpec:
    """Read the spec of the model in a folder."""
    path = folder / SPEC_NAME
    if not path.is_file():
        raise ModelError(f"{folder} is not a model: it has no {SPEC_NAME}", code="not-a-model")
    try:
        with model_fields(path) as fields:
            return _parse(fields, folder)
    except UsageError as error:
        raise ModelError(f"{path}: {error.message}", error.hint, code=error.code) from error


def _parse(fields: JsonFields, folder: Path) -> ModelSpec:
    where = folder / SPEC_NAME
    op_type = fields.scalar("op_type", str).removesuffix(_WITH_WIDTHS)
    if not is_operation(op_type):
        raise ModelError(
            f"{where}: unknown operation {op_type!r}", one_of(op_type, operation_names()), code="unknown-op"
        )
    engine = operation(op_type).training.engine
    # AMD's older specs have neither version nor hardware: defaults from before these keys apply.
    encoding = fields.scalar("feature_encoding_version", int) if fields.has("feature_encoding_version") else 0
    if encoding not in engine.encodings:
        known = " and ".join(map(str, engine.encodings))
        message = f"{where}: features of encoding version {encoding}, ckh has {known}"
        raise ModelError(message, "train the model again", code="other-version")
    arch = fields.scalar("arch", str)
    if arch not in arch_names():
        raise ModelError(
            f"{where}: unknown architecture {arch!r}", "it knows " + ", ".join(arch_names()), code="unknown-arch"
        )
    ours = fields.part("ckh") if fields.has("ckh") else None
    names = fields.strings("feature_names")
    targets = _targets(fields, folder, is_amds=ours is None)
    spec = ModelSpec(
        op_type=op_type,
        variant=_variant(folder.name) if ours is None else _direction(ours, where),
        dtype=_dtype(fields),
        arch=arch,
        device="" if ours is None else one_line(ours.scalar("device", str)),
        feature_names=names,
        categorical_features=_categorical(fields, names, engine, is_amds=ours is None),
        targets=targets,
        log_targets=_log_targets(fields, folder, targets, is_amds=ours is None),
        rank_by=TFLOPS if ours is None else ours.scalar("rank_by", str),
        hardware=_hardware(fields.part("hardware"), where) if fields.has("hardware") else {},
        legacy_tiles=ours is None,
    )
    if ours is not None and spec.rank_by == _RANK_WITH_ESTIMATE:
        if not spec.op.training.estimated or load_arch(arch).peaks is None:
            ours.fail("rank_by", f"is of an estimate, and there is none of {op_type} on {arch}")
        spec = replace(spec, rank_by=RANK, estimate=True)
    if spec.rank_by not in (RANK, TFLOPS):
        raise ModelError(
            f"{where}: ranks by {spec.rank_by[:80]!r}, and ckh ranks by {RANK} or {TFLOPS}",
            "train the model again",
            code="bad-field",
        )
    if spec.rank_by not in targets:
        raise ModelError(
            f"{where}: ranks by {spec.rank_by!r}, which is not among its targets {', '.join(targets)}", code="bad-field"
        )
    spec.engine.select(spec.feature_names)
    return spec


def _dtype(fields: JsonFields) -> str:
    dtype = fields.scalar("dtype", str)
    if dtype != ANY and dtype not in DTYPE_BYTES:
        fields.fail("dtype", f"must be one of {', '.join((ANY, *DTYPE_BYTES))}, not {dtype[:80]!r}")
    return dtype


def _targets(fields: JsonFields, folder: Path, *, is_amds: bool) -> tuple[str, ...]:
    """Read the targets; if AMD's spec lacks them, those with a model file in the folder."""
    if is_amds and not fields.has("targets"):
        if not (targets := published.targets_in(folder)):
            fields.fail("targets", "is missing, and there is no model_*.lgbm that would say them")
        return targets
    return tuple(require_name(target, "the target") for target in fields.strings("targets"))


def _log_targets(fields: JsonFields, folder: Path, targets: tuple[str, ...], *, is_amds: bool) -> tuple[str, ...]:
    """Read the targets trained on logarithms; if AMD's spec lacks them, detected from the model files."""
    if is_amds and not fields.has("log_targets"):
        return tuple(target for target in targets if target in LOG_TARGETS and published.is_of_logs(folder, target))
    return fields.strings("log_targets")


def _categorical(
    fields: JsonFields, names: tuple[str, ...], engine: FeatureEngine, *, is_amds: bool
) -> tuple[str, ...]:
    """Read the categorical inputs; if AMD's spec lacks them, those of AMD's feature engine."""
    if is_amds and not fields.has("categorical_features"):
        return tuple(name for name in engine.categorical if name in names)
    return fields.strings("categorical_features")


def _variant(name: str) -> Direction | None:
    matched = _DIRECTION_IN_NAME.search(name)
    return Direction(matched[0]) if matched else None


def _direction(ours: JsonFields, where: Path) -> Direction | None:
    if ours.is_null("variant"):
        return None
    text = ours.scalar("variant", str)
    try:
        return Direction(text)
    except ValueError as error:
        raise ModelError(
            f"{where}: ckh.variant must be one of {', '.join(Direction)}, not {text!r}", code="bad-field"
        ) from error


def _hardware(fields: JsonFields, where: Path) -> dict[str, int]:
    known = {name: fields.scalar(name, int) for name in HARDWARE if fields.has(name)}
    if not all(0 <= number < _MOST_OF_HARDWARE for number in known.values()):
        raise ModelError(f"{where}: hardware must be whole numbers from 0 to {_MOST_OF_HARDWARE}", code="bad-field")
    return known
