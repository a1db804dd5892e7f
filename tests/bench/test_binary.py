"""What is known of a compiled kernel: resources as the compiler tells them, the code's hash, and both as text."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ckh.bench.binary import Binary, binary_from_text, binary_text, code_hash, parse_resources
from ckh.resources import Resources
from tests.bench.fake_hipcc import REMARKS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FUNCTION = "GroupedConvolution"
LABEL = "ckh-kernel:"
RESOURCES = Resources(96, 16, 40, 16384, 0, 2, 0, 4)
ONE = REMARKS.replace("@scratch@", "0")


def remarks(function: str, *values: int) -> str:
    """What the compiler says of a function: SGPRs, VGPRs, AGPRs, scratch, occupancy, both spills, LDS."""
    names = ("TotalSGPRs", "VGPRs", "AGPRs", "ScratchSize [bytes/lane]", "Occupancy [waves/SIMD]", "SGPRs Spill")
    last = ("VGPRs Spill", "LDS Size [bytes/block]")
    pairs = zip((*names, *last), values, strict=True)
    lines = [f"Function Name: {function}", *(f"    {name}: {n}" for name, n in pairs)]
    return "".join(f"a.hpp:7:0: remark: {line} [-Rpass-analysis=kernel-resource-usage]\n" for line in lines)


def test_the_resources_of_one_function() -> None:
    """Every number is found under its own name; what is no number is passed over."""
    assert parse_resources(ONE, FUNCTION) == RESOURCES


def test_the_most_of_several_functions_and_the_least_occupancy() -> None:
    """A kernel is as many functions as its loop has ends; functions that are not its own do not count."""
    log = (
        remarks("_Zmemset", 200, 201, 202, 203, 1, 205, 206, 207)
        + remarks("_ZN33GroupedConvolutionForwardKernelA", 10, 90, 30, 0, 5, 1, 7, 100)
        + "a.hpp:9:1: warning: unused variable 'VGPRs: 999' [-Wunused]\n    9 | int x;\n"
        + remarks("_Zother", 300, 301, 302, 303, 2, 305, 306, 307)
        + remarks("_ZN33GroupedConvolutionForwardKernelB", 20, 80, 40, 8, 3, 0, 9, 50)
    )
    assert parse_resources(log, FUNCTION) == Resources(
        vgprs=90, agprs=40, sgprs=20, lds_bytes=100, scratch_bytes=8, vgpr_spills=9, sgpr_spills=1, occupancy=3
    )


def test_older_compilers_say_sgprs() -> None:
    """Before they told VCC and the like apart, the line was called SGPRs."""
    assert parse_resources(ONE.replace("TotalSGPRs", "SGPRs"), FUNCTION) == RESOURCES


def test_an_architecture_without_accumulation_registers_has_none() -> None:
    """The compiler leaves the line out then."""
    lines = [line for line in ONE.splitlines() if "AGPRs" not in line]
    assert parse_resources("\n".join(lines), FUNCTION) == replace(RESOURCES, agprs=0)


@pytest.mark.parametrize("log", ["", "warning: nothing\n", remarks("_Zmemset", *range(8)), "remark: VGPRs: 5\n"])
def test_a_compiler_that_does_not_tell(log: str) -> None:
    """Without a remark on a function of the kernel nothing is known, which is not zero."""
    assert parse_resources(log, FUNCTION) is None


@pytest.fixture
def compile_library(tmp_path: Path) -> Callable[[str, str, str], Path]:
    """Make a library with a labelled name and a function that returns a number."""

    def make(file: str, name: str, answer: str = "42") -> Path:
        path = tmp_path / f"{file}.so"
        source = f'const char label[512] = "{LABEL}{name}";\nint answer(void) {{ return {answer}; }}\n'
        command = ["gcc", "-shared", "-fPIC", "-s", "-Wl,--build-id=none", "-x", "c", "-o", str(path), "-"]
        subprocess.run(command, input=source, text=True, check=True)
        return path

    return make


def test_libraries_that_differ_in_their_label_are_the_same_code(
    compile_library: Callable[..., Path], tmp_path: Path
) -> None:
    """Neither a kernel's name nor the length of it is code; a different instruction is."""
    first = compile_library("first", "forward_16x16x64_intrawave")
    second = compile_library("second", "forward_16x16x64_interwave_padded")
    other = compile_library("other", "forward_16x16x64_intrawave", "43")
    assert first.read_bytes() != second.read_bytes()
    assert code_hash(first, LABEL) == code_hash(second, LABEL)
    assert code_hash(first, LABEL) != code_hash(other, LABEL)
    assert first.read_bytes() != b""
    assert len(code_hash(first, LABEL)) == 32


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (b"\x01ckh-kernel:a\0\0\x02", b"\x01ckh-kernel:bb\0\x02", True),
        (b"\x01ckh-kernel:a\0\0\x02", b"\x01ckh-kernel:a\0\0\x03", False),
        (b"\x01ckh-kernel:a\0\0\x02", b"\x02ckh-kernel:a\0\0\x02", False),
        (b"ckh-kernel:a\0\0", b"ckh-kernel:a\0\0\0", False),
        (b"ckh-kernel:a\0ckh-kernel:b\0", b"ckh-kernel:c\0ckh-kernel:d\0", True),
        (b"no label", b"no libel", False),
        (b"ckh-kernel:\n\xff\0", b"ckh-kernel:ab\0", True),
    ],
)
def test_only_the_label_is_left_out(tmp_path: Path, first: bytes, second: bytes, same: bool) -> None:
    """Up to its zero, and in its place: all other bytes count."""
    (tmp_path / "first").write_bytes(first)
    (tmp_path / "second").write_bytes(second)
    hashes = [code_hash(tmp_path / name, LABEL) for name in ("first", "second")]
    assert (hashes[0] == hashes[1]) is same


@pytest.mark.parametrize("binary", [Binary("ab12", RESOURCES), Binary("ab12", None)])
def test_what_is_kept_is_read_back(binary: Binary) -> None:
    """With and without resources."""
    assert binary_from_text(binary_text(binary)) == binary
