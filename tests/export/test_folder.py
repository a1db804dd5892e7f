"""An export's folder is written whole, and nothing is overwritten unasked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ckh.errors import DataError, UsageError
from ckh.export.folder import check_folder, write_folder

if TYPE_CHECKING:
    from pathlib import Path


def test_files_are_written_and_replaced(tmp_path: Path) -> None:
    """A second export leaves nothing of the first, and no other folder."""
    write_folder(tmp_path / "out", {"a": b"1", "deep/b": b"2"})
    assert (tmp_path / "out" / "deep" / "b").read_bytes() == b"2"
    write_folder(tmp_path / "out", {"c": b"3"})
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "c"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    """A file that cannot be written is an error, and the old folder is whole."""
    write_folder(tmp_path / "out", {"a": b"1"})
    with pytest.raises(DataError, match="cannot write the export"):
        write_folder(tmp_path / "out", {"a": b"2", "a/b": b"3"})
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "a"]
    assert (tmp_path / "out" / "a").read_bytes() == b"1"


def test_only_empty_folders_are_written_to_unasked(tmp_path: Path) -> None:
    """Another folder needs force; a file is never replaced."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    check_folder(tmp_path / "empty", force=False)
    check_folder(tmp_path / "new" / "deep", force=False)
    check_folder(tmp_path / "full", force=True)
    with pytest.raises(UsageError, match="is not empty"):
        check_folder(tmp_path / "full", force=False)
    with pytest.raises(UsageError, match="no folder"):
        check_folder(tmp_path / "full" / "file", force=True)
    with pytest.raises(DataError, match="cannot write"):
        check_folder(tmp_path / "full" / "file" / "below", force=True)
