"""Compiled kernels that are kept with the tests, so that GPU kernels are executed where there is no HIP compiler.

`python -m tests.emulator.keep` compiles them anew (HIPCC, CK_TILE_INCLUDE), into `kept/`.
"""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.bench.computation import measured_of
from ckh.bench.device import HIP_KIND, DeviceOptions, open_device
from ckh.ops import operation

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = Path(__file__).with_name("kept")


@dataclass(frozen=True)
class Kept:
    """A kernel that is kept: its file's name, operation, name and architecture."""

    file: str
    op: str
    name: str
    arch: str = "gfx942"

    @property
    def kernel(self) -> Any:
        """The kernel."""
        return operation(self.op).parse_kernel(self.name)

    @property
    def path(self) -> Path:
        """Where it is kept, compressed."""
        return FOLDER / f"{self.file}.so.xz"

    def library(self) -> bytes:
        """The shared library."""
        return lzma.decompress(self.path.read_bytes())

    def problems(self) -> Sequence[Any]:
        """The problems that reach every end of its loops."""
        measured, device = measured_of(operation(self.op)), open_device(HIP_KIND, DeviceOptions(self.arch))
        assert measured.loop_ends is not None
        return [one for one in measured.loop_ends(self.kernel) if not measured.reasons(self.kernel, device.arch, one)]


_CONV, _GEMM = "grouped_conv", "gemm_universal"
KEPT = (
    Kept(
        "forward_basic_v1", _CONV, "grouped_conv_fwd_fp16_nhwgc_2d_basic_v1_cshuffle_intrawave_16x64x64_1x4x1_16x16x16"
    ),
    Kept("forward_compv3", _CONV, "grouped_conv_fwd_fp16_nhwgc_2d_compv3_cshuffle_intrawave_16x64x64_1x4x1_16x16x16"),
)


def main() -> None:
    """Compile those that are kept."""
    from ckh.bench.compile import KernelBuilder

    FOLDER.mkdir(exist_ok=True)
    for one in KEPT:
        builder = KernelBuilder(open_device(HIP_KIND, DeviceOptions(one.arch)), 1800.0)
        built = builder.build([one.kernel], 1, lambda _count, _text: None)[one.kernel]
        assert built.library, built.message
        one.path.write_bytes(lzma.compress(Path(built.library).read_bytes(), preset=9 | lzma.PRESET_EXTREME))
        print(f"{one.file}: {one.path.stat().st_size} bytes")  # noqa: T201


if __name__ == "__main__":
    main()
