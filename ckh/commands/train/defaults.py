"""Default training data and output folder of `ckh train`."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.archs import default_arch
from ckh.errors import CkhError, DataError, UsageError
from ckh.files.outputs import check_output
from ckh.files.paths import shipped_data, user_data_dir
from ckh.ops import DEFAULT_OPERATION, operation
from ckh.problems import Direction
from ckh.text.log import note

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.data.dataset import Dataset
    from ckh.data.journal import Journal

_RUNS = Path("runs")


@dataclass(frozen=True, slots=True)
class DefaultData:
    """Data to train on."""

    paths: tuple[Path, ...]
    words: str
    variant: Direction | None


def _measured(op: str | None, variant: Direction | None) -> DefaultData | None:
    """Complete runs in the folder `runs` with the operation, direction and device of the newest one."""
    wanted = None if variant is None else {str(variant), "all"}
    result = [
        (journal.runs[-1], journal.path)
        for journal in _complete()
        if op in (None, journal.runs[-1].op) and (wanted is None or journal.runs[-1].variant in wanted)
    ]
    if not result:
        return None
    newest = max((run for run, _ in result), key=lambda run: run.started)
    keys = ("op", "variant", "dtype", "arch", "device")
    same = [path.parent for run, path in result if all(getattr(run, key) == getattr(newest, key) for key in keys)]
    words = "own runs: " + ", ".join(map(str, same))
    several = newest.variant == "all" and operation(newest.op).has_directions
    return DefaultData(tuple(same), words, variant or (Direction.FORWARD if several else None))


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


def _shipped(name: str, variant: Direction | None) -> DefaultData:
    from ckh.data.dataset import read_dataset

    arch, op = default_arch(), operation(name)
    if op.has_directions and variant is None:
        variant = Direction.FORWARD
    result = []
    for path in sorted(shipped_data().glob("*.parquet")):
        dataset = read_dataset(path)
        is_own = dataset.op.name == name and str(dataset.frame["arch"].iloc[0]) == arch
        if is_own and (not op.has_directions or str(variant) in dataset.variants):
            result.append(path)
    if not result:
        of = f"{name} {variant}" if op.has_directions else name
        raise UsageError(
            f"no measurements of {of} on {arch} in runs, and no shipped data",
            "name datasets with --data, or measure with ckh bench",
            code="no-training-data",
        )
    words = f"AMD's measurements of {arch}, as there are no runs: " + ", ".join(path.name for path in result)
    return DefaultData(tuple(result), words, variant)


@contextmanager
def to_train_on(said: Sequence[Path], op: str | None, variant: Direction | None) -> Iterator[DefaultData]:
    """Named or default datasets; converted runs exist until the context ends."""
    if said:
        yield DefaultData(tuple(said), "", variant)
        return
    default_data = _measured(op, variant)
    if default_data is None:
        yield _shipped(op or DEFAULT_OPERATION, variant)
        return
    from ckh.data import conversion
    from ckh.data.formats import ReadOptions

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "measured.parquet")
        conversion.convert(list(default_data.paths), path, ReadOptions())
        yield replace(default_data, paths=(path,))


def checked_out(
    dataset: Dataset, variant: Direction | None, words: str, out: Path | None, *, force: bool, inputs: Sequence[Path]
) -> Path:
    """Output folder, by default among the user's models; prints the defaults in use."""
    from ckh.learn.training.trained import MODEL

    is_said = out is not None
    out = out or _default_out(dataset, variant)
    if not is_said:
        check_output(out, MODEL, force=force, inputs=inputs)
        out.parent.mkdir(parents=True, exist_ok=True)
    if words or not is_said:
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
