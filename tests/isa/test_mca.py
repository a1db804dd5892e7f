"""Counts by kind and clocks of straight-line code equal those of LLVM's machine code analyser (llvm-mca)."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from ckh.archs import load_arch
from ckh.isa.codefile import read_code
from ckh.isa.costs import INTEGER_PRODUCTS, Costs, vector_clocks
from ckh.isa.decode import decoded
from ckh.isa.instructions import LDS_KINDS, MEMORY_KINDS, VECTOR_KINDS, Instruction, InstructionKind
from ckh.isa.loops import parts_of
from tests.emulator.assemble import disassembler
from tests.isa.keep import ARCH

if TYPE_CHECKING:
    from pathlib import Path

_TEXT = re.compile(r"^\s+(\S.*?)\s*// ([0-9A-F]+):", re.MULTILINE)
_CLOCKS = 4  # of the hardware for one of the analyser's: a wave's 64 lanes take four
_RESOURCES = ("HWBranch", "HWExport", "HWLGKM", "HWSALU", "HWVALU", "HWVMEM", "HWXDL")
_SCALAR = (InstructionKind.SCALAR, InstructionKind.WAIT)


def _program(name: str) -> list[str]:
    """An LLVM program beside the disassembler."""
    if not (command := disassembler()):
        pytest.skip("there is no llvm-objdump: name it with CKH_LLVM_OBJDUMP")
    return [*command[:-1], command[-1].replace("llvm-objdump", name)]


def _straight(file: Path) -> tuple[list[Instruction], list[str]]:
    """A loop's instructions and their text, without branches and memory accesses, which the analyser lacks."""
    code = read_code(file, ARCH)
    functions = zip(code.functions, decoded(ARCH, tuple(function.code for function in code.functions)), strict=True)
    result = max((parts_of(instructions).loop for _, instructions in functions), key=len)
    command = [*_program("llvm-objdump"), "-d", f"--mcpu={ARCH}", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or "not a recognized processor" in done.stderr:
        pytest.skip(f"llvm-objdump does not know {ARCH}: {done.stderr[:100]}")
    # The only function with a loop is found by its instructions' places, relative to each other.
    lines = {int(address, 16): line for line, address in _TEXT.findall(done.stdout)}
    start = next(
        at - result[0].at
        for at in lines
        if all(
            lines.get(at - result[0].at + instruction.at, "").split(" ")[0].startswith(instruction.name)
            for instruction in result
        )
    )
    left = [
        instruction
        for instruction in result
        if instruction.kind not in (*MEMORY_KINDS, InstructionKind.BRANCH, InstructionKind.BARRIER)
    ]
    return left, [lines[start + instruction.at] for instruction in left]


def _pressure(lines: list[str], folder: Path) -> dict[str, float]:
    """The analyser's clocks of each resource per iteration."""
    source = folder / "loop.s"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [*_program("llvm-mca"), "-mtriple=amdgcn", f"-mcpu={ARCH}", "-iterations=1", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"llvm-mca does not know {ARCH}: {done.stderr[:100]}")
    row = done.stdout.split("Resource pressure per iteration:")[1].splitlines()[2].split()
    return {name: 0.0 if value == "-" else float(value) for name, value in zip(_RESOURCES, row, strict=True)}


@pytest.mark.parametrize("which", ["least", "most"])
def test_straight_code(which: str, decoder: None, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Counts per resource are equal; clocks of matrix and vector instructions too, except for longer products."""
    code, lines = _straight(request.getfixturevalue(which))
    result = _pressure(lines, tmp_path)
    costs = Costs(load_arch(ARCH))
    vector = [instruction for instruction in code if instruction.kind in VECTOR_KINDS]
    assert len(vector) > 80
    carries = sum(
        instruction.name.startswith("v_mad_u64") for instruction in vector
    )  # which the analyser gives the scalar ALU as well
    assert result["HWSALU"] == sum(instruction.kind in _SCALAR for instruction in code) + carries
    assert result["HWLGKM"] == sum(instruction.kind in LDS_KINDS for instruction in code)
    assert (
        _CLOCKS * result["HWXDL"]
        == sum(costs.clocks(instruction) for instruction in code if instruction.kind is InstructionKind.MATRIX)
        > 0
    )
    assert result["HWVALU"] == len(vector)
    # The analyser gives products of integers and wide ones a pass like all others; here they take four and two.
    others = [
        instruction
        for instruction in vector
        if not instruction.name.startswith(INTEGER_PRODUCTS) and "64" not in instruction.name
    ]
    assert sum(vector_clocks(other.name) for other in others) == _CLOCKS * len(others)
    assert _CLOCKS * len(vector) <= sum(map(costs.clocks, vector)) <= 1.4 * _CLOCKS * result["HWVALU"]
