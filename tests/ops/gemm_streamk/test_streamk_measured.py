"""Stream-K products computed: how sums are split, sources, and execution on the emulated GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

import pytest

from ckh.archs import load_arch
from ckh.bench.codegen.unit import UnsupportedKernelError
from ckh.bench.computation import Split
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.ops.gemm_streamk.measured import HIP, MEASURED, parts_at_most, split
from ckh.ops.gemm_streamk.operation import parse_streamk_kernel
from ckh.ops.gemm_streamk.problem import GemmStreamKProblem
from tests.bench.codegen.gemm_headers import CURRENT, LATE_2025, MID_2025

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.ops.gemm_universal.measuring.hip_rules import GemmHeaders

ARCH = load_arch("gfx942")
EMITTED = "fp16_rcr_compv3_cshuffle_intrawave_False_False_False_False_64x64x64_2x2x1_32x32x16"
SHAPE = "fp16_rcr_compv3_cshuffle_intrawave_False_False_False_True_32x32x32_2x2x1_16x16x32"  # persistent


def shares(tiles: int, steps: int, grid: int) -> int:
    """Largest number of blocks in a tile, block by block as CK Tile's partitioner deals out steps."""
    rest = tiles % grid
    shared = (grid + rest if tiles > grid else tiles) if rest else 0
    if shared * steps < grid or not shared:
        return 1
    each, more = divmod(shared * steps, grid)
    blocks: dict[int, set[int]] = {}
    start = 0
    for block in range(grid):
        end = start + each + (block < more)
        for step in range(start, end):
            blocks.setdefault(step // steps, set()).add(block)
        start = end
    assert start == shared * steps
    return max(map(len, blocks.values()))


@pytest.mark.parametrize(("tiles", "steps"), [(1, 1), (1, 9), (2, 7), (3, 5), (5, 6), (11, 3), (16, 13), (40, 2)])
def test_no_grid_shares_a_tile_among_more_blocks(tiles: int, steps: int) -> None:
    """The limit of verification covers all numbers of blocks up to the largest, and is at most two above."""
    most = 24
    result = max(shares(tiles, steps, grid) for grid in range(1, most + 1))
    assert result <= parts_at_most(tiles, steps, most) <= result + 2


def test_sums_are_split_by_atomics_only() -> None:
    """Additions to 16-bit results are rounded one by one; a reduction adds in float32, in order."""
    deep = GemmStreamKProblem(64, 64, 64 * 100, "fp16")
    assert split(deep, f"gemm_streamk_reduction_1_{EMITTED}") == Split()
    assert split(deep, f"gemm_streamk_atomic_1_{EMITTED}").parts == 100
    wide = GemmStreamKProblem(64 * 100, 64 * 100, 64 * 100, "fp16")
    assert split(wide, f"gemm_streamk_atomic_1_{EMITTED}").parts == 2


def headers_in(folder: Path, like: GemmHeaders, kernel: str = "namespace reboot {", loop: str = "") -> GemmHeaders:
    """Headers like these with a Stream-K kernel and a pipeline of these texts."""
    loop = loop or "CK_TILE_DEVICE auto operator()(const A& a, index_t num_loop, bool has_hot_loop, TailNumber tail)"
    texts = {"kernel/streamk_gemm_kernel.hpp": kernel, "pipeline/gemm_pipeline_ag_bg_cr_comp_v3.hpp": loop}
    for name, text in texts.items():
        path = folder / "ck_tile/ops/gemm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return replace(like, common=replace(like.common, include=folder))


@pytest.mark.parametrize("reduction", ["atomic", "reduction"])
def test_sources_state_reduction_and_blocks(reduction: str, tmp_path: Path) -> None:
    """The source of late 2025 has them, after the vocabulary with the barrier and before ckh's kernel."""
    kernel = parse_streamk_kernel(f"gemm_streamk_{reduction}_2_{EMITTED}")
    source = HIP.emit(kernel, headers_in(tmp_path, LATE_2025), ARCH)
    assert f"StreamKReductionStrategy::{reduction.capitalize()};" in source
    assert "int blocks_per_cu = 2;" in source
    included = [line.split('"')[1] for line in source.splitlines() if line.startswith("#include")]
    assert included == ["streamk_vocabulary.hpp", "streamk_late2025.hpp", "gemm_exports.hpp"]


@pytest.mark.parametrize(
    ("like", "texts"),
    [
        (MID_2025, {}),
        (CURRENT, {}),
        (LATE_2025, {"kernel": "struct StreamKKernel"}),
        (LATE_2025, {"kernel": " "}),
        (LATE_2025, {"loop": "auto operator()(const A& a, index_t num_loop)"}),
    ],
)
def test_headers_without_the_kernel_are_refused(like: GemmHeaders, texts: dict[str, str], tmp_path: Path) -> None:
    """By the rules that plans read, and in emission: another interface, an older kernel, a loop end at compile time."""
    kernel = parse_streamk_kernel(f"gemm_streamk_atomic_1_{EMITTED}")
    lacking = headers_in(tmp_path, like, **texts)
    assert [reason for rule in HIP.rules(lacking)[-1:] for reason in rule(kernel, ARCH)]
    with pytest.raises(UnsupportedKernelError):
        HIP.emit(kernel, lacking, ARCH)
    fine = headers_in(tmp_path / "fine", LATE_2025)
    assert [reason for rule in HIP.rules(fine) for reason in rule(kernel, ARCH)] == []
    (refused,) = HIP.rules(fine)[-1:]
    assert list(refused(replace(kernel, pipeline="compv4"), ARCH))


def test_loop_ends_share_tiles_in_every_way() -> None:
    """On the emulated device's four blocks: not at all, two to four blocks in a tile, and tiles of whole rounds."""
    kernel = parse_streamk_kernel(f"gemm_streamk_atomic_1_{SHAPE}")
    assert MEASURED.trials is not None
    result = MEASURED.trials().loop_ends(kernel)
    counts = set()
    for problem in result:
        m, n, k = (ceil(size / tile) for size, tile in zip((problem.m, problem.n, problem.k), kernel.tile, strict=True))
        counts.add((shares(m * n, k, 4), m * n > 4))
    assert counts >= {(1, False), (2, False), (3, False), (4, False), (1, True), (2, True)}


@pytest.mark.slow
def test_converted_times_train_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Times under names of the tile engine and of ckh become a dataset, and a model that tells the kernels apart."""
    kind, sizes = EMITTED.split("_64x", 1)
    names = [f"gemm_streamk_{kind}_linear_64x{sizes}"]
    names += [
        f"gemm_streamk_{reduction}_{blocks}_{EMITTED}" for reduction in ("atomic", "reduction") for blocks in (1, 2)
    ]
    lines = [
        f"{name},{64 * m},{64 * n},4096,{10 + m * n * (1 + place) / 7}"
        for m in range(1, 7)
        for n in range(1, 7)
        for place, name in enumerate(names)
    ]
    (tmp_path / "own.csv").write_text("\n".join(["name,m,n,k,us", *lines]), encoding="utf-8")
    data, model = str(tmp_path / "own.parquet"), str(tmp_path / "model")
    mapping = ["--map", "kernel=name", "--map", "latency_us=us", "--out", data]
    assert run(["convert", str(tmp_path / "own.csv"), "--op", "gemm_streamk", "--arch", "gfx942", *mapping]) == 0
    frame = read_dataset(tmp_path / "own.parquet").frame
    assert set(zip(frame["reduction"], frame["blocks_per_cu"], strict=True)) == {
        *(("atomic", 1), ("atomic", 2), ("reduction", 0), ("reduction", 1), ("reduction", 2))
    }
    assert run(["train", "--data", data, "--out", model, "--trees", "20", "--leaves", "4", "--folds", "0"]) == 0
    capsys.readouterr()
    wanted = ["--m", "256", "--n", "320", "--k", "4096", "--dtype", "fp16", "--arch", "gfx942", "--model", model]
    (tmp_path / "names.txt").write_text("\n".join(names), encoding="utf-8")
    wanted += ["--kernels", str(tmp_path / "names.txt")]
    assert run(["predict", "--op", "gemm_streamk", *wanted, "--json", "--top", "5"]) == 0
    result = [load["kernel"] for load in json.loads(capsys.readouterr().out)["kernels"]]
    assert result == [f"gemm_streamk_reduction_0_{EMITTED}", *names[1:]]
