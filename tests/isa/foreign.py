"""Code objects that ckh did not make: the sources in `foreign/`, compiled and disassembled by LLVM.

`python -m tests.isa.foreign` makes `foreign.json` of them (HIPCC, ROCM_PATH): the code, and for each kernel the numbers
of instructions of the function and of its main loop, by `llvm-objdump` alone.
"""

from __future__ import annotations

import base64
import json
import lzma
import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.emulator.assemble import disassembler

FOLDER = Path(__file__).with_name("foreign")
TABLE = FOLDER.with_suffix(".json")
_LINE = re.compile(r"^\t(\S+) ?(.*?) *// ([0-9A-F]+): [0-9A-F ]+(?:<(.+)>)?$", re.MULTILINE)
_LABEL = re.compile(r"^([0-9a-f]+) <(\w+)>:$", re.MULTILINE)
_PADDING = {"s_nop", "s_code_end", "v_cndmask_b32_e32"}  # the last one is of zeros
_DEVICE_ONLY = ("-x", "hip", "-O3", "--offload-device-only")


def table() -> dict[str, Any]:
    """What is known of each code object, by name."""
    return dict(json.loads(TABLE.read_text(encoding="utf-8")))


def written(name: str, folder: Path) -> Path:
    """The code object, in a file."""
    path = folder / f"{name}.co"
    path.write_bytes(lzma.decompress(base64.b64decode("".join(table()[name]["code"]))))
    return path


def _program(name: str) -> list[str]:
    *loader, path = disassembler()
    return [*loader, *(("--argv0", name) if loader else ()), path.replace("llvm-objdump", name)]


def _compiled(source: Path, archs: list[str], folder: Path) -> Path:
    """The code object of a source, for two architectures as a compressed bundle."""
    made, hipcc = folder / f"{source.stem}.co", shlex.split(os.environ["HIPCC"])
    if source.suffix == ".s":
        part = ["-target", "amdgcn-amd-amdhsa", f"-mcpu={archs[0]}", "-c", str(source), "-o", str(folder / "part.o")]
        subprocess.run([*hipcc, *part], check=True)
        subprocess.run([*_program("ld.lld"), "-shared", str(folder / "part.o"), "-o", str(made)], check=True)
        return made
    bundle = ["--gpu-bundle-output", "--offload-compress"] if len(archs) > 1 else ["--no-gpu-bundle-output"]
    target = [f"--offload-arch={arch}" for arch in archs]
    subprocess.run([*hipcc, *_DEVICE_ONLY, *bundle, *target, str(source), "-o", str(made)], check=True)
    return made


def _disassembled(path: Path, arch: str, names: list[str]) -> dict[str, tuple[int, int]]:
    """Instructions of each kernel, and of its longest loop that has no other in it."""
    command = [*_program("llvm-objdump"), "-d", f"--mcpu={arch}", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    labels = {name: int(at, 16) for at, name in _LABEL.findall(text)}
    starts = sorted(at for name, at in labels.items() if name in names or name.startswith("_Z"))
    result = {}
    for name in names:
        end = next((at for at in starts if at > labels[name]), 1 << 62)
        lines = [line for line in _LINE.findall(text) if labels[name] <= int(line[2], 16) < end]
        while lines and lines[-1][0] in _PADDING:
            lines.pop()
        places = {int(at, 16): number for number, (_, _, at, _) in enumerate(lines)}
        loops = []
        for number, (word, operand, _, target) in enumerate(lines):
            label, _, offset = (target or operand).partition("+")
            first = places.get(labels.get(label, -1) + int(offset or "0", 16), number + 1)
            loops += [(first, number)] * (word.startswith(("s_branch", "s_cbranch")) and first <= number)
        inner = [(a, b) for a, b in loops if not any((a, b) != (c, d) and a <= c <= d <= b for c, d in loops)]
        result[name] = len(lines), max((b - a + 1 for a, b in inner), default=0)
    return result


def main() -> None:
    """Compile and disassemble all, by the first line of each source: its architectures and kernels."""
    made = {}
    for source in sorted(FOLDER.glob("*.[sh]*")):
        archs, names = (part.split() for part in source.read_text(encoding="utf-8").splitlines()[0][3:].split(": "))
        with tempfile.TemporaryDirectory() as work:
            path = _compiled(source, archs, Path(work))
            known = {} if len(archs) > 1 else _disassembled(path, archs[0], names)
            if len(archs) > 1:  # objdump reads no bundle
                for arch in archs:
                    known |= _disassembled(_compiled(source, [arch], Path(work)), arch, names)
                path = _compiled(source, archs, Path(work))
            code = base64.b64encode(lzma.compress(path.read_bytes(), preset=9)).decode()
            made[source.stem] = {"archs": archs, "functions": known, "code": re.findall(".{1,110}", code)}
    TABLE.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
