"""AITER's own tables: an export loses and displaces none of their rows, and AITER's code finds the written rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.cli import run
from ckh.errors import ExitCode
from tests.ops.aiter_gemm.newer_aiter import AITER, FAST, HEAD, SMALL, needs_aiter, rows_of, table_row, write_aiter
from tests.ops.aiter_gemm.newer_aiter import export as exported
from tests.refusals import expect_error, expect_values

if TYPE_CHECKING:
    from collections.abc import Sequence

ASM = "_ZN5aiter41bpreshuffle"
TABLE = "a8w8_bpreshuffle_tuned_gemm.csv"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """An AITER with kernels 5 and 10, which measured 16 rows in its table, 64 in a model's, and 300 with ASM."""
    base = table_row(16, SMALL, 10, 8.5) + table_row(300, ASM, 99, 40.0, "asm") + table_row(32, SMALL, 10, 9.0)
    model = table_row(64, SMALL, 10, 20.0) + table_row(32, FAST, 5, 7.0)
    return write_aiter(tmp_path / "aiter", {5: FAST, 10: SMALL}, base, model)


def export(folder: Path, sizes: Sequence[int], *args: str, library: str = "ck") -> int:
    """Export rows of one layer on gfx950."""
    path = folder / "a8w8_bpreshuffle_untuned_gemm.csv"
    path.write_text("M,N,K,library\n" + "".join(f"{m},9216,4096,{library}\n" for m in sizes))
    return exported(path, folder / "out", *args)


def choices(folder: Path) -> list[dict[str, Any]]:
    """Return the entries of the export's list by problem."""
    load: list[dict[str, Any]] = json.loads((folder / "out" / "export.json").read_text())["choices"]
    return load


def test_shapes_measured_by_aiter_are_skipped_and_kept(program: Path, tmp_path: Path) -> None:
    """Rows that AITER finds by M or padded M, of any library, get no choice; the merged table has each of them once."""
    assert export(tmp_path, [16, 50, 290, 1000], "--installed", str(program)) == ExitCode.OK
    result = choices(tmp_path)
    own, padded, bounded = (item["basis"] for item in result[:3])
    assert padded.startswith(own)
    expect_values(padded, "M=64")
    assert "winners" in bounded
    assert [item["written"] for item in result] == [False, False, True, True]
    assert [row["M"] for row in rows_of(tmp_path / "out" / "predicted" / TABLE)] == ["290", "1000"]
    merged = rows_of(tmp_path / "out" / "merged" / TABLE)
    assert [(row["M"], row["us"], row["predicted"]) for row in merged[:4]] == [
        ("16", "8.5", "0"),
        ("300", "40.0", "0"),
        ("32", "7.0", "0"),  # the faster of two
        ("64", "20.0", "0"),
    ]
    assert [(row["M"], row["predicted"]) for row in merged[4:]] == [("290", "1"), ("1000", "1")]
    assert {row["kernelId"] for row in merged[4:]} <= {"5", "10"}
    readme = (tmp_path / "out" / "README.md").read_text()
    assert f'export AITER_CONFIG_GEMM_A8W8_BPRESHUFFLE="$PWD/merged/{TABLE}"' in readme


@pytest.mark.slow
@pytest.mark.parametrize(("newest", "basis"), [(True, "AITER's own table at M=300"), (False, "bounded by the slowest")])
def test_a_batch_above_every_tuned_one(newest: bool, basis: str, tmp_path: Path) -> None:
    """If AITER uses the row of a layer's largest M for every larger M, such a shape gets no choice."""
    base = table_row(16, SMALL, 10, 8.5) + table_row(300, ASM, 99, 40.0, "asm")
    program = write_aiter(tmp_path / "aiter", {5: FAST, 10: SMALL}, base, "", newest=newest)
    args = ("--installed", str(program), "--check", str(program))
    assert export(tmp_path, [250, 20000], *args) == ExitCode.OK
    below, above = choices(tmp_path)
    assert below["written"]
    assert above["basis"].startswith(basis)
    assert above["written"] != newest


