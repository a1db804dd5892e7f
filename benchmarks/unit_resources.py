"""Resources of GPU kernels compiled alone and in a unit of several, which must be equal.

    python benchmarks/unit_resources.py --out FOLDER [--only gemm_grouped …]

Each of `UNITS` is compiled for the device alone, kernel by kernel and as the unit that `ckh bench` would make of it. A
row has the maximum over a kernel's GPU functions, for waves the minimum. Each compiler call is kept in FOLDER, by its
source, compiler and flags, so that the script can be interrupted. With PYTHONPATH set to another checkout of ckh, it
is that one's kernels. A test holds that both are equal (tests/bench/codegen/test_unit.py).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ckh.bench.codegen.unit import function_part
from ckh.bench.devices.device import DeviceOptions
from ckh.bench.devices.hip_device import HipDevice
from ckh.isa.codefile import read_code
from ckh.isa.decode import decoded
from ckh.isa.loops import parts_of
from ckh.ops import operation
from ckh.text.tabletext import table_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.isa.codefile import Function
    from ckh.isa.instructions import Instruction

_PERSISTENT, _PLAIN = (
    "compv3_default_intrawave_False_False_False_True",
    "compv3_default_intrawave_False_False_False_False",
)
_SHUFFLED = "preshufflev2_cshuffle_intrawave_False_False_False"
_FORWARD = "grouped_conv_fwd_bf16_nhwgc_2d_compv3_cshuffle_intrawave_256x256x32_2x2x1_16x16x32_vec8_8_8"
# Operation and architecture, and the kernels of a unit.
UNITS = {
    ("gemm_universal", "gfx950"): (
        f"gemm_universal_fp8_rcr_{_PERSISTENT}_128x128x128_2x2x1_32x32x64",
        f"gemm_universal_bf16_rcr_{_PERSISTENT}_128x128x64_2x2x1_16x16x32",
    ),
    ("gemm_multi_d", "gfx942"): (
        f"gemm_multi_d_add_2_fp16_rcr_{_PERSISTENT}_128x128x64_2x2x1_32x32x16",
        f"gemm_multi_d_add_2_fp16_rcr_{_PLAIN}_128x128x64_2x2x1_32x32x16",
    ),
    ("gemm_preshuffle", "gfx942"): (
        f"gemm_preshuffle_bf16_rcr_{_SHUFFLED}_True_128x128x64_2x2x1_32x32x16",
        f"gemm_preshuffle_bf16_rcr_{_SHUFFLED}_False_128x128x64_2x2x1_32x32x16",
    ),
    ("gemm_grouped", "gfx942"): (
        f"gemm_grouped_fp16_rcr_{_PERSISTENT}_128x128x64_2x2x1_32x32x16",
        f"gemm_grouped_fp16_rcr_{_PLAIN}_128x128x64_2x2x1_32x32x16",
    ),
    # The last two differ in the blocks that are launched, and have one body.
    ("gemm_streamk", "gfx942"): (
        f"gemm_streamk_reduction_1_fp16_rcr_{_PERSISTENT}_128x128x64_2x2x1_32x32x16",
        f"gemm_streamk_reduction_1_fp16_rcr_{_PLAIN}_128x128x64_2x2x1_32x32x16",
        f"gemm_streamk_reduction_2_fp16_rcr_{_PLAIN}_128x128x64_2x2x1_32x32x16",
    ),
    # These two differ in the blocks that a compute unit is to hold, and have one body.
    ("grouped_conv", "gfx942"): (f"{_FORWARD}_bpc2", _FORWARD),
}
_DEVICE_ONLY = ("--offload-device-only", "--no-gpu-bundle-output")


class Taken(NamedTuple):
    """What a kernel's GPU functions take: their number, those that call others, and the maximum of each resource."""

    functions: int
    calling: int
    registers: str
    scratch: int
    spills: int
    waves: int
    loop: int


class Call(NamedTuple):
    """A compiler call: what each kernel takes, all GPU functions of the file, and CPU seconds."""

    taken: list[Taken]
    functions: int
    cpu_s: float


def main() -> None:
    """Compile what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", help="operations")
    options = parser.parse_args()
    for (op, arch), names in UNITS.items():
        if not options.only or op in options.only:
            together = compiled(op, arch, names, options.out)
            rows = list(_rows(names, together, f"unit, {together.functions} functions"))
            for name in names:
                rows += _rows((name,), compiled(op, arch, (name,), options.out), "alone")
            columns = ("kernel", "compiled in", *Taken._fields, "CPU-s")
            print(table_text(f"{op}, {arch}", columns, sorted(rows)), flush=True)


def _rows(names: Sequence[str], call: Call, where: str) -> Iterator[tuple[str, ...]]:
    for name, taken in zip(names, call.taken, strict=True):
        yield name, where, *map(str, taken), f"{call.cpu_s / len(names):.1f}"


def compiled(op: str, arch: str, names: Sequence[str], kept: Path) -> Call:
    """Compile kernels for the device alone, several as a unit; what was compiled before is in the folder."""
    device = HipDevice(DeviceOptions(arch))
    kernels = [operation(op).kernels.parse(name) for name in names]
    sources = [device.emit(kernel) for kernel in kernels]
    text = sources[0] if len(names) == 1 else device.emit_unit(kernels[0], sources)
    path = kept / f"{hashlib.sha256(device.cache_salt() + ''.join(sources).encode()).hexdigest()[:32]}.taken"
    if not path.exists():
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        with tempfile.TemporaryDirectory() as folder:
            source, output = Path(folder, "kernels.cpp"), Path(folder, "kernels.co")
            source.write_text(text, encoding="utf-8")
            command = [*device.compile_command(kernels[0], source, output), *_DEVICE_ONLY]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            cpu_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
            functions = [function for function in read_code(output, arch).functions if "kentry" in function.name]
        texts = decoded(arch, tuple(function.code for function in functions))
        own = ["" if len(names) == 1 else function_part(number) for number in range(len(names))]
        every = list(zip(functions, texts, strict=True))
        taken = [_taken([pair for pair in every if part in pair[0].name]) for part in own]
        kept.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([taken, len(functions), cpu_s]), encoding="utf-8")
    values, count, cpu_s = json.loads(path.read_text(encoding="utf-8"))
    return Call([Taken(*item) for item in values], count, cpu_s)


def _taken(functions: Sequence[tuple[Function, Sequence[Instruction]]]) -> Taken:
    each = [function.resources for function, _ in functions]
    most = max(each, key=lambda item: item.vgprs + item.agprs)
    return Taken(
        functions=len(functions),
        calling=sum(any(item.name.startswith("s_swappc") for item in text) for _, text in functions),
        registers=f"{most.vgprs} + {most.agprs}",
        scratch=max(item.scratch_bytes for item in each),
        spills=max(item.vgpr_spills for item in each),
        waves=min(item.occupancy for item in each),
        loop=max(len(parts_of(text).loop) for _, text in functions),
    )


if __name__ == "__main__":
    main()
