"""Rates of AMD Instinct's matrix instructions, from LLVM's pass counts, written into `archspecs/`.

    python benchmarks/matrix_rates.py LLVM_MCA

`llvm-mca` prints the passes of four clocks of a matrix instruction; no GPU is needed. CK Tile composes a tile that is
deeper than an instruction of several. Rates are limited to the type's peak: LLVM has the passes of the scaled
instructions for four bits, and CDNA 4 takes twice as many for eight. Tiles without an instruction of the type are left
out. LLVM 20 or newer supports gfx950.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from ckh.archs import load_arch

Tile = tuple[int, int, int]

ROOT = Path(__file__).parents[1]
ARCHES = ("gfx908", "gfx90a", "gfx942", "gfx950")
CLOCKS_OF_PASS = 4
LANES = 64
KEY = "matrix_flops_per_cu_clock"

# M, N and K of instructions, with LLVM's names; those of four rows and columns compute 16 such blocks.
_FP8 = ((32, 32, 64, "f32_32x32x64_f8f6f4"), (16, 16, 128, "f32_16x16x128_f8f6f4"))
_BF16 = ((32, 32, 16, "f32_32x32x16_bf16"), (16, 16, 32, "f32_16x16x32_bf16"))
_FOURS = ((4, 64), (64, 4))
INSTRUCTIONS: dict[str, tuple[tuple[int, int, int, str], ...]] = {
    "fp16": (
        (32, 32, 16, "f32_32x32x16_f16"),
        (16, 16, 32, "f32_16x16x32_f16"),
        (32, 32, 8, "f32_32x32x8f16"),
        (16, 16, 16, "f32_16x16x16f16"),
        *((m, n, 4, "f32_4x4x4f16") for m, n in _FOURS),
    ),
    "bf16": (
        *_BF16,
        (32, 32, 8, "f32_32x32x8bf16_1k"),
        (16, 16, 16, "f32_16x16x16bf16_1k"),
        *((m, n, 4, "f32_4x4x4bf16_1k") for m, n in _FOURS),
        (32, 32, 4, "f32_32x32x4bf16"),
        (16, 16, 8, "f32_16x16x8bf16"),
    ),
    "fp32": ((32, 32, 2, "f32_32x32x2f32"), (16, 16, 4, "f32_16x16x4f32")),
    "fp8": (*_FP8, (32, 32, 16, "f32_32x32x16_fp8_fp8"), (16, 16, 32, "f32_16x16x32_fp8_fp8")),
    "bf8": (*_FP8, (32, 32, 16, "f32_32x32x16_bf8_bf8"), (16, 16, 32, "f32_16x16x32_bf8_bf8")),
    "int8": ((32, 32, 16, "i32_32x32x16_i8"), (16, 16, 32, "i32_16x16x32_i8"), (32, 32, 8, "i32_32x32x8i8")),
}
BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "bf8": 8, "int8": 8}


def passes(llvm_mca: str, arch: str, name: str, elements: int, bits: int, sums: int) -> float | None:
    """Passes of an instruction; None if the architecture does not have it.

    Args:
        llvm_mca: the program.
        arch: the architecture.
        name: name of the instruction.
        elements: elements of A per lane.
        bits: bits per element.
        sums: sums per lane.
    """
    words = max(1, elements * bits // 32)
    operands = ", ".join([f"a[0:{sums - 1}]", _registers(0, words), _registers(words, words), f"a[0:{sums - 1}]"])
    command = [llvm_mca, "-mtriple=amdgcn", f"-mcpu={arch}", "-iterations=1"]
    text = f"v_mfma_{name} {operands}\n"
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    matched = re.search(rf"^ 1 +[0-9]+ +([0-9.]+) .*v_mfma_{name.split('_', maxsplit=1)[0]}", done.stdout, re.MULTILINE)
    return float(matched[1]) if done.returncode == 0 and matched else None


def rates(llvm_mca: str, arch: str) -> dict[str, dict[Tile, int]]:
    """Operations per clock of a compute unit, by element type and tile of an architecture's kernels."""
    spec = load_arch(arch)
    assert spec.peaks is not None
    result: dict[str, dict[Tile, int]] = {}
    for dtype, peak in spec.peaks.flops_per_cu_clock.items():
        own = {}
        for m, n, k, name in INSTRUCTIONS.get(dtype, ()):
            count = passes(llvm_mca, arch, name, _elements(m, n, k), BITS[dtype], m * n // LANES)
            if count is not None:
                own[m, n, k] = round(min(peak, 2 * m * n * k * spec.hardware.simds_per_cu / (count * CLOCKS_OF_PASS)))
        tiles = dict.fromkeys([*spec.warp_tiles_for(dtype), *spec.warp_tiles_for(dtype, preshuffle=True)])
        made = {
            tile: max((item for item in own if item[:2] == tile[:2] and tile[2] % item[2] == 0), default=None)
            for tile in tiles
        }
        result[dtype] = {tile: own[item] for tile, item in made.items() if item is not None}
    return {dtype: tiles for dtype, tiles in result.items() if tiles}


def _elements(m: int, n: int, k: int) -> int:
    """Elements of A per lane: for blocks of four rows, each lane has one row."""
    return k if min(m, n) < 16 else m * k // LANES  # noqa: PLR2004 - the sides of all others


def _registers(first: int, count: int) -> str:
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def text_of(result: dict[str, dict[Tile, int]]) -> str:
    """The rates in the format of the architecture's file."""
    lines = [
        f'      "{dtype}": ' + json.dumps({"x".join(map(str, tile)): rate for tile, rate in tiles.items()})
        for dtype, tiles in result.items()
    ]
    return f'"{KEY}": {{\n' + ",\n".join(lines) + "\n    }"


def main() -> None:
    """Write the rates of all architectures."""
    (llvm_mca,) = sys.argv[1:]
    for arch in ARCHES:
        path = ROOT / "archspecs" / f"{arch}.json"
        new, count = re.subn(
            rf'"{KEY}": {{(?:[^{{}}]|{{[^{{}}]*}})*}}', text_of(rates(llvm_mca, arch)), path.read_text()
        )
        if count != 1:
            sys.exit(f"{path} has no {KEY}")
        path.write_text(new)


if __name__ == "__main__":
    main()
