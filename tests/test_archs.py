"""Architecture specs: contents of the shipped files, lookup, and errors."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ckh import archs
from ckh.archs import (
    HardwareProfile,
    arch_names,
    assumed_gpu,
    default_arch,
    detect_gpu_arch,
    load_arch,
    measuring_arch,
    typed_arch,
)
from ckh.errors import DataError, UsageError
from ckh.files.paths import data_dir
from ckh.hardware.machine import read_machine
from ckh.schema import HARDWARE
from tests.refusals import expect_refusal

KB = 1024


@pytest.fixture
def specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the shipped specs, used by ckh instead."""
    folder = tmp_path / "archspecs"
    shutil.copytree(data_dir("archspecs"), folder)
    monkeypatch.setattr(archs, "data_dir", lambda name: folder)
    return folder


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_every_shipped_architecture_loads() -> None:
    """All nine files are listed and readable."""
    expected = {"gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1200", "gfx1201", "gfx1250", "host"}
    assert set(arch_names()) == expected
    assert {load_arch(name).name for name in arch_names()} == expected


def test_only_cdna3_has_fnuz_floats() -> None:
    """The others have OCP's, or none."""
    assert [name for name in arch_names() if load_arch(name).fnuz_floats] == ["gfx942"]


def test_hardware_profile_has_the_columns_of_the_dataset() -> None:
    """The profile and the hw_ columns are the same eleven numbers in the same order."""
    assert tuple(field.name for field in fields(HardwareProfile)) == HARDWARE
    assert tuple(load_arch("gfx950").hardware.to_dict()) == HARDWARE


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("gfx950", (256, 4, 32, 2400, 32, 64, 163840, 32, 4096, 262144, 8)),
        ("gfx942", (228, 4, 28, 2100, 32, 64, 65536, 32, 4096, 262144, 8)),
        ("gfx90a", (110, 4, 8, 1700, 32, 64, 65536, 16, 8192, 131072, 1)),
    ],
)
def test_hardware_profiles_match_amds_datasets(name: str, numbers: tuple[int, ...]) -> None:
    """With the compute units of AMD's models, the profiles agree with the hw_ columns that AMD's converter writes."""
    arch = load_arch(name)
    assert (arch.amd_num_cus, *list(arch.hardware.to_dict().values())[1:]) == numbers


@pytest.mark.parametrize(
    ("arch", "pipeline", "dsb", "kb"),
    [
        ("gfx942", "mem", False, 64),
        ("gfx942", "mem", True, 32),
        ("gfx942", "compv3", True, 32),
        ("gfx942", "compv5", True, 32),
        ("gfx942", "basic_v1", True, 64),
        ("gfx942", "compv4", True, 32),
        ("gfx942", "compv6", False, 32),
        ("gfx942", "compv6", True, 32),
        ("gfx950", "compv3", False, 160),
        ("gfx950", "comp_async", True, 80),
        ("gfx1100", "preshufflev2", False, 32),
    ],
)
def test_lds_budget(arch: str, pipeline: str, dsb: bool, kb: int) -> None:  # a table's column
    """A pipeline has its share of the architecture's LDS, and half of that with two buffers."""
    assert load_arch(arch).lds_budget(pipeline, double_smem_buffer=dsb) == kb * KB


def test_lds_budget_of_an_unknown_pipeline_is_an_error() -> None:
    """There is no default budget."""
    with pytest.raises(UsageError, match="compv99"):
        load_arch("gfx942").lds_budget("compv99")


def test_gfx1250_is_as_published() -> None:
    """Wave size, LDS, instructions and compute units are those of public documents; it is the only unverified one."""
    arch = load_arch("gfx1250")
    assert (arch.wavefront_size, arch.lds_capacity, arch.hardware.num_cus) == (32, 320 * KB, 256)
    assert arch.warp_tiles_for("bf16") == ((16, 16, 32),)
    assert arch.warp_tiles_for("fp8") == ((16, 16, 64), (16, 16, 128))
    assert arch.peaks is None
    assert [name for name in arch_names() if load_arch(name).unverified] == ["gfx1250"]
    assert load_arch("mi455x") is arch


def test_sixteen_waves_exist_only_on_gfx950_and_host() -> None:
    """Without 4,4,1 and 8,2,1 gfx942 and older architectures lose two tiles."""
    for wave in ((4, 4, 1), (8, 2, 1)):
        assert {name for name in arch_names() if load_arch(name).supports_wave(wave)} == {"gfx950", "host"}


def test_async_pipelines_exist_only_on_gfx950() -> None:
    """Asynchronous loads exist only on gfx950."""
    for pipeline in ("comp_async", "basic_async_v1"):
        assert [name for name in arch_names() if pipeline in load_arch(name).pipelines] == ["gfx950"]


