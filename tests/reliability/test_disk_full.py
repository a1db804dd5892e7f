"""Disk full: every writer ends with one clear line and its exit code, and files are unchanged."""

from __future__ import annotations

import errno
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ckh import entry
from ckh.cli import run
from ckh.data.dataset import write_dataset
from ckh.data.journal import JournalWriter, ResultRow, read_journal
from ckh.errors import ExitCode
from ckh.schema import HARDWARE, Status
from tests.learn.conftest import measured, saved
from tests.refusals import expect_error
from tests.reliability.kills import KERNELS, PAIRS, PROBLEMS
from tests.runs import host_run

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = 4096
DISK = 512 * BLOCK
RUN = host_run(dict.fromkeys(HARDWARE, 1))
TRAIN = ["--trees", "4", "--leaves", "7", "--folds", "0", "--jobs", "1", "--targets", "tflops"]


class SmallDisk:
    """A file system of two megabytes that can be filled up to a given free space."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def leave(self, room: int) -> None:
        """Fill the disk until `room` bytes, in whole blocks, are free."""
        self._filler.unlink(missing_ok=True)
        free = os.statvfs(self.path).f_bavail * BLOCK
        with self._filler.open("wb") as file:
            file.write(b"\0" * max(0, free - room // BLOCK * BLOCK))

    def empty(self) -> None:
        """Free the disk space."""
        self._filler.unlink()

    def content(self) -> dict[str, bytes]:
        """All other files, including hidden ones, and folders."""
        return {
            str(path.relative_to(self.path)): path.read_bytes() if path.is_file() else b"folder"
            for path in self.path.rglob("*")
            if path != self._filler
        }


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A small file system; skips where none can be mounted."""
    path = tmp_path / "disk"
    path.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(path)],  # noqa: S607 - the system's
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        pytest.skip(f"no file system can be mounted: {error}")
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)  # noqa: S607 - the system's


def require_one_line(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    """Check for an empty stdout, and one line about the file that cannot be written, with an optional hint."""
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.startswith(("hint: ", "note: "))]
    assert out == ""
    expect_error(lines[-1], "unwritable", path, os.strerror(errno.ENOSPC))
    assert sum(line.startswith("error:") for line in lines) == 1
    assert "Traceback" not in err


@pytest.fixture(scope="module")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared cache folder of compiled kernels."""
    return tmp_path_factory.mktemp("kernels")


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [0, 3])
def test_a_journal_continues_after_space_is_freed(
    disk: SmallDisk,
    blocks: int,
    tmp_path: Path,
    kernel_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Wherever the disk is full, earlier results are intact; with space, --resume measures the missing ones."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(kernel_cache))
    monkeypatch.chdir(tmp_path)
    Path("problems.txt").write_text("\n".join(PROBLEMS), encoding="utf-8")
    Path("kernels").write_text("\n".join(KERNELS), encoding="utf-8")
    args = ["bench", "--device", "host", "--problems", "problems.txt", "--kernels", "kernels", "--out", "disk/run"]
    args += ["--samples", "100"]  # long rows
    disk.leave(blocks * BLOCK)
    assert run(args) == ExitCode.INPUT_OUTPUT
    require_one_line(capsys, Path("disk/run/journal.jsonl"))
    started = Path("disk/run/journal.jsonl").exists()
    kept = read_journal(Path("disk/run")).rows if started else ()
    assert started or disk.content() == {}
    assert len(kept) < PAIRS.total()
    disk.empty()
    assert run(["bench", "--resume", "--out", "disk/run"] if started else args) == ExitCode.OK
    journal = read_journal(Path("disk/run"))
    assert journal.rows[: len(kept)] == kept
    assert Counter((row.problem, row.kernel) for row in journal.rows if not row.remeasured) == PAIRS
    assert list(disk.content()) == ["run", "run/journal.jsonl"]


def test_the_old_dataset_remains(disk: SmallDisk, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Convert leaves neither a partial nor another file, with an existing dataset and without."""
    journal = tmp_path / "run"
    problem, kernel = PROBLEMS[0], KERNELS[0]
    writer = JournalWriter(journal)
    writer.start_run(RUN)
    writer.add(ResultRow(RUN.run_id, problem, kernel, Status.OK, "", 1.5, 1.25, 0.5, (1.5e6,), 3))
    writer.close()
    for name, to, rooms in (("data.parquet", "parquet", (0, BLOCK)), ("data.csv", "csv", (0,))):
        out = disk.path / name
        args = ["convert", str(journal), "--to", to, "--out", str(out)]
        disk.leave(0)
        capsys.readouterr()
        assert run(args) == ExitCode.INPUT_OUTPUT
        require_one_line(capsys, out)
        assert not out.exists()
        disk.empty()
        assert run(args) == ExitCode.OK
        before = disk.content()
        for room in rooms:
            disk.leave(room)
            capsys.readouterr()
            assert run([*args, "--force"]) == ExitCode.INPUT_OUTPUT
            require_one_line(capsys, out)
            assert disk.content() == before
        disk.empty()


