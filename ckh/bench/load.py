"""`python -m ckh.bench.load LIBRARY`: loads a kernel's library as a worker does, and says on stderr why it cannot."""

from __future__ import annotations

import ctypes
import sys

from ckh.bench.hip_runtime import preload


def main() -> None:
    """Load it; exit code 1 if that fails."""
    preload()
    try:
        ctypes.CDLL(sys.argv[1])
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
