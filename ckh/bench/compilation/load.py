"""`python -m ckh.bench.compilation.load LIBRARY`: load a kernel library as a worker does, or report why it fails."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

from ckh.bench.isolated.hip_runtime import RUNTIME, preload


def main() -> None:
    """Load the library; exit code 1 if that fails."""
    preload()
    try:
        ctypes.CDLL(sys.argv[1])
    except OSError as error:
        sys.exit(str(error))
    if len(runtimes := _runtimes()) > 1:
        sys.exit(f"it loads another HIP runtime than workers use: {' and '.join(runtimes)}")


def _runtimes() -> list[str]:
    """HIP runtimes loaded by this process; memory of one is invalid in another."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return sorted(set(re.findall(rf"/\S*{re.escape(RUNTIME)}\S*", maps)))


if __name__ == "__main__":
    main()
