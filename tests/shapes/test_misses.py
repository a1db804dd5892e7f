"""Explanations of missed lookups in AITER's tuned tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ckh.cli import run
from ckh.errors import ExitCode
from tests.refusals import expect_error, expect_warning

if TYPE_CHECKING:
    from pathlib import Path

FNUZ, FN = "torch.float8_e4m3fnuz", "torch.float8_e4m3fn"
HEADER = "gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n"
TABLE = HEADER + "".join(
    f"{gfx},{cus},{m},{n},{k},{dtype},ck,1,0,5.0,name,1,1,0.0\n"
    for gfx, cus, m, n, k, dtype in (
        ("gfx942", 304, 16, 1280, 8192, FNUZ),
        ("gfx950", 256, 16, 7168, 2304, FN),
        ("gfx942", 80, 16, 4608, 7168, FNUZ),
        ("gfx942", 304, 16, 2688, 6144, FNUZ),
        ("gfx942", 304, 64, 512, 512, FNUZ),
    )
)
LINE = (
    "[aiter] shape is M:{m}, N:{n}, K:{k}, q_dtype_w:{dtype}, not found tuned config in "
    "/opt/aiter/configs/a8w8_bpreshuffle_tuned_gemm.csv, will use default config!\n"
)
MOE = (
    "[aiter] [fused_moe] using 2stage default for ({cus}, {tokens}, 7168, {inter}, 257, 9, 'ActivationType.Silu', "
    "'torch.bfloat16', '{dtype}', '{dtype}', 'QuantType.per_1x128', True, False)\n"
)


def missed(tmp_path: Path, capsys: pytest.CaptureFixture[str], log: str, table: str, *options: str) -> list[Any]:
    """The explanations of a log's misses."""
    (tmp_path / "server.log").write_text(log, encoding="utf-8")
    (tmp_path / "tuned.csv").write_text(table, encoding="utf-8")
    call = ["shapes", str(tmp_path / "server.log"), "--table", str(tmp_path / "tuned.csv"), "--json", *options]
    assert run(call) == ExitCode.OK
    load: list[Any] = json.loads(capsys.readouterr().out)["misses"]
    return load


