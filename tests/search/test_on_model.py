"""Searches on a model score every legal kernel, compared with scoring kernels one by one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.errors import NoKernelError
from ckh.files.paths import data_dir
from ckh.kernels.compiled import add_compiled
from ckh.kernels.pools import TIMED_NAME, timed_file
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.models.artifact import load_model
from ckh.learn.models.calibration import Calibration
from ckh.ops.grouped_conv.features import CORE_NAMES
from ckh.ops.grouped_conv.kernel import kernel_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES
from ckh.ops.grouped_conv.kernels.variants import CONV_TILES, PIPELINE_VARIANTS
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.ops.grouped_conv.rules.full import curated_tiles
from ckh.problems import Direction
from ckh.schema import Resources
from ckh.search.measuring import Guide
from ckh.search.on_model import search_model, search_text
from ckh.search.space import kernel_space
from ckh.training import RankObjective
from tests.learn.conftest import HOST, amd_model, saved
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.archs import ArchSpec
    from ckh.learn.models.artifact import Model
    from ckh.ops.grouped_conv.kernel import ConvKernel

SIZES = tuple(f"{what}_{axis}" for what in ("tile", "wave", "warp_tile") for axis in "mnk")
PROBLEM = ConvProblem(Direction.FORWARD, n=2, c=64, k=96, g=1, hi=14, wi=14, y=3, x=3, pad_h=1, pad_w=1)
GPU_PROBLEM = replace(PROBLEM, dtype="bf16")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A small model of the host's kernels."""
    return load_model(saved(tmp_path_factory.mktemp("models") / "mine"))


@pytest.fixture(scope="module")
def gpu_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model of AMD's for a GPU that refuses some kernels."""
    folder = tmp_path_factory.mktemp("models") / "forward"
    amd_model(folder, CORE_NAMES, arch="gfx942", hardware=None)
    return load_model(folder)


def one_by_one(problem: ConvProblem, arch: ArchSpec) -> dict[tuple[Any, ...], ConvKernel]:
    """A legal kernel of each kind that a convolution model distinguishes, found by single checks."""
    result: dict[tuple[Any, ...], ConvKernel] = {}
    pool = conv_pool(problem.variant, arch, problem.ndim, problem.dtype)
    tiles = dict.fromkeys([*(row.tile for row in CONV_TILES), *(row.tile for row in curated_tiles(problem.variant))])
    blocks = list(product(arch.wave_configs, arch.warp_tiles_for(problem.dtype)))
    for tile, how in product(tiles, PIPELINE_VARIANTS):
        options = how._asdict()
        for wave, warp_tile in blocks:
            if any(size % (w * t) for size, w, t in zip(tile, wave, warp_tile, strict=True)):
                continue
            sizes = dict(zip(SIZES, (*tile, *wave, *warp_tile), strict=True))
            kernel = replace(pool[0], **sizes, **options)
            if not CONV_RULES.check(kernel, arch, problem):
                result[tile + tuple(options.values())] = kernel
                break
    return result


def test_every_kind_of_legal_kernel_is_scored(model: Model) -> None:
    """As many kinds as single checks find, the best of them with their single scores."""
    kinds = one_by_one(PROBLEM, HOST)
    scores = model.predict(PROBLEM, list(kinds.values()), model.spec.rank_by)
    search: Any = search_model(PROBLEM, model, HOST, len(kinds) + 5)
    assert search.distinct == len(kinds) == len(search.found)
    assert search.legal > 100 * len(kinds)
    assert search.candidates == 300
    np.testing.assert_allclose([item.score for item in search.found], np.sort(scores)[::-1], rtol=1e-12)
    expected = model.predict(PROBLEM, [item.kernel for item in search.found], model.spec.rank_by)
    np.testing.assert_allclose([item.score for item in search.found], expected, rtol=1e-12)
    assert all(CONV_RULES.check(item.kernel, HOST, PROBLEM) == [] for item in search.found)


def test_results_have_the_requested_length_and_beat_the_pool(tmp_path: Path) -> None:
    """Results are the first of all; candidates stand for their look-alikes, with the speeds of `ckh predict`."""
    model = load_model(saved(tmp_path / "mine"))
    model.calibration = Calibration((0.0, 5.0), (1.0, 0.1), 1.0, ((0.0, 0.5, 2.0),), 9)
    pool = ranking_of(PROBLEM, model).ranked
    every, few = search_model(PROBLEM, model, HOST, 10**6), search_model(PROBLEM, model, HOST, 3)
    assert every.found[:3] == few.found
    assert few.first_choice == replace(pool[0], ties=1)
    assert few.found[0].score >= pool[0].score
    speeds = zip(every.found, every.in_pool, strict=True)
    marked = {item.kernel: item.tflops for item, is_candidate in speeds if is_candidate}
    assert marked == {item.kernel: pytest.approx(item.tflops, rel=1e-12) for item in pool}


