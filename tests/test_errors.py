"""Codes of errors: each is declared, used and documented, and `--json` prints it."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest

from ckh.cli import run
from ckh.errors import CkhError, DeviceError, ExitCode, codes
from ckh.text.log import print_error, warn

ROOT = Path(__file__).parents[1]
ERROR_CODES, WARNING_CODES = codes().values()


@cache
def nodes_in_source() -> list[ast.AST]:
    """Keywords, assignments and calls in all modules."""
    kinds = (ast.keyword, ast.Assign, ast.AnnAssign, ast.Call)
    return [
        node
        for path in (ROOT / "ckh").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, kinds)
    ]


def codes_in_source() -> set[str]:
    """Codes of raised errors and of their classes."""
    result = set()
    for node in nodes_in_source():
        if isinstance(node, ast.keyword) and node.arg == "code" and isinstance(node.value, ast.Constant):
            result.add(node.value.value)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "default_code" for target in targets):
                result.add(node.value.value)
    return {code for code in result if isinstance(code, str)} - {""}


def warning_codes_in_source() -> set[str]:
    """Codes of `warn` calls."""
    calls = [
        node
        for node in nodes_in_source()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "warn"
    ]
    assert all(len(call.args) == 2 for call in calls)
    return {str(call.args[1].value) for call in calls if isinstance(call.args[1], ast.Constant)}


@pytest.mark.slow
def test_error_codes_match_the_table() -> None:
    """Every raised code is declared, and every declared code is raised."""
    assert codes_in_source() == set(ERROR_CODES)


def test_warning_codes_match_the_table() -> None:
    """Every code of a warning is declared, there or as an error's, and every declared code is used."""
    assert warning_codes_in_source() - set(ERROR_CODES) == set(WARNING_CODES) - set(ERROR_CODES)
    assert set(WARNING_CODES) <= warning_codes_in_source()


def test_help_shows_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    """Codes with their meanings, in the same order."""
    assert run(["help", "codes"]) == ExitCode.OK
    rows = re.findall(r"^\| `([\w-]+)` \| (.*) \|$", capsys.readouterr().out, re.MULTILINE)
    assert rows == [*ERROR_CODES.items(), *WARNING_CODES.items()]


def test_the_code_follows_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    """In brackets, for errors and warnings alike."""
    print_error(DeviceError("m", "h", code="no-gpu"))
    warn("w", "gate")
    assert capsys.readouterr().err.splitlines() == ["error: m [no-gpu]", "hint: h", "warning: w [gate]"]


def test_a_code_belongs_to_the_error_or_its_class() -> None:
    """Without its own code it has that of its class."""
    assert CkhError("m").code == "bad-data"
    assert DeviceError("m").code == "no-device"
    assert DeviceError("m", code="no-gpu").code == "no-gpu"


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (["predict", "--n", "16", "--c", "256", "--arch", "gfx999"], "unknown-arch", ExitCode.USAGE),
        (["predict", "--op", "gemmm", "--m", "16"], "unknown-op", ExitCode.USAGE),
        (["predict", "--n", "16", "--c", "255", "--g", "2"], "indivisible", ExitCode.USAGE),
        (
            ["predict", "--n", "16", "--c", "256", "--arch", "gfx942", "--require", "measured"],
            "no-model",
            ExitCode.BAD_DATA,
        ),
        (["predict", "--problems", "nowhere"], "unknown-set", ExitCode.USAGE),
        (["evaluate", "--data", "nowhere.parquet"], "no-file", ExitCode.BAD_DATA),
        (["predict", "--no-such-option"], "usage", ExitCode.USAGE),
    ],
)
def test_json_prints_the_error(
    args: list[str], code: str, exit_code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    """One document on stdout with the text of stderr; without --json nothing on stdout."""
    assert run([*args, "--json"]) == exit_code
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert (document["schema"], document["code"], document["exit_code"]) == ("ckh.error", code, exit_code)
    assert f"error: {document['message']}" in printed.err
    assert run(args) == exit_code
    assert capsys.readouterr().out == ""


def test_a_printed_result_remains_the_only_document(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A document without an answer and the error are one document."""
    problems = tmp_path / "problems.csv"
    problems.write_text("N,C,K,Hi,Wi,Y,X\n1,64,64,60000,60000,3,3\n")
    assert run(["predict", "--problems", str(problems), "--arch", "gfx942", "--json"]) == ExitCode.NO_KERNEL
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "ckh.predict_many"
    assert document["results"] == []