@pytest.mark.parametrize(
    ("arch", "m", "n", "k", "dtype", "differs"),
    [
        ("gfx942", 9, 1280, 8192, FNUZ, {}),  # padded to 16: the table has it
        ("gfx942", 16, 1280, 8192, FN, {"q_dtype_w": FN}),
        ("gfx942", 16, 7168, 2304, FNUZ, {"gfx": "gfx942", "cu_num": "304", "q_dtype_w": FNUZ}),
        ("gfx942", 16, 4608, 7168, FNUZ, {"cu_num": "304"}),
        ("mi308x", 16, 4608, 7168, FNUZ, {}),  # by its name: the row for 80 compute units
        ("gfx942", 16, 2624, 6144, FNUZ, {"N": "2624"}),
        ("gfx942", 16, 512, 512, FNUZ, {"M": "16"}),
    ],
)
def test_differing_fields_are_named(
    arch: str,
    m: int,
    n: int,
    k: int,
    dtype: str,
    differs: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The nearest key differs from the requested one in GPU, element type, rows or fused columns."""
    (result,) = missed(tmp_path, capsys, LINE.format(m=m, n=n, k=k, dtype=dtype), TABLE, "--arch", arch)
    assert result["differs"] == differs
    assert (result["key"]["K"], result["count"]) == (str(k), 1)


def test_the_nearest_of_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another type is nearer than rows, then compute units, another GPU and columns; then sizes decide."""
    rows = {
        "columns": ("gfx942", 304, 16, 1024, FNUZ),
        "rows": ("gfx942", 304, 4096, 1280, FNUZ),
        "fewer rows": ("gfx942", 304, 64, 1280, FNUZ),
        "type": ("gfx942", 304, 16, 1280, FN),
        "compute units": ("gfx942", 80, 16, 1280, FNUZ),
        "GPU": ("gfx950", 304, 16, 1280, FNUZ),
    }
    lines = {
        name: f"{gfx},{cus},{m},{n},8192,{dtype},ck,1,0,5.0,name,1,1,0.0\n"
        for name, (gfx, cus, m, n, dtype) in rows.items()
    }
    line = LINE.format(m=16, n=1280, k=8192, dtype=FNUZ)
    for expected in ("type", "fewer rows", "rows", "compute units", "GPU", "columns"):
        (result,) = missed(tmp_path, capsys, line, HEADER + "".join(lines.values()), "--arch", "gfx942")
        names = ("gfx", "cu_num", "M", "N", "q_dtype_w")
        assert tuple(result["key"][name] for name in names) == tuple(map(str, rows[expected]))
        del lines[expected]


@pytest.mark.parametrize("row", ["", f"gfx942,304,many,2,3,{FN},ck,1,0,5.0,name,1,1,0.0\n"])
def test_no_near_miss(row: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a row of that K, or with a text for M in it, there is no nearest key."""
    (result,) = missed(tmp_path, capsys, LINE.format(m=1, n=2, k=3, dtype=FN), TABLE + row)
    assert result["key"] is None
    assert row or "K 3" in result["why"]


def test_one_shape_in_two_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A shape requested in both forms of fp8 is explained twice."""
    log = "".join(LINE.format(m=16, n=1280, k=8192, dtype=dtype) for dtype in (FN, FNUZ, FN))
    result = missed(tmp_path, capsys, log, TABLE, "--arch", "gfx942")
    assert [item["differs"] for item in result] == [{"q_dtype_w": FN}, {}]


def test_mixtures_of_experts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tokens are padded to powers of two; compute units, element types and inter_dim differ."""
    table = (
        "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
        "doweight_stage1,block_m\n"
        f"80,64,7168,256,257,9,ActivationType.Silu,torch.bfloat16,{FNUZ},{FNUZ},QuantType.per_1x128,1,0,32\n"
    )
    for case, differs in (
        ({"cus": 80, "tokens": 33, "inter": 256, "dtype": FNUZ}, {}),
        ({"cus": 304, "tokens": 64, "inter": 256, "dtype": FNUZ}, {"cu_num": "304"}),
        ({"cus": 80, "tokens": 64, "inter": 512, "dtype": FNUZ}, {"inter_dim": "512"}),
        ({"cus": 80, "tokens": 64, "inter": 256, "dtype": FN}, {"q_dtype_a": FN, "q_dtype_w": FN}),
    ):
        (result,) = missed(tmp_path, capsys, MOE.format(**case), table)
        assert result["differs"] == differs


def test_omitted_last_cells_are_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row without its last cells is the nearest, as AITER reads it."""
    table = HEADER.replace("\n", ",_tag\n") + f"gfx942,304,16,1280,8192,{FNUZ},ck,1,0,5.0,name\n"
    (result,) = missed(tmp_path, capsys, LINE.format(m=64, n=1280, k=8192, dtype=FNUZ), table)
    assert result["differs"] == {"M": "64"}


def test_a_folder_of_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In an installed AITER the tables of the shape's family are used, without untuned lists and other families."""
    folder = tmp_path / "aiter" / "configs"
    (folder / "model_configs").mkdir(parents=True)
    row = f"gfx942,304,16,1280,8192,{FNUZ},ck,1,0,5.0,name,1,1,0.0\n"
    (folder / "a8w8_tuned_gemm.csv").write_text(HEADER + row, encoding="utf-8")
    (folder / "a8w8_bpreshuffle_untuned_gemm.csv").write_text("M,N,K\n16,1280,8192\n", encoding="utf-8")
    (folder / "asm_tuned.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    own = folder / "model_configs" / "a8w8_bpreshuffle_tuned_gemm_x.csv"
    own.write_text(HEADER + row.replace("304", "80"), encoding="utf-8")
    (tmp_path / "server.log").write_text(LINE.format(m=16, n=1280, k=8192, dtype=FNUZ), encoding="utf-8")
    assert run(["shapes", str(tmp_path / "server.log"), "--table", str(tmp_path / "aiter"), "--json"]) == ExitCode.OK
    (result,) = json.loads(capsys.readouterr().out)["misses"]
    assert result["differs"] == {"cu_num": "304"}
    (tmp_path / "empty").mkdir()
    assert run(["shapes", str(tmp_path / "server.log"), "--table", str(tmp_path / "empty")]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "no-aiter", tmp_path / "empty")


OF_MIXTURES = (
    "gfx,cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
    "doweight_stage1,block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage,tflops,bw,_tag"
)
MIXTURE = f"{{cus}},{{tokens}},7168,256,257,9,ActivationType.Silu,torch.bfloat16,{FNUZ},{FNUZ},QuantType.per_1x128,1,0"
REST = "32,0,1,a,0,1,b,0,2,0,1,1"
OWN = f"gfx942,304,16,1280,8192,{FNUZ},ck,1,0,5.0,name,1,1,0.0"
# The kinds of tables in the folder of an AITER of autumn 2026: name -> header and rows.
CHECKOUT = {
    "a8w8_bpreshuffle_tuned_gemm": [HEADER.strip(), OWN.replace("304", "80"), OWN.replace(",16,", ",64,")],
    "model_configs/a8w8_bpreshuffle_tuned_gemm_x": ["cu_num,M,N,K,us,kernelName", "304,128,1280,8192,5.0,name"],
    "a8w8_bpreshuffle_untuned_gemm": ["M,N,K", "16,1280,8192"],
    "tuned_fmoe": [OF_MIXTURES, "gfx942," + MIXTURE.format(cus=304, tokens=128) + f",{REST},"],
    # The last, empty cell is omitted.
    "model_configs/dsv4_fp8fp4_tuned_fmoe": [
        OF_MIXTURES,
        "gfx942," + MIXTURE.format(cus=80, tokens=64) + f",{REST}",
        "gfx942," + MIXTURE.format(cus=80, tokens=256) + f",{REST}",
    ],
    # Rows of other lookups have the key that is missing.
    "a4w6_asm_tuned_gemm": ["gfx,cu_num,M,N,K,kernelId,splitK,us,kernelName", "gfx942,304,16,1280,8192,1,0,2.0,a"],
    "a16w8_mxfp8_asm_tuned_gemm": ["gfx,cu_num,M,N,K,kernelId,us,kernelName", "gfx942,304,16,1280,8192,1,2.0,a"],
    "model_configs/a6w6_blockscale_tuned_gemm_flux": ["gfx,cu_num,M,N,K,us", "gfx942,304,16,1280,8192,2.0"],
    "a8w8_blockscale_tuned_gemm": [HEADER.strip(), OWN],
    "a8w8_blockscale_bpreshuffle_tuned_bmm": ["gfx,cu_num,B,M,N,K,us", "gfx942,304,2,16,1280,8192,2.0"],
    "bf16_tuned_gemm": ["gfx,cu_num,M,N,K,bias,dtype,outdtype,us", "gfx942,304,16,1280,8192,False,a,b,2.0"],
    "conv3d_bf16_tuned": ["gfx,cu_num,N,C,D,H,W,K,us", "gfx942,304,1280,3,1,9,9,8192,2.0"],
    "grouped_gemm_mxfp8_tuned": ["gfx,case,G,K,N,M,us", "gfx942,w13,2,8192,1280,16,2.0"],
    "flydsl_fuse_kernel_tuned_fmoe": [
        OF_MIXTURES.replace("cu_num,", "cu_num,tp,"),
        "gfx942," + MIXTURE.format(cus="304,8", tokens=64) + f",{REST},",
    ],
    "mega_moe_tp_a4w4_tuned": [
        "gfx,cu_num,tp,comm_mode,token,model_dim,inter_dim,expert,topk,act,us",
        "gfx942,304,8,ar,64,7168,256,257,9,silu,2.0",
    ],
}


@pytest.mark.parametrize("folder", ["", "aiter", "aiter/configs"])
def test_a_checkout_is_read_whole(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of its lookup's tables the nearest row is named, of the own GPU; files outside its configs are no tables."""
    for name, lines in {**CHECKOUT, "../../op_tests/a8w8_bpreshuffle_tuned_gemm": [HEADER.strip(), OWN]}.items():
        path = tmp_path / "aiter" / "configs" / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    mixture = MOE.replace("({cus}", "('gfx942', {cus}").format(cus=304, tokens=64, inter=256, dtype=FNUZ)
    log = LINE.format(m=16, n=1280, k=8192, dtype=FNUZ) + mixture + mixture.replace("304", "80")
    (tmp_path / "server.log").write_text(log, encoding="utf-8")
    call = ["shapes", str(tmp_path / "server.log"), "--table", str(tmp_path / folder), "--arch", "mi300x", "--json"]
    assert run(call) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert not document["bad"]
    product, first, second = document["misses"]
    assert (product["differs"], product["key"]["M"], product["key"]["cu_num"]) == ({"M": "16"}, "64", "304")
    assert (first["differs"], first["key"]["cu_num"]) == ({"token": "64"}, "304")
    assert (second["differs"], second["key"]["cu_num"]) == ({}, "80")


def test_a_table_that_is_cut_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last row of an interrupted download, which ends within a number, is named; the others are read."""
    (tmp_path / "server.log").write_text(LINE.format(m=16, n=1280, k=8192, dtype=FNUZ), encoding="utf-8")
    (tmp_path / "tuned.csv").write_text(TABLE[:-14], encoding="utf-8")
    call = ["shapes", str(tmp_path / "server.log"), "--table", str(tmp_path / "tuned.csv"), "--json"]
    assert run(call) == ExitCode.OK
    captured = capsys.readouterr()
    expect_warning(captured.err, "left-out", 1, "10 cells under 14 columns", "tuned.csv:6")
    assert list(json.loads(captured.out)["bad"].values()) == [1]


def test_a_row_of_too_many_cells_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other rows of the table are read, and a warning counts it."""
    (tmp_path / "server.log").write_text(LINE.format(m=16, n=1280, k=8192, dtype=FNUZ), encoding="utf-8")
    (tmp_path / "tuned.csv").write_text(TABLE + "gfx942,304" + 13 * ",1" + "\n", encoding="utf-8")
    call = [
        "shapes",
        str(tmp_path / "server.log"),
        "--table",
        str(tmp_path / "tuned.csv"),
        "--arch",
        "gfx942",
        "--json",
    ]
    assert run(call) == ExitCode.OK
    captured = capsys.readouterr()
    expect_warning(captured.err, "left-out", 1, "15 cells under 14 columns", "tuned.csv:7")
    assert list(json.loads(captured.out)["bad"].values()) == [1]
    assert json.loads(captured.out)["misses"][0]["differs"] == {}


@pytest.mark.parametrize("name", ["bf16_tuned_gemm.csv", "a8w8_bpreshuffle_tuned_bmm.csv"])
def test_tables_of_other_lookups_are_not_near(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of products without scales, and of batches, have the sizes of a product that AITER does not find there."""
    folder = tmp_path / "aiter" / "configs"
    folder.mkdir(parents=True)
    other = "B," if "bmm" in name else "outdtype,"
    (folder / name).write_text(f"gfx,cu_num,{other}M,N,K,us\ngfx942,304,2,16,1280,8192,5\n", encoding="utf-8")
    row = f"gfx942,304,64,1280,8192,{FNUZ},ck,1,0,5.0,name,1,1,0.0\n"
    (folder / "a8w8_bpreshuffle_tuned_gemm.csv").write_text(HEADER + row, encoding="utf-8")
    (tmp_path / "server.log").write_text(LINE.format(m=16, n=1280, k=8192, dtype=FNUZ), encoding="utf-8")
    call = ["shapes", str(tmp_path / "server.log"), "--table", str(tmp_path / "aiter"), "--arch", "gfx942", "--json"]
    assert run(call) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["misses"][0]["differs"] == {"M": "16"}


@pytest.mark.parametrize(
    ("table", "code"),
    [
        ("a,b\n1,2\n", "missing-column"),
        (HEADER + "gfx942,304" + 13 * ",1" + "\n", "bad-row"),
        ('gfx,cu_num\n"x', "not-csv"),
    ],
)
def test_invalid_tables_are_refused(table: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not a tuned table is refused."""
    (tmp_path / "server.log").write_text(LINE.format(m=1, n=2, k=3, dtype=FN), encoding="utf-8")
    (tmp_path / "tuned.csv").write_text(table, encoding="utf-8")
    call = ["shapes", str(tmp_path / "server.log"), "--table", str(tmp_path / "tuned.csv")]
    assert run(call) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, code, tmp_path / "tuned.csv")


def test_a_table_without_lookups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A source without AITER's problems has no missed lookups."""
    (tmp_path / "tuned.csv").write_text(TABLE, encoding="utf-8")
    assert run(["shapes", "resnet50", "--table", str(tmp_path / "tuned.csv")]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "inapplicable-option", "--table")
