"""How good answers are for AITER's GEMMs by the model of another GPU; `benchmarks/transfer.py` prints these figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.ops.aiter_gemm.problem import CK, CKTILE
from ckh.ops.base import Measure, Worth

if TYPE_CHECKING:
    from collections.abc import Iterator

# Source and target -> family, library, problems, shares of winners that are first and among the first five, and the
# 95 % interval of the former.
_HITS = {
    ("gfx942", "gfx950"): (
        ("a4w4_blockscale", CK, 218, (0.234, 0.711), (0.171, 0.312)),
        ("a8w8", CK, 490, (0.439, 0.706), (0.370, 0.510)),
        ("a8w8_blockscale", CK, 1546, (0.541, 0.856), (0.487, 0.598)),
        ("a8w8_blockscale", CKTILE, 345, (0.032, 0.296), (0.012, 0.056)),
        ("a8w8_blockscale_bpreshuffle", CK, 1263, (0.528, 0.767), (0.471, 0.583)),
        ("a8w8_blockscale_bpreshuffle", CKTILE, 262, (0.134, 0.378), (0.085, 0.185)),
        ("a8w8_bpreshuffle", CK, 627, (0.284, 0.531), (0.240, 0.333)),
        ("a8w8_bpreshuffle", CKTILE, 305, (0.102, 0.403), (0.063, 0.145)),
    ),
    ("gfx950", "gfx942"): (
        ("a8w8", CK, 424, (0.399, 0.745), (0.336, 0.467)),
        ("a8w8_blockscale", CK, 1653, (0.500, 0.855), (0.450, 0.547)),
        ("a8w8_blockscale_bpreshuffle", CK, 566, (0.274, 0.511), (0.191, 0.368)),
        ("a8w8_bpreshuffle", CK, 1086, (0.141, 0.398), (0.110, 0.172)),
        ("a8w8_bpreshuffle", CKTILE, 401, (0.145, 0.354), (0.098, 0.193)),
    ),
}


def _judged() -> Iterator[Worth]:
    for (source, target), pools in _HITS.items():
        for family, library, problems, hits, interval in pools:
            yield Worth(
                of={"family": family, "library": library},
                target=target,
                on=f"{problems:,} GEMMs of {family} by {library}",
                figures=hits,
                interval=interval,
                measure=Measure.HITS,
                source=source,
            )


JUDGED = tuple(_judged())
