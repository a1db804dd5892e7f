"""Regression tests of inputs from use and fuzzing: each is refused in one line, with its exit code."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import tracemalloc
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh import cli, entry
from ckh.commands._common import print_table
from ckh.data.formats import Reading, ReadOptions
from ckh.data.journal_records import parse_record
from ckh.data.readers import readers
from ckh.errors import CkhError, DataError, ExitCode, ModelError
from ckh.files.jsonfields import JsonError, parse_json
from ckh.files.paths import data_dir
from ckh.files.untrusted import csv_rows, integer, require_name, unpacked
from ckh.ranking.forest_file import open_forest
from ckh.text.log import note, print_error, printable, warn
from tests.refusals import expect_error, expect_refusal
from tests.reliability import samples
from tests.reliability.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator

DEEP, DIGITS = b"[" * 100_000, b"9" * 5000
AMD, AITER, LOG = samples.amd_csv()[0], samples.aiter_csv()[0], samples.bench_log()[0]
SPEC = next(spec for spec in samples.specs() if b'"dtype": "bf16"' in spec and b'"tflops"' in spec)
TEXT, CATEGORIES = samples.lightgbm_text()[:2]
AITER_NAME, MOE_NAME = (TARGETS[f"aiter-{kind}-kernel-names"].samples()[0] for kind in ("gemm", "moe"))
REFUSED: list[tuple[str, bytes]] = [
    ("map", b"kernel=kernel\nm=M\nn=N\nk=K\nlatency_us=kernel"),
    ("tune-settings", b'{"settings": {}, "done": [["shapes"]]}'),
    ("tune-steps", b'{"results": [{"problem": 1, "kernels": [1], "arch": "gfx942"}]}'),
    ("tune-steps", b'{"results": [], "choices": [{"problem": "x", "kernel": "k", "us": "1,5", "written": false}]}'),
    ("aiter-export", b'{"to": "aiter", "op_type": "aiter_gemm", "files": [], "choices": [{"problem": 1}]}'),
    ("spec", DEEP),
    ("spec", SPEC.replace(b'"dtype": "bf16"', b'"dtype": ' + DIGITS)),
    ("spec", SPEC.replace(b'"tflops"', b'"../../tflops"')),
    ("manifest", DEEP),
    ("aiter-gemm-problem-files", b"shape is M:1, N:1, K:1 not found tuned config in /"),
    ("aiter-gemm-kernel-names", AITER_NAME.replace(b"256x16", DIGITS + b"x16")),
    ("aiter-gemm-kernel-names", AITER_NAME.replace(b"16x16_1x1", b"16x16_0x1")),
    ("aiter-moe-kernel-names", MOE_NAME.replace(b"256x16", DIGITS + b"x16")),
    ("journal", samples.journal()[0].replace(b'"latency_ms": 0.5', b'"latency_ms": 1e-320')),
    ("registry", DEEP),
    ("arch", DEEP),
    ("arch", samples.archs()[0].replace(b'"lds_capacity": ', b'"lds_capacity": ' + DIGITS)),
    ("tile-engine-json", DEEP),
    ("tile-engine-json", samples.tile_engine_json()[0].replace(b'"m": 256', b'"m": ' + DIGITS)),
    ("tile-engine-json", samples.tile_engine_json()[0].replace(b'"tile_m": 128', b'"tile_m": ' + b"9" * 30)),
    ("bench-log", LOG.replace(b'"m": 16', b'"m": ' + DIGITS).replace(b"M=16", b"M=" + DIGITS)),
    ("conv-problem-files", samples.conv_problem_files()[2].rstrip()[:-1] + b", []]"),
    ("conv-problem-files", b"[[]]"),
    ("conv-problem-files", samples.conv_problem_files()[2].replace(b'"N": 1', b'"N": 1.5')),
    ("conv-problem-files", samples.conv_problem_files()[1].replace(b"\n1,", b"\n1.5,")),
    ("conv-problem-files", samples.conv_problem_files()[2].replace(b'"N": 1', b'"N": ' + DIGITS)),
    ("gemm-problem-files", b'm,n,k\n1,"2,3\n'),
    ("gemm-problem-files", b'"m,n,k\n1,2,3\n'),
    ("gemm-problem-files", b'[{"m": 1, "n": 2, "k": 3, "split_k": 0}]'),
    ("gemm-problem-files", b"m,n,k\n1,2," + DIGITS),
    ("amd-csv", AMD.replace(b",N,", b",N\r,", 1)),
    ("aiter-tuned-csv", AITER.replace(b",N,", b",N\r,", 1)),
    ("aiter-tuned-csv", AITER.replace(b",16,1280", b",1e300,1280").replace(b",32,1280", b",1e300,1280")),
    ("lightgbm-text", TEXT.replace(b"left_child=", b"left_child=" + DIGITS + b" ")),
    ("lightgbm-text", TEXT.replace(b"num_cat=0", b"num_cat=" + DIGITS)),
    ("lightgbm-text", CATEGORIES.replace(b"threshold=", b"threshold=nan ")),
    ("lightgbm-text", CATEGORIES.replace(b"cat_boundaries=0 ", b"cat_boundaries=9223372036854775807 ")),
    ("lightgbm-text", CATEGORIES.replace(b"cat_threshold=", b"cat_threshold=-")),
    ("conv-kernel-names", samples.CONV_NAMES[0].replace("_16x64x64_", "_0x64x64_").encode()),
    ("conv-kernel-names", samples.CONV_NAMES[0].replace("_16x64x64_", f"_{'9' * 5000}x64x64_").encode()),
    ("conv-kernel-names", samples.CONV_NAMES[0].replace("_nhwgc_", "_nonsense_").encode()),
    ("gemm-kernel-names", samples.GEMM_NAME.replace("128x64x32", "0x64x32").encode()),
    ("conv-problems", samples.PROBLEMS[0].encode().replace(b"_n1_", b"_n" + DIGITS + b"_")),
    ("gemm-problems", samples.GEMMS[0].encode().replace(b"_m16_", b"_m" + DIGITS + b"_")),
    ("filter", b"tile_m == " + DIGITS),
]


@contextmanager
def refusals_are_printable() -> Iterator[None]:
    """Accept one of ckh's own errors, with a printable line."""
    try:
        yield
    except CkhError as refused:
        if len(printable(refused.message)) >= 2200:
            raise


