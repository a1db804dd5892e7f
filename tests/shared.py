"""Data that are not in the repository: in `../shared` beside the checkout, or `CKH_SHARED`."""

from __future__ import annotations

import os
from pathlib import Path

SHARED = Path(os.environ.get("CKH_SHARED", Path(__file__).resolve().parents[2] / "shared"))
DATA = SHARED / "data"
# Hardware of the reference vectors of features: the defaults of AMD's engine.
REFERENCE_HARDWARE = {
    "num_cus": 256,
    "simds_per_cu": 4,
    "shader_engines": 32,
    "max_clock_mhz": 2400,
    "max_waves_per_cu": 32,
    "wavefront_size": 64,
    "lds_capacity": 65536,
    "l1_cache_kb": 32,
    "l2_cache_kb": 4096,
    "l3_cache_kb": 262144,
    "num_xcd": 8,
}
