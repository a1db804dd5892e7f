"""Tuned tables for AITER: their content, the kernels that AITER's generator makes of them, and reading them back."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.errors import DataError, ExitCode
from ckh.ops.aiter.installed import ADDED_US, SLOWEST, roofline_us
from ckh.ops.aiter_gemm.consumers import installed_kernels
from ckh.ops.aiter_gemm.operation import padded_m
from ckh.ops.aiter_gemm.problem import AiterGemm
from ckh.ops.aiter_gemm.tuned import TunedLine, gemm_table
from tests.ops.aiter_gemm.newer_aiter import AITER, FAST, HEAD, SMALL, export, needs_aiter, rows_of
from tests.refusals import expect_error

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[3]
NAME = "a8w8_bpreshuffle_untuned_gemm.csv"
TUNED = "a8w8_bpreshuffle_tuned_gemm.csv"


def shapes(folder: Path, *sizes: tuple[int, int, int], name: str = NAME) -> Path:
    """Write an untuned table."""
    path = folder / name
    path.write_text("M,N,K\n" + "".join(f"{m}, {n}, {k}\n" for m, n, k in sizes))
    return path


def tuned(folder: Path, *rows: tuple[int, str, float]) -> Path:
    """Write a tuned table of one layer on gfx950: rows of A, kernel and time of each."""
    path = folder / TUNED
    path.write_text(
        HEAD
        + "".join(f"gfx950,256,{m},9216,4096,torch.float8_e4m3fn,ck,7,0,{us},{name},0,0,0.0\n" for m, name, us in rows)
    )
    return path


def test_predictions_are_marked_and_named_for_aiter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each shape gets a row with AITER's columns and keys, a kernel of its lists, and the mark of a prediction."""
    assert export(shapes(tmp_path, (1, 9216, 4096), (33, 512, 7168)), tmp_path / "out") == ExitCode.OK
    assert "NOT MEASURED: 2 of 2" in capsys.readouterr().out
    assert not (tmp_path / "out" / "measured").exists()
    rows = rows_of(tmp_path / "out" / "predicted" / TUNED)
    wanted = "gfx cu_num M N K q_dtype_w libtype kernelId splitK us kernelName tflops bw errRatio predicted"
    assert list(rows[0]) == wanted.split()
    assert [(row["gfx"], row["cu_num"], row["M"], row["N"], row["K"]) for row in rows] == [
        ("gfx950", "256", "1", "9216", "4096"),
        ("gfx950", "256", "33", "512", "7168"),
    ]
    listed = (ROOT / "ckh" / "ops" / "aiter_gemm" / "kernels.txt").read_text().split()
    for row in rows:
        assert row["predicted"] == "1"
        assert row["kernelName"] in listed
        assert row["q_dtype_w"] == "torch.float8_e4m3fn"
        assert float(row["us"]) > 0
        assert row["tflops"] == row["bw"] == ""


def test_gfx942_uses_fnuz_floats(tmp_path: Path) -> None:
    """On gfx942 the element type is torch.float8_e4m3fnuz, and the compute units are the whole GPU's."""
    assert export(shapes(tmp_path, (16, 7168, 2048)), tmp_path / "out", arch="gfx942") == ExitCode.OK
    (row,) = rows_of(tmp_path / "out" / "predicted" / TUNED)
    assert (row["cu_num"], row["q_dtype_w"]) == ("304", "torch.float8_e4m3fnuz")


def test_a_product_can_be_named(tmp_path: Path) -> None:
    """An MI308X has 80 compute units; shapes that state another number keep it."""
    plain, stated = shapes(tmp_path, (16, 7168, 2048)), tmp_path / "a8w8_bpreshuffle_more.csv"
    stated.write_text("M,N,K,cu_num\n16,7168,2048,304\n")
    for number, (path, num_cus) in enumerate(((plain, "80"), (stated, "304"))):
        out = tmp_path / f"out{number}"
        assert export(path, out, arch="mi308x") == ExitCode.OK
        (row,) = rows_of(out / "predicted" / TUNED)
        assert (row["gfx"], row["cu_num"]) == ("gfx942", num_cus)


@pytest.mark.parametrize(
    ("m", "n", "fine", "coarse"),
    [(1, 512, 16, 1), (17, 512, 32, 32), (300, 512, 320, 512), (1025, 64, 1088, 2048), (9000, 8192, 9088, 8192)],
)
def test_rows_are_padded_like_in_aiter(m: int, n: int, fine: int, coarse: int) -> None:
    """Multiples of 16, 32, 64 and 128 by size; then powers of two, and 8192 for large and wide products."""
    assert (padded_m(m, n, 0), padded_m(m, n, 1)) == (fine, coarse)