def test_every_dtype_has_an_accumulator_and_warp_tiles() -> None:
    """Every dtype of a spec has matrix instructions."""
    for name in arch_names():
        arch = load_arch(name)
        for dtype in arch.dtypes:
            assert arch.warp_tiles_for(dtype), (name, dtype)


def test_accumulators() -> None:
    """Floats are summed in fp32, int8 in int32, and an impossible pair is an error."""
    arch = load_arch("gfx950")
    assert arch.accumulator("bf16") == "fp32"
    assert arch.accumulator("fp8", "bf8") == "fp32"
    assert arch.accumulator("int8") == "int32"
    with expect_refusal(UsageError, "unsupported", "fp16", "int8"):
        arch.accumulator("fp16", "int8")


def test_warp_tiles() -> None:
    """A dtype's table, the mixed one and the preshuffle one are distinguished; a missing one is empty."""
    gfx942 = load_arch("gfx942")
    assert gfx942.warp_tiles_for("fp32") == ((16, 16, 4), (16, 16, 8), (16, 16, 16), (32, 32, 4), (32, 32, 8))
    assert gfx942.warp_tiles_for("bf8", dtype_b="fp8") == ((32, 32, 16),)
    assert (4, 64, 16) in gfx942.warp_tiles_for("bf16")
    assert (4, 64, 16) not in gfx942.warp_tiles_for("bf16", preshuffle=True)
    assert load_arch("gfx1100").warp_tiles_for("fp32") == ()


def test_interwave_is_unsupported_with_compute_pipelines() -> None:
    """Compute pipelines are intrawave only, with any epilogue."""
    arch = load_arch("gfx950")
    assert arch.is_trait_unsupported("compv4", "default", "interwave")
    assert not arch.is_trait_unsupported("compv4", "default", "intrawave")
    assert not arch.is_trait_unsupported("mem", "cshuffle", "interwave")


def test_target_features_are_cut_off() -> None:
    """The name reported by the driver is accepted."""
    assert load_arch("gfx942:sramecc+:xnack-") is load_arch("gfx942")


def test_an_unknown_architecture_lists_the_known_ones() -> None:
    """The error lists the existing names; the file of common rules is not among them."""
    with pytest.raises(UsageError, match="gfx000") as caught:
        load_arch("gfx000")
    assert "gfx942" in caught.value.hint
    with pytest.raises(UsageError, match="common"):
        load_arch("common")


@pytest.mark.parametrize(
    ("name", "arch", "num_cus"),
    [
        ("MI100", "gfx908", 120),
        ("mi210", "gfx90a", 104),
        ("MI250", "gfx90a", 104),
        ("mi250x", "gfx90a", 110),
        ("MI300X", "gfx942", 304),
        ("mi300a", "gfx942", 228),
        ("mi308x", "gfx942", 80),
        ("MI-325X", "gfx942", 304),
        ("mi300", "gfx942", 304),
        ("mi350x", "gfx950", 256),
        ("MI355X", "gfx950", 256),
        ("rx 9070 xt", "gfx1201", 64),
        ("RX 9070", "gfx1201", 56),
        ("GFX942", "gfx942", 304),
        ("gfx942:xnack-", "gfx942", 304),
        ("gfx90a", "gfx90a", 110),
        ("gfx950", "gfx950", 256),
    ],
)
def test_products_name_their_architecture(name: str, arch: str, num_cus: int) -> None:
    """Compute units are those of AMD's data sheets; an architecture's name means its largest product."""
    assert (load_arch(name).name, load_arch(name).hardware.num_cus) == (arch, num_cus)
    assert load_arch(typed_arch(name)) is load_arch(name)
    assert (typed_arch(name) == arch) == (num_cus == max(load_arch(arch).gpus.values()))


def test_every_architecture_is_its_largest_product() -> None:
    """Where it has products; AMD's models alone have the compute units of an MI300A."""
    specs = [load_arch(name) for name in arch_names() if load_arch(name).gpus]
    assert len(specs) == 8
    assert all(spec.hardware.num_cus == max(spec.gpus.values()) for spec in specs)
    others = {spec.name: spec.amd_num_cus for spec in specs if spec.amd_num_cus != spec.hardware.num_cus}
    assert others == {"gfx942": 228}


