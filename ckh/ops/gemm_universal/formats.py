"""Formats of measured matrix products: what AMD's and AITER's tools write."""

from __future__ import annotations

from ckh.data.formats import Formats, ProblemsFormat, Reader
from ckh.ops.gemm_universal.readers import aiter_csv, bench_log, tile_engine_json
from ckh.ops.gemm_universal.readers.winners import WINNERS

FORMATS = Formats(
    readers=tuple(Reader(one.NAME, one.sniff, one.read) for one in (tile_engine_json, bench_log)),
    problems=(
        ProblemsFormat(
            "problems", "AITER's shapes", WINNERS, aiter_csv.NAME, "tuned table of AITER", aiter_csv.write_problems
        ),
    ),
)
