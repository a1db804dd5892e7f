"""AMD GPUs in the kernel driver's topology, and those visible to a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ckh.hardware.gpus import Gpu, detect_gpu_arch, remedy, visible_gpus
from tests.refusals import expect_values

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_CPU = "cpu_cores_count 64\nsimd_count 0\ngfx_target_version 0\nunique_id 0\n"


def gpu_properties(version: int, unique_id: int, simds: int = 912, clock_mhz: int = 2100) -> str:
    """The driver's properties file of a GPU."""
    return (
        f"cpu_cores_count 0\nsimd_count {simds}\nsimd_per_cu 4\ngfx_target_version {version}\n"
        f"unique_id {unique_id}\nmax_engine_clk_fcompute {clock_mhz}\nmax_engine_clk_ccompute 3700\n"
    )


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """Two CPUs, then an MI300X, an MI200, a Radeon and another MI300X; the last is node 10, after node 5."""
    texts = {
        0: _CPU,
        1: _CPU,
        2: gpu_properties(90402, 0xA2),
        3: gpu_properties(90010, 0xB3, 416, 1700),
        5: gpu_properties(110000, 0xC5, 96, 2500),
        10: gpu_properties(90402, 0xDDDD_0000_1111_2222),
    }
    for number, text in texts.items():
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "properties").write_text(text, encoding="utf-8")
    return tmp_path


def seen(nodes: Path, **environ: str) -> list[tuple[int, str, int]]:
    """Number, architecture and clock of the visible GPUs."""
    return [(gpu.number, gpu.arch, gpu.max_clock_mhz) for gpu in visible_gpus(nodes, environ)]


def test_all_gpus_in_the_order_of_their_nodes(nodes: Path) -> None:
    """CPUs are skipped, GPUs are numbered from 0, and node 10 comes after node 5."""
    assert visible_gpus(nodes, {}) == (
        Gpu(0, "gfx942", 228, 2100),
        Gpu(1, "gfx90a", 104, 1700),
        Gpu(2, "gfx1100", 24, 2500),
        Gpu(3, "gfx942", 228, 2100),
    )


