"""Resources of a compute unit that a compiled GPU kernel takes, as the compiler reports them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields


def _count(unit: str, meaning: str) -> int:
    # dataclasses.field is typed as the field's value.
    return field(metadata={"unit": unit, "meaning": meaning})  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Resources:
    """Of all GPU functions of a kernel, the most of each; of `occupancy`, the least. The fields are dataset columns."""

    vgprs: int = _count("registers/lane", "vector registers, by the compiler")
    agprs: int = _count("registers/lane", "accumulation registers, by the compiler")
    sgprs: int = _count("registers/wave", "scalar registers, by the compiler")
    lds_bytes: int = _count("bytes/block", "static LDS, by the compiler")
    scratch_bytes: int = _count("bytes/lane", "scratch memory, by the compiler")
    vgpr_spills: int = _count("registers/lane", "vector registers spilled to scratch memory, by the compiler")
    sgpr_spills: int = _count("registers/wave", "scalar registers spilled to vector registers, by the compiler")
    occupancy: int = _count("waves/SIMD", "waves that fit on a SIMD, by the compiler")


RESOURCE_NAMES = tuple(one.name for one in fields(Resources))
