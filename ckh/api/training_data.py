"""Training data and folder of a request, by default the newest complete runs, and among the user's own models."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.archs import default_arch
from ckh.data.dataset import read_dataset
from ckh.data.parts import read_sample
from ckh.data.peaks import possible_rows
from ckh.errors import CkhError, DataError, UsageError
from ckh.files.outputs import check_output
from ckh.files.paths import shipped_data, user_data_dir
from ckh.learn.training.trained import MODEL
from ckh.ops import DEFAULT_OPERATION, operation
from ckh.problems import Direction
from ckh.text.log import note
from ckh.text.prose import one_of
from ckh.training import TARGETS, TFLOPS, TrainOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ckh.data.dataset import Dataset
    from ckh.data.journal import Journal
    from ckh.data.parts import Drawn

NEAREST = "nearest"  # the start that answers for the problems of the data now
MOST_ROWS = 2_000_000  # of data that are not sampled
_RUNS = Path("runs")
_NO_FOLDS = (1, 2)


@dataclass(frozen=True, slots=True, eq=False)
class TrainRequest:
    """A training: its data, its options and the folder of the model."""

    params: Mapping[str, Any]
    given: Mapping[str, Any]
    paths: Sequence[Path] = ()
    """Datasets; none: the newest complete runs, else the shipped data."""
    out: Path | None = None
    """The model's folder; None: among the user's own models."""
    op: str | None = None
    variant: Direction | None = None
    targets: tuple[str, ...] | None = None
    warm_start: Path | None = None
    sample: int = MOST_ROWS
    peak_check: bool = True
    force: bool = False
    holdout: float = 0.0
    """Share of the problems that are held out, and written beside the model."""

    def __post_init__(self) -> None:
        if self.given.get("folds") in _NO_FOLDS:
            raise UsageError(
                f"--folds {self.given['folds']} are too few: training, early stopping and scoring need one each",
                "3 or more, or 0 for none",
                code="out-of-range",
            )
        names = (TFLOPS,) if self.targets is None else self.targets
        if unknown := [name for name in names if name not in TARGETS]:
            raise UsageError(f"unknown target {unknown[0]!r}", one_of(unknown[0], TARGETS), code="unknown-name")
        if TFLOPS not in names:
            raise UsageError(f"--targets must include {TFLOPS}", code="missing-option")

    @property
    def is_nearest(self) -> bool:
        """True if the start is the model that answers now."""
        return self.warm_start is not None and str(self.warm_start) == NEAREST

    @property
    def seed(self) -> int:
        """The seed of samples and folds."""
        return int(self.given.get("seed", TrainOptions().seed))


def measured(request: TrainRequest) -> tuple[TrainRequest, str] | None:
    """Complete runs in the folder `runs` with the operation, direction and device of the newest one."""
    op, variant = request.op, request.variant
    wanted = None if variant is None else {str(variant), "all"}
    complete = [
        (journal.runs[-1], journal.path)
        for journal in _complete()
        if op in (None, journal.runs[-1].op) and (wanted is None or journal.runs[-1].variant in wanted)
    ]
    if not complete:
        return None
    newest = max((run for run, _ in complete), key=lambda run: run.started)
    keys = ("op", "variant", "dtype", "arch", "device")
    same = [path.parent for run, path in complete if all(getattr(run, key) == getattr(newest, key) for key in keys)]
    words = "own runs: " + ", ".join(map(str, same))
    several = newest.variant == "all" and operation(newest.op).has_directions
    return replace(request, paths=same, variant=variant or (Direction.FORWARD if several else None)), words


def _complete() -> Iterator[Journal]:
    from ckh.bench.supervision.limits import StopReason
    from ckh.data.journal import JOURNAL_NAME, read_journal

    for path in sorted(_RUNS.glob(f"*/{JOURNAL_NAME}")):
        try:
            journal = read_journal(path)
        except CkhError as error:
            note(f"skipped {path.parent}: {error.message}")
            continue
        is_measured = bool(journal.runs) and journal.runs[-1].device_kind != "emulated"
        if is_measured and journal.ends and journal.ends[-1].reason == StopReason.COMPLETE:
            yield journal


def _shipped(request: TrainRequest) -> tuple[TrainRequest, str]:
    """The shipped data for this machine's device."""
    name, variant = request.op or DEFAULT_OPERATION, request.variant
    arch, op = default_arch(), operation(name)
    if op.has_directions and variant is None:
        variant = Direction.FORWARD
    paths = []
    for path in sorted(shipped_data().glob("*.parquet")):
        dataset = read_dataset(path)
        is_own = dataset.op.name == name and str(dataset.frame["arch"].iloc[0]) == arch
        if is_own and (not op.has_directions or str(variant) in dataset.variants):
            paths.append(path)
    if not paths:
        of = f"{name} {variant}" if op.has_directions else name
        raise UsageError(
            f"no measurements of {of} on {arch} in runs, and no shipped data",
            "name datasets with --data, or measure with ckh bench",
            code="no-training-data",
        )
    words = f"AMD's measurements of {arch}, as there are no runs: " + ", ".join(path.name for path in paths)
    return replace(request, paths=paths, variant=variant), words


