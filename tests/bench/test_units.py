"""Kernels compiled in units: the same as alone, whatever happens to the unit's compiler."""

from __future__ import annotations

import ctypes
import math
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import HOST, load_arch
from ckh.bench.compilation.compile import KernelBuilder, unit_size, units
from ckh.bench.compilation.kernel_cache import Compilation, KernelCache, loadable
from ckh.bench.devices.device_choice import HostDevice
from ckh.bench.isolated.kernel_library import ENTRY_POINTS
from ckh.errors import DataError
from ckh.ops import GROUPED_CONV
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.problems import Direction
from ckh.schema import Status
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.ops.base import AnyOperation

KERNELS = conv_pool(Direction.FORWARD, load_arch("host"))[:5]
_FUNCTIONS = "".join(f"void {name}() {{}} " for name in ENTRY_POINTS)
COMPILE = '"$@"'
TIMEOUT_S = 4.0


class Together(HostDevice):
    """A device whose kernels return their number; some do not compile, and units have a separate compiler command."""

    unit_kernels = 4

    def __init__(self, unit_compiler: str = COMPILE, bad: Sequence[int] = ()) -> None:
        super().__init__()
        self.unit_compiler, self.bad = unit_compiler, bad
        self.compiled: list[int] = []  # number of kernels of each compiler

    def compile_s(self, op: AnyOperation) -> dict[str, float]:
        """Nearly zero: units are not limited by time."""
        return {"": 0.001}

    def cache_salt(self) -> bytes:
        return b""

    def emit(self, kernel: Any) -> str:
        number = KERNELS.index(kernel)
        body = "nonsense" if number in self.bad else f"return {number};"
        return f'extern "C" {{ int answer() {{ {body} }} {_FUNCTIONS} }}\n'

    def emit_unit(self, kernel: Any, sources: Sequence[str]) -> str:
        assert kernel in KERNELS
        bodies = [source.partition("int answer() {")[2].partition("}")[0] for source in sources]
        cases = "".join(f"case {number}: {body}" for number, body in enumerate(bodies))
        chosen = 'extern "C" const volatile struct { char mark[12]; int number; } chosen = {"ckh-chosen:", 0};'
        answer = f"int answer() {{ switch (chosen.number) {{ {cases} }} return -1; }}"
        return f'{chosen}\nextern "C" {{ {answer} {_FUNCTIONS} }}\n// {len(sources)}'

    def compile_command(self, kernel: Any, source: Path, library: Path) -> list[str]:
        right = super().compile_command(kernel, source, library)
        *_, last = source.read_text(encoding="utf-8").splitlines()
        if not last.startswith("// "):
            self.compiled.append(1)
            return right
        self.compiled.append(int(last.removeprefix("// ")))
        known = f"cd {shlex.quote(str(source.parent))}; library={shlex.quote(str(library))}; "
        return ["sh", "-c", known + self.unit_compiler, "sh", *right]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def ignore(_count: int, _text: str) -> None:
    pass


def ask(library: str) -> int:
    return int(ctypes.CDLL(loadable(library)).answer())


def files(cache: Path) -> list[str]:
    """All files of the cache."""
    return sorted(path.name for path in cache.rglob("*") if path.is_file())


def test_one_compilation_gives_all_libraries(cache: Path) -> None:
    """The library is stored once, with a file for each kernel under its hash, and the next build finds them."""
    device, advanced = Together(), []
    builder = KernelBuilder(device)
    built = builder.build(KERNELS[:4], 1, lambda count, _text: advanced.append(count))
    assert [item.status for item in built.values()] == [Status.OK] * 4
    assert device.compiled == [4]
    assert sum(advanced) == 4
    (unit,) = cache.rglob("*.unit")
    parts = [cache / "kernels" / key[:2] / f"{key}.so" for key in map(builder.source_hash, KERNELS[:4])]
    assert files(cache) == sorted(path.name for path in [unit, *parts])
    assert all(path.stat().st_size < 1000 < unit.stat().st_size for path in parts)
    again = Together()
    assert KernelBuilder(again).build(KERNELS[:4], 1, ignore) == built
    assert again.compiled == []
    assert [ask(built[kernel].library) for kernel in KERNELS[:4]] == [0, 1, 2, 3]


@pytest.mark.parametrize("damage", [lambda unit: unit.write_bytes(unit.read_bytes()[:-1] + b"x"), Path.unlink])
def test_a_damaged_shared_library_is_rebuilt(cache: Path, damage: Any) -> None:
    """After any damage, each of its kernels is missing."""
    built = KernelBuilder(Together()).build(KERNELS[:3], 1, ignore)
    (unit,) = cache.rglob("*.unit")
    damage(unit)
    device = Together()
    assert KernelBuilder(device).build(KERNELS[:3], 1, ignore) == built
    assert device.compiled == [3]
    assert [ask(built[kernel].library) for kernel in KERNELS[:3]] == [0, 1, 2]


