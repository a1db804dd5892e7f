"""Datasets: identity, checks on reading, and Parquet files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ckh.data import tables
from ckh.data.dataset import Dataset, make_dataset, read_dataset, save_blocks, write_dataset
from ckh.data.parquet import ContentDigest
from ckh.errors import DataError, OutputError
from ckh.ops.grouped_conv.operation import CONV_DATASET, CONV_IDENTITY
from ckh.ops.grouped_conv.problem import CONV_COLUMNS
from ckh.schema import HARDWARE, SCHEMA_VERSION
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture
def path(dataset: Dataset, tmp_path: Path) -> Path:
    """Write the dataset to a file."""
    path = tmp_path / "data.parquet"
    write_dataset(dataset, path)
    return path


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> Path:
    """Change a file and its metadata, without updating the checksum."""
    table = pq.read_table(path)
    document = json.loads(table.schema.metadata[b"ckh"])
    document.pop("content_sha256", None)
    changed = change(table.replace_schema_metadata({b"ckh": json.dumps(document)}))
    metadata = {b"ckh": json.dumps(document), **(changed.schema.metadata or {})}
    pq.write_table(changed.replace_schema_metadata(metadata), path)
    return path


def replaced(name: str, values: pa.Array) -> Callable[[pa.Table], pa.Table]:
    """Return a change of one column."""
    return lambda table: table.set_column(table.column_names.index(name), name, values)


def test_round_trip(dataset: Dataset, path: Path) -> None:
    """A file returns the same rows, types, metadata and content hash."""
    again = read_dataset(path)
    pd.testing.assert_frame_equal(again.frame, dataset.frame)
    assert again.metadata == dataset.metadata
    assert again.content_hash == dataset.content_hash


def test_former_column_names_are_read(dataset: Dataset, path: Path) -> None:
    """Kernels were in the column `kernel_name`: such a file has the same rows and checksum, like the shipped files."""
    table = pq.read_table(path)
    names = ["kernel_name" if name == "kernel" else name for name in table.column_names]
    pq.write_table(table.rename_columns(names).replace_schema_metadata(table.schema.metadata), path)
    again = read_dataset(path)
    pd.testing.assert_frame_equal(again.frame, dataset.frame)
    assert again.content_hash == dataset.content_hash
    shipped = DATA / "amd-gfx950-conv-20kernels.parquet"
    assert "kernel_name" in pq.read_schema(shipped).names
    digest = json.loads(pq.read_schema(shipped).metadata[b"ckh"])["content_sha256"]
    assert read_dataset(shipped).content_hash == digest
    assert list(again.frame.columns) == [column.name for column in CONV_DATASET]


def test_metadata_of_the_file(dataset: Dataset, path: Path) -> None:
    """Units and meanings are column metadata; provenance and measurement method are file metadata."""
    schema = pq.read_schema(path)
    for column in CONV_DATASET:
        field = schema.field(column.name)
        assert field.type == pa.type_for_alias(column.type)
        assert field.nullable == column.nullable
        assert field.metadata == {b"unit": column.unit.encode(), b"meaning": column.meaning.encode()}
    document = json.loads(schema.metadata[b"ckh"])
    assert document["schema_version"] == SCHEMA_VERSION
    assert document["content_sha256"] == dataset.content_hash
    assert "median" in document["how_measured"]
    assert [source["name"] for source in document["sources"]] == ["amd.csv"]
    assert len(document["sources"][0]["sha256"]) == 64
    of_columns = pq.ParquetFile(path).metadata.row_group(0).to_dict()["columns"]
    result = {of_column["path_in_schema"]: of_column["compression"] for of_column in of_columns}
    assert (result["variant"], result["latency_ms"]) == ("SNAPPY", "ZSTD")


def test_problems_are_distinguished_by_their_complete_identity(dataset: Dataset) -> None:
    """Rows that differ in any identity column, or in the arch, are different problems."""
    base = dataset.frame.iloc[[0]]
    variants = [base]
    for column in (*CONV_IDENTITY, "arch"):
        other = base.copy()
        other[column] = base[column] + (1 if column in CONV_COLUMNS or column == "ndim_spatial" else "x")
        variants.append(other)
    ids = Dataset(pd.concat([*variants, base], ignore_index=True)).problem_ids
    assert ids.tolist() == [*range(len(CONV_IDENTITY) + 2), 0]


def test_numbering_survives_many_distinct_values(dataset: Dataset) -> None:
    """Products of value counts beyond 64 bits do not overflow."""
    rng = np.random.default_rng(0)
    frame = dataset.frame.iloc[np.zeros(2000, dtype=int)].reset_index(drop=True)
    for column in CONV_COLUMNS:
        frame[column] = rng.integers(0, 10**6, 2000)
    assert Dataset(frame).problem_ids.tolist() == list(range(2000))


def test_problems(dataset: Dataset) -> None:
    """`problems()[problem_ids[i]]` is the problem of row i."""
    assert len(dataset) == 6
    assert dataset.problem_ids.tolist() == [0, 0, 0, 1, 1, 1]
    first, second = dataset.problems()
    assert (first.stride_h, second.stride_h) == (1, 2)
    assert dataset.problem(4) == second
    assert first.canonical() == "conv_forward_bf16_nhwgc_2d_n2_c64_k128_g2_i28x28_f3x3_s1x1_p1x1_d1x1"


def test_valid_leaves_out_wrong_results(dataset: Dataset) -> None:
    """Only positive times of correct results remain."""
    assert dataset.valid().frame["latency_ms"].tolist() == pytest.approx([0.1, 0.2, 0.3, 0.1, 0.3])
    assert dataset.select(dataset.problem_ids == 1).problem_ids.tolist() == [0, 0, 0]


def test_hardware(dataset: Dataset) -> None:
    """The profile has integers where rows agree, arrays otherwise, and missing values are errors."""
    hardware = dataset.hardware()
    assert tuple(hardware) == HARDWARE
    assert (hardware["num_cus"], hardware["lds_capacity"]) == (304, 65536)
    assert dataset.num_cus == 304
    several = Dataset(dataset.frame.assign(hw_num_cus=[1, 1, 1, 2, 2, 2]))
    mixed = several.hardware()["num_cus"]
    assert several.num_cus == 0
    assert isinstance(mixed, np.ndarray)
    assert mixed.tolist() == [1, 1, 1, 2, 2, 2]
    with pytest.raises(DataError, match="hw_num_xcd"):
        Dataset(dataset.frame.assign(hw_num_xcd=np.nan)).hardware()


def test_arch_and_variants(dataset: Dataset) -> None:
    """A single arch is returned by name; several are an error."""
    assert (dataset.arch, dataset.variants) == ("gfx942", ("forward",))
    mixed = Dataset(dataset.frame.assign(arch=["gfx942", "gfx950"] * 3))
    assert mixed.archs == ("gfx942", "gfx950")
    with expect_refusal(DataError, "mixed-data", "2", "gfx942", "gfx950"):
        _ = mixed.arch


def test_the_content_hash_sees_values_nulls_and_order(dataset: Dataset) -> None:
    """Any change of content changes the hash; columns outside of the schema do not."""
    frame = dataset.frame
    changes = [
        frame.assign(latency_ms=frame["latency_ms"] * (1 + 1e-15)),
        frame.assign(non_zero=[np.nan, *frame["non_zero"][1:]]),
        frame.assign(message=None),
        frame.assign(kernel=frame["kernel"] + "_"),
        frame.iloc[::-1].reset_index(drop=True),
        frame.iloc[:5],
    ]
    hashes = {Dataset(changed).content_hash for changed in [frame, *changes]}
    assert len(hashes) == len(changes) + 1
    assert Dataset(frame.assign(other=1)).content_hash == dataset.content_hash


def test_several_files_and_folders(dataset: Dataset, tmp_path: Path) -> None:
    """Files are joined in order, those of a folder by name; common sources are listed once."""
    (source,) = dataset.metadata["sources"]
    for i in (0, 1):
        metadata = {**dataset.metadata, "sources": [{"name": str(i)}, source]}
        part = replace(dataset.select(dataset.problem_ids == i), metadata=metadata)
        write_dataset(part, tmp_path / f"{i}.parquet")
    joined = read_dataset(tmp_path)
    pd.testing.assert_frame_equal(joined.frame, dataset.frame)
    assert joined.metadata["sources"] == [{"name": "0"}, source, {"name": "1"}]
    assert read_dataset(tmp_path / "1.parquet", tmp_path / "0.parquet").content_hash != joined.content_hash


def test_a_pair_in_two_files_is_refused(dataset: Dataset, path: Path, tmp_path: Path) -> None:
    """Merged and unmerged files of the same rows are not counted twice."""
    write_dataset(dataset.select(dataset.problem_ids == 1), tmp_path / "part.parquet")
    with expect_refusal(DataError, "duplicate-rows", "3", "kernel", "_s2x1_"):
        read_dataset(path, tmp_path / "part.parquet")


def test_missing_nullable_columns_are_null(path: Path) -> None:
    """Missing optional columns are read as null."""
    rewrite(path, lambda table: table.drop_columns(["spread", "hw_num_xcd", "device", "remeasured"]))
    frame = read_dataset(path).frame
    assert frame[["spread", "hw_num_xcd", "device", "remeasured"]].isna().all().all()


def test_narrower_types_are_widened(path: Path) -> None:
    """int32 and dictionary-encoded strings are converted to the schema's types."""
    before = read_dataset(path)
    rewrite(path, lambda table: replaced("N", table["N"].cast(pa.int32()))(table))
    rewrite(path, lambda table: replaced("variant", table["variant"].dictionary_encode())(table))
    pd.testing.assert_frame_equal(read_dataset(path).frame, before.frame)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop_columns(["stride_w"]), "column stride_w is missing"),
        (replaced("C", pa.array(["64"] * 6)), "column C must be int64, not string"),
        (replaced("C", pa.array([64.5] * 6)), "column C must be int64, not double"),
        (replaced("variant", pa.array([1] * 6)), "column variant must be string, not int64"),
        (replaced("C", pa.array([64, None] * 3)), "column C has missing values"),
        (replaced("kernel", pa.array(["k", None] * 3)), "column kernel has missing values"),
        (replaced("latency_ms", pa.array([-1.0, None] * 3)), "column latency_ms has negative values"),
        (replaced("pad_w", pa.array([-1, 0] * 3)), "column pad_w has negative values"),
        (replaced("latency_ms", pa.nulls(6, pa.float64())), "latency_ms has no positive time in a row that is_valid"),
        (replaced("latency_ms", pa.array([float("nan")] * 6)), "latency_ms has no positive time"),
        (replaced("status", pa.array(["fine"] * 6)), "column status holds 'fine'"),
        (lambda table: table.slice(0, 0), "no rows"),
        (
            lambda table: table.replace_schema_metadata({b"ckh": b'{"schema_version": 99}'}),
            f"has schema version 99, this ckh reads {SCHEMA_VERSION}",
        ),
        (lambda table: table.replace_schema_metadata({b"ckh": b"{"}), "metadata is damaged"),
        (lambda table: table.replace_schema_metadata({b"ckh": b"{}"}), "metadata is damaged"),
    ],
)
def test_a_wrong_file_is_refused(path: Path, change: Callable[[pa.Table], pa.Table], message: str) -> None:
    """Invalid content is refused, naming file and column."""
    rewrite(path, change)
    with pytest.raises(DataError) as refused:
        read_dataset(path)
    assert message in refused.value.message
    assert str(path) in refused.value.message