def test_the_gpu_of_this_machine_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An architecture's name means the GPU here, a product's name that product."""
    monkeypatch.setattr(archs, "cus_here", {"gfx942": 38, "gfx950": 0}.get)
    cus = {name: load_arch(name).hardware.num_cus for name in ("gfx942", "gfx942:xnack-", "mi300x", "mi308x", "gfx950")}
    assert cus == {"gfx942": 38, "gfx942:xnack-": 38, "mi300x": 304, "mi308x": 80, "gfx950": 256}
    assert (typed_arch("MI300X"), typed_arch("gfx942")) == ("mi300x", "gfx942")


@pytest.mark.parametrize("name", ["gfx000", "mi", "m", "mi999x", "common"])
def test_names_of_no_product_are_unchanged(name: str) -> None:
    """Such a name is refused as typed."""
    assert archs.arch_of_gpu(name) == (name, 0)


@pytest.mark.parametrize(("typed", "meant"), [("gfx492", "gfx942"), ("mi300xx", "mi300x"), ("hots", "host")])
def test_a_misspelt_architecture_is_suggested(typed: str, meant: str) -> None:
    """The most similar name comes first in the hint."""
    with pytest.raises(UsageError) as caught:
        load_arch(typed)
    assert caught.value.hint.partition("?")[0].split()[-1] == meant


def test_adding_an_architecture_is_adding_a_file(specs: Path) -> None:
    """A new file is listed and loaded without any change to code."""
    shutil.copy(specs / "gfx950.json", specs / "gfx1250.json")
    edit(specs / "gfx1250.json", wavefront_size=32, lds_capacity=320 * KB)
    assert "gfx1250" in arch_names()
    assert load_arch("gfx1250").wavefront_size == 32
    assert load_arch("gfx1250").lds_budget("compv4") == 160 * KB


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lds_capacity": "64 KB"}, "lds_capacity must be of type int"),
        ({"vector_divisibility": 1}, "vector_divisibility must be of type bool"),
        ({"wave_configs": [[1, 4]]}, "wave_configs must be a list of lists of three integers"),
        ({"warp_tiles": {"fp32_fp32_fp32": [16]}}, "warp_tiles.fp32_fp32_fp32 must be"),
        ({"hardware": {"num_cus": 1}}, "hardware.simds_per_cu is missing"),
        ({"hardware": []}, "gfx942.json: hardware must be an object"),
        ({"wavefrontsize": 64}, "wavefrontsize is not a known field"),
        ({"default_dtype": "int4"}, "default_dtype int4 is not among dtypes"),
    ],
)
def test_malformed_file_is_reported_by_file_and_field(specs: Path, changes: dict[str, Any], words: str) -> None:
    """Wrong types, missing fields and misspelt ones are named; there are no defaults."""
    edit(specs / "gfx942.json", **changes)
    with pytest.raises(DataError) as caught:
        load_arch("gfx942")
    assert "gfx942.json" in caught.value.message
    assert words in caught.value.message


def test_invalid_json_is_reported(specs: Path) -> None:
    """A truncated file is bad data, not a traceback."""
    (specs / "gfx942.json").write_text('{"family": ')
    with pytest.raises(DataError, match=r"gfx942\.json"):
        load_arch("gfx942")


@pytest.mark.parametrize(
    ("versions", "expected"),
    [((0, 90402), "gfx942"), ((90010,), "gfx90a"), ((0, 0, 110000), "gfx1100"), ((120001,), "gfx1201"), ((0,), None)],
)
def test_gpu_is_detected_from_the_drivers_topology(
    tmp_path: Path, versions: tuple[int, ...], expected: str | None
) -> None:
    """The version number of the first node that is a GPU becomes its name, in base 16."""
    for node, version in enumerate(versions):
        (tmp_path / str(node)).mkdir()
        (tmp_path / str(node) / "properties").write_text(f"cpu_cores_count 0\ngfx_target_version {version}\nend 1\n")
    assert detect_gpu_arch(tmp_path) == expected


def test_nodes_are_sorted_numerically(tmp_path: Path) -> None:
    """Node 2 comes before node 10."""
    for node, version in ((10, 90402), (2, 90500)):
        (tmp_path / str(node)).mkdir()
        (tmp_path / str(node) / "properties").write_text(f"gfx_target_version {version}\n")
    assert detect_gpu_arch(tmp_path) == "gfx950"


@pytest.mark.parametrize(("result", "expected"), [("gfx950", "gfx950"), ("gfx1030", "gfx950"), (None, "gfx950")])
def test_default_architecture(monkeypatch: pytest.MonkeyPatch, result: str | None, expected: str) -> None:
    """It is the GPU's if it has a spec, else that of the GPU with measured models; words say so."""
    monkeypatch.setattr(archs, "detect_gpu_arch", lambda: result)
    assert default_arch() == expected
    assert (assumed_gpu() == "") == (result == expected)
    assert measuring_arch() == (result or "host")