def test_a_shared_library_writable_by_others_is_refused(cache: Path) -> None:
    """It is not loaded."""
    KernelBuilder(Together()).build(KERNELS[:2], 1, ignore)
    (unit,) = cache.rglob("*.unit")
    unit.chmod(0o777)
    with expect_refusal(DataError, "unsafe-cache"):
        KernelBuilder(Together()).build(KERNELS[:2], 1, ignore)


@pytest.mark.usefixtures("cache")
def test_a_loaded_copy_is_not_rewritten() -> None:
    """A process that loads a kernel twice keeps its mapping, as truncating the file would end it by a signal."""
    built = KernelBuilder(Together()).build(KERNELS[:2], 1, ignore)
    code = (
        "import ctypes, os, sys\n"
        "from ckh.bench.compilation.kernel_cache import loadable\n"
        "first, before = ctypes.CDLL(loadable(sys.argv[1])), os.stat(loadable(sys.argv[1]))\n"
        "assert os.path.samestat(before, os.stat(loadable(sys.argv[1])))\n"
        "assert before.st_mtime_ns == os.stat(loadable(sys.argv[1])).st_mtime_ns\n"
        "first.answer()\n"
    )
    assert subprocess.run([sys.executable, "-c", code, built[KERNELS[0]].library], check=False).returncode == 0


def test_copies_are_removed_with_their_process(cache: Path) -> None:
    """When it ends or, if it is killed, when the next kernel is built."""
    built = KernelBuilder(Together()).build(KERNELS[:2], 1, ignore)
    left = len(files(cache))
    code = (
        "import os, signal, sys\n"
        "from ckh.bench.compilation.kernel_cache import loadable\n"
        "assert os.path.exists(loadable(sys.argv[1]))\n"
        "if sys.argv[2] == 'killed': os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = built[KERNELS[0]].library
    assert subprocess.run([sys.executable, "-c", code, path, "ends"], check=False).returncode == 0
    assert len(files(cache)) == left
    assert subprocess.run([sys.executable, "-c", code, path, "killed"], check=False).returncode == -9
    assert len(files(cache)) > left
    KernelBuilder(Together()).build(KERNELS[:2], 1, ignore)
    assert len(files(cache)) == left


def test_cached_kernels_are_in_no_unit() -> None:
    """Only missing kernels are compiled in units."""
    KernelBuilder(Together()).build(KERNELS[1:2], 1, ignore)
    device = Together()
    built = KernelBuilder(device).build(KERNELS[:4], 1, ignore)
    assert device.compiled == [3]
    assert [ask(built[kernel].library) for kernel in KERNELS[:4]] == [0, 1, 2, 3]


def test_a_kernel_that_does_not_compile_fails_alone() -> None:
    """If a unit fails, each of its kernels is compiled alone."""
    device = Together(bad=[2])
    built = KernelBuilder(device).build(KERNELS[:4], 1, ignore)
    ok, error = Status.OK, Status.COMPILE_ERROR
    assert [built[kernel].status for kernel in KERNELS[:4]] == [ok, ok, error, ok]
    assert "nonsense" in built[KERNELS[2]].message
    assert [ask(built[KERNELS[n]].library) for n in (0, 1, 3)] == [0, 1, 3]
    assert device.compiled == [4, 1, 1, 1, 1]


INTERRUPTED = ("kill -9 $$", "echo 'LLVM ERROR: out of memory' >&2; exit 1", f"{COMPILE}; kill -9 $$")


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        *INTERRUPTED,
        "exit 1",
        "exit 0",
        "sleep 1000",
        "while :; do echo flood >&2; done",
        f"{COMPILE}; truncate -s 3000 $library",
        f"{COMPILE}; sed -i s/ckh-chosen/ckh-chasen/ $library",
        f"{COMPILE}; printf 'ckh-chosen:\\0' >> $library",
        "echo 'int a;' > a.c; gcc -shared -fPIC -o $library a.c",
        "mkdir $library",
    ],
)
def test_a_malicious_compiler_of_a_unit_does_no_harm(script: str, cache: Path) -> None:
    """Each kernel is then compiled alone; after an interruption, first as a unit again."""
    device = Together(script)
    built = KernelBuilder(device, TIMEOUT_S).build(KERNELS[:3], 1, ignore)
    assert [ask(built[kernel].library) for kernel in KERNELS[:3]] == [0, 1, 2]
    assert device.compiled == [3, *[3] * (script in INTERRUPTED), 1, 1, 1]
    assert {Path(file).suffix for file in files(cache)} == {".so"}


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupted_unit_remains_a_unit(jobs: int, tmp_path: Path) -> None:
    """It is compiled again after the others, and none of its kernels alone."""
    once = tmp_path / "once"
    device, advanced = Together(f"mkdir {once} && kill -9 $$; {COMPILE}"), []
    built = KernelBuilder(device).build(KERNELS, jobs, lambda count, _text: advanced.append(count))
    assert [ask(built[kernel].library) for kernel in KERNELS] == [0, 1, 2, 3, 4]
    assert sorted(device.compiled) in ([2, 2, 3], [2, 3, 3])
    assert sum(advanced) == len(KERNELS)


