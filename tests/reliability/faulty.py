"""What the suite of faults gives to commands: a clock that jumps, compressed bombs, names of variables."""

from __future__ import annotations

import gzip
import io
import zipfile
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Replaces the clock of the day by one that jumps at every tenth reading or so, by up to thirty years.
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static unsigned seed; static long ahead;
static long jump(void) {
  if (!seed) seed = atoi(getenv("CLOCK_SEED")) | 1;
  if (rand_r(&seed) % 10 == 0)
    ahead = (rand_r(&seed) % 2 ? 1 : -1) * (rand_r(&seed) % (rand_r(&seed) % 2 ? 5 : 946080000));
  return ahead;
}
int clock_gettime(clockid_t id, struct timespec *at) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int code = real(id, at);
  if (id == CLOCK_REALTIME) at->tv_sec += jump();
  return code;
}
time_t time(time_t *to) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  if (to) *to = at.tv_sec;
  return at.tv_sec;
}
int gettimeofday(struct timeval *at, void *zone) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return 0;
}
"""

VARIABLES = (
    *("CKH_CACHE_DIR", "CKH_DATA_DIR", "CKH_MODELS", "CKH_DEBUG", "CKH_QUICK", "CKH_RANK_BACKEND", "CKH_HIP_LIBRARY"),
    *("CKH_EMU_MOST", "CKH_EMU_RACES", "CKH_EMU_REACHED", "CKH_EMU_MEMORY", "CKH_EMU_CUS", "CKH_NONE"),
    *("COLUMNS", "NO_COLOR", "FORCE_COLOR", "XDG_CACHE_HOME", "XDG_DATA_HOME", "CK_TILE_INCLUDE", "HIPCC", "ROCM_PATH"),
    *("CXX", "CC", "TMPDIR", "HOME", "PATH", "LANG", "LC_ALL", "TERM", "PYTHONIOENCODING", "ROCR_VISIBLE_DEVICES"),
)
NONSENSE = (
    *("", "0", "-1", "x", "nan", "9" * 400, "/", "/dev/null", "/proc/self", "\udcff", ":", "a\nb", "~nobody9", "../.."),
    *("a" * 5000, "g++ '-O2", '"'),
)
_GIB = 1 << 30


@cache
def _zeros(head: bytes, unit: bytes = b"\0" * 65536, size: int = _GIB // 4) -> bytes:
    made = io.BytesIO()
    with gzip.GzipFile(fileobj=made, mode="wb", compresslevel=6) as file:
        file.write(head)
        block = unit * (1 << 20 // len(unit) or 1)
        for _ in range(size // len(block)):
            file.write(block)
    return made.getvalue()


def _zipped(name: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, b"0" * (256 << 20))
    return made.getvalue()


_AMD = b"kernel,problem_idx,N,C,K,G,Di,Hi,Wi,Z,Y,X,stride_d,stride_h,stride_w\n"
_BENCH = ("--device", "host", "--kernels", "sample:1", "--out", "made/r")
BOMBS: tuple[tuple[tuple[str, ...], str, Callable[[], bytes]], ...] = (
    (("convert", "b.csv.gz", "--arch", "gfx950", "--out", "made/x.parquet"), "b.csv.gz", lambda: _zeros(_AMD)),
    (("convert", "b.csv", "--arch", "gfx950", "--out", "made/x.parquet"), "b.csv", lambda: _zeros(_AMD)),
    (("convert", "b.jsonl.gz", "--out", "made/x.parquet"), "b.jsonl.gz", lambda: _zeros(b'{"type":"run","x":"')),
    (("shapes", "b.log.gz"), "b.log.gz", lambda: _zeros(b"MIOpenDriver conv ", b"MIOpenDriver conv -n " * 3000)),
    (("shapes", "config.json.gz"), "config.json.gz", lambda: _zeros(b'{"model_type":"')),
    (("shapes", "b.json.gz"), "b.json.gz", lambda: _zeros(b'{"traceEvents":[', b"[" * 65536)),
    (("shapes", "b.onnx.gz"), "b.onnx.gz", lambda: _zeros(b"\x08\x07")),
    (("shapes", "b.zip"), "b.zip", lambda: _zipped("config.json")),
    (("report", "b.parquet", "--out", "made/r.html"), "b.parquet", lambda: _zeros(b"PAR1")),
    (("bench", "--problems", "b.txt.gz", *_BENCH), "b.txt.gz", lambda: _zeros(b"")),
    (("bench", "--problems", "b.txt", *_BENCH), "b.txt", lambda: b"x" * (80 << 20)),
    (("explain", "k", "--code-object", "b.co"), "b.co", lambda: _zeros(b"\x7fELF")),
    (("explain", "k", "--code-object", "b.co"), "b.co", lambda: b"\x7fELF\2\1\1" + bytes(100 << 20)),
    (("validate", "selection", "b.json"), "b.json", lambda: b'{"a":' * 5_000_000),
    (("predict", "--n", "1", "--model", "m"), "m/feature_spec.json", lambda: b'{"a":"' + b"x" * (80 << 20)),
    (("predict", "--problems", "b.csv"), "b.csv", lambda: b"op,count,layers,m,n,k\n" + b"," * (80 << 20)),
)
