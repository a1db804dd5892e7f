"""File formats of measured matrix products, written by AMD's and AITER's tools."""

from __future__ import annotations

from ckh.data.formats import Formats, MappedTable, ProblemsFormat, Reader
from ckh.ops.gemm_universal.readers import aiter_csv, bench_log, tile_engine_json
from ckh.ops.gemm_universal.readers import gemm_table as table
from ckh.ops.gemm_universal.readers.winners_csv import WINNERS

FORMATS = Formats(
    readers=(
        *(Reader(item.NAME, item.sniff, item.read) for item in (tile_engine_json, bench_log)),
        Reader(table.CSV, table.sniff_csv, table.read),
        Reader(table.MASTER, table.sniff_master, table.read),
        Reader(table.PARQUET, table.sniff_parquet, table.read),
    ),
    mapped=MappedTable(table.GEMMS.columns, table.read_table),
    problems=(
        ProblemsFormat(
            "problems", "AITER's shapes", WINNERS, aiter_csv.NAME, "tuned table of AITER", aiter_csv.write_problems
        ),
    ),
)
