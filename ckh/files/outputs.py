"""Output files and folders of commands.

An existing output is replaced with `--force` only, and only if its content is of the same kind. Inputs are never
overwritten. `check_output` checks this before the work; if another process writes the output in between, it is not
replaced, and the result is written beside it. A path that was not checked is written only if nothing exists there.
Links of other users in folders such as /tmp are not followed, and their files there not replaced.
Outputs are written to a temporary name and renamed: after a kill or on a full disk, the old or the new one is complete.
"""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ckh.errors import OutputError, UsageError
from ckh.files.paths import new_beside, open_atomic, planted_file, planted_link, write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

HEAD_BYTES = 4096
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h
_NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_NO_LINK = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
_checked: dict[Path, bool] = {}  # paths that passed `check_output` or were written; whether they may be replaced


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file: its name, and a test of its content."""

    name: str
    is_one: Callable[[Path], bool]

    def difference(self, path: Path) -> str:
        """Reason why a path is not of this kind, or an empty string; empty and missing files are of any kind."""
        if not path.is_file():
            return "it is not an ordinary file"
        return "" if path.stat().st_size == 0 or self.is_one(path) else f"not a valid {self.name}"


@dataclass(frozen=True, slots=True)
class FolderKind:
    """A kind of folder: its name, and a test of its files.

    `owns` returns for a folder a predicate that tells whether a file, by its path within the folder, is part of it;
    None if the folder is not of this kind.
    """

    name: str
    owns: Callable[[Path], Callable[[str], bool] | None]

    def difference(self, path: Path) -> str:
        """Reason why a path is not of this kind, or an empty string."""
        if not path.is_dir():
            return "it is not a folder"
        owns = self.owns(path)
        if owns is None:
            return f"not a valid {self.name}"
        inside = (file for file in sorted(path.rglob("*")) if file.is_symlink() or not file.is_dir())
        foreign = next((name for file in inside if not owns(name := str(file.relative_to(path)))), None)
        return "" if foreign is None else f"{foreign} in it does not belong to the {self.name}"


def check_output(
    out: Path, kind: FileKind | FolderKind, *, force: bool, inputs: Iterable[Path] = (), instead: str = ""
) -> None:
    """Refuse an invalid or unwritable output before the work."""
    refuse_planted(out)
    try:
        _refuse_input(out, inputs)
        if out.exists():
            _refuse_existing(out, kind, force=force, instead=instead)
        with tempfile.TemporaryFile(dir=existing_parent(out)):  # an unnamed file
            pass
        _checked[Path(os.path.realpath(out))] = force
    except OSError as error:
        raise OutputError(f"cannot write {out}: {error.strerror}", "choose another --out", code="unwritable") from error


def refuse_planted(out: Path) -> None:
    """Refuse outputs behind links of other users (`planted_link`), and their files in folders such as /tmp."""
    try:
        planted = planted_link(out) or (out if planted_file(out) else None)
    except OSError as error:
        raise OutputError(f"cannot write {out}: {error.strerror}", "choose another --out", code="unwritable") from error
    if planted is not None:
        text = f"cannot write {out}: {planted} is another user's in a folder that everybody can write to"
        raise OutputError(text, "choose a folder of your own, or have it removed", code="unsafe-output")


def head_of(path: Path, count: int = HEAD_BYTES) -> bytes:
    """First bytes of a file, which identify its kind; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError:
        return b""


@contextmanager
def open_output(path: Path, *, replace: bool = False) -> Iterator[BinaryIO]:
    """Open a file that is put at `path` atomically when the context ends without an error.

    With `replace` the file is a part of an output that was checked as a whole, and that is continued.
    """
    refuse_planted(path)
    target = Path(os.path.realpath(path))  # keep symbolic links
    may_replace = replace or _may_replace(path, target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(target, Path.replace if may_replace else _put_new) as file:
            yield file
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}", code="unwritable") from error
    _checked[target] = True  # a command may replace its own outputs


