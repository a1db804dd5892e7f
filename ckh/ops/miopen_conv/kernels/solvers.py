"""MIOpen's convolution solvers: their registry numbers, and the properties that their names state.

The numbers are those of MIOpen's registry (src/solver.cpp, `IdRegistryData`), which never reuses a number; its logs
print them, as in `85/ConvDirectNaiveConvFwd`. Properties are derived from the name by rules, so that solvers newer than
this copy of the registry lack only a number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ckh.errors import DataError
from ckh.strenum import StrEnum

UNKNOWN_ID = -1

# In the order of the registry, from 1; "-": not a convolution solver, or absent from the databases.
_REGISTRY = """
ConvAsm3x3U ConvAsm1x1U ConvAsm1x1UV2 - ConvAsm5x10u2v2f1 ConvAsm5x10u2v2b1 ConvAsm7x7c3h224w224k64u2v2p3q3f1
ConvOclDirectFwd11x11 ConvOclDirectFwdGen ConvOclDirectFwd3x3 ConvOclDirectFwd - ConvOclDirectFwd1x1
ConvBinWinograd3x3U ConvBinWinogradRxS ConvAsmBwdWrW3x3 ConvAsmBwdWrW1x1 ConvOclBwdWrW2<1> ConvOclBwdWrW2<2>
ConvOclBwdWrW2<4> ConvOclBwdWrW2<8> ConvOclBwdWrW2<16> ConvOclBwdWrW2NonTunable ConvOclBwdWrW53 ConvOclBwdWrW1x1
ConvHipImplicitGemmV4R1Fwd ConvHipImplicitGemmV4Fwd ConvHipImplicitGemmV4_1x1 ConvHipImplicitGemmV4R4FwdXdlops
ConvHipImplicitGemmV4R4Xdlops_1x1 ConvHipImplicitGemmV4R1WrW ConvHipImplicitGemmV4WrW gemm fft
ConvWinograd3x3MultipassWrW<3-4> ConvSCGemmFGemm ConvBinWinogradRxSf3x2 ConvWinograd3x3MultipassWrW<3-5>
ConvWinograd3x3MultipassWrW<3-6> ConvWinograd3x3MultipassWrW<3-2> ConvWinograd3x3MultipassWrW<3-3>
ConvWinograd3x3MultipassWrW<7-2> ConvWinograd3x3MultipassWrW<7-3> ConvWinograd3x3MultipassWrW<7-2-1-1>
ConvWinograd3x3MultipassWrW<7-3-1-1> ConvWinograd3x3MultipassWrW<1-1-7-2> ConvWinograd3x3MultipassWrW<1-1-7-3>
ConvWinograd3x3MultipassWrW<5-3> ConvWinograd3x3MultipassWrW<5-4> ConvHipImplicitGemmV4R4WrWXdlops
ConvHipImplicitGemmV4R4GenFwdXdlops ConvHipImplicitGemmV4R4GenWrWXdlops ConvBinWinogradRxSf2x3
ConvHipImplicitGemmV4R4Fwd ConvHipImplicitGemmBwdDataV1R1 ConvHipImplicitGemmBwdDataV4R1
ConvHipImplicitGemmBwdDataV1R1Xdlops ConvHipImplicitGemmV4R4GenXdlopsFwdFp32 ConvHipImplicitGemmV4R4GenXdlopsWrWFp32
ConvHipImplicitGemmBwdDataV4R1Xdlops ConvHipImplicitGemmV4R4WrW ConvAsmImplicitGemmV4R1DynamicFwd
ConvAsmImplicitGemmV4R1DynamicFwd_1x1 ConvHipImplicitGemmForwardV4R4Xdlops ConvAsmImplicitGemmV4R1DynamicBwd
ConvAsmImplicitGemmV4R1DynamicWrw ConvMPBidirectWinograd<2-3> ConvMPBidirectWinograd<3-3> ConvMPBidirectWinograd<4-3>
ConvMPBidirectWinograd<5-3> ConvMPBidirectWinograd<6-3> ConvAsmImplicitGemmGTCDynamicWrwXdlops
ConvHipImplicitGemmWrwV4R4Xdlops ConvAsmImplicitGemmGTCDynamicFwdXdlops ConvMPBidirectWinograd_xdlops<2-3>
ConvMPBidirectWinograd_xdlops<3-3> ConvMPBidirectWinograd_xdlops<4-3> ConvMPBidirectWinograd_xdlops<5-3>
ConvMPBidirectWinograd_xdlops<6-3> ConvHipImplicitGemmForwardV4R5Xdlops
ConvHipImplicitGemmForwardV4R4Xdlops_Padded_Gemm ConvAsmImplicitGemmGTCDynamicBwdXdlops
ConvHipImplicitGemmWrwV4R4Xdlops_Padded_Gemm ConvBinWinogradRxSf2x3g1 ConvDirectNaiveConvFwd ConvDirectNaiveConvBwd
ConvDirectNaiveConvWrw GemmFwd1x1_0_1 GemmFwd1x1_0_1_int8 GemmFwd1x1_0_2 GemmFwdRest ConvHipImplicitGemmMlirCppFwd
ConvHipImplicitGemmMlirCppBwd ConvHipImplicitGemmMlirCppWrW GemmBwd1x1_stride2 GemmBwd1x1_stride1 GemmBwdRest
ConvMlirIgemmFwd ConvMlirIgemmBwd ConvMlirIgemmWrW GemmWrw1x1_stride1 GemmWrwUniversal ConvMlirIgemmFwdXdlops
ConvMlirIgemmBwdXdlops ConvMlirIgemmWrWXdlops - ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC
ConvAsmImplicitGemmGTCDynamicBwdXdlopsNHWC - ConvAsmImplicitGemmGTCDynamicWrwXdlopsNHWC - - -
ConvCkIgemmFwdV6r1DlopsNchw - - - - - - - - - - - - ConvAsmImplicitGemmGTCDynamicFwdDlopsNCHWC
ConvHipImplicitGemmFwdXdlops ConvHipImplicitGemmBwdXdlops - - - - - - - ConvHipImplicitGemmGroupFwdXdlops
ConvHipImplicitGemm3DGroupFwdXdlops ConvWinoFuryRxS<2-3> ConvHipImplicitGemm3DGroupWrwXdlops
ConvHipImplicitGemm3DGroupBwdXdlops - - - - - - - - - - - - - ConvHipImplicitGemmGroupBwdXdlops
ConvHipImplicitGemmGroupWrwXdlops
"""

SOLVER_IDS: dict[str, int] = {name: number for number, name in enumerate(_REGISTRY.split(), 1) if name != "-"}


class Algorithm(StrEnum):
    """MIOpen's classes of convolution algorithms."""

    GEMM = "gemm"
    DIRECT = "direct"
    FFT = "fft"
    WINOGRAD = "winograd"
    IMPLICIT_GEMM = "implicit_gemm"


