"""Profiles of AITER's tuners (`-o2`), which have the times of all kernels, are trained on and judged by times.

`block_scaled_times.csv` are the microseconds of 50 kernels on eight block-scaled fp8 GEMMs of an MI355X, of those
published under MIT in a fork of AITER (data/README.md), to two digits; a profile is made of them.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.errors import ExitCode
from ckh.learn.models.manifest import our_manifest
from tests.refusals import expect_warning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TIMES = Path(__file__).with_name("block_scaled_times.csv")
FAMILY = "a8w8_blockscale_bpreshuffle"
COLUMNS = ("gfx", "cu_num", "M", "N", "K", "libtype", "kernelId", "splitK", "us", "kernelName", "tflops", "bw")
FEW = ("1x768x7168", "384x7168x768")  # of which only the winner is known in some tests


def times() -> dict[str, dict[str, float]]:
    """Microseconds by sizes and kernel."""
    with TIMES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    sizes = [name for name in rows[0] if name != "kernelName"]
    return {size: {row["kernelName"]: float(row[size]) for row in rows} for size in sizes}


def lines(known: dict[str, dict[str, float]]) -> Iterator[dict[str, Any]]:
    """Rows of a profile by column."""
    for size, kernels in known.items():
        for number, (name, us) in enumerate(kernels.items()):
            m, n, k = size.split("x")
            library = "cktile" if "cktile" in name else "ck"
            yield dict(zip(COLUMNS, ("gfx950", 256, m, n, k, library, number, 0, us, name, 0, 0), strict=True))


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write a profile; a row without an `errRatio` is right."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, (*COLUMNS, "errRatio"), restval=0.0)
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[dict[str, dict[str, float]]], Any]:
    """A function that converts a profile, trains on it, and returns the evaluation of the model on it."""

    def train(known: dict[str, dict[str, float]]) -> Any:
        source, data, model = tmp_path / f"{FAMILY}_profile.csv", str(tmp_path / "d.parquet"), str(tmp_path / "model")
        write(source, list(lines(known)))
        assert run(["convert", str(source), "--out", data]) == ExitCode.OK
        assert run(["train", data, "--out", model, "--trees", "30", "--jobs", "1"]) == ExitCode.OK
        capsys.readouterr()
        args = ["evaluate", "--model", model, "--data", data, "--with-trained", "--json", "--among", "measured"]
        assert run(args) == ExitCode.OK
        return json.loads(capsys.readouterr().out)

    return train


@pytest.mark.slow
def test_a_profile_is_judged_by_its_times(trained: Callable[..., Any], tmp_path: Path) -> None:
    """Labels are times; efficiencies of chosen, random and best single kernels are those of the table."""
    known = times()
    document = trained(known)
    ours = our_manifest(tmp_path / "model")
    assert ours.get("labels", "measured") == "measured"
    assert 0.5 < ours["oof_efficiency"]["rank"]["mean"] <= 1
    efficiency = {size: min(us.values()) / np.array([*us.values()]) for size, us in known.items()}
    assert document["winners"] is None
    assert document["coverage"]["problems"] == len(known)
    sizes = [dict(zip("mnk", size.split("x"), strict=True)) for size in known]
    chosen = {choice["problem"]: choice["kernel"] for choice in document["choices"]}
    expected = []
    for size, item in zip(known, sizes, strict=True):
        (name,) = (text for text in chosen if text.endswith("_m{m}_n{n}_k{k}".format(**item)))
        expected.append(min(known[size].values()) / known[size][chosen[name]])
    assert document["efficiency"]["mean"]["value"] == pytest.approx(np.mean(expected))
    baselines = document["baselines"]
    random = np.mean([item.mean() for item in efficiency.values()])
    assert baselines["random kernel (expected)"]["mean"]["value"] == pytest.approx(random)


@pytest.mark.slow
def test_problems_with_winners_alone_are_judged_apart(trained: Callable[..., Any], tmp_path: Path) -> None:
    """Of two problems only the winner is known: six are judged by efficiency, two by the winner's place."""
    known = times()
    for size in FEW:
        known[size] = dict([min(known[size].items(), key=lambda item: item[1])])
    document = trained(known)
    assert our_manifest(tmp_path / "model")["labels"] == "winners"
    assert document["efficiency"]["problems"] == len(known) - len(FEW)
    assert 0.8 < document["efficiency"]["mean"]["value"] <= 1
    assert document["winners"]["model"]["problems"] == len(FEW)


def test_failed_and_wrong_kernels_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """-1 and inf are failures; a kernel with more than 5 % of wrong elements is not the fastest."""
    source, out = tmp_path / f"{FAMILY}_profile.csv", tmp_path / "data.parquet"
    rows = list(lines({"1x768x7168": times()["1x768x7168"]}))
    changes: tuple[dict[str, Any], ...] = ({"us": -1}, {"us": "inf"}, {"us": 0.5, "errRatio": 0.06}, {"errRatio": 0.05})
    rows[:4] = [row | change for row, change in zip(rows, changes, strict=False)]
    write(source, rows)
    assert run(["convert", str(source), "--out", str(out)]) == ExitCode.OK
    err = capsys.readouterr().err
    expect_warning(err, "left-out", 2, "line 2")
    expect_warning(err, "left-out", 1, "line 4")
    frame = read_dataset(out).frame
    assert len(frame) == len(rows) - 3
    assert rows[3]["kernelName"] in set(frame["kernel"])
    assert frame["latency_ms"].min() > 0.001


def test_winners_are_kept_whatever_error_their_tuner_accepted(tmp_path: Path) -> None:
    """Rows of different shapes are no profile: AITER's own tables have winners with 16 % of wrong elements."""
    source, out = tmp_path / f"{FAMILY}_tuned_gemm.csv", tmp_path / "data.parquet"
    rows = list(lines({size: dict([min(us.items(), key=lambda item: item[1])]) for size, us in times().items()}))
    write(source, [row | {"errRatio": 0.16} for row in rows])
    assert run(["convert", str(source), "--out", str(out)]) == ExitCode.OK
    assert len(read_dataset(out)) == len(rows) == 8
