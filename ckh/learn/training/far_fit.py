"""Distributed training of final models on the workers of a cluster: `lightgbm.dask`.

Each worker computes and keeps the features of its parts of a dataset, which hold whole problems. Histograms are summed
over all workers for every split. A feature's bins are determined by one worker from its own rows, so the trees depend
on the distribution of rows.
"""

from __future__ import annotations

import importlib
import logging
import operator
from functools import partial
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np

from ckh.cluster.calls import LOST
from ckh.cluster.on_worker import is_awaited
from ckh.errors import CkhError, DataError, DeviceError
from ckh.learn.training.feature_matrix import FeatureMatrix
from ckh.learn.training.targets import make_fit
from ckh.text.log import note

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ckh.cluster.calls import Cluster
    from ckh.data.dataset import Dataset
    from ckh.data.parts import DatasetParts
    from ckh.learn.training.targets import Fit
    from ckh.ops.base import AnyOperation
    from ckh.training import TrainOptions

_OWN = ("n_jobs", "metric", "eval_at")  # set by workers themselves, or only used in validation
_LOOK_ROUNDS = 10  # rounds between checks whether the model is still awaited
_FEATURES, _GROUP = "features", "group"


class FarFit:
    """The rows of a dataset on the workers of a cluster, with the labels of all targets.

    Args:
        cluster: the cluster.
        parts: the rows; two parts are in memory here at a time.
        options: training options: targets and labels.

    Attributes:
        rows: number of usable rows.
        workers: number of workers with rows.

    Raises:
        DataError: there is no usable row.
        DeviceError: the connection to the cluster is lost.
    """

    def __init__(self, cluster: Cluster, parts: DatasetParts, options: TrainOptions) -> None:
        from distributed import wait

        self._client = cluster.client
        _be_quiet()
        cluster.everywhere(_be_quiet)
        addresses = [node.address for node in cluster.nodes()]
        kept = []
        for number, part in enumerate(parts):
            if not len(valid := part.valid()):
                continue
            where = [addresses[number % len(addresses)]]
            sent = self._client.scatter(valid, workers=where, hash=False)
            arrays = self._client.submit(_arrays, sent, options, workers=where, pure=False)
            count = self._client.submit(_shape, arrays, workers=where, pure=False)
            wait([count])
            kept.append((arrays, count, where))
        if not kept:
            raise DataError("the dataset has no valid time", "see the column status for why", code="not-measured")
        self._kept = [(arrays, _outcome(count), where) for arrays, count, where in kept]
        self.rows = sum(rows for _, (rows, _), _ in self._kept)
        self.workers = len({where[0] for *_, where in self._kept})
        note(f"{self.rows:,} rows in {len(self._kept)} parts are on {self.workers} workers")

    def fit(self, fit: Fit, op: AnyOperation, parameters: dict[str, Any], trees: int) -> Any:
        """Fit a `lightgbm.Booster` to all rows.

        Args:
            fit: the target; its arrays are not used.
            op: the operation, which defines the features.
            parameters: LightGBM's parameters.
            trees: number of trees.

        Raises:
            DeviceError: a worker died, or workers cannot reach each other.
        """
        kind: Any = lightgbm.DaskLGBMRanker if fit.is_grouped else lightgbm.DaskLGBMRegressor
        own = {name: value for name, value in parameters.items() if name not in _OWN}
        model = kind(client=self._client, n_estimators=trees, **own)
        arguments: dict[str, Any] = {
            "callbacks": [partial(_go_on, self._client.id, fit.target)],
            "feature_name": list(op.training.engine.names),
            "categorical_feature": list(op.training.engine.categorical),
        }
        if fit.is_grouped:
            arguments["group"] = self._whole(_GROUP)
        if fit.weight is not None:
            arguments["sample_weight"] = self._whole(f"{fit.target} weight")
        try:
            model.fit(self._whole(_FEATURES), self._whole(f"{fit.target} label"), **arguments)
        except (*LOST, RuntimeError, ValueError, lightgbm.basic.LightGBMError) as error:
            text = " ".join(str(error).split())
            raise DeviceError(
                f"distributed training of {fit.target} failed: {text}",
                "they must reach each other on any port",
                code="workers-died",
            ) from error
        return model.booster_

    def _whole(self, name: str) -> Any:
        """An array of all parts, as a Dask array."""
        from dask.delayed import delayed

        array: Any = importlib.import_module("dask.array")  # has no types
        result = []
        for arrays, (rows, groups), where in self._kept:
            item = self._client.submit(operator.itemgetter(name), arrays, workers=where, pure=False)
            shape: tuple[float, ...] = (groups if name == _GROUP else rows,)
            if name == _FEATURES:
                shape = (rows, np.nan)
            result.append(array.from_delayed(delayed(item), shape, dtype=np.float64))
        return array.concatenate(result, allow_unknown_chunksizes=True)


def _be_quiet() -> None:
    """Silence LightGBM, here and on workers: it prints its ports to stdout, whatever its verbosity."""
    logger = logging.getLogger("ckh.lightgbm")
    logger.setLevel(logging.CRITICAL)
    lightgbm.register_logger(logger)


def _go_on(client: str, target: str, done: Any) -> None:
    """Callback after each round: stop all workers in the same round if the model is no longer awaited."""
    if done.iteration % _LOOK_ROUNDS == 0 and not is_awaited(client, f"{target} {done.iteration}"):
        done.model.free_network()
        raise CkhError("the run has ended", code="run-ended")


def _arrays(part: Dataset, options: TrainOptions) -> dict[str, NDArray[Any]]:
    """Compute features, labels, weights and problem sizes of a part on a worker, ordered by problem."""
    order = np.argsort(part.problem_ids, kind="stable")
    columns = {name: part.frame[name].to_numpy() for name in part.op.training.input_columns}
    result: dict[str, NDArray[Any]] = {
        _FEATURES: FeatureMatrix(part.op.training.engine, columns, part.hardware()).take(order),
        _GROUP: np.unique(part.problem_ids, return_counts=True)[1],
    }
    for target in options.all_targets:
        fit = make_fit(target, part, options.rank)
        result[f"{target} label"] = fit.label[order]
        if fit.weight is not None:
            result[f"{target} weight"] = fit.weight[order]
    return result


def _shape(arrays: dict[str, NDArray[Any]]) -> tuple[int, int]:
    """Number of rows and problems of a part on a worker."""
    return len(arrays[_FEATURES]), len(arrays[_GROUP])


def _outcome(future: Any) -> tuple[int, int]:
    from distributed import CancelledError, KilledWorker

    try:
        result: tuple[int, int] = future.result()
    except CkhError:
        raise
    except (CancelledError, KilledWorker, *LOST) as error:
        raise DeviceError(
            f"a worker died while loading rows: {error}", "start it with more memory", code="workers-died"
        ) from error
    return result
