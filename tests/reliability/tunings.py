"""Interrupts each step of a tuning, or fills the disk at its beginning, and repeats the command.

    python tests/reliability/tunings.py [KIND...] [--count 100] [--seed 0]

Trials take the steps in turn. The repeated command must finish with the result of an undisturbed one, and with all that
was measured before.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))

from ckh.data.journal import read_journal
from ckh.errors import ExitCode
from tests.reliability import faults

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from tests.reliability.faults import Base, Trial

# Work of the command itself, and the step before it.
_OWN = {"held-out": "train", "page": "export"}
PLACES = ("shapes", "predict", "bench", "convert", "train", "held-out", "export", "page")
# What a folder has when all of it is done, in the order of the places.
_DONE = ("shapes", "before", "bench", "convert", "train", None, "export", None)
_MADE = (
    ("shapes.csv", "shapes.json"),
    ("before.json",),
    ("run",),
    ("measured.parquet",),
    ("model",),
    ("kernels.json",),
    ("export",),
    ("summary.md",),
)
_KERNELS = (
    "gemm_universal_fp32_rcr_basic_v1_cshuffle_intrawave_True_True_True_False_192x128x128_4x1x1_16x16x16\n"
    "gemm_universal_fp32_rcr_compv6_cshuffle_intrawave_True_True_True_False_256x64x64_1x4x1_16x16x16\n"
)
_SCRIPT = """
from ckh.tune import steps
steps.PLAN = ("--kernels", "gemms.txt", "--samples", "3")
"""
_ROOM = (0, 0, 1, 2, 3, 4, 8, 16, 64)  # blocks of 4 kB
TUNING = faults.Command(
    (
        *("tune", "config.json", "--out", "made/tuned", "--arch", "host", "--tokens", "4,5", "--budget", "10m"),
        *("--to", "amd-registry"),
    ),
    ("made/tuned",),
    (),
    kept=False,
    script="ckh-tune",
)


class Tunings:
    """A finished tuning, to which trials return."""

    def __init__(self, folder: Path, base: Base, chance: Random) -> None:
        self.base, self.seconds = base, dict.fromkeys(PLACES, 0.0)
        (base.folder / "gemms.txt").write_text(_KERNELS, encoding="utf-8")
        own = (folder / "ckh").read_text(encoding="utf-8")
        (folder / TUNING.script).write_text(own.replace("from ckh.entry", f"{_SCRIPT}from ckh.entry"), encoding="utf-8")
        with faults.trial(folder, base, TUNING, chance, "tune") as one:
            done = one.run()
            assert done.code == ExitCode.OK, done
            shutil.copytree(one.folder / "cache/kernels", base.folder / "cache/kernels", dirs_exist_ok=True)
            self.whole = folder / "tuned"
            shutil.copytree(one.folder / "made/tuned", self.whole)
        with faults.trial(folder, base, TUNING, chance, "tune") as one:
            self.rewind(one, "shapes", chance, keep=0.0)
            process, seen = one.start(), {}
            while process.poll() is None:
                for place in PLACES:
                    if place not in seen and begun(one, place) is not None:
                        seen[place] = time.monotonic()
                time.sleep(0.01)
            ends = [*list(seen.values())[1:], time.monotonic()]
            assert one.ended(process).code == ExitCode.OK
            self.seconds |= {place: end - at for (place, at), end in zip(seen.items(), ends, strict=True)}
        with faults.trial(folder, base, TUNING, chance, "tune") as one:  # as it is when it is continued
            self.rewind(one, "convert", chance, keep=0.0)
            assert one.run().code == ExitCode.OK
            shutil.rmtree(self.whole)
            shutil.copytree(one.folder / "made/tuned", self.whole)
            self.expected = one.made()
        self.pairs = {(row.problem, row.kernel) for row in read_journal(self.whole / "run").final_rows()}

    def rewind(self, one: Trial, place: str, chance: Random, keep: float = 0.5) -> None:
        """The finished tuning, of which a step and those after it are to be done; some results of theirs are left."""
        number, folder = PLACES.index(place), one.folder / "made/tuned"
        if place == "shapes":
            return
        shutil.copytree(self.whole, folder, dirs_exist_ok=True)
        document = json.loads((folder / "tune.json").read_bytes())
        document["done"] = [name for name in _DONE[:number] if name]
        (folder / "tune.json").write_text(json.dumps(document, indent=2) + "\n", encoding="ascii")
        for names in _MADE[number:]:
            if chance.random() >= keep or names == ("run",):
                for name in names:
                    shutil.rmtree(folder / name, ignore_errors=True)
                    (folder / name).unlink(missing_ok=True)

    def check(self, one: Trial, place: str, rows: list[bytes]) -> None:
        """The same command finishes, with the result of an undisturbed one and all that was measured."""
        done = one.run()
        if done.code != ExitCode.OK:
            one.lose(f"{place}: the repeated command ended with {done.code}: {done.err[-600:]}")
            return
        journal = one.folder / "made/tuned/run/journal.jsonl"
        now = journal.read_bytes().splitlines()
        if missing := set(rows) - set(now):
            one.lose(f"{place}: {len(missing)} lines of the journal are lost")
        pairs = [(row.problem, row.kernel) for row in read_journal(journal.parent).final_rows()]
        if set(pairs) != self.pairs or len(pairs) != len(self.pairs):
            one.lose(f"{place}: {len(pairs)} pairs of {len(self.pairs)}")
        made, expected = one.made(), self.expected
        if PLACES.index(place) <= PLACES.index("bench"):  # other times: only their names, and what has none
            timeless = {f"made/tuned/{name}" for name in ("shapes.csv", "shapes.json", "before.json", "tune.json")}
            made, expected = (
                {name: text if name in timeless else "" for name, text in of.items()} for of in (made, expected)
            )
        if made != expected:
            differing = sorted(name for name in {*made, *expected} if made.get(name) != expected.get(name))
            one.lose(f"{place}: other content: {differing}")
        if left := one.left():
            one.lose(f"{place}: left: {left}")


def begun(one: Trial, place: str) -> int | None:
    """The process of a step while it runs, or 0 where the command itself is at work; None: it has not begun."""
    if place in _OWN:
        with contextlib.suppress(OSError, ValueError):
            done = json.loads((one.folder / "made/tuned/tune.json").read_bytes())["done"]
            return 0 if _OWN[place] in done else None
        return None
    mark = f"{faults.MARK}={one.mark}".encode()
    return next(
        (
            pid
            for pid in faults.processes()
            if f" -m ckh {place} " in faults.command_of(pid) and mark in faults.environ_of(pid)
        ),
        None,
    )


def _after(process: subprocess.Popen[str], one: Trial, place: str, delay: float) -> int:
    """Wait until some time after a step has begun; returns its process, or that of the command."""
    while process.poll() is None:
        if (pid := begun(one, place)) is not None:
            time.sleep(delay)
            return pid or process.pid
        time.sleep(0.005)
    return process.pid


def _rows(one: Trial) -> list[bytes]:
    """Complete lines of the journal."""
    path = one.folder / "made/tuned/run/journal.jsonl"
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


def killed(number: signal.Signals, folder: Path, tunings: Tunings, place: str, chance: Random) -> Trial:
    """A signal to the command, or to the process of a step."""
    with faults.trial(folder, tunings.base, TUNING, chance, "tune") as one:
        tunings.rewind(one, place, chance)
        process = one.start()
        step = _after(process, one, place, chance.uniform(0, tunings.seconds[place]))
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice((step, process.pid)), number)
        one.ended(process, signals=(number,))
        rows = _rows(one)
        shutil.rmtree(one.folder / "tmp")  # what killed processes leave there is the system's to remove
        (one.folder / "tmp").mkdir()
        tunings.check(one, place, rows)
    return one


def full_disk(folder: Path, tunings: Tunings, place: str, chance: Random) -> Trial:
    """The disk is full when a step begins, or nearly."""
    size = sum(map(faults.size_of, (tunings.base.folder, tunings.whole))) * 2 + 64 * faults.MIB
    with faults.trial(folder, tunings.base, TUNING, chance, "tune", mount=size) as one:
        tunings.rewind(one, place, chance)
        room, filler = chance.choice(_ROOM), one.folder / "filler"
        process = one.start()
        _after(process, one, place, 0.0)
        with filler.open("wb", 0) as file, contextlib.suppress(OSError):
            while os.statvfs(one.folder).f_bavail > room:
                file.write(bytes(4096 * max(1, (os.statvfs(one.folder).f_bavail - room) // 2)))
        one.ended(process)
        rows = _rows(one)
        if hidden := [path for path in one.left() if "tmp" not in Path(path).parent.name]:
            one.lose(f"{place}: left on a full disk of {room} blocks: {hidden}")
        filler.unlink()
        tunings.check(one, place, rows)
    return one


KINDS: dict[str, Callable[[Path, Tunings, str, Random], Trial]] = {
    **{f"tune-{number.name}": partial(killed, number) for number in (signal.SIGKILL, signal.SIGTERM)},
    "tune-full-disk": full_disk,
}


def main() -> int:
    """Run the script."""
    args, has_lost = faults.parser().parse_args(), False
    with faults.begun() as (folder, base):
        tunings = Tunings(folder, base, Random(0))
        for kind in args.kinds or KINDS:

            def one_of(number: int, chance: Random, kind: str = kind) -> Trial:
                return KINDS[kind](folder, tunings, PLACES[(number + args.seed) % len(PLACES)], chance)

            has_lost |= faults.tried(kind, args, one_of)
    return int(has_lost)


if __name__ == "__main__":
    sys.exit(main())
