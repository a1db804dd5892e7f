"""LightGBM's model text: shrinking it, and joining several models."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from ckh.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Information for humans; neither LightGBM nor ckh needs it to evaluate a tree.
_NOT_NEEDED = re.compile(
    r"^(?:split_gain|leaf_weight|leaf_count|internal_value|internal_weight|internal_count|tree_sizes)=.*\n",
    re.MULTILINE,
)
# Significant digits that suffice for ranking scores, and for half-integer thresholds of features below a million.
_DIGITS = {"leaf_value": 4, "threshold": 7}
_NUMBERS = re.compile(rf"^({'|'.join(_DIGITS)})=(.*)$", re.MULTILINE)
_TREE = re.compile(r"^Tree=\d+$", re.MULTILINE)
_END = "end of trees"


def slim(text: str) -> str:
    """Remove what is not needed: less than half the size, with bit-identical predictions."""
    return _NOT_NEEDED.sub("", text)


def shorten(text: str) -> str:
    """Round the numbers of the trees, for half the packed size, for scores that only rank.

    Leaves keep 4 significant digits, so a score changes by less than 0.05 % of the sum of its leaves' magnitudes.
    Thresholds keep 7: a row takes another path only if a feature's value is that close to one.
    """
    return _NUMBERS.sub(_rounded, text)


def _rounded(line: re.Match[str]) -> str:
    name, numbers = line.groups()
    return f"{name}=" + " ".join(f"{float(number):.{_DIGITS[name]}g}" for number in numbers.split())


def scale_leaves(text: str, factor: float) -> str:
    """Scale the leaves, and with them the raw score, by a factor; the text is slim, as sizes of trees change."""

    def scaled(line: re.Match[str]) -> str:
        return "leaf_value=" + " ".join(repr(float(number) * factor) for number in line[1].split())

    return re.sub(r"^leaf_value=(.*)$", scaled, slim(text), flags=re.MULTILINE)


def join_trees(texts: Sequence[str]) -> str:
    """Join models: the raw score is the sum of their raw scores; the rest of the text is from the first."""
    parts = [_parts(text) for text in texts]
    if len({inputs for _, inputs, _, _ in parts}) != 1:
        raise ModelError("models with different inputs cannot be joined", code="model-inputs")
    trees = [tree for _, _, many, _ in parts for tree in many]
    numbered = [_TREE.sub(f"Tree={number}", tree, count=1) for number, tree in enumerate(trees)]
    return parts[0][0] + "".join(numbered) + parts[0][3]


def _parts(text: str) -> tuple[str, str, list[str], str]:
    """Split a text into head, line of inputs, trees, and tail."""
    text = slim(text)
    starts = [tree.start() for tree in _TREE.finditer(text)]
    end = text.find(_END)
    inputs = re.search(r"^feature_names=.*$", text, re.MULTILINE)
    if not starts or end < starts[-1] or inputs is None:
        raise ModelError("not the text of a LightGBM model with trees", code="damaged-model")
    bounds = [*starts, end]
    trees = [text[a:b] for a, b in itertools.pairwise(bounds)]
    return text[: starts[0]], inputs[0], trees, text[end:]
