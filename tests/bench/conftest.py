"""A session-wide cache of compiled kernels, and a HIP runtime without a GPU."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from ckh.bench.supervision.protocol import WorkerConfig
from tests.bench.campaigns import Runs
from tests.bench.faults import PROBLEM, FaultyDevice
from tests.bench.hip_stub.build import build_runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ckh.ops.grouped_conv.problem import ConvProblem
    from tests.bench.faults import Fault


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cache folder of compiled kernels."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _cache(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKH_CACHE_DIR", str(cache_folder))


@pytest.fixture(scope="session")
def hip_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stub of the HIP runtime, in a folder that may also hold kernels for it."""
    return build_runtime(tmp_path_factory.mktemp("hip"))


@pytest.fixture
def make_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Runs]:
    """Make `Campaign` open a device with these faults, its workers limited to a gigabyte."""

    def make(*faults: Fault, problems: Sequence[ConvProblem] = (PROBLEM,)) -> Runs:
        device = FaultyDevice(*faults)
        monkeypatch.setattr(device, "worker_configs", lambda: (WorkerConfig(1 << 30, None),))
        return Runs(tmp_path, device, monkeypatch, problems)

    return make


@pytest.fixture
def own_hip_library(hip_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the stub, loaded into this process by a single test, and found by `HipRuntime`."""
    copy = tmp_path / "own_stub.so"
    shutil.copy(hip_library, copy)
    monkeypatch.setenv("CKH_HIP_LIBRARY", str(copy))
    return copy
