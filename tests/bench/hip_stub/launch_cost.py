"""`python -m tests.bench.hip_stub.launch_cost RUNTIME...`: the host's CPU time of launching kernels.

A JSON line on stdin has a kernel's library, its operation and a problem, its timing method, and the number of operand
sets; by default both are as for any kernel. Runtimes are compiled from `free.c`.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

from ckh.bench.compilation.kernel_cache import loadable
from ckh.bench.computation import computation_of
from ckh.bench.isolated.kernel_library import KernelLibrary, pointers
from ckh.ops import operation

LOOPS, SAMPLES = 2000, 9
_ADDRESS = 1 << 20
_COUNTERS = ("launches", "zeroed", "copies", "graphs", "open")


def main() -> None:
    """Answer each line with CPU ns per launch and the counted calls, or the reason of a refusal."""
    # All have the functions of the first.
    runtime, *_ = [ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) for path in sys.argv[1:]]
    counters = {name: ctypes.c_long.in_dll(runtime, f"stub_{name}") for name in _COUNTERS}
    for line in sys.stdin:
        job = json.loads(line)
        problem = operation(job["op"]).problems.parse(job["problem"])
        library = KernelLibrary(loadable(job["library"]))
        c_problem = ctypes.byref(computation_of(problem).c_problem(problem))
        reason = library.unsupported(c_problem)
        times = (ctypes.c_double * SAMPLES)()
        for counter in counters.values():
            counter.value = 0
        code = 0 if reason else _timed(library, job, c_problem, times)
        result = {
            "reason": (reason or b"").decode() or (library.error() if code else ""),
            "ns": min(times),
            **{name: counter.value for name, counter in counters.items()},
        }
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


def _timed(library: KernelLibrary, job: dict[str, Any], c_problem: Any, times: Any) -> int:
    operands = (_ADDRESS,) * library.operand_count
    if "how" not in job:
        return int(library.time(c_problem, pointers(operands), LOOPS, SAMPLES, times))
    sets = (operands,) * job["sets"]
    return int(library.time_by(job["how"], c_problem, pointers(*sets), len(sets), 1, LOOPS, SAMPLES, times))


if __name__ == "__main__":
    main()
