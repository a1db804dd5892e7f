"""Compiled kernels that are kept with the tests, so that GPU kernels are executed where there is no HIP compiler.

`python -m tests.emulator.keep` compiles them anew (HIPCC, CK_TILE_INCLUDE), into `kept/`; with names of files, those.
"""

from __future__ import annotations

import csv
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


# gemm_mid2025_default (headers of mid-2025, clang 19) reads the size of its workgroup from the packet of its launch.
with FOLDER.with_suffix(".csv").open(encoding="utf-8", newline="") as _file:
    KEPT = tuple(Kept(**row, races="_comp_async_" in row["name"]) for row in csv.DictReader(_file))
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
