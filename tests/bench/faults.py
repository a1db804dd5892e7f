"""A device with tiny kernels that compile quickly and misbehave on command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckh.bench.devices.device_choice import HostDevice
from ckh.bench.planning.plan import full_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from ckh.schema import Status

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.ops.grouped_conv.kernel import ConvKernel

PROBLEM = ConvProblem(Direction.FORWARD, n=1, c=8, k=8, g=1, hi=8, wi=8, y=3, x=3, pad_h=1, pad_w=1)
OTHER_PROBLEM = ConvProblem(Direction.FORWARD, n=1, c=8, k=16, g=2, hi=6, wi=6, y=3, x=3)
THIRD_PROBLEM = ConvProblem(Direction.FORWARD, n=2, c=8, k=8, g=1, hi=6, wi=6, y=1, x=1)

# Stated times of kernels, so long that no hiccup of the machine changes their number of samples.
CLAIMED_MS = 100.0

_SOURCE = """
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct Problem {
    int64_t n, c, k, g, di, hi, wi, z, y, x, stride_d, stride_h, stride_w, pad_d, pad_h, pad_w;
    int64_t dilation_d, dilation_h, dilation_w, do_, ho, wo;
};

static float output(const Problem& p, const float* image, const float* filter, int64_t n, int64_t h, int64_t w,
                    int64_t k) {
    const int64_t channels = p.c / p.g, group = k / (p.k / p.g);
    double sum = 0;
    for (int64_t y = 0; y < p.y; ++y)
        for (int64_t x = 0; x < p.x; ++x) {
            const int64_t row = h * p.stride_h - p.pad_h + y * p.dilation_h;
            const int64_t column = w * p.stride_w - p.pad_w + x * p.dilation_w;
            if (row < 0 || row >= p.hi || column < 0 || column >= p.wi) continue;
            const float* pixel = image + ((n * p.hi + row) * p.wi + column) * p.c + group * channels;
            const float* tap = filter + ((k * p.y + y) * p.x + x) * channels;
            for (int64_t c = 0; c < channels; ++c) sum += double(pixel[c]) * tap[c];
        }
    return float(sum);
}

static int64_t size(const Problem& p) { return p.n * p.ho * p.wo * p.k; }

static void convolve(const Problem& p, const float* a, const float* b, float* out) {
    for (int64_t i = 0; i < size(p); ++i)
        out[i] = output(p, a, b, i / (p.k * p.wo * p.ho), i / (p.k * p.wo) % p.ho, i / p.k % p.wo, i % p.k);
}

@helpers@