@contextmanager
def to_train_on(request: TrainRequest) -> Iterator[tuple[TrainRequest, str]]:
    """The request with the data to train on, and default data in words; converted runs exist until the context ends."""
    if request.paths:
        yield request, ""
        return
    runs = measured(request)
    if runs is None:
        yield _shipped(request)
        return
    from ckh.data import conversion
    from ckh.data.formats import ReadOptions

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "measured.parquet")
        conversion.convert(list(runs[0].paths), path, ReadOptions())
        yield replace(runs[0], paths=(path,)), runs[1]


def read_rows(request: TrainRequest) -> tuple[Dataset, Drawn | None]:
    """Read the rows to train on; of data with more than `sample` rows those of problems drawn at random."""
    only = {} if request.variant is None else {"variant": str(request.variant)}
    read, drawn = read_sample(request.paths, request.sample, request.seed, lambda op: op.column_names(), only)
    if drawn is not None:
        note(f"{drawn}: --sample {request.sample}, --seed {request.seed}")
    dataset = _selected(read, request.op, request.variant)
    return (possible_rows(dataset, ", ".join(map(str, request.paths))) if request.peak_check else dataset), drawn


def _selected(dataset: Dataset, op: str | None, variant: Direction | None) -> Dataset:
    if op is not None and operation(op).name != dataset.op.name:
        raise DataError(f"the dataset has no row of {op}", f"it has {dataset.op.name}", code="no-training-data")
    if variant is None:
        return dataset
    if not dataset.op.has_directions:
        raise UsageError(f"{dataset.op.name} has no directions", "omit --variant", code="inapplicable-option")
    mask = (dataset.frame["variant"] == str(variant)).to_numpy()
    if not mask.any():
        raise DataError(
            f"the dataset has no row of {dataset.op.name} {variant}",
            f"it has {', '.join(dataset.variants)}",
            code="no-training-data",
        )
    return dataset.select(mask)


def checked_out(dataset: Dataset, request: TrainRequest, words: str, inputs: Sequence[Path]) -> Path:
    """Output folder, by default among the user's models; prints the defaults in use."""
    out = request.out
    if out is None:
        out = _default_out(dataset, request.variant)
        check_output(out, MODEL, force=request.force, inputs=inputs)
        out.parent.mkdir(parents=True, exist_ok=True)
    if words or request.out is None:
        note(f"training on {words or 'the data named'}, into {out}")
    return out


def _default_out(dataset: Dataset, variant: Direction | None) -> Path:
    """Folder among the user's models, named like shipped models."""
    op = dataset.op
    direction = str(variant) if variant is not None else None
    if op.has_directions and direction is None:
        if len(dataset.variants) > 1:
            raise DataError(
                "the data hold " + ", ".join(dataset.variants), "name one with --variant", code="mixed-data"
            )
        direction = dataset.variants[0]
    dtype = str(dataset.frame["dtype"].iloc[0]) if "dtype" in dataset.frame else None
    parts = (op.name, direction, dtype, dataset.arch)
    return user_data_dir() / "models" / "_".join(part for part in parts if part)
