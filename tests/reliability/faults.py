"""Runs commands while something goes wrong with the machine, and repeats each without the fault.

    python tests/reliability/faults.py [KIND...] [--count 100] [--seed 0] [--commands NAME...]

Each trial has a folder of its own for outputs, caches and temporary files. A command may end with a documented exit
code and one error. No traceback, no process and no temporary file may be left; files that were there are the old or
the new ones; and the repeated command writes what an undisturbed one writes. A table of kinds, trials and losses is
printed (benchmarks/faults.md), and the exit code is 1 if anything was lost.
"""

from __future__ import annotations

# ruff: noqa: E402, S607, T201 - a script; mount and umount are the system's
import argparse
import contextlib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from ckh.data.dataset import read_dataset
from ckh.data.journal import read_journal
from ckh.errors import ExitCode
from ckh.schema import MEASURED
from tests.reliability.faulty import BOMBS, CLOCK, NONSENSE, VARIABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

MIB = 1 << 20
MARK = "CKH_FAULT_SUITE"
_LIMIT_S = 240
_GONE_S = 10.0
_HIDDEN = re.compile(r"\..*\.[0-9a-f]{16}")
_CONFIG = (
    '{"model_type":"llama","hidden_size":32,"intermediate_size":64,"num_hidden_layers":1,"num_attention_heads":2,'
    '"num_key_value_heads":1,"vocab_size":64,"torch_dtype":"float32"}'
)
_CONV = "conv_forward_fp32_nhwgc_2d_n1_c8_k8_g1_i{0}x{0}_f3x3_s1x1_p1x1_d1x1\n"
_MODEL = str(ROOT / "models" / "grouped_conv_forward_bf16_gfx950")


@dataclass(frozen=True)
class Command:
    """A command line, what it writes, and the arguments with which it is repeated."""

    args: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    again: tuple[str, ...] = ("--force",)
    kept: bool = True  # whether what it writes is the same for the same inputs
    script: str = "ckh"  # that it starts with, in the folder of the base


COMMANDS = {
    "shapes": Command(("shapes", "config.json", "--out", "made/shapes.csv"), ("made/shapes.csv",)),
    "convert": Command(("convert", "amd.csv", "--arch", "gfx950", "--out", "made/d.parquet"), ("made/d.parquet",)),
    "train": Command(
        ("train", "data.parquet", "--out", "made/model", "--trees", "3", "--folds", "0", "--jobs", "1"),
        ("made/model",),
    ),
    "evaluate": Command(("evaluate", "--model", _MODEL, "--data", "data.parquet", "--with-trained"), again=()),
    "predict": Command(("predict", "--n", "1", "--c", "64", "--k", "64", "--hi", "14", "--arch", "gfx942"), again=()),
    "search": Command(("search", "--n", "1", "--c", "64", "--hi", "14", "--arch", "gfx942"), again=()),
    "export": Command(("export", "--model", _MODEL, "--to", "c", "--out", "made/c"), ("made/c",)),
    "report": Command(
        ("report", "data.parquet", "--out", "made/r.html", "--plots", "made/plots"), ("made/r.html", "made/plots")
    ),
    "golden": Command(
        ("validate", "selection", "made/golden.json", "--create", "--model", _MODEL, "--problems", "resnet50"),
        ("made/golden.json",),
    ),
    "bench": Command(
        (
            *("bench", "--device", "host", "--problems", "problems.txt", "--kernels", "kernels.txt"),
            *("--out", "made/run", "--samples", "3"),
        ),
        ("made/run",),
        (),
        kept=False,
    ),
    "tune": Command(
        ("tune", "config.json", "--out", "made/tuned", "--arch", "host", "--tokens", "4", "--budget", "8s"),
        ("made/tuned",),
        (),
        kept=False,
    ),
}
QUICK = tuple(name for name in COMMANDS if name not in {"bench", "tune"})


