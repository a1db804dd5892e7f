"""Why the first kernel of a ranking ranks above the second: contributions of features to the scores, and size effects.

Contributions are exact Shapley values of the trees that rank, with the second kernel as background: they sum to the
difference of both scores (`ranking.attribution`). Features are grouped by their names.
"""

from __future__ import annotations

import json
import re
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.archs import HOST
from ckh.learn.answers.explanation import Explanation, FeatureReason, Quantisation, Reason, Roofline
from ckh.ranking.attribution import difference_by_feature

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ckh.learn.answers.ranking import Ranking
    from ckh.ops.base import Kernel

_NEAREST = 3  # measured problems to list
_FEATURES = 5  # features with the largest contributions to list
# Group -> patterns of feature names; the first match counts.
_WORDS: dict[str, list[str]] = json.loads(Path(__file__).with_name("feature_groups.json").read_bytes())
_OTHER = "problem"


def explain(ranking: Ranking) -> Explanation | None:
    """Explain why the first kernel of an answer ranks above the next with a different score; None if there is none."""
    rows = ranking.best(2)
    if len(rows) < 2:  # noqa: PLR2004 - kernels to compare
        return None
    model, op = ranking.model, ranking.model.spec.op
    kernels = [row.kernel for row in rows]
    first, second = (op.kernels.name(kernel) for kernel in kernels)
    difference = rows[0].score - rows[1].score
    reasons: tuple[Reason, ...] = ()
    features: tuple[FeatureReason, ...] = ()
    if model.spec.feature_names and not ranking.estimated:
        names, values = model.inputs.names, model.matrix(ranking.run, kernels)
        more = difference_by_feature(model.packed_forest(model.spec.rank_by), *values)
        difference, reasons = float(more.sum()), _by_word(names, more)
        largest = [i for i in np.argsort(-np.abs(more), kind="stable")[:_FEATURES].tolist() if more[i]]
        features = tuple(
            FeatureReason(names[i], float(values[0, i]), float(values[1, i]), float(more[i])) for i in largest
        )
    measured = model.measured
    near = measured.nearest(ranking.problem, _NEAREST) if measured is not None and measured.problems else []
    return Explanation(
        first,
        second,
        difference,
        reasons,
        features,
        _roofline(ranking),
        tuple(quantisation(ranking, kernel) for kernel in kernels) if _has_tiles(ranking, kernels) else (),
        tuple(near),
    )


def word_of(feature: str) -> str:
    """Return the group under which a feature is reported."""
    fits = (word for word, patterns in _WORDS.items() if re.search("|".join(patterns), feature))
    return next(fits, _OTHER)


def quantisation(ranking: Ranking, kernel: Any) -> Quantisation:
    """Compute the tile and wave quantization of a kernel for a problem's sizes."""
    op = ranking.model.spec.op
    assert op.problems.tiled is not None
    sizes = op.problems.tiled(ranking.run)
    m_tiles = ceil(sizes.tiled_m(kernel.tile_m) / kernel.tile_m)
    n_tiles, k_tiles = ceil(sizes.n / kernel.tile_n), ceil(sizes.k / kernel.tile_k)
    fill_m, fill_n = sizes.m / (m_tiles * kernel.tile_m), sizes.n / (n_tiles * kernel.tile_n)
    fill_k = sizes.k / (k_tiles * kernel.tile_k)
    blocks = m_tiles * n_tiles * sizes.batches
    is_host = ranking.model.spec.arch == HOST  # host kernels run on one thread
    cus = 1 if is_host else max(compute_units(ranking), 1)
    rounds = ceil(blocks / cus)
    last = (blocks - (rounds - 1) * cus) / cus
    return Quantisation(op.kernels.name(kernel), fill_m, fill_n, fill_k, blocks, rounds, last)


def compute_units(ranking: Ranking) -> int:
    """Compute units of the GPU that is asked about, or those that the problem states."""
    stated: int = getattr(ranking.run, "num_cus", 0)
    return stated or ranking.model.gpu.hardware.num_cus


def _has_tiles(ranking: Ranking, kernels: Sequence[Kernel]) -> bool:
    names = ("tile_m", "tile_n", "tile_k")
    return ranking.model.spec.op.problems.tiled is not None and all(
        hasattr(kernel, name) for kernel in kernels for name in names
    )


def _by_word(names: Sequence[str], more: NDArray[np.float64]) -> tuple[Reason, ...]:
    added: dict[str, float] = {}
    for name, contribution in zip(names, more.tolist(), strict=True):
        word = word_of(name)
        added[word] = added.get(word, 0.0) + contribution
    reasons = [Reason(word, contribution) for word, contribution in added.items() if contribution]
    return tuple(sorted(reasons, key=lambda reason: -abs(reason.contribution)))


def _roofline(ranking: Ranking) -> Roofline:
    problem, arch = ranking.run, ranking.model.gpu
    traffic = max(problem.bytes, 1)
    intensity = problem.flops / traffic
    times = arch.shortest_s(problem.dtype, traffic, problem.flops, compute_units(ranking))
    if times is None:
        return Roofline(intensity, None, None, None)
    memory_s, compute_s = times
    bound = "memory" if memory_s >= compute_s else "compute"
    return Roofline(intensity, intensity * memory_s / compute_s, bound, max(times) * 1e3)
