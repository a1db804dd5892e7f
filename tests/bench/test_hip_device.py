"""The device `hip` without a GPU, or with one that exists only in the kernel driver's files."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.bench.codegen import ck_tile
from ckh.bench.codegen.unit import UnsupportedKernelError
from ckh.bench.compilation.hip_toolchain import HIP_FLAGS
from ckh.bench.devices import hip_device as module
from ckh.bench.devices.device import DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.bench.devices.hip_device import HipDevice
from ckh.bench.supervision.protocol import WorkerConfig
from ckh.errors import DeviceError, UsageError
from ckh.hardware.gpus import Gpu
from ckh.ops import grouped_conv
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.problems import Direction
from ckh.schema import HARDWARE
from tests.bench.fake_hipcc import FakeHipcc, write_headers
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from collections.abc import Callable

KB = 1024
GFX942 = load_arch("gfx942")
PLAIN = conv_pool(Direction.FORWARD, GFX942, dtype="fp16")[0]
MIXED = (
    Gpu(0, "gfx942", 304, 2100),
    Gpu(1, "gfx90a", 104, 1700),
    Gpu(2, "gfx942", 304, 2100),
    Gpu(3, "gfx942", 304, 2100),
)
NAMES = {field.name for field in fields(DeviceOptions)}


@pytest.fixture(autouse=True)
def _no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "visible_gpus", tuple)


@pytest.fixture
def mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with three GPUs of one architecture, and one of another between them."""
    monkeypatch.setattr(module, "visible_gpus", lambda: MIXED)


@pytest.fixture
def tools(tmp_path: Path) -> DeviceOptions:
    """A compiler and headers, for gfx942."""
    hipcc = FakeHipcc().write(tmp_path / "bin/hipcc")
    return DeviceOptions("gfx942", str(hipcc), str(write_headers(tmp_path / "include")))


def test_without_a_gpu_an_architecture_must_be_named() -> None:
    """The error is one line, with a hint; with --arch the device opens, without any compiler."""
    with pytest.raises(DeviceError) as caught:
        open_device("hip")
    assert caught.value.code == "no-gpu"
    assert "--arch" in caught.value.hint
    device = open_device("hip", DeviceOptions("gfx942", hipcc="/nonexistent"))
    assert device.arch is GFX942
    with expect_refusal(DeviceError, "no-compiler", "/nonexistent"):
        device.identity()
    with expect_refusal(DeviceError, "no-compiler", "/nonexistent"):
        device.cache_salt()


@pytest.mark.parametrize(
    "arch",
    [
        *("", "gfx9", "gfx9999", "GFX942", "host", "common", "../gfx942", "gfx942;rm", "gfx942 -o x", "gfx942\n"),
        *("gfx942:", "gfx942:foo+", "gfx942:xnack", "gfx942:xnack*", "gfx942:xnack+;rm", "gfx942:xnack+\n"),
        *("gfx942:xnack+:xnack+", "gfx942:xnack+:xnack-", "gfx942:sramecc+:xnack+:foo+", "gfx942,gfx90a"),
    ],
)
def test_an_unknown_architecture_is_refused(arch: str) -> None:
    """Unknown names, and names that are not targets of the compiler, never reach its command line."""
    with pytest.raises(UsageError):
        HipDevice(DeviceOptions(arch))


def test_a_product_is_compiled_for_its_architecture(tools: DeviceOptions) -> None:
    """Without a GPU its compute units are the device's."""
    identity = HipDevice(replace(tools, arch="mi308x")).identity()
    assert (identity.arch, identity.hardware["num_cus"], identity.flags[-1]) == ("gfx942", 80, "--offload-arch=gfx942")


@pytest.mark.parametrize("arch", ["gfx942", "gfx942:xnack-", "gfx942:sramecc+:xnack-", "gfx90a:xnack+:sramecc-"])
def test_a_target_may_have_features(arch: str, tools: DeviceOptions) -> None:
    """They are passed to the compiler; rules and hardware are the architecture's."""
    device = HipDevice(replace(tools, arch=arch))
    assert device.arch is load_arch(arch.partition(":")[0])
    assert f"--offload-arch={arch}" in device.compile_command(PLAIN, tools_path("a.cpp"), tools_path("a.so"))
    assert device.identity().name.startswith(f"{arch}, ")


def tools_path(name: str) -> Path:
    """A path that is not used."""
    return Path("/build") / name


def test_ckhs_headers_precede_ck_tiles(tools: DeviceOptions) -> None:
    """A single command makes the library: flags, target, both folders, output and source."""
    command = HipDevice(tools).compile_command(PLAIN, tools_path("a.cpp"), tools_path("a.so"))
    assert command[0] == tools.hipcc
    assert command[-3:] == ["-o", "/build/a.so", "/build/a.cpp"]
    assert [word for word in command if word.startswith("-I")] == [
        f"-I{ck_tile.template_dir()}",
        f"-I{Path(grouped_conv.__file__).parent}/templates/ck_tile",
        f"-I{tools.ck_include}",
    ]
    assert {"-std=c++20", "-O3", "-shared", "-fPIC", "--offload-arch=gfx942"} <= set(command)