class Base:
    """Inputs, compiled kernels and results without faults, which all trials copy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "base"
        self.folder.mkdir()
        (self.folder / "config.json").write_text(_CONFIG, encoding="utf-8")
        (self.folder / "problems.txt").write_text("".join(map(_CONV.format, (7, 9))), encoding="utf-8")
        data = read_dataset(ROOT / "data" / "amd-gfx950-conv-20kernels.parquet")
        data.select(data.problem_ids < 8).write(self.folder / "data.parquet")
        text = (ROOT / "tests" / "amd_files" / "training_data_forward_bf16_20.csv").read_text(encoding="utf-8")
        (self.folder / "amd.csv").write_text("\n".join(text.splitlines()[:200]) + "\n", encoding="utf-8")
        from tests.reliability.kills import KERNELS

        (self.folder / "kernels.txt").write_text("\n".join(KERNELS[:2]), encoding="utf-8")
        self.seconds: dict[str, float] = {}
        self.expected: dict[str, Any] = {}

    def measure(self, names: Iterable[str]) -> None:
        """Run the commands undisturbed; the cache of kernels is kept."""
        for name in names:
            with trial(self.folder.parent, self, COMMANDS[name], random.Random(0), name) as first:
                start = time.monotonic()
                done = first.run()
                assert done.code == ExitCode.OK, done
                self.seconds[name] = time.monotonic() - start
                self.expected[name] = first.made() | {"stdout": done.out}
                if not COMMANDS[name].kept:  # once more, without compiling
                    shutil.copytree(first.folder / "cache", self.folder / "cache", dirs_exist_ok=True)
            if not COMMANDS[name].kept:
                with trial(self.folder.parent, self, COMMANDS[name], random.Random(0), name) as first:
                    start = time.monotonic()
                    assert first.run().code == ExitCode.OK
                    self.seconds[name] = time.monotonic() - start


@dataclass(slots=True)
class Done:
    """An ended process."""

    code: int
    out: str
    err: str


@dataclass(slots=True)
class Trial:
    """A command in a folder of its own."""

    folder: Path
    base: Base
    command: Command
    random: random.Random
    name: str
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    lost: list[str] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)
    variables: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """Folders of its own."""
        names = {"CKH_CACHE_DIR": "cache", "CKH_DATA_DIR": "user", "TMPDIR": "tmp", "HOME": "home"}
        folders = {key: str(self.folder / name) for key, name in names.items()}
        return {**os.environ, **folders, MARK: self.mark, **self.variables}

    def start(self, args: Sequence[str] = (), **options: Any) -> subprocess.Popen[str]:
        """Start the command."""
        options["env"] = self.environment() | options.pop("more", {})
        return subprocess.Popen(
            [sys.executable, str(self.base.folder.parent / self.command.script), *self.command.args, *args],
            cwd=options.pop("cwd", self.folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            **options,
        )

    def ended(self, process: subprocess.Popen[str], *, signals: Sequence[int] = ()) -> Done:
        """Wait for a command, and check how it ends."""
        try:
            out, err = process.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            self.lose(f"did not end in {_LIMIT_S} s")
        done = Done(process.returncode, out, err)
        self.codes[done.code] += 1
        documented = {*ExitCode} - {ExitCode.INTERNAL, ExitCode.GATE_FAILED} | {-number for number in signals}
        if done.code not in documented:
            self.lose(f"exit code {done.code}: {err[-600:]}")
        if "Traceback" in err and signal.SIGINT not in signals:
            self.lose(f"traceback: {err[-900:]}")
        errors = sum(line.startswith("error: ") for line in err.splitlines())
        if done.code > 0 and done.code != ExitCode.INTERRUPTED and errors not in {1, 1 + (self.name == "tune")}:
            self.lose(f"{errors} errors, exit code {done.code}: {err[-600:]!r}")
        self.require_gone()
        return done

    def run(self, args: Sequence[str] = (), **options: Any) -> Done:
        """Run the command to its end."""
        return self.ended(self.start(args, **options))

    def lose(self, what: str) -> None:
        """Record a loss."""
        self.lost.append(f"{self.name}: {what}")

    def require_gone(self) -> None:
        """No process of the command is left."""
        deadline, mark = time.monotonic() + _GONE_S, f"{MARK}={self.mark}".encode()
        while left := [pid for pid in processes() if mark in environ_of(pid)]:
            if time.monotonic() > deadline:
                self.lose(f"processes left: {[command_of(pid) for pid in left]}")
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                return
            time.sleep(0.01)

    def made(self) -> dict[str, str]:
        """Digests of what was made."""
        result = {}
        for name in self.command.outputs:
            place = self.folder / name
            for path in [place] if place.is_file() else sorted(place.rglob("*")):
                if path.is_file():
                    result[str(path.relative_to(self.folder))] = sha256(path.read_bytes()).hexdigest()
        return result

    def left(self) -> list[str]:
        """Temporary files in the folders of outputs, caches and temporary files."""
        hidden = (path for name in ("made", "cache", "user") for path in (self.folder / name).rglob(".*"))
        return [
            *(str(path) for path in hidden if _HIDDEN.fullmatch(path.name.removesuffix(".old"))),
            *map(str, (self.folder / "tmp").glob("*")),
        ]

    def again(self, *, what: str = "") -> None:
        """Repeat the command without the fault: it must write what it should, and leave nothing else."""
        there = any((self.folder / name).exists() for name in self.command.outputs)
        args: Sequence[str] = self.command.again if there else ()
        if self.name == "bench" and (self.folder / "made/run/journal.jsonl").exists():
            args = ("--resume",)
            process = self.start_args(("bench", "--resume", "--out", "made/run"))
        else:
            process = self.start(args)
        done = self.ended(process)
        if done.code != ExitCode.OK:
            self.lose(f"the repeated command ended with {done.code}{what}: {done.err[-600:]}")
            return
        if self.command.kept:
            made, expected = self.made() | {"stdout": done.out}, self.base.expected[self.name]
            if made != expected:
                differing = [name for name in {*made, *expected} if made.get(name) != expected.get(name)]
                self.lose(f"other content{what}: {differing}")
        elif self.name == "bench":
            final = read_journal(self.folder / "made/run").final_rows()
            if failed := [f"{row.status}: {row.message}" for row in final if row.status not in MEASURED]:
                self.lose(f"not measured{what}: {failed}")
            rows = Counter((row.problem, row.kernel) for row in final)
            if len(rows) != 4 or set(rows.values()) != {1}:
                self.lose(f"{len(rows)} pairs of 4{what}")
        if left := self.left():
            self.lose(f"left: {left}{what}")

    def start_args(self, args: Sequence[str]) -> subprocess.Popen[str]:
        """Start another command line."""
        other = Trial(self.folder, self.base, Command(tuple(args)), self.random, self.name, self.mark)
        other.variables |= self.variables
        return other.start()


@contextlib.contextmanager
def trial(
    folder: Path, base: Base, command: Command, chance: random.Random, name: str, *, mount: int = 0
) -> Iterator[Trial]:
    """A trial's folder; with `mount` on a file system of so many bytes."""
    place = Path(tempfile.mkdtemp(dir=folder))
    if mount:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mount}", "tmpfs", str(place)], check=True)
    try:
        shutil.copytree(base.folder, place, dirs_exist_ok=True)
        for name_ in ("tmp", "home", "made", "cache", "user"):
            (place / name_).mkdir(exist_ok=True)
        yield Trial(place, base, command, chance, name)
    finally:
        if mount:
            subprocess.run(["umount", "-l", str(place)], check=True)
        shutil.rmtree(place, ignore_errors=True)


