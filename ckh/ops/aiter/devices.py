"""AITER's devices: an architecture and a number of compute units."""

from __future__ import annotations

import os
from typing import Any

# Compute units where there is no GPU, as in archspecs, which quick answers do not read.
WITHOUT_GPU = {"gfx942": 304, "gfx950": 256}
_DRIVER = "/sys/class/kfd"  # of AMD GPUs
# Architecture of tables that state only compute units, as AITER's did before 2025. 256 is gfx950's and gfx1250's.
ARCH_OF_CUS = {80: "gfx942", 304: "gfx942", 256: "gfx950"}


def compute_units(num_cus: int, arch: str) -> int:
    """Return the compute units that a problem states, or for 0 those of a product or an architecture (`load_arch`)."""
    if num_cus:
        return num_cus
    if arch in WITHOUT_GPU and not os.path.exists(_DRIVER):  # noqa: PTH110 - quicker
        return WITHOUT_GPU[arch]
    from ckh.archs import load_arch

    return load_arch(arch).hardware.num_cus


def completed(problem: Any, arch: str) -> Any:
    """Return a problem with the compute units of a product or architecture, unless it states others."""
    if problem.num_cus:
        return problem
    from dataclasses import replace  # quick answers do not import it

    return replace(problem, num_cus=compute_units(0, arch))