def test_the_identity_of_an_architecture_that_is_only_compiled_for(tools: DeviceOptions) -> None:
    """It has the architecture's profile, the compiler, the headers and the flags."""
    identity = HipDevice(tools).identity()
    assert (identity.kind, identity.arch, identity.clock_mhz) == ("hip", "gfx942", GFX942.hardware.max_clock_mhz)
    assert identity.name == "gfx942, 304 CUs at 2100 MHz"
    assert identity.hardware == GFX942.hardware.to_dict()
    assert set(identity.hardware) == set(HARDWARE)
    expect_values(identity.compiler, "HIP version: 6.4.1; ", "AMD clang version 19.0.0git; ", "CK Tile mid2025 ")
    assert identity.flags[-1] == "--offload-arch=gfx942"
    assert not any(flag.startswith("-I") for flag in identity.flags)


def test_the_identity_has_every_flag(tools: DeviceOptions, tmp_path: Path) -> None:
    """The probed options and the user's are in the flags, the command and, by a hash, the name of the compiler."""
    older = FakeHipcc(refuses="-amdgpu-function-calls").write(tmp_path / "older/hipcc")
    devices = [
        HipDevice(tools),
        HipDevice(replace(tools, hipcc=str(older))),
        HipDevice(replace(tools, hipcc=f"{tools.hipcc} -O2")),
    ]
    wanted = [
        ("-amdgpu-function-calls=false" in device.identity().flags, "-O2" in device.identity().flags)
        for device in devices
    ]
    assert wanted == [(True, False), (False, False), (True, True)]
    assert len({device.identity().compiler for device in devices}) == 3
    for device in devices:
        command = device.compile_command(PLAIN, tools_path("a.cpp"), tools_path("a.so"))
        assert set(device.identity().flags) <= set(command)


def test_the_identity_of_a_gpu_has_its_own_units_and_clock(mixed: None, tools: DeviceOptions) -> None:
    """The driver's values for the GPU replace those of the profile."""
    identity = HipDevice(replace(tools, arch=None)).identity()
    assert (identity.name, identity.clock_mhz) == ("gfx942, 304 CUs at 2100 MHz", 2100)
    assert identity.hardware == {**GFX942.hardware.to_dict(), "num_cus": 304, "max_clock_mhz": 2100}


def test_products_and_partitions_are_identities(monkeypatch: pytest.MonkeyPatch, tools: DeviceOptions) -> None:
    """An MI325X is not an MI300X; a partition has its own dies, and its part of the L3 cache and of the memory."""
    identities = []
    for gpu in (
        Gpu(0, "gfx942", 304, 2100, 0x74A1, num_xcd=8, partition="SPX/NPS1"),
        Gpu(0, "gfx942", 304, 2100, 0x74A5, num_xcd=8, partition="SPX/NPS1"),
        Gpu(0, "gfx942", 38, 2100, 0x74A1, num_xcd=1, partition="CPX/NPS4"),
    ):
        monkeypatch.setattr(module, "visible_gpus", lambda gpu=gpu: (gpu,))
        identities.append(HipDevice(tools).identity())
    assert [identity.name for identity in identities] == [
        "gfx942 MI300X SPX/NPS1, 304 CUs at 2100 MHz",
        "gfx942 MI325X SPX/NPS1, 304 CUs at 2100 MHz",
        "gfx942 MI300X CPX/NPS4, 38 CUs at 2100 MHz",
    ]
    names = ("num_xcd", "l3_cache_kb", "bandwidth_gb_s")
    assert [tuple(identity.hardware[name] for name in names) for identity in identities] == [
        (8, 262_144, 5300),
        (8, 262_144, 6000),
        (1, 65_536, 1325),
    ]
    assert identities[0].difference(identities[1]).startswith("name ")


def test_the_measuring_gpu_has_its_own_compute_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """In plans and estimates too, whatever product is named, and the selected GPU's among several."""
    gpus = Gpu(0, "gfx942", 304, 2100), Gpu(1, "gfx942", 38, 2100)
    monkeypatch.setattr(module, "visible_gpus", lambda: gpus)
    for options, cus in ((DeviceOptions("mi308x"), 304), (DeviceOptions("gfx942", gpus=(1,)), 38)):
        assert HipDevice(options).arch.hardware.num_cus == cus
    monkeypatch.setattr(module, "visible_gpus", tuple)
    assert HipDevice(DeviceOptions("mi308x")).arch.hardware.num_cus == 80