@pytest.mark.slow
def test_a_check_uses_the_device_of_the_export(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's device for AITER's generators, in any of its variables, is not used in the check."""
    (program / "aiter/configs/model_configs/a8w8_bpreshuffle_tuned_gemm_dsv3.csv").unlink()
    for name, value in (("GPU_ARCHS", "gfx942"), ("CU_NUM", "80"), ("AITER_GPU_TARGETS", "gfx942:80")):
        monkeypatch.setenv(name, value)
    assert export(tmp_path, [1000], "--installed", str(program), "--check", str(program)) == ExitCode.OK


@pytest.mark.slow
def test_replacing_rows_requires_an_option(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --replace a choice replaces AITER's row of the shape, once; without an AITER the option is refused."""
    assert export(tmp_path, [16], "--replace") == ExitCode.USAGE
    assert "name it with --installed" in capsys.readouterr().err
    model = program / "aiter/configs/model_configs/a8w8_bpreshuffle_tuned_gemm_dsv3.csv"
    model.write_text(HEAD + table_row(64, SMALL, 10, 20.0))
    assert export(tmp_path, [16], "--replace", "--check", str(program)) == ExitCode.OK
    merged = rows_of(tmp_path / "out" / "merged" / TABLE)
    assert [row["predicted"] for row in merged if row["M"] == "16"] == ["1"]
    assert len(merged) == 4


def test_faster_own_measurements_replace_aiters(program: Path, tmp_path: Path) -> None:
    """The merged table has the faster of the rows in --data and AITER's tables, as AITER itself would keep it."""
    for us, written in ((8.0, True), (9.0, False)):
        data = tmp_path / TABLE
        data.write_text(HEAD + table_row(16, FAST, 5, us))
        args = ("--installed", str(program), "--data", str(data), "--force")
        assert export(tmp_path, [16, 1000], *args) == ExitCode.OK
        assert choices(tmp_path)[0]["written"] == written
        (row,) = (item for item in rows_of(tmp_path / "out" / "merged" / TABLE) if item["M"] == "16")
        assert float(row["us"]) == min(us, 8.5)


def test_kernel_numbers_are_never_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an AITER numbers come from the shipped list; kernels of CK Tile, which have none, are refused."""
    assert export(tmp_path, [1, 100, 4000]) == ExitCode.OK
    listed = (Path(__file__).parents[3] / "ckh/ops/aiter_gemm/kernels.txt").read_text().splitlines()
    numbers = dict(line.split() for line in listed if line.count(" ") == 1 and not line.startswith("#"))
    rows = rows_of(tmp_path / "out" / "predicted" / TABLE)
    assert [row["kernelId"] for row in rows] == [numbers[row["kernelName"]] for row in rows]
    value = json.loads((tmp_path / "out" / "export.json").read_text())["environment"][
        "AITER_CONFIG_GEMM_A8W8_BPRESHUFFLE"
    ]
    assert "$AITER/configs/model_configs/*a8w8_bpreshuffle_tuned_gemm*.csv" in value
    assert value.endswith(f":OUT/predicted/{TABLE}")
    capsys.readouterr()
    assert export(tmp_path, [1], "--force", library="cktile") == ExitCode.BAD_DATA
    assert "name yours with --installed" in capsys.readouterr().err


@pytest.mark.slow
def test_a_partial_export_lists_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Problems without a row are listed with the reason, the others written: exit 5."""
    path = tmp_path / "mixed.txt"
    good, bad = (
        "aiter_gemm_a8w8_ck_fp8_cu304_m16_n1280_k8192",
        "aiter_gemm_a4w4_blockscale_ck_pk_fp4_cu304_m1_n512_k512",
    )
    path.write_text(f"{good}\n{bad}\n")
    args = ["export", "--to", "aiter", "--arch", "gfx942", "--problems", str(path), "--out", str(tmp_path / "out")]
    assert run(args) == ExitCode.NO_KERNEL
    expect_values(capsys.readouterr().out, "NO ROW: 1 of 2")
    assert len(rows_of(tmp_path / "out" / "predicted" / "a8w8_tuned_gemm.csv")) == 1
    assert run([*args, "--force", "--json"]) == ExitCode.NO_KERNEL
    document = json.loads(capsys.readouterr().out)
    assert [item["problem"] for item in document["choices"]] == [good]
    (missing,) = document["missing"]
    assert missing["problem"] == bad
    expect_values(missing["reason"], "ck", "a4w4_blockscale", "gfx942")


@pytest.mark.slow
def test_aiters_own_code_is_run_on_an_export(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The check shows the rows before and after the export, loses none, and leaves AITER's files unchanged."""
    own = {path: path.read_bytes() for path in program.rglob("*.csv")}
    model = next(path for path in own if "dsv3" in path.name and "untuned" not in path.name)
    own[model] = (HEAD + table_row(64, SMALL, 10, 20.0)).encode()  # newer versions refuse a duplicate shape
    model.write_bytes(own[model])
    assert export(tmp_path, [50, 1000], "--installed", str(program)) == ExitCode.OK
    capsys.readouterr()
    args = ["export", "--to", "aiter", "--out", str(tmp_path / "out"), "--check", str(program), "--json"]
    assert run(args) == ExitCode.OK
    (table,) = json.loads(capsys.readouterr().out)["checked"]
    assert (table["file"], table["rows_before"], table["rows_after"]) == (f"merged/{TABLE}", 4, 5)
    assert (table["lost"], table["unchanged"], table["problems"]) == (0, True, [])
    kept, new = table["shapes"]
    assert (kept["today"]["kernel"], kept["today"]) == (SMALL, kept["export"])
    assert new["today"] is None
    assert new["export"]["predicted"]
    assert {path: path.read_bytes() for path in program.rglob("*.csv")} == own


def _unnumbered(text: str) -> str:
    head, *rows = text.splitlines()
    place = head.split(",").index("kernelId")
    cells = [row.split(",") for row in rows]
    return "\n".join([head, *(",".join([*row[:place], "-1", *row[place + 1 :]]) for row in cells)]) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (_unnumbered, "kernelId=-1 not in kernels_list"),
        (lambda text: "\n".join(text.splitlines()[:2]) + "\n", "rows are lost"),
        (lambda text: text + text.splitlines()[1].replace("8.5", "8.25") + "\n", "index must be unique"),
    ],
)
def test_a_check_detects_errors(
    damage: Any, why: str, program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown numbers, lost rows and duplicate shapes fail the check: exit 1."""
    (program / "aiter/configs/model_configs/a8w8_bpreshuffle_tuned_gemm_dsv3.csv").unlink()
    assert export(tmp_path, [1000], "--installed", str(program)) == ExitCode.OK
    merged = tmp_path / "out" / "merged" / TABLE
    text = merged.read_text()
    merged.write_text(damage(text))
    capsys.readouterr()
    code = run(["export", "--to", "aiter", "--out", str(tmp_path / "out"), "--check", str(program)])
    assert why in capsys.readouterr().out.replace("\n", " ")
    assert code == ExitCode.GATE_FAILED


def test_uncheckable_input_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing export, and a folder without AITER, are refused in one line."""
    args = ["export", "--to", "aiter", "--out", str(tmp_path), "--check"]
    assert run([*args, str(tmp_path)]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "not-an-export", tmp_path)
    assert export(tmp_path, [16]) == ExitCode.OK
    capsys.readouterr()
    assert run(["export", "--to", "aiter", "--out", str(tmp_path / "out"), "--check", "/nowhere"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "no-file", "/nowhere")


@needs_aiter
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize(
    "name",
    [
        *(f"{family}_untuned_gemm.csv" for family in ("a8w8", "a8w8_bpreshuffle", "a8w8_blockscale")),
        *("a8w8_blockscale_bpreshuffle_untuned_gemm.csv", "a4w4_blockscale_untuned_gemm.csv", "untuned_fmoe.csv"),
    ],
)
def test_no_row_of_a_published_aiter_is_lost(
    name: str, arch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For AITER's own lists its generator accepts the table, its lookup finds each row, and no earlier row is lost."""
    assert AITER is not None
    program = AITER.parent / "aiter"
    args = ("--installed", str(program), "--check", str(program), "--json")
    code = exported(program / "configs" / name, tmp_path / "out", *args, arch=arch)
    if (name[:4], arch) == ("a4w4", "gfx942"):
        assert code == ExitCode.NO_KERNEL
        return
    assert code == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert all((item["lost"], item["unchanged"], item["problems"]) == (0, True, []) for item in document["checked"])
    for path in (tmp_path / "out").glob("merged/*.csv"):
        rows = rows_of(path)
        key = [column for column in rows[0] if column in ("cu_num", "M", "N", "K", "q_dtype_w", "token")]
        if "M" in key:
            assert len({tuple(row[column] for column in key) for row in rows}) == len(rows)
