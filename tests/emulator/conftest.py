"""The emulated GPU, in a separate cache."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from ckh.bench.devices.hip_device import emulated_runtime
from ckh.emulator.launch import EmulatorLibrary
from tests.bench.fake_hipcc import write_headers
from tests.emulator.fuzz import build_sanitized
from tests.emulator.wave import Wave

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def built(emulator_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache with the emulated libamdhip64."""
    return shutil.copytree(emulator_build, tmp_path_factory.mktemp("emulator") / "cache", symlinks=True)


@pytest.fixture
def runtime(built: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The emulated runtime, with its cache as ckh's."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(built))
    return emulated_runtime()


@pytest.fixture(scope="session")
def library(built: Path) -> EmulatorLibrary:
    """Its C part, loaded into this process."""
    (path,) = (built / "emulator").rglob("libamdhip64.so")
    return EmulatorLibrary(path)


_COMPILER = """#!/bin/sh
[ "$1" = --version ] && echo 'HIP version: 7.0' && echo 'clang version 21.0.0' && exit 0
for word; do [ "$before" = -o ] && library=$word; before=$word; done
cp '{library}' "$library"
"""


@pytest.fixture
def compiled(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], int]:
    """A HIP compiler that "builds" the library with the content that is passed."""
    assert runtime.exists()
    library, hipcc = tmp_path / "kept.so", tmp_path / "hipcc"
    hipcc.write_text(_COMPILER.format(library=library))
    hipcc.chmod(0o755)
    monkeypatch.setenv("HIPCC", str(hipcc))
    monkeypatch.setenv("CK_TILE_INCLUDE", str(write_headers(tmp_path / "include")))
    return library.write_bytes


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C part, compiled once with sanitizers."""
    library = build_sanitized(tmp_path_factory.mktemp("sanitized"))
    if library is None:
        pytest.skip("no gcc with sanitizers")
    return library


@pytest.fixture
def wave(library: EmulatorLibrary) -> Wave:
    """A wave of a gfx942."""
    return Wave(library, "gfx942")


@pytest.fixture
def wave90a(library: EmulatorLibrary) -> Wave:
    """A wave of a gfx90a."""
    return Wave(library, "gfx90a")


@pytest.fixture
def wave950(library: EmulatorLibrary) -> Wave:
    """A wave of a gfx950."""
    return Wave(library, "gfx950")
