"""An answer has every kernel of the pool once: ranked, or refused with a reason."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections import Counter
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np
import pytest

from ckh.api import learning
from ckh.archs import load_arch
from ckh.errors import ExitCode, ModelError, NoKernelError, UsageError
from ckh.export.groups import exported
from ckh.files.paths import data_dir
from ckh.kernels.pools import TIMED_NAME, timed_file, with_lead
from ckh.learn.answers.api import rank, rank_many
from ckh.learn.answers.batches import known_candidates, scored
from ckh.learn.answers.ranking import ranking_of, rankings_of
from ckh.learn.models.artifact import Model, load_model
from ckh.learn.models.scoring import Remembered
from ckh.learn.training.train import train
from ckh.learn.training.trained import save
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.grouped_conv.features import CORE_NAMES
from ckh.ops.grouped_conv.kernels.pool import POOLS, LearnedKernels, conv_pool
from ckh.problems import Direction
from tests.hostmodels import GEMM
from tests.learn.conftest import AMD_PROBLEMS, HOST, amd_model, measured, problems, saved, trained
from tests.refusals import expect_refusal, expect_values, has_values

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ckh.ops.grouped_conv.kernel import ConvKernel
    from ckh.ops.grouped_conv.problem import ConvProblem

SHIPPED = data_dir("models")
ALL = 10 * 30  # tiles x variants


@pytest.mark.parametrize("lead", [0.0, 0.02, 0.5])
def test_a_kernel_without_measurements_needs_a_lead(lead: float, model_dir: Path) -> None:
    """Scores are those without a lead, less it for kernels that were not measured, also without C."""
    file = model_dir / TIMED_NAME
    names = json.loads(gzip.decompress(file.read_bytes()))["kernels"]
    file.write_bytes(timed_file("host", set(names)))
    plain = {one.name: one.score for one in ranking_of(problems()[3], load_model(model_dir)).ranked}
    file.write_bytes(with_lead(timed_file("host", set(names)), lead))
    expected = {name: score - lead * (name not in names) for name, score in plain.items()}
    ranked = ranking_of(problems()[3], load_model(model_dir)).ranked
    assert {one.name: one.score for one in ranked} == pytest.approx(expected, abs=1e-9)
    assert [one.score for one in ranked] == sorted((one.score for one in ranked), reverse=True)
    assert next(iter(plain)) not in names  # without a lead such a kernel is first
    assert (ranked[0].name in names) == (lead == 0.5)
    kernels = [one.kernel for one in ranked[:9]]
    in_python = load_model(model_dir).predict(problems()[3], kernels, "rank")
    assert in_python == pytest.approx([one.score for one in ranked[:9]], abs=1e-9)


def test_what_was_measured_comes_first(tmp_path: Path) -> None:
    """Without folds nothing shows that other kernels are faster: the first choice was measured, for new problems, too.

    Without a lead it was not for most of them, and the coverage is counted with the lead.
    """
    plain = replace(trained(), lead=None)
    made = learning.with_lead(plain)
    save(plain, tmp_path / "plain")
    save(made, tmp_path / "made")
    own = set(measured().valid().frame["kernel"])
    new = [replace(problem, n=problem.n + 1) for problem in problems()]
    before, after = (
        [ranking.best(1)[0].name in own for ranking in rankings_of(new, load_model(tmp_path / name))]
        for name in ("plain", "made")
    )
    assert sum(before) < 7
    assert all(after)
    leads = []
    for ranking in rankings_of(problems(), load_model(tmp_path / "plain")):
        score = {one.name: one.score for one in ranking.ranked}
        leads.append(max(score.values()) - max(score[name] for name in own & set(score)))
    assert made.lead == pytest.approx(2 * max(leads))
    valid = measured().valid()
    pairs = set(zip(valid.problem_ids.tolist(), valid.frame["kernel"], strict=True))
    firsts = [ranking.best(1)[0].name for ranking in rankings_of(valid.problems(), load_model(tmp_path / "made"))]
    assert made.coverage == pytest.approx(np.mean([pair in pairs for pair in enumerate(firsts)]))


def test_all_candidates_are_ranked_once(model_dir: Path) -> None:
    """On the host nothing is refused: the whole pool is ranked."""
    problem = problems()[0]
    ranking = ranking_of(problem, load_model(model_dir))
    ranked = [candidate.kernel for candidate in ranking.ranked]
    assert len(ranked) == len(set(ranked)) == ALL
    assert set(ranked) == set(conv_pool(Direction.FORWARD, HOST))
    assert [candidate.score for candidate in ranking.ranked] == sorted(
        (candidate.score for candidate in ranking.ranked), reverse=True
    )
    assert (ranking.problem, ranking.refused) == (problem, {})


def test_a_model_ranks_only_kernel_families_it_was_trained_on(tmp_path: Path) -> None:
    """Pipelines without training rows are refused; options that varied within a pipeline apply to all."""
    mask = measured().frame["pipeline"].isin(["compv4", "compv6"]).to_numpy()
    save(train(measured().select(mask), replace(trained().options, folds=0), lambda _s, _t: None), tmp_path / "two")
    ranking = ranking_of(problems()[0], load_model(tmp_path / "two"))
    ranked: list[Any] = [candidate.kernel for candidate in ranking.ranked]
    assert {candidate.pipeline for candidate in ranked} == {"compv4", "compv6"}
    assert sum(ranking.refused.values()) == ALL - len(ranked)
    (count,) = [count for reason, count in ranking.refused.items() if reason.endswith(" mem interwave")]
    assert count == 10


def test_an_option_that_no_pipeline_varied_is_not_known() -> None:
    """If every compv4 has two buffers and no compv3, the effect of two buffers on compv3 is unknown."""
    apart = LearnedKernels(
        frozenset({(64, 64, 64)}), frozenset({("compv3", "intrawave", 0, 0), ("compv4", "intrawave", 1, 0)})
    )
    varied = replace(apart, variants=apart.variants | {("mem", "intrawave", 0, 0), ("mem", "intrawave", 1, 0)})
    pool = conv_pool(Direction.FORWARD, HOST)
    kernel = next(
        kernel
        for kernel in pool
        if kernel.pipeline == "compv3" and kernel.double_smem_buffer and not kernel.split_image
    )
    kernel = replace(kernel, tile_m=64, tile_n=64, tile_k=64)
    expect_values(apart.reason(kernel), "compv3", "intrawave", "dsb")
    assert varied.reason(kernel) == ""
    assert apart.reason(replace(kernel, double_smem_buffer=False)) == ""
    assert apart.reason(replace(kernel, double_smem_buffer=False, tile_m=32)).endswith("the tile 32x64x64")


def test_a_model_without_a_list_of_kernels_ranks_all(model_dir: Path, tmp_path: Path) -> None:
    """A folder without such a list, as AMD's, is assumed to know the whole pool."""
    older = tmp_path / "older"
    shutil.copytree(model_dir, older)
    (older / "kernels.json").unlink()
    assert len(ranking_of(problems()[0], load_model(older)).ranked) == ALL
    (older / "kernels.json").write_text('{"tiles": 3}')
    with expect_refusal(ModelError, "bad-field", "kernels.json", "tiles"):
        ranking_of(problems()[0], load_model(older))


