"""Compares GPU kernels compiled in a unit of several with the same kernels compiled alone: they must be equal.

    python benchmarks/unit_resources.py --out FOLDER [--only gemm_grouped …]
    python benchmarks/unit_resources.py --out FOLDER --executed 63    # units of executed_kernels.py --again 63

`UNITS` cover every operation and direction, for headers of both interfaces of 2025: those of the headers at hand
(CK_TILE_INCLUDE) are compiled for the device alone, kernel by kernel and as the unit that `ckh bench` would make of
them. Each GPU function's registers, scratch memory, spills, calls, and instructions, in all and in the loop, must be
equal; otherwise the exit code is 1. A row of the table has the maximum over a kernel's functions, for waves the
minimum. Each compiler call is kept in FOLDER, by its source, compiler and options, so that the script can be
interrupted. With --executed, the units are those in ckh's cache, of which kernels were executed by executed_kernels.py.
With PYTHONPATH set to another checkout of ckh, it is that one's kernels.
tests/bench/codegen/test_unit.py compiles a sample.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
from contextlib import suppress
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from ckh.bench.codegen.ck_tile import Interface
from ckh.bench.codegen.unit import UnsupportedKernelError, chosen_number, function_part
from ckh.bench.compilation.compile import KernelBuilder
from ckh.bench.compilation.hip_toolchain import known_ck_tile
from ckh.bench.compilation.kernel_cache import loadable
from ckh.bench.computation import measured_of
from ckh.bench.devices.device import DeviceOptions
from ckh.bench.devices.hip_device import HipDevice
from ckh.isa.codefile import read_code
from ckh.isa.decode import decoded
from ckh.isa.loops import parts_of
from ckh.ops import operation
from ckh.text.tabletext import table_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.bench.codegen.ck_tile import Headers
    from ckh.isa.codefile import Function
    from ckh.isa.instructions import Instruction
    from ckh.ops.base import Kernel

_PERSISTENT, _PLAIN = (
    "compv3_default_intrawave_False_False_False_True",
    "compv3_default_intrawave_False_False_False_False",
)
_SHUFFLED = "preshufflev2_cshuffle_intrawave_False_False_False"
_FORWARD = "grouped_conv_fwd_bf16_nhwgc_2d_compv3_cshuffle_intrawave_256x256x32_2x2x1_16x16x32_vec8_8_8"
DRAWN = 2  # kernels of a unit
_DEVICE_ONLY = ("--offload-device-only", "--no-gpu-bundle-output")


class Unit(NamedTuple):
    """Kernels compiled together: the named ones, or two drawn from those of the operation whose class matches."""

    op: str
    arch: str
    interface: Interface
    kernels: str | tuple[str, ...] = "*"

    def names(self, device: HipDevice) -> tuple[str, ...]:
        """Names of its kernels; drawn ones are of different classes."""
        if not isinstance(self.kernels, str):
            return self.kernels
        op, random = operation(self.op), Random(repr(self))
        trials = measured_of(op).trials
        assert trials is not None
        classes = [some for name, some in trials().representatives(device.arch).items() if fnmatch(name, self.kernels)]
        built = (_one_built(device, random.sample(some, len(some))) for some in random.sample(classes, len(classes)))
        return tuple(islice((op.kernels.name(kernel) for kernel in built if kernel is not None), DRAWN))


_MID, _LATE = Interface.MID_2025, Interface.LATE_2025
UNITS = (
    Unit(
        *("gemm_universal", "gfx950", _LATE),
        (
            f"gemm_universal_fp8_rcr_{_PERSISTENT}_128x128x128_2x2x1_32x32x64",
            f"gemm_universal_bf16_rcr_{_PERSISTENT}_128x128x64_2x2x1_16x16x32",
        ),
    ),
    Unit("gemm_batched", "gfx90a", _LATE),
    # These two differ in the blocks that a compute unit is to hold, and have one body.
    Unit("grouped_conv", "gfx942", _LATE, (f"{_FORWARD}_bpc2", _FORWARD)),
    Unit("grouped_conv", "gfx950", _LATE, "bwd_data *"),
    Unit("grouped_conv", "gfx90a", _LATE, "bwd_weight *"),
    Unit(
        *("gemm_multi_d", "gfx942", _LATE),
        (
            f"gemm_multi_d_add_2_fp16_rcr_{_PERSISTENT}_128x128x64_2x2x1_32x32x16",
            f"gemm_multi_d_add_2_fp16_rcr_{_PLAIN}_128x128x64_2x2x1_32x32x16",
        ),
    ),
    Unit(
        *("gemm_preshuffle", "gfx942", _LATE),
        (
            f"gemm_preshuffle_bf16_rcr_{_SHUFFLED}_True_128x128x64_2x2x1_32x32x16",
            f"gemm_preshuffle_bf16_rcr_{_SHUFFLED}_False_128x128x64_2x2x1_32x32x16",
        ),
    ),
    Unit(
        *("gemm_grouped", "gfx942", _LATE),
        (
            f"gemm_grouped_fp16_rcr_{_PERSISTENT}_128x128x64_2x2x1_32x32x16",
            f"gemm_grouped_fp16_rcr_{_PLAIN}_128x128x64_2x2x1_32x32x16",
        ),
    ),
    # The last two differ in the blocks that are launched, and have one body.
    Unit(
        *("gemm_streamk", "gfx942", _LATE),
        (
            f"gemm_streamk_reduction_1_fp16_rcr_{_PERSISTENT}_128x128x64_2x2x1_32x32x16",
            f"gemm_streamk_reduction_1_fp16_rcr_{_PLAIN}_128x128x64_2x2x1_32x32x16",
            f"gemm_streamk_reduction_2_fp16_rcr_{_PLAIN}_128x128x64_2x2x1_32x32x16",
        ),
    ),
    Unit("grouped_conv", "gfx90a", _LATE, "forward *3D*"),
    Unit("grouped_conv", "gfx942", _LATE, "bwd_data *3D*"),
    Unit("grouped_conv", "gfx950", _LATE, "bwd_weight *3D*"),
    # The compilers of these headers have no gfx950.
    Unit("gemm_universal", "gfx942", _MID),
    Unit("gemm_batched", "gfx942", _MID),
    Unit("gemm_grouped", "gfx90a", _MID),
    Unit("gemm_preshuffle", "gfx942", _MID),
    Unit("grouped_conv", "gfx942", _MID, "forward *"),
    Unit("grouped_conv", "gfx90a", _MID, "bwd_weight *"),
    Unit("grouped_conv", "gfx942", _MID, "forward *3D*"),
    Unit("grouped_conv", "gfx942", _MID, "bwd_weight *3D*"),
)


class Taken(NamedTuple):
    """What a GPU function takes: registers, scratch bytes, spills, waves that fit, instructions, and calls."""

    vgprs: int
    agprs: int
    sgprs: int
    scratch: int
    vgpr_spills: int
    sgpr_spills: int
    waves: int
    instructions: int
    loop: int
    calls: int


class Call(NamedTuple):
    """A compiler call: what the functions of each kernel take, all GPU functions of the file, and CPU seconds."""

    taken: list[list[Taken]]
    functions: int
    cpu_s: float


def main() -> None:
    """Compile what is missing, print the table of each unit, and then the differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", help="operations")
    parser.add_argument("--executed", type=int, metavar="N", help="kernels of the record's draw, as they were executed")
    options = parser.parse_args()
    headers = known_ck_tile()
    if headers is None:
        parser.error("there are no headers: set CK_TILE_INCLUDE")
    count, different = 0, list[str]()
    for op, arch, names, together in _executed(options.executed) if options.executed else _units(headers, options.out):
        if op not in (options.only or [op]):
            continue
        alone = [compiled(op, arch, (name,), options.out) for name in names]
        rows = list(_rows(names, together, f"unit, {together.functions} functions"))
        for name, call in zip(names, alone, strict=True):
            rows += _rows((name,), call, "alone")
        columns = ("kernel", "compiled in", "functions", *Taken._fields, "CPU-s")
        print(table_text(f"{op}, {arch}, {headers.interface}", columns, sorted(rows)), flush=True)
        count += len(names)
        different += differences(names, together, alone)
    print(f"{headers.interface}: {count - len(different)} of {count} kernels are as compiled alone")
    sys.exit("\n".join(different) or None)