@pytest.mark.parametrize(("name", "content"), REFUSED, ids=[f"{i}-{name}" for i, (name, _) in enumerate(REFUSED)])
def test_fuzzing_findings_are_refused(
    name: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is one of ckh's own errors, with a printable line, or the rest is read and the entry is counted."""
    assert content not in TARGETS[name].samples(), "the case differs from what is good"
    with refusals_are_printable():
        result = TARGETS[name].open(tmp_path)(content)
        assert result.account.bad if isinstance(result, Reading) else "[left-out]" in capsys.readouterr().err


@pytest.mark.parametrize("cell", [b"1.5", b"1e3", DIGITS, b"9" * 30, b"nan", b"", b"\xd9\xa3"])
def test_a_fractional_size_is_a_bad_row(cell: bytes, tmp_path: Path) -> None:
    """A cell of a CSV file that is not an integer, or one out of range, is named with its line."""
    path = tmp_path / "amd.csv"
    path.write_bytes(AMD.replace(b",2,64,128", b"," + cell + b",64,128", 1))
    assert path.read_bytes() != AMD
    with expect_refusal(DataError, "bad-row", 1, "line 2: N "):
        readers()["amd-csv"].read(path, ReadOptions(arch="gfx942", strict=True))


@pytest.mark.parametrize(("layout", "why"), [("ngchw_2d", "channels-last"), ("nwgc_1d", "1D")])
def test_kernels_of_other_layouts_are_bad_rows(layout: str, why: str, tmp_path: Path) -> None:
    """A time of a channels-first or a 1D kernel does not apply to a channels-last problem: the row has the reason."""
    name = samples.FULL_NAMES[0].replace("ndhwgc_3d", layout)
    assert layout in name
    path = tmp_path / "amd.csv"
    path.write_bytes(AMD.replace(samples.SHORT_NAMES[0].encode(), name.encode()))
    with expect_refusal(DataError, "bad-row", why):
        readers()["amd-csv"].read(path, ReadOptions(arch="gfx942", strict=True))


@pytest.mark.parametrize("change", ["text", "nested", "twice"])
def test_a_parquet_file_of_other_columns_is_refused(change: str, tmp_path: Path) -> None:
    """Text that is not UTF-8, list values, a duplicate column."""
    import pyarrow as pa

    table = samples.table()
    at, rows = table.column_names.index("kernel"), len(table)
    if change == "text":
        table = table.set_column(at, "kernel", pa.array([b"\xff\xfe"] * rows).view(pa.string()))
    elif change == "nested":
        table = table.set_column(table.column_names.index("op_type"), "op_type", pa.array([[1]] * rows))
    else:
        table = table.append_column("N", table.column("N"))
    document = b'{"schema_version": 1, "sources": [], "runs": []}'
    with pytest.raises(DataError):
        TARGETS["parquet"].open(tmp_path)(samples.as_parquet(table.replace_schema_metadata({b"ckh": document})))


def test_a_parquet_file_whose_column_has_no_rows_is_refused(tmp_path: Path) -> None:
    """A footer with one wrong byte, so that a column's chunk has no metadata and pyarrow reads nothing of it."""
    good = TARGETS["parquet"].samples()[0]
    chunk = re.compile(rb"\x26[\x80-\xff]*[\x00-\x7f](\x1c)\x15(?=.{,60}occupancy)", re.DOTALL)
    footer = len(good) - 8 - int.from_bytes(good[-8:-4], "little")
    chunks = [item.start(1) for item in chunk.finditer(good, footer)]
    assert len(chunks) == 1, "a file offset and the beginning of the metadata, in Thrift's compact protocol"
    bad = bytearray(good)
    bad[chunks[0]] ^= 0x20  # the number of the field
    with expect_refusal(DataError, "unreadable", "occupancy", 0, 6):
        TARGETS["parquet"].open(tmp_path)(bytes(bad))


@pytest.mark.parametrize(
    ("changes", "code", "values"),
    [
        ({"kernel": "nonsense"}, "bad-kernel", ["column kernel:", "nonsense"]),
        ({"arch": "gfx999"}, "bad-kernel", ["column arch", "'gfx999'"]),
        ({"latency_ms": float("inf")}, "bad-column", ["column latency_ms"]),
        ({"N": 1.5}, "column-type", ["column N ", "int64"]),
    ],
)
def test_a_nonsense_dataset_is_refused(changes: dict[str, Any], code: str, values: list[str]) -> None:
    """Invalid kernel names, unknown architectures, impossible times and sizes."""
    from ckh.data.dataset import make_dataset
    from ckh.data.tables import to_pandas

    frame = to_pandas(samples.table()).assign(**changes)
    with expect_refusal(DataError, code, *values):
        make_dataset(frame)


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """A model of 1 MB that expands to 1 GB is refused before a tenth of it is in memory."""
    path = tmp_path / "model_tflops.lgbm.gz"
    piece = gzip.compress(b"tree\n" + bytes(1 << 24), mtime=0)
    path.write_bytes(piece * 64)
    tracemalloc.start()
    with expect_refusal(ModelError, "too-large"):
        open_forest(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300 << 20


@pytest.mark.parametrize("damage", [lambda c: c[:-9], lambda c: c + b"x", lambda c: c[:20] + b"zzzz" + c[24:]])
def test_a_damaged_gzip_file_is_refused(damage: object) -> None:
    """Truncated, with trailing data, changed inside."""
    content = gzip.compress(b"hello" * 99, mtime=0)
    assert unpacked(content * 2, "m") == b"hello" * 198
    assert callable(damage)
    with expect_refusal(DataError, "damaged", "m "):
        unpacked(damage(content), "m")


def test_integers_and_csv() -> None:
    """One parser of integers, of at most 18 digits; CSV with terminated quotes."""
    assert [integer(text) for text in ("7", " -64.0 ", "+1", "9" * 18)] == [7, -64, 1, 10**18 - 1]
    for text in ("", "1.5", "1e3", "9" * 19, "٣", "0x1", "1_0", "nan"):
        with pytest.raises(ValueError, match="not an integer"):
            integer(text)
    assert list(csv_rows(Path("a.csv"), 'm, n\r\n"1\r\n",2\r\n')) == [(1, ["m", "n"]), (3, ["1", "2"])]
    with pytest.raises(DataError, match=r"a\.csv:2: not CSV"):
        list(csv_rows(Path("a.csv"), 'm,n\n1,"2'))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 65 + "]" * 65, "nested more than 64"),
        ('{"a": ' * 100 + "1" + "}" * 100, "nested more than 64"),
        ("[9223372036854775808]", "more than 64 bits"),
        ("-" + "9" * 5000, "more than 64 bits"),
        ("[1, 2", "not JSON"),
        (b"\xff", "not text in UTF-8"),
    ],
)
def test_unusual_json(text: str | bytes, message: str) -> None:
    """Depth and integers are limited."""
    with pytest.raises(JsonError, match=message):
        parse_json(text)
    assert parse_json("[" * 64 + "]" * 64)
    assert parse_json('{"a": -9223372036854775808}') == {"a": -(2**63)}