def fake_machine(root: Path) -> Path:
    """Two sockets of one core with two threads each, 3.5 GHz, AVX2."""
    for cpu in range(4):
        folder = root / f"sys/devices/system/cpu/cpu{cpu}"
        files = {
            "topology/physical_package_id": cpu // 2,
            "topology/core_id": 0,
            "cpufreq/cpuinfo_max_freq": 3_500_000,
            "cache/index0/level": 1,
            "cache/index0/type": "Data",
            "cache/index0/size": "48K",
            "cache/index1/level": 1,
            "cache/index1/type": "Instruction",
            "cache/index1/size": "64K",
            "cache/index2/level": 2,
            "cache/index2/type": "Unified",
            "cache/index2/size": "2M",
            "cache/index3/level": 3,
            "cache/index3/type": "Unified",
            "cache/index3/size": "32768K",
            "cache/index3/shared_cpu_list": "0-1" if cpu < 2 else "2-3",
        }
        for name, value in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{value}\n")
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text("processor\t: 0\ncpu MHz\t\t: 1200.5\nflags\t\t: fpu sse2 avx avx2 fma\n")
    return root


def test_the_machine_profile_is_read_from_system_files(tmp_path: Path) -> None:
    """Cores, threads, sockets, clock, caches and vectors are read from Linux's files."""
    machine = read_machine(fake_machine(tmp_path))
    assert (machine.cores, machine.threads_per_core, machine.sockets) == (2, 2, 2)
    assert machine.max_clock_mhz == 3500
    assert (machine.l1_cache_kb, machine.l2_cache_kb, machine.l3_cache_kb) == (48, 2048, 32768)
    assert machine.l3_domains == 2
    assert (machine.vector_bytes, machine.vector_registers) == (32, 16)


def test_a_machine_without_system_files_has_defaults(tmp_path: Path) -> None:
    """Without readable files no number is zero, since formulas divide by them."""
    machine = read_machine(tmp_path)
    assert machine.cores >= 1
    assert machine.threads_per_core == 1
    assert machine.max_clock_mhz == 2000
    assert (machine.l1_cache_kb, machine.l2_cache_kb, machine.vector_bytes) == (32, 512, 16)


def test_host_profile_is_read_but_limits_are_fixed() -> None:
    """The number of cores is this machine's; the LDS size that determines the pool is the file's."""
    host = load_arch("host")
    assert host.machine is not None
    assert host.hardware.num_cus == host.machine.cores
    assert host.wavefront_size == host.machine.vector_bytes // 4
    assert host.lds_capacity == 256 * KB
    assert not host.is_gpu
    assert load_arch("gfx942").is_gpu


def test_rates_of_matrix_instructions() -> None:
    """Rates of gfx950 and gfx942 are the flops per pass of the ISA documents; none exceeds the type's peak."""
    mi350, mi300 = load_arch("gfx950").peaks, load_arch("gfx942").peaks
    assert mi350 is not None
    assert mi300 is not None
    fp16 = mi350.matrix_flops_per_cu_clock["fp16"]
    assert {fp16[tile] for tile in ((4, 64, 16), (64, 4, 16))} == {1024}
    assert {fp16[tile] for tile in ((16, 16, 16), (32, 32, 8))} == {2048}
    assert {fp16[tile] for tile in ((16, 16, 32), (32, 32, 16))} == {4096}
    assert mi350.matrix_flops_per_cu_clock["fp8"][32, 32, 64] == 2 * mi350.matrix_flops_per_cu_clock["fp8"][32, 32, 32]
    assert set(mi300.matrix_flops_per_cu_clock["bf16"].values()) == {1024, 2048}
    assert (mi300.lds_bytes_per_clock, mi350.lds_bytes_per_clock) == (128, 256)
    for name in arch_names():
        peaks = load_arch(name).peaks
        if peaks is None:
            continue
        for dtype, rates in peaks.matrix_flops_per_cu_clock.items():
            assert max(rates.values()) == peaks.flops_per_cu_clock[dtype] or (name, dtype) == ("gfx950", "int8")


@pytest.mark.parametrize("name", ["gfx908", "gfx90a", "gfx942", "gfx950"])
def test_rates_match_llvm(name: str) -> None:
    """The rates in an architecture's file equal those computed from llvm-mca's passes."""
    program = os.environ.get("LLVM_MCA") or shutil.which("llvm-mca")
    if program is None or _major_of_llvm(program) < 20:
        pytest.skip("there is no llvm-mca of LLVM 20 or newer; LLVM_MCA names one")
    script = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "matrix_rates.py"))
    peaks = load_arch(name).peaks
    assert peaks is not None
    assert script["rates"](program, name) == peaks.matrix_flops_per_cu_clock


def _major_of_llvm(program: str) -> int:
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    matched = re.search(r"LLVM version ([0-9]+)", told)
    return int(matched[1]) if matched else 0
