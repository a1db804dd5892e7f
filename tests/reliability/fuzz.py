"""Gives readers damaged inputs, one after the other in a separate process with limits of time and memory.

    python tests/reliability/fuzz.py READER... [--count 100000] [--seed 0] [--keep FOLDER]

An input must be read, or refused with one of ckh's own errors. Anything else is a failure: another exception, a warning
of Python or NumPy, more than 5 s of CPU time, more than 1 GB of memory. Failures at different places are printed with
their tracebacks, their inputs are kept, and the exit code is 1.
"""

from __future__ import annotations

# ruff: noqa: T201 - a script
import argparse
import contextlib
import io
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))

from ckh.errors import CkhError
from tests.reliability.mutation import Mutator
from tests.reliability.targets import TARGETS

if TYPE_CHECKING:
    from tests.reliability.targets import Reader, Target

SECONDS = 5
BYTES = 1 << 30


class TooSlowError(BaseException):
    """An input took too long. No reader catches it."""


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("readers", nargs="+", choices=sorted(TARGETS))
    parser.add_argument("--count", type=int, default=100_000, help="inputs of each reader")
    parser.add_argument("--short", action="store_true", help="of slow readers a share of the count")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path())
    args = parser.parse_args()
    has_failed = False
    for target in map(TARGETS.__getitem__, args.readers):
        count = round(args.count * target.share) if args.short else args.count
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            accepted, failures = _try_all(target, target.open(Path(folder)), count, args.seed, args.keep)
        seconds = time.perf_counter() - start
        print(f"{target.name}: {count} inputs, {accepted} accepted, {len(failures)} failures, {seconds:.0f} s")
        has_failed |= bool(failures)
    return int(has_failed)


def _try_all(target: Target, reader: Reader, count: int, seed: int, keep: Path) -> tuple[int, set[str]]:
    """Number of accepted inputs, and the places of failures."""
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))  # of the last reader
    mutator = Mutator(target.samples(), seed)
    for sample in target.samples():
        _quietly(reader, sample)  # the undamaged sample must be read
    _limit()
    accepted, failures = 0, set[str]()
    for number in range(count):
        content = target.make(mutator)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            _quietly(reader, content)
            accepted += 1
        except CkhError:
            pass
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - each is a failure
            signal.setitimer(signal.ITIMER_PROF, 0)
            place = _place(error)
            if place not in failures:
                file = keep / f"{target.name}-{seed}-{number}.bin"
                file.write_bytes(content)
                print(f"{target.name}: input {number} of seed {seed}, kept as {file}:\n{traceback.format_exc()}")
            failures.add(place)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    return accepted, failures


def _place(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if f"{os.sep}ckh{os.sep}" in frame.filename]
    last = frames[-1] if frames else None
    return f"{type(error).__name__} {last and (last.filename, last.lineno)}"


def _quietly(reader: Reader, content: bytes) -> None:
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("error")
        reader(content)


def _limit() -> None:
    def stop(_signal: int, _frame: object) -> None:
        raise TooSlowError

    signal.signal(signal.SIGPROF, stop)
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    now = int(fields["VmData"].split()[0]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (now + BYTES, resource.RLIM_INFINITY))


if __name__ == "__main__":
    sys.exit(main())
