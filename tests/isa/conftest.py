"""The decoder, built once for all tests, and the kept code objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ckh.bench.devices.emulated import emulated_runtime
from ckh.emulator.build import find_c_compiler
from ckh.errors import DeviceError
from tests.isa.keep import BACKWARD_DATA, LEAST, MOST, code

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def decoder_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the decoder."""
    try:
        find_c_compiler()
    except DeviceError as error:
        pytest.skip(f"no decoder: {error.message}")
    cache = tmp_path_factory.mktemp("decoder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CKH_CACHE_DIR", str(cache))
        emulated_runtime()
    return cache


@pytest.fixture
def decoder(decoder_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That cache as ckh's."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(decoder_cache))


@pytest.fixture(scope="session")
def least(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code object of the compv3 tile with least address arithmetic."""
    return code(LEAST, tmp_path_factory.mktemp("least"))


@pytest.fixture(scope="session")
def most(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code object of the compv3 tile with most address arithmetic."""
    return code(MOST, tmp_path_factory.mktemp("most"))


@pytest.fixture(scope="session")
def backward_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code object of a backward-data kernel, whose functions have loops that do not iterate over K."""
    return code(BACKWARD_DATA, tmp_path_factory.mktemp("backward_data"))
