"""Main loops of functions compared with the instructions executed on the emulated GPU."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ckh.emulator.launch import REACHED_VARIABLE
from ckh.isa.codefile import read_code
from ckh.isa.decode import decoded
from ckh.isa.describe import Asked, anatomy_of
from ckh.isa.instructions import InstructionKind
from ckh.isa.loops import count_of, parts_of
from ckh.ops import operation
from tests.emulator.keep import KEPT, Kept, executed

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.isa.codefile import CodeFile
    from ckh.isa.instructions import Instruction

pytestmark = pytest.mark.usefixtures("decoder")

_CONV, _WEIGHT = "n2_c{}_k72_g1_i3x4_f1x1_s1x1_p1x1_d1x1", "n2_c72_k24_g1_i2x{}_f1x1_s1x1_p1x1_d1x1"
# Two problems that one function runs, the second with more passes of its loop.
PAIRS = {
    "forward_basic_v1": ("conv_forward_fp16_nhwgc_2d_" + _CONV, 192, 384),
    "forward_compv3": ("conv_forward_fp16_nhwgc_2d_" + _CONV, 192, 384),
    "bwd_data_basic_v1": ("conv_bwd_data_fp16_nhwgc_2d_n1_c72_k{}_g1_i5x7_f1x1_s1x1_p0x0_d1x1", 96, 192),
    "gemm_fp8_mem": ("gemm_fp8_crr_m64_n64_k{}_splitk1", 320, 576),
    "gemm_persistent": ("gemm_fp16_ccr_m64_n64_k{}_splitk1", 192, 384),
    "gemm_gfx950_fp8": ("gemm_fp8_rrr_m64_n64_k{}_splitk1", 384, 768),
    "bwd_weight_two_stages": ("conv_bwd_weight_fp16_nhwgc_2d_" + _WEIGHT, 46, 94),
    "forward_gfx950_compv4": ("conv_forward_bf16_nhwgc_2d_" + _CONV, 256, 384),
    "gemm_compv6": ("gemm_fp16_rcr_m32_n32_k{}_splitk1", 128, 192),
    "gemm_gfx90a_compv4": ("gemm_fp32_rcr_m32_n32_k{}_splitk1", 128, 192),
}
# Branches forward within this loop depend on the problem; three instructions of 287 are in the part that is not taken.
_TOLERANCE = {"bwd_data_basic_v1": 4}


def _taken(
    kept: Kept, problem: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[CodeFile, str, dict[Instruction, int]]:
    """The code, the matrix function that a problem runs, and the execution count of each instruction."""
    note = folder / "reached"
    monkeypatch.setenv(REACHED_VARIABLE, str(note))
    (reply,) = executed(kept.library(), kept, folder, [problem])
    assert reply.status == "verified", reply.message
    counts = {int(at): times for at, (times, _) in json.loads(note.read_text(encoding="utf-8")).items()}
    code = read_code(folder / "kernel.so", kept.arch)
    reached = [function for function in code.functions if counts.get(function.entry)]
    texts = decoded(kept.arch, tuple(item.code for item in reached))
    ((own, text),) = (
        (item, text) for item, text in zip(reached, texts, strict=True) if count_of(text, InstructionKind.MATRIX)
    )
    return code, own.name, {instruction: counts.get(own.entry + instruction.at, 0) for instruction in text}


@pytest.mark.slow
@pytest.mark.parametrize("kept", [item for item in KEPT if item.file in PAIRS], ids=lambda kept: kept.file)
def test_an_iteration_executes_the_instructions_of_the_loop(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more iterations over K, waves execute exactly the loop's instructions once more per iteration."""
    form, *sizes = PAIRS[kept.file]
    (_, name, few), (_, other, many) = (_taken(kept, form.format(size), tmp_path, monkeypatch) for size in sizes)
    assert name == other
    loop = parts_of(tuple(many)).loop
    more = {item: times - few[item] for item, times in many.items() if times != few[item]}
    matrix = [times for instruction, times in more.items() if instruction.kind is InstructionKind.MATRIX]
    (passes,) = set(matrix)  # of all waves
    assert len(matrix) == count_of(loop, InstructionKind.MATRIX)
    tolerance = _TOLERANCE.get(kept.file, 0)
    assert sum(more.values()) / passes == pytest.approx(len(loop), abs=tolerance)
    assert tolerance or set(loop) == set(more)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "form", "sizes"),
    [
        ("forward_compv3", PAIRS["forward_compv3"][0], (64, 128, 192)),
        ("forward_gfx950_compv4", PAIRS["forward_gfx950_compv4"][0], (64, 128, 192, 256)),
        ("gemm_compv6", PAIRS["gemm_compv6"][0], (64, 96, 128)),
    ],
)
def test_the_function_that_runs(
    file: str, form: str, sizes: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The described function is the executed one; compv4 makes five iterations where three are needed."""
    (kept,) = (item for item in KEPT if item.file == file)
    of_problems = operation(kept.op).problems
    assert of_problems.tiled is not None
    for size in sizes:
        code, name, _ = _taken(kept, form.format(size), tmp_path, monkeypatch)
        problem = of_problems.parse(form.format(size))
        asked = Asked(kept.name, "", kept.kernel, problem, of_problems.tiled(problem))
        functions = anatomy_of(code, asked).functions
        (main,) = (function for function in functions if function.runs)
        # With split K there is a second one like it, which adds to memory.
        assert main.trips == next(function.trips for function in functions if function.name == name)
