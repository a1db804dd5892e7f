"""Small models of the CPU, trained once per session from samples of its measurements; those that ship are of GPUs."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

import ckh
from ckh.archs import HOST

SAMPLES = Path(__file__).parent / "fixtures" / "host"
FORWARD, BWD_DATA, BWD_WEIGHT, GEMM = NAMES = (
    "grouped_conv_forward_fp32_host",
    "grouped_conv_bwd_data_fp32_host",
    "grouped_conv_bwd_weight_fp32_host",
    "gemm_universal_fp32_host",
)
DATA = {name: SAMPLES / f"{name}.parquet" for name in NAMES}
"""Measured by `ckh bench` on one thread of an AMD EPYC, by the name of the model."""
_OPTIONS: dict[str, Any] = {"n_estimators": 40, "num_leaves": 15, "folds": 3, "prior": 0, "seed": 0}


@pytest.fixture(scope="session")
def host_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the four models, trained once for all processes of these tests."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "host-models"
    folder.mkdir(exist_ok=True)
    with (folder.with_suffix(".lock")).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name, data in DATA.items():
            if not (folder / name).exists():
                ckh.train(data, out=folder / name, **_OPTIONS)
    return folder


@pytest.fixture
def known_host(host_models: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The models are found as the user's, for `--arch host`."""
    monkeypatch.setenv("CKH_MODELS", str(host_models))
    return host_models


@pytest.fixture
def host_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are for the CPU unless another architecture is named."""
    monkeypatch.setattr("ckh.archs.MEASURED_GPU", HOST)
    monkeypatch.setattr("ckh.archs.assumed_gpu", lambda: "")
    monkeypatch.setattr("ckh.learn.answers.answering.assumed_gpu", lambda: "")


@pytest.fixture
def host_by_default(known_host: Path, host_asked: None) -> Path:
    """Both: answers for the CPU are by these models."""
    return known_host
