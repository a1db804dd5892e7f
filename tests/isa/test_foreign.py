"""Code objects that ckh did not make are explained with the numbers of LLVM's disassembler, or refused."""

from __future__ import annotations

import json
import struct
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from ckh.cli import run
from ckh.errors import ExitCode
from ckh.isa.codefile import read_code
from ckh.isa.describe import Asked, anatomy_of
from tests.isa.foreign import table, written

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("decoder")
_KNOWN = [
    (name, arch, kernel, *numbers)
    for name, known in table().items()
    for arch in known["archs"]
    for kernel, numbers in known["functions"].items()
    if arch != "gfx1100" and numbers[0]
]


@pytest.fixture
def explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Calls `ckh explain` with a code object: its document, or the exit code and code of its error."""

    def explain(name: str, kernel: str, *more: str, file: Path | None = None) -> Any:
        code = run(["explain", kernel, "--code-object", str(file or written(name, tmp_path)), *more, "--json"])
        result = json.loads(capsys.readouterr().out)
        return (code, result["code"]) if code else result

    return explain


def _main(document: Any) -> Any:
    return next(function for function in document["functions"] if function["runs"])


@pytest.mark.parametrize(("name", "arch", "kernel", "instructions", "loop"), _KNOWN)
def test_instructions_are_the_disassemblers(
    name: str, arch: str, kernel: str, instructions: int, loop: int, explained: Any
) -> None:
    """Of each function, with and without stated sizes, and of the longest of its innermost loops."""
    main = _main(explained(name, kernel, "--arch", arch))
    assert (main["name"], main["instructions"], main["loop_instructions"]) == (kernel, instructions, loop)


@pytest.mark.parametrize(
    ("name", "calls", "over_tiles", "bound_by", "advice"),
    [
        ("calls", True, False, "waves", "calls functions, which may have one"),
        ("tiles", False, True, "waves", "matrix is the busiest pipe, 32 clocks"),
        ("adds", False, False, "waves", "matrix is the busiest pipe, 16 clocks"),
        ("threads", False, False, "waves", "vector ALU is the busiest pipe, 160 clocks per iteration"),
        ("lds", False, False, "LDS", "LDS is the busiest pipe, 64 clocks"),
        ("no_loop", False, False, "waves", "it has no loop: "),
    ],
)
def test_what_is_said(name: str, calls: bool, over_tiles: bool, bound_by: str, advice: str, explained: Any) -> None:
    """Calls, loops over tiles, the limit of blocks, and the busiest pipe."""
    document = explained(name, name)
    main = _main(document)
    assert (main["calls"], main["over_tiles"], main["bound_by"]) == (calls, over_tiles, bound_by)
    assert advice in document["advice"]
    assert "addresses" not in document["advice"]


@pytest.mark.parametrize(
    ("name", "kernel", "more", "expected"),
    [
        ("nothing", "nothing", (), (ExitCode.BAD_DATA, "damaged")),
        ("nothing", "other", (), (ExitCode.USAGE, "unknown-name")),
        ("rdna", "rdna", (), (ExitCode.USAGE, "usage")),
        ("packed", "packed", (), (ExitCode.BAD_DATA, "damaged")),  # for which of its GPUs?
        ("packed", "packed", ("--arch", "gfx950"), (ExitCode.BAD_DATA, "damaged")),
    ],
)
def test_what_is_refused(
    name: str, kernel: str, more: tuple[str, ...], expected: tuple[ExitCode, str], explained: Any
) -> None:
    """Functions without instructions, unknown names, and code for other GPUs."""
    assert explained(name, kernel, *more) == expected


def test_a_library_of_several_sources(tmp_path: Path) -> None:
    """It has a bundle for each, compressed or not: the functions of all are read."""
    packed = written("packed", tmp_path).read_bytes()
    file = tmp_path / "library.so"
    file.write_bytes(b"\x7fELF" + bytes(60) + packed + bytes(100) + packed)
    assert [function.name for function in read_code(file, "gfx942").functions] == ["packed"] * 2


def test_forms_of_compressed_bundles(tmp_path: Path) -> None:
    """Headers of three versions and both methods hold the same code; damaged ones are refused."""
    code = written("calls", tmp_path).read_bytes()
    name = b"hipv4-amdgcn-amd-amdhsa--gfx942"
    at = 8 + 24 + 24 + len(name)
    bundle = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<QQQQ", 1, at, len(code), len(name)) + name + code
    file, body = tmp_path / "packed.co", zlib.compress(bundle)
    for version, sizes in ((1, "<I"), (2, "<II"), (3, "<QQ")):
        lengths = [0, len(bundle)][-len(sizes) + 1 :]
        head = b"CCOB" + struct.pack("<HH", version, 0) + struct.pack(sizes, *lengths) + bytes(8)
        file.write_bytes(head + body)
        assert [function.name for function in read_code(file, None).functions] == ["calls"]


def _cut(data: bytes) -> bytes:
    return data[:-200]


def _large(data: bytes) -> bytes:
    at = 12 if data[4] == 2 else 16
    return data[:at] + b"\xff\xff\xff\xff" + data[at + 4 :]


def _torn(data: bytes) -> bytes:
    return data[:200] + bytes(100) + data[300:]


@pytest.mark.parametrize("damage", [_cut, _large, _torn, lambda data: data[:20]])
def test_damaged_compressed_bundles(damage: Any, tmp_path: Path, explained: Any) -> None:
    """A truncated or torn one, and one that states a size beyond its limit, end in one line."""
    file = tmp_path / "damaged.co"
    file.write_bytes(damage(written("packed", tmp_path).read_bytes()))
    assert explained("packed", "packed", "--arch", "gfx942", file=file) == (ExitCode.BAD_DATA, "damaged")


@pytest.mark.slow
def test_products_without_a_loop(least: Path) -> None:
    """They are one iteration, whatever their number: without a kernel's name its tiles are unknown."""
    whole = read_code(least, None, ("GroupedConvolutionForwardKernel",))
    forms = anatomy_of(whole, Asked("GroupedConvolutionForwardKernel", "")).functions
    assert {form.trips for form in forms if not form.loop_instructions} == {"1"}
