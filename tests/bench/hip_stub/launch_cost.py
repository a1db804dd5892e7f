"""`python -m tests.bench.hip_stub.launch_cost RUNTIME...`: the host's CPU time of launching kernels.

A JSON line on stdin has a kernel's library, its operation and a problem. Runtimes are `free.c`, compiled.
"""

from __future__ import annotations

import ctypes
import json
import sys

from ckh.bench.computation import computation_of
from ckh.bench.kernel_cache import loadable
from ckh.bench.library import KernelLibrary
from ckh.ops import operation

LOOPS, SAMPLES = 2000, 9


def main() -> None:
    """Answer each line with ns of CPU a launch, launches counted, fills counted while timed, or why it is refused."""
    # All have the functions of the first.
    runtime, *_ = [ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) for path in sys.argv[1:]]
    launches, zeroed = (ctypes.c_long.in_dll(runtime, name) for name in ("stub_launches", "stub_zeroed"))
    for line in sys.stdin:
        job = json.loads(line)
        problem = operation(job["op"]).parse_problem(job["problem"])
        library = KernelLibrary(loadable(job["library"]))
        c_problem = ctypes.byref(computation_of(problem).c_problem(problem))
        reason = library.unsupported(c_problem)
        times = (ctypes.c_double * SAMPLES)()
        launches.value = zeroed.value = 0
        code = 0 if reason else library.time(c_problem, *(ctypes.c_void_p(1 << 20),) * 4, LOOPS, SAMPLES, times)
        found = {
            "reason": (reason or b"").decode() or (library.error() if code else ""),
            "ns": min(times),
            "launches": launches.value,
            "zeroed": zeroed.value,
        }
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
