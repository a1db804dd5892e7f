"""Duration of the reliability suites, real kernels and the emulated GPU, and comparison of JSON output with schemas."""

from __future__ import annotations

import faulthandler
import fcntl
import os
import shutil
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

# Set before NumPy and LightGBM are loaded: threads that wait for each other in a loop take most of the tests' CPU time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Tests start hundreds of processes: without bytecode each compiles ckh anew, and each pytest all tests.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False

from ckh.bench.compilation.hip_toolchain import known_ck_tile
from ckh.bench.devices.hip_device import emulated_runtime
from ckh.emulator.build import find_c_compiler
from ckh.errors import DeviceError
from tests.clusters import shared_cluster
from tests.hostmodels import host_asked, host_by_default, host_models, known_host  # noqa: F401 - fixtures
from tests.real import (
    Real,
    build_real,
    set_kernel_cache,
    skip_if_late,
    skip_without_compiler,
    wanted_by,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from ckh.cluster.calls import Cluster

RELIABILITY = ("short", "long")
LIMIT_S = 300  # of a test, on a busy machine
LIMITS_S = {"compiles": 7200, "slow": 3600}
_GRACE_S = 60


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--reliability short|long`."""
    parser.addoption(
        "--reliability",
        choices=RELIABILITY,
        default=RELIABILITY[0],
        help="how much the reliability suites try: what CI has time for, or everything (docs/reliability.md)",
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Enforce the time limit of tests of real kernels."""
    skip_if_late(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that hangs, by its name; one that hangs in C ends its process, which pytest reports by the name."""
    limit_s = next((limit_s for mark, limit_s in LIMITS_S.items() if item.get_closest_marker(mark)), LIMIT_S)

    def fail(_number: int, _frame: object) -> None:
        pytest.fail(f"{item.nodeid} takes longer than {limit_s} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(limit_s)
    faulthandler.dump_traceback_later(limit_s + _GRACE_S, exit=True, file=2)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def reliability(request: pytest.FixtureRequest) -> str:
    """The option's value, "short" or "long"."""
    return str(request.config.getoption("--reliability"))


@pytest.fixture(scope="session", autouse=True)
def _kernels_of_the_host_are_not_optimized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile them in a quarter of the time; tests of what they compute have ckh's own options (`optimized`)."""
    with pytest.MonkeyPatch.context() as patch:
        if (gcc := shutil.which("g++")) and "CXX" not in os.environ:
            compiler = tmp_path_factory.mktemp("compiler") / "g++"
            compiler.write_text(f'#!/bin/sh\nexec {gcc} "$@" -O0\n', encoding="utf-8")
            compiler.chmod(0o755)
            patch.setenv("CXX", str(compiler))
        yield


@pytest.fixture(scope="module")
def optimized() -> Iterator[None]:
    """Kernels of the host are compiled as users do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CXX", raising=False)
        yield


@pytest.fixture(autouse=True)
def _documents_have_their_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare each JSON document printed by a test in this process with its schema (tests/jsonschemas.py)."""
    from ckh import documents
    from tests.jsonschemas import require_described

    enveloped = documents.enveloped

    def checked(document: documents.Document) -> dict[str, Any]:
        made = enveloped(document)
        require_described(document.schema, made)
        return made

    monkeypatch.setattr(documents, "enveloped", checked)


@pytest.fixture(autouse=True)
def _no_model_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins like a new process, without known unusable models."""
    monkeypatch.setattr("ckh.learn.models.artifact._LEFT_OUT", {})


@pytest.fixture(autouse=True)
def _no_headers_are_known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers and plans are those of a machine without a HIP compiler and CK Tile's headers.

    But for tests that compile with them, and those that name a compiler themselves.
    """
    if request.node.get_closest_marker("compiles") is None:
        for name in ("HIPCC", "ROCM_PATH"):
            monkeypatch.delenv(name, raising=False)
        if known_ck_tile() is not None:
            monkeypatch.setenv("CK_TILE_INCLUDE", "/nonexistent")


@pytest.fixture(scope="session")
def real_kernels(request: pytest.FixtureRequest) -> Real:
    """The kernels that the selected tests need, compiled and loaded."""
    skip_without_compiler()
    with pytest.MonkeyPatch.context() as patch:
        set_kernel_cache(patch)
        return build_real(wanted_by(request.session.items))


@pytest.fixture(scope="session")
def emulator_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the emulated GPU, built once for all processes of these tests, which copy it."""
    try:
        find_c_compiler()
    except DeviceError as error:
        pytest.skip(f"no emulated GPU: {error.message}")
    own = tmp_path_factory.getbasetemp()
    cache = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "emulator-build"
    cache.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        patch.setenv("CKH_CACHE_DIR", str(cache))
        emulated_runtime()
    return cache


@pytest.fixture(autouse=True)
def _tables_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make tables unlimited, so that tests read whole names; tests of the width undo this (`narrow`)."""
    monkeypatch.setattr("ckh.text.prose._COLUMNS", 1000)


@pytest.fixture
def narrow(_tables_are_whole: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables have the width used without a terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("ckh.text.prose._COLUMNS", 80)


@pytest.fixture(scope="module")
def local() -> Iterator[Cluster]:
    """A Dask cluster of three worker processes of this machine, which use the CPU even when idle."""
    with shared_cluster(3) as cluster:
        yield cluster
