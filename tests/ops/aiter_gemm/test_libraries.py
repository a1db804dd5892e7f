"""Problems without a library: those of AITER are one pool, which `--library` restricts."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from benchmarks.aiter_libraries import best_of, of_own, times_in
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
NARROW = (64, 128, 7168)  # of a layer in which ASM wins
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
    both = AiterGemm(*SMALL, family=FAMILY, library="cktile,ck", num_cus=256)
    assert both.canonical() == f"aiter_gemm_{FAMILY}_ck_cktile_fp8_cu256_m16_n7168_k3072"
    assert parse_aiter_gemm(both.canonical()) == both == AiterGemm(**both.to_dict())
    older = parse_aiter_gemm(f"aiter_gemm_{FAMILY}_cktile_fp8_cu256_m16_n7168_k3072")
    assert older == replace(problem, library="cktile") == AiterGemm(**older.to_dict())


@pytest.mark.parametrize(
    ("family", "arch", "libraries"),
    [
        (FAMILY, "gfx942", "ck cktile asm opus"),
        (FAMILY, "gfx950", "ck cktile asm"),
        ("a8w8", "gfx942", "ck"),
        ("a8w8_bpreshuffle", "gfx942", "ck cktile"),
        ("a8w8_bpreshuffle", "gfx950", "ck cktile flydsl"),
    ],
)
def test_the_pool_is_of_all_libraries(family: str, arch: str, libraries: str) -> None:
    """FBGEMM's kernels are another program's, except of families that it alone has."""
    found = candidates(AiterGemm(*SMALL, family=family, num_cus=304), load_arch(arch))
    parts = [kernel_pool(family, library, arch) for library in libraries.split()]
    assert all(parts)
    assert list(found.pool) == [kernel for part in parts for kernel in part]
    two = candidates(AiterGemm(*SMALL, family=family, library="ck,cktile", num_cus=304), load_arch(arch))
    assert {kernel.library for kernel in two.pool} == {"ck", "cktile"} & set(libraries.split())
    grouped = candidates(AiterGemm(*SMALL, family="a8w8_grouped", groups=2, num_cus=304), load_arch("gfx942"))
    assert {kernel.library for kernel in grouped.pool} == {"fbgemm"}


def test_rows_of_other_libraries_are_read(tmp_path: Path) -> None:
    """ASM's split is its number of parts; FlyDSL's name is known if it won twice; others are left out."""
    asm = "_ZN5aiter42fp8gemm_bf16_blockscale_BpreShuffle_32x128E"
    fly = "flydsl_bpreshuflle_256x128x128_F8_F8_B16_2x0x1x2_default"
    lines = ["gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName"]
    lines += [f"gfx950,256,{m},7168,2048,torch.float8_e4m3fn,asm,3,{split},9,{asm}" for m, split in ((1, 8), (2, 1))]
    lines += [f"gfx950,256,{m},7168,2048,torch.float8_e4m3fn,flydsl,3,0,9,{name}" for m, name in ((4, fly), (8, "x"))]
    lines.append("gfx950,256,16,7168,2048,torch.float8_e4m3fn,flydsl,3,0,9,flydsl_bpreshuflle_16x64x256_F8_F8_B16_1x1")
    (tmp_path / "tuned.csv").write_text("\n".join(lines) + "\n")
    out = tmp_path / "data.parquet"
    assert run(["convert", str(tmp_path / "tuned.csv"), "--out", str(out)]) == ExitCode.OK
    data = read_dataset(out)
    assert dict(zip(data.frame["m"], data.frame["kernel"], strict=True)) == {
        1: f"{asm}_splitk8",
        2: f"{asm}_splitk1",
        4: fly,
    }
    (source,) = data.metadata["sources"]
    assert source["tried"]["library"] == ["asm", "flydsl"]
    assert {problem.library for problem in data.contests()} == {"any"}
    without = replace(data, metadata={})
    assert [problem.library for problem in without.contests()] == ["asm", "asm", "flydsl"]


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
        assert contest == replace(problem, library="_".join(sorted(tried)))


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


def test_the_shipped_model_chooses_the_faster_library() -> None:
    """On its own data, where CK and CK Tile were timed."""
    times = of_own(times_in(ROOT / "data" / "aiter-gemm-libraries-gfx950.parquet"))
    efficiency = []
    problems = [replace(problem, library="ck_cktile") for problem in times]
    rankings = rankings_of(problems, load_model(ROOT / "models" / "aiter_gemm_gfx950"))
    for known, ranking in zip(times.values(), rankings, strict=True):
        best = best_of(known)
        if len(best) > 1:
            efficiency.append(min(known.values()) / best[ranking.pool[ranking.order[0]].library])
    assert len(efficiency) == 203
    assert np.mean(efficiency) > 0.995


@pytest.mark.slow
def test_an_export_writes_the_best_over_the_libraries_that_aiter_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers are those in this AITER; an AITER without the first library gets the next one's kernel, and a note.

    ASM's kernels are those that AITER's own tables name.
    """
    asm = [kernel.base for kernel in kernel_pool(FAMILY, "asm", "gfx950")]
    for libraries, sizes, expected in (
        (("", "_cktile"), LARGE, "cktile"),
        (("",), LARGE, "ck"),
        (("", "_cktile"), NARROW, "ck"),
        (("", "_cktile", "asm"), NARROW, "asm"),
    ):
        root, out = tmp_path / f"{expected}{len(libraries)}", tmp_path / f"out-{expected}{len(libraries)}"
        (configs := root / "aiter" / "configs").mkdir(parents=True)
        (root / "csrc" / "gemms").mkdir(parents=True)
        head = "gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n"
        rows = [f"gfx950,256,{at},128,128,asm,{at},1,9,{name},0,0,0\n" for at, name in enumerate(dict.fromkeys(asm))]
        (configs / f"{FAMILY}_tuned_gemm.csv").write_text(head + "".join(rows if "asm" in libraries else []))
        for suffix in libraries:
            pool = kernel_pool(FAMILY, suffix.strip("_") or "ck", "gfx950")
            names = {number: kernel.base for number, kernel in enumerate(pool)}
            lines = ["class Kernel:", "    def __init__(self, name):", "        self.name = name"]
            lines.append(f"kernels = {{number: Kernel(name) for number, name in {names!r}.items()}}")
            if suffix != "asm":
                (root / "csrc" / "gemms" / f"gemm_{FAMILY}{suffix}_common.py").write_text("\n".join(lines))
        text = AiterGemm(*sizes, family=FAMILY, num_cus=256).canonical()
        line = ["export", "--to", "aiter", "--arch", "gfx950", "--problems", str(tmp_path / "one.txt")]
        (tmp_path / "one.txt").write_text(text + "\n")
        capsys.readouterr()
        assert run([*line, "--installed", str(root), "--out", str(out)]) == ExitCode.OK
        first = "cktile" if sizes == LARGE else "asm"
        assert (first in capsys.readouterr().err.replace(str(root), "")) == (expected != first)
        (row,) = csv.DictReader((out / "predicted" / f"{FAMILY}_tuned_gemm.csv").read_text().splitlines())
        kernel = parse_kernel(row["kernelName"])
        assert (row["libtype"], kernel.library) == (expected, expected)
        if expected == "asm":
            assert int(row["kernelId"]) == list(dict.fromkeys(asm)).index(kernel.base)
            assert int(row["splitK"]) in range(1, 9)
        else:
            assert kernel_pool(FAMILY, expected, "gfx950")[int(row["kernelId"])].base == row["kernelName"]
