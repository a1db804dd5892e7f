"""The decoder and the kept code objects."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.isa.keep import BACKWARD_DATA, LEAST, MOST, code

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def decoder_cache(emulator_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the decoder, which is part of the emulated GPU."""
    return shutil.copytree(emulator_build, tmp_path_factory.mktemp("decoder") / "cache", symlinks=True)


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
