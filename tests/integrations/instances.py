"""Stand-ins for CK's GEMM instances in Inductor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass
class CkGemm:
    """A stand-in for a CK GEMM instance, with the fields of `ck4inductor` that identify it."""

    a_layout: str = "Row"
    b_layout: str = "Col"
    c_layout: str = "Row"
    a_element_dtype: str = "F16"
    gemm_specialization: str = "GemmSpecialization::MNPadding"
    block_size: int = 256
    m_per_block: int = 128
    n_per_block: int = 256
    k_per_block: int = 64
    m_per_xdl: int = 32
    n_per_xdl: int = 32
    m_xdl_per_wave: int = 2
    n_xdl_per_wave: int = 4
    block_gemm_pipeline_scheduler: str = "BlockGemmPipelineScheduler::Intrawave"
    block_gemm_pipeline_version: str = "BlockGemmPipelineVersion::v3"


class CkOp(NamedTuple):
    """An instance and its split of K, as in Inductor."""

    op: CkGemm
    kBatch: int  # noqa: N815 - Inductor's


def tiled(m: int, n: int, per_wave_m: int, per_wave_n: int, **others: Any) -> CkOp:
    """A GEMM instance of a tile."""
    sizes: dict[str, Any] = {
        "m_per_block": m,
        "n_per_block": n,
        "m_xdl_per_wave": per_wave_m,
        "n_xdl_per_wave": per_wave_n,
    }
    return CkOp(CkGemm(**sizes, **others), 1)
