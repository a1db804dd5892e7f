"""Workers of these tests use the stub of the HIP runtime; kernels are compiled for it once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bench.hip_stub.build import StubKernel, build_exported, build_kernel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def build(hip_library: Path) -> Callable[[StubKernel], str]:
    """Compile a kernel for the stub, once."""
    built: dict[StubKernel, str] = {}

    def library(kernel: StubKernel) -> str:
        if kernel not in built:
            built[kernel] = build_kernel(kernel, hip_library, f"kernel{len(built)}")
        return built[kernel]

    return library


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """exported.cpp, compiled."""
    return build_exported(tmp_path_factory.mktemp("exported"))


@pytest.fixture(autouse=True)
def _stub(hip_library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKH_HIP_LIBRARY", str(hip_library))
    monkeypatch.setenv("LD_PRELOAD", str(hip_library))  # workers' clocks pass with the GPU's
