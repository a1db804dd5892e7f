"""`python -m tests.emulator.assemble`: has LLVM's assembler translate the instructions that the tests run.

Completes instructions.txt: architecture, text and words of each; the words of new lines may be missing. Needs a HIP
compiler (HIPCC).
"""

from __future__ import annotations

import os
import shlex
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from tests.emulator.wave import TEXTS

_MARK = 0xDEADBEEF  # between instructions
_SECTION = struct.Struct("<IIQQQQIIQQ")


def _text(elf: bytes) -> bytes:
    """The content of the section .text."""
    (sections_at,) = struct.unpack_from("<Q", elf, 40)
    count, names = struct.unpack_from("<HH", elf, 60)
    sections = [_SECTION.unpack_from(elf, sections_at + _SECTION.size * number) for number in range(count)]
    for name, _, _, _, offset, size, *_ in sections:
        start = sections[names][4] + name
        if elf[start : elf.index(b"\0", start)] == b".text":
            return elf[offset : offset + size]
    raise AssertionError("no .text")


def assemble(arch: str, texts: list[str]) -> list[list[int]]:
    """The words of each instruction."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "a.s"), Path(folder, "a.o")
        source.write_text("".join(f"{text}\n.long {_MARK:#x}\n" for text in texts))
        target = ["-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}"]
        subprocess.run([*shlex.split(os.environ["HIPCC"]), *target, "-c", str(source), "-o", str(made)], check=True)
        code = _text(made.read_bytes())
    words = struct.unpack(f"<{len(code) // 4}I", code)
    result: list[list[int]] = [[]]
    for word in words:
        if word == _MARK:
            result.append([])
        else:
            result[-1].append(word)
    return result[: len(texts)]


def main() -> None:
    """Translate all that instructions.txt lists."""
    by_arch: dict[str, list[str]] = {}
    for line in TEXTS.read_text(encoding="utf-8").splitlines():
        arch, text, *_ = line.split(" | ")
        by_arch.setdefault(arch, []).append(text)
    lines = [
        f"{arch} | {text} | {' '.join(f'{word:08x}' for word in words)}\n"
        for arch, texts in by_arch.items()
        for text, words in zip(texts, assemble(arch, texts), strict=True)
    ]
    TEXTS.write_text("".join(lines), encoding="utf-8")
    print(f"{len(lines)} instructions")  # noqa: T201


def disassembler() -> list[str]:
    """LLVM's disassembler: $CKH_LLVM_OBJDUMP, ROCm's, that of unpacked packages, or the one on PATH."""
    if named := os.environ.get("CKH_LLVM_OBJDUMP"):
        return shlex.split(named)
    rocm = Path(os.environ.get("ROCM_PATH", "/opt/rocm"))
    if (own := rocm / "llvm/bin/llvm-objdump").exists():
        return [str(own)]
    root = rocm / "root"
    for result in sorted(root.glob("usr/lib/llvm-*/bin/llvm-objdump")):
        folders = f"{root}/usr/lib/x86_64-linux-gnu:{result.parents[1]}/lib"
        return [str(root / "lib64/ld-linux-x86-64.so.2"), "--library-path", folders, str(result)]
    return [path] if (path := shutil.which("llvm-objdump")) else []


if __name__ == "__main__":
    main()
