"""Compiling for `hip` and loading without a GPU: results of each kernel, and the metadata of its library."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.bench.compilation.compile import KernelBuilder
from ckh.bench.compilation.kernel_cache import loadable
from ckh.bench.devices.device import DeviceOptions
from ckh.bench.devices.hip_device import HipDevice
from ckh.bench.supervision.driver import Driver, build_and_load
from ckh.bench.supervision.limits import BenchLimits
from ckh.errors import DeviceError
from ckh.kernels.compiled import compiled_here
from ckh.ops.grouped_conv.kernel import kernel_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.problems import Direction
from ckh.schema import Resources, Status
from tests.bench.fake_hipcc import FakeHipcc, write_headers
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ckh.bench.supervision.driver import BuildReport
    from ckh.ops.grouped_conv.kernel import ConvKernel

# Five that the fake headers support, and one whose pipeline they lack.
POOL = [k for k in conv_pool(Direction.FORWARD, load_arch("gfx942"), dtype="fp16") if not k.split_image]
KERNELS = [k for k in POOL if (k.pipeline, k.double_smem_buffer) == ("compv3", False)][:5]
LACKING = next(k for k in POOL if k.pipeline == "compv6")
RESOURCES = Resources(96, 16, 40, 16384, 8, 2, 0, 4)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def device_of(tmp_path: Path) -> Callable[[FakeHipcc], HipDevice]:
    """The device with a fake compiler."""

    def make(hipcc: FakeHipcc) -> HipDevice:
        path = hipcc.write(tmp_path / "bin/hipcc")
        return HipDevice(DeviceOptions("gfx942", str(path), str(write_headers(tmp_path / "include"))))

    return make


def build(device: HipDevice, kernels: Sequence[ConvKernel]) -> dict[Any, BuildReport]:
    """Compile and load all."""
    return build_and_load(Driver(device, BenchLimits(jobs=2), lambda: False), kernels)


def tokens(kernel: ConvKernel) -> str:
    """A part of the kernel's name that no other kernel has."""
    return f"_{kernel.tile_m}x{kernel.tile_n}x{kernel.tile_k}_"


def ignore(_count: int, _text: str) -> None:
    pass


@pytest.mark.slow
def test_outcomes_of_bad_kernels(device_of: Callable[[FakeHipcc], HipDevice]) -> None:
    """One that does not compile, one that crashes when loaded and an unsupported one do not affect the others."""
    device = device_of(FakeHipcc(fails=tokens(KERNELS[1]), crashes=tokens(KERNELS[2])))
    reports = build(device, [*KERNELS, LACKING])
    statuses = [reports[kernel].status for kernel in (*KERNELS, LACKING)]
    ok, crash = Status.OK, Status.CRASH
    assert statuses == [ok, Status.COMPILE_ERROR, crash, ok, ok, Status.UNSUPPORTED]
    expect_values(reports[KERNELS[1]].message, "3:1: error: ")
    expect_values(reports[KERNELS[2]].message, "loaded", "SIGABRT")
    expect_values(reports[LACKING].message, "mid2025", "compv6")
    assert [reports[kernel].library for kernel in (KERNELS[1], LACKING)] == ["", ""]
    assert [reports[kernel].resources is None for kernel in (KERNELS[1], LACKING)] == [True, True]


@pytest.mark.slow
def test_unreached_kernels_are_omitted_after_a_stop(device_of: Callable[[FakeHipcc], HipDevice]) -> None:
    """When stopped at once, only kernels without a compiler are reported; when stopped while loading, those loaded."""
    device = device_of(FakeHipcc())
    reports = build_and_load(Driver(device, BenchLimits(jobs=1), lambda: True), [*KERNELS, LACKING])
    assert list(reports) == [LACKING]
    build(device, KERNELS)
    # One query for each library in the cache, then one before each is loaded.
    answers = iter([False] * (len(KERNELS) + 2) + [True] * 10)
    reports = build_and_load(Driver(device, BenchLimits(jobs=1), lambda: next(answers)), KERNELS)
    assert list(reports) == KERNELS[:2]


def test_without_a_compiler_nothing_is_built() -> None:
    """The error names the compiler that was tried, before any kernel is compiled."""
    device = HipDevice(DeviceOptions("gfx942", hipcc="/nonexistent"))
    with expect_refusal(DeviceError, "no-compiler", "/nonexistent"):
        build(device, KERNELS)


