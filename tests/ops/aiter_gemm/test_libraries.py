"""Problems without a library: CK and CK Tile are one pool, which `--library` restricts."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from benchmarks.aiter_libraries import times_in
from ckh.archs import load_arch
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.errors import ExitCode
from ckh.learn.answers.ranking import rankings_of
from ckh.learn.models.artifact import load_model
from ckh.learn.models.manifest import problem_id, trained_problems
from ckh.ops.aiter_gemm.kernel import candidates, kernel_pool, parse_kernel
from ckh.ops.aiter_gemm.problem import AiterGemm, parse_aiter_gemm

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[3]
FAMILY = "a8w8_blockscale_bpreshuffle"
SMALL, LARGE = (16, 7168, 3072), (12288, 6144, 7168)
FIRST = {  # of the shipped model, as its data have them
    SMALL: ("ck", "a8w8_blockscale_bpreshuffle_1x128x128_256x16x64x256_"),
    LARGE: ("cktile", "a8w8_blockscale_cktile_192x256x128_4x2x1_"),
}


def predicted(capsys: pytest.CaptureFixture[str], sizes: Sequence[int], *options: str) -> Any:
    """Return the answer of the shipped model as JSON."""
    m, n, k = map(str, sizes)
    asked = ["predict", "--op", "aiter_gemm", "--family", FAMILY, "--arch", "gfx950", "--m", m, "--n", n, "--k", k]
    assert run([*asked, "--json", *options]) == ExitCode.OK
    return json.loads(capsys.readouterr().out)


def test_problems_that_taught_the_library_are_training_problems() -> None:
    """`ckh evaluate` leaves the 369 GEMMs out whose times shaped the trees of the shipped model."""
    problems = read_dataset(ROOT / "data" / "aiter-gemm-libraries-gfx950.parquet").problems()
    known = trained_problems(ROOT / "models" / "aiter_gemm_gfx950")
    assert known is not None
    assert {problem_id(problem) for problem in problems} <= known
    assert len({*problems}) == 369


def test_a_library_restricts_a_problem_and_is_no_part_of_it() -> None:
    """Texts and documents state it only where it restricts; texts of older versions, which all have one, still do."""
    problem = AiterGemm(*SMALL, family=FAMILY, num_cus=256)
    assert problem.canonical() == f"aiter_gemm_{FAMILY}_fp8_cu256_m16_n7168_k3072"
    assert parse_aiter_gemm(problem.canonical()) == problem
    assert "library" not in problem.to_dict()
    older = parse_aiter_gemm(f"aiter_gemm_{FAMILY}_cktile_fp8_cu256_m16_n7168_k3072")
    assert older == replace(problem, library="cktile") == AiterGemm(**older.to_dict())


@pytest.mark.parametrize("family", [FAMILY, "a8w8", "a8w8_bpreshuffle"])
def test_the_pool_is_of_both_libraries(family: str) -> None:
    """FBGEMM's kernels are another program's, except of families that it alone has."""
    found = candidates(AiterGemm(*SMALL, family=family, num_cus=304), load_arch("gfx942"))
    parts = [kernel_pool(family, library, "gfx942") for library in ("ck", "cktile")]
    assert [found.pool[number] for number in found.chosen] == [*parts[0], *parts[1]]
    grouped = candidates(AiterGemm(*SMALL, family="a8w8_grouped", groups=2, num_cus=304), load_arch("gfx942"))
    assert {kernel.library for kernel in grouped.pool} == {"fbgemm"}


def test_rows_of_older_datasets_name_the_library_of_the_kernel() -> None:
    """A shape that both tuned is one problem; where no source states what was tried, its rows' libraries compete."""
    data = read_dataset(ROOT / "data" / "aiter-gemm-gfx950.parquet")
    libraries = [parse_kernel(name).library for name in data.frame["kernel"]]
    assert libraries == data.frame["library"].tolist()
    assert [contest.library for contest in data.contests()] == ["any"] * len(data.problems())
    data = replace(data, metadata={})
    of = [set(data.frame["library"][data.problem_ids == number]) for number in range(0, 4000, 400)]
    for tried, problem, contest in zip(of, data.problems()[::400], data.contests()[::400], strict=False):
        assert problem.library == "any"
        assert contest == replace(problem, library=next(iter(tried)) if len(tried) == 1 else "any")


