"""The kernel cache: libraries are returned unchanged, or not at all; and nothing of dead processes remains."""

from __future__ import annotations

import random
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ckh.bench.compilation.binary import Binary
from ckh.bench.compilation.compile import Built, KernelBuilder
from ckh.bench.compilation.kernel_cache import KernelCache
from ckh.errors import DataError
from ckh.files.paths import cache_dir
from ckh.schema import Resources, Status
from tests.bench.faults import GOOD, FaultyDevice
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from pathlib import Path

BINARY = Binary("ab12", Resources(96, 16, 40, 16384, 0, 2, 0, 4))
KEY = "0123456789abcdef"
KNOWN = b'{"binary": '
DAMAGES = {"short": 300, "long": 1000}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KernelCache:
    """An empty cache."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    assert KernelCache().folder == cache_dir("kernels")
    return KernelCache()


def put(cache: KernelCache, folder: Path, content: bytes, binary: Binary | None) -> Path:
    (folder / "made").write_bytes(content)
    return cache.put(KEY, folder / "made", binary).path


def build(count: int) -> list[Built]:
    """Build right kernels."""
    device = FaultyDevice(*[GOOD] * count)
    return list(KernelBuilder(device).build(device.kernels, 1, lambda _count, _text: None).values())


@pytest.mark.parametrize("binary", [BINARY, None])
@pytest.mark.parametrize("content", [b"", b"content" * 1000])
def test_stored_libraries_are_returned(
    cache: KernelCache, tmp_path: Path, content: bytes, binary: Binary | None
) -> None:
    """The library is at the beginning of its file, and its metadata is read back."""
    path = put(cache, tmp_path, content, binary)
    assert path.read_bytes().startswith(content)
    cached_library = cache.find(KEY)
    assert cached_library is not None
    assert (cached_library.path, cached_library.binary) == (path, binary)
    assert cache.find(KEY[::-1]) is None


def test_damaged_entries_are_not_found(cache: KernelCache, tmp_path: Path, reliability: str) -> None:
    """Any bytes changed, cut off, inserted or appended."""
    rng = random.Random(3)
    path = put(cache, tmp_path, rng.randbytes(5000), BINARY)
    whole = path.read_bytes()
    for _ in range(DAMAGES[reliability]):
        at, kind = rng.randrange(len(whole)), rng.randrange(4)
        changed = bytes([(whole[at] + rng.randint(1, 255)) % 256])
        damaged = (
            whole[:at] + changed + whole[at + 1 :],
            whole[:at],
            whole[:at] + rng.randbytes(rng.randint(1, 50)) + whole[at:],
            whole + rng.randbytes(rng.randint(1, 50)),
        )[kind]
        path.write_bytes(damaged)
        assert cache.find(KEY) is None
    path.write_bytes(whole)
    assert cache.find(KEY) is not None


def test_a_kernel_damaged_in_transfer_is_refused(cache: KernelCache, tmp_path: Path) -> None:
    """Nothing is written for it, whether it is truncated or has another byte, nor outside of the cache."""
    key = "a1" * 16
    (tmp_path / "made").write_bytes(b"content" * 100)
    kept = cache.put(key, tmp_path / "made", BINARY).path
    elsewhere, content = KernelCache("elsewhere"), kept.read_bytes()
    for name, damaged in (
        (kept.name, content[:-1]),
        (kept.name, content[:50] + b"x" + content[51:]),
        ("../" + "a" * 29 + ".so", content),
    ):
        with expect_refusal(DataError, "damaged"):
            elsewhere.adopt({name: damaged})
        assert not elsewhere.has(key)
    elsewhere.adopt(cache.files([key]))
    assert elsewhere.path(key).read_bytes() == content


def test_a_library_that_others_can_write_is_not_loaded(cache: KernelCache) -> None:
    """It is an error with the reason, and not a kernel."""
    (built,) = build(1)
    assert built.status is Status.OK
    library = cache.path(built.source_hash)
    assert stat.S_IMODE(library.stat().st_mode) == 0o700
    library.chmod(0o666)
    with expect_refusal(DataError, "unsafe-cache"):
        cache.find(built.source_hash)


def test_a_temporary_folder_is_removed_on_exit(cache: KernelCache) -> None:
    """All its contents are removed, also after an error."""
    workshop = cache.workshop()
    (workshop.__enter__() / "source").write_text("text", encoding="utf-8")
    assert len(list(cache.folder.iterdir())) == 1
    assert not workshop.__exit__(RuntimeError, RuntimeError("stopped"), None)
    assert list(cache.folder.iterdir()) == []


def test_only_temporary_folders_of_dead_processes_are_removed(cache: KernelCache) -> None:
    """A killed process leaves its folder, until another process compiles."""
    program = (
        "import sys\nfrom ckh.bench.compilation.kernel_cache import KernelCache\n"
        "with KernelCache().workshop() as folder:\n"
        "    (folder / 'part.so').write_text('part')\n    print(folder, flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = cache.folder / process.stdout.readline().strip()
        with cache.workshop() as own:
            assert {folder, own} == set(cache.folder.iterdir())
        assert (folder / "part.so").exists()
        process.kill()
    assert folder.exists()
    with cache.workshop() as own:
        assert set(cache.folder.iterdir()) == {own}