def test_slow_launch_settings_are_reported(monkeypatch: pytest.MonkeyPatch, tools: DeviceOptions) -> None:
    """Variables of the HIP runtime are reported if set to a value other than 0."""
    assert HipDevice(tools).identity().environment == ()
    monkeypatch.setenv("HIP_LAUNCH_BLOCKING", "0")
    monkeypatch.setenv("AMD_SERIALIZE_KERNEL", "3")
    assert HipDevice(tools).identity().environment == ("AMD_SERIALIZE_KERNEL=3",)


def test_sensors_belong_to_the_workers_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker has its card's address, and the kernel driver's id."""
    gpus = tuple(Gpu(n, "gfx942", 304, 2100, pci=f"0000:0{n}:00.0", kfd_id=40 + n) for n in range(2))
    monkeypatch.setattr(module, "visible_gpus", lambda: gpus)
    configs = HipDevice(DeviceOptions(gpus=(1, 0))).worker_configs()
    assert [(config.gpu, config.pci, config.kfd_id) for config in configs] == [
        (1, "0000:01:00.0", 41),
        (0, "0000:00:00.0", 40),
    ]


def test_a_sparse_gpu_has_the_profile_of_its_architecture(
    monkeypatch: pytest.MonkeyPatch, tools: DeviceOptions
) -> None:
    """Missing compute units or clocks are not taken as values."""
    for gpu in (Gpu(0, "gfx942", 0, 2100), Gpu(0, "gfx942", 304, 0)):
        monkeypatch.setattr(module, "visible_gpus", lambda gpu=gpu: (gpu,))
        assert HipDevice(tools).identity().hardware == GFX942.hardware.to_dict()


@pytest.mark.parametrize(("arch", "caches_kb"), [("gfx942", 262_144 + 8 * 4096), ("gfx90a", 131_072 + 8192)])
def test_operands_rotate_unless_caches_are_flushed(arch: str, caches_kb: int) -> None:
    """By default as many as exceed twice the last-level cache and the L2 of each die; or a given number."""
    caches = 2 * caches_kb * KB
    expected = {
        (False, 0): (0, 0, caches),
        (False, 7): (0, 7, caches),
        (True, 0): (caches, 1, 0),
    }
    for (cold, rotating), values in expected.items():
        (config,) = HipDevice(DeviceOptions(arch, cold=cold, rotating=rotating)).worker_configs()
        assert (config.flush_bytes, config.rotating, config.rotating_bytes) == values


def gpus_of(device: HipDevice) -> list[int]:
    """The GPU of each worker."""
    configs, floats = device.worker_configs(), device.arch.name == "gfx942"
    plain = WorkerConfig(0, None, "hip", fnuz_floats=floats, rotating=0, rotating_bytes=configs[0].rotating_bytes)
    assert all(config == replace(plain, gpu=config.gpu) for config in configs)
    return [config.gpu for config in configs]


def test_one_worker_for_each_gpu(mixed: None) -> None:
    """All GPUs of the architecture are used under their own indices, or the requested ones, in that order."""
    assert gpus_of(HipDevice(DeviceOptions())) == [0, 2, 3]
    assert gpus_of(HipDevice(DeviceOptions("gfx90a"))) == [1]
    assert gpus_of(HipDevice(DeviceOptions("gfx90a:xnack-"))) == [1]
    assert gpus_of(HipDevice(DeviceOptions(gpus=(3, 0)))) == [3, 0]
    # To compile for an absent architecture, with a worker that reports this if kernels are run.
    assert gpus_of(HipDevice(DeviceOptions("gfx950"))) == [0]


@pytest.mark.parametrize(("arch", "number"), [(None, 1), (None, 4), ("gfx90a", 0), ("gfx950", 0)])
def test_a_missing_gpu_is_refused(mixed: None, arch: str | None, number: int) -> None:
    """A GPU of another architecture is not used either."""
    with expect_refusal(UsageError, "no-such-gpu", arch or "gfx942", number):
        HipDevice(DeviceOptions(arch, gpus=(number,)))


def test_each_worker_has_a_share_of_the_cores(mixed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """References are computed by BLAS on the machine's cores, which the workers share."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(16)))
    threads = {
        options: HipDevice(options).worker_environment()["OPENBLAS_NUM_THREADS"]
        for options in (DeviceOptions(), DeviceOptions(gpus=(2,)), DeviceOptions("gfx950"))
    }
    assert list(threads.values()) == ["5", "16", "16"]