def test_predict_names_library_and_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    """Few blocks are CK's, many CK Tile's; --library takes the first of one."""
    for sizes, (library, kernel) in FIRST.items():
        answer = predicted(capsys, sizes)
        assert answer["kernels"][0]["kernel"].startswith(kernel)
        (said,) = [caveat for caveat in answer["caveats"] if caveat["kind"] == "library"]
        assert said["data"]["rows"][library] == 1
        for only in ("ck", "cktile"):
            names = [row["kernel"] for row in predicted(capsys, sizes, "--library", only)["kernels"]]
            assert {parse_kernel(name).library for name in names} == {only}


def test_an_answer_says_where_another_library_is_faster(capsys: pytest.CaptureFixture[str]) -> None:
    """ASM with split-K, up to M = 64 and from K = 3,072 on."""
    for sizes, expected in ((SMALL, 1), ((65, 7168, 3072), 0), ((64, 7168, 3071), 0), (LARGE, 0)):
        kinds = [caveat["kind"] for caveat in predicted(capsys, sizes)["caveats"]]
        assert kinds.count("faster-elsewhere") == expected


def test_the_shipped_model_chooses_the_faster_library() -> None:
    """On its own data, where both libraries were timed."""
    times = times_in(ROOT / "data" / "aiter-gemm-libraries-gfx950.parquet")
    efficiency = []
    rankings = rankings_of(times, load_model(ROOT / "models" / "aiter_gemm_gfx950"))
    for known, ranking in zip(times.values(), rankings, strict=True):
        best = {
            library: [us for name, us in known.items() if parse_kernel(name).library == library]
            for library in ("ck", "cktile")
        }
        if all(best.values()):
            chosen = ranking.pool[ranking.order[0]].library
            efficiency.append(min(known.values()) / min(best[chosen]))
    assert len(efficiency) == 203
    assert np.mean(efficiency) > 0.995


@pytest.mark.slow
def test_an_export_writes_the_best_over_the_libraries_that_aiter_builds(tmp_path: Path) -> None:
    """CK Tile's row with the number in this AITER; one without CK Tile gets CK's."""
    for libraries in (("", "_cktile"), ("",)):
        root, out = tmp_path / f"aiter{len(libraries)}", tmp_path / f"out{len(libraries)}"
        (root / "aiter" / "configs").mkdir(parents=True)
        (root / "csrc" / "gemms").mkdir(parents=True)
        for suffix in libraries:
            pool = kernel_pool(FAMILY, suffix[1:] or "ck", "gfx950")
            names = {number: kernel.base for number, kernel in enumerate(pool) if not kernel.split_k}
            lines = ["class Kernel:", "    def __init__(self, name):", "        self.name = name"]
            lines.append(f"kernels = {{number: Kernel(name) for number, name in {names!r}.items()}}")
            path = root / "csrc" / "gemms" / f"gemm_{FAMILY}{suffix}_common.py"
            path.write_text("\n".join(lines))
        text = AiterGemm(*LARGE, family=FAMILY, num_cus=256).canonical()
        line = ["export", "--to", "aiter", "--arch", "gfx950", "--problems", str(tmp_path / "one.txt")]
        (tmp_path / "one.txt").write_text(text + "\n")
        assert run([*line, "--installed", str(root), "--out", str(out)]) == ExitCode.OK
        table = (out / "predicted" / f"{FAMILY}_tuned_gemm.csv").read_text()
        (row,) = csv.DictReader(table.splitlines())
        expected = FIRST[LARGE][0] if len(libraries) > 1 else "ck"
        assert (row["libtype"], parse_kernel(row["kernelName"]).library) == (expected, expected)
        pool = kernel_pool(FAMILY, expected, "gfx950")
        assert pool[int(row["kernelId"])].base == row["kernelName"]
