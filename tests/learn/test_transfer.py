"""Without measurements the nearest model or an estimate answers, and is marked as not measured."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ckh
from benchmarks.veto import first_kernels, language_gemms
from ckh.archs import arch_names, load_arch
from ckh.cli import run
from ckh.errors import ExitCode
from ckh.files.paths import data_dir
from ckh.kernels.compiled import add_compiled
from ckh.kernels.table import TRIPLES
from ckh.learn.analytic.completed import JUDGED, filled, vetoed
from ckh.learn.analytic.estimate import ESTIMATE, KernelShapes, compiled_blocks_per_cu, estimated_us
from ckh.learn.analytic.estimator import EstimateScores
from ckh.learn.analytic.transfer import estimate_model, judged_model, stand_in
from ckh.learn.answers.answering import Chooser
from ckh.learn.answers.probes import Probe, Timed
from ckh.learn.answers.ranking import ranking_of, rankings_of
from ckh.learn.models.artifact import load_model, wanted_for
from ckh.ops import built_in_names
from ckh.ops import operation as operation_named
from ckh.ops.aiter_gemm.problem import AiterGemm
from ckh.ops.aiter_moe.problem import AiterMoe
from ckh.ops.base import Measure, TiledSizes, Worth
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from ckh.schema import Resources
from tests.learn.conftest import build
from tests.refusals import expect_error, expect_values

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.ops.base import AnyOperation

PROBLEM = ConvProblem(Direction.FORWARD, 16, 256, 256, 1, 28, 28, 3, 3, pad_h=1, pad_w=1, dtype="bf16")
SOURCE = data_dir("models") / "grouped_conv_forward_bf16_gfx950"


BACKWARD = replace(PROBLEM, variant=Direction.BWD_DATA)


@pytest.fixture
def backward_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model of gfx950's forward convolutions, relabelled as backward data, which was never evaluated."""
    path = tmp_path / "models" / "backward"
    shutil.copytree(SOURCE, path)
    spec = json.loads((path / "feature_spec.json").read_text())
    spec["ckh"]["variant"] = "bwd_data"
    (path / "feature_spec.json").write_text(json.dumps(spec))
    monkeypatch.setenv("CKH_MODELS", str(tmp_path / "models"))
    return path


def with_judged(judged: tuple[Worth, ...]) -> AnyOperation:
    """Convolutions with other evaluated accuracies."""
    op = operation_named("grouped_conv")
    return replace(op, training=replace(op.training, judged=judged))


def test_a_model_of_another_gpu_ranks_all_kernels_of_this_one(backward_model: Path) -> None:
    """On gfx942 known kernels have the scores of trees with its hardware and estimate, others those of NumPy's line."""
    ranking = ranking_of(BACKWARD, stand_in(wanted_for(BACKWARD, "gfx942"), BACKWARD))
    assert ranking.model.path == backward_model
    assert ranking.model.not_measured is not None
    assert (ranking.model.not_measured.basis, ranking.model.not_measured.worth) == ("model", None)
    assert "gfx950" in ranking.model.not_measured.source
    kernels = [candidate.kernel for candidate in ranking.ranked]
    assert set(kernels) == set(conv_pool(Direction.BWD_DATA, load_arch("gfx942"), 2, "bf16"))
    assert all(candidate.tflops is None for candidate in ranking.ranked)
    spec = json.loads((backward_model / "feature_spec.json").read_text())
    spec["ckh"]["rank_by"] = "rank"
    (backward_model / "feature_spec.json").write_text(json.dumps(spec))
    trees = load_model(backward_model)
    trees.hardware = load_arch("gfx942").hardware.to_dict()
    learned = json.loads((SOURCE / "kernels.json").read_text())
    tiles, pipelines = {tuple(tile) for tile in learned["tiles"]}, {row[0] for row in learned["variants"]}
    is_known = np.array(
        [
            (kernel.tile_m, kernel.tile_n, kernel.tile_k) in tiles
            and kernel.pipeline in pipelines
            and not kernel.split_image
            and kernel.double_smem_buffer == (kernel.pipeline == "compv4")
            and kernel.scheduler == "intrawave"
            for kernel in kernels
        ]
    )
    estimated = -np.log(-estimate_model(wanted_for(BACKWARD, "gfx942")).predict(BACKWARD, kernels))
    tiled = operation_named("grouped_conv").problems.tiled
    assert tiled is not None
    by_tiles = np.log(estimated_us(BACKWARD, tiled(BACKWARD), kernels, load_arch("gfx942")))
    own = trees.predict(BACKWARD, kernels, "rank") - by_tiles
    slope, start = np.polyfit(estimated[is_known], own[is_known], 1)
    assert slope > 0
    expected = np.where(is_known, own, start + slope * estimated)
    assert [candidate.score for candidate in ranking.ranked] == pytest.approx(expected.tolist())
    assert ranking.estimated == int((~is_known).sum()) > is_known.sum() > 0