@pytest.mark.parametrize(
    ("command", "blocks"),
    [
        pytest.param(["train", "data.parquet", *TRAIN], 2, marks=pytest.mark.slow),
        (["export", "--model", "mine", "--to", "c"], 3),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_the_old_folder_remains(
    disk: SmallDisk,
    command: list[str],
    blocks: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Train and export leave neither a partial nor another folder, with an existing one and without."""
    monkeypatch.chdir(tmp_path)
    write_dataset(measured(), "data.parquet")
    saved(Path("mine"))
    out = disk.path / "folder"
    args = [*command, "--out", str(out)]
    disk.leave(blocks * BLOCK)
    assert run(args) == ExitCode.INPUT_OUTPUT
    require_one_line(capsys, out)
    assert disk.content() == {}
    disk.empty()
    assert run(args) == ExitCode.OK
    before = disk.content()
    disk.leave((blocks + 1) * BLOCK)
    capsys.readouterr()
    assert run([*args, "--force"]) == ExitCode.INPUT_OUTPUT
    require_one_line(capsys, out)
    assert disk.content() == before


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [2, 30])
def test_kernels_are_not_blamed_for_a_full_disk(
    disk: SmallDisk, blocks: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without disk space for folders, or for compiler and linker output, no gate has failed."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(disk.path / "cache"))
    disk.leave(blocks * BLOCK)
    args = ["validate", "kernels", "--variant", "forward", "--ndim", "2", "--device", "host", "--matrix", "pipelines"]
    assert run(args) == ExitCode.INPUT_OUTPUT
    out, err = capsys.readouterr()
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert out == ""
    assert len(errors) == 1
    assert os.strerror(errno.ENOSPC) in errors[0]
    assert "CKH_CACHE_DIR" in err


@pytest.mark.parametrize("blocks", [0, 4, 40])
def test_a_full_cache_changes_no_answer(
    disk: SmallDisk, blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """predict, which packs a model into the cache, answers as usual, and leaves no partial file there."""
    args = ["predict", "--n", "1", "--c", "64", "--model", str(saved(tmp_path / "mine"))]
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "roomy"))
    assert entry.run(args) == ExitCode.OK
    expected = capsys.readouterr().out
    monkeypatch.setenv("CKH_CACHE_DIR", str(disk.path / "cache"))
    disk.leave(blocks * BLOCK)
    for _ in range(2):
        assert entry.run(args) == ExitCode.OK
        out, err = capsys.readouterr()
        assert (out, err) == (expected, "")
    assert [name for name in disk.content() if Path(name).name.startswith(".")] == []
    disk.empty()
    assert entry.run(args) == ExitCode.OK
    assert capsys.readouterr().out == expected