def processes() -> list[int]:
    return [int(place.name) for place in Path("/proc").iterdir() if place.name.isdecimal()]


def environ_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    return ""


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def full_disk(folder: Path, base: Base, name: str, chance: random.Random) -> Trial:
    """Everything on a file system with little room left: none, or up to what the command needs."""
    with trial(folder, base, COMMANDS[name], chance, name, mount=size_of(base.folder) * 2 + 64 * MIB) as one:
        filler = one.folder / "filler"
        room = chance.choice((0, 1, 2, 3, 4, 8, 16, 64, 256, 1024))
        free = os.statvfs(one.folder).f_bavail
        with filler.open("wb") as file:
            for _ in range(max(0, free - room)):
                file.write(b"\0" * 4096)
        one.run()
        hidden = [path for path in one.left() if "tmp" not in Path(path).parent.name]
        if hidden:
            one.lose(f"left on a full disk of {room} blocks: {hidden}")
        filler.unlink()
        one.again(what=f" (after {room} blocks)")
    return one


def _while_running(one: Trial, fault: Callable[[], None], chance: random.Random, signals: Sequence[int] = ()) -> Done:
    process = one.start()
    moment = chance.uniform(0, one.base.seconds[one.name])
    timer = threading.Timer(moment, fault)
    timer.start()
    done = one.ended(process, signals=signals)
    timer.join()
    return done


