"""File formats of measured convolutions: the tables of AMD's benchmark."""

from __future__ import annotations

from ckh.data.formats import Formats, MappedTable, Reader, RowsFormat
from ckh.ops.grouped_conv.readers import amd_csv
from ckh.ops.grouped_conv.readers.amd_export import AMD_CSV, write_amd_csv

FORMATS = Formats(
    readers=(
        Reader(amd_csv.NAME, amd_csv.sniff, amd_csv.read),
        Reader(amd_csv.PARQUET_NAME, amd_csv.sniff_parquet, amd_csv.read),
    ),
    mapped=MappedTable(amd_csv.COLUMNS, amd_csv.read_table),
    rows=(RowsFormat("csv", "AMD's 24 columns", AMD_CSV, write_amd_csv),),
)