@pytest.mark.parametrize(
    ("environ", "archs"),
    [
        ({"ROCR_VISIBLE_DEVICES": "1"}, ["gfx90a"]),
        ({"ROCR_VISIBLE_DEVICES": "2,0"}, ["gfx1100", "gfx942"]),
        ({"ROCR_VISIBLE_DEVICES": " 2 , 0 "}, ["gfx1100", "gfx942"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-00000000000000b3"}, ["gfx90a"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-00000000000000C5,gpu-dddd000011112222"}, ["gfx1100", "gfx942"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-dd"}, ["gfx942"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-00"}, []),  # the beginning of three
        ({"ROCR_VISIBLE_DEVICES": "GPU-b3"}, []),
        ({"ROCR_VISIBLE_DEVICES": "1,9,0"}, ["gfx90a"]),
        ({"ROCR_VISIBLE_DEVICES": "1,-1,0"}, ["gfx90a"]),
        ({"ROCR_VISIBLE_DEVICES": "1,GPU-f,0"}, ["gfx90a"]),
        ({"ROCR_VISIBLE_DEVICES": "1,,0"}, ["gfx90a"]),
        ({"ROCR_VISIBLE_DEVICES": "1,1,0"}, ["gfx90a"]),
        ({"ROCR_VISIBLE_DEVICES": "-1"}, []),
        ({"ROCR_VISIBLE_DEVICES": ""}, []),
        ({"HIP_VISIBLE_DEVICES": "3"}, ["gfx942"]),
        ({"HIP_VISIBLE_DEVICES": "1,1,0"}, ["gfx90a", "gfx942"]),
        ({"HIP_VISIBLE_DEVICES": "1, 0"}, ["gfx90a"]),
        ({"HIP_VISIBLE_DEVICES": "GPU-dddd000011112222"}, ["gfx942"]),
        ({"HIP_VISIBLE_DEVICES": "-1"}, []),
        ({"HIP_VISIBLE_DEVICES": ""}, ["gfx942", "gfx90a", "gfx1100", "gfx942"]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, ["gfx90a"]),
        ({"HIP_VISIBLE_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "1"}, ["gfx1100"]),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "1"}, ["gfx90a"]),
        # HIP counts what ROCr has left: here a Radeon is 0 and an MI200 is 1.
        ({"ROCR_VISIBLE_DEVICES": "2,1", "HIP_VISIBLE_DEVICES": "1"}, ["gfx90a"]),
        ({"ROCR_VISIBLE_DEVICES": "2,1", "HIP_VISIBLE_DEVICES": "1,0"}, ["gfx90a", "gfx1100"]),
        ({"ROCR_VISIBLE_DEVICES": "2,1", "HIP_VISIBLE_DEVICES": "2"}, []),
        ({"ROCR_VISIBLE_DEVICES": "2,1", "CUDA_VISIBLE_DEVICES": "0"}, ["gfx1100"]),
    ],
)
def test_the_environment_hides_gpus(nodes: Path, environ: Mapping[str, str], archs: list[str]) -> None:
    """A list chooses by number or unique id and ends at what names no GPU; what is left is numbered from 0.

    The expectations follow ROCr's rvd_filter and clr's Device::init.
    """
    assert [(number, arch) for number, arch, _ in seen(nodes, **environ)] == list(enumerate(archs))


def test_gpus_without_a_unique_id_are_distinguished(tmp_path: Path) -> None:
    """Radeons have the id 0, which selects none of them; by number they are distinct."""
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "properties").write_text(gpu_properties(110000, 0), encoding="utf-8")
    assert len(seen(tmp_path, ROCR_VISIBLE_DEVICES="1,0")) == 2
    assert len(seen(tmp_path, HIP_VISIBLE_DEVICES="0,1")) == 2
    assert seen(tmp_path, ROCR_VISIBLE_DEVICES="GPU-0000000000000000") == []


def test_no_gpu(tmp_path: Path) -> None:
    """Without the driver, or with CPUs only, there is no GPU and no architecture."""
    assert visible_gpus(tmp_path / "missing", {}) == ()
    (tmp_path / "0").mkdir()
    (tmp_path / "0/properties").write_text(_CPU, encoding="utf-8")
    (tmp_path / "1").mkdir()  # a container may hide the file of a GPU
    assert visible_gpus(tmp_path, {}) == ()
    assert detect_gpu_arch(tmp_path) is None


def test_a_sparse_node_is_still_a_gpu(tmp_path: Path) -> None:
    """Properties missing in old drivers are 0."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7/properties").write_text("gfx_target_version 90500\n", encoding="utf-8")
    assert visible_gpus(tmp_path, {}) == (Gpu(0, "gfx950", 0, 0),)


def test_the_detected_architecture_is_that_of_the_first_visible_gpu(
    nodes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPUs hidden by the environment are not detected."""
    for name in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    assert detect_gpu_arch(nodes) == "gfx942"
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    assert detect_gpu_arch(nodes) == "gfx90a"


def test_each_reason_for_no_gpu_has_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No driver, no permission, hidden by a variable, no render device, or none of these, in this order."""
    assert "modprobe amdgpu" in remedy(tmp_path, {})
    (tmp_path / "dev/dri").mkdir(parents=True)
    (tmp_path / "dev/kfd").touch()
    assert "--device=/dev/dri" in remedy(tmp_path, {})
    assert "HIP_VISIBLE_DEVICES=9" in remedy(tmp_path, {"HIP_VISIBLE_DEVICES": "9"})
    (tmp_path / "dev/dri/renderD128").touch()
    assert "dmesg" in remedy(tmp_path, {})
    locked = "dev/dri/renderD128"
    monkeypatch.setattr("os.access", lambda path, _mode: not str(path).endswith(locked))
    expect_values(remedy(tmp_path, {}), "/dev/dri/renderD128", "render", "video")
    locked = "kfd"
    expect_values(remedy(tmp_path, {"HIP_VISIBLE_DEVICES": "9"}), "/dev/kfd", "render", "video")


def test_product_and_partitions_of_a_card(tmp_path: Path) -> None:
    """Product, address, dies and partition; all partitions have the card's address."""
    cards, nodes = tmp_path / "cards", tmp_path / "nodes"
    for number, (device_id, function) in enumerate(((0x74A1, 0), (0x74A5, 5), (0x7777, 0))):
        (nodes / str(number)).mkdir(parents=True)
        location = (0x0C + number) << 8 | function
        more = f"device_id {device_id}\ndomain 1\nlocation_id {location}\nnum_xcc {8 if number == 0 else 1}\n"
        (nodes / str(number) / "properties").write_text(gpu_properties(90402, 0) + more, encoding="utf-8")
        (nodes / str(number) / "gpu_id").write_text(f"{4711 + number}\n", encoding="utf-8")
    card = cards / "0001:0d:00.0"
    card.mkdir(parents=True)
    (card / "current_compute_partition").write_text("CPX\n", encoding="utf-8")
    (card / "current_memory_partition").write_text("NPS4\n", encoding="utf-8")
    whole, part, other = visible_gpus(nodes, {}, cards)
    assert (whole.product, whole.pci, whole.kfd_id, whole.num_xcd) == ("MI300X", "0001:0c:00.0", 4711, 8)
    assert (whole.partition, whole.memory_parts) == ("", 1)
    assert (part.product, part.pci, part.num_xcd) == ("MI325X", "0001:0d:00.0", 1)
    assert (part.partition, part.memory_parts) == ("CPX/NPS4", 4)
    assert other.product == "device 0x7777"