def read_only(folder: Path, base: Base, name: str, chance: random.Random) -> Trial:
    """The file system becomes read-only, before or while the command runs."""
    with trial(folder, base, COMMANDS[name], chance, name, mount=size_of(base.folder) * 2 + 64 * MIB) as one:

        def remount(how: str = "ro") -> None:
            for _ in range(300):
                command = ["mount", "-o", f"remount,{how}", str(one.folder)]
                if not subprocess.run(command, capture_output=True, check=False).returncode:
                    return
                time.sleep(0.01)

        if chance.random() < 0.3:
            remount()
            one.run()
        else:
            _while_running(one, remount, chance)
        remount("rw")
        shutil.rmtree(one.folder / "tmp")
        (one.folder / "tmp").mkdir()
        one.again()
    return one


def vanishing(folder: Path, base: Base, name: str, chance: random.Random) -> Trial:
    """A folder is removed while the command runs: of outputs, caches or temporary files, or the current one."""
    with trial(folder, base, COMMANDS[name], chance, name) as one:
        which = chance.choice(("made", "cache", "tmp", "user"))
        _while_running(one, partial(shutil.rmtree, one.folder / which, ignore_errors=True), chance)
        shutil.rmtree(one.folder / "made", ignore_errors=True)
        shutil.rmtree(one.folder / "tmp", ignore_errors=True)
        (one.folder / "tmp").mkdir()
        one.again(what=f" (without {which})")
    return one


def signalled(number: signal.Signals, folder: Path, base: Base, name: str, chance: random.Random) -> Trial:
    """A signal at a random time, up to three times, and after it the command again."""
    with trial(folder, base, COMMANDS[name], chance, name) as one:
        for _ in range(chance.choice((1, 1, 2, 3))):
            has_begun = any((one.folder / output).exists() for output in one.command.outputs)
            if has_begun and name == "bench":
                break
            process = one.start(one.command.again if has_begun else ())
            time.sleep(chance.uniform(0, base.seconds[name]))
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)
            done = one.ended(process, signals=(number,))
            if done.code == ExitCode.INTERRUPTED and (left := one.left()):
                one.lose(f"left by {number.name}: {left}")
        shutil.rmtree(one.folder / "tmp")  # what killed processes leave there is the system's to remove
        (one.folder / "tmp").mkdir()
        one.again()
    return one


def stopped(folder: Path, base: Base, name: str, chance: random.Random) -> Trial:
    """The process, or all its processes, stand still for a second."""
    with trial(folder, base, COMMANDS[name], chance, name) as one:
        process = one.start()
        kill = chance.choice((os.kill, os.killpg))
        time.sleep(chance.uniform(0, base.seconds[name]))
        for number in (signal.SIGSTOP, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError):
                kill(process.pid, number)
            time.sleep(1)
        if one.ended(process).code != ExitCode.OK:
            one.lose("did not go on")
        one.again()
    return one


