"""Memory-efficient features: their values, and LightGBM's datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np

from ckh.learn.training import feature_matrix as module
from ckh.learn.training.feature_matrix import FeatureMatrix
from tests.learn.conftest import TREES, measured

if TYPE_CHECKING:
    import pytest
    from numpy.typing import NDArray


def both() -> tuple[FeatureMatrix, NDArray[np.float64]]:
    """The features of the test data, as a FeatureMatrix and as an array."""
    valid = measured().valid()
    columns = {name: valid.frame[name].to_numpy() for name in valid.op.training.input_columns}
    return FeatureMatrix(valid.op.training.engine, columns, valid.hardware()), valid.op.training.engine.matrix(
        columns, valid.hardware()
    )


def test_values_equal_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """For any block size and number of distinct values, every bit of every value is kept."""
    for block_rows, most_codes in ((1 << 15, 1 << 16), (7, 1 << 16), (100, 5), (7, 1)):
        monkeypatch.setattr(module, "BLOCK_ROWS", block_rows)
        monkeypatch.setattr(module, "_MOST_CODES", most_codes)
        small, array = both()
        assert len(small) == len(array)
        assert small.take(slice(None)).tobytes() == np.ascontiguousarray(array).tobytes()
        rows = np.array([5, 0, 99, 5])
        assert np.array_equal(small.take(rows), array[rows], equal_nan=True)


def test_lightgbm_data_from_blocks_equal_those_from_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of rows in blocks have the same text as models of arrays, also with features too rare to split on."""
    monkeypatch.setattr(module, "BLOCK_ROWS", 50)
    small, array = both()
    random = np.random.default_rng(0)
    label = random.random(len(array))
    train, stop = np.arange(0, len(array), 2), np.arange(1, len(array), 2)
    shared: dict[str, Any] = {"objective": "regression", "verbose": -1, "deterministic": True, "force_col_wise": True}
    for least in (3, 20, 60):
        parameters = TREES.to_dict() | shared | {"min_child_samples": least, "num_threads": 1}
        arrays = [lightgbm.Dataset(array[rows], label[rows], params=parameters) for rows in (train, stop)]
        blocks = [small.lightgbm_data(rows, label=label[rows], params=parameters) for rows in (train, stop)]
        texts = []
        for data, held in (arrays, blocks):
            stopping: list[Any] = [lightgbm.early_stopping(3, verbose=False)]
            model = lightgbm.train(parameters, data, valid_sets=[held], callbacks=stopping)
            texts.append((model.best_iteration, model.model_to_string()))
            assert np.array_equal(small.predict(model, stop), np.asarray(model.predict(array[stop])))
        assert texts[0] == texts[1]
