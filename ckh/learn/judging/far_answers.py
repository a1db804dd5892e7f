"""The parts of a dataset in a model's order, ranked by the workers of a cluster: what takes longest of judging a model.

A part goes to the next worker that is free, with the files of the model, whose machine need not have them.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.cluster.calls import Call
from ckh.files.untrusted import read_bytes
from ckh.learn.judging.judged_answers import judged_rows
from ckh.learn.models.artifact import load_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.assess.ranked_rows import RankedRows
    from ckh.cluster.calls import Cluster
    from ckh.data.dataset import Dataset
    from ckh.data.parts import DatasetParts
    from ckh.learn.judging.predicted_times import TimeRatios
    from ckh.learn.models.artifact import Model

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