def test_measured_winners_take_precedence_and_are_marked(tmp_path: Path) -> None:
    """A shape with a measured row, padded or not, gets that row in a separate table; the rest is predicted."""
    data = tuned(tmp_path, (16, SMALL, 9.5), (16, FAST, 8.25), (64, FAST, 20.0))
    problems = shapes(tmp_path, (16, 9216, 4096), (9, 9216, 4096), (40, 9216, 4096), (65, 9216, 4096), (1, 512, 7168))
    assert export(problems, tmp_path / "out", "--data", str(data)) == ExitCode.OK
    measured = rows_of(tmp_path / "out" / "measured" / TUNED)
    assert [(row["M"], row["kernelName"], row["us"]) for row in measured] == [("16", FAST, "8.25"), ("64", FAST, "20")]
    assert "predicted" not in measured[0]
    predicted = rows_of(tmp_path / "out" / "predicted" / TUNED)
    # 40 rows are padded to 48, then to 64, which was measured; 65 to 80 and 128, which were not.
    assert [(row["M"], row["N"]) for row in predicted] == [("65", "9216"), ("1", "512")]
    assert float(measured[0]["tflops"]) == pytest.approx(2 * 16 * 9216 * 4096 / 8.25e6, abs=0.01)
    choices = json.loads((tmp_path / "out" / "export.json").read_text())["choices"]
    assert [choice["basis"] for choice in choices[:3]] == ["measured", "measured at M=16", "measured at M=64"]


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_no_winner_is_slower_than_the_bound(arch: str) -> None:
    """All shipped winners are within the bound of predictions without a measured time."""
    frame = read_dataset(ROOT / "data" / f"aiter-gemm-{arch}.parquet").valid()
    for problem, row in zip(frame.problems(), frame.first_rows, strict=True):
        limit = SLOWEST * (roofline_us(problem, arch) + ADDED_US)
        assert frame.frame["latency_ms"].iloc[row] * 1e3 < limit, problem.canonical()


def test_wrong_rows_are_refused() -> None:
    """Unknown kernel names, duplicate shapes, and tables of both measured and predicted rows are refused."""
    problem = AiterGemm(3, 9216, 4096, "a8w8_bpreshuffle", num_cus=256)
    line = TunedLine("gfx950", problem, FAST, 1.0, is_predicted=False)
    wrong = FAST.replace("256x16x64x512", "256x48x64x512")
    for lines, words in (
        ([TunedLine("gfx950", problem, wrong, 1.0, is_predicted=False)], "AITER has no kernel a8w8_bpreshuffle_256x48"),
        ([line, line], "duplicate shape"),
        ([line, TunedLine("gfx950", problem, FAST, 1.0, is_predicted=True)], "measured and predicted"),
    ):
        with pytest.raises(DataError, match=words):
            gemm_table(lines)


def test_a_round_trip_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Measured and predicted tables that are read as a dataset and written again are byte-identical."""
    data = tuned(tmp_path, (16, FAST, 8.2513), (64, f"{FAST}", 20.00417))
    problems = shapes(tmp_path, (16, 9216, 4096), (64, 9216, 4096), (65, 9216, 4096), (1, 512, 7168))
    assert export(problems, tmp_path / "out", "--data", str(data)) == ExitCode.OK
    for kind, status in (("measured", "ok"), ("predicted", "predicted")):
        table, parquet, again = tmp_path / "out" / kind / TUNED, tmp_path / f"{kind}.parquet", tmp_path / f"{kind}.csv"
        assert run(["convert", str(table), "--from", "aiter-csv", "--out", str(parquet)]) == ExitCode.OK
        dataset = read_dataset(parquet, predictions=True)
        assert set(dataset.frame["status"]) == {status}
        assert dataset.frame["latency_ms"].notna().all() == (kind == "measured")
        assert run(["convert", str(table), "--to", "aiter", "--out", str(again)]) == ExitCode.OK
        assert again.read_bytes() == table.read_bytes()
    capsys.readouterr()
    args = ["train", str(tmp_path / "predicted.parquet"), "--out", str(tmp_path / "model"), "--labels", "winners"]
    assert run(args) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "predicted-rows")


def fake_aiter(folder: Path, names: Sequence[str]) -> Path:
    """Write an AITER that builds only some kernels."""
    path = folder / "aiter_source" / "csrc" / "ck_gemm_a8w8_bpreshuffle"
    path.mkdir(parents=True)
    text = "class K:\n    def __init__(self, name):\n        self.name = name\n\nkernels_list = {"
    entries = ", ".join(f"{10 * number}: K({name!r})" for number, name in enumerate(names, 1))
    (path / "gemm_a8w8_bpreshuffle_common.py").write_text(f"{text}{entries}}}\n")
    return folder / "aiter_source"


@pytest.mark.slow
def test_the_installed_aiter_decides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The best kernel that it builds is chosen, with its number; a measured kernel that it lacks is refused."""
    source = fake_aiter(tmp_path, [SMALL])
    problems = shapes(tmp_path, (1, 9216, 4096))
    assert export(problems, tmp_path / "out", "--installed", str(source)) == ExitCode.OK
    (row,) = rows_of(tmp_path / "out" / "predicted" / TUNED)
    assert (row["kernelName"], row["kernelId"]) == (SMALL, "10")
    data = tuned(tmp_path, (1, FAST, 3.0))
    args = ("--installed", str(source), "--data", str(data))
    assert export(problems, tmp_path / "no", *args) == ExitCode.BAD_DATA
    assert f"has no kernel {FAST}" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
    assert export(problems, tmp_path / "no", "--installed", str(tmp_path / "nowhere")) == ExitCode.USAGE
    assert export(problems, tmp_path / "no", "--installed", str(tmp_path)) == ExitCode.BAD_DATA


