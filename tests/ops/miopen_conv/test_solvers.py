"""Properties derived from solvers' names."""

from __future__ import annotations

import pytest

from ckh.ops.miopen_conv.kernels.solvers import (
    SOLVER_IDS,
    UNKNOWN_ID,
    Algorithm,
    MathUnit,
    Serves,
    Solver,
    SolverOrigin,
    parse_solver,
)

# As MIOpen's logs print them.
LOGGED = {
    "ConvAsm1x1U": 2,
    "ConvOclDirectFwd": 11,
    "ConvBinWinogradRxSf3x2": 37,
    "ConvBinWinogradRxSf2x3": 53,
    "ConvBinWinogradRxSf2x3g1": 84,
    "ConvDirectNaiveConvFwd": 85,
    "GemmFwd1x1_0_1": 88,
    "GemmFwdRest": 91,
    "ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC": 107,
    "ConvHipImplicitGemmGroupFwdXdlops": 137,
}


def test_ids_match_miopen() -> None:
    """Ten ids equal those of MIOpen's registry, and all ids are unique."""
    assert {name: SOLVER_IDS[name] for name in LOGGED} == LOGGED
    assert len(set(SOLVER_IDS.values())) == len(SOLVER_IDS)


@pytest.mark.parametrize(
    ("name", "algorithm", "origin", "unit", "serves"),
    [
        ("GemmBwd1x1_stride2", Algorithm.GEMM, SolverOrigin.BLAS, MathUnit.VECTOR, Serves.BWD_DATA),
        ("gemm", Algorithm.GEMM, SolverOrigin.BLAS, MathUnit.VECTOR, Serves.ANY),
        ("fft", Algorithm.FFT, SolverOrigin.HIP, MathUnit.VECTOR, Serves.ANY),
        ("ConvDirectNaiveConvWrw", Algorithm.DIRECT, SolverOrigin.NAIVE, MathUnit.VECTOR, Serves.BWD_WEIGHT),
        ("ConvOclDirectFwd11x11", Algorithm.DIRECT, SolverOrigin.OCL, MathUnit.VECTOR, Serves.FORWARD),
        ("ConvAsm3x3U", Algorithm.DIRECT, SolverOrigin.ASM, MathUnit.VECTOR, Serves.ANY),
        ("ConvAsm5x10u2v2b1", Algorithm.DIRECT, SolverOrigin.ASM, MathUnit.VECTOR, Serves.BWD_DATA),
        ("ConvAsm5x10u2v2f1", Algorithm.DIRECT, SolverOrigin.ASM, MathUnit.VECTOR, Serves.FORWARD),
        ("ConvBinWinogradRxSf2x3g1", Algorithm.WINOGRAD, SolverOrigin.ASM, MathUnit.VECTOR, Serves.ANY),
        ("ConvWinoFuryRxS<2-3>", Algorithm.WINOGRAD, SolverOrigin.ASM, MathUnit.WMMA, Serves.ANY),
        ("ConvMlirIgemmWrWXdlops", Algorithm.IMPLICIT_GEMM, SolverOrigin.MLIR, MathUnit.XDLOPS, Serves.BWD_WEIGHT),
        ("ConvCkIgemmFwdV6r1DlopsNchw", Algorithm.IMPLICIT_GEMM, SolverOrigin.CK, MathUnit.DLOPS, Serves.FORWARD),
        (
            "ConvHipImplicitGemm3DGroupBwdXdlops",
            Algorithm.IMPLICIT_GEMM,
            SolverOrigin.CK,
            MathUnit.XDLOPS,
            Serves.BWD_DATA,
        ),
        ("ConvHipImplicitGemmBwdDataV1R1", Algorithm.IMPLICIT_GEMM, SolverOrigin.HIP, MathUnit.VECTOR, Serves.BWD_DATA),
    ],
)
def test_the_family_of_a_solver(
    name: str, algorithm: Algorithm, origin: SolverOrigin, unit: MathUnit, serves: Serves
) -> None:
    """Algorithm, origin, instructions and direction are derived from the name."""
    solver = parse_solver(name)
    assert (solver.algorithm, solver.origin, solver.unit, solver.serves) == (algorithm, origin, unit, serves)


def _tile(solver: Solver) -> tuple[int, int, int, int]:
    return solver.tile_h, solver.tile_w, solver.taps_h, solver.taps_w


@pytest.mark.parametrize(
    ("name", "tile"),
    [
        ("ConvBinWinogradRxSf3x2", (3, 3, 2, 2)),
        ("ConvBinWinogradRxS", (2, 2, 3, 3)),
        ("ConvMPBidirectWinograd_xdlops<5-3>", (5, 5, 3, 3)),
        ("ConvWinograd3x3MultipassWrW<3-6>", (3, 3, 6, 6)),
        ("ConvWinograd3x3MultipassWrW<7-2-1-1>", (7, 1, 2, 1)),
        ("ConvWinograd3x3MultipassWrW<1-1-7-3>", (1, 7, 1, 3)),
        ("GemmFwdRest", (0, 0, 0, 0)),
    ],
)
def test_winograd_tiles(name: str, tile: tuple[int, int, int, int]) -> None:
    """F(m, r) is parsed from three spellings; for a weight gradient the filter is the output."""
    assert _tile(parse_solver(name)) == tile


def test_tables_of_solver_properties() -> None:
    """Layout, filter, padding, groups, version and batches of names that state them, and of one that does not."""
    assert parse_solver("ConvAsmImplicitGemmGTCDynamicBwdXdlopsNHWC").is_nhwc
    assert parse_solver("ConvAsm1x1UV2").is_1x1
    assert not parse_solver("ConvOclDirectFwd11x11").is_1x1
    assert parse_solver("ConvHipImplicitGemmForwardV4R4Xdlops_Padded_Gemm").is_padded
    assert parse_solver("ConvHipImplicitGemm3DGroupWrwXdlops").is_grouped
    assert parse_solver("ConvHipImplicitGemmForwardV4R5Xdlops").version == 45
    assert parse_solver("ConvCkIgemmFwdV6r1DlopsNchw").version == 61
    assert parse_solver("ConvHipImplicitGemmV4Fwd").version == 40
    assert parse_solver("ConvOclBwdWrW2<16>").batches == 16
    plain = parse_solver("GemmFwdRest")
    assert (plain.version, plain.batches, plain.is_nhwc, plain.is_padded, plain.is_grouped) == (
        0,
        0,
        False,
        False,
        False,
    )


def test_an_unknown_solver_has_no_number() -> None:
    """The family is derived from a name that is not in the registry."""
    solver = parse_solver("ConvHipImplicitGemmGroupFwdXdlopsV7")
    assert solver.id == UNKNOWN_ID
    assert (solver.algorithm, solver.unit, solver.serves) == (Algorithm.IMPLICIT_GEMM, MathUnit.XDLOPS, Serves.FORWARD)
