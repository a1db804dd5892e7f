"""Evaluation uses exactly predict's answers: its candidates, order and refusals. Numbers are worked by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.assess.compare import Thresholds, compare
from ckh.assess.report import evaluate
from ckh.assess.times import times_of
from ckh.cli import run
from ckh.data.dataset import Dataset, write_dataset
from ckh.data.parts import in_memory
from ckh.data.rows import Origin, Pairs, Results, build_table, status_of
from ckh.data.tables import to_pandas
from ckh.errors import DataError, ExitCode
from ckh.kernels.pools import KernelList
from ckh.learn.analytic.estimate import ESTIMATE
from ckh.learn.analytic.joined import KernelJoin
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.judging import judged_answers
from ckh.learn.judging.judged_answers import judged_rows, ranked_rows
from ckh.learn.models.artifact import load_model
from ckh.learn.training.train import train
from ckh.learn.training.trained import save
from ckh.ops.gemm_universal.kernel import kernel_name as gemm_name
from ckh.ops.gemm_universal.kernel import parse_kernel_name as parse_gemm
from ckh.ops.gemm_universal.kernel import short_name
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.grouped_conv.kernel import amd_short_name, kernel_name, parse_kernel_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from ckh.schema import Status
from ckh.training import RANK, RankObjective, TrainOptions
from tests.learn.conftest import HOST, TREES, build, kernels, problems, saved
from tests.refusals import expect_error, expect_refusal, expect_values, expect_warning

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ckh.learn.answers.ranking import Ranking
    from ckh.learn.models.artifact import Model
    from ckh.ops.grouped_conv.kernel import ConvKernel

PROBLEMS = [problem for problem in problems() if problem.ndim == 2][:4]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model whose manifest lists other problems than those evaluated here."""
    path = saved(tmp_path_factory.mktemp("judged") / "model")
    manifest = json.loads((path / "train_manifest.json").read_text())
    manifest["ckh"] |= {"problems": [], "layers": []}
    (path / "train_manifest.json").write_text(json.dumps(manifest))
    return path


@pytest.fixture
def model(folder: Path) -> Model:
    """The loaded model."""
    return load_model(folder)


def ranking(model: Model, problem: ConvProblem) -> list[Any]:
    """The kernels of predict's answer, best first."""
    result = ranking_of(problem, model)
    return [result.pool[index] for index in result.order]


def no_candidate(model: Model, problem: ConvProblem) -> ConvKernel:
    """A kernel that applies nowhere: predict's first choice, but with a tile that is in no pool."""
    made: ConvKernel = replace(ranking(model, problem)[0], tile_m=48)
    assert made not in ranking(model, problem)
    return made


def hand_made(model: Model) -> Dataset:
    """Four problems.

    A fast kernel is not a candidate; the choice took 4 ms, 2 were possible; the choice was not measured; it failed.
    """
    item, two, three, four = PROBLEMS
    first = {problem: ranking(model, problem) for problem in PROBLEMS}
    return build(
        [
            (item, first[item][0], 4.0),
            (item, no_candidate(model, item), 1.0),
            (two, first[two][3], 2.0),
            (two, first[two][0], 4.0),
            (three, first[three][2], 5.0),
            (three, first[three][7], 3.0),
            (four, first[four][0], 9.0),
            (four, first[four][1], 6.0),
        ],
        failed=[6],
    )


def test_coverage_and_efficiency_by_hand(model: Model) -> None:
    """Efficiencies are 1/4, 1/2, unknown and 0; the best-ranked measured candidate of the third has 3/5."""
    data = hand_made(model)
    evaluation = evaluate(in_memory(data), lambda part: ranked_rows(model, part))
    assert evaluation.efficiency is not None
    assert evaluation.best_ranked_measured is not None
    assert (evaluation.efficiency.problems, evaluation.efficiency.mean.value) == pytest.approx((3, 0.25))
    assert (evaluation.best_ranked_measured.problems, evaluation.best_ranked_measured.mean.value) == pytest.approx(
        (4, 1.35 / 4)
    )
    coverage = evaluation.coverage
    # The choice was measured on 1, 2 and 4; on 2 and 4 the fastest is a candidate.
    assert (coverage.problems, coverage.coverage, coverage.judged) == (4, 0.5, 3)
    assert (coverage.refused, coverage.not_measured, coverage.best_no_candidate) == (0, 1, 1)
    assert [choice.efficiency for choice in evaluation.choices] == [0.25, 0.5, None, 0.0]
    assert [choice.best_is_candidate for choice in evaluation.choices] == [False, True, True, True]
    assert [choice.kernel for choice in evaluation.choices] == [
        kernel_name(ranking(model, item)[0]) for item in PROBLEMS
    ]
    # Among the first three choices: 1/4, 1/2, 3/5 and 1; among the first five 1 on the second too.
    top = {top_k.k: (top_k.problems, top_k.efficiency_mean) for top_k in evaluation.top}
    assert top[1] == pytest.approx((3, 0.25))
    assert top[3] == pytest.approx((4, (0.25 + 0.5 + 0.6 + 1) / 4))
    assert top[5] == pytest.approx((4, (0.25 + 1 + 0.6 + 1) / 4))
    assert top[10] == pytest.approx((4, 3.25 / 4))
    # Baselines use the three problems whose choice was measured.
    random = evaluation.baselines["random kernel (expected)"]
    assert (random.problems, random.mean.value) == pytest.approx((3, (0.625 + 0.75 + 0.5) / 3))


