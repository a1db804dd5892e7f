"""Which of the solvers that AMD measured on Instincts another GPU has, by the devices that MIOpen's sources name.

Those of rocBLAS and of OpenCL, FFT and the naive ones name none (src/solver/conv: gemm*.cpp, conv_ocl_*.cpp, fft.cpp,
conv_direct_naive_conv*.cpp); Winograd RxS names gfx9, gfx10 and gfx11 (conv_winoRxS.cpp). All others name devices of
gfx9, or need their matrix instructions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.ops.miopen_conv.solvers import Algorithm, SolverOrigin

if TYPE_CHECKING:
    from ckh.archs import ArchSpec
    from ckh.ops.miopen_conv.solvers import Solver

_MEASURED_ON = "gfx9"
_ANYWHERE = (SolverOrigin.BLAS, SolverOrigin.OCL, SolverOrigin.NAIVE)
_WINOGRAD = "ConvBinWinogradRxS"
_WINOGRAD_ON = (_MEASURED_ON, "gfx11")


def runs_on(solver: Solver, arch: ArchSpec) -> bool:
    """True if MIOpen has a solver on a GPU, as far as its name decides."""
    family = arch.target_family
    if family == _MEASURED_ON or solver.origin in _ANYWHERE or solver.algorithm is Algorithm.FFT:
        return True
    return solver.name.startswith(_WINOGRAD) and family in _WINOGRAD_ON