class SolverOrigin(StrEnum):
    """Languages or libraries of the solvers' kernels."""

    BLAS = "blas"
    NAIVE = "naive"
    ASM = "asm"
    OCL = "ocl"
    HIP = "hip"
    CK = "ck"
    MLIR = "mlir"


class MathUnit(StrEnum):
    """Instructions that multiply: matrix cores (xdlops, wmma), dot products (dlops), or vector lanes."""

    VECTOR = "vector"
    XDLOPS = "xdlops"
    WMMA = "wmma"
    DLOPS = "dlops"


class Serves(StrEnum):
    """The direction that a name states; ANY if it states none."""

    ANY = "any"
    FORWARD = "forward"
    BWD_DATA = "bwd_data"
    BWD_WEIGHT = "bwd_weight"


# In each table the first rule whose pattern occurs in the name applies; the last value is the default.
_ALGORITHMS = (
    (r"^fft$", Algorithm.FFT),
    (r"Wino", Algorithm.WINOGRAD),
    (r"ImplicitGemm|Igemm", Algorithm.IMPLICIT_GEMM),
    (r"^[Gg]emm|SCGemm", Algorithm.GEMM),
    (r"", Algorithm.DIRECT),
)
_ORIGINS = (
    (r"^[Gg]emm", SolverOrigin.BLAS),
    (r"Naive", SolverOrigin.NAIVE),
    (r"Mlir", SolverOrigin.MLIR),
    (r"^ConvCk|^ConvHipImplicitGemm(3D)?(Group)?(Fwd|Bwd|Wrw)Xdlops", SolverOrigin.CK),
    (r"^ConvOcl", SolverOrigin.OCL),
    (r"^ConvHip", SolverOrigin.HIP),
    (r"^Conv(Asm|Bin|Wino|MP|SC)", SolverOrigin.ASM),
    (r"", SolverOrigin.HIP),
)
_UNITS = (
    (r"[Xx]dlops", MathUnit.XDLOPS),
    (r"[Ww]mma|Fury|Rage", MathUnit.WMMA),
    (r"Dlops", MathUnit.DLOPS),
    (r"", MathUnit.VECTOR),
)
_SERVES = (
    (r"Wr[Ww]", Serves.BWD_WEIGHT),
    (r"Bwd|u2v2b1", Serves.BWD_DATA),
    (r"Fwd|Forward|[23]q?3?f1$", Serves.FORWARD),
    (r"", Serves.ANY),
)
_WORD = re.compile(r"[!-~]{1,128}")
_VERSION = re.compile(r"V(\d)[Rr](\d)|V(\d)(?!\d)")
_WINOGRAD_FORWARD = re.compile(r"f(\d)x(\d)|Winograd(?:_xdlops)?<(\d)-(\d)>|RxS<(\d)-(\d)>")
_WINOGRAD_WEIGHT = re.compile(r"MultipassWrW<(\d)-(\d)(?:-(\d)-(\d))?>")
_SPLIT = re.compile(r"WrW2<(\d+)>")