def write_output(path: Path, content: bytes, *, replace: bool = False) -> None:
    """Write a file atomically; arguments and errors as in `open_output`."""
    with open_output(path, replace=replace) as file:
        file.write(content)


def write_folder(out: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Write a folder atomically, replacing an existing one."""
    refuse_planted(out)
    target = Path(os.path.realpath(out))
    may_replace = _may_replace(out, target)
    try:
        with new_beside(target, is_folder=True) as (part, _):
            for name, content in files:
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                write_atomic(part / name, content)
            (_put_in_place if may_replace else _put_new)(part, target)
    except OSError as error:
        raise OutputError(f"cannot write {out}: {error.strerror or error}", code="unwritable") from error
    _checked[target] = True  # a command may replace its own outputs


def _may_replace(path: Path, target: Path) -> bool:
    """Whether `check_output` allowed to replace an output."""
    if target not in _checked and target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UsageError(f"{path} exists", "choose another path", code="output-exists")
    return _checked.get(target, False)


def _refuse_input(out: Path, inputs: Iterable[Path]) -> None:
    if not out.exists():
        return
    for path in inputs:
        files = [path, *(path.iterdir() if path.is_dir() else ())]
        if any(file.exists() and file.samefile(out) for file in files):
            raise UsageError(
                f"{out} is an input, and inputs are never overwritten", "choose another --out", code="unsafe-output"
            )
        if Path(os.path.realpath(out)) in Path(os.path.realpath(path)).parents:
            raise UsageError(f"{out} contains the input {path}", "choose another --out", code="unsafe-output")


def _refuse_existing(out: Path, kind: FileKind | FolderKind, *, force: bool, instead: str) -> None:
    if isinstance(kind, FolderKind) and out.is_dir():
        if Path(os.path.realpath(out)) in (Path.cwd(), *Path.cwd().parents):
            raise UsageError(
                f"{out} is or contains the current folder", "name a folder of its own with --out", code="unsafe-output"
            )
        if not any(out.iterdir()):
            return
    if difference := kind.difference(out):
        raise UsageError(f"{out} exists, and {difference}: not replaced", "choose another --out", code="foreign-output")
    if not force:
        hint = f"{instead}replace this {kind.name} with --force, or choose another --out"
        raise UsageError(f"{out} exists", hint, code="output-exists")


def existing_parent(out: Path) -> Path:
    """Parent folder of a file, or the nearest ancestor that exists."""
    return next(folder for folder in Path(os.path.realpath(out)).parents if folder.exists())


def _put_new(part: Path, target: Path) -> None:
    """Rename a file or folder to `target` if it is free or an empty folder, else to a free name beside it."""
    end = "" if part.is_dir() else target.suffix
    further = (target.with_name(f"{target.name.removesuffix(end)}-{number}{end}") for number in count(2))
    place = next(name for name in chain([target], further) if _is_put(part, name))
    if place != target:
        hint = f"this output is in {place}"
        raise UsageError(f"{target} exists: written by another process", hint, code="written-meanwhile")


def _is_put(part: Path, target: Path) -> bool:
    """Rename a file or folder to `target`; False if it exists and is not an empty folder."""
    try:
        if part.is_dir():
            part.rename(target)
        else:
            os.link(part, target)
            part.unlink()
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        if error.errno not in _NO_LINK or part.is_dir():
            raise
        part.replace(target)
    return True


def _put_in_place(part: Path, target: Path) -> None:
    """Rename a folder to `target`, and an existing one to `part`."""
    if not target.exists():
        part.rename(target)
    elif not _exchange(part, target):
        # Without exchange, a kill between the two renames leaves the old folder under its hidden name.
        old = part.with_suffix(".old")
        target.rename(old)
        try:
            part.rename(target)
        except OSError:
            old.rename(target)
            raise
        old.rename(part)


def _exchange(part: Path, target: Path) -> bool:
    """Exchange two names atomically; False if unsupported."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if not rename(_AT_FDCWD, os.fsencode(part), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE):
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(target))