def test_the_answer_counts_estimated_kernels(
    backward_model: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In text and JSON; an unknown accuracy is stated as such. For an estimate alone all candidates are counted."""
    command = ["predict", "--arch", "gfx942", "--variant", "bwd_data", "--n", "16", "--c", "256", "--explain"]
    assert run([*command, "--why"]) == ExitCode.OK
    text = " ".join(capsys.readouterr().out.split())
    expect_values(text, "NOT MEASURED: by backward", "gfx950; unproven")
    assert run([*command[:-1], "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    put_in, candidates = document["not_measured"]["estimated"], document["candidates"]
    assert 0 < put_in < candidates
    expect_values(text, put_in, "analytic estimate")
    assert document["not_measured"]["worth"] is None
    assert run([*command[:4], "bwd_weight", *command[5:-1], "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["not_measured"]["estimated"] == document["candidates"]


def test_a_line_that_would_fall_is_level() -> None:
    """If the estimate contradicts the model, unknown kernels have the mean of known scores, even of one."""
    score, of_known = [1.0, 3.0, 9.0], [True, True, False]
    falling, rising = (
        [-math.exp(-logarithm) for logarithm in logarithms] for logarithms in ((2.0, 1.0, 5.0), (1.0, 2.0, 5.0))
    )
    assert filled(score, falling, of_known) == [1.0, 3.0, 2.0]
    assert filled(score, rising, of_known) == pytest.approx([1.0, 3.0, 9.0], rel=1e-12)
    assert filled(score, falling, [False, True, False]) == [3.0, 3.0, 3.0]


def test_the_better_evaluated_option_ranks_forward_on_another_gpu() -> None:
    """The estimate was evaluated, gfx950's model on gfx942 was not: the estimate ranks the whole pool of 208."""
    ranking = ranking_of(PROBLEM, stand_in(wanted_for(PROBLEM, "gfx942"), PROBLEM))
    assert ranking.model.is_estimate
    assert len(ranking.order) == ranking.estimated == 208
    assert ranking.model.not_measured is not None
    assert ranking.model.not_measured.worth is None  # it was evaluated on gfx950, and with what shaped it


@pytest.mark.parametrize(
    ("model", "estimate", "basis"),
    [
        (None, None, "model"),
        (None, (0.5, 0.4), "estimate"),
        ((0.5, 0.4), None, "model"),
        ((0.9, 0.4), (0.8, 0.7), "model"),
        ((0.8, 0.7), (0.9, 0.4), "estimate"),
        ((0.8, 0.7), (0.8, 0.7), "model"),
    ],
)
def test_the_better_evaluated_option_answers(
    model: tuple[float, float] | None,
    estimate: tuple[float, float] | None,
    basis: str,
    backward_model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The better mean of model and estimate wins, the model if equal; an unevaluated one loses."""
    judged = [
        Worth({"variant": "bwd_data"}, "gfx942", 30, "problems", figures, (0.0, 1.0), source=source)
        for figures, source in ((model, "gfx950"), (estimate, ""))
        if figures is not None
    ]
    others = [  # of another direction and pair of GPUs
        Worth({"variant": "forward"}, "gfx942", 30, "problems", (1.0, 1.0), (0.0, 1.0)),
        Worth({"variant": "bwd_data"}, "gfx90a", 30, "problems", (1.0, 1.0), (0.0, 1.0), source="gfx950"),
    ]
    operation = with_judged((*others, *judged))
    monkeypatch.setattr("ckh.learn.analytic.transfer.operation", lambda _name: operation)
    not_measured = stand_in(wanted_for(BACKWARD, "gfx942"), BACKWARD).not_measured
    assert not_measured is not None
    assert not_measured.basis == basis
    own = {"model": model, "estimate": estimate}[basis]
    assert (not_measured.worth is None) == (own is None)


def test_hits_and_efficiencies_are_not_compared(
    backward_model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With different measures the order is as without accuracies: the model answers."""
    hits = Worth({}, "gfx942", 30, "problems", (0.9, 0.95), (0.8, 1.0), measure=Measure.HITS)
    efficiency = Worth({}, "gfx942", 30, "problems", (0.5, 0.4), (0.4, 0.6), source="gfx950")
    operation = with_judged((hits, efficiency))
    monkeypatch.setattr("ckh.learn.analytic.transfer.operation", lambda _name: operation)
    not_measured = stand_in(wanted_for(BACKWARD, "gfx942"), BACKWARD).not_measured
    assert not_measured is not None
    assert not_measured.basis == "model"
    expect_values(str(hits), "90.0 %", "95.0 %")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "problem", "basis"),
    [
        ("gfx950", ConvProblem(Direction.FORWARD, 1, 64, 64, 1, 14, 14, 3, 3, dtype="fp16"), "model"),
        ("gfx950", ConvProblem(Direction.FORWARD, 1, 64, 64, 1, 14, 14, 3, 3, dtype="fp8"), "estimate"),
        ("gfx90a", ConvProblem(Direction.FORWARD, 1, 64, 64, 1, 14, 14, 3, 3, dtype="fp16"), "estimate"),
        ("gfx942", ConvProblem(Direction.BWD_DATA, 1, 64, 64, 1, 14, 14, 3, 3, dtype="bf16"), "estimate"),
        ("gfx942", GemmProblem(128, 1536, 7168, dtype="fp8"), "model"),
        ("gfx950", GemmProblem(1, 4096, 4096, dtype="bf16"), "model"),
        ("gfx90a", GemmProblem(1, 4096, 4096, dtype="bf16"), "estimate"),
    ],
)
def test_substitute_models(arch: str, problem: ConvProblem | GemmProblem, basis: str) -> None:
    """The estimate answers if only it was evaluated, or if it is better than the nearest model; both have kernels."""
    ranking = ranking_of(problem, stand_in(wanted_for(problem, arch), problem))
    assert ranking.model.not_measured is not None
    assert ranking.model.not_measured.basis == basis
    assert len(ranking.ranked) > 1
    assert [candidate.score for candidate in ranking.ranked] == sorted(
        (candidate.score for candidate in ranking.ranked), reverse=True
    )


