"""Features compared with loops over problems and names."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh.errors import DataError
from ckh.features.reads import Depends, dependence
from ckh.ops.miopen_conv.features import INPUT_COLUMNS, MIOPEN_CONV
from ckh.ops.miopen_conv.kernels.solvers import parse_solver
from ckh.ops.miopen_conv.problem import MiopenProblem
from ckh.ops.miopen_conv.readers.fdb import FdbDevice
from ckh.ops.miopen_conv.readers.solver_table import from_frame
from ckh.problems import Direction

if TYPE_CHECKING:
    import pandas as pd

CUS = 104
NCHW = MiopenProblem(Direction.FORWARD, 2, 12, 24, 4, 9, 7, 3, 1, stride_h=2, pad_h=1, dtype="fp16")
DEEP = MiopenProblem(
    Direction.BWD_DATA, 3, 64, 96, 1, 14, 14, 3, 3, pad_h=1, pad_w=1, ndim=3, di=6, z=3, stride_d=2, layout="ndhwc"
)
WEIGHT = MiopenProblem(Direction.BWD_WEIGHT, 8, 40, 56, 1, 20, 30, 3, 3, dilation_h=2, dilation_w=2, dtype="bf16")
PROBLEMS = (NCHW, DEEP, WEIGHT)


def _columns(problem: MiopenProblem, solver: str) -> dict[str, Any]:
    values: dict[str, Any] = {
        **problem.columns(),
        "variant": str(problem.variant),
        "dtype": problem.dtype,
        "layout": problem.layout,
        "ndim_spatial": problem.ndim,
        "kernel": solver,
    }
    return {name: np.array([values[name]]) for name in INPUT_COLUMNS}


def _features(problem: MiopenProblem, solver: str = "GemmFwdRest", cus: int = CUS) -> dict[str, float]:
    matrix = MIOPEN_CONV.matrix(_columns(problem, solver), {"num_cus": np.array([cus])})
    return dict(zip(MIOPEN_CONV.names, matrix[0].tolist(), strict=True))


def _alignment(number: int) -> int:
    return next(power for power in range(6, -1, -1) if number % 2**power == 0)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_sizes_match_the_problem(problem: MiopenProblem) -> None:
    """Outputs, flops, bytes, GEMM sizes and channels equal the problem's."""
    have = _features(problem)
    m, n, k = problem.gemm_sizes
    assert (have["Do"], have["Ho"], have["Wo"]) == (problem.do, problem.ho, problem.wo)
    assert have["log2_flops"] == math.log2(problem.flops)
    assert have["arithmetic_intensity"] == problem.flops / problem.bytes
    assert [have[f"log2_gemm_{side}"] for side in "mnk"] == [math.log2(size) for size in (m, n, k)]
    assert have["log2_c_per_group"] == math.log2(problem.c_per_group)
    assert have["w_share"] == math.prod(problem.weight_shape) * _bytes(problem) / problem.bytes
    assert have["log2_flops_per_cu"] == pytest.approx(math.log2(problem.flops / CUS), rel=1e-15)


def _bytes(problem: MiopenProblem) -> int:
    return {"fp32": 4, "fp16": 2, "bf16": 2}[problem.dtype]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_alignment_is_the_power_of_two_that_divides(problem: MiopenProblem) -> None:
    """Alignments equal trial division by 64, 32, ... 1."""
    have = _features(problem)
    m, n, k = problem.gemm_sizes
    for name, value in {"gemm_m": m, "gemm_n": n, "gemm_k": k, "N": problem.n, "Wi": problem.wi}.items():
        assert have[f"aligned_{name}"] == _alignment(value)
    assert have["aligned_c_per_group"] == _alignment(problem.c_per_group)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_divisors_are_powers_of_two_up_to_4096(problem: MiopenProblem) -> None:
    """They equal trial division of the GEMM's sizes, the channels, the pixels and the batch."""
    have = _features(problem)
    m, n, k = problem.gemm_sizes
    sizes = {"gemm_m": m, "gemm_n": n, "gemm_k": k, "C": problem.c, "K": problem.k, "N": problem.n}
    sizes["input_pixels"] = problem.di * problem.hi * problem.wi
    sizes["output_pixels"] = problem.do * problem.ho * problem.wo
    for name, value in sizes.items():
        assert have[f"divisor_{name}"] == next(power for power in range(12, -1, -1) if value % 2**power == 0), name
    assert _features(replace(problem, n=3 * 2**13))["divisor_N"] == 12


