"""What `ckh explain` reads in a folder of code objects that ckh did not make, as AITER's source package has them.

    python benchmarks/foreign_code.py FOLDER [--arch gfx950] [--every 10] [--objdump llvm-objdump]

Each code object and library below FOLDER is explained, and its outcome counted: with a loop, without one, persistent,
calling functions, or the error. With --objdump, the number of instructions of each function is compared with the
disassembler's. AITER's are in `hsa/` of `pip download --no-binary :all: --no-deps amd-aiter`.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.errors import CkhError
from ckh.isa.codefile import read_code
from ckh.isa.describe import Asked, anatomy_of
from ckh.text.tabletext import table_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.isa.anatomy import Anatomy

SUFFIXES = (".co", ".hsaco", ".so")
_PADDING = {"s_nop", "s_code_end", "v_cndmask_b32_e32"}  # the last one is of zeros
_LABEL, _LINE = re.compile(r"^[0-9a-f]+ <(.+)>:$"), re.compile(r"^\t(\S+).*// [0-9A-F]+:")


def outcome(anatomy: Anatomy) -> str:
    """What is said about the described function."""
    main = next(function for function in anatomy.functions if function.runs)
    loop = "no loop" if anatomy.trip is None else "a loop"
    return ", ".join([loop, *["over tiles"] * main.over_tiles, *["calls functions"] * main.calls])


def disassembled(command: str, path: Path, arch: str, names: set[str]) -> dict[str, int]:
    """Instructions of each function, as `llvm-objdump` prints them, without padding behind the last."""
    text = subprocess.run([command, "-d", f"--mcpu={arch}", str(path)], capture_output=True, text=True, check=True)
    lines: dict[str, list[str]] = {name: [] for name in names}
    name = ""
    for line in text.stdout.splitlines():
        if label := _LABEL.match(line):  # hand-written functions have labels in them
            name = label[1] if label[1] in names else name
        elif name and (instruction := _LINE.match(line)):
            lines[name].append(instruction[1])
    return {name: _ended(words) for name, words in lines.items()}


def _ended(words: list[str]) -> int:
    return len(list(itertools.dropwhile(_PADDING.__contains__, reversed(words))))


def explained(paths: list[Path], arch: str | None, objdump: str | None) -> Iterator[tuple[str, Path]]:
    """The outcome of each file."""
    for path in paths:
        try:
            code = read_code(path, arch)
            anatomy = anatomy_of(code, Asked(path.name, str(path)))
        except CkhError as error:
            yield f"error: {error.message.replace(str(path), 'FILE')}", path
            continue
        yield outcome(anatomy), path
        if objdump is not None:
            theirs = disassembled(objdump, path, code.arch, {function.name for function in code.functions})
            ours = {function.name: function.instructions for function in anatomy.functions}
            equal = all(theirs[name] == count for name, count in ours.items())
            yield f"{'as many' if equal else 'other'} instructions as objdump's", path


def main() -> None:
    """Explain all, and print counts with an example of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", help="architecture of libraries for several")
    parser.add_argument("--every", type=int, default=1, help="of so many files, read one")
    parser.add_argument("--objdump", help="llvm-objdump that knows the architectures")
    args = parser.parse_args()
    paths = sorted(path for path in args.folder.rglob("*") if path.suffix in SUFFIXES)[:: args.every]
    if not paths:
        parser.error(f"{args.folder} has no {', '.join(SUFFIXES)}")
    found = dict[str, list[Path]]()
    for what, path in explained(paths, args.arch, args.objdump):
        found.setdefault(what, []).append(path)
    rows = [
        (what, str(len(files)), str(files[0].relative_to(args.folder)))
        for what, files in sorted(found.items(), key=lambda item: -len(item[1]))
    ]
    print(table_text(f"{len(paths)} files", ("outcome", "files", "for example"), rows))


if __name__ == "__main__":
    main()
