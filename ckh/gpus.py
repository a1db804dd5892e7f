"""The AMD GPUs of this machine, read from the kernel driver's files without opening one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.machine import text_of, trailing_number

if TYPE_CHECKING:
    from collections.abc import Mapping

KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")

# gfx_target_version is major * 10000 + minor * 100 + step; the name writes minor and step in base 16.
_MAJOR, _MINOR = 10_000, 100


@dataclass(frozen=True, slots=True)
class Gpu:
    """An AMD GPU as the kernel driver describes it; `number` is the one that the HIP runtime gives it."""

    number: int
    arch: str
    num_cus: int
    max_clock_mhz: int


def detect_gpu_arch(nodes: Path = KFD_NODES) -> str | None:
    """Name of the first AMD GPU that may be used, e.g. "gfx942", or `None`."""
    gpus = visible_gpus(nodes)
    return gpus[0].arch if gpus else None


def visible_gpus(nodes: Path = KFD_NODES, environ: Mapping[str, str] = os.environ) -> tuple[Gpu, ...]:
    """The AMD GPUs in the order of the HIP runtime, read from the kernel driver's topology without opening one.

    As ROCm does, ROCR_VISIBLE_DEVICES chooses among all GPUs by number or "GPU-<unique id>", and then
    HIP_VISIBLE_DEVICES (else CUDA_VISIBLE_DEVICES) among those; a list ends at its first entry that names none.
    """
    texts = (text_of(node / "properties") for node in sorted(nodes.glob("*"), key=trailing_number))
    found = [gpu for text in texts if (gpu := _gpu_of(text)) is not None]
    found = _chosen(found, environ.get("ROCR_VISIBLE_DEVICES"))
    hip = environ.get("HIP_VISIBLE_DEVICES")
    found = _chosen(found, environ.get("CUDA_VISIBLE_DEVICES") if hip is None else hip)
    return tuple(replace(gpu, number=number) for number, (gpu, _) in enumerate(found))


def _gpu_of(properties: str) -> tuple[Gpu, str] | None:
    """A GPU and its unique id, if the node is one."""
    values = dict(re.findall(r"^(\w+) (\d+)$", properties, re.MULTILINE))
    version = int(values.get("gfx_target_version", 0))
    if not version:
        return None
    major, rest = divmod(version, _MAJOR)
    minor, step = divmod(rest, _MINOR)
    cus = int(values.get("simd_count", 0)) // max(int(values.get("simd_per_cu", 0)), 1)
    gpu = Gpu(0, f"gfx{major}{minor:x}{step:x}", cus, int(values.get("max_engine_clk_fcompute", 0)))
    return gpu, f"GPU-{int(values.get('unique_id', 0)):x}"


def _chosen(gpus: list[tuple[Gpu, str]], wanted: str | None) -> list[tuple[Gpu, str]]:
    if wanted is None:
        return gpus
    by_name = {str(number): gpu for number, gpu in enumerate(gpus)} | {gpu[1]: gpu for gpu in gpus}
    chosen = []
    for name in wanted.split(","):
        if name.strip() not in by_name:
            break
        chosen.append(by_name[name.strip()])
    return chosen