def test_stopped_while_a_unit_is_compiled_nothing_is_built(cache: Path, tmp_path: Path) -> None:
    """Neither the unit nor single kernels are built, and no file is left."""
    note = tmp_path / "note"
    device = Together(f"touch {note}; sleep 1000")
    assert KernelBuilder(device).build(KERNELS[:3], 1, ignore, note.exists) == {}
    assert device.compiled == [3]
    assert files(cache) == []


def test_units_are_sized_by_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its share; with kernels of a second and a limit of five no unit has more than two."""
    sources = {str(number): (kernel, str(number)) for number, kernel in enumerate(KERNELS)}
    assert units(sources, 4, lambda kernel: 4.0 if kernel is KERNELS[0] else 1.0) == [["0"], ["1", "2", "3", "4"]]
    monkeypatch.setattr(Together, "compile_s", lambda _self, _op: {"": 1.0})
    device = Together()
    KernelBuilder(device, 5.0).build(KERNELS, 1, ignore)
    assert device.compiled == [2, 2, 1]


def test_units_have_a_single_operation() -> None:
    """Their number is minimal, and they have about equal sizes."""
    sources = {str(number): (kernel, str(number)) for number, kernel in enumerate(KERNELS)}
    assert units(sources, 4) == [["0", "1", "2"], ["3", "4"]]
    assert units({}, 4) == []


@pytest.mark.parametrize("kernels", [1, 5, 12, 13, 100, 1_000, 14_000])
@pytest.mark.parametrize("jobs", [1, 2, 7, 64, 800])
def test_units_are_minimal_without_extra_rounds(kernels: int, jobs: int) -> None:
    """All compilers have work in each wave but the last, which has no more left than it needs."""

    def rounds(size: int) -> int:
        return math.ceil(math.ceil(kernels / size) / jobs)

    size = unit_size(kernels, 12, jobs)
    assert rounds(size) == rounds(12)
    assert size == 1 or rounds(size - 1) > rounds(12)
    assert unit_size(0, 12, jobs) == 0


def test_compile_times_are_recorded(tmp_path: Path) -> None:
    """Times of the architecture are used, else of another GPU, never of another operation; damage is skipped."""
    assert KernelCache().seconds_by_kind(HOST, GROUPED_CONV) == {}
    KernelBuilder(Together()).build(KERNELS[:4], 1, ignore)
    cache = KernelCache()
    result = cache.seconds_by_kind(HOST, GROUPED_CONV)
    assert sum(count for _, count in result.values()) == 4
    assert result.keys() == {kernel.pipeline for kernel in KERNELS[:4]}
    assert all(0 < seconds < 60 for seconds, _ in result.values())
    assert cache.seconds_by_kind("gfx942", GROUPED_CONV) == cache.seconds_by_kind(HOST, "gemm_universal") == {}
    for number, (arch, kind, each) in enumerate(
        [("gfx942", "mem", 4.0), ("gfx942", "mem", 8.0), ("gfx950", "v1", 30.0), ("gfx950", "v1", float("nan"))]
    ):
        (tmp_path / "made").write_bytes(b"library")
        cache.put(f"{number:032d}", tmp_path / "made", None, Compilation(arch, GROUPED_CONV, kind, each))
    for number, content in enumerate([b"", b"short", os.urandom(100), b"{}" + b"\2\0\0\0" + bytes(32) + b"ckh-so-2"]):
        cache.path(f"00x{number}").write_bytes(content)
    assert cache.seconds_by_kind("gfx942", GROUPED_CONV) == {"mem": (6.0, 2)}
    assert cache.seconds_by_kind("gfx950", GROUPED_CONV) == {"v1": (30.0, 1)}
    assert cache.seconds_by_kind("gfx90a", GROUPED_CONV) == {"mem": (6.0, 2), "v1": (30.0, 1)}