@pytest.mark.slow
def test_the_first_of_candidates_that_score_alike_stands_for_them(gpu_model: Model, tmp_path: Path) -> None:
    """Two measured kernels differ in blocks per CU, which the features lack: the pool's first is found."""
    arch = load_arch("gfx942")
    first = conv_pool(Direction.FORWARD, arch, dtype="bf16")[5]
    second = replace(first, block_per_cu=2)
    folder = shutil.copytree(gpu_model.path, tmp_path / "timed")
    (folder / TIMED_NAME).write_bytes(timed_file("gfx942", {kernel_name(first), kernel_name(second)}))
    search = search_model(GPU_PROBLEM, load_model(folder), arch, 10**6)
    found = {item.kernel for item, is_candidate in zip(search.found, search.in_pool, strict=True) if is_candidate}
    assert first in found
    assert second not in found


@pytest.mark.slow
def test_speeds_and_caveats_match_predict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates have the speeds of `ckh predict`, also if compiled here; unmeasured kinds of kernels are named."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path))
    first = "grouped_conv_fwd_bf16_nhwgc_2d_compv3_cshuffle_intrawave_128x128x64_4x4x1_32x32x16"
    add_compiled("gfx950", "grouped_conv", first, Resources(512, 0, 100, 163840, 0, 0, 0, occupancy=1))
    model = load_model(data_dir("models") / "grouped_conv_forward_bf16_gfx950")
    problem = replace(GPU_PROBLEM, n=16, c=256, k=256, hi=28, wi=28)
    speeds = {candidate.kernel: candidate.tflops for candidate in ranking_of(problem, model).ranked}
    search = search_model(problem, model, load_arch("gfx950"), 200)
    result = {item.kernel: item.tflops for item in search.found if item.kernel in speeds}
    assert len(result) >= 3
    assert result == {kernel: pytest.approx(speeds[kernel], rel=1e-12) for kernel in result}
    assert search.first_choice is not None
    assert search.first_choice.tflops == pytest.approx(speeds[search.first_choice.kernel], rel=1e-12)
    assert model.measured is not None
    kinds = {item.kernel.pipeline for item in search.found} - set(model.measured.families)
    assert set(search.known.families) == kinds != set()
    expect_values(search_text(problem, model, search), search.known.families[0])


def test_narrow_channels_have_kernels_beyond_the_pool(gpu_model: Model) -> None:
    """With 12 channels no GPU candidate applies, but legal kernels with narrower vectors do."""
    arch, narrow = load_arch("gfx942"), replace(GPU_PROBLEM, c=12, k=20)
    search: Any = search_model(narrow, gpu_model, arch, 50)
    assert (search.candidates, search.first_choice, any(search.in_pool)) == (0, None, False)
    assert len(search.found) == 50
    assert all(CONV_RULES.check(item.kernel, arch, narrow) == [] for item in search.found)
    assert all(12 % item.kernel.vector_b == 0 and 20 % item.kernel.vector_c == 0 for item in search.found)
    wide: Any = search_model(GPU_PROBLEM, gpu_model, arch, 50)
    assert wide.candidates == 208
    assert wide.distinct > 208
    assert {item.kernel.pipeline for item in wide.found}.isdisjoint({"compv5"})


def test_no_legal_kernel_is_an_error(gpu_model: Model) -> None:
    """With odd channels per group only single elements fit B and C, and A's width must be 1 too."""
    arch = load_arch("gfx942")
    odd = replace(GPU_PROBLEM, c=3, k=5)
    result: Any = search_model(odd, gpu_model, arch, 9).found
    assert all(item.kernel.vector_b == item.kernel.vector_c == 1 for item in result)
    with expect_refusal(NoKernelError, "no-kernel", "kernel", "host"):
        search_model(odd, gpu_model, HOST, 9)


@pytest.mark.parametrize("rank", [RankObjective.RELATIVE, RankObjective.TFLOPS])
def test_the_prior_of_a_search_is_the_order_of_the_model(rank: RankObjective, tmp_path: Path) -> None:
    """Scores, of TFLOPS their logarithms, with the first choice of the pool."""
    model = load_model(saved(tmp_path / "model", rank))
    space = kernel_space(PROBLEM, HOST, [candidate.kernel for candidate in ranking_of(PROBLEM, model).ranked], 900)
    expected = model.predict(PROBLEM, space.kernels, model.spec.rank_by)
    guide = Guide.of(model, PROBLEM, space)
    np.testing.assert_allclose(np.exp(guide.prior) if rank is RankObjective.TFLOPS else guide.prior, expected)
    assert guide.first_choice == int(expected[: space.pool_size].argmax())