@pytest.mark.parametrize("problem", PROBLEMS)
def test_layer_features_ignore_the_batch(problem: MiopenProblem) -> None:
    """Work and bytes per image equal those of the problem with N = 1, without the filter, and for N = 7."""
    have, item = _features(problem), replace(problem, n=1)
    assert have["log2_image_flops"] == pytest.approx(math.log2(item.flops), rel=1e-14)
    moved = item.bytes - math.prod(item.weight_shape) * _bytes(item)
    assert have["log2_image_bytes"] == pytest.approx(math.log2(moved), rel=1e-14)
    for name in ("log2_image_flops", "log2_image_bytes", "log2_w_elements", "channels", "h_by_w"):
        assert _features(replace(problem, n=7))[name] == pytest.approx(have[name], rel=1e-14)
    assert have["log2_w_elements"] == math.log2(math.prod(problem.weight_shape))
    assert (have["channels"], have["h_by_w"]) == (problem.c + problem.k, problem.hi / problem.wi)
    pixels = problem.di * problem.hi * problem.wi
    assert have["log2_x_elements"] == math.log2(problem.n * problem.c * pixels)
    assert have["log2_pixels_by_channels"] == math.log2(pixels / problem.c)


def test_fill_by_hand() -> None:
    """Of 9 x 7 pixels, stride 2 and a 3 x 1 filter: 5 rows in tiles of 8, 7 columns in tiles of 16, K of 9 in 32."""
    have = _features(NCHW)
    assert (have["Ho_4_fill"], have["Ho_8_fill"]) == (5 / 8, 5 / 8)
    assert (have["Wo_16_fill"], have["Wo_32_fill"], have["Wo_64_fill"]) == (7 / 16, 7 / 32, 7 / 64)
    assert (have["output_pixels_64_fill"], have["gemm_k_32_fill"]) == (35 / 64, 9 / 32)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("cus", [1, CUS])