def test_ranked_and_refused_are_the_whole_pool(tmp_path: Path) -> None:
    """On gfx942 each kernel is a candidate or counted under one reason, the most frequent first."""
    model = gfx942(tmp_path)
    ranking = ranking_of(AMD_PROBLEMS[0], model)
    arch = load_arch("gfx942")
    assert {candidate.kernel for candidate in ranking.ranked} == set(conv_pool(Direction.FORWARD, arch, 2, "bf16"))
    refused = tuple(POOLS.refused(arch, Direction.FORWARD, 2, "bf16"))
    assert ranking.refused == Counter(kernel.reasons[0] for kernel in refused)
    assert len(ranking.ranked) + sum(ranking.refused.values()) == ALL
    assert list(ranking.refused.values()) == sorted(ranking.refused.values(), reverse=True)
    assert len(ranking.refused) > 2


def test_a_problem_without_a_kernel_names_the_most_frequent_reason(tmp_path: Path) -> None:
    """C=4 in bf16 is too narrow for all 208 kernels that gfx942 builds; the other 92 are not counted."""
    failure = ranking_of(replace(AMD_PROBLEMS[0], c=4), gfx942(tmp_path)).unpadded.failure
    assert failure is not None
    expect_values(failure.message, "208 of 208", "C/G = 4", "vector_b = 8")