@dataclass(frozen=True, slots=True, order=True)
class Solver:
    """A solver and the properties that its name states.

    Attributes:
        name: as spelled in the databases.
        id: its number in MIOpen's registry, `UNKNOWN_ID` if it is newer.
        algorithm, origin, unit, serves: see their types.
        is_nhwc: whether it computes in NHWC, so that NCHW tensors are transposed before and after.
        is_1x1: whether it supports 1x1 filters only.
        is_padded: whether it pads its GEMM to whole tiles.
        is_grouped: whether the name states that it is made for groups.
        version: 10 * version + revision of the implicit GEMM (V4R1 is 41); 0 without.
        tile_h, tile_w: output pixels of a Winograd tile; 0 for other solvers.
        taps_h, taps_w: filter taps of that tile.
        batches: images that one workgroup sums, for ConvOclBwdWrW2; 0 for others.
    """

    name: str
    id: int
    algorithm: Algorithm
    origin: SolverOrigin
    unit: MathUnit
    serves: Serves
    is_nhwc: bool
    is_1x1: bool
    is_padded: bool
    is_grouped: bool
    version: int
    tile_h: int
    tile_w: int
    taps_h: int
    taps_w: int
    batches: int


def _first(rules: tuple[tuple[str, StrEnum], ...], name: str) -> StrEnum:
    return next(value for pattern, value in rules if re.search(pattern, name))


def _version(name: str) -> int:
    matched = _VERSION.search(name)
    if matched is None:
        return 0
    return 10 * int(matched[1]) + int(matched[2]) if matched[1] else 10 * int(matched[3])


def _winograd(name: str) -> tuple[int, int, int, int]:
    """Return tile height and width in output pixels, then in taps."""
    if weight := _WINOGRAD_WEIGHT.search(name):
        high, wide = (weight[1], weight[2]), (weight[3] or weight[1], weight[4] or weight[2])
        # The output of a weight gradient is the filter: <taps-pixels> along H, then along W.
        return int(high[0]), int(wide[0]), int(high[1]), int(wide[1])
    if forward := _WINOGRAD_FORWARD.search(name):
        tile, taps = (int(part) for part in forward.groups() if part)
        return tile, tile, taps, taps
    # ConvBinWinograd3x3U and ConvBinWinogradRxS are F(2, 3) as well.
    return (2, 2, 3, 3) if "Wino" in name else (0, 0, 0, 0)


@lru_cache(maxsize=4096)
def parse_solver(name: str) -> Solver:
    """Parse a solver's name. Any word is valid, as MIOpen adds solvers.

    Raises:
        DataError: it is not a word of at most 128 printable ASCII characters.
    """
    if not _WORD.fullmatch(name):
        raise DataError(f"not a solver's name: {name[:80]!r}", code="bad-kernel")
    split = _SPLIT.search(name)
    tile_h, tile_w, taps_h, taps_w = _winograd(name)
    return Solver(
        name=name,
        id=SOLVER_IDS.get(name, UNKNOWN_ID),
        algorithm=Algorithm(_first(_ALGORITHMS, name)),
        origin=SolverOrigin(_first(_ORIGINS, name)),
        unit=MathUnit(_first(_UNITS, name)),
        serves=Serves(_first(_SERVES, name)),
        is_nhwc=name.endswith("NHWC"),
        is_1x1="1x1" in name and "11x11" not in name,
        is_padded="Padded" in name,
        is_grouped="Group" in name,
        version=_version(name),
        tile_h=tile_h,
        tile_w=tile_w,
        taps_h=taps_h,
        taps_w=taps_w,
        batches=int(split[1]) if split else 0,
    )