@pytest.mark.parametrize("size", [0, 3, 1000, -10])
def test_an_empty_or_truncated_file_is_refused(path: Path, size: int) -> None:
    """A file that is not a complete Parquet file gives one clear error."""
    path.write_bytes(path.read_bytes()[:size])
    with expect_refusal(DataError, "unreadable", "data.parquet") as refused:
        read_dataset(path)
    assert "\n" not in refused.value.message


def test_a_changed_value_is_refused(dataset: Dataset, path: Path) -> None:
    """Modified rows are refused, whatever column was modified."""
    table = pq.read_table(path)
    other = table["kernel"][0].as_py().replace("_64x", "_16x")
    for name, value in (("tflops", 0.12), ("C", 128), ("kernel", other), ("spread", 0.5), ("run_id", None)):
        values = [value, *table[name].to_pylist()[1:]]
        pq.write_table(replaced(name, pa.array(values, table[name].type))(table), path)
        with expect_refusal(DataError, "damaged", "content_sha256") as refused:
            read_dataset(path)
        assert str(path) in refused.value.message
        assert "ckh convert" in str(refused.value.hint)
    pq.write_table(table.take([1, 0, 2, 3, 4, 5]), path)
    with expect_refusal(DataError, "damaged"):
        read_dataset(path)