def test_exact_tiles_divide_the_gemm(problem: MiopenProblem, cus: int) -> None:
    """The largest tile of powers of two up to 256 that divides the GEMM's sizes, by trial division."""
    have = _features(problem, cus=cus)
    m, n, _ = problem.gemm_sizes
    a, b = (next(2**power for power in range(8, -1, -1) if side % 2**power == 0) for side in (m, n))
    tiles = (m // a) * (n // b) * problem.g
    assert have["log2_exact_tile"] == math.log2(a * b)
    assert have["exact_tiles_per_cu"] == pytest.approx(tiles / cus, rel=1e-14)
    assert have["exact_last_wave"] == pytest.approx(tiles / cus / math.ceil(tiles / cus), rel=1e-14)


def test_the_tuned_tile_by_hand() -> None:
    """Of 1024 x 512 one compute unit takes 8 tiles of 256 x 256, each 1 + 24 / 128 of the work; 104 smaller ones."""
    problem = MiopenProblem(Direction.FORWARD, 4, 64, 512, 1, 16, 16, 1, 1, pad_h=0, pad_w=0)
    assert problem.gemm_sizes == (1024, 512, 64)
    assert _features(problem, cus=1)["tuned_gemm_work"] == 1 + 24 / 128
    assert (_features(problem)["log2_exact_tile"], _features(problem)["exact_tiles_per_cu"]) == (16, 8 / CUS)
    # 16 x 8 = 128 tiles of 64 x 64 are two waves on 104, 64 tiles of 128 x 64 one wave.
    assert _features(problem)["tuned_gemm_work"] == pytest.approx(104 * 128 * 64 * (1 + 24 * 3 / 128) / (1024 * 512))
    # BLAS sees 512 x 256, one image: 32 tiles of 64 x 64 and 64 of 64 x 32 are one wave, the latter a shorter one.
    blas = 104 * 64 * 32 * (1 + 24 * 3 / 64) / (512 * 256)
    assert _features(problem)["tuned_blas_work"] == pytest.approx(blas)
    assert _features(problem)["blas_by_gemm_work"] == pytest.approx(blas / (104 * 8192 * 1.5625 / 524288))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_tiles_fill_the_compute_units(problem: MiopenProblem) -> None:
    """Number, utilization and last wave of 128x128 tiles equal counting by hand."""
    have = _features(problem)
    m, n, _ = problem.gemm_sizes
    tiles = math.ceil(m / 128) * math.ceil(n / 128) * problem.g
    assert have["gemm_128x128_tiles_per_cu"] == tiles / CUS
    assert have["gemm_128x128_last_wave"] == pytest.approx(tiles / (math.ceil(tiles / CUS) * CUS), rel=1e-14)
    assert have["gemm_128x128_fill"] == m * n * problem.g / (tiles * 128 * 128)
    assert _features(problem, cus=304)["gemm_128x128_tiles_per_cu"] == tiles / 304
    assert _features(problem, cus=304)["hw_num_cus"] == 304


def test_blas_computes_one_image_and_group() -> None:
    """Per image the GEMM is K x pixels x CYX forward, CYX x pixels x K back, K x CYX x pixels for weights."""
    for problem in PROBLEMS:
        have = _features(problem)
        taps = problem.z * problem.y * problem.x
        depth, pixels = taps * problem.c_per_group, problem.do * problem.ho * problem.wo
        expected = {
            Direction.FORWARD: (problem.k_per_group, pixels, depth),
            Direction.BWD_DATA: (depth, pixels, problem.k_per_group),
            Direction.BWD_WEIGHT: (problem.k_per_group, depth, pixels),
        }[problem.variant]
        assert [2 ** have[f"log2_blas_{side}"] for side in "mnk"] == pytest.approx(expected)
        assert have["log2_solver_image_groups"] == math.log2(problem.n * problem.g)
        assert have["log2_solver_im2col_bytes"] == math.log2(problem.g * depth * pixels * _bytes(problem))
        assert _features(problem, "ConvAsm3x3U")["log2_solver_im2col_bytes"] == 0


def test_winograd_work_by_hand() -> None:
    """F(3, 2) on 8 x 10 outputs and 3 x 3 taps: 3 * 4 tiles of 4 * 4 for 2 * 2 of 2 * 2 taps, over 80 * 9."""
    problem = MiopenProblem(Direction.FORWARD, 1, 4, 4, 1, 10, 12, 3, 3)
    assert _features(problem, "ConvBinWinogradRxSf3x2")["winograd_work"] == pytest.approx(3 * 4 * 16 * 4 / (80 * 9))
    weight = replace(problem, variant=Direction.BWD_WEIGHT)
    # The result is the 3 x 3 filter: one tile of 3 + 6 - 1 per axis for ceil(8 / 6) and ceil(10 / 6) of the output.
    multipass = _features(weight, "ConvWinograd3x3MultipassWrW<3-6>")["winograd_work"]
    assert multipass == pytest.approx(8 * 8 * 2 * 2 / (80 * 9))
    assert _features(problem, "GemmFwdRest")["winograd_work"] == 0


def test_nhwc_solvers_transpose_nchw_tensors() -> None:
    """An NHWC solver transposes all bytes of an NCHW problem, and none of an NHWC one; others never do."""
    solver = "ConvAsmImplicitGemmGTCDynamicBwdXdlopsNHWC"
    assert _features(NCHW, solver)["log2_transposed_bytes"] == math.log2(NCHW.bytes)
    assert _features(NCHW, solver)["transposed_by_flops"] == NCHW.bytes / NCHW.flops
    assert _features(DEEP, solver)["log2_transposed_bytes"] == 0
    assert _features(NCHW, "GemmFwdRest")["log2_transposed_bytes"] == 0


def test_solver_features_are_number_and_family() -> None:
    """The solver's own features equal the properties of its name; an unknown solver is -1 in the category only."""
    for name in ("ConvBinWinogradRxSf2x3g1", "ConvMlirIgemmWrWXdlops", "ConvOclBwdWrW2<8>", "SomethingNewNHWC"):
        have, solver = _features(NCHW, name), parse_solver(name)
        assert (have["solver"], have["solver_version"], have["solver_batches"]) == (
            solver.id,
            solver.version,
            solver.batches,
        )
        assert have["solver_is_nhwc"] == solver.is_nhwc
    assert _features(NCHW, "SomethingNewNHWC")["solver"] == -1


def test_a_batch_equals_single_rows(frame: pd.DataFrame) -> None:
    """Rows of several problems and solvers in one batch have the same values as on their own; all are finite."""
    table = from_frame(frame, FdbDevice("gfx90a", CUS))
    whole = MIOPEN_CONV.matrix({name: table.frame[name].to_numpy() for name in INPUT_COLUMNS}, {"num_cus": [CUS]})
    problems = [table.problems()[i] for i in table.problem_ids()]
    for row, problem, solver in zip(whole, problems, table.frame["kernel"], strict=True):
        assert row.tolist() == list(_features(problem, solver).values())
    assert np.isfinite(whole).all()


def test_traced_dependencies_are_real() -> None:
    """Features of the problem do not change with the solver, features of the solver not with problem or hardware."""
    base, other_solver = _features(WEIGHT), _features(WEIGHT, "ConvBinWinogradRxSf2x3")
    other_problem = _features(NCHW, "GemmFwdRest", cus=7)
    dependses = dependence(MIOPEN_CONV, MIOPEN_CONV.names)
    assert {*dependses} == {*Depends}
    for feature, depends in zip(MIOPEN_CONV.features, dependses, strict=True):
        if depends in {Depends.PROBLEM, Depends.HARDWARE}:
            assert base[feature.name] == other_solver[feature.name], feature.name
        if depends is Depends.KERNEL:
            assert base[feature.name] == other_problem[feature.name], feature.name


def test_a_missing_column_is_named() -> None:
    """No value is assumed for a missing column."""
    columns = {name: value for name, value in _columns(NCHW, "gemm").items() if name != "layout"}
    with pytest.raises(DataError, match="'layout'"):
        MIOPEN_CONV.matrix(columns, {"num_cus": np.array([CUS])})
