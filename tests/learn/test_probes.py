"""Probes are stored per problem and device, and survive a crash in the middle of a line."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.data.dataset import Dataset
from ckh.errors import OutputError
from ckh.hardware.machine import processor_name
from ckh.learn.answers.probes import Probe, Timed, probe_path, recall, remember, remember_all, this_device
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.models.artifact import load_model
from tests.learn.conftest import measured, problems
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from pathlib import Path

PROBLEM = "conv_forward_fp32_nhwgc_2d_n1_c64_k64_g1_i28x28_f3x3_s1x1_p1x1_d1x1"


@pytest.fixture(autouse=True)
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty user folder."""
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path / "user"))


def probe(*times: tuple[str, float | None], problem: str = PROBLEM) -> Probe:
    """A probe of kernels on this machine; kernels without a time failed."""
    kernels = tuple(
        Timed(name, "launch_error", "it fell", None, None) if ms is None else Timed(name, "ok", "", ms, 0.01)
        for name, ms in times
    )
    return Probe(problem, "host", this_device("host") or "", "2026-01-02T03:04:05+00:00", "0", "g++", kernels)


def test_the_last_probe_is_recalled() -> None:
    """None at first; then the last probe of this problem."""
    assert recall(PROBLEM, "host") is None
    first, second = probe(("a", 2.0), ("b", 1.0)), probe(("a", 3.0))
    remember(first)
    assert recall(PROBLEM, "host") == first
    remember(second)
    remember(probe(("c", 1.0), problem="another"))
    assert recall(PROBLEM, "host") == second
    assert len(probe_path(PROBLEM, "host").read_text().splitlines()) == 2


def test_another_device_does_not_count() -> None:
    """Times of another machine with the same home folder are kept, but not used."""
    mine = probe(("a", 2.0))
    remember(mine)
    remember(replace(mine, device="another CPU"))
    assert recall(PROBLEM, "host") == mine


def test_a_truncated_line_is_isolated() -> None:
    """The truncated line is skipped, and the next line is complete."""
    first, second = probe(("a", 2.0)), probe(("b", 1.0))
    remember(first)
    path = probe_path(PROBLEM, "host")
    with path.open("a", encoding="utf-8") as file:
        file.write('{"problem": "conv_')
    assert recall(PROBLEM, "host") == first
    remember(second)
    assert recall(PROBLEM, "host") == second


@pytest.mark.parametrize("line", ["[]", "{}", '{"kernels": 3}', "null", "\x00"])
def test_a_foreign_line_is_skipped(line: str) -> None:
    """For any JSON."""
    first = probe(("a", 2.0))
    remember(first)
    with probe_path(PROBLEM, "host").open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    assert recall(PROBLEM, "host") == first


def test_a_changed_line_is_skipped() -> None:
    """Its digest does not match."""
    first = probe(("a", 2.0))
    for each in (first, probe(("b", 1.0))):
        remember(each)
    path = probe_path(PROBLEM, "host")
    path.write_text(path.read_text(encoding="utf-8").replace('"b"', '"c"'), encoding="utf-8")
    assert recall(PROBLEM, "host") == first


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file is in place of the folder."""
    (tmp_path / "user").write_text("")
    with expect_refusal(OutputError, "unwritable"):
        remember(probe(("a", 2.0)))


def test_measured_kernels_come_first_and_failed_ones_last(model_dir: Path) -> None:
    """The third choice was fastest, the first failed: 3rd, 2nd, then the rest as predicted, the first at the end."""
    model = load_model(model_dir)
    ranking = ranking_of(problems()[0], model)
    before = ranking.ranked
    name = model.spec.op.kernels.name
    times = [(name(before[0].kernel), None), (name(before[1].kernel), 2.0), (name(before[2].kernel), 1.0)]
    after = ranking.by_times(probe(*times, ("no_such_kernel", 0.5)))
    expected = [before[2], before[1], *before[3:], before[0]]
    assert [candidate.kernel for candidate in after.ranked] == [timed.kernel for timed in expected]
    assert [candidate.score for candidate in after.ranked] == [item.score for item in expected]
    assert [candidate.tflops for candidate in after.ranked] == [item.tflops for item in expected]
    assert [item.measured_latency_ms for item in after.best(4)] == [1.0, 2.0, None, None]
    assert after.best(1)[0].measured_latency_ms == 1.0
    assert after.probe is not None
    assert len(after.probe.kernels) == 3


def test_a_run_is_remembered_as_probes() -> None:
    """Times and failures of each problem on the device of the rows; a later probe is kept."""
    device = load_arch("host").hardware
    data = measured()
    frame = data.frame.assign(
        device=processor_name(),
        hw_max_clock_mhz=device.max_clock_mhz,
        hw_l2_cache_kb=device.l2_cache_kb,
        measured_at=1.7e9 + np.arange(len(data)),
    )
    run = Dataset(frame, {"runs": [{"compiler": "g++"}]})
    first, *others = problems()
    later = replace(probe(("a", 2.0), problem=others[0].canonical()), when="2036-01-02T03:04:05+00:00")
    remember(later)
    assert remember_all(run) == len(problems())
    result = recall(first.canonical(), "host")
    assert result is not None
    rows = frame[data.problem_ids == 0]
    assert result.when == datetime.fromtimestamp(rows["measured_at"].max(), timezone.utc).isoformat(timespec="seconds")
    assert {kernel.kernel: (kernel.status, kernel.latency_ms) for kernel in result.kernels} == {
        row.kernel: (row.status, row.latency_ms if row.is_valid else None) for row in rows.itertuples()
    }
    assert recall(others[0].canonical(), "host") == later
    before = probe_path(first.canonical(), "host").read_bytes()
    remember_all(run)
    assert probe_path(first.canonical(), "host").read_bytes() == before
    remember_all(Dataset(frame.assign(device="another CPU", measured_at=1.8e9), run.metadata))
    assert recall(first.canonical(), "host") == result
