"""An operation from another package goes through the whole loop, and a broken package is reported in one line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ckh.errors import ExitCode
from tests.refusals import expect_error, expect_reasons

if TYPE_CHECKING:
    from collections.abc import Callable

    Ckh = Callable[..., str]

PACKAGE = Path(__file__).parent / "plugin" / "ckh_matvec"
SQUARES = range(32, 256, 8)  # its only problem set
CHANGED = "from dataclasses import replace\nfrom ckh_matvec.operation import OPERATION as GOOD\nOPERATION = "
PREDICT = ("predict", "--rows", "64", "--cols", "64", "--arch", "host", "--top", "9")


def install(site: Path, value: str) -> None:
    """Write the entry point of an operation `matvec`, as in an installed package."""
    info = site / "ckh_matvec-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ckh-matvec\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[ckh.operations]\nmatvec = {value}\n", encoding="utf-8")


def call(folder: Path, site: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run ckh as a process with the packages of a folder, and its own cache and data."""
    own = {"CKH_CACHE_DIR": folder / "cache", "CKH_DATA_DIR": folder / "data", "PYTHONPATH": site}
    return subprocess.run(
        [sys.executable, "-m", "ckh", *command],
        cwd=folder,
        env={**os.environ, **{name: str(value) for name, value in own.items()}},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def ckh(tmp_path_factory: pytest.TempPathFactory) -> Ckh:
    """Return a function that runs a command, which must succeed, with the operation installed, measured and trained."""
    folder = tmp_path_factory.mktemp("plugin")
    site = folder / "site"
    install(site, "ckh_matvec.operation:OPERATION")
    shutil.copytree(PACKAGE, site / PACKAGE.name)

    def run(*command: str) -> str:
        done = call(folder, site, *command)
        assert done.returncode == ExitCode.OK, done.stderr[-4000:]
        return done.stdout

    bench = json.loads(run("bench", "--op", "matvec", "--device", "host", "--samples", "2", "--out", "run", "--json"))
    assert set(bench["statuses"]) <= {"ok", "unstable"}
    assert sum(bench["statuses"].values()) == 4 * len(SQUARES)
    converted = json.loads(run("convert", "run", "--out", "times.parquet", "--json"))
    assert (converted["problems"], converted["kernels"]) == (len(SQUARES), 4)
    run("train", "--data", "times.parquet", "--out", "model", "--trees", "30", "--leaves", "4", "--folds", "3")
    return run


@pytest.mark.slow
def test_it_is_evaluated_and_predicted(ckh: Ckh) -> None:
    """Selected by its own option, without --op; a kernel with a remainder is rejected with the rule's reason."""
    evaluate = ("evaluate", "--model", "model", "--data", "times.parquet", "--max-unstable", "1")
    with pytest.raises(AssertionError, match=rf"all {len(SQUARES)} .*\[trained-on-all\]"):
        ckh(*evaluate)
    judged = json.loads(ckh(*evaluate, "--with-trained", "--json"))["efficiency"]
    assert judged["problems"] == len(SQUARES)
    assert 0 < judged["min"] <= judged["mean"]["value"] <= 1
    whole = json.loads(ckh(*PREDICT, "--model", "model", "--json"))
    assert (whole["problem"], whole["candidates"], whole["refused"]) == ("matvec_fp32_64x64", 4, {})
    scores = [item["score"] for item in whole["kernels"]]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > scores[-1]
    assert all(item["tflops"] > 0 for item in whole["kernels"])
    odd = json.loads(ckh("predict", "--rows", "64", "--cols", "33", "--arch", "host", "--model", "model", "--json"))
    expect_reasons(odd["refused"], (33, 8))
    assert list(odd["refused"].values()) == [2]
    assert {name for item in odd["kernels"] for name in (item["kernel"], *item["tied"])} == {
        f"matvec_fp32_block{block}_unroll1" for block in (1, 4)
    }


@pytest.mark.slow
def test_it_is_searched(ckh: Ckh) -> None:
    """On the model over all 20 valid kernels of its space, and by measuring some of them."""
    asked = ("--rows", "64", "--cols", "64", "--arch", "host", "--model", "model", "--json")
    document = json.loads(ckh("search", *asked))
    assert document["space"]["kernels"] == 20
    assert (
        document["kernels"][0]["score"]
        >= json.loads(ckh(*PREDICT, "--model", "model", "--json"))["kernels"][0]["score"]
    )
    own = (document["problem"], *asked[4:], "--device", "host")
    measured = json.loads(ckh("search", "measure", *own, "--evaluations", "6", "--out", "search"))
    assert set(measured["statuses"]) <= {"ok", "unstable"}
    assert sum(measured["statuses"].values()) == 6


@pytest.mark.slow
def test_its_kernels_are_listed_in_a_registry(ckh: Ckh, tmp_path: Path) -> None:
    """The kernels in --write-registry are those that --registry measures."""
    path = str(tmp_path / "some.json")
    bench = ("bench", "--op", "matvec", "--device", "host", "--json")
    written = json.loads(ckh(*bench, "--filter", "unroll == 8", "--out", "none", "--write-registry", path))
    assert written["kernels"] == 2
    with pytest.raises(AssertionError, match="matvec has no --registry"):
        ckh(*bench, "--registry", path, "--out", "none", "--dry-run")


@pytest.mark.slow
def test_its_models_are_exported_to_c(ckh: Ckh, tmp_path: Path) -> None:
    """The example ranks as `ckh predict` does, to the printed digits, with a type and functions of its own."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang", "clang-19"))))
    out = tmp_path / "c"
    ckh("export", "--model", "model", "--to", "c", "--out", str(out))
    assert "ckh_rank_matvec(model, &p" in (out / "example.c").read_text()
    sources = sorted(map(str, out.glob("*.c")))
    strict = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-ffp-contract=off")
    subprocess.run([compiler, "-std=c11", "-O1", *strict, "-o", str(out / "example"), *sources, "-lm"], check=True)
    printed = subprocess.run([out / "example"], cwd=out, capture_output=True, text=True, check=True).stdout
    expected = [
        (
            f"{load['tflops']:10.4f} TFLOPS {load['latency_ms']:10.4f} ms",
            {load["kernel"], *load["tied"]},
        )
        for load in json.loads(ckh(*PREDICT, "--model", "model", "--json"))["kernels"]
    ]
    lines = iter(printed.splitlines())  # kernels that the model cannot distinguish have a line each
    for figures, names in expected:
        assert {next(lines) for _ in names} == {f"{figures}  {name}" for name in names}
    assert not list(lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "text", "words"),
    [
        ("nowhere:OPERATION", "", "ModuleNotFoundError: No module named 'nowhere'"),
        ("broken:OPERATION", "", "AttributeError: module 'broken' has no attribute 'OPERATION'"),
        ("broken:OPERATION", "import ctypes\n1 / 0\n", "ZeroDivisionError: division by zero"),
        ("broken:OPERATION", "OPERATION = 3\n", "a record of the name 'matvec' was expected, not 3"),
        (
            "broken:OPERATION",
            CHANGED + "replace(GOOD, measured=lambda: 7)\n",
            "its Measured is 7",
        ),
        (
            "broken:OPERATION",
            CHANGED + "replace(GOOD, measured=lambda: 1 / 0)\n",
            "its Measured raises ZeroDivisionError: division by zero",
        ),
        (
            "broken:OPERATION",
            CHANGED + "replace(GOOD, problems=replace(GOOD.problems, identity=('rows', 'width')))\n",
            "it has no columns width",
        ),
    ],
)
def test_a_broken_package_is_one_line(value: str, text: str, words: str, tmp_path: Path) -> None:
    """The line states package, location and fault; other operations keep working."""
    site = tmp_path / "site"
    install(site, value)
    shutil.copytree(PACKAGE, site / PACKAGE.name)
    (site / "broken.py").write_text(text, encoding="utf-8")
    done = call(tmp_path, site, "bench", "--op", "matvec", "--device", "host", "--dry-run")
    assert done.returncode == ExitCode.USAGE
    expect_error(done.stderr, "bad-plugin", "matvec", "ckh-matvec", value, words, "\nhint: ")
    assert call(tmp_path, site, "bench", "--op", "gemm_universal", "--device", "host", "--dry-run").returncode == 0
