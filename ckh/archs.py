"""Architectures and their capabilities, read from one file each in `archspecs`.

A new architecture is a new file there; only the CPU and the GPU that answers are for without one are named here.
"""

from __future__ import annotations

import re
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

from ckh.errors import UsageError, WrongTypeError
from ckh.files.jsonfields import JsonFields, Triple
from ckh.files.paths import data_dir
from ckh.hardware.archspec import ArchSpec, CommonRules, HardwareProfile, LdsRule, OperatorTile, Peaks
from ckh.hardware.gpus import detect_gpu_arch, visible_gpus
from ckh.hardware.machine import Machine, read_machine
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from pathlib import Path

HOST = "host"
MEASURED_GPU = "gfx950"  # with measured models that ship: answers are for it where there is no GPU
_MEASURED_PRODUCT = "MI350"
_COMMON = "common"
_LEAST_NAME = 5  # characters of "mi300"

__all__ = [
    "HOST",
    "MEASURED_GPU",
    "ArchSpec",
    "CommonRules",
    "HardwareProfile",
    "LdsRule",
    "Machine",
    "OperatorTile",
    "Triple",
    "arch_names",
    "arch_of_gpu",
    "assumed_gpu",
    "default_arch",
    "detect_gpu_arch",
    "load_arch",
    "meant_gpu",
    "measuring_arch",
    "typed_arch",
]


def arch_names() -> tuple[str, ...]:
    """Names of all architectures, sorted."""
    return tuple(sorted(path.stem for path in data_dir("archspecs").glob("*.json") if path.stem != _COMMON))


def load_arch(name: str) -> ArchSpec:
    """Load the spec of an architecture ("gfx942"; target features as in "gfx942:sramecc+" are ignored) or of a product.

    Compute units (`hardware.num_cus`) are the product's; for an architecture's name those of this machine's GPU of that
    architecture, and without one those of the architecture's file.
    """
    if not isinstance(name, str):
        raise WrongTypeError("arch", "the name of an architecture", name)
    arch, num_cus = meant_gpu(name)
    return _sized(_load(data_dir("archspecs"), arch), num_cus)


def meant_gpu(name: str) -> tuple[str, int]:
    """Architecture and compute units of a product, or of this machine's GPU of an architecture; 0 if there is none."""
    own = name.split(":", 1)[0]
    is_arch = own.isalnum() and own != _COMMON and (data_dir("archspecs") / f"{own}.json").is_file()
    return (own, cus_here(own)) if is_arch else arch_of_gpu(own)


def arch_of_gpu(name: str) -> tuple[str, int]:
    """Architecture of a GPU product such as "MI300X", or of a series such as "mi300", and its number of compute units.

    A series has those of its largest product. The number is 0 for any other name, which is returned unchanged.
    """
    if not isinstance(name, str):
        raise WrongTypeError("arch", "the name of an architecture", name)
    if name in (names := arch_names()):
        return name, 0
    wanted = _plain(name)
    specs = [load_arch(arch) for arch in names]
    if len(wanted) >= _LEAST_NAME:
        for matches in (str.__eq__, str.startswith):
            for spec in specs:
                units = [count for gpu, count in spec.gpus.items() if matches(_plain(gpu), wanted)]
                if units:
                    return spec.name, max(units)
    return (wanted if wanted in names else name), 0


def _plain(name: str) -> str:
    return name.lower().translate({ord(mark): None for mark in " -_"})


def typed_arch(name: str) -> str:
    """Return the architecture's name if it means the same compute units, else the product's."""
    arch = load_arch(name).name
    return arch if load_arch(name) is load_arch(arch) else _plain(name)


def default_arch() -> str:
    """Return the architecture that answers are for: this machine's GPU if there is a spec for it, else MEASURED_GPU."""
    gpu = detect_gpu_arch()
    return MEASURED_GPU if gpu is None or gpu not in arch_names() else gpu


def measuring_arch() -> str:
    """Return the architecture that is measured by default: this machine's GPU, else the host."""
    return detect_gpu_arch() or HOST


def assumed_gpu() -> str:
    """Words on the GPU that answers are for by default; empty if it is this machine's."""
    gpu = detect_gpu_arch()
    if gpu is not None and gpu in arch_names():
        return ""
    lacking = "no AMD GPU here" if gpu is None else f"the GPU here, {gpu}, is unknown"
    return f"{lacking}: for an {_MEASURED_PRODUCT} ({MEASURED_GPU}), --arch for others"


@cache
def _load(folder: Path, name: str) -> ArchSpec:
    if name not in arch_names():
        gpus = (gpu.lower() for arch in arch_names() for gpu in load_arch(arch).gpus)
        hint = one_of(name, arch_names(), also=gpus)
        raise UsageError(f"unknown architecture {name!r}", hint, code="unknown-arch")
    return read_arch(folder / f"{name}.json", read_common_rules(folder / f"{_COMMON}.json"))


@cache
def _sized(spec: ArchSpec, num_cus: int) -> ArchSpec:
    return spec.sized(num_cus)


@cache
def cus_here(arch: str) -> int:
    """Compute units of this machine's first GPU of an architecture; 0 without one."""
    return next((gpu.num_cus for gpu in visible_gpus() if gpu.arch == arch), 0)


