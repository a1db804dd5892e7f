"""AMD GPUs of this machine, detected from the kernel driver's files without opening them."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.hardware.machine import text_of, trailing_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")

PCI_DEVICES = Path("/sys/bus/pci/devices")

# gfx_target_version is major * 10000 + minor * 100 + step; names have minor and step in base 16.
_MAJOR, _MINOR = 10_000, 100

# PCI device ids of products (pci.ids), including virtual functions: name, and memory bandwidth in GB/s from AMD's data
# sheets.
_PRODUCTS: dict[str, list[Any]] = json.loads(Path(__file__).with_name("products.json").read_bytes())

_ROCR, _HIP, _CUDA = _CHOOSING = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True, slots=True)
class Gpu:
    """An AMD GPU as described by the kernel driver; `number` is its index in the HIP runtime."""

    number: int
    arch: str
    num_cus: int
    max_clock_mhz: int
    device_id: int = 0  # PCI device id; 0: unknown, as for the other fields
    pci: str = ""  # PCI address, such as "0000:0c:00.0"
    kfd_id: int = 0  # id in the kernel driver
    num_xcd: int = 0  # number of compute dies
    partition: str = ""  # partition modes, such as "CPX/NPS4"; empty if it cannot be partitioned

    @property
    def product(self) -> str:
        """Product name, or its device id; empty if neither is known."""
        device = f"{self.device_id:#06x}"
        return str(_PRODUCTS.get(device, [f"device {device}" if self.device_id else ""])[0])

    @property
    def bandwidth_gb_s(self) -> int:
        """Peak bandwidth of its memory partition in GB/s; 0 if the product is unknown."""
        return int(_PRODUCTS.get(f"{self.device_id:#06x}", ["", 0])[1]) // self.memory_parts

    @property
    def memory_parts(self) -> int:
        """Number of partitions of the memory and the memory-side cache."""
        matched = re.search(r"NPS(\d+)$", self.partition)
        return max(1, int(matched[1])) if matched else 1


def detect_gpu_arch(nodes: Path = KFD_NODES) -> str | None:
    """Name of the first usable AMD GPU, e.g. "gfx942", or `None`."""
    gpus = visible_gpus(nodes)
    return gpus[0].arch if gpus else None


def visible_gpus(
    nodes: Path = KFD_NODES, environ: Mapping[str, str] = os.environ, cards: Path = PCI_DEVICES
) -> tuple[Gpu, ...]:
    """AMD GPUs in the order of the HIP runtime, read from the kernel driver's topology without opening them.

    As in ROCm, ROCR_VISIBLE_DEVICES selects among all GPUs by index or by a prefix of "GPU-<unique id>", and then
    HIP_VISIBLE_DEVICES (else CUDA_VISIBLE_DEVICES) among those; a list ends at its first invalid entry. The runtimes
    differ (rvd_filter of ROCr, Device::init of clr): an empty list selects no GPU in ROCr, and is ignored in HIP.
    """
    every = sorted(nodes.glob("*"), key=trailing_number)
    gpus = [gpu for node in every if (gpu := _gpu_of(node, cards)) is not None]
    rocr = environ.get(_ROCR)
    if rocr is not None:
        gpus = _chosen(gpus, [word.strip() for word in rocr.split(",")], ends_when_repeated=True)
    hip = environ.get(_HIP) or environ.get(_CUDA)
    if hip:
        gpus = _chosen(gpus, hip.split(","), ends_when_repeated=False)
    return tuple(replace(gpu, number=number) for number, (gpu, _) in enumerate(gpus))


def remedy(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> str:
    """Remedy if the HIP runtime finds no GPU, or not all, from the state of the system."""
    kfd, renders = root / "dev/kfd", sorted((root / "dev/dri").glob("renderD*"))
    if not kfd.exists():
        return (
            "there is no /dev/kfd: load the kernel driver (modprobe amdgpu), or in a container start it with "
            "--device=/dev/kfd --device=/dev/dri"
        )
    if locked := [path for path in (kfd, *renders) if not os.access(path, os.R_OK | os.W_OK)]:
        return (
            f"you may not open /{locked[0].relative_to(root)}: add yourself to the groups render and video (sudo "
            "usermod -aG render,video $USER) and log in again, or start the container with --group-add"
        )
    for name in _CHOOSING:
        if environ.get(name) is not None:
            return f"{name}={environ[name]} chooses GPUs: unset it, or have it name one that is there"
    if not renders:
        return "there is no /dev/dri/renderD*: in a container start it with --device=/dev/dri"
    return "dmesg | grep -i amdgpu says what the kernel driver lacks; rocminfo shows what ROCm finds"


def _gpu_of(node: Path, cards: Path) -> tuple[Gpu, str] | None:
    """A GPU and its unique id, if the node is a GPU."""
    values = dict(re.findall(r"^(\w+) (\d+)$", text_of(node / "properties"), re.MULTILINE))
    version = int(values.get("gfx_target_version", 0))
    if not version:
        return None
    major, minor_step = divmod(version, _MAJOR)
    minor, step = divmod(minor_step, _MINOR)
    cus = int(values.get("simd_count", 0)) // max(int(values.get("simd_per_cu", 0)), 1)
    kfd_id = text_of(node / "gpu_id")
    pci = _pci_address(int(values.get("domain", 0)), int(values.get("location_id", 0)))
    gpu = Gpu(
        0,
        f"gfx{major}{minor:x}{step:x}",
        cus,
        int(values.get("max_engine_clk_fcompute", 0)),
        int(values.get("device_id", 0)),
        pci,
        int(kfd_id) if kfd_id.isdecimal() else 0,
        int(values.get("num_xcc", 0)),
        "/".join(filter(None, (text_of(cards / pci / f"current_{what}_partition") for what in ("compute", "memory")))),
    )
    unique_id = int(values.get("unique_id", 0))
    return gpu, f"gpu-{unique_id:016x}" if unique_id else ""


def _pci_address(domain: int, location: int) -> str:
    """PCI address of a card. The function is 0: the driver uses functions to number the partitions of a card."""
    return f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.0" if location else ""


def _chosen(gpus: list[tuple[Gpu, str]], words: Sequence[str], *, ends_when_repeated: bool) -> list[tuple[Gpu, str]]:
    chosen: list[int] = []
    for word in words:
        number = _number_of(word.lower(), [unique_id for _, unique_id in gpus])
        if number is None or (ends_when_repeated and number in chosen):
            break
        chosen.append(number)
    return [gpus[number] for number in dict.fromkeys(chosen)]


def _number_of(word: str, unique_ids: Sequence[str]) -> int | None:
    """Index of the GPU given by an index or a unique prefix of its id."""
    if word.startswith("gpu-"):
        numbers = [number for number, unique_id in enumerate(unique_ids) if unique_id.startswith(word)]
        return numbers[0] if len(numbers) == 1 else None
    return int(word) if word.isdecimal() and int(word) < len(unique_ids) else None
