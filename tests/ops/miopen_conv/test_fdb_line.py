"""Lines of find databases, written by hand."""

from __future__ import annotations

import pytest

from ckh.ops.miopen_conv.kernels.solvers import Algorithm
from ckh.ops.miopen_conv.problem import MiopenProblem
from ckh.ops.miopen_conv.readers.fdb_line import FdbLine, LineError, SolverTime, parse_key, parse_line
from ckh.problems import Direction

ANY = "=ConvAsm3x3U:0.25,0,miopenConvolutionFwdAlgoDirect"
KEY = "256-14-16-3x5-128-14-8-32-1x2-1x2-1x1-0-NCHW-FP32-F"


def test_a_line_of_the_current_format() -> None:
    """Solver, time, workspace and algorithm follow the key; the number of groups, 2, ends the key."""
    line = parse_line(
        "256-14-16-3x5-128-14-8-32-1x2-1x2-1x1-0-NCHW-FP32-F_g2=ConvBinWinogradRxSf3x2:0.25,0,"
        "miopenConvolutionFwdAlgoWinograd;GemmFwdRest:1.5,7340032,miopenConvolutionFwdAlgoGEMM\n"
    )
    problem = MiopenProblem(Direction.FORWARD, 32, 256, 128, 2, 14, 16, 3, 5, 1, 2, 1, 2)
    winograd = SolverTime("ConvBinWinogradRxSf3x2", 0.25, 0, Algorithm.WINOGRAD)
    assert line == FdbLine(problem, (winograd, SolverTime("GemmFwdRest", 1.5, 7340032, Algorithm.GEMM)))


def test_a_line_of_the_older_format() -> None:
    """In the older form the algorithm comes first, and a library is in the place of the algorithm."""
    line = parse_line(
        "32-30-30-3x3-3-32-32-100-0x0-1x1-1x1-0-NCHW-FP32-B=miopenConvolutionBwdDataAlgoGEMM:gemm,3.904,97200,rocBlas,"
        "<unused>;miopenConvolutionBwdDataAlgoImplicitGEMM:ConvMlirIgemmBwdXdlops,0.5,16,"
        "miopenConvolutionBwdDataAlgoImplicitGEMM,not used"
    )
    assert line.problem == MiopenProblem(Direction.BWD_DATA, 100, 3, 32, 1, 32, 32, 3, 3)
    assert line.solvers == (
        SolverTime("gemm", 3.904, 97200, Algorithm.GEMM),
        SolverTime("ConvMlirIgemmBwdXdlops", 0.5, 16, Algorithm.IMPLICIT_GEMM),
    )


@pytest.mark.parametrize(("letter", "direction"), [("B", Direction.BWD_DATA), ("W", Direction.BWD_WEIGHT)])
def test_the_first_tensor_of_the_backward_directions_is_dy(letter: str, direction: Direction) -> None:
    """64 x 7 x 9 is dy in B and W: 64 is K and 7 x 9 the output of the forward pass."""
    problem = parse_key(f"64-7-9-1x1-32-14-18-8-0x0-2x2-1x1-0-NCHW-FP16-{letter}")
    assert problem == MiopenProblem(direction, 8, 32, 64, 1, 14, 18, 1, 1, 2, 2, dtype="fp16")
    assert (problem.k, problem.ho, problem.wo) == (64, 7, 9)


def test_a_key_in_3d() -> None:
    """3D keys have three numbers for each tensor, filter, padding, stride and dilation, depth first."""
    problem = parse_key("16-8-9-10-3x5x1-24-8-3-10-2-1x0x0-1x2x1-1x1x1-0-NCDHW-BF16-F_g4")
    assert problem == MiopenProblem(
        Direction.FORWARD, 2, 16, 24, 4, 9, 10, 5, 1, 2, 1, 0, 0, ndim=3, di=8, z=3, pad_d=1, dtype="bf16"
    )
    backward = parse_key("24-8-3-10-3x5x1-16-8-9-10-2-1x0x0-1x2x1-1x1x1-0-NCDHW-BF16-W_g4")
    assert backward == MiopenProblem(
        Direction.BWD_WEIGHT, 2, 16, 24, 4, 9, 10, 5, 1, 2, 1, 0, 0, ndim=3, di=8, z=3, pad_d=1, dtype="bf16"
    )


def test_nhwc_repeats_the_layout_of_every_tensor() -> None:
    """NHWC is stated three times, and gives the same sizes as NCHW."""
    nhwc = parse_key(KEY.replace("NCHW", "NHWC-NHWC-NHWC"))
    nchw = parse_key(KEY)
    assert nhwc.layout == "nhwc"
    assert nhwc.columns() == nchw.columns()


@pytest.mark.parametrize("text", ["0", "nan", "inf"])
def test_a_missing_time_is_zero(text: str) -> None:
    """The caller counts solvers without a time."""
    assert parse_line(KEY + ANY.replace("0.25", text)).solvers[0].time_ms == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense", "no key=value pair"),
        ("a-b-c" + ANY, "key"),
        (KEY.removesuffix("F") + "X" + ANY, "key"),
        (KEY + "_x2" + ANY, "key"),
        (KEY.replace("3x5", "3") + ANY, "key"),
        (KEY.replace("256-", "256-1-") + ANY, "key"),
        (KEY.replace("NCHW", "CHWN") + ANY, "layout"),
        (KEY.replace("NCHW", "NHWC-NCHW-NHWC") + ANY, "layout"),
        (KEY.replace("FP32", "FP64") + ANY, "dtype"),
        (KEY + "_g3" + ANY, "impossible problem"),
        (KEY.replace("256-14", "256-0") + ANY, "impossible problem"),
        (KEY.replace("256", "9" * 30) + ANY, "impossible problem"),
        (KEY.replace("256", "9" * 5000) + ANY, "key"),
        (KEY.replace("128-14-8", "128-14-9") + ANY, "output size"),
        (KEY + "=", "value"),
        (KEY + "=ConvAsm3x3U", "value"),
        (KEY + "=ConvAsm3x3U:0.25,0", "value"),
        (KEY + "=:0.25,0,miopenConvolutionFwdAlgoDirect", "value"),
        (KEY + "=ConvAsm3x3U:0.25,0,Direct", "algorithm"),
        (KEY + "=ConvAsm3x3U:0.25,0,miopenConvolutionFwdAlgoMagic", "algorithm"),
        (KEY + "=ConvAsm3x3U:fast,0,miopenConvolutionFwdAlgoDirect", "number"),
        (KEY + "=ConvAsm3x3U:-1,0,miopenConvolutionFwdAlgoDirect", "number"),
        (KEY + "=ConvAsm3x3U:1e-10,0,miopenConvolutionFwdAlgoDirect", "number"),
        (KEY + "=ConvAsm3x3U:1,-1,miopenConvolutionFwdAlgoDirect", "number"),
        (KEY + f"=ConvAsm3x3U:1,{2**63},miopenConvolutionFwdAlgoDirect", "number"),
        (KEY + ANY + ";" + ANY[1:], "solver twice"),
        (KEY + ANY + ";;" + ANY[1:], "value"),
    ],
)
def test_malformed_lines_are_counted_by_reason(text: str, reason: str) -> None:
    """Each kind of fault has its own reason, by which it is counted."""
    with pytest.raises(LineError) as caught:
        parse_line(text)
    assert caught.value.reason == reason