def test_the_first_tie_is_evaluated(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """With equal scores, the choice is predict's first, not the first measured row."""
    problem = PROBLEMS[0]
    answers: list[Ranking] = []

    def alike(asked: Sequence[ConvProblem], of: Model) -> list[Ranking]:
        answers[:] = [replace(ranking_of(item, of), score=np.zeros(len(ranking_of(item, of).order))) for item in asked]
        return answers

    monkeypatch.setattr(judged_answers, "rankings_of", alike)
    first = ranking(model, problem)
    data = build([(problem, first[1], 1.0), (problem, first[0], 2.0)])
    ranked = ranked_rows(model, data)
    assert ranked.place.tolist() == [1.0, 0.0]
    assert evaluate(in_memory(data), lambda _: ranked).choices[0].efficiency == 0.5


def test_a_refused_problem_is_counted(folder: Path, model: Model) -> None:
    """It has no choice and no efficiency, its reason is reported, and the others are evaluated without it."""
    item, two = PROBLEMS[:2]
    model = model.limited_to(KernelList("list", tuple(ranking(model, item)[:3])))
    refused = load_model(folder).limited_to(KernelList("list", ()))
    data = build([(item, kernel, ms) for kernel, ms in zip(ranking(model, item), (3.0, 2.0, 1.0), strict=True)])
    ranked = ranked_rows(refused, data)
    assert ranked.first.tolist() == [""]
    assert ranked.refusal[0]
    evaluation = evaluate(in_memory(data), lambda _: ranked)
    assert (evaluation.efficiency, evaluation.best_ranked_measured, evaluation.top) == (None, None, [])
    assert (evaluation.coverage.refused, evaluation.coverage.coverage, evaluation.coverage.best_no_candidate) == (
        1,
        0.0,
        0,
    )
    assert evaluation.choices[0].kernel is None
    assert evaluation.choices[0].refusal == evaluation.coverage.refusal
    assert evaluation.slices == []
    assert two != item


def unpadded() -> Dataset:
    """Fictitious times of 84 unpadded GEMM kernels of the tile engine on eight problems of an MI300X."""
    random = np.random.default_rng(1)
    tiles = [(m, n, k) for m in (64, 128, 256) for n in (64, 128, 256) for k in (32, 64)][:14]
    name = "gemm_universal_fp16_rcr_{}_{}_intrawave_False_False_False_False_{}x{}x{}_2x2x1_32x32x16"
    some = [
        parse_gemm(name.format(pipeline, epilogue, *tile))
        for tile in tiles
        for pipeline in ("compv3", "compv4", "mem")
        for epilogue in ("cshuffle", "default")
    ]
    where = [
        GemmProblem.parsed(f"gemm_fp16_rcr_m{m}_n{n}_k1024_splitk1") for m in (256, 1024) for n in (256, 512, 768, 2048)
    ]
    problem, kernel = np.divmod(np.arange(len(where) * len(some)), len(some))
    pairs = Pairs(where, problem, some, [gemm_name(item) for item in some], kernel, "gemm_universal")
    latency_ms = random.uniform(1, 2, len(problem))
    ok = np.ones(len(problem), dtype=bool)
    hardware = load_arch("gfx942").hardware.to_dict()
    results = Results(status_of(ok, Status.WRONG_RESULT), latency_ms, {"spread": np.full(len(problem), 0.02)})
    assert len(some) == 84
    return Dataset(to_pandas(build_table(pairs, results, Origin("gfx942", "a test", hardware, "run1"))))


@pytest.mark.slow
def test_84_unpadded_gemm_kernels_are_evaluated_as_ranked(tmp_path: Path) -> None:
    """Coverage is the share of choices that are among the 84, whatever the pool is; the rows alone would give 100 %."""
    data = unpadded()
    options = TrainOptions((RANK,), RankObjective.RELATIVE, folds=0, jobs=1, params=TREES)
    save(train(data, options, lambda _steps, _text: None), tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    names = set(data.frame["kernel"])
    chosen = [ranking_of(problem, loaded) for problem in data.problems()]
    first = [item.best(1)[0].name for item in chosen]
    candidates = [
        {item.model.spec.op.kernels.name(item.pool[index]) for index in item.order} & names for item in chosen
    ]
    best = data.frame.loc[data.frame.groupby(data.problem_ids)["latency_ms"].idxmin(), "kernel"].tolist()
    expected = [f in names and b in some for f, b, some in zip(first, best, candidates, strict=True)]
    result = evaluate(in_memory(data), lambda part: ranked_rows(loaded, part))
    assert result.coverage.coverage == pytest.approx(np.mean(expected))
    assert result.coverage.not_measured == sum(name not in names for name in first)
    alone = evaluate(in_memory(data), lambda part: judged_rows(loaded, part, measured_alone=True)[0])
    assert alone.coverage.coverage == 1.0


def test_amd_s_short_names_match_all_compatible_kernels(model: Model) -> None:
    """A row with a short name has the best rank of its matching candidates."""
    problem = PROBLEMS[0]
    order = ranking(model, problem)
    name = amd_short_name(order[5])
    alike = [place for place, kernel in enumerate(order) if amd_short_name(kernel) == name]
    data = build([(problem, order[5], 1.0), (problem, order[0], 2.0)])
    frame = data.frame.assign(kernel=[name, kernel_name(order[0])])
    assert parse_kernel_name(name).wave_m is None
    assert ranked_rows(model, replace(data, frame=frame)).place.tolist() == [min(alike), 0.0]
    other = data.frame.assign(kernel=["no kernel at all", kernel_name(order[0])])
    assert ranked_rows(model, replace(data, frame=other)).place.tolist() == [np.inf, 0.0]


def test_measured_kernels_are_ranked_by_score(model: Model) -> None:
    """Rows are ranked by the model's scores, candidates or not; the first is always measured."""
    data = hand_made(model)
    ranked, _ = judged_rows(model, data, measured_alone=True)
    scores, problem = model.scores(data), data.problem_ids
    for number in range(4):
        rows = np.flatnonzero(problem == number)
        assert rows[np.argsort(ranked.place[rows])].tolist() == rows[np.argsort(-scores[rows], kind="stable")].tolist()
    assert ranked.is_measured(problem).all()
    assert ranked.ranks_best(times_of(data)).all()


def test_a_comparison_counts_answers_of_both_models(folder: Path, model: Model) -> None:
    """Problems where both choices were measured are compared; a newly refused problem fails the gate."""
    item, two = PROBLEMS[:2]
    first = {problem: ranking(model, problem) for problem in (item, two)}
    # The first choice is the old model's second.
    new = load_model(folder).limited_to(KernelList("list", tuple(first[item][1:])))
    data = build(
        [
            (item, first[item][0], 4.0),
            (item, first[item][1], 2.0),
            (two, first[two][0], 3.0),
            (two, no_candidate(model, two), 1.0),
        ]
    )
    loose = Thresholds(1, 1, 1, 1)
    comparison = compare([data], lambda part: ranked_rows(model, part), lambda part: ranked_rows(new, part), loose)
    both = ranking(new, two)[0] == first[two][0]
    assert comparison.problems == 1 + both
    assert (comparison.improved, comparison.old_coverage.problems) == (1, 2)
    assert comparison.old_coverage.best_no_candidate == 1
    assert comparison.new_coverage.not_measured == 1 - both
    assert comparison.passes
    new = load_model(folder).limited_to(KernelList("list", (first[item][1],)))
    comparison = compare([data], lambda part: ranked_rows(model, part), lambda part: ranked_rows(new, part), loose)
    refused = first[item][1] not in first[two]
    assert comparison.new_coverage.refused == refused
    assert comparison.passes is not refused
    with expect_refusal(DataError, "few-problems", "1", "2", "2"):
        compare([data], lambda part: ranked_rows(model, part), lambda part: ranked_rows(new, part), loose, 2)


def test_coverage_is_a_gate(folder: Path, model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It fails below its value with exit code 1; too few measured choices give exit code 4 for a gate of efficiency."""
    path = tmp_path / "data.parquet"
    write_dataset(hand_made(model), path)
    args = ["evaluate", "--model", str(folder), "--data", str(path), "--min-problems", "4", "--fail-under"]
    assert run([*args, "coverage=0.5", "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["figures"]["coverage"] == 0.5
    assert document["coverage"]["not_measured"] == 1
    assert (document["stands_in"], document["among"]) == (None, "candidates")
    assert [item["efficiency"] for item in document["choices"]] == [0.0, 0.25, 0.5]
    assert [item["problem"] for item in document["unjudged"]] == [PROBLEMS[2].canonical()]
    assert run([*args, "coverage=0.6"]) == ExitCode.GATE_FAILED
    shown = capsys.readouterr()
    assert "coverage is 0.5000, under 0.6" in shown.err
    expect_values(" ".join(shown.out.split()), "1 of 4")
    assert run([*args, "mean_efficiency=0.1"]) == ExitCode.BAD_DATA
    expect_error(capsys.readouterr().err, "few-problems", "3 of 4", 4)
    oracle = ["validate", "oracle", "--model", str(folder), "--data", str(path)]
    oracle += ["--fail-under=mean_efficiency=0", "--fail-under=p10_efficiency=0"]
    assert run([*oracle, "--min-problems", "4"]) == ExitCode.BAD_DATA
    capsys.readouterr()
    assert run([*oracle, "--min-problems", "3", "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert (document["problems"], document["figures"]["coverage"]) == (3, 0.5)
    assert document["figures"]["mean efficiency"] == pytest.approx(0.25)


def test_the_default_model_is_that_of_predict(
    folder: Path, model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first model that fits is evaluated and named; several are refused."""
    monkeypatch.setenv("CKH_MODELS", str(folder))
    path = tmp_path / "data.parquet"
    write_dataset(hand_made(model), path)
    assert run(["evaluate", "--data", str(path), "--json"]) == ExitCode.OK
    shown = capsys.readouterr()
    assert json.loads(shown.out)["model"] == str(folder)
    expect_values(shown.err, folder)
    backward = [replace(item, variant=Direction.BWD_DATA) for item in PROBLEMS[:1]]
    kernel = conv_pool(Direction.BWD_DATA, HOST, 2)[0]
    write_dataset(build([(backward[0], kernel, 1.0)]), tmp_path / "backward.parquet")
    both = ["--data", str(path), "--data", str(tmp_path / "backward.parquet")]
    assert run(["evaluate", *both]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "several-models", 2)


def test_a_substitute_model_is_evaluated_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For an unmeasured GPU the estimate is evaluated; its accuracy elsewhere is in the document."""
    problem = ConvProblem(Direction.BWD_DATA, 4, 64, 64, 1, 28, 28, 3, 3, pad_h=1, pad_w=1, dtype="bf16")
    some = kernels(Direction.BWD_DATA)[:2]
    data = build([(problem, replace(kernel, dtype="bf16"), ms) for kernel, ms in zip(some, (1.0, 2.0), strict=True)])
    write_dataset(replace(data, frame=data.frame.assign(arch="gfx942")), tmp_path / "data.parquet")
    assert run(["evaluate", "--data", str(tmp_path / "data.parquet"), "--json"]) == ExitCode.OK
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert document["model"] == ESTIMATE
    assert document["stands_in"]["basis"] == "estimate"
    assert document["stands_in"]["worth"] is None  # bwd_data was evaluated on no GPU
    expect_warning(shown.err, "no-model", "analytic estimate")


def test_short_names_of_gemms_match_all_compatible_kernels() -> None:
    """AMD's short GEMM name does not determine waves, warp tile, epilogue, pads and persistence."""
    kernel = parse_gemm(
        "gemm_universal_fp16_rcr_compv3_cshuffle_intrawave_True_True_True_False_128x128x64_2x2x1_32x32x16"
    )
    join = KernelJoin(kernel_op(), [short_name(kernel), gemm_name(kernel)])
    pool = (replace(kernel, wave_m=4, wave_n=1), kernel, replace(kernel, tile_m=64))
    position, code = join.pairs(pool)
    assert list(zip(position.tolist(), code.tolist(), strict=True)) == [(0, 0), (1, 0), (1, 1)]


def kernel_op() -> Any:
    """The operation of GEMMs."""
    from ckh.ops import operation

    return operation("gemm_universal")