def test_channels_are_padded_where_no_kernel_applies(tmp_path: Path) -> None:
    """A first layer with 3 channels is ranked as with 8, is marked as padded, and remains the requested problem."""
    model = gfx942(tmp_path)
    requested, padded = replace(AMD_PROBLEMS[0], c=3, k=60), replace(AMD_PROBLEMS[0], c=8, k=64)
    ranking, plain = ranking_of(requested, model), ranking_of(padded, model)
    assert (ranking.problem, ranking.padded, plain.padded) == (requested, padded, None)
    assert ranking.refused == plain.refused
    assert [replace(candidate, padded=None) for candidate in ranking.ranked] == plain.ranked
    assert {candidate.padded for candidate in ranking.ranked} == {padded}
    candidate = ranking.ranked[0]
    assert candidate.tflops is not None
    assert candidate.latency_ms == pytest.approx(padded.flops / candidate.tflops / 1e9, rel=1e-12)
    (many, unpadded) = rank_many([requested, padded], 3, model)
    assert (many, unpadded) == (ranking.best(3), plain.best(3))
    assert ranking_of(requested, model).unpadded.failure is not None
    assert ranking_of(padded, model).unpadded is ranking_of(padded, model)


def test_kernels_that_compute_nothing_are_never_recommended(tmp_path: Path) -> None:
    """compv5 kernels in AMD's data, with one group of waves, are refused in single answers, batches and exports."""
    model = gfx942(tmp_path)
    ranking = ranking_of(AMD_PROBLEMS[0], model)
    reason = "compv5 computes nothing unless it has waves 1x1x2 in 2 wave groups"
    assert ranking.refused[reason] == 8 * 4
    assert len(ranking.ranked) == 8 * 26
    many = rank_many(list(AMD_PROBLEMS), None, model)
    in_c = [kernel for group in exported(model.spec.op_type).groups(model) for kernel in group.kernels]
    assert len(in_c) == 2 * 8 * 26  # in two and in three dimensions
    chosen: list[Any] = [candidate.kernel for ranked in (ranking.ranked, *many) for candidate in ranked]
    assert {asdict(kernel)["pipeline"] for kernel in (*chosen, *in_c)} == {
        "basic_v1",
        "mem",
        "compv3",
        "compv4",
        "compv6",
    }


def gfx942(folder: Path) -> Model:
    """AMD's model for an architecture that refuses some kernels."""
    amd_model(folder / "forward", CORE_NAMES, arch="gfx942", hardware=None)
    return load_model(folder / "forward")


def test_no_kernel_names_the_reason(model_dir: Path) -> None:
    """The host has no kernels of fp16: the error has the count and the rule."""
    model = load_model(model_dir)
    problem = replace(problems()[0], dtype="fp16")
    with expect_refusal(NoKernelError, "no-kernel", "kernel", "host", ALL, ALL) as error:
        ranking_of(problem, Model(model.path, replace(model.spec, dtype="fp16")))
    assert error.value.exit_code == ExitCode.NO_KERNEL
    assert "fp16" in error.value.message.split("because")[1]


def test_a_model_answers_only_its_purpose(model_dir: Path) -> None:
    """Another direction is refused before anything is ranked."""
    with expect_refusal(UsageError, "model-mismatch", "forward fp32 on host", "bwd_data fp32"):
        ranking_of(problems(Direction.BWD_DATA)[0], load_model(model_dir))


def test_scores_are_lightgbms(model_dir: Path) -> None:
    """Ranking scores and TFLOPS equal LightGBM's for the same features."""
    model = load_model(model_dir)
    for problem in problems():
        ranking = ranking_of(problem, model)
        kernels: list[Any] = [candidate.kernel for candidate in ranking.ranked]
        np.testing.assert_allclose(ranking.score, booster(model, problem, kernels, model.spec.rank_by), rtol=1e-12)
        assert ranking.tflops is not None
        np.testing.assert_allclose(ranking.tflops, booster(model, problem, kernels, "tflops"), rtol=1e-12)
        first = ranking.ranked[0]
        assert first.latency_ms == pytest.approx(problem.flops / ranking.tflops[0] / 1e9)
        rows = [
            candidate
            for before, candidate in zip([None, *ranking.ranked], ranking.ranked, strict=False)
            if before is None or before.score != candidate.score
        ]
        assert ranking.best(3) == rows[:3]


