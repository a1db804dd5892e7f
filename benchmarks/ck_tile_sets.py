"""Number of kernels of a rule set that CK Tile's headers build for an architecture, and reasons for the others.

    python benchmarks/ck_tile_sets.py gfx942 tiny [tests …] [--emit-only | --compiled] [--every N]

Every direction, 2D and 3D, fp16, bf16 and fp32. Each kernel takes about 20 s on one core; kernels compiled before are
cached. --emit-only compiles nothing and counts the reasons; --compiled loads kernels compiled before, and counts the
others; --every 10 compiles every tenth kernel of a set. Needs hipcc and CK Tile's headers, but no GPU.
"""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

from ckh.bench.codegen.unit import UnsupportedKernelError
from ckh.bench.compilation.compile import KernelBuilder
from ckh.bench.devices.device import Device, DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.bench.supervision.driver import BuildReport, Driver, build_and_load
from ckh.bench.supervision.limits import BenchLimits
from ckh.ops.grouped_conv.rules.sets import rule_set
from ckh.problems import Direction
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ckh.ops.grouped_conv.kernel import ConvKernel

DTYPES = ("fp16", "bf16", "fp32")
TIMEOUT_S = 1800.0  # for a unit of twelve kernels, on a busy machine


def report(name: str, reports: list[BuildReport]) -> None:
    """Print the results of a set's kernels."""
    made = [item for item in reports if item.status is Status.OK]
    known = [item.resources for item in made if item.resources is not None]
    print(f"\n{name}: {len(reports)} kernels, {len(made)} compile and load")
    print(f"  {sum(item.scratch_bytes > 0 for item in known)} of them use scratch memory")
    print_reasons(f"{item.status}: {item.message}" for item in reports if item.status is not Status.OK)


def report_emitted(name: str, kernels: list[ConvKernel], device: Device) -> None:
    """Print the number of sources, and the reasons for missing ones."""
    reasons = [reason for kernel in kernels if (reason := why_not(kernel, device))]
    print(f"\n{name}: {len(kernels)} kernels, {len(kernels) - len(reasons)} emitted")
    print_reasons(reasons)


def why_not(kernel: ConvKernel, device: Device) -> str:
    """Reason why a kernel is not emitted; empty if it is."""
    try:
        device.emit(kernel)
    except UnsupportedKernelError as error:
        return str(error)
    return ""


def print_reasons(reasons: Iterable[str]) -> None:
    """Print each reason with its count, most frequent first."""
    for reason, count in Counter(reasons).most_common():
        print(f"  {count:4d}  {reason}")


def main() -> None:
    """Build the given sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arch")
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--emit-only", action="store_true")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--jobs", type=int)
    wanted = parser.parse_args()
    device = open_device("hip", DeviceOptions(wanted.arch))
    known = KernelBuilder(device)
    for name in wanted.sets:
        groups = product(Direction, (2, 3), DTYPES)
        kernels = [k for variant, ndim, dtype in groups for k in rule_set(name, variant, ndim, dtype, device.arch)]
        chosen = kernels[:: wanted.every]
        if wanted.emit_only:
            report_emitted(name, chosen, device)
            continue
        if wanted.compiled:
            missing = {kernel for kernel in chosen if known.missing([kernel])}
            print(f"\n{name}: {len(missing)} of {len(chosen)} kernels are not compiled yet, and left out")
            chosen = [kernel for kernel in chosen if kernel not in missing]
        limits = BenchLimits(jobs=wanted.jobs, compile_timeout_s=TIMEOUT_S)
        built = build_and_load(Driver(device, limits, lambda: False), chosen)
        report(name, list(built.values()))


if __name__ == "__main__":
    main()
