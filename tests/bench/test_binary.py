"""Metadata of a compiled kernel: resources reported by the compiler, the code's hash, and both as text."""

from __future__ import annotations

import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from ckh.bench.compilation.binary import calling_functions, parse_resources
from ckh.emulator.codeobject import BUNDLE_MAGIC, CodeObject, calls_functions, code_in
from ckh.schema import Resources
from tests.bench.fake_hipcc import REMARKS

FUNCTION = "GroupedConvolution"
LABEL = "ckh-kernel:"
RESOURCES = Resources(96, 16, 40, 16384, 0, 2, 0, 4)
ONE = REMARKS.replace("@scratch@", "0")


def remarks(function: str, *values: int) -> str:
    """Compiler remarks on a function: SGPRs, VGPRs, AGPRs, scratch, occupancy, both spills, LDS."""
    names = ("TotalSGPRs", "VGPRs", "AGPRs", "ScratchSize [bytes/lane]", "Occupancy [waves/SIMD]", "SGPRs Spill")
    last = ("VGPRs Spill", "LDS Size [bytes/block]")
    pairs = zip((*names, *last), values, strict=True)
    lines = [f"Function Name: {function}", *(f"    {name}: {n}" for name, n in pairs)]
    return "".join(f"a.hpp:7:0: remark: {line} [-Rpass-analysis=kernel-resource-usage]\n" for line in lines)


def test_the_resources_of_one_function() -> None:
    """Every number is found under its own name; other values are ignored."""
    assert parse_resources(ONE, FUNCTION) == RESOURCES


def test_the_maximum_of_several_functions_and_the_minimum_occupancy() -> None:
    """A kernel has as many functions as its loop has ends; functions of others do not count."""
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


def test_older_compilers_report_sgprs() -> None:
    """Before VCC and others were reported separately, the line was named SGPRs."""
    assert parse_resources(ONE.replace("TotalSGPRs", "SGPRs"), FUNCTION) == RESOURCES


def test_an_architecture_without_accumulation_registers_has_none() -> None:
    """The compiler omits the line then."""
    lines = [line for line in ONE.splitlines() if "AGPRs" not in line]
    assert parse_resources("\n".join(lines), FUNCTION) == replace(RESOURCES, agprs=0)


@pytest.mark.parametrize("log", ["", "warning: nothing\n", remarks("_Zmemset", *range(8)), "remark: VGPRs: 5\n"])
def test_a_compiler_without_remarks(log: str) -> None:
    """Without a remark on a function of the kernel its resources are unknown, not zero."""
    assert parse_resources(log, FUNCTION) is None


KEPT = Path(__file__).parents[1] / "emulator/kept/gemm_persistent.so.xz"
CALL = bytes.fromhex("041e9ebe")  # s_swappc_b64 s[30:31], s[4:5]


@pytest.mark.parametrize(
    ("arch", "word"),
    [
        *(("gfx942", "041e9ebe"), ("gfx90a", "101e9ebe"), ("gfx950", "041e9ebe")),
        *(("gfx1030", "10219ebe"), ("gfx1100", "00499ebe"), ("gfx1201", "00499ebe")),
    ],
)
def test_a_call_is_recognized(arch: str, word: str) -> None:
    """By LLVM's encoding of s_swappc_b64 for each generation; other instructions, and words that overlap, are none."""
    nop, end = bytes.fromhex("000080bf"), bytes.fromhex("000081bf")
    assert calls_functions(nop + bytes.fromhex(word) + end, arch)
    assert not calls_functions(nop + end, arch)
    assert not calls_functions(nop[:2] + bytes.fromhex(word) + end[:2], arch)


def test_functions_that_call_others_are_counted() -> None:
    """Of a library's GPU functions, those of the kernel, which the compiler's remarks name."""
    library = bytearray(lzma.decompress(KEPT.read_bytes()))
    start = library.index(BUNDLE_MAGIC)
    offset, size = code_in(memoryview(library)[start:], "gfx942")
    content = bytes(library[start + offset : start + offset + size])
    code = CodeObject(content)
    names = [name for name in code.kernels if "kentry" in name]
    log = "".join(remarks(name, *range(8)) for name in names)
    assert calling_functions(bytes(library), "gfx942", log) == 0
    for name in names[:1]:
        machine = code.machine_code(code.kernels[name])
        at = start + offset + content.index(machine)
        library[at + 4 : at + 8] = CALL
    assert calling_functions(bytes(library), "gfx942", log) == 1
    assert calling_functions(bytes(library), "gfx942", remarks("_Zother", *range(8))) == 0
    assert calling_functions(bytes(library), "gfx90a", log) is None
    assert calling_functions(b"a library without GPU code", "gfx942", log) is None