def _units(headers: Headers, kept: Path) -> Iterator[tuple[str, str, tuple[str, ...], Call]]:
    """Operation, architecture and kernels of each unit for these headers, and what the unit takes."""
    for unit in UNITS:
        if unit.interface == headers.interface:
            names = unit.names(HipDevice(DeviceOptions(unit.arch)))
            yield unit.op, unit.arch, names, compiled(unit.op, unit.arch, names, kept)


def _executed(count: int) -> Iterator[tuple[str, str, tuple[str, ...], Call]]:
    """The same for single kernels of units in ckh's cache: the first of each unit, then the second, and so on."""
    from executed_kernels import TOGETHER, drawn  # type: ignore[import-not-found]  # of this folder

    entries = drawn(count)
    for entry in (entry for start in range(TOGETHER) for entry in entries[start::TOGETHER]):
        device = HipDevice(DeviceOptions(entry.arch))
        library = KernelBuilder(device).library(operation(entry.op).kernels.parse(entry.kernel))
        if library.exists() and chosen_number(Path(loadable(str(library))).read_bytes()) is not None:
            taken = sorted(item for _, item in _functions(library, entry.arch))
            yield entry.op, entry.arch, (entry.kernel,), Call([taken], len(taken), 0.0)


def differences(names: Sequence[str], together: Call, alone: Sequence[Call]) -> Iterator[str]:
    """Kernels that a unit changes."""
    if together.functions != sum(map(len, together.taken)):
        yield f"{names[0]} and others: {together.functions} functions, {sum(map(len, together.taken))} of them kernels'"
    for name, taken, call in zip(names, together.taken, alone, strict=True):
        if taken != call.taken[0]:
            yield f"{name}: in the unit {taken}, alone {call.taken[0]}"


