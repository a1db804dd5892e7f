"""Times above the peak rates of their GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ckh.api.training_data import TrainRequest, read_rows
from ckh.archs import load_arch
from ckh.cli import run
from ckh.data.dataset import Dataset, read_dataset, write_dataset
from ckh.data.peaks import ABOVE, MOST, of_peak
from ckh.errors import DataError, ExitCode
from ckh.ops import operation
from ckh.ops.grouped_conv.operation import moves_all
from tests.refusals import expect_error, expect_refusal

NAME = "gemm_fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_64x64x64_4x1x1_16x16x16"
M = N = K = 8192
# 2 M N K operations at 2,048 per CU and clock, of the 304 CUs of an MI300X at 2,100 MHz: 1,307 TFLOPS.
LEAST_MS = 2 * M * N * K / (2048 * 304 * 2100e6) * 1e3


def rows(*times: float, m: int = M) -> pd.DataFrame:
    """Measurements of one kernel of distinct problems, at multiples of the shortest time."""
    sizes = [(m + 8 * number, time) for number, time in enumerate(times)]
    frame: pd.DataFrame = pd.DataFrame(
        [{"kernel": NAME, "m": m, "n": N, "k": K, "latency_ms": m / M * LEAST_MS * time} for m, time in sizes]
    )
    return frame


def converted(frame: pd.DataFrame, arch: str = "gfx942", **options: Any) -> Dataset:
    """Convert measurements to a dataset."""
    return Dataset.from_frame(frame, op="gemm_universal", arch=arch, **options)


@pytest.mark.parametrize(("share", "is_kept"), [(1.0, True), (1.19, True), (1.21, False)])
def test_times_above_the_peak_are_left_out(share: float, is_kept: bool) -> None:
    """Up to a fifth above the peak is allowed for clocks above the nominal one."""
    made = converted(rows(*[2.0] * 9, 1 / share))
    assert len(made) == 9 + is_kept
    assert of_peak(made.frame, made.op).max() == pytest.approx(share if is_kept else 0.5)


def test_more_than_a_tenth_is_an_error() -> None:
    """With two of ten the input is refused, naming the factor of the worst and the architecture."""
    frame = rows(*[2.0] * 8, 0.01, 1 / 85)
    with expect_refusal(DataError, "impossible-time", "130,744 TFLOPS", "100", "gfx942", "2", "10"):
        converted(frame)
    assert len(converted(frame, peak_check=False)) == 10


def test_the_host_has_no_peak() -> None:
    """Its peak rates are unknown, so that any time is possible."""
    assert len(converted(rows(*[1e-6] * 4).assign(kernel=NAME.replace("fp16", "fp32")), "host")) == 4


def test_bytes_are_held_against_the_caches_and_the_memory() -> None:
    """What fits in the caches may come from the L2, at 64 bytes of each CU and clock; the rest comes from memory."""
    arch = load_arch("gfx942")
    assert arch.peaks is not None
    caches = (8 * 4096 + 262144) * 1024
    for n, least_s in (
        (1024, (2 * (K + 1024 * K + 1024)) / (64 * 304 * 2100e6)),
        (65536, (2 * (K + 65536 * K + 65536) - caches) / (arch.peaks.bandwidth_gb_s * 1e9)),
    ):
        frame = pd.DataFrame([{"kernel": NAME, "m": 1, "n": n, "k": K, "latency_ms": 1e3 * least_s}])
        made = converted(frame)
        assert of_peak(made.frame, made.op) == pytest.approx([1.0])


def test_rows_that_name_another_gpu_have_its_compute_units() -> None:
    """An MI308X has 80 of the 304 compute units."""
    made = converted(rows(4.0, 8.0), num_cus=80)
    assert of_peak(made.frame, made.op) == pytest.approx([0.25 * 304 / 80, 0.125 * 304 / 80], rel=1e-6)


@pytest.mark.parametrize(
    ("filter_", "stride", "dilation", "moves"), [(1, 1, 1, True), (1, 2, 1, False), (3, 2, 1, True), (3, 2, 2, False)]
)
def test_strided_filters_leave_pixels_out(filter_: int, stride: int, dilation: int, moves: bool) -> None:
    """X counts only where filters touch all of it."""
    columns = {f"stride_{axis}": [1] for axis in "dhw"} | {f"dilation_{axis}": [1] for axis in "dhw"}
    columns |= {"Z": [1], "Y": [filter_], "X": [filter_], "stride_w": [stride], "dilation_w": [dilation]}
    assert moves_all(columns).tolist() == [moves]


def test_random_tokens_leave_experts_out() -> None:
    """Of 256 experts, 32 tokens that choose 8 each at random reach 63 % of those that they could choose at most."""
    made = operation("aiter_moe").training.needed(
        pd.DataFrame({"tokens": [32, 1], "experts": [256, 8], "topk": [8, 4]})
    )
    assert made[1].tolist() == pytest.approx([1 - (248 / 256) ** 32, 1.0])


def test_convert_refuses_and_insists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 4 and nothing written; with --no-peak-check the rows are written, and few are counted in a note."""
    path, out = tmp_path / "t.csv", tmp_path / "out.parquet"
    words = ["convert", str(path), "--op", "gemm_universal", "--map", "latency_ms=latency_ms", "--arch", "gfx942"]
    words += ["--out", str(out), "--json"]
    rows(*[0.5] * 3).to_csv(path, index=False)
    assert run(words) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "impossible-time", path.name, 3)
    assert not out.exists()
    assert run([*words, "--no-peak-check"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["rows"] == 3
    rows(*[2.0] * 20, 0.1).to_csv(path, index=False)
    assert run([*words, "--force"]) == ExitCode.OK
    summary = json.loads(capsys.readouterr().out)
    assert (summary["rows"], summary["dropped"]) == (20, {ABOVE: 1})


def test_training_holds_datasets_against_the_peak(tmp_path: Path) -> None:
    """A dataset that was converted without the check is refused, or its few impossible rows are left out."""
    path = tmp_path / "data.parquet"
    for times, kept in (([2.0] * 20 + [0.1], 20), ([0.1] * 4, 0)):
        write_dataset(converted(rows(*times), peak_check=False), path)
        if kept:
            assert len(read_rows(TrainRequest({}, {}, [path], sample=100))[0]) == kept
        else:
            with expect_refusal(DataError, "impossible-time", "10", "gfx942", "4"):
                read_rows(TrainRequest({}, {}, [path], sample=100))
        insisting = TrainRequest({}, {}, [path], sample=100, peak_check=False)
        assert len(read_rows(insisting)[0]) == len(times)


# Rows above the bound: six placeholders of 1 us, and eleven that say 80 compute units and were measured on more.
IMPOSSIBLE = {"aiter-gemm-gfx942": 17}


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "data").glob("a*-*.parquet")), ids=lambda path: path.stem
)
def test_measured_data_are_below_the_peak(path: Path) -> None:
    """The fastest of AMD's possible times has 0.81 of the peak, or 1.12 with those of the wrong number of units."""
    dataset = read_dataset(path)
    shares = of_peak(dataset.frame, dataset.op)
    assert int((shares > MOST).sum()) == IMPOSSIBLE.get(path.stem, 0)
    assert np.quantile(shares, 0.99) < 0.7
