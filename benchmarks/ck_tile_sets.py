"""How many kernels of a rule set CK Tile's headers build for an architecture, and why the others are not built.

    python benchmarks/ck_tile_sets.py gfx942 tiny [tests …]

Every direction, 2D and 3D, fp16, bf16 and fp32. Each kernel takes about 20 s of a core; what was compiled before is in
the cache. Needs hipcc and CK Tile's headers, and no GPU.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import product

from ckh.bench.building import BuildReport, build_and_load
from ckh.bench.compile import default_jobs
from ckh.bench.device import DeviceOptions, open_device
from ckh.ops.grouped_conv.rules import rule_set
from ckh.problems import Direction
from ckh.schema import Status

DTYPES = ("fp16", "bf16", "fp32")
TIMEOUT_S = 600.0


def report(name: str, reports: list[BuildReport]) -> None:
    """Print what became of a set's kernels."""
    made = [one for one in reports if one.status is Status.OK]
    known = [one.resources for one in made if one.resources is not None]
    print(f"\n{name}: {len(reports)} kernels, {len(made)} compile and load")
    print(f"  {sum(one.scratch_bytes > 0 for one in known)} of them use scratch memory")
    reasons = Counter(f"{one.status}: {one.message}" for one in reports if one.status is not Status.OK)
    for reason, count in reasons.most_common():
        print(f"  {count:4d}  {reason}")


def main() -> None:
    """Build the sets that were named."""
    arch, *names = sys.argv[1:]
    device = open_device("hip", DeviceOptions(arch))
    for name in names:
        groups = product(Direction, (2, 3), DTYPES)
        kernels = [k for variant, ndim, dtype in groups for k in rule_set(name, variant, ndim, dtype, device.arch)]
        jobs = default_jobs(device.job_bytes)
        built = build_and_load(device, kernels, jobs=jobs, timeout_s=TIMEOUT_S, should_stop=lambda: False)
        report(name, list(built.values()))


if __name__ == "__main__":
    main()
