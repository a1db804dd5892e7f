"""Formats of measured convolutions: the CSV files of AMD's benchmark."""

from __future__ import annotations

from ckh.data.formats import Formats, Reader, RowsFormat
from ckh.ops.grouped_conv import amd_csv
from ckh.ops.grouped_conv.amd_export import AMD_CSV, write_amd_csv

FORMATS = Formats(
    readers=(Reader(amd_csv.NAME, amd_csv.sniff, amd_csv.read),),
    rows=(RowsFormat("csv", "AMD's 24 columns", AMD_CSV, write_amd_csv),),
)
