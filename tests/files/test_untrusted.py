"""Untrusted files have limits: larger ones are refused in one line, before they fill the memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from ckh.data.dataset import read_dataset
from ckh.errors import DataError, ModelError
from ckh.files import jsonfields, untrusted
from ckh.files.jsonfields import JsonError, parse_json
from ckh.files.untrusted import by_column, csv_rows
from tests.refusals import expect_refusal
from tests.reliability import samples
from tests.reliability.targets import TARGETS

WHOLE: tuple[str, ...] = (
    "tile-engine-json",
    "aiter-tuned-csv",
    "conv-problem-files",
    "gemm-problem-files",
    "registry",
)
WHOLE += ("arch", "kernel-lists", "aiter-gemm-problem-files", "aiter-moe-problem-files")


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_text_size_is_limited(name: str, tmp_path: Path) -> None:
    """A file one byte too large is refused with the limit and a remedy."""
    reader = TARGETS[name].open(tmp_path)
    with expect_refusal(DataError, "too-large", "64", "\nsplit "):
        reader(b" " * untrusted.MOST_TEXT_BYTES + b"1")


@pytest.mark.parametrize("name", ["spec", "calibration", "learned-kernels"])
def test_model_file_size_is_limited(name: str, tmp_path: Path) -> None:
    """The limit is lower; the hint does not suggest splitting the file."""
    with expect_refusal(ModelError, "too-large", "16", "train the model"):
        TARGETS[name].open(tmp_path)(b" " * untrusted.MOST_MODEL_BYTES + b"1")


@pytest.mark.parametrize("text", ["[" + "[]," * (1 << 22) + "1]", b"[" + b"1.5," * (1 << 22) + b"1]"])
def test_json_of_many_values_is_refused(text: str | bytes) -> None:
    """Twelve megabytes of text would take a hundred times as much as Python objects."""
    tracemalloc.start()
    with pytest.raises(JsonError, match=str(jsonfields.MOST_VALUES)):
        parse_json(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.slow
def test_a_dataset_of_more_rows_than_bytes_is_refused(tmp_path: Path) -> None:
    """Measured times do not compress that well."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "data.parquet"
    table = pa.concat_tables([samples.table()] * 50_000).replace_schema_metadata(
        pq.read_schema(pa.BufferReader(samples.parquet()[0])).metadata
    )
    pq.write_table(table.combine_chunks(), path, compression="zstd")
    with expect_refusal(DataError, "damaged", 300000):
        read_dataset(path)


def test_rows_of_csv_have_the_width_of_the_header() -> None:
    """Omitted last cells are empty, empty ones beyond the header are dropped, and other cells there are an error."""
    text = "\na, b,c\n1\n\n1,2,3,,\n1,2,3,4\n"
    header, *rows = csv_rows(Path("a.csv"), text)
    assert header == (2, ["a", "b", "c"])
    assert rows == [(3, ["1", "", ""]), (5, ["1", "2", "3"]), (6, ["1", "2", "3", "4"])]
    assert by_column(header[1], rows[1][1]) == {"a": "1", "b": "2", "c": "3"}
    with expect_refusal(DataError, "bad-row", 4, 3):
        by_column(header[1], rows[2][1])


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_last_row_without_an_end_of_its_line_is_cut(end: str) -> None:
    """It keeps its cells if it has fewer than the header; a whole one needs no end."""
    lines = ["a,b,c", "1", '"2\n",2']
    expected = [(1, ["a", "b", "c"]), (2, ["1", "", ""]), (4, ["2", "2"])]
    assert [*csv_rows(Path("a.csv"), end.join(lines))] == expected
    assert [*csv_rows(Path("a.csv"), end.join([*lines, ""]))][2] == (4, ["2", "2", ""])
    assert [*csv_rows(Path("a.csv"), end.join([*lines[:2], "1,2,3"]))][2] == (3, ["1", "2", "3"])
    with expect_refusal(DataError, "bad-row", 2, 3):
        by_column(expected[0][1], expected[2][1])