def little_memory(folder: Path, base: Base, name: str, chance: random.Random) -> Trial:
    """An address space of 512 MB, or less."""
    with trial(folder, base, COMMANDS[name], chance, name) as one:
        size = chance.choice((512, 512, 384, 256, 128)) * MIB
        done = one.run(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)))
        if left := one.left():
            one.lose(f"left with {size // MIB} MB: {left}")
        if done.code != ExitCode.OK and size == 512 * MIB:
            one.lose(f"needs more than 512 MB: {done.err[-300:]}")
        if done.code == ExitCode.OK and one.command.kept and one.made() | {"stdout": done.out} != base.expected[name]:
            one.lose(f"other content with {size // MIB} MB")
        one.again(what=f" (after {size // MIB} MB)")
    return one


def jumping_clock(folder: Path, base: Base, name: str, chance: random.Random) -> Trial:
    """The clock of the day jumps, by up to 30 years."""
    library = folder / "clock.so"
    if not library.exists():
        (folder / "clock.c").write_text(CLOCK, encoding="utf-8")
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(folder / "clock.c"), "-ldl"]
        subprocess.run(command, check=True)
    with trial(folder, base, COMMANDS[name], chance, name) as one:
        done = one.run(more={"LD_PRELOAD": str(library), "CLOCK_SEED": str(chance.randrange(1 << 30))})
        if done.code != ExitCode.OK:
            one.lose(f"exit code {done.code}: {done.err[-400:]}")
        one.again()
    return one


def together(folder: Path, base: Base, name: str, chance: random.Random) -> Trial:
    """Sixteen processes with one output, one cache and one folder of temporary files."""
    with trial(folder, base, COMMANDS[name], chance, name) as one:
        processes = [one.start() for _ in range(16)]
        ends = []
        for process in processes:
            out, err = process.communicate(timeout=_LIMIT_S)
            ends.append(Done(process.returncode, out, err))
        for done in ends:
            one.codes[done.code] += 1
            if done.code not in {ExitCode.OK, ExitCode.USAGE} or "Traceback" in done.err:
                one.lose(f"exit code {done.code}: {done.err[-600:]}")
        one.require_gone()
        for beside in (one.folder / "made").glob("plots/*-[0-9]*.*"):  # results of those that were not the first
            beside.unlink()
        if not any(done.code == ExitCode.OK for done in ends):
            one.lose("none of 16 ended well")
        if one.command.outputs and name not in {"bench", "tune"} and (left := one.left()):
            one.lose(f"left: {left}")
        one.again()
    return one


_PLACES = (
    *("a b", "new\nline", "-dash", "--force", "*?[a]", "'\"$(x)`", "é\u202e", "tab\there", "=1+1", "%s{0}", "x" * 255),
)


def strange_paths(folder: Path, base: Base, name: str, chance: random.Random) -> Trial:
    """Folders and outputs with strange and long names; of up to 4 kB."""
    place = chance.choice((*_PLACES, "deep"))
    with trial(folder, base, COMMANDS[name], chance, name) as one:
        deep = one.folder / (place if place != "deep" else "/".join(["d" * 200] * chance.choice((5, 15, 18, 19, 20))))
        try:
            deep.mkdir(parents=True)
        except OSError:
            return one
        for path in one.folder.glob("*.*"):
            if path.is_file():
                shutil.copy(path, deep)
        process = one.start(cwd=deep)
        done = one.ended(process)
        if done.code not in {ExitCode.OK, ExitCode.INPUT_OUTPUT} and place != "deep":
            one.lose(f"{place!r}: exit code {done.code}: {done.err[-400:]}")
        if re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", done.out + done.err):
            one.lose(f"{place!r}: control characters in {(done.out + done.err)!r}"[:500])
        command = [arg.replace("made/", f"./{place}/" if place != "deep" else f"{deep}/") for arg in one.command.args]
        shutil.rmtree(deep, ignore_errors=True)
        done = Trial(one.folder, base, Command(tuple(command)), chance, name, one.mark, one.lost, one.codes).run()
        if done.code not in {ExitCode.OK, ExitCode.INPUT_OUTPUT}:
            one.lose(f"out {place!r}: exit code {done.code}: {done.err[-400:]}")
    return one