def test_the_cache_salt_has_all_dependencies_of_a_library(
    tools: DeviceOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiler, its arguments, flags, target, CK Tile's headers and ckh's change it; their location does not."""

    def salt(**changes: Any) -> bytes:
        return HipDevice(replace(tools, **changes)).cache_salt()

    other_hipcc = FakeHipcc(version="HIP version: 6.4.2").write(tmp_path / "other/hipcc")
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "abi.hpp").write_text("// ours\n", encoding="utf-8")
    salts = [
        salt(),
        salt(hipcc=str(other_hipcc)),
        salt(arch="gfx90a"),
        salt(arch="gfx942:xnack+"),
        salt(ck_include=str(write_headers(tmp_path / "newer", version="// two"))),
    ]
    (tmp_path / "newer/ck_tile/core.hpp").write_text("", encoding="utf-8")
    salts.append(salt(ck_include=str(tmp_path / "newer")))
    with monkeypatch.context() as patch:
        patch.setattr(module, "HIP_FLAGS", (*HIP_FLAGS, "-g"))
        salts.append(salt())
    with monkeypatch.context() as patch:
        patch.setattr(ck_tile, "template_dir", lambda: ours)
        salts.append(salt())
    (tmp_path / "wrapper").write_text(f'#!/bin/sh\nexec {tools.hipcc} "$2"\n', encoding="utf-8")
    (tmp_path / "wrapper").chmod(0o755)
    salts.append(salt(hipcc=f"{tmp_path}/wrapper --fast"))
    salts.append(salt(hipcc=str(FakeHipcc(refuses="-amdgpu-function-calls").write(tmp_path / "older/hipcc"))))
    salts.append(salt(hipcc=f"{tools.hipcc} -O2"))
    assert len(set(salts)) == len(salts)
    elsewhere = FakeHipcc().write(tmp_path / "elsewhere/bin/hipcc")
    moved = write_headers(tmp_path / "elsewhere/include")
    assert salt(hipcc=str(elsewhere), ck_include=str(moved)) == salts[0]


def test_features_missing_in_headers_are_unsupported(tools: DeviceOptions) -> None:
    """Kernels are emitted for the detected headers."""
    device = HipDevice(tools)
    kernels = conv_pool(Direction.FORWARD, GFX942, dtype="fp16")
    plain = next(kernel for kernel in kernels if kernel.pipeline == "mem" and not kernel.split_image)
    plain = replace(plain, double_smem_buffer=False)
    assert 'label[512] = "ckh-kernel:grouped_conv_fwd_fp16' in device.emit(plain)
    with pytest.raises(UnsupportedKernelError, match="compv5"):
        device.emit(replace(plain, pipeline="compv5", wave_m=1, wave_n=1, wave_k=2, num_wave_groups=2))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (DeviceOptions(arch="gfx942"), "arch"),
        (DeviceOptions(hipcc="hipcc"), "hipcc"),
        (DeviceOptions(ck_include="/usr/include"), "ck_include"),
        (DeviceOptions(gpus=(0,)), "gpus"),
        (DeviceOptions(cold=True), "cold"),
    ],
)
def test_options_of_a_gpu_are_refused_on_the_host(options: DeviceOptions, name: str) -> None:
    """An architecture or a GPU for the host is an error."""
    assert name in NAMES
    with expect_refusal(UsageError, "inapplicable-option", "host", name) as caught:
        open_device("host", options)
    assert "--device hip" in caught.value.hint


def test_an_unknown_kind_of_device_is_refused() -> None:
    """The error names the kinds."""
    with expect_refusal(UsageError, "unknown-name", "cuda") as caught:
        open_device("cuda")
    expect_values(caught.value.hint, "host, hip, emulated")


def test_opening_the_device_asks_the_driver_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No compiler, header or GPU is accessed before it is needed."""
    asked: list[int] = []

    def gpus() -> tuple[Gpu, ...]:
        asked.append(1)
        return MIXED

    def never(*_: object) -> Callable[[], None]:
        raise AssertionError("not needed yet")

    monkeypatch.setattr(module, "visible_gpus", gpus)
    monkeypatch.setattr(module, "find_hipcc", never)
    monkeypatch.setattr(module, "find_ck_tile", never)
    device = HipDevice(DeviceOptions())
    assert (device.arch.name, len(device.worker_configs()), asked) == ("gfx942", 3, [1])


def test_results_are_checked_on_the_gpu_unless_asked_for(tools: DeviceOptions, tmp_path: Path) -> None:
    """Its kernels are compiled once; where they cannot be, the host checks."""
    made = Path(HipDevice(tools).checks_library())
    assert made.is_file()
    assert HipDevice(tools).checks_library() == str(made)
    assert HipDevice(replace(tools, verify_on="host")).checks_library() == ""
    broken = FakeHipcc("HIP version: 6.5", fails="").write(tmp_path / "broken/hipcc")
    assert HipDevice(replace(tools, hipcc=str(broken))).checks_library() == ""
    with expect_refusal(UsageError, "unknown-name", "cpu"):
        HipDevice(replace(tools, verify_on="cpu"))
