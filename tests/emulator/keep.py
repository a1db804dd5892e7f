"""Compiled kernels that are kept with the tests, so that GPU kernels are executed where there is no HIP compiler.

`python -m tests.emulator.keep` compiles them anew (HIPCC, CK_TILE_INCLUDE), into `kept/`; with names of files, those.
"""

from __future__ import annotations

import lzma
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.bench.computation import measured_of
from ckh.bench.devices.device import EMULATED_KIND, HIP_KIND, DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.bench.supervision.protocol import Job, Op, Reply
from ckh.bench.supervision.supervisor import Supervisor, SupervisorOptions
from ckh.ops import operation

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = Path(__file__).with_name("kept")


@dataclass(frozen=True)
class Kept:
    """A kept kernel: file name, operation, name and architecture; whether it has a race, which is CK's."""

    file: str
    op: str
    name: str
    arch: str
    races: bool = False

    @property
    def kernel(self) -> Any:
        """The kernel."""
        return operation(self.op).kernels.parse(self.name)

    @property
    def path(self) -> Path:
        """The path of the compressed library."""
        return FOLDER / f"{self.file}.so.xz"

    def library(self) -> bytes:
        """The shared library."""
        return lzma.decompress(self.path.read_bytes())

    def problems(self) -> Sequence[Any]:
        """The problems that reach every tail of its loops."""
        measured, device = measured_of(operation(self.op)), open_device(HIP_KIND, DeviceOptions(self.arch))
        assert measured.trials is not None
        return [
            loop_end
            for loop_end in measured.trials().loop_ends(self.kernel)
            if not measured.reasons(self.kernel, device.arch, loop_end)
        ]


_CONV, _GEMM = "grouped_conv", "gemm_universal"
# File, operation, what follows the operation in the kernel's name, architecture.
_ROWS = (
    ("forward_basic_v1", _CONV, "fwd_fp16_nhwgc_2d_basic_v1_cshuffle_intrawave_16x64x64_1x4x1_16x16x16", "gfx942"),
    ("forward_compv3", _CONV, "fwd_fp16_nhwgc_2d_compv3_cshuffle_intrawave_16x64x64_1x4x1_16x16x16", "gfx942"),
    (
        "bwd_data_basic_v1",
        _CONV,
        "bwd_data_fp16_nhwgc_2d_basic_v1_cshuffle_intrawave_64x64x32_2x2x1_32x32x8_vec4_2_4",
        "gfx942",
    ),
    (
        "gemm_fp8_mem",
        _GEMM,
        "fp8_crr_mem_cshuffle_interwave_True_True_True_False_64x64x64_2x2x1_32x32x32",
        "gfx942",
    ),
    (
        "gemm_persistent",
        _GEMM,
        "fp16_ccr_compv3_cshuffle_intrawave_True_True_True_True_64x64x64_2x2x1_32x32x16_vec4_8_8",
        "gfx942",
    ),
    (
        "gemm_gfx950_async",
        _GEMM,
        "fp16_rcr_comp_async_cshuffle_intrawave_True_True_True_False_128x128x64_2x2x1_32x32x16",
        "gfx950",
    ),
    (
        "gemm_gfx950_fp8",
        _GEMM,
        "fp8_rrr_compv3_cshuffle_intrawave_True_True_True_False_64x64x128_2x2x1_16x16x128",
        "gfx950",
    ),
    (
        "bwd_weight_two_stages",
        _CONV,
        "bwd_weight_fp16_nhwgc_2d_compv3_cshuffle_intrawave_16x64x64_1x4x1_16x16x16_2stage_splitk2",
        "gfx942",
    ),
    (
        "forward_gfx950_compv4",
        _CONV,
        "fwd_bf16_nhwgc_2d_compv4_cshuffle_intrawave_16x64x64_1x4x1_16x16x16_dsb",
        "gfx950",
    ),
    (
        "gemm_compv6",
        _GEMM,
        "fp16_rcr_compv6_cshuffle_intrawave_False_False_False_False_32x32x32_2x2x1_16x16x32",
        "gfx942",
    ),
    (
        "gemm_gfx90a_compv4",
        _GEMM,
        "fp32_rcr_compv4_cshuffle_intrawave_False_False_False_False_32x32x32_2x2x1_16x16x16",
        "gfx90a",
    ),
    (
        "gemm_streamk_reduction",
        "gemm_streamk",
        "reduction_1_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_32x32x32_2x2x1_16x16x32",
        "gfx942",
    ),
    # With headers of mid-2025 and clang 19 it reads the size of its workgroup from the packet of its launch.
    (
        "gemm_mid2025_default",
        _GEMM,
        "fp16_rcr_compv3_default_intrawave_True_True_True_False_32x32x32_2x2x1_16x16x16",
        "gfx942",
    ),
)
KEPT = tuple(Kept(file, op, f"{op}_{name}", arch, "_comp_async_" in name) for file, op, name, arch in _ROWS)
RIGHT = tuple(kept for kept in KEPT if not kept.races)


def main() -> None:
    """Compile the kept kernels."""
    from ckh.bench.compilation.compile import KernelBuilder

    FOLDER.mkdir(exist_ok=True)
    for kept in (kept for kept in KEPT if kept.file in sys.argv[1:] or not sys.argv[1:]):
        builder = KernelBuilder(open_device(HIP_KIND, DeviceOptions(kept.arch)), 1800.0)
        built = builder.build([kept.kernel], 1, lambda _count, _text: None)[kept.kernel]
        assert built.library, built.message
        kept.path.write_bytes(lzma.compress(Path(built.library).read_bytes(), preset=9 | lzma.PRESET_EXTREME))
        print(f"{kept.file}: {kept.path.stat().st_size} bytes")  # noqa: T201


_TIMEOUT_S = 300.0


def executed(content: bytes, kept: Kept, folder: Path, problems: Sequence[str]) -> list[Reply]:
    """The emulated worker's reply for a library on each problem."""
    path = folder / "kernel.so"
    path.write_bytes(content)
    device = open_device(EMULATED_KIND, DeviceOptions(kept.arch))
    replies = []
    with Supervisor(device, SupervisorOptions(_TIMEOUT_S, device.worker_configs()[0]), lambda: False) as supervisor:
        for problem in problems:
            setup = Job(Op.PROBLEM, -1, problem=problem)
            replies += [reply for _, reply in supervisor.run(setup, [Job(Op.MEASURE, 1, library=str(path), samples=1)])]
    return replies


if __name__ == "__main__":
    main()
