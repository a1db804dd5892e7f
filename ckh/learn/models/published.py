"""Facts that the specs of AMD's published models lack, read from the model files themselves.

The first specs list neither targets nor the targets trained on logarithms: `train.py` has written these since it uses
logarithms. The targets are those with a model file. LightGBM's first tree shows whether a model was trained on log1p of
its target: it holds the target's mean over the training rows.
"""

from __future__ import annotations

import re
from math import log1p
from typing import TYPE_CHECKING

from ckh.errors import ModelError
from ckh.ranking.forest_file import model_bytes, model_text
from ckh.training import TARGETS

if TYPE_CHECKING:
    from pathlib import Path

_LARGEST_MEAN_LOG = log1p(10_000)  # of TFLOPS or GB/s; without logarithms the mean is larger in AMD's data
_LEAVES = re.compile(r"^leaf_value=(.*)$", re.MULTILINE)
_COUNTS = re.compile(r"^leaf_count=(.*)$", re.MULTILINE)
_SUFFIXES = (".lgbm.gz", ".lgbm")


def model_file(folder: Path, target: str) -> Path | None:
    """File of a target's model, the newer of a packed and a plain file; None if there is none."""
    paths = [folder / f"model_{target}{suffix}" for suffix in _SUFFIXES]
    return max((path for path in paths if path.is_file()), key=lambda path: path.stat().st_mtime, default=None)


def forest_path(folder: Path, target: str) -> Path:
    """File of a target's model."""
    path = model_file(folder, target)
    if path is None:
        raise ModelError(
            f"{folder} has no model of {target}", f"model_{target}.lgbm.gz is missing", code="missing-target"
        )
    return path


def read_forest(folder: Path, target: str) -> str:
    """Read LightGBM's text of a target's model in a folder."""
    path = forest_path(folder, target)
    return model_text(model_bytes(path), str(path))


def targets_in(folder: Path) -> tuple[str, ...]:
    """Targets with a model file in a folder, in AMD's order."""
    return tuple(target for target in TARGETS if model_file(folder, target) is not None)


def is_of_logs(folder: Path, target: str) -> bool:
    """True if a model was trained on log1p of its target; False if on the target itself, or if it does not exist."""
    path = model_file(folder, target)
    return path is not None and _mean_of_first_tree(path) <= _LARGEST_MEAN_LOG


def _mean_of_first_tree(path: Path) -> float:
    text = model_text(model_bytes(path), str(path))
    leaves, counts = _LEAVES.search(text), _COUNTS.search(text)
    try:
        means = [float(word) for word in leaves[1].split()] if leaves else []
        weights = [float(word) for word in counts[1].split()] if counts else []
        return sum(mean * weight for mean, weight in zip(means, weights, strict=True)) / sum(weights)
    except (ValueError, ZeroDivisionError) as error:
        raise ModelError(
            f"{path} is damaged: its first tree has no leaves with their numbers of rows", code="damaged-model"
        ) from error