_FP32_BYTES = 4
_TILE = re.compile(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,3})x([1-9][0-9]{0,3})")


def read_common_rules(path: Path) -> CommonRules:
    """Read the rules shared by all architectures."""
    file = JsonFields.read(path)
    lds, operators = file.part("pipeline_lds"), file.part("operators")
    rules = CommonRules(
        pipeline_lds={
            name: LdsRule(part.number("fraction"), part.scalar("double_smem_buffer_halves", bool))
            for name, part in lds.parts()
        },
        unsupported_traits=frozenset(file.triples("unsupported_traits", str)),
        dtype_combinations=file.triples("dtype_combinations", str),
        preshuffle_pipelines=file.strings("preshuffle_pipelines"),
        operators={
            name: OperatorTile(part.triple("minimum"), part.triple("alignment")) for name, part in operators.parts()
        },
    )
    file.finish()
    return rules


def read_arch(path: Path, common: CommonRules) -> ArchSpec:
    """Read an architecture."""
    file = JsonFields.read(path)
    machine = read_machine() if file.is_string("hardware") else None
    hardware = _device_profile(file) if machine is None else _host_profile(file, machine)
    spec = ArchSpec(
        name=path.stem,
        family=file.scalar("family", str),
        target_family=file.scalar("target_family", str),
        architecture=file.scalar("architecture", str),
        description=file.scalar("description", str),
        unverified=file.scalar("unverified", str) if file.has("unverified") else "",
        gpus=file.part("gpus").integers(),
        default_dtype=file.scalar("default_dtype", str),
        dtypes=file.strings("dtypes"),
        pipelines=file.strings("pipelines"),
        epilogues=file.strings("epilogues"),
        options=file.strings("options"),
        vector_divisibility=file.scalar("vector_divisibility", bool),
        fnuz_floats=file.scalar("fnuz_floats", bool),
        least_trips=file.scalar("compv6_min_loops", int),
        wave_configs=file.triples("wave_configs", int),
        warp_tiles=_tile_table(file.part("warp_tiles")),
        preshuffle_warp_tiles=_tile_table(file.part("preshuffle_warp_tiles")),
        hardware=hardware,
        hardware_source=file.scalar("hardware_source", str),
        amd_num_cus=file.scalar("amd_num_cus", int) if file.has("amd_num_cus") else hardware.num_cus,
        peaks=_peaks(file.part("peaks")) if machine is None and not file.is_null("peaks") else None,
        common=common,
        machine=machine,
    )
    if machine is not None and not file.is_null("peaks"):
        file.fail("peaks", "must be null: peak rates of this machine are unknown")
    file.finish()
    if spec.default_dtype not in spec.dtypes:
        file.fail("default_dtype", f"{spec.default_dtype} is not among dtypes")
    return spec


def _tile_table(part: JsonFields) -> dict[str, tuple[Triple, ...]]:
    return {dtypes: part.triples(dtypes, int) for dtypes in part.names()}


def _device_profile(file: JsonFields) -> HardwareProfile:
    of_arch = {name: file.scalar(name, int) for name in ("wavefront_size", "lds_capacity")}
    part = file.part("hardware")
    names = [field.name for field in fields(HardwareProfile) if field.name not in of_arch]
    profile = HardwareProfile(**of_arch, **{name: part.scalar(name, int) for name in names})
    part.finish()
    return profile


def _peaks(part: JsonFields) -> Peaks:
    matrix = part.part("matrix_flops_per_cu_clock")
    peaks = Peaks(
        part.scalar("bandwidth_gb_s", int),
        part.part("flops_per_cu_clock").integers(),
        {dtype: _rates(matrix.part(dtype)) for dtype in matrix.names()},
        part.scalar("lds_bytes_per_clock", int),
        part.scalar("register_kb_per_cu", int),
        part.scalar("source", str),
    )
    part.finish()
    return peaks


def _rates(part: JsonFields) -> dict[Triple, int]:
    """Rates by tile sizes, such as "32x32x8"."""
    rates: dict[Triple, int] = {}
    for name in part.names():
        match = _TILE.fullmatch(name)
        if match is None:
            part.fail(name, "must be the sizes of a tile, such as 32x32x8")
        rates[int(match[1]), int(match[2]), int(match[3])] = part.scalar(name, int)
    return rates


def _host_profile(file: JsonFields, machine: Machine) -> HardwareProfile:
    """Describe the processor in a GPU's terms: a core is a CU, an fp32 vector register a wavefront."""
    if file.scalar("hardware", str) != "machine":
        file.fail("hardware", 'must be an object or "machine"')
    if not file.is_null("wavefront_size"):
        file.fail("wavefront_size", "must be null, it is read from the machine")
    return HardwareProfile(
        num_cus=machine.cores,
        simds_per_cu=1,
        shader_engines=machine.sockets,
        max_clock_mhz=machine.max_clock_mhz,
        max_waves_per_cu=machine.threads_per_core,
        wavefront_size=machine.vector_bytes // _FP32_BYTES,
        lds_capacity=file.scalar("lds_capacity", int),
        l1_cache_kb=machine.l1_cache_kb,
        l2_cache_kb=machine.l2_cache_kb,
        l3_cache_kb=machine.l3_cache_kb,
        num_xcd=machine.l3_domains,
    )
