"""Shipped files are found, caches are private, writes are atomic."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from ckh.errors import DataError, ExitCode
from ckh.files import paths
from ckh.files.paths import cache_dir, data_dir, user_data_dir, write_atomic
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from pathlib import Path


def test_installed_data_takes_precedence_over_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files beside the package are used only if the package has none."""
    package = tmp_path / "ckh"
    (tmp_path / "models").mkdir()
    package.mkdir()
    monkeypatch.setattr(paths, "_PACKAGE", package)
    assert data_dir("models") == tmp_path / "models"
    (package / "models").mkdir()
    assert data_dir("models") == package / "models"
    with pytest.raises(DataError, match="archspecs"):
        data_dir("archspecs")


def test_cache_dir_is_private_and_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CKH_CACHE_DIR, XDG_CACHE_HOME, home folder, in this order; relative XDG paths are ignored."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "own"
    assert stat.S_IMODE(cache_dir().stat().st_mode) == 0o700
    monkeypatch.delenv("CKH_CACHE_DIR")
    assert cache_dir() == tmp_path / "xdg/ckh"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_dir() == tmp_path / "home/.cache/ckh"


def test_an_uncreatable_cache_dir_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the way is an error with a hint."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "file/cache"))
    with expect_refusal(DataError, "cache") as caught:
        cache_dir()
    assert caught.value.exit_code == ExitCode.INPUT_OUTPUT
    assert "CKH_CACHE_DIR" in caught.value.hint


def test_user_data_dir_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CKH_DATA_DIR, XDG_DATA_HOME, home folder, in this order; the call creates nothing."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CKH_DATA_DIR", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert user_data_dir() == tmp_path / ".local/share/ckh"
    assert not user_data_dir().exists()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert user_data_dir() == tmp_path / "xdg/ckh"
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path / "own"))
    assert user_data_dir() == tmp_path / "own"


def test_write_atomic_replaces_and_respects_the_umask(tmp_path: Path) -> None:
    """The content is replaced, the mode is 0644 without the umask, and no temporary file remains."""
    path = tmp_path / "spec.json"
    path.write_bytes(b"old")
    before = os.umask(0o027)
    try:
        write_atomic(path, b"new")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_write_atomic_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure half way keeps the old content and leaves no temporary file."""
    path = tmp_path / "spec.json"
    path.write_bytes(b"old")

    def fail(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