def bombs(folder: Path, base: Base, name: str, chance: random.Random) -> Trial:
    """Small files that unpack to gigabytes, for every command that reads files; 2 GB of memory, 60 s of CPU."""
    del name
    args, file, content = chance.choice(BOMBS)
    with trial(folder, base, Command(args), chance, " ".join(args)[:60]) as one:
        (one.folder / file).parent.mkdir(exist_ok=True)
        (one.folder / file).write_bytes(content())

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_DATA, (2048 * MIB, 2048 * MIB))
            resource.setrlimit(resource.RLIMIT_CPU, (60, 60))

        done = one.run(preexec_fn=limit)
        if done.code not in {ExitCode.BAD_DATA, ExitCode.USAGE}:
            one.lose(f"exit code {done.code}: {done.err[-300:]}")
        if left := one.left():
            one.lose(f"left: {left}")
    return one


def foreign_cache(folder: Path, base: Base, name: str, chance: random.Random) -> Trial:
    """A cache that another user owns or can write to, or with links and files of another user."""
    with trial(folder, base, COMMANDS[name], chance, name) as one:
        first = one.run()
        cache, kind = one.folder / "cache", chance.choice(("owner", "everybody", "group", "link", "files", "folder"))
        if kind == "owner":
            os.chown(cache, 54321, 54321)
        elif kind == "everybody":
            cache.chmod(0o777)
        elif kind == "group":
            os.chown(cache, 0, 54321)
            cache.chmod(0o775)
        elif kind == "link":
            shutil.move(cache, one.folder / "elsewhere")
            one.folder.chmod(0o1777)
            cache.symlink_to(one.folder / "elsewhere")
            os.chown(cache, 54321, 54321, follow_symlinks=False)
        for path in cache.rglob("*") if kind in {"files", "folder"} else ():
            if path.is_dir() == (kind == "folder"):
                os.chown(path, 54321, 54321)
                if path.is_file():
                    path.write_bytes(b"evil")
        shutil.rmtree(one.folder / "made")
        (one.folder / "made").mkdir()
        done = one.run()
        if first.code or done.code not in {ExitCode.OK, ExitCode.BAD_DATA}:
            one.lose(f"{kind}: exit code {done.code}: {done.err[-400:]}")
        if not done.code and one.command.kept and one.made() | {"stdout": done.out} != base.expected[name]:
            one.lose(f"{kind}: other content")
    return one


def nonsense(folder: Path, base: Base, name: str, chance: random.Random) -> Trial:
    """Variables of the environment that ckh reads, with nonsense."""
    with trial(folder, base, COMMANDS[name], chance, name) as one:
        more = {chance.choice(VARIABLES): chance.choice(NONSENSE) for _ in range(chance.choice((1, 1, 2)))}
        one.run(more=more)
        if one.lost:
            one.lose(f"with {str(more)[:200]}")
        shutil.rmtree(one.folder / "made")
        (one.folder / "made").mkdir()
        one.again()
    return one


# What a compiler turns into, as sh statements that use `$out`; none: it is removed.
_EVIL = (
    None,
    "exit 1",
    "echo garbage > $out",
    "head -c 500 /dev/urandom > $out",
    "exec cat /dev/zero > $out",
    "kill -9 $$",
    "exec sleep 1000",
)


