"""Selection of a pair's row among several inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from ckh.data import tables
from ckh.data.dataset import read_dataset, write_dataset
from ckh.data.formats import Reading
from ckh.data.merge import Merged, merge
from ckh.data.spool import store
from ckh.errors import DataError
from ckh.schema import REPEATED
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from ckh.data.dataset import Dataset
    from ckh.data.spool import StoredRows


def rows_of(*table: pa.Table) -> StoredRows:
    """Store the rows of tables, like a reader."""
    return store(table)


def measured(dataset: Dataset, run_id: str, **changes: Any) -> Reading:
    """One row of a run with differences from the dataset's first row."""
    row = dataset.frame.iloc[[0]].assign(run_id=run_id, **changes)
    if row["status"].iloc[0] not in {"ok", "unstable"}:
        row = row.assign(is_valid=False)
    table = tables.conform(tables.from_pandas(row, "test"), "test")
    return Reading(rows_of(table), ({"name": run_id, "format": "test", "sha256": ""},))


def merged(*readings: Reading) -> Merged:
    """Merge readings."""
    return merge(readings)


def test_the_last_row_of_a_run_wins(dataset: Dataset) -> None:
    """Within a run a later row replaces the earlier, even if it failed."""
    result = merged(measured(dataset, "a", samples=9), measured(dataset, "a", status="crash", latency_ms=float("nan")))
    assert result.dataset.frame["status"].tolist() == ["crash"]
    assert (result.superseded, result.repeated) == (1, 0)


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        ({"samples": 30, "remeasured": True}, {"status": "wrong_result"}),
        ({"samples": 30, "remeasured": True}, {"status": "nondeterministic"}),
        ({"status": "timeout"}, {"samples": 1}),
        ({"status": "crash"}, {"status": "unstable"}),
        ({"samples": 30, "remeasured": False}, {"samples": 5, "remeasured": True}),
        ({"samples": 5}, {"samples": 30}),
        ({"samples": float("nan")}, {"samples": 1}),
    ],
)
def test_across_runs_rows_have_precedence(dataset: Dataset, weaker: dict[str, Any], stronger: dict[str, Any]) -> None:
    """Wrong before measured before failed, then remeasured, then samples, for any order of the inputs."""
    pair = [measured(dataset, "weaker", **weaker), measured(dataset, "stronger", **stronger)]
    for readings in (pair, pair[::-1]):
        result = merged(*readings)
        assert result.dataset.frame["run_id"].tolist() == ["stronger"]
        assert (result.superseded, result.repeated) == (0, 1)


def test_equal_rows_give_the_later_input(dataset: Dataset) -> None:
    """Among equal rows the later input wins."""
    assert merged(measured(dataset, "a"), measured(dataset, "b")).dataset.frame["run_id"].tolist() == ["b"]


def test_different_archs_problems_and_kernels_are_kept_apart(dataset: Dataset) -> None:
    """Only rows with the same problem, arch and kernel replace each other."""
    changes: list[dict[str, Any]] = [{}, {"arch": "gfx950"}, {"dilation_d": 2}, {"stride_w": 2}, {"kernel": "k"}]
    result = merged(*(measured(dataset, "a", **change) for change in changes))
    assert len(result.dataset) == len(changes)
    assert len(result.dataset.metadata["sources"]) == len(changes)


def test_repeated_times_of_an_input_are_averaged(dataset: Dataset) -> None:
    """Geometric mean over the repeated rows; TFLOPS and bandwidth follow, failures are ignored."""
    first = dataset.frame.iloc[0]
    four = {"latency_ms": 4.0, "latency_min_ms": 3.5, "samples": 5, "tflops": 2.0, "bandwidth_gb_s": 10.0}
    nine = {"latency_ms": 9.0, "latency_min_ms": 8.0, "samples": 5, "tflops": 8 / 9, "bandwidth_gb_s": 40 / 9}
    failed = {"status": "crash", "latency_ms": float("nan")}
    rows = rows_of(*(measured(dataset, "a", **changes).rows.table() for changes in (four, nine, failed)))
    row = merge([Reading(rows, (), repeats=True)]).dataset.frame.iloc[0]
    assert row["kernel"] == first["kernel"]
    assert [row[name] for name in ("latency_ms", "latency_min_ms", "spread", "samples")] == pytest.approx(
        [6.0, 3.5, 2.5 / 6.5, 10]
    )
    assert row[["tflops", "bandwidth_gb_s"]].tolist() == pytest.approx([8 / 6, 40 / 6])
    assert row[[*REPEATED]].tolist() == pytest.approx([4.0, 9.0])  # the earlier and the later half


def test_devices_of_one_arch_do_not_mix(dataset: Dataset) -> None:
    """Times of two different devices are not comparable; an unnamed device matches any device."""
    with expect_refusal(DataError, "mixed-devices", "gfx942", "B"):
        merged(measured(dataset, "a", device="A"), measured(dataset, "b", device="B"))
    assert len(merged(measured(dataset, "a", device="A"), measured(dataset, "b", device=None)).dataset) == 1


def test_kernels_compiled_with_different_flags_do_not_mix(dataset: Dataset, tmp_path: Path) -> None:
    """Of a GPU's runs; other runs, other architectures and files of other programs have no such flags."""

    def compiled(run_id: str, *flags: str, kind: str = "hip", arch: str = "gfx942") -> Reading:
        run = {"run_id": run_id, "device_kind": kind, "arch": arch, "flags": list(flags)}
        return replace(measured(dataset, run_id), runs=(run,))

    first = compiled("a", "-O3")
    with expect_refusal(DataError, "mixed-flags", "a", "b", "gfx942", "-mllvm -x=1"):
        merged(first, compiled("b", "-O3", "-mllvm -x=1"))
    for other in (
        compiled("b", "-O3"),
        compiled("b", kind="host"),
        compiled("b", arch="gfx950"),
        measured(dataset, "b"),
    ):
        assert len(merged(first, other).dataset) == 1
    for name, flags in (("one", ("-O3",)), ("two", ("-O2",))):
        part = dataset.frame.iloc[[0 if name == "one" else 1]]
        write_dataset(replace(dataset, frame=part, metadata=merged(compiled(name, *flags)).metadata), tmp_path / name)
    assert len(read_dataset(tmp_path / "one")) == 1
    with expect_refusal(DataError, "mixed-flags", "one", "two"):
        read_dataset(tmp_path / "one", tmp_path / "two")


def test_nothing_is_lost_without_repeats(dataset: Dataset) -> None:
    """A table without repeated pairs is unchanged."""
    table = tables.from_pandas(dataset.frame, "test")
    reading = Reading(rows_of(tables.conform(table, "test")), ())
    pd.testing.assert_frame_equal(merged(reading).dataset.frame, dataset.frame)
