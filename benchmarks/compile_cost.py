"""CPU seconds for compiling kernels for a GPU, singly and in units, and whether both give the same code.

    python benchmarks/compile_cost.py --out FOLDER [--arch gfx942] [--rule-set tiny] [--units N] [--alone N]

All kernels of the rule set that the CK Tile headers can build are compiled twice, in the units of `ckh bench`: each
singly, then the unit. Each unit is a line of FOLDER/units.jsonl; finished units are not compiled again, so that the
script can be interrupted. `--units N` compiles N of them, evenly distributed, and `--alone N` compiles at most N
kernels of each unit singly. Kernels built in units are kept as a cache of ckh, FOLDER/cache (CKH_CACHE_DIR). Seconds
are user seconds of the compilers, without system time.

Device code is the same if the kernel's functions and their descriptors in the code object are equal byte by byte,
except a descriptor's entry offset, and distances to constants, which depend on the other contents of the file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import struct
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ckh.bench.codegen.unit import UnsupportedKernelError
from ckh.bench.compilation.compile import Built, KernelBuilder, units
from ckh.bench.compilation.kernel_cache import loadable
from ckh.bench.devices.device import DeviceOptions
from ckh.bench.devices.hip_device import HipDevice
from ckh.ops.grouped_conv.kernel import kernel_name
from ckh.ops.grouped_conv.rules.sets import rule_set
from ckh.problems import Direction
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.ops.base import Kernel
    from ckh.ops.grouped_conv.kernel import ConvKernel

_TIMEOUT_S = 3600.0
_GPU_FILE = b"\x7fELF\x02\x01\x01\x40"  # 64 bits, for amdhsa
_SYMBOL_TABLE, _FUNCTION = 2, 2
# s_getpc_b64, then s_add_u32 and s_addc_u32 with a literal each.
_DISTANCE = re.compile(rb"(\x00\x1c.\xbe.\xff.\x80).{4}(.\xff.\x82).{4}", re.DOTALL)
_KERNEL = "kentry"  # CK Tile's headers also have functions of their own
_ENTRY_OFFSET = slice(16, 24)  # of a kernel descriptor, LLVM's AMDGPUUsage


class _Section(NamedTuple):
    type: int
    address: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True, slots=True)
class _Unit:
    """User seconds of a kernel both ways, and numbers of kernels built, and with the same device code both ways."""

    kernels: list[str]
    alone_s: float
    together_s: float
    built: int
    alone: int
    same: int

    def __str__(self) -> str:
        times = f"{self.alone_s:.1f} s a kernel alone, {self.together_s:.1f} s together"
        built = f"{self.built} of {len(self.kernels)} built, {self.alone} of them alone, {self.same} with the same code"
        return f"{times}, {self.together_s / self.alone_s:.0%}; {built}: {self.kernels[0]} …"


class _Alone(HipDevice):
    """The device without units."""

    unit_kernels = 1


def main() -> None:
    """Compile the remaining units, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arch", default="gfx942")
    parser.add_argument("--rule-set", default="tiny")
    parser.add_argument("--dtype", nargs="+", default=["fp16", "bf16", "fp32"])
    parser.add_argument("--variant", nargs="+", default=[str(item) for item in Direction])
    parser.add_argument("--ndim", nargs="+", type=int, default=[2, 3])
    parser.add_argument("--units", type=int)
    parser.add_argument("--alone", type=int)
    options = parser.parse_args()
    device = HipDevice(DeviceOptions(options.arch))
    sources = {
        kernel_name(kernel): (kernel, source)
        for variant in options.variant
        for ndim in options.ndim
        for dtype in options.dtype
        for kernel in rule_set(options.rule_set, Direction(variant), ndim, dtype, device.arch)
        if (source := _emitted(device, kernel))
    }
    every = units(sources, device.unit_kernels)
    chosen = every if options.units is None else [every[i * len(every) // options.units] for i in range(options.units)]
    print(f"{device.identity().compiler}\n{len(sources)} kernels in {len(every)} units, {len(chosen)} of them compiled")
    options.out.mkdir(parents=True, exist_ok=True)
    records = options.out / "units.jsonl"
    done = _read(records)
    units_done = []
    for names in chosen:
        unit = next((unit for unit in done if unit.kernels == names), None)
        if unit is None:
            unit = _compare(options.arch, [sources[name][0] for name in names], options.alone, options.out / "cache")
            with records.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(unit)) + "\n")
        print(unit, flush=True)
        units_done.append(unit)
    _print_all(units_done)


