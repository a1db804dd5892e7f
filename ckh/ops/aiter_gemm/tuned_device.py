"""AITER's devices: an architecture and a number of compute units."""

from __future__ import annotations

# Compute units of the whole GPU. MI308X, also gfx942, has 80; the architecture's profile is that of the MI300A.
WHOLE_GPU = {"gfx942": 304, "gfx950": 256}
# Architecture of tables that state only compute units, as AITER's did before 2025. 256 is gfx950's and gfx1250's.
ARCH_OF_CUS = {80: "gfx942", 304: "gfx942", 256: "gfx950"}


def compute_units(num_cus: int, arch: str) -> int:
    """Return the compute units that a problem states, or for 0 those of the architecture's whole GPU."""
    if num_cus:
        return num_cus
    if arch in WHOLE_GPU:
        return WHOLE_GPU[arch]
    from ckh.archs import load_arch

    return load_arch(arch).hardware.num_cus