def test_names() -> None:
    """Names that lead elsewhere, end a string or are invisible are refused."""
    assert require_name("grouped_conv_fp16_gfx942.v2", "x") == "grouped_conv_fp16_gfx942.v2"
    for text in ("../x", "..", ".x", "a/b", 'a"b', "a b", "a\nb", "", "é", "-rf", "a" * 129, "a\x1b[31m", None):
        with expect_refusal(DataError, "bad-name"):
            require_name(text, "the target")


def test_terminal_escapes_of_a_file_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Errors, warnings, notes and tables have no control characters except line ends, and errors a bounded length."""
    evil = "\x1b]0;owned\x07\x9b31m\u202e\r\udcff"
    print_error(DataError(evil + "\nerror: forged", evil))
    warn(evil, "gate")
    note(f"one {evil}\ntwo")
    print_table(evil, ("a", evil), [["b", evil]])
    stdout, stderr = capsys.readouterr()
    assert stderr.count("\n") == 5
    assert "\\x1b]0;owned\\x07\\x9b31m\\u202e\\r\\udcff\\nerror: forged" in stderr
    assert (stdout + stderr).replace("\n", "").isprintable()
    assert len(printable("x" * 10**6)) < 2100


@pytest.mark.parametrize("quick", ["0", "1"])
def test_terminal_escapes_of_a_model_are_not_printed(
    quick: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device named by an untrusted model is printed without control characters, by the quick path as well."""
    monkeypatch.setenv("CKH_QUICK", quick)
    model = shutil.copytree(data_dir("models") / "grouped_conv_forward_bf16_gfx950", tmp_path / "model")
    spec = json.loads((model / "feature_spec.json").read_bytes())
    spec["ckh"]["device"] = "\x1b[31mEPYC\u202e\nmodel    FORGED | <script>"
    (model / "feature_spec.json").write_text(json.dumps(spec), encoding="utf-8")
    for _ in range(2):  # the second answer is a prepared one
        assert entry.run(["predict", "--model", str(model), "--n", "1", "--c", "8"]) == ExitCode.OK
        stdout = capsys.readouterr().out
        assert "\\x1b[31mEPYC\\u202e" in "".join(stdout.split("\n"))
        assert stdout.replace("\n", "").isprintable()
        assert not any(line.startswith("model    FORGED") for line in stdout.splitlines())