@pytest.mark.usefixtures("known_host")
def test_measured_models_have_no_caveat() -> None:
    """If a model fits it answers as before, and the host never gets a GPU's model."""
    assert Chooser(None, "gfx950", None, None).model(PROBLEM, stands_in=True).not_measured is None
    host = ConvProblem(Direction.FORWARD, 1, 64, 64, 1, 14, 14, 3, 3)
    assert Chooser(None, "host", None, None).model(host, stands_in=True).not_measured is None


def test_predict_reports_missing_measurements(capsys: pytest.CaptureFixture[str]) -> None:
    """Text and JSON state it, with source, that nothing is proven, and commands that measure; exit code 0."""
    command = ["predict", "--arch", "gfx942", "--n", "16", "--c", "256"]
    assert run(command) == ExitCode.OK
    text = capsys.readouterr().out
    expect_values(text, "NOT MEASURED: by analytic estimate", "unproven")
    assert text.endswith("next     ckh predict --n 16 --c 256 --arch gfx942 --probe 5\n")
    problem = ckh.problem(n=16, c=256, arch="gfx942")
    for rows in (ckh.rank(problem, top=1, arch="gfx942"), ckh.rank_many([problem], top=1, arch="gfx942")[0]):
        assert rows[0].not_measured is not None
        assert rows[0].not_measured.next_commands[0].split()[1:3] == ["tune", problem.canonical()]
    assert run([*command, "--variant", "bwd_weight", "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["not_measured"]["basis"] == "estimate"
    assert document["not_measured"]["source"].startswith(ESTIMATE)
    assert document["not_measured"]["worth"] is None
    assert document["not_measured"]["next_commands"][0].endswith("--probe 5")
    assert document["kernels"][0]["tflops"] is None


def test_compiled_kernels_are_estimated_by_their_resources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The count is shown; the first kernel loses its rank once compiled, as it fills a compute unit alone."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    command = ["predict", "--arch", "gfx942", "--variant", "bwd_weight", "--n", "16", "--c", "256", "--top", "1000"]
    assert run([*command, "--json"]) == ExitCode.OK
    before = json.loads(capsys.readouterr().out)
    assert before["not_measured"]["compiled"] == 0
    first = before["kernels"][0]
    add_compiled("gfx942", "grouped_conv", first["kernel"], Resources(512, 0, 100, 65536, 0, 0, 0, occupancy=1))
    add_compiled("gfx942", "grouped_conv", "of another problem", Resources(512, 0, 100, 0, 0, 0, 0, 1))
    assert run([*command, "--json"]) == ExitCode.OK
    after = json.loads(capsys.readouterr().out)
    assert after["not_measured"]["compiled"] == 1
    was, now = (
        [(row["score"], name) for row in item["kernels"] for name in (row["kernel"], *row["tied"])]
        for item in (before, after)
    )
    assert now[0][1] != first["kernel"]
    others = [(score, name) for score, name in was if name != first["kernel"]]
    assert [(score, name) for score, name in now if name != first["kernel"]] == others
    assert run([*command, "--why"]) == ExitCode.OK
    assert re.search(r"registers and LDS\D* 1 .*compiler", capsys.readouterr().out)


def test_the_estimate_scores_rows() -> None:
    """Rows in any order have the scores of their problems' kernels."""
    arch, weight = load_arch("gfx942"), replace(PROBLEM, variant=Direction.BWD_WEIGHT)
    problems = [weight, replace(weight, n=2)]
    kernels = conv_pool(Direction.BWD_WEIGHT, arch, 2, "bf16")[:6]
    pairs = [(problems[i % 2], kernels[i // 2]) for i in range(12)]
    dataset = build([(problem, kernel, 1.0) for problem, kernel in pairs])
    dataset.frame["arch"] = arch.name
    estimate = estimate_model(wanted_for(weight, arch.name))
    expected = [estimate.predict(problem, [kernel])[0] for problem, kernel in pairs]
    assert estimate.scores(dataset) == pytest.approx(expected, rel=1e-12)
    assert len(set(expected)) > 2


def test_require_measured_refuses_substitutes(capsys: pytest.CaptureFixture[str]) -> None:
    """--require measured accepts nothing else: exit code 4 without a model, no change with a model."""
    assert run(["predict", "--arch", "gfx942", "--n", "16", "--require", "measured"]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "no-model", "grouped_conv forward bf16 on gfx942")
    assert run(["predict", "--arch", "gfx950", "--n", "16", "--require", "measured", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["not_measured"] is None


def test_the_estimate_by_hand() -> None:
    """One kernel on gfx942: blocks, waves, iterations and clocks by hand from the tile and the datasheet."""
    arch = load_arch("gfx942")
    kernel = next(
        kernel
        for kernel in conv_pool(Direction.FORWARD, arch, 2, "bf16")
        if (kernel.tile_m, kernel.tile_n, kernel.tile_k, kernel.pipeline) == (64, 128, 64, "compv3")
        and not (kernel.double_smem_buffer or kernel.split_image)
    )
    # 24 KiB of LDS per block: two share a compute unit, whose 64 KiB a third would exceed. 750 blocks on 304 compute
    # units are three on the fullest: one and a half waves of two; an iteration of one takes its work and 600 clocks.
    products, tiles, read = 64 * 128 * 64, (64 + 128) * 64 * 2, (2 * 64 + 2 * 128) * 64 * 2
    busy = 2 * products / 2048 + 4 * products / (32 * 32 * 16) / 4 + (tiles + read) / 128 + tiles / 64
    assert busy == 1504
    sizes = TiledSizes(m=64 * 125, n=128 * 6, k=64 * 10, batches=1)
    result = estimated_us(PROBLEM, sizes, [kernel], arch)
    rounds, at_once = 1.5, 2
    ends = 2 * 2000 + at_once * 64 * 128 * 2 / 64
    assert result == pytest.approx([3.0 + rounds * (10 * at_once * busy + ends) / 2100])
    # On an MI308X's 80 they are ten on the fullest, on an MI300A's 228 four.
    for gpu, rounds in (("mi308x", 5), ("mi300a", 2)):
        smaller = estimated_us(PROBLEM, sizes, [kernel], load_arch(gpu))
        assert smaller == pytest.approx([3.0 + rounds * (10 * at_once * busy + ends) / 2100])
    few = estimated_us(PROBLEM, TiledSizes(64, 128, 640, 1), [kernel], arch)
    assert few == pytest.approx([3.0 + (10 * (600 + busy) + 4000 + 64 * 128 * 2 / 64) / 2100])
    assert np.all(few < result)
    # When compiled, its registers leave room for one of its waves per SIMD: one block at a time, three waves of blocks.
    full = Resources(256, 24, 100, 24576, 0, 0, 0, occupancy=1)
    alone = estimated_us(PROBLEM, sizes, [kernel, kernel], arch, [full, None])
    assert alone == pytest.approx([3.0 + 3 * (10 * (600 + busy) + 4000 + 64 * 128 * 2 / 64) / 2100, result[0]])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "tile", "rate"),
    [("gfx950", (4, 64, 16), 1024), ("gfx950", (16, 16, 16), 2048), ("gfx942", (16, 16, 16), 2048)],
)
def test_the_estimate_uses_the_matrix_instruction(arch: str, tile: tuple[int, int, int], rate: int) -> None:
    """With another instruction an iteration is longer by the clocks of the slower products and of their issue only."""
    from ckh.ops.gemm_universal.kernels.pool import gemm_pool

    best, spec, problem = (32, 32, 16), load_arch(arch), GemmProblem(4096, 4096, 4096, "fp16", "rcr")
    pool = {
        kernel.warp_tile: kernel
        for kernel in gemm_pool(spec, "fp16")
        if (kernel.tile, kernel.wave, kernel.pipeline) == ((128, 128, 64), (2, 2, 1), "compv3")
    }
    sizes, products = TiledSizes(4096, 4096, 4096, 1), 128 * 128 * 64
    other: dict[str, Any] = dict(zip(TRIPLES["warp_tile"], tile, strict=True))  # 4x64 is in no pool
    slow, fast = estimated_us(problem, sizes, [replace(pool[best], **other), pool[best]], spec)
    peak = {"gfx950": 4096, "gfx942": 2048}[arch]
    clocks = 2 * products * (1 / rate - 1 / peak) + products * (1 / math.prod(tile) - 1 / math.prod(best))
    blocks = 4  # 1024 of them on 256 compute units, or 304: registers and LDS allow as many
    at_once = {"gfx950": blocks, "gfx942": 2}[arch]
    rounds = math.ceil(1024 / spec.hardware.num_cus) / at_once
    assert slow - fast == pytest.approx(rounds * 64 * at_once * clocks / spec.hardware.max_clock_mhz, rel=1e-6)


def test_no_instruction_of_four_rows_comes_first() -> None:
    """If M and N are 64 or more, no 4x64 or 64x4 instruction is the first choice on any GPU."""
    for arch, dtype in (("gfx950", "bf16"), ("gfx942", "fp16"), ("gfx90a", "bf16")):
        problems = [
            GemmProblem(m, n, k, dtype, "rcr") for m in (64, 1000, 8192) for n in (64, 4096) for k in (256, 8192)
        ]
        model = estimate_model(wanted_for(problems[0], arch))
        for ranking in rankings_of(problems, model):
            (first,) = ranking.best(1)
            assert 4 not in (first.kernel.warp_tile_m, first.kernel.warp_tile_n)


def test_equal_shapes_are_estimated_once() -> None:
    """The scores of a pool equal those of its kernels, from far fewer shapes than kernels."""
    problem = GemmProblem(4096, 4096, 4096, "fp8", "rcr")
    model, arch = estimate_model(wanted_for(problem, "gfx942")), load_arch("gfx942")
    pool = model.spec.op.kernels.candidates(problem, arch, model.path).pool
    scores, _ = model.score_pool([problem], pool)
    some = [pool[number] for number in range(0, len(pool), 997)]
    times = estimated_us(problem, TiledSizes(4096, 4096, 4096, 1), some, arch)
    assert scores[0, ::997].tolist() == (-times).tolist()
    assert 15 * len(KernelShapes.of(pool).distinct()[0].tile_m) < len(pool)


@pytest.mark.parametrize(
    ("arch", "waves", "occupancy", "lds_bytes", "blocks"),
    [
        ("gfx942", 4, 4, 24576, 2),  # 65536 // 24576, although registers would allow four
        ("gfx950", 4, 4, 24576, 4),  # 163840 // 24576 is six: registers allow four
        ("gfx942", 8, 3, 0, 1),  # of twelve waves, a block has eight
        ("gfx942", 2, 3, 16384, 4),  # of twelve waves, a block has two; 65536 // 16384
        ("gfx942", 16, 2, 0, 1),  # a compiled kernel runs at least one block
        ("gfx1100", 8, 12, 32768, 2),  # two SIMDs
    ],
)
def test_blocks_of_compiled_kernels(arch: str, waves: int, occupancy: int, lds_bytes: int, blocks: int) -> None:
    """By hand: the compiler's waves per SIMD times SIMDs, over waves per block, limited by LDS."""
    taken = Resources(128, 0, 40, lds_bytes, 0, 0, 0, occupancy)
    assert compiled_blocks_per_cu(taken, waves, load_arch(arch)) == blocks


# Vector and accumulation registers that allow a number of waves per SIMD of the MI200 and later: 512 in granules of
# 8, as in AMD's compiler (LLVM review D138443 prints this table for gfx90a and gfx940).
_WAVES = {64: 8, 72: 7, 80: 6, 96: 5, 128: 4, 168: 3, 256: 2, 512: 1}


@pytest.mark.parametrize(
    ("resources", "blocks"),
    [  # backward-data kernels of four waves, bf16, compiled by hipcc 7 for gfx942 with CK Tile of November 2025
        (Resources(96, 4, 100, 10240, 0, 0, 0, 4), 4),  # 16x64x64; by its tile six
        (Resources(154, 32, 106, 24576, 0, 0, 15, 2), 2),  # 64x128x64; by its tile two
        (Resources(161, 16, 106, 16384, 0, 0, 14, 2), 2),  # 64x64x64; by its tile four
    ],
)
def test_the_compilers_occupancy_equals_amds_table(resources: Resources, blocks: int) -> None:
    """Accumulation registers are allocated after the vector registers, aligned to four; LDS allows these blocks."""
    registers = -(-resources.vgprs // 4) * 4 + resources.agprs
    assert resources.occupancy == next(waves for most, waves in _WAVES.items() if registers <= most)
    assert compiled_blocks_per_cu(resources, 4, load_arch("gfx942")) == blocks


@pytest.mark.slow
def test_a_damaged_model_of_another_gpu_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a damaged list of kernels is not used as a substitute, and a shipped model answers."""
    shipped = data_dir("models") / "gemm_universal_fp8_gfx950"
    shutil.copytree(shipped, tmp_path / "models" / "broken")
    (tmp_path / "models" / "broken" / "timed_kernels.json.gz").write_bytes(b"[]")
    monkeypatch.setenv("CKH_MODELS", str(tmp_path / "models"))
    problem = GemmProblem(128, 1536, 7168, "fp8")
    model = stand_in(wanted_for(problem, "gfx942"), problem)
    assert model.path == shipped
    assert ranking_of(problem, model).ranked


@pytest.mark.parametrize(
    ("wanted", "problem", "source", "figures"),
    [
        ("gfx942", AiterGemm(64, 7168, 2048, "a8w8_bpreshuffle", num_cus=80), "gfx950", (0.141, 0.398)),
        ("gfx950", AiterGemm(64, 7168, 2048, "a8w8_bpreshuffle", num_cus=256), "gfx942", (0.284, 0.531)),
        ("gfx942", AiterGemm(64, 7168, 2048, "a8w8_bpreshuffle", num_cus=80), "gfx90a", None),
    ],
)
def test_accuracies_are_for_the_same_operation_and_pair_of_gpus(
    wanted: str, problem: AiterGemm, source: str, figures: tuple[float, float] | None
) -> None:
    """As printed by `benchmarks/transfer.py`; there is none for another pair."""
    worth = judged_model(source, wanted_for(problem, wanted), problem)
    assert (None if worth is None else worth.figures) == figures


@pytest.mark.parametrize(
    ("changes", "is_stated"),
    [
        ({}, True),
        ({"problems": 29}, False),
        ({"held_out": False}, False),
        ({"target": "gfx90a"}, False),
        ({"source": ""}, False),
    ],
)
def test_what_is_not_proven_is_not_stated(changes: dict[str, Any], is_stated: bool) -> None:
    """An answer has an accuracy of 30 or more problems that shaped nothing, of the same pair of GPUs."""
    worth = Worth({}, "gfx942", 30, "problems", (0.9, 0.8), (0.8, 1.0), source="gfx950")
    text = replace(worth, **changes).stated("gfx950", "gfx942")
    assert (text is not None) == is_stated
    if text is not None:
        expect_values(text, "90.0", "80.0", 30, "80.0", "100.0")


@pytest.mark.parametrize(
    ("op", "source", "proven"),
    [("grouped_conv", "", 0), ("gemm_universal", "", 0), ("gemm_universal", "gfx950", 0)],
)
def test_which_shipped_accuracies_are_stated(op: str, source: str, proven: int) -> None:
    """The estimate's are in sample, and of four GEMMs."""
    judged = [worth for worth in operation_named(op).training.judged if worth.source == source]
    assert judged
    assert sum(worth.stated(source, worth.target) is not None for worth in judged) == proven


def test_mixtures_are_proven_on_the_measured_gpu() -> None:
    """Models were judged on gfx942 with 80 and 304 compute units, which says nothing of 228."""
    judged = operation_named("aiter_moe").training.judged
    worths = [worth for worth in judged if worth.target == "gfx942" and worth.source]
    for cus, count in ((80, 1), (304, 1), (228, 0)):
        problem = AiterMoe(64, 7168, 256, 256, 8, num_cus=cus)
        assert sum(worth.holds_for(problem) for worth in worths) == count


def test_every_accuracy_can_be_looked_up() -> None:
    """Each names values of its operation's columns, known GPUs, and figures within its interval."""
    for name in built_in_names():
        op = operation_named(name)
        for worth in op.training.judged:
            assert set(worth.of) <= {*op.problems.identity, *(("library",) if name == "aiter_gemm" else ())}
            assert {worth.target, worth.source or worth.target} <= {*arch_names()}
            assert worth.interval[0] <= worth.figures[0] <= worth.interval[1]


@pytest.mark.parametrize("m", [16, 4096])
def test_instructions_of_another_element_type_come_in_the_order_of_the_estimate(m: int) -> None:
    """The model of fp8 GEMMs has not seen bf16's instructions: of otherwise equal kernels gfx950's faster is first.

    Slower ones among the first twenty are vetoed, the others follow their faster ones.
    """
    problem = GemmProblem(m, 4096, 4096, dtype="bf16")
    ranking = ranking_of(problem, stand_in(wanted_for(problem, "gfx950"), problem))
    assert ranking.model.not_measured is not None
    assert ranking.model.not_measured.basis == "model"
    best = ranking.best(200)
    place_of = {ranked.kernel: place for place, ranked in enumerate(best)}
    distances = []
    for slow in [kernel for kernel in place_of if kernel.warp_tile == (32, 32, 8)]:
        fast = place_of[replace(slow, warp_tile_k=16)]
        assert fast < place_of[slow]
        distances.append(best[fast].score - best[place_of[slow]].score)
    assert min(distances) > 0
    assert sum(distance < 1e-8 for distance in distances) > 10


def test_the_veto_keeps_the_order_of_both_parts_and_what_follows() -> None:
    """Of five kernels two have 1.3 times the shortest time or more: the others get scores above the first."""
    scores = [3.0, 2.5, 2.5, 2.0, 1.0]
    made = vetoed(scores, [-130.0, -129.9, -100.0, -200.0, -101.0])
    assert [made[0], made[3]] == [3.0, 2.0]
    assert [made[1], made[2], made[4]] == pytest.approx([4.5, 4.5, 3.0], abs=1e-8)
    assert made[4] > 3.0
    assert vetoed(scores, [-129.0, -100.0, -101.0, -102.0, -103.0]) == scores


@pytest.mark.slow
def test_answers_have_one_order_of_demotions() -> None:
    """Measured on this problem, then those of the first twenty that are not vetoed, the vetoed ones, all others.

    A persistent tile of 256 rows with a quarter-rate instruction was first here.
    """
    problem = GemmProblem(32, 128256, 4096, dtype="bf16")
    wanted = wanted_for(problem, "gfx950")
    ranking, estimate = ranking_of(problem, stand_in(wanted, problem)), EstimateScores(wanted)
    us = -estimate.scores([problem], ranking.pool)[0, ranking.order]
    is_slow = us[:JUDGED] >= 1.3 * us[:JUDGED].min()
    assert not is_slow[0]
    assert (np.diff(is_slow.astype(int)) >= 0).all()
    first = ranking.best(1)[0].kernel
    assert (first.warp_tile, first.persistent) == ((16, 16, 32), False)
    last = operation_named("gemm_universal").kernels.name(ranking.pool[ranking.order[us.argmax()]])
    timed = Timed(last, "ok", "", 9.0, 0.01)
    probe = Probe(problem.canonical(), "gfx950", "a GPU", "2026-01-02T03:04:05+00:00", "0", "hipcc", (timed,))
    after = ranking.by_times(probe)
    assert after.best(1)[0].measured_latency_ms == 9.0
    assert after.order[1:].tolist() == [number for number in ranking.order.tolist() if number != after.order[0]]


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "dtype"), [("gfx950", "bf16"), ("gfx942", "fp8")])
def test_no_first_kernel_is_estimated_far_slower_than_others_of_the_first_twenty(arch: str, dtype: str) -> None:
    """420 GEMMs of language models, for an element type or GPU without measurements."""
    firsts = first_kernels(language_gemms(dtype), arch)
    assert len(firsts) >= 390
    assert max(first.us / first.best_us for first in firsts.values()) < 1.3


@pytest.mark.slow
def test_batches_count_rows_with_ties(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The note below the table counts the rows with ties in JSON, and has their largest number."""
    (tmp_path / "p.csv").write_text("N,C,K,Hi,Wi,Y,X\n16,256,256,28,28,3,3\n1,64,64,56,56,1,1\n", encoding="utf-8")
    asked = ["predict", "--problems", str(tmp_path / "p.csv"), "--arch", "gfx942", "--top", "9"]
    assert run([*asked, "--json"]) == ExitCode.OK
    results = json.loads(capsys.readouterr().out)["results"]
    ties = [row["ties"] for result in results for row in result["kernels"]]
    assert max(ties) > 1
    probing, tune = results[0]["not_measured"]["next_commands"]
    assert probing.endswith(" --probe 5")
    options = shlex.split(tune, comments=True)
    assert options[1:3] == ["tune", asked[2]]
    assert options[options.index("--out") + 1] == "tuned/forward-gfx942-bf16-p"
    monkeypatch.chdir(tmp_path)
    assert run([*options[1:], "--dry-run"]) == ExitCode.OK
    assert (tmp_path / "tuned" / "forward-gfx942-bf16-p" / "shapes.csv").is_file()
    capsys.readouterr()
    assert run(asked) == ExitCode.OK
    said = " ".join(capsys.readouterr().out.split())
    expect_values(said, f"{sum(tie > 1 for tie in ties)} of {len(ties)}", max(ties))
