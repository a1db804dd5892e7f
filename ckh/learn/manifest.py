"""`train_manifest.json`: what a model says of its training data. Reading it imports next to nothing."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError
from ckh.jsonfields import read_json
from ckh.training import Labels

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.ops.base import Problem

MANIFEST_NAME = "train_manifest.json"
_ID_LENGTH = 12


def problem_id(problem: Problem) -> str:
    """A short hash that stands for a problem in manifests."""
    return hashlib.sha256(problem.canonical().encode()).hexdigest()[:_ID_LENGTH]


def trained_problems(folder: Path) -> frozenset[str] | None:
    """The ids (`problem_id`) of the problems that a model was trained on; None if its manifest does not say."""
    try:
        return frozenset(read_manifest(folder)["ckh"]["problems"])
    except (KeyError, TypeError):
        return None


def trained_layers(folder: Path) -> frozenset[str] | None:
    """The ids of the layers that a model was trained on, at any batch size; None if its manifest does not say."""
    try:
        return frozenset(read_manifest(folder)["ckh"]["layers"])
    except (KeyError, TypeError):
        return None


def labels_of(folder: Path) -> Labels:
    """The labels of the kernels that a model learned from."""
    try:
        return Labels(read_manifest(folder)["ckh"]["labels"])
    except (KeyError, TypeError, ValueError):
        return Labels.MEASURED


def problem_count(folder: Path) -> int:
    """How many problems a model was trained on; 0 if its manifest does not say."""
    count = read_manifest(folder).get("unique_shapes")
    return count if isinstance(count, int) else 0


def read_manifest(folder: Path) -> dict[str, Any]:
    """A model's manifest; empty if it is missing or damaged."""
    try:
        document = read_json(folder / MANIFEST_NAME)
    except DataError:
        return {}
    return document if isinstance(document, dict) else {}