@pytest.mark.slow
def test_a_model_cannot_forge_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model's folder and the problems it was measured on are each printed on one line, by predict and search."""
    forged = "\nmodel    FORGED\x9b\n"
    model = shutil.copytree(data_dir("models") / "grouped_conv_forward_bf16_gfx950", tmp_path / f"model{forged}")
    content = json.loads(gzip.decompress((model / "measured.json.gz").read_bytes()))
    content["problems"] = [forged] * len(content["problems"])
    (model / "measured.json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))
    for command in ("predict", "search"):
        args = [command, "--model", str(model), "--n", "9999", "--c", "256"]
        assert cli.run(args) == ExitCode.OK
        stdout = capsys.readouterr().out
        assert "FORGED" in stdout
        assert not any(line.startswith("model    FORGED") for line in stdout.splitlines())
        assert cli.run([*args, "--json"]) == ExitCode.OK
        assert json.loads(capsys.readouterr().out)


def test_markup_of_a_model_is_not_exported(tmp_path: Path) -> None:
    """A device's name is text in the README of exported C, whatever Markdown or HTML it contains."""
    model = shutil.copytree(data_dir("models") / "grouped_conv_forward_bf16_gfx950", tmp_path / "model")
    spec = json.loads((model / "feature_spec.json").read_bytes())
    spec["ckh"]["device"] = "\x1b[31m | <script> ![a](b) `c`"
    (model / "feature_spec.json").write_text(json.dumps(spec), encoding="utf-8")
    assert cli.run(["export", "--model", str(model), "--to", "c", "--out", str(tmp_path / "c")]) == ExitCode.OK
    readme = (tmp_path / "c" / "README.md").read_text(encoding="utf-8")
    assert r"| \\x1b\[31m \| \<script\> !\[a\](b) \`c\` |" in readme
    assert "\x1b" not in readme


@pytest.mark.parametrize("name", ['x", &model); exit(7); ("', "a b", "x\n", "${x}"])
def test_a_model_with_an_unexportable_folder_name_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A quote in a folder's name would end a string of example.c: such a name is refused, and nothing is written."""
    folder = tmp_path / "models" / name
    folder.parent.mkdir()
    shutil.copytree(data_dir("models") / "grouped_conv_forward_bf16_gfx950", folder)
    out = tmp_path / "out"
    assert cli.run(["export", "--model", str(folder), "--to", "c", "--out", str(out)]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "bad-name")
    assert not out.exists()


@pytest.mark.parametrize(
    "args",
    [
        ("bench", "-j", "100000", "--out", "run"),
        ("bench", "--split-k", "0", "--variant", "bwd_weight", "--out", "run"),
        ("bench", "--split-k", "9" * 5000, "--out", "run"),
        ("predict", "--split-k", "0", "--m", "1", "--n", "1", "--k", "1"),
        ("predict", "--arch", ""),
        ("bench", "--arch", "gfx999", "--out", "run"),
    ],
)
def test_nonsense_options_are_wrong_usage(
    args: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, one line with the reason, and no file."""
    monkeypatch.chdir(tmp_path)
    assert cli.run(args) == ExitCode.USAGE
    assert capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_empty_model_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A CKH_MODELS that does not exist is not ignored."""
    monkeypatch.setenv("CKH_MODELS", str(tmp_path / "nowhere"))
    assert cli.run(["predict"]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "no-file", tmp_path / "nowhere")


@pytest.mark.parametrize("half", [b"\\ud800", b"\xed\xa0\x80"])
def test_a_lone_surrogate_in_json_is_refused(half: bytes, tmp_path: Path) -> None:
    """It was a UnicodeEncodeError when written to a table; complete pairs and other escapes are accepted."""
    path = tmp_path / "b.json"
    content = samples.tile_engine_json()[0]
    path.write_bytes(content.replace(b"compv3", half, 1))
    with expect_refusal(DataError, "unreadable", path):
        readers()["tile-engine-json"].read(path, ReadOptions(arch="gfx950"))
    with pytest.raises(ValueError, match="unpaired surrogate"):
        parse_record(samples.journal()[0].splitlines()[0].replace(b'"run1"', b'"' + half + b'"'))
    assert parse_json(b'["\\ud83d\\ude00", "\\u00e9\xed\x95\x9c"]') == ["\U0001f600", "\u00e9\ud55c"]
