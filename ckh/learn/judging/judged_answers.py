"""Answers joined with measured rows, so that what is judged is what `ckh predict` says: its pool, order and refusals.

A measured row has the best place of the candidates that correspond to its kernel's name (`KernelJoin`).

The parts of a dataset in a model's order, ranked by the workers of a cluster: what takes longest of judging a model.

A part goes to the next worker that is free, with the files of the model, whose machine need not have them.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ckh.assess.ranked_rows import RankedRows
from ckh.cluster.calls import Call
from ckh.errors import UsageError
from ckh.files.untrusted import read_bytes
from ckh.learn.analytic.joined import KernelJoin
from ckh.learn.answers.answering import AnsweringModels
from ckh.learn.answers.ranking import rankings_of
from ckh.learn.judging.predicted_times import TimeRatios, answered_ratios, predicted_speeds
from ckh.learn.models.artifact import load_model
from ckh.learn.models.scoring import Remembered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.cluster.calls import Cluster
    from ckh.data.dataset import Dataset
    from ckh.data.parts import DatasetParts
    from ckh.learn.answers.ranking import Ranking
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Problem

_AT_ONCE = 64  # answers that are in memory: each has numbers of all candidates


def ranked_rows(model: Model, dataset: Dataset) -> RankedRows:
    """The model's answers for the problems of a dataset, joined with its rows.

    Raises:
        ModelError: a file of the model is damaged.
        UsageError: the model is for something else.
    """
    from pandas import factorize

    op, problems, problem_ids = dataset.op, dataset.problems(), dataset.problem_ids
    codes, names = factorize(dataset.frame["kernel"])
    join = KernelJoin(op, [str(name) for name in names])
    ranked = RankedRows(
        np.full(len(dataset), np.inf),
        np.full(len(problems), "", dtype=object),
        np.full(len(problems), "", dtype=object),
        np.full(len(dataset), np.nan),
        np.full(len(problems), np.nan),
    )
    order = np.argsort(problem_ids, kind="stable")
    rows_of = np.split(order, np.cumsum(np.bincount(problem_ids))[:-1])
    model.remembered = Remembered(_AT_ONCE)
    for start in range(0, len(problems), _AT_ONCE):
        some = rankings_of(problems[start : start + _AT_ONCE], model)
        for number, (answer, rows) in enumerate(zip(some, rows_of[start : start + _AT_ONCE], strict=True), start):
            if failure := answer.failure:
                ranked.refusal[number] = failure.message
                continue
            ranked.first[number] = op.kernels.name(answer.pool[answer.order[0]])
            place, tflops = _places(join, answer)
            ranked.place[rows], ranked.tflops[rows] = place[codes[rows]], tflops[codes[rows]]
            ranked.first_tflops[number] = np.nan if answer.tflops is None else answer.tflops[0]
    return ranked


def judged_rows(model: Model, dataset: Dataset, *, measured_alone: bool) -> tuple[RankedRows, TimeRatios]:
    """The rows of a dataset in the model's order, and measured over predicted times of the first.

    Args:
        model: what ranks.
        dataset: whole problems.
        measured_alone: rank the measured kernels by the model's scores, whether `ckh predict` offers them or not.

    Raises:
        CkhError: the model is damaged, for something else, or a column is missing.
    """
    ranked = _measured_rows(model, dataset) if measured_alone else ranked_rows(model, dataset)
    return ranked, answered_ratios(model, dataset, ranked)


def _measured_rows(model: Model, dataset: Dataset) -> RankedRows:
    """The measured rows alone in the order of the model's scores, with the speeds that it predicts of them."""
    scores = model.scores(dataset)
    ranked, speeds = RankedRows.by_scores(dataset, scores), predicted_speeds(model, dataset, scores)
    if speeds is not None:
        ranked.tflops[speeds.rows] = speeds.tflops
        ranked.first_tflops[dataset.problem_ids[speeds.rows[speeds.starts]]] = speeds.tflops[speeds.starts]
    return ranked


def answering_model(problems: Sequence[Problem], arch: str) -> Model:
    """The model by which `ckh predict` answers problems on an architecture, or what stands in for it.

    Raises:
        UsageError: several models answer them.
        ModelError: nothing answers, or a model is damaged.
    """
    models = AnsweringModels(arch)
    found = Counter(models.answering(problem) for problem in problems)
    if len(found) > 1:
        names = ", ".join(f"{model.path} ({model.spec.purpose}) {count}" for model, count in found.most_common())
        raise UsageError(
            f"predict selects {len(found)} models for these problems: {names}",
            "name one with --model",
            code="several-models",
        )
    (model,) = found
    return model


def first_kernels(model: Model, dataset: Dataset, count: int) -> list[tuple[str, ...]]:
    """Names of the first kernels of the model's answer for each problem of a dataset; none where it is refused."""
    return [tuple(one.name for one in answer.best(count)) for answer in rankings_of(dataset.problems(), model)]


def _places(join: KernelJoin, answer: Ranking) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Place in an answer, infinite without one, and stated speed of each measured kernel, shape (names,)."""
    position, code = join.pairs(answer.pool)
    of_position = np.full(len(answer.pool), np.inf)
    of_position[answer.order] = np.arange(len(answer.order))
    place = np.full(join.count, np.inf)
    np.minimum.at(place, code, of_position[position])
    tflops, is_known = np.full(join.count, np.nan), np.isfinite(place)
    if answer.tflops is not None:
        tflops[is_known] = answer.tflops[place[is_known].astype(np.intp)]
    return place, tflops


_MODELS: dict[str, tuple[Model, tempfile.TemporaryDirectory[str]]] = {}  # of this worker, by digest


class FarAnswers:
    """`judged_rows` of each part, in the order of the parts.

    Args:
        cluster: whose workers compute them.
        model: what ranks.
        parts: the rows; of each worker two parts are in memory here at a time.
        measured_alone: as of `judged_rows`.
    """

    def __init__(self, cluster: Cluster, model: Model, parts: DatasetParts, *, measured_alone: bool) -> None:
        files = {path.name: read_bytes(path) for path in model.path.iterdir() if path.is_file()}
        calls = (Call(_rank, (number, files, part, measured_alone)) for number, part in enumerate(parts))
        self._results = cluster.results(calls)
        self._found: dict[int, tuple[RankedRows, TimeRatios]] = {}
        self._next = 0

    def next(self) -> tuple[RankedRows, TimeRatios]:
        """Those of the next part.

        Raises:
            CkhError: the model cannot rank it.
            DeviceError: the cluster is gone.
        """
        while self._next not in self._found:
            call, result = next(self._results)
            self._found[call.args[0]] = result
        self._next += 1
        return self._found.pop(self._next - 1)

    def close(self) -> None:
        """Withdraw what is not needed any more."""
        self._results.close()


def _rank(
    _number: int,
    files: Mapping[str, bytes],
    part: Dataset,
    measured_alone: bool,  # noqa: FBT001 - a call's arguments stand in order
) -> tuple[RankedRows, TimeRatios]:
    """Run by a worker."""
    return judged_rows(_model(files), part, measured_alone=measured_alone)


def _model(files: Mapping[str, bytes]) -> Model:
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    key = digest.hexdigest()
    if key not in _MODELS:
        folder = tempfile.TemporaryDirectory(prefix="ckh-model-")
        for name, content in files.items():
            (Path(folder.name) / name).write_bytes(content)
        _MODELS[key] = load_model(Path(folder.name)), folder
    return _MODELS[key][0]