def evil_compiler(folder: Path, base: Base, name: str, chance: random.Random) -> Trial:
    """While a bench compiles, its compiler is removed, hangs, fills the disk, fails or writes garbage from then on.

    One that hangs is ended by Ctrl-C. The right compiler is back when the run is resumed.
    """
    from tests.reliability.kills import COMPILER

    name, store = "bench", folder / "store"
    if not store.exists():
        store.mkdir()
        base.measure([name])
        with trial(folder, base, COMMANDS[name], chance, name) as one:
            shutil.rmtree(one.folder / "cache/kernels")
            _compiles_with(one, COMPILER.format(store=store, killed=137))
            assert one.run().code == ExitCode.OK
    with trial(folder, base, COMMANDS[name], chance, name, mount=size_of(base.folder) * 2 + 64 * MIB) as one:
        right, evil = COMPILER.format(store=store, killed=137), chance.choice(_EVIL)
        shutil.rmtree(one.folder / "cache/kernels")
        _compiles_with(one, right)
        process = one.start()
        time.sleep(chance.uniform(0, base.seconds[name]))
        first = right.index("[ -n")
        _compiles_with(one, None if evil is None else f"{right[:first]}{evil}\n")
        is_hanging = evil is not None and "sleep" in evil
        if is_hanging:
            time.sleep(base.seconds[name])
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGINT)
        one.ended(process, signals=(signal.SIGINT,) if is_hanging else ())
        if left := one.left():
            one.lose(f"{evil}: left: {left}")
        _compiles_with(one, right)
        one.again(what=f" (after {evil or 'removal'})")
    return one


def _compiles_with(one: Trial, script: str | None) -> None:
    """Replace the compiler of a trial, or remove it."""
    compiler = one.folder / "cxx"
    one.variables["CXX"] = str(compiler)
    if script is None:
        compiler.unlink()
        return
    new = compiler.with_suffix(".new")
    new.write_text(script, encoding="utf-8")
    new.chmod(0o755)
    new.replace(compiler)


KINDS: dict[str, Callable[[Path, Base, str, random.Random], Trial]] = {
    "full-disk": full_disk,
    "read-only": read_only,
    "vanishing": vanishing,
    **{f"{n.name}": partial(signalled, n) for n in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)},
    "SIGSTOP": stopped,
    "memory": little_memory,
    "clock": jumping_clock,
    "together": together,
    "paths": strange_paths,
    "bombs": bombs,
    "foreign-cache": foreign_cache,
    "variables": nonsense,
    "compiler": evil_compiler,
}


def tried(kind: str, args: argparse.Namespace, one_of: Callable[[int, random.Random], Trial]) -> bool:
    """Try a kind, and print its row of the table; returns whether anything was lost."""
    chance, start = random.Random(f"{kind} {args.seed}"), time.monotonic()
    lost, codes = 0, Counter[int]()
    for number in range(args.count):
        one = one_of(number, chance)
        lost += bool(one.lost)
        codes += one.codes
        for line in one.lost:
            print(f"  {kind} {number}: {line}", flush=True)
    seconds = time.monotonic() - start
    print(f"| {kind} | {args.count} | {lost} | {dict(sorted(codes.items()))} | {seconds:.0f} s", flush=True)
    return bool(lost)


def parser() -> argparse.ArgumentParser:
    """Options of a series."""
    result = argparse.ArgumentParser()
    result.add_argument("kinds", nargs="*")
    result.add_argument("--count", type=int, default=100, help="trials of each kind")
    result.add_argument("--seed", type=int, default=0)
    return result


@contextlib.contextmanager
def begun() -> Iterator[tuple[Path, Base]]:
    """The folder of a series, and the inputs in it."""
    with tempfile.TemporaryDirectory(prefix="ckh-faults-") as made:
        folder = Path(made).resolve()
        text = f"import sys\nsys.path[0] = {str(ROOT)!r}\nfrom ckh.entry import main\nmain()\n"
        (folder / "ckh").write_text(text, encoding="utf-8")
        yield folder, Base(folder)


def main() -> int:
    """Run the script."""
    options = parser()
    options.add_argument("--commands", nargs="*", choices=sorted(COMMANDS), default=QUICK)
    args = options.parse_args()
    has_lost = False
    with begun() as (folder, base):
        base.measure(args.commands)
        for kind in args.kinds or KINDS:

            def one_of(number: int, chance: random.Random, kind: str = kind) -> Trial:
                return KINDS[kind](folder, base, args.commands[number % len(args.commands)], chance)

            has_lost |= tried(kind, args, one_of)
    return int(has_lost)


if __name__ == "__main__":
    sys.exit(main())
