"""Recordings and their replay, compared with pandas and by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from benchmarks.search_replay import Recording, Replay, read_recording, replay
from ckh.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _frame() -> pd.DataFrame:
    frame: pd.DataFrame = pd.DataFrame(
        {
            "tile": [1, 2, 1, 2],
            "mode": ["a", "a", "b", "b"],
            "constant": [7, 7, 7, 7],
            "time_ms": [3.0, 2.0, np.nan, 9.0],
            "status": ["ok", "ok", "CompilationFailedConfig", "wrong"],
            "n_samples": [32, 32, 0, 31],
            "spread": [0.1, 0.2, np.nan, 0.3],
            "compile_ms": [1.0, 2.0, 3.0, 4.0],
        }
    )
    return frame


def test_parameters_are_distinguished_from_measurements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Columns that vary and are no measurement are parameters; a row that is not ok failed, whatever its time.

    Nothing in a recording tells whether it is whole, which is said.
    """
    _frame().to_parquet(tmp_path / "a.parquet")
    recording = read_recording(tmp_path / "a.parquet")
    assert [parameter.name for parameter in recording.space.parameters] == ["tile", "mode"]
    assert np.array_equal(recording.times_ms, [3.0, 2.0, np.nan, np.nan], equal_nan=True)
    assert recording.optimum_ms == 2.0
    assert "are not verified" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns="time_ms"), "no column time_ms"),
        (lambda frame: frame.drop(columns="status"), "no column status"),
        (lambda frame: frame.drop(columns=["tile", "mode"]), "no column of a parameter"),
        (lambda frame: frame.assign(time_ms=-1.0), "positive time_ms"),
        (lambda frame: frame.assign(status="timeout"), "at least one"),
        (lambda frame: frame.drop(columns="mode"), "duplicate"),
    ],
)
def test_unusable_recordings_are_refused(
    tmp_path: Path, change: Callable[[pd.DataFrame], pd.DataFrame], message: str
) -> None:
    """Missing columns, impossible times and repeated configurations are errors."""
    change(_frame()).to_parquet(tmp_path / "bad.parquet")
    with pytest.raises(DataError, match=message):
        read_recording(tmp_path / "bad.parquet")


def test_summary_is_the_median_of_optimum_by_best() -> None:
    """Three seeds by hand: a search without a result counts as zero."""
    result = Replay(np.array([[np.inf, 2.0], [4.0, 1.0], [2.0, 2.0]]), optimum_ms=1.0)
    assert result.summary((1, 2)) == (0.25, 0.5)


def test_stopping_at_the_optimum_fills_the_trace(synthetic: Recording) -> None:
    """A trace has the length of the budget, falls, and ends at the optimum if found."""
    result = replay(synthetic, len(synthetic.space), [0, 1])
    assert result.best_ms.shape == (2, len(synthetic.space))
    assert (np.diff(result.best_ms[:, 40:]) <= 0).all()
    assert (result.best_ms[:, -1] == synthetic.optimum_ms).all()


def test_processes_do_not_change_the_result(synthetic: Recording) -> None:
    """Two jobs give the result of one."""
    item, two = (replay(synthetic, 30, range(3), jobs=jobs) for jobs in (1, 2))
    assert np.array_equal(item.best_ms, two.best_ms)


@pytest.mark.parametrize(
    ("name", "parameters", "configurations", "failed"),
    [
        ("convolution_A100", 7, 4362, 161),
        ("convolution_MI250X", 7, 4362, 0),
        ("gemm_RTX3090", 10, 17956, 0),
        ("dedispersion_MI250X", 6, 11130, 0),
    ],
)
def test_published_recordings_are_read(
    name: str, parameters: int, configurations: int, failed: int, recorded: Callable[[str], Path]
) -> None:
    """Configurations, varying parameters and failures are those of the file."""
    recording = read_recording(recorded(name))
    assert len(recording.space.parameters) == parameters
    assert len(recording.space) == configurations
    assert int(np.isnan(recording.times_ms).sum()) == failed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "at_100", "at_220"),
    [("convolution_MI250X", 0.97, 0.995), ("convolution_A100", 0.85, 0.93), ("gemm_RTX3090", 0.97, 0.995)],
)
def test_the_default_finds_the_best_of_published_recordings(
    name: str, at_100: float, at_220: float, recorded: Callable[[str], Path]
) -> None:
    """The search reaches the stated share of the optimum in 100 and 220 measurements, median of five."""
    result = replay(read_recording(recorded(name)), 220, range(5)).summary((100, 220))
    assert result[0] >= at_100
    assert result[1] >= at_220
