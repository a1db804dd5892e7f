"""Code objects that are kept with the tests: kernels whose iterations were counted by hand.

`python -m tests.isa.keep` compiles them anew (HIPCC, CK_TILE_INCLUDE), for the device alone, into `kept/`.
"""

from __future__ import annotations

import lzma
import subprocess
import tempfile
from pathlib import Path

from ckh.bench.devices.device import HIP_KIND, DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.ops import operation

FOLDER = Path(__file__).with_name("kept")
ARCH = "gfx950"
_FORWARD = "grouped_conv_fwd_bf16_nhwgc_2d_compv3_cshuffle_intrawave_"
LEAST, MOST = f"{_FORWARD}16x64x64_1x4x1_16x16x16", f"{_FORWARD}128x64x128_8x2x1_16x16x32"
BACKWARD_DATA = "grouped_conv_bwd_data_bf16_nhwgc_2d_compv3_cshuffle_intrawave_16x64x64_1x4x1_16x16x16"
_DEVICE_ONLY = ("--offload-device-only", "--no-gpu-bundle-output")


def code(name: str, folder: Path) -> Path:
    """The code object of a kept kernel, unpacked into a folder."""
    path = folder / f"{name}.co"
    path.write_bytes(lzma.decompress((FOLDER / f"{name}.co.xz").read_bytes()))
    return path


def main() -> None:
    """Compile all of them."""
    device = open_device(HIP_KIND, DeviceOptions(ARCH))
    FOLDER.mkdir(exist_ok=True)
    for name in (LEAST, MOST, BACKWARD_DATA):
        kernel = operation("grouped_conv").kernels.parse(name)
        with tempfile.TemporaryDirectory() as work:
            source, output = Path(work) / "kernel.cpp", Path(work) / "kernel.co"
            source.write_text(device.emit(kernel), encoding="utf-8")
            subprocess.run([*device.compile_command(kernel, source, output), *_DEVICE_ONLY], check=True)
            (FOLDER / f"{name}.co.xz").write_bytes(lzma.compress(output.read_bytes(), preset=9))


if __name__ == "__main__":
    main()
