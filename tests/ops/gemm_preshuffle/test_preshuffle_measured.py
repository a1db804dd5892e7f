"""Products with a shuffled B computed: the stored order, sources, and execution on the emulated GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.bench.codegen.unit import UnsupportedKernelError
from ckh.bench.computation import Role
from ckh.ops.gemm_preshuffle.kernel_rules import parse_preshuffle_kernel
from ckh.ops.gemm_preshuffle.measured import MEASURED, emit, operands, preshuffle_rules
from ckh.ops.gemm_preshuffle.problem import GemmPreshuffleProblem
from tests.bench.codegen.gemm_headers import CURRENT, LATE_2025, MID_2025
from tests.refusals import has_values

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.ops.gemm_universal.measuring.hip_rules import GemmHeaders

GFX942 = load_arch("gfx942")
SHAPE = "fp16_rcr_preshufflev2_cshuffle_intrawave_False_False_False_False_64x64x64_2x2x1_16x16x32"
SMALL, EMITTED = SHAPE.replace("16x16x32", "16x16x16"), SHAPE.replace("16x16x32", "32x32x16")


FLATMM = EMITTED.replace("preshufflev2", "flatmm").replace("2x2x1", "1x4x1").replace("64x64x64", "64x128x64")


def stored(problem: GemmPreshuffleProblem, b: np.ndarray) -> np.ndarray:
    """B as kernels read it, given its columns as rows."""
    order = operands(problem)[1].order
    assert order is not None
    return np.ascontiguousarray(order(b)).reshape(-1)


def test_operands_have_an_order_of_b_only() -> None:
    """A and C are row-major, and B has the shape of its transpose."""
    result = operands(GemmPreshuffleProblem(8, 16, 32, "fp8"))
    assert [
        (operand.name, operand.shape, operand.dtype, operand.role, operand.order is None) for operand in result
    ] == [
        ("a", (8, 32), "fp8", Role.INPUT, True),
        ("b", (16, 32), "fp8", Role.INPUT, False),
        ("c", (8, 16), "fp16", Role.OUTPUT, True),
    ]


@pytest.mark.parametrize(
    ("dtype", "order", "columns", "depth", "parts"),
    [
        ("fp16", "16x16", 16, 32, 4),
        ("bf16", "16x8", 16, 16, 4),
        ("fp16", "32x8", 32, 8, 2),
        ("fp8", "16x16", 16, 64, 4),
        ("fp8", "32x16", 32, 32, 2),
    ],
)
def test_the_order_is_that_of_amds_shuffle(dtype: str, order: str, columns: int, depth: int, parts: int) -> None:
    """Of CK Tile's `shuffle_b`, by the place of each element: columns, K and lanes' parts of K of an instruction."""
    n, k = 64, 128
    b = np.arange(n * k, dtype=np.uint16).reshape(n, k)
    piece = depth // parts
    expected = np.empty(n * k, np.uint16)
    for column in range(n):
        for row in range(k):
            block, inside = divmod(column, columns)
            step, rest = divmod(row, depth)
            part, last = divmod(rest, piece)
            place = (((block * (k // depth) + step) * parts + part) * columns + inside) * piece + last
            expected[place] = b[column, row]
    assert np.array_equal(stored(GemmPreshuffleProblem(8, n, k, dtype, b_order=order), b), expected)


@pytest.mark.parametrize(("dtype", "element_bytes"), [("fp16", 2), ("bf16", 2), ("fp8", 1)])
def test_the_default_order_is_aiters(dtype: str, element_bytes: int) -> None:
    """Of `shuffle_weight(x, layout=(16, 16))`: steps of 32 elements of K in vectors of 16 bytes, for 16 rows of x."""
    n, k, vector = 48, 96, 16 // element_bytes
    x = np.arange(n * k, dtype=np.uint16).reshape(n, k)
    expected = x.reshape(n // 16, 16, k // 32, 32 // vector, vector).transpose(0, 2, 3, 1, 4).reshape(-1)
    assert np.array_equal(stored(GemmPreshuffleProblem(8, n, k, dtype), x), expected)


def test_a_permuted_order_gives_a_lane_consecutive_columns() -> None:
    """Of CK Tile's `shuffle_b_permuteN`: column r of a lane's is in the wave's instruction r."""
    n, k, waves, repeats, columns, piece = 256, 16, 4, 2, 16, 8
    b = np.arange(n * k, dtype=np.uint16).reshape(n, k)
    result = stored(GemmPreshuffleProblem(8, n, k, "fp16", b_order="16x16p4x2"), b)
    pieces = result.reshape(n // 128, repeats, waves, k // piece, columns, piece)
    for block, repeat, wave, step, lane in np.ndindex(pieces.shape[:-1]):
        column = ((block * waves + wave) * columns + lane) * repeats + repeat
        assert np.array_equal(pieces[block, repeat, wave, step, lane], b[column, step * piece : (step + 1) * piece])


def headers_with(folder: Path, pipeline: str, epilogue: str, headers: GemmHeaders = LATE_2025) -> GemmHeaders:
    """Headers with a pipeline for a shuffled B and an epilogue."""
    for name, text in (
        ("ops/gemm/pipeline/wp_pipeline_agmem_bgmem_creg_v2.hpp", pipeline),
        ("ops/flatmm/kernel/flatmm_kernel.hpp", pipeline),
        ("ops/epilogue/cshuffle_epilogue.hpp", epilogue),
    ):
        path = folder / "ck_tile" / name
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    return replace(headers, common=replace(headers.common, include=folder))


def reasons(name: str, headers: GemmHeaders) -> list[str]:
    """Reasons why headers cannot build a kernel."""
    kernel = parse_preshuffle_kernel(name)
    result = [reason for rule in preshuffle_rules(headers) for reason in rule(kernel, GFX942)]
    if result:
        with pytest.raises(UnsupportedKernelError):
            emit(kernel, headers, GFX942)
    return result


def test_sources_state_pipeline_and_permutation(tmp_path: Path) -> None:
    """The parameters are before ckh's header of the interface."""
    headers = headers_with(tmp_path, "struct WeightPreshuffle", "TiledMMAPermuteN")
    for head, permutes in (("gemm_preshuffle", "false"), ("gemm_preshuffle_permute_n", "true")):
        name = f"{head}_{SMALL}"
        assert reasons(name, headers) == []
        source = emit(parse_preshuffle_kernel(name), headers, GFX942)
        assert "Pipeline pipeline = preshufflev2;" in source
        assert f"bool permute_n = {permutes};" in source
        assert source.index("permute_n") < source.index('#include "preshuffle_late2025.hpp"')


def test_sources_of_flatmm_have_their_own_header(tmp_path: Path) -> None:
    """It is included in place of the other pipeline's; headers without flatmm are refused."""
    headers = headers_with(tmp_path, "struct FlatmmKernel", "TiledMMAPermuteN")
    name = f"gemm_preshuffle_{FLATMM}"
    assert reasons(name, headers) == []
    source = emit(parse_preshuffle_kernel(name), headers, GFX942)
    assert "Pipeline pipeline = flatmm;" in source
    assert '#include "flatmm_late2025.hpp"' in source
    assert "preshuffle_late2025" not in source
    assert [has_values(reason, "flatmm") for reason in reasons(name, headers_with(tmp_path / "no", "", ""))] == [True]


def test_headers_without_the_parts_are_refused(tmp_path: Path) -> None:
    """By rules, so that plans choose among kernels that the headers can build."""
    plain, permuted = f"gemm_preshuffle_{EMITTED}", f"gemm_preshuffle_permute_n_{EMITTED}"
    headers = headers_with(tmp_path / "old", "struct WeightPreshuffle", "no permutation")
    assert reasons(plain, headers) == []
    assert [has_values(reason, "permutes N") for reason in reasons(permuted, headers)] == [True]
    permuting = headers_with(tmp_path / "new", "struct WeightPreshuffle", "TiledMMAPermuteN")
    assert [has_values(reason, "16 rows") for reason in reasons(permuted, permuting)] == [True]
    assert [has_values(reason, "preshufflev2") for reason in reasons(plain, LATE_2025)] == [True]
    racing = replace(headers, races_between_tiles=True)
    persistent = plain.replace("False_False_False_False", "False_False_False_True")
    assert [has_values(reason, "race") for reason in reasons(persistent, racing)] == [True]
    assert reasons(persistent, headers) == []
    other = replace(headers, warp_gemms=frozenset())
    assert [has_values(reason, "32x32x16") for reason in reasons(plain, other)] == [True]


def test_headers_of_mid_2025_have_flatmm_only(tmp_path: Path) -> None:
    """With pieces of B of one load, as the order of later headers has; they have neither the other pipeline nor p."""
    headers = headers_with(tmp_path, "struct FlatmmKernel", "no permutation", MID_2025)
    name = f"gemm_preshuffle_{FLATMM}"
    assert reasons(name, headers) == []
    source = emit(parse_preshuffle_kernel(name), headers, GFX942)
    assert '#include "flatmm_mid2025.hpp"' in source
    assert "bool double_smem_buffer = false;" in source
    for other, value in (
        (f"gemm_preshuffle_{EMITTED}", "preshufflev2"),
        (f"gemm_preshuffle_permute_n_{FLATMM}", "permutes N"),
        (f"gemm_preshuffle_{FLATMM}".replace("fp16", "fp8").replace("32x32x16", "32x32x64"), "32 bytes"),
    ):
        assert any(has_values(reason, value) for reason in reasons(other, headers)), other
    bare = replace(MID_2025, common=replace(MID_2025.common, include=tmp_path / "no"))
    assert [has_values(reason, "no pipeline flatmm") for reason in reasons(name, bare)] == [True]
    assert any(has_values(reason, "current") for reason in reasons(name, CURRENT))


def test_odd_numbers_of_instructions_along_m_are_stored_if_n_is_permuted(tmp_path: Path) -> None:
    """Permuted kernels do not shuffle C in pairs of instructions, as others do: these are refused."""
    headers = headers_with(tmp_path, "struct WeightPreshuffle", "TiledMMAPermuteN")
    three = SMALL.replace("64x64x64_2x2x1", "192x64x64_4x1x1")
    assert reasons(f"gemm_preshuffle_permute_n_{three}", headers) == []
    assert [has_values(reason, "2", "3") for reason in reasons(f"gemm_preshuffle_{three}", headers)] == [True]


def test_trials_reach_every_loop_end_in_the_order_of_b() -> None:
    """Of both lengths of the loop's remainder, with and without the loop; K beyond whole tiles is tried too."""
    trials = MEASURED.trials
    assert trials is not None
    for head, order in (("gemm_preshuffle", "16x16"), ("gemm_preshuffle_permute_n", "16x16p2x2")):
        problems = trials().loop_ends(parse_preshuffle_kernel(f"{head}_{SHAPE}"))
        assert {problem.b_order for problem in problems} == {order}
        assert {1, 2, 3, 4, 5, 6} <= {problem.k // 64 for problem in problems if problem.k % 64 == 0}
        assert any(problem.k % 64 for problem in problems)
        assert {problem.k // 64 for problem in problems if problem.m % 64} >= {1, 2}