extern "C" {
int32_t ckh_abi_version(void) { return @abi@; }
int32_t ckh_operand_count(void) { return @operands@; }
const char* ckh_unsupported(const Problem* p) { return @unsupported@; }
int64_t ckh_workspace_bytes(const Problem* p) { return @workspace@; }
int32_t ckh_run(const Problem* p, void* const* operands) {
    float *a = (float*)operands[0], *out = (float*)operands[2];
    const float* b = (const float*)operands[1];
    char* workspace = (char*)operands[3];
    (void)a, (void)b, (void)out, (void)workspace;
    @run@
}
int32_t ckh_time(const Problem* p, void* const* operands, int32_t loops, int32_t samples, double* ns) {
    float *a = (float*)operands[0], *out = (float*)operands[2];
    const float* b = (const float*)operands[1];
    char* workspace = (char*)operands[3];
    (void)a, (void)b, (void)out, (void)workspace;
    @time@
}
}
"""
_RIGHT = "convolve(*p, a, b, out);"
CLAIM = f"for (int i = 0; i < samples; ++i) ns[i] = {CLAIMED_MS} * 1e6; return 0;"


@dataclass(frozen=True, slots=True)
class Fault:
    """Behaviour of a kernel, in C++: statements of `ckh_run` and `ckh_time`, and other return values."""

    run: str = f"{_RIGHT} return 0;"
    time: str = CLAIM
    unsupported: str = "nullptr"
    workspace: str = "0"
    abi: int = 2
    operands: int = 4
    helpers: str = ""

    @property
    def source(self) -> str:
        """Source of the kernel."""
        text = _SOURCE
        for name in ("run", "time", "unsupported", "workspace", "abi", "operands", "helpers"):
            text = text.replace(f"@{name}@", str(getattr(self, name)))
        return text


def claims(first_ms: float, alone_ms: float | None = None) -> Fault:
    """A right kernel that states a time of `first_ms`, and `alone_ms` if a single sample is requested."""
    alone = first_ms if alone_ms is None else alone_ms
    item = f"(samples == 1 ? {alone!r} : {first_ms!r}) * 1e6"
    return Fault(time=f"for (int i = 0; i < samples; ++i) ns[i] = {item}; return 0;")


GOOD = Fault()
SEGFAULT = Fault("*reinterpret_cast<volatile int*>(8) = 1; return 0;")
HANG = Fault("for (;;) pause();")
SLOW = Fault(f"usleep(100000); {_RIGHT} return 0;")
# Changes the process so that FRAGILE kernels abort in it.
POISON = Fault(f'setenv("CKH_TEST_POISON", "1", 1); {_RIGHT} return 0;')
FRAGILE = Fault(f'if (getenv("CKH_TEST_POISON")) abort(); {_RIGHT} return 0;')
# Allocates all memory in pieces, then fails cleanly and keeps the memory.
HOARD = Fault(
    "for (size_t n = 1 << 26; n >= 4096; n /= 2)"
    "    while (mmap(0, n, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {}"
    "return 12;"
)
# Disconnects the worker from its supervisor, and keeps running.
DEAF = Fault(f"for (int i = 0; i < 100; ++i) close(i); {HANG.run}")

# Name -> behaviour of the kernel, required status, and a part of the message.
FAULTS: dict[str, tuple[Fault, Status, str]] = {
    "segfault": (SEGFAULT, Status.CRASH, "killed by SIGSEGV"),
    "abort": (
        Fault('fputs("assertion failed\\n", stderr); abort();'),
        Status.CRASH,
        "SIGABRT; stderr: assertion failed",
    ),
    "exit": (Fault("_exit(0);"), Status.CRASH, "exited with code 0"),
    "kill": (Fault("raise(SIGKILL); return 0;"), Status.CRASH, "killed by SIGKILL"),
    "hang": (HANG, Status.TIMEOUT, "no result within"),
    "closes its pipes and hangs": (DEAF, Status.CRASH, "closed its pipe and did not end"),
    "hang when timed": (Fault(time=HANG.run), Status.TIMEOUT, "no result within"),
    "crash when timed": (Fault(time="abort();"), Status.CRASH, "killed by SIGABRT"),
    "out of memory": (
        Fault("for (;;) *static_cast<volatile char*>(malloc(1 << 26)) = 1;"),
        Status.CRASH,
        "killed by SIGSEGV",
    ),
    "write to an input": (Fault(f"a[0] = 0; {_RIGHT} return 0;"), Status.CRASH, "killed by SIGSEGV"),
    "one wrong number": (
        Fault(f"{_RIGHT} out[5] += 0.5F; return 0;"),
        Status.WRONG_RESULT,
        "1 of 512 outputs wrong, the first at 5",
    ),
    "zeros": (Fault("for (int64_t i = 0; i < size(*p); ++i) out[i] = 0; return 0;"), Status.WRONG_RESULT, "512 of 512"),
    "nothing written": (Fault("return 0;"), Status.WRONG_RESULT, "512 are NaN or were never written"),
    "last one not written": (
        Fault(f"const float old = out[511]; {_RIGHT} out[511] = old; return 0;"),
        Status.WRONG_RESULT,
        "1 are NaN or were never written",
    ),
    "counts on a zeroed workspace": (
        Fault(f"{_RIGHT} out[0] += reinterpret_cast<float*>(workspace)[3]; return 0;", workspace="64"),
        Status.WRONG_RESULT,
        "1 are NaN",
    ),
    "write behind": (Fault(f"{_RIGHT} out[size(*p)] = 1; return 0;"), Status.WRONG_RESULT, "behind the output"),
    "write in front": (Fault(f"{_RIGHT} out[-1] = 1; return 0;"), Status.WRONG_RESULT, "in front of the output"),
    "write behind the workspace": (
        Fault(f"{_RIGHT} workspace[100] = 1; return 0;", workspace="100"),
        Status.WRONG_RESULT,
        "1 bytes behind the workspace",
    ),
    "error code": (Fault("return 7;"), Status.LAUNCH_ERROR, "the kernel returned 7"),
    "error code when timed": (Fault(time="return 8;"), Status.LAUNCH_ERROR, "the kernel returned 8"),
    "unsupported": (Fault(unsupported='"no such stride"'), Status.UNSUPPORTED, "no such stride"),
    "absurd workspace": (Fault(workspace="INT64_MAX"), Status.LAUNCH_ERROR, "workspace"),
    "workspace of a petabyte": (
        Fault(workspace="INT64_C(1) << 50"),
        Status.LAUNCH_ERROR,
        "no 1125899907 MB of workspace",
    ),
    "negative workspace": (Fault(workspace="-5"), Status.LAUNCH_ERROR, "requests -5 bytes of workspace"),
    "other ABI": (Fault(abi=1), Status.LAUNCH_ERROR, "ABI version 1"),
    "other operands": (Fault(operands=5), Status.LAUNCH_ERROR, "takes 5 pointers"),
    "does not compile": (Fault("return undeclared_name;"), Status.COMPILE_ERROR, "undeclared_name"),
    "does not load": (Fault("extern int missing(); return missing();"), Status.LAUNCH_ERROR, "undefined symbol"),
    "wrong when timed": (
        Fault(time=f"convolve(*p, a, b, out); out[7] += 0.5F; {CLAIM}"),
        Status.NONDETERMINISTIC,
        "1 of 512 outputs differ between two runs, which is a race; 1 of 512 outputs wrong, the first at 7",
    ),
    "another bit when timed": (
        Fault(time=f"convolve(*p, a, b, out); reinterpret_cast<uint32_t*>(out)[9] ^= 1; {CLAIM}"),
        Status.NONDETERMINISTIC,
        "1 of 512 outputs differ between two runs, which is a race",
    ),
    "another bit in the second run alone": (
        Fault(
            # After a pause in the first run it seems slow enough to be timed at once: that is then the second run.
            f"{_RIGHT} reinterpret_cast<uint32_t*>(out)[9] ^= runs++ == 1; return 0;",
            time=f"{_RIGHT} reinterpret_cast<uint32_t*>(out)[9] ^= runs++ == 1; {CLAIM}",
            helpers="static int runs = 0;",
        ),
        Status.NONDETERMINISTIC,
        "1 of 512 outputs differ between two runs, which is a race",
    ),
    "write behind when timed": (
        Fault(time=f"out[size(*p)] = 1; {CLAIM}"),
        Status.WRONG_RESULT,
        "4 bytes behind the output",
    ),
    "garbage on stdout": (
        Fault(f'for (int i = 0; i < 20000; ++i) puts("{{\\"id\\": 0}}"); fflush(stdout); {_RIGHT} return 0;'),
        Status.OK,
        "",
    ),
}


class FaultyDevice(HostDevice):
    """The host, with the first kernels of its pool replaced by these; all others are right."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__()
        self.kernels: tuple[ConvKernel, ...] = conv_pool(Direction.FORWARD, self.arch)[: len(faults)]
        self.names = tuple(full_name(kernel) for kernel in self.kernels)
        self._faults = dict(zip(self.kernels, faults, strict=True))

    def emit(self, kernel: Any) -> str:
        """Source of the kernel's fault, with its name: equal sources would be measured once."""
        return f"// {full_name(kernel)}\n{self._faults.get(kernel, GOOD).source}"

    def cache_salt(self) -> bytes:
        """Return nothing, as only the source matters."""
        return b"faults"

    def compile_command(self, kernel: Any, source: Path, library: Path) -> list[str]:
        """The fastest compiler options."""
        flags = ("-shared", "-fPIC", "-O1", "-w")
        return [*self._compiler.command, *flags, "-o", str(library), str(source)]