def test_the_checksum_is_independent_of_the_encoding(dataset: Dataset, path: Path) -> None:
    """The same rows in other row groups and with other compression have the same checksum."""
    pq.write_table(pq.read_table(path), path, row_group_size=2, compression="none", use_dictionary=False)
    pd.testing.assert_frame_equal(read_dataset(path).frame, dataset.frame)


def test_dictionary_encoding_does_not_matter(dataset: Dataset, path: Path) -> None:
    """Duplicate dictionary values and fragmented blocks give the same file and checksum."""

    def renumbered(values: pa.DictionaryArray) -> pa.DictionaryArray:
        count, kind = len(values.dictionary), values.dictionary.type
        indices = values.indices.to_pylist()
        odd = [index if index is None else index + count * (row % 2) for row, index in enumerate(indices)]
        twice = pa.array([*values.dictionary.to_pylist()] * 2, kind)
        return pa.DictionaryArray.from_arrays(pa.array(odd, pa.int32()), twice)

    def numbered_oddly(column: pa.ChunkedArray) -> pa.ChunkedArray:
        if not pa.types.is_dictionary(column.type):
            return column
        item = column.combine_chunks()
        return pa.chunked_array([item.slice(0, 3), renumbered(item.slice(3))])

    table = tables.compact(tables.from_pandas(dataset.frame, "test"), "test")
    odd = pa.table({name: numbered_oddly(table[name]) for name in table.column_names})
    digest = ContentDigest(len(odd))
    for column in dataset.op.training.columns:
        digest.add(column, odd[column.name].chunks)
    assert digest.hexdigest() == dataset.content_hash
    assert any(chunk.null_count for chunk in odd["message"].chunks)
    other = path.with_name("other.parquet")
    save_blocks(other, dataset.op, [odd], dataset.metadata, dataset.content_hash)
    assert pq.read_table(other).equals(pq.read_table(path), check_metadata=True)
    pd.testing.assert_frame_equal(read_dataset(other).frame, dataset.frame)