def _emitted(device: HipDevice, kernel: ConvKernel) -> str:
    try:
        return device.emit(kernel)
    except UnsupportedKernelError:
        return ""


def _read(path: Path) -> list[_Unit]:
    """The lines of an earlier run, without a truncated last line."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [_Unit(**json.loads(line)) for line in lines]


def _compare(arch: str, unit: Sequence[ConvKernel], count: int | None, keep: Path) -> _Unit:
    sample = unit if count is None else unit[:: -(-len(unit) // count)]
    alone_s, alone = _compiled(_Alone(DeviceOptions(arch)), sample)
    together_s, together = _compiled(HipDevice(DeviceOptions(arch)), unit, keep)
    return _Unit(
        kernels=[kernel_name(kernel) for kernel in unit],
        alone_s=alone_s / len(sample),
        together_s=together_s / len(unit),
        built=len(together),
        alone=len(alone),
        same=sum(code == together.get(kernel) for kernel, code in alone.items()),
    )


def _compiled(
    device: HipDevice, unit: Sequence[ConvKernel], keep: Path | None = None
) -> tuple[float, dict[Kernel, list[bytes]]]:
    """User seconds of the compilers with an empty cache, and the device code of each kernel built."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with tempfile.TemporaryDirectory() as cache:
        os.environ["CKH_CACHE_DIR"] = cache
        built = KernelBuilder(device, _TIMEOUT_S).build(unit, 1, lambda _count, _text: None)
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        codes = {kernel: _own_code(built) for kernel, built in built.items() if built.status is Status.OK}
        if keep is not None:
            shutil.copytree(cache, keep, dirs_exist_ok=True)
    return seconds, codes


def _own_code(built: Built) -> list[bytes]:
    """Functions and descriptors of a library's selected kernel, in any order."""
    library = Path(loadable(built.library)).read_bytes()
    number = library.partition(b"ckh-chosen:\0")[2][:4]
    space = f"ckh_u{struct.unpack('<i', number)[0]}" if number else ""
    own = f"{len(space)}{space}" if space else ""
    return sorted(code for name, code in device_code(library) if own in name and _KERNEL in name)


def device_code(library: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of the functions of a library's code object, and of its kernels' descriptors."""
    content = library[library.index(_GPU_FILE) :]
    sections_at, section_size, count = (*struct.unpack_from("<Q", content, 40), *struct.unpack_from("<HH", content, 58))
    sections = [
        _Section(*struct.unpack_from("<4xI8xQQQI", content, sections_at + i * section_size)) for i in range(count)
    ]
    table = next(section for section in sections if section.type in (_SYMBOL_TABLE, 11))
    text = content[sections[table.link].offset :]
    for at in range(table.offset, table.offset + table.size, 24):
        name_at, info, where, address, size = struct.unpack_from("<IBxHQQ", content, at)
        name = text[name_at : text.index(b"\0", name_at)].decode()
        if 0 < where < len(sections) and (info & 15 == _FUNCTION or name.endswith(".kd")):
            start = sections[where].offset + address - sections[where].address
            code = bytearray(content[start : start + size])
            if name.endswith(".kd"):
                code[_ENTRY_OFFSET] = bytes(8)
            yield name, _DISTANCE.sub(lambda result: result[1] + bytes(4) + result[2] + bytes(4), bytes(code))


def _print_all(every: Sequence[_Unit]) -> None:
    number = sum(len(unit.kernels) for unit in every)
    alone = sum(unit.alone_s * len(unit.kernels) for unit in every) / number
    together = sum(unit.together_s * len(unit.kernels) for unit in every) / number
    print(f"{number} kernels: {alone:.2f} s a kernel alone, {together:.2f} s together, {together / alone:.1%}")
    compared = sum(unit.alone for unit in every)
    print(f"{sum(unit.same for unit in every)} of {compared} that were compiled both ways have the same device code")


if __name__ == "__main__":
    main()
