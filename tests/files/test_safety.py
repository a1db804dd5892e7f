"""Whether only the user can change a path: by owner and mode of the path and its parents."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from typing import TYPE_CHECKING

import pytest

from ckh.errors import DataError
from ckh.files import paths
from ckh.files.paths import cache_dir, planted_link, why_unsafe
from ckh.text.log import printable
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STRANGER = 54321  # a user and a group that nobody has


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A private folder in a private folder."""
    inner = tmp_path / "outer/inner"
    inner.mkdir(parents=True)
    for path in (inner, inner.parent):
        path.chmod(0o755)
    return inner


def test_private_files_are_safe(folder: Path) -> None:
    """Others may read it."""
    assert why_unsafe(folder) == ""
    (folder / "file").write_text("text", encoding="utf-8")
    assert why_unsafe(folder / "file") == ""


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o702, 0o1777])
def test_world_writable_files_are_not_safe(folder: Path, mode: int) -> None:
    """Also with the sticky bit: files can be added."""
    folder.chmod(mode)
    expect_values(why_unsafe(folder), folder)


def test_parent_folders_count_unless_sticky(folder: Path) -> None:
    """Content of a world-writable folder can be replaced, unless it is sticky like /tmp."""
    folder.parent.chmod(0o777)
    expect_values(why_unsafe(folder), folder.parent)
    folder.parent.chmod(0o1777)
    assert why_unsafe(folder) == ""


def test_a_link_is_checked_at_its_target(folder: Path, tmp_path: Path) -> None:
    """The target is loaded, not the link."""
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert why_unsafe(link) == ""
    folder.chmod(0o777)
    expect_values(why_unsafe(link), folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("of", [lambda inner: inner, lambda inner: inner.parent])
def test_files_of_another_user_are_not_safe(folder: Path, of: Callable[[Path], Path]) -> None:
    """The folder, or a parent."""
    os.chown(of(folder), STRANGER, -1)
    expect_values(why_unsafe(folder), of(folder), STRANGER)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_an_unmapped_owner_is_checked_by_mode(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is usually the machine's root; where all owners are mapped the same number is an ordinary user."""
    known, unknown = tmp_path / "known", tmp_path / "unknown"
    unknown.write_text(f"{STRANGER}\n", encoding="utf-8")
    monkeypatch.setattr(paths, "_KNOWN_OWNERS", known)
    monkeypatch.setattr(paths, "_UNKNOWN_OWNER", unknown)
    os.chown(folder.parent, STRANGER, -1)
    known.write_text("         0       1000          1\n", encoding="utf-8")
    assert why_unsafe(folder) == ""
    folder.parent.chmod(0o777)
    expect_values(why_unsafe(folder), folder.parent)
    known.write_text("         0          0 4294967295\n", encoding="utf-8")
    expect_values(why_unsafe(folder), folder.parent, STRANGER)


def test_group_writable_files_are_not_safe(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is the owner's own group without other members."""
    folder.chmod(0o775)
    state = folder.stat()
    owner = pwd.struct_passwd(("me", "", state.st_uid, state.st_gid, "", "", ""))
    for group, members, reason in (
        ("me", [], ""),
        ("me", ["me"], ""),
        ("me", ["me", "you"], f"the group {state.st_gid} can write to {folder}"),
        ("staff", [], f"the group {state.st_gid} can write to {folder}"),
    ):
        result = grp.struct_group((group, "", state.st_gid, members))
        monkeypatch.setattr(pwd, "getpwuid", lambda _uid: owner)
        monkeypatch.setattr(grp, "getgrgid", lambda _gid, result=result: result)
        assert why_unsafe(folder) == reason


def test_an_unknown_group_is_not_safe(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its members cannot be known."""

    def unknown(_number: int) -> None:
        raise KeyError

    monkeypatch.setattr(grp, "getgrgid", unknown)
    folder.chmod(0o770)
    assert "can write to" in why_unsafe(folder)


@pytest.mark.parametrize("name", ["", "kernels", "answers", "forests"])
def test_a_cache_that_others_can_write_is_refused(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cache and its subfolders, with the reason and a remedy."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(folder / "cache"))
    path = cache_dir(name)
    assert path == folder / "cache" / name
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for place, mode in ((path, 0o777), (folder, 0o777)):
        before = place.stat().st_mode
        place.chmod(mode)
        with expect_refusal(DataError, "unsafe-cache", place) as caught:
            cache_dir(name)
        assert "chmod go-w" in caught.value.hint
        assert printable(caught.value.message) == caught.value.message
        place.chmod(before)
    assert cache_dir(name) == path


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder like /tmp."""
    if os.geteuid() != 0:
        pytest.skip("links of other users are root's to make")
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def _link(at: Path, target: str, owner: int) -> Path:
    at.symlink_to(target)
    os.chown(at, owner, owner, follow_symlinks=False)
    return at


@pytest.mark.parametrize("target", ["victim", "../victim", "gone/none"])
def test_links_of_another_user_in_tmp_are_detected(shared: Path, target: str) -> None:
    """At a path, on the way to it, behind another link, and behind `..`, whatever the target."""
    link = _link(shared / "link", target, STRANGER)
    ours = _link(shared.parent / "ours", "tmp/link", 0)
    (shared / "sub").mkdir()
    for path in (link, link / "deeper/file", ours, ours / "file", shared / "sub/../link/file"):
        assert planted_link(path) == link


def test_other_links_count(shared: Path) -> None:
    """Own links, the folder owner's, and foreign ones in a folder that is not both sticky and world-writable."""
    assert planted_link(_link(shared / "ours", "victim", os.geteuid()) / "file") is None
    os.chown(shared, STRANGER, STRANGER)
    link = _link(shared / "link", "victim", STRANGER)
    assert planted_link(link) is None
    os.chown(shared, 0, 0)
    for mode in (0o777, 0o1775, 0o755):
        shared.chmod(mode)
        assert planted_link(link) is None


def test_circular_links_are_not_safe(shared: Path) -> None:
    """Following them is a system error."""
    _link(shared / "one", "two", 0)
    assert planted_link(_link(shared / "two", "one", 0)) is None


def test_a_cache_behind_another_users_link_is_not_created(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is created where the link leads."""
    (shared.parent / "victim").mkdir(mode=0o700)
    _link(shared / "link", "../victim", STRANGER)
    monkeypatch.setenv("CKH_CACHE_DIR", str(shared / "link/cache"))
    with expect_refusal(DataError, "unsafe-cache"):
        cache_dir()
    assert list((shared.parent / "victim").iterdir()) == []