def test_a_file_without_a_checksum_gives_a_warning(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is read with a warning that names it; a file with a checksum gives no warning."""
    read_dataset(path)
    assert capsys.readouterr().err == ""
    read_dataset(rewrite(path, lambda table: table))
    assert f"warning: {path} has no content_sha256" in capsys.readouterr().err


@pytest.mark.slow
def test_shipped_datasets_match_their_checksums() -> None:
    """Every dataset in data/ matches the checksum in its file."""
    files = sorted(DATA.glob("*.parquet"))
    assert len(files) >= 8
    for file in files:
        document = json.loads(pq.read_schema(file).metadata[b"ckh"])
        assert read_dataset(file).content_hash == document["content_sha256"], file.name


def test_selected_columns_are_read(dataset: Dataset, path: Path) -> None:
    """Selected and identity columns are kept, with categorical strings; all columns are verified."""
    part = read_dataset(path, columns=lambda _op: ("spread", "status"))
    kept = {*CONV_IDENTITY, "arch", "op_type", "kernel", "spread", "status"}
    assert list(part.frame) == [column.name for column in CONV_DATASET if column.name in kept]
    for name in kept:
        assert part.frame[name].astype(dataset.frame[name].dtype).equals(dataset.frame[name])
    assert isinstance(part.frame["kernel"].dtype, pd.CategoricalDtype)
    assert part.problems() == dataset.problems()
    table = pq.read_table(path)
    pq.write_table(replaced("tflops", pa.array([0.12] * 6))(table), path)
    with expect_refusal(DataError, "damaged"):
        read_dataset(path, columns=lambda _op: ("spread",))


def test_narrow_integers(dataset: Dataset, path: Path) -> None:
    """With `narrow`, integers have the narrowest type for their column and the same values."""
    part = read_dataset(path, columns=lambda _op: ("spread", "status"), narrow=True)
    assert {part.frame[name].dtype for name in dataset.op.problems.sizes} == {np.dtype("int8"), np.dtype("int16")}
    for name in dataset.op.problems.sizes:
        assert part.frame[name].tolist() == dataset.frame[name].tolist()
    assert part.problems() == dataset.problems()


def test_a_foreign_parquet_file_is_refused(tmp_path: Path) -> None:
    """Parquet not written by ckh is distinguished from a dataset."""
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with expect_refusal(DataError, "not-a-dataset"):
        read_dataset(path)


def test_missing_inputs_are_refused(tmp_path: Path) -> None:
    """A missing file, no path at all, and a folder without Parquet files are errors."""
    with expect_refusal(DataError, "no-file"):
        read_dataset(tmp_path / "none.parquet")
    with expect_refusal(DataError, "no-file"):
        read_dataset(tmp_path)
    with expect_refusal(DataError, "missing-option"):
        read_dataset()


def test_make_dataset_checks_and_fills(dataset: Dataset) -> None:
    """A frame with only the required columns is a dataset; a fractional size is refused."""
    needed = dataset.frame[[column.name for column in CONV_DATASET if not column.nullable] + ["latency_ms"]]
    made = make_dataset(needed)
    assert made.frame["tflops"].isna().all()
    assert made.metadata == {"sources": [], "runs": []}
    with pytest.raises(DataError, match="column C"):
        make_dataset(needed.assign(C=64.5))


def test_a_failed_write_leaves_the_old_file(dataset: Dataset, tmp_path: Path) -> None:
    """A file in place of the folder is an error that names the output, and the file is unchanged."""
    (tmp_path / "file").write_bytes(b"precious")
    with expect_refusal(OutputError, "unwritable"):
        write_dataset(dataset, tmp_path / "file" / "data.parquet")
    assert (tmp_path / "file").read_bytes() == b"precious"