def _rows(names: Sequence[str], call: Call, where: str) -> Iterator[tuple[str, ...]]:
    for name, taken in zip(names, call.taken, strict=True):
        each = Taken(*(map(max, zip(*taken, strict=True))))._replace(waves=min(function.waves for function in taken))
        yield name, where, str(len(taken)), *map(str, each), f"{call.cpu_s / len(names):.1f}"


def _one_built(device: HipDevice, kernels: Sequence[Kernel]) -> Kernel | None:
    """The first kernel that the headers support; None if there is none."""
    for kernel in kernels:
        with suppress(UnsupportedKernelError):
            device.emit(kernel)
            return kernel
    return None


def compiled(op: str, arch: str, names: Sequence[str], kept: Path) -> Call:
    """Compile kernels for the device alone, several as a unit; what was compiled before is in the folder."""
    device = HipDevice(DeviceOptions(arch))
    kernels = [operation(op).kernels.parse(name) for name in names]
    sources = [device.emit(kernel) for kernel in kernels]
    text = sources[0] if len(names) == 1 else device.emit_unit(kernels[0], sources)
    path = kept / f"{hashlib.sha256(device.cache_salt() + ''.join(sources).encode()).hexdigest()[:32]}.functions"
    if not path.exists():
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        with tempfile.TemporaryDirectory() as folder:
            source, output = Path(folder, "kernels.cpp"), Path(folder, "kernels.co")
            source.write_text(text, encoding="utf-8")
            command = [*device.compile_command(kernels[0], source, output), *_DEVICE_ONLY]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            cpu_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
            every = _functions(output, arch)
        own = ["" if len(names) == 1 else function_part(number) for number in range(len(names))]
        taken = [sorted(item for name, item in every if part in name) for part in own]
        kept.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([taken, len(every), cpu_s]), encoding="utf-8")
    values, count, cpu_s = json.loads(path.read_text(encoding="utf-8"))
    return Call([[Taken(*item) for item in functions] for functions in values], count, cpu_s)


def _functions(code: Path, arch: str) -> list[tuple[str, Taken]]:
    """Names of the kernels' GPU functions in a file, and what they take."""
    functions = [function for function in read_code(code, arch).functions if "kentry" in function.name]
    texts = decoded(arch, tuple(function.code for function in functions))
    return [(function.name, _taken(function, text)) for function, text in zip(functions, texts, strict=True)]


def _taken(function: Function, text: Sequence[Instruction]) -> Taken:
    taken = function.resources
    return Taken(
        *(taken.vgprs, taken.agprs, taken.sgprs, taken.scratch_bytes, taken.vgpr_spills, taken.sgpr_spills),
        waves=taken.occupancy,
        instructions=len(text),
        loop=len(parts_of(text).loop),
        calls=sum(instruction.name.startswith("s_swappc") for instruction in text),
    )


if __name__ == "__main__":
    main()
