"""A session-wide cache of compiled kernels, and a HIP runtime without a GPU."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.bench.hip_stub.build import build_runtime

if TYPE_CHECKING:
    from pathlib import Path


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
def own_hip_library(hip_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the stub, loaded into this process by a single test, and found by `HipRuntime`."""
    copy = tmp_path / "own_stub.so"
    shutil.copy(hip_library, copy)
    monkeypatch.setenv("CKH_HIP_LIBRARY", str(copy))
    return copy