def test_older_names_are_written_as_in_the_installed_aiter(tmp_path: Path) -> None:
    """A kernel that an older AITER has with a shorter name is found, and its row has that name."""
    longer = "a8w8_blockscale_1x128x128_256x16x64x256_16x16_16x16_1x1_16x16x1_16x16x1_1x16x1x16_4_1x1_intrawave_v1"
    shorter = longer.replace("_16x16_16x16_1x1_", "_16x16_16x16_")
    path = tmp_path / "csrc" / "x" / "gemm_a8w8_blockscale_common.py"
    path.parent.mkdir(parents=True)
    path.write_text(f"class K:\n    name = {shorter!r}\n\nkernels_list = {{8: K()}}\n")
    problems = shapes(tmp_path, (16, 1536, 7168), name="a8w8_blockscale_untuned_gemm.csv")
    assert export(problems, tmp_path / "out", "--installed", str(tmp_path)) == ExitCode.OK
    (row,) = rows_of(tmp_path / "out" / "predicted" / "a8w8_blockscale_tuned_gemm.csv")
    assert (row["kernelName"], row["kernelId"]) == (shorter, "8")


FAMILIES = ("a8w8", "a8w8_bpreshuffle", "a8w8_blockscale", "a8w8_blockscale_bpreshuffle", "a4w4_blockscale")
NO_CUDA = "class cuda:\n    is_available = staticmethod(lambda: False)\n"


@needs_aiter
@pytest.mark.parametrize("family", FAMILIES)
def test_aiters_generator_emits_exactly_these_kernels(family: str, tmp_path: Path) -> None:
    """AITER's own generator maps each shape of the table to the chosen kernel, and emits no others but defaults."""
    assert AITER is not None
    problems = shapes(tmp_path, (1, 9216, 4096), (77, 512, 7168), (2048, 7168, 2048), name=f"{family}_untuned_gemm.csv")
    assert export(problems, tmp_path / "out", "--installed", str(AITER)) == ExitCode.OK
    table = tmp_path / "out" / "predicted" / f"{family}_tuned_gemm.csv"
    rows = rows_of(table)
    folder, stubs, made = AITER / "csrc" / f"ck_gemm_{family}", tmp_path / "stubs", tmp_path / "made"
    made.mkdir()
    stubs.mkdir()
    if importlib.util.find_spec("torch") is None:
        (stubs / "torch.py").write_text(NO_CUDA)
    done = subprocess.run(
        [sys.executable, str(folder / "gen_instances.py"), "-w", str(made), "-f", str(table)],
        env={"PYTHONPATH": str(stubs), "GPU_ARCHS": "gfx950", "CU_NUM": "256"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (lookup,) = made.glob("*lookup.h")
    result = re.findall(r"\{\{(\d+), (\d+), (\d+)\},\s*\\\s*(\w+)<", lookup.read_text())
    assert sorted(result) == sorted((row["M"], row["N"], row["K"], row["kernelName"]) for row in rows)
    names: dict[str, Any] = installed_kernels(AITER, family, "ck")
    emitted = {path.stem for path in (made / "impl").glob("*.cuh")}
    assert {row["kernelName"] for row in rows} <= emitted
    defaults = _defaults(folder, family)
    assert emitted == defaults | {row["kernelName"] for row in rows}
    assert emitted <= {name.name for name in names.values()} | defaults


def _defaults(folder: Path, family: str) -> set[str]:
    """Return the names of the kernels that AITER builds independently of its tables."""
    code = f"import gemm_{family}_common as m; print('\\n'.join(k.name for k in m.default_kernels_dict.values()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_json_lists_the_choices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One document states the choice of each problem, the basis of its time, and the files."""
    data = tuned(tmp_path, (1, SMALL, 3.5))
    problems = shapes(tmp_path, (1, 9216, 4096), (7, 512, 7168))
    assert export(problems, tmp_path / "out", "--data", str(data), "--json") == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    first, second = document["choices"]
    assert (first["kernel"], first["us"], first["basis"], first["model"]) == (SMALL, 3.5, "measured", None)
    assert (first["predicted"], second["predicted"], second["model"]) == (False, True, "aiter_gemm_gfx950")
    assert set(document["files"]) == {"README.md", "export.json", f"measured/{TUNED}", f"predicted/{TUNED}"}
