"""The cache of compiled kernels: libraries by a hash of all that they depend on, each verified before use.

A file consists of the library, its metadata (`Binary`), and a digest of both, and is renamed into place: several
processes may build the same kernel at once, none ever reads a partial file, and damaged files are rebuilt. The loader
ignores data after a library. The library of a unit of several kernels is stored once under its own hash; the file of
each kernel names the unit and its index, and `loadable` makes a loadable library of that.

Compilers work in folders that are locked by the process running them. Folders left by processes that were killed are
removed by the next process.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import re
import shutil
import stat
import struct
import tempfile
from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ckh.archs import HOST
from ckh.bench.codegen.unit import chosen
from ckh.bench.compilation.binary import binary_from_values, fault_of_library
from ckh.bench.isolated.kernel_library import ENTRY_POINTS
from ckh.errors import DataError
from ckh.files.locks import FileLock
from ckh.files.paths import cache_dir, why_unsafe, write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ckh.bench.compilation.binary import Binary

_END = struct.Struct("<I32s8s")  # length of the text, digest, marker
_MARK = b"ckh-so-2"
_MOST_BYTES = 1 << 30  # maximum size of a library; a CK Tile kernel's has some megabytes
_MOST_TEXT_BYTES = 1 << 16
_MOST_TIMES = 2000  # sampled for an estimate
_FOLDER = "kernels"
_WORKSHOP, _LOCK = "building-", "lock"
_LIBRARY, _UNIT = ".so", ".unit"
_FILE = re.compile(rf"([0-9a-f]{{32}})({re.escape(_LIBRARY)}|{re.escape(_UNIT)})")


@dataclass(frozen=True, slots=True)
class Compilation:
    """Architecture, operation and kind of a compiled kernel, and its share of the CPU seconds."""

    arch: str
    op: str
    kind: str
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Part:
    """A kernel in the library of a unit: the library's name, the kernel's index, and the number of kernels."""

    unit: str
    number: int
    count: int


@dataclass(frozen=True, slots=True)
class KernelCost:
    """CPU seconds of compilation, and library size in bytes, of a kernel."""

    seconds: float
    bytes: float


@dataclass(frozen=True, slots=True)
class CachedLibrary:
    """A verified library in the cache, with its metadata."""

    path: Path
    binary: Binary | None


class KernelCache:
    """Libraries in a subfolder of the cache folder, created on the first build."""

    def __init__(self, name: str = _FOLDER) -> None:
        self._name = name
        self.folder = cache_dir() / name
        self._whole_units: set[str] = set()

    def path(self, key: str) -> Path:
        """Path of the library of a source hash."""
        return self.folder / key[:2] / f"{key}{_LIBRARY}"

    def find(self, key: str) -> CachedLibrary | None:
        """Return the library of a source hash if it is intact."""
        path = self.path(key)
        content = _read(path)
        known = None if content is None else _known(content)
        if known is None or not (known.get("part") is None or self._has_unit(known["part"]["unit"])):
            return None
        binary = known["binary"]
        return CachedLibrary(path, None if binary is None else binary_from_values(binary))

    def _has_unit(self, name: str) -> bool:
        """True if the library of a unit is intact."""
        if name not in self._whole_units:
            content = _read(_unit_path(self.folder, name))
            if content is None or _unit_name(content) != name:
                return False
            self._whole_units.add(name)
        return True

    def put_unit(self, library: Path) -> str:
        """Copy the library of a unit into the cache; returns its name."""
        name = _unit_name(library.read_bytes())
        copy = library.with_suffix(_UNIT)
        shutil.copyfile(library, copy)
        _move(copy, _unit_path(self.folder, name))
        return name

    def put(
        self,
        key: str,
        library: Path,
        binary: Binary | None,
        compilation: Compilation | None = None,
        part: Part | None = None,
    ) -> CachedLibrary:
        """Move a library without `fault` into the cache; for a part, write a file that refers to the unit's library."""
        known = {"binary": binary and asdict(binary), "compilation": compilation and asdict(compilation)}
        text = json.dumps(known | ({"part": asdict(part)} if part else {})).encode()
        content = (b"" if part else library.read_bytes()) + text
        library.write_bytes(content + _END.pack(len(text), _digest(content, len(text)), _MARK))
        _move(library, self.path(key))
        return CachedLibrary(self.path(key), binary)

    def has(self, key: str) -> bool:
        """True if the files of a library exist, intact or not."""
        known = _known_of(self.path(key))
        part = None if known is None else known.get("part")
        return known is not None and (part is None or _unit_path(self.folder, str(part["unit"])).exists())

    def files(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Files of libraries by name, for the cache of another machine."""
        contents: dict[str, bytes] = {}
        for key in keys:
            content = _read(self.path(key))
            known = None if content is None else _known(content)
            if content is None or known is None:
                raise DataError(
                    f"the kernel {key} was removed from the cache {self.folder}", "start again", code="cache"
                )
            contents[f"{key}{_LIBRARY}"] = content
            if (part := known.get("part")) is not None:
                unit = _unit_path(self.folder, part["unit"])
                contents.setdefault(unit.name, unit.read_bytes())
        return contents

    def adopt(self, files: Mapping[str, bytes]) -> None:
        """Store files of another machine's cache (see `files`)."""
        cache_dir(self._name)
        for name, content in files.items():
            match = _FILE.fullmatch(name)
            if match is None or not (_known(content) if match[2] == _LIBRARY else _unit_name(content) == match[1]):
                raise DataError(
                    f"the kernel {name[:40]!r} received from another machine is damaged",
                    "compile it again",
                    code="damaged",
                )
            path = self.folder / name[:2] / name
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_atomic(path, content)
            path.chmod(0o700)

    def cost_each(self, arch: str, op: str) -> KernelCost | None:
        """Mean cost of a kernel of an operation, if known.

        Uses cached kernels of the architecture or, if there are none, of other GPUs.
        """
        costs = [cost for _, cost in self._seen(arch, op)]
        return KernelCost(fmean(c.seconds for c in costs), fmean(c.bytes for c in costs)) if costs else None

    def seconds_by_kind(self, arch: str, op: str) -> dict[str, tuple[float, int]]:
        """Mean CPU seconds to compile a kernel of an operation, by kind, with counts; see `cost_each`."""
        by_kind: defaultdict[str, list[float]] = defaultdict(list)
        for compilation, _ in self._seen(arch, op):
            by_kind[compilation.kind].append(compilation.cpu_s)
        return {kind: (fmean(seconds), len(seconds)) for kind, seconds in by_kind.items()}

    def _seen(self, arch: str, op: str) -> list[tuple[Compilation, KernelCost]]:
        seen = islice(filter(None, map(_compiled, self.folder.glob("??/*.so"))), _MOST_TIMES)
        same = [pair for pair in seen if pair[0].op == op and (pair[0].arch == HOST) == (arch == HOST)]
        return [pair for pair in same if pair[0].arch == arch] or same

    @contextmanager
    def workshop(self) -> Iterator[Path]:
        """Create a temporary folder to compile in, removed at the end of the context.

        After a kill -9 a later process removes it.
        """
        cache_dir(self._name)
        for left in self.folder.glob(f"{_WORKSHOP}*"):
            if (abandoned := _lock(left)) is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(abandoned)
        folder, lock = _new_workshop(self.folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def fault(library: Path) -> str:
    """Reason why a compiler's output is not the library of a kernel, or an empty string."""
    try:
        state = library.lstat()
        if not stat.S_ISREG(state.st_mode):
            return "not a regular file"
        if state.st_size > _MOST_BYTES:
            return f"larger than {_MOST_BYTES >> 30} GiB"
        return fault_of_library(library.read_bytes(), ENTRY_POINTS)
    except FileNotFoundError:
        return "no such file"


def loadable(path: str) -> str:
    """Loadable file of a library, cached or not: for a part of a unit, a copy with the lifetime of this process."""
    file = Path(path)
    known = _known_of(file)
    if known is None or known.get("part") is None:
        return path
    part = Part(**known["part"])
    folder = file.parent.parent
    copy = _folder_of_copies(folder) / file.name
    if not copy.exists():  # this process may have loaded it, and would run whatever overwrites it
        new = copy.with_suffix(".new")
        new.write_bytes(chosen(_unit_path(folder, part.unit).read_bytes(), part.number))
        new.chmod(0o700)
        new.replace(copy)
    return str(copy)


@cache
def _folder_of_copies(cached: Path) -> Path:
    """Temporary folder of this process, removed when it ends or by a later process."""
    folder, _ = _new_workshop(cached)
    process = os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == process else None)
    return folder


def _read(path: Path) -> bytes | None:
    """Content of a cache file, if it exists."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if reason := why_unsafe(path):
        raise DataError(f"the kernel {path} is not loaded: {reason}", "delete it", code="unsafe-cache")
    return content


def _move(file: Path, path: Path) -> None:
    """Move a file into the cache, readable by the owner only."""
    file.chmod(0o700)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    file.replace(path)


def _unit_path(folder: Path, name: str) -> Path:
    return folder / name[:2] / f"{name}{_UNIT}"


def _unit_name(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _known(content: bytes) -> dict[str, Any] | None:
    """Metadata stored in a complete file."""
    if len(content) < _END.size:
        return None
    length, digest, mark = _END.unpack(content[-_END.size :])
    body = content[: -_END.size]
    if mark != _MARK or digest != _digest(body, length):
        return None
    return dict(json.loads(body[len(body) - length :]))


def _known_of(path: Path) -> dict[str, Any] | None:
    """Metadata of a library, read from the end of its file, which may be damaged or foreign."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(size - _END.size)
            length, _, mark = _END.unpack(file.read())
            if mark != _MARK or length > _MOST_TEXT_BYTES:
                return None
            file.seek(size - _END.size - length)
            return dict(json.loads(file.read(length)))
    except (OSError, ValueError, TypeError):  # missing, truncated, or not of a kernel
        return None


def _compiled(path: Path) -> tuple[Compilation, KernelCost] | None:
    """Compilation of a cached library, if stored, and its share of the cost."""
    try:
        known = _known_of(path) or {}
        values = known["compilation"]
        compilation = Compilation(str(values["arch"]), str(values["op"]), str(values["kind"]), float(values["cpu_s"]))
        size = float(path.stat().st_size)
        if (part := known.get("part")) is not None:
            size += _unit_path(path.parent.parent, str(part["unit"])).stat().st_size / int(part["count"])
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):  # truncated, damaged, or not of a kernel
        return None
    return (compilation, KernelCost(compilation.cpu_s, size)) if 0 <= compilation.cpu_s < float("inf") else None


def _digest(content: bytes, text_length: int) -> bytes:
    return hashlib.sha256(content + text_length.to_bytes(4, "little")).digest()


def _new_workshop(parent: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_WORKSHOP, dir=parent))
        lock = _lock(folder)
        if lock is not None:  # otherwise another process is removing it as abandoned
            return folder, lock


def _lock(folder: Path) -> int | None:
    """Lock of a working folder, held as long as its process lives; None if another process has it, or it is gone."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with suppress(FileNotFoundError):  # removed in the meantime, on a file system without locks
        if FileLock(folder / _LOCK).take(lock) and (folder / _LOCK).exists():
            return lock
    os.close(lock)
    return None