def booster(model: Model, problem: ConvProblem, kernels: Sequence[ConvKernel], target: str) -> NDArray[np.float64]:
    """LightGBM's predictions from the model's own text."""
    text = gzip.decompress((model.path / f"model_{target}.lgbm.gz").read_bytes()).decode()
    op = model.spec.op
    columns = {**op.problems.features([problem]), **op.kernels.features(kernels, model.spec.encoding)}
    matrix = model.spec.engine.matrix(columns, model.hardware, model.spec.feature_names)
    raw = np.asarray(lightgbm.Booster(model_str=text).predict(matrix))
    return np.expm1(raw) if target in model.spec.log_targets else raw


def test_batched_answers_equal_single_answers(model_dir: Path) -> None:
    """A batch of 2D and 3D problems, some twice, has the rankings of single answers."""
    asked = [*problems(), *problems()[:3]]
    together = rankings_of(asked, load_model(model_dir))
    assert [chooser.problem for chooser in together] == asked
    alone = load_model(model_dir)
    assert [item.ranked for item in together] == [ranking_of(problem, alone).ranked for problem in asked]
    for top in (1, 2, ALL):
        assert rank_many(asked, top, alone) == [item.best(top) for item in together]
    assert rank_many(asked, None, alone) == [item.ranked for item in together]
    order = [[replace(item, tflops=None, latency_ms=None) for item in many.best(3)] for many in together]
    assert rank_many(asked, 3, alone, tflops=False) == order