def test_a_compiler_without_output_is_reported(tmp_path: Path) -> None:
    """A wrapper that reports success without output is not a compiler, and leaves nothing behind."""
    (tmp_path / "liar").write_text("#!/bin/sh\necho version 1\n", encoding="utf-8")
    (tmp_path / "liar").chmod(0o755)
    include = write_headers(tmp_path / "include")
    with expect_refusal(DeviceError, "broken-toolchain"):
        build(HipDevice(DeviceOptions("gfx942", str(tmp_path / "liar"), str(include))), KERNELS[:1])
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_a_lacking_kernel_is_unsupported_and_costs_nothing(
    device_of: Callable[[FakeHipcc], HipDevice], cache: Path
) -> None:
    """It counts as progress, not as missing from the cache, and no file is made."""
    builder, advanced = KernelBuilder(device_of(FakeHipcc())), []
    built = builder.build([LACKING], 1, lambda count, _text: advanced.append(count))
    assert built[LACKING].status is Status.UNSUPPORTED
    assert (built[LACKING].library, built[LACKING].source_hash, built[LACKING].binary) == ("", "", None)
    assert len(builder.missing([LACKING, *KERNELS])) == len(KERNELS)
    assert advanced == [1]
    assert not cache.exists() or not list(cache.rglob("*.so"))


def test_facts_about_a_library_are_stored_with_it(device_of: Callable[[FakeHipcc], HipDevice], cache: Path) -> None:
    """Code hash and resources are in its file, and read from the cache; resources are also found by name."""
    device = device_of(FakeHipcc(scratch=8))
    first = KernelBuilder(device).build(KERNELS[:1], 1, ignore)[KERNELS[0]]
    assert first.binary is not None
    assert first.binary.resources == RESOURCES
    assert [path.name for path in (cache / "kernels").rglob("*") if path.is_file()] == [f"{first.source_hash}.so"]
    assert compiled_here("gfx942", "grouped_conv") == {kernel_name(KERNELS[0]): RESOURCES}
    Path(device.compile_command(KERNELS[0], cache, cache)[0]).write_text("exit 1", encoding="utf-8")
    assert KernelBuilder(device).build(KERNELS[:1], 1, ignore)[KERNELS[0]] == first


@pytest.mark.slow
def test_kernels_compiled_together_equal_those_compiled_alone(
    device_of: Callable[[FakeHipcc], HipDevice], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two compilers make five libraries with the same metadata as alone, each with its own name."""
    device = device_of(FakeHipcc(scratch=8))
    builder = KernelBuilder(device)
    built = builder.build(KERNELS, 2, ignore)
    assert [len(line.split()) for line in log_of(device)] in ([3, 2], [2, 3])
    assert [report.status for report in built.values()] == [Status.OK] * 5
    assert compiled_here("gfx942", "grouped_conv") == {kernel_name(kernel): RESOURCES for kernel in KERNELS}
    names = []
    for item in built.values():
        library: Any = ctypes.CDLL(loadable(item.library))
        library.ckh_name.restype = ctypes.c_char_p
        names.append(library.ckh_name().decode())
    assert names == [kernel_name(kernel) for kernel in KERNELS]
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "other"))
    for kernel in KERNELS:
        alone = KernelBuilder(device).build([kernel], 1, ignore)[kernel]
        assert (alone.binary, alone.source_hash) == (built[kernel].binary, built[kernel].source_hash)
    assert [len(line.split()) for line in log_of(device)][2:] == [1] * 5


def log_of(device: HipDevice) -> list[str]:
    """Names of the kernels of each call of the fake compiler."""
    hipcc = device.compile_command(KERNELS[0], Path(), Path())[0]
    return Path(f"{hipcc}.log").read_text(encoding="utf-8").splitlines()


def test_kernels_with_other_parameters_have_other_code(device_of: Callable[[FakeHipcc], HipDevice]) -> None:
    """This also holds for the fake compiler's kernels, which all do the same."""
    built = KernelBuilder(device_of(FakeHipcc())).build(KERNELS, 2, ignore)
    assert (
        len({kernel_builder.source_hash for kernel_builder in built.values()})
        == len({item.code_hash for item in built.values()})
        == 5
    )
