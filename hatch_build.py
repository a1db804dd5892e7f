"""Compiles the C part of ckh into the wheel, where there is a C compiler; without one the wheel is pure.

A release also has the addresses of the repository that builds it, and the manual page, where `docs/_man.py` wrote it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_SOURCES = Path("ckh", "ranking", "csrc")
_LIBRARY = Path("ckh", "ranking", "_ckh_rank.so")
# Features must be Python's bit for bit: no fused multiply-add.
_FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-ffp-contract=off", "-DCKH_SIZES_ONLY")


class AddressHook(MetadataHookInterface):  # type: ignore[misc]
    """Addresses of the project: of the repository whose workflow builds it (GITHUB_SERVER_URL, GITHUB_REPOSITORY)."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add them; a build elsewhere has none."""
        server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
        if server and name:
            home = f"{server}/{name}"
            pages = {"Source": "", "Issues": "/issues", "Changelog": "/blob/main/CHANGELOG.md"}
            metadata["urls"] = {label: home + page for label, page in pages.items()}


class CBuildHook(BuildHookInterface):  # type: ignore[misc] # hatchling may be unknown to the type checker
    """Builds `_ckh_rank.so`: into a wheel, or for an editable installation beside its source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, add the library to the wheel and tag it for this platform; or say why not, and go on."""
        root = Path(self.root)
        if (page := root / "docs" / "ckh.1").is_file():
            build_data["shared_data"][str(page)] = "share/man/man1/ckh.1"
        if version == "editable":
            built = _compile(root, root / _LIBRARY)
        else:
            self._folder = tempfile.TemporaryDirectory()
            built = _compile(root, Path(self._folder.name, _LIBRARY.name))
            if built is not None:
                build_data["force_include"][str(built)] = _LIBRARY.as_posix()
        if built is None:
            return
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")


def _compile(root: Path, library: Path) -> Path | None:
    compiler = _compiler()
    if compiler is None:
        print("no C compiler: ranking will run in NumPy", file=sys.stderr)  # noqa: T201
        return None
    part = library.with_name(f".{library.name}.{os.getpid()}")
    # ckh.c is for exports: it has the kinds of problems, which Python has no need of in C.
    sources = [str(path) for path in sorted((root / _SOURCES).glob("*.c")) if path.name != "ckh.c"]
    command = [*compiler, *_FLAGS, "-o", str(part), *sources, "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        part.unlink(missing_ok=True)
        print(f"{shlex.join(command)} failed, ranking will run in NumPy:\n{done.stderr}", file=sys.stderr)  # noqa: T201
        return None
    part.replace(library)
    return library


def _compiler() -> list[str] | None:
    """$CC, or the first of cc, gcc and clang; nothing on Windows, whose compilers take other options."""
    if os.name == "nt":
        return None
    named = shlex.split(os.environ.get("CC", ""))
    found = [command for command in ([named] if named else [["cc"], ["gcc"], ["clang"]]) if shutil.which(command[0])]
    return found[0] if found else None