def test_candidates_alone_are_scored_as_in_their_pool(host_models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems with few candidates of their pool get bit-identical figures from these alone."""
    draw = np.random.default_rng(0)
    asked = [GemmProblem(int(m), 8 * int(n), 8 * int(n + k)) for m, n, k in draw.integers(1, 200, (30, 3))]
    alone, pooled = (load_model(host_models / GEMM) for _ in range(2))
    expected = rank_many(asked, 3, pooled)
    monkeypatch.setattr("ckh.learn.answers.batches._MANY_ALIKE", 1)
    assert rank_many(asked, 3, alone) == expected
    whole = len(known_candidates(asked[0], pooled).pool)
    assert {len(some.pool) == whole for some in scored(asked, alone)} == {False}


@pytest.mark.parametrize("most_scores", [1, 1 << 24], ids=["in parts", "together"])
@pytest.mark.parametrize(
    ("sizes", "why"),
    [({"c": 2**31 - 1}, f"C/G = {2**31 - 1} "), ({"c": 3, "hi": 2**31 - 1}, f"{8 * 2 * 28 * (2**31 - 1)} bytes")],
    ids=["too wide", "padded in vain"],
)
def test_a_problem_without_a_kernel_does_not_stop_the_others(
    most_scores: int, sizes: dict[str, Any], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is empty, with the reason that padding leaves; its neighbours are ranked as alone."""
    model, alone = gfx942(tmp_path), load_model(tmp_path / "forward")
    expected = [ranking_of(problem, alone).ranked for problem in AMD_PROBLEMS[:2]]
    monkeypatch.setattr("ckh.learn.answers.batches._MOST_SCORES", most_scores)
    unanswered = replace(AMD_PROBLEMS[0], **sizes)
    first, none, last = rankings_of([AMD_PROBLEMS[0], unanswered, AMD_PROBLEMS[1]], model)
    assert [first.ranked, last.ranked] == expected
    assert (none.ranked, none.padded) == ([], None)
    assert why in str(none.failure)
    assert rank_many([unanswered, AMD_PROBLEMS[0]], 1, model) == [[], first.best(1)]


def test_answers_are_remembered(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A problem asked before is not scored again; the answer is the same object."""
    model = load_model(model_dir)
    first = ranking_of(problems()[0], model)
    monkeypatch.setattr(model, "score_pool", None)
    assert ranking_of(problems()[0], model) is first


def test_the_oldest_answers_are_forgotten() -> None:
    """A capacity of two: looking up a value makes it the most recent."""
    kept: Remembered[int] = Remembered(2)
    kept.put("a", 1)
    kept.put("b", 2)
    assert kept.get("a") == 1
    kept.put("c", 3)
    assert [kept.get(key) for key in "abc"] == [1, None, 3]


@pytest.mark.usefixtures("host_asked")
def test_the_default_model_is_cached_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call opens no file; after its files are overwritten, with unchanged times, the new model answers."""
    item, other = saved(tmp_path / "models" / "host"), saved(tmp_path / "other", seed=7)
    monkeypatch.setenv("CKH_MODELS", str(item.parent))
    before = rank(problems()[0])
    many = rank_many(problems()[:1])
    opened = []

    def counted(file: Any, *given: Any, **options: Any) -> Any:
        opened.append(file)
        return plain(file, *given, **options)

    plain = open
    monkeypatch.setattr("builtins.open", counted)
    monkeypatch.setattr("io.open", counted)
    assert rank(problems()[0]) == before
    assert rank_many(problems()[:1]) == many
    assert opened == []
    for path in other.iterdir():
        state = (item / path.name).stat()
        (item / path.name).write_bytes(path.read_bytes())
        os.utime(item / path.name, ns=(state.st_atime_ns, state.st_mtime_ns))
    after = rank(problems()[0])
    assert opened
    assert after == rank(problems()[0], model=load_model(other))
    assert after != before


def test_where_no_model_fits_the_api_answers_as_predict_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """`rank` and `rank_many` mark substitute models, per problem, and refuse them if measurements are required."""
    from ckh.archs import load_arch
    from ckh.errors import ModelError
    from ckh.ops.gemm_universal.problem import GemmProblem
    from ckh.ops.grouped_conv.problem import ConvProblem
    from ckh.problems import Direction

    monkeypatch.delenv("CKH_MODELS", raising=False)
    conv = ConvProblem(Direction.FORWARD, 16, 256, 256, 1, 28, 28, 3, 3, pad_h=1, pad_w=1, dtype="bf16")
    gemm, impossible = GemmProblem(128, 1536, 7168, dtype="bf8"), GemmProblem(128, 1536, 7168, dtype="fp64")
    assert "fp64" not in load_arch("gfx950").peaks.flops_per_cu_clock  # type: ignore[union-attr]
    many = rank_many([conv, gemm, impossible, conv], top=3, arch="gfx950")
    assert [[item.name for item in some] for some in many[:2]] == [
        [item.name for item in rank(problem, top=3, arch="gfx950")] for problem in (conv, gemm)
    ]
    assert many[3] == many[0]
    assert many[2] == []
    assert all(model.not_measured is None for model in many[0])
    assert {model.not_measured.basis for model in many[1] if model.not_measured} == {"model"}
    assert len(rank_many([conv], top=3, arch="gfx950", require_measured=True)[0]) == 3
    for refused in (rank, lambda problem, **options: rank_many([problem], **options)):
        with expect_refusal(ModelError, "no-model", "gemm_universal", "bf8", "gfx950"):
            refused(gemm, arch="gfx950", require_measured=True)


def test_a_count_below_0_is_refused() -> None:
    """A negative count would drop the last kernels, as a slice does."""
    with expect_refusal(UsageError, "out-of-range", "0", "-1"):
        rank(problems()[0], -1)
    with expect_refusal(UsageError, "out-of-range", "0", "-1"):
        rank_many(problems(), -1)


def test_a_refusal_has_the_sizes_of_its_own_problem() -> None:
    """Also in a batch whose problems share their candidates."""
    from ckh.learn.answers.answering import Chooser
    from ckh.learn.answers.ranking import rankings_of
    from ckh.ops.gemm_universal.problem import GemmProblem

    problems = [GemmProblem(4096, 4096, k, dtype="bf16") for k in (17, 31)]
    chooser = Chooser(None, "gfx950", None, "gemm_universal")
    rankings = rankings_of(problems, chooser.model(problems[0], stands_in=True))
    for ranking, k in zip(rankings, (17, 31), strict=True):
        assert ranking.failure is not None
        expect_values(ranking.failure.message, f"K = {k}", "vector_a = 8")
        assert any(has_values(reason, f"K = {k}", "vector_a = 8") for reason in ranking.refused)
