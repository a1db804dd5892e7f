"""Kernels listed by a user are ranked exclusively, in the architecture's pool or not."""

from __future__ import annotations

import io
import json
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import ckh
from ckh.archs import load_arch
from ckh.bench.planning.registry import write_registry
from ckh.cli import run
from ckh.commands import _completion
from ckh.errors import DataError, ExitCode, UsageError
from ckh.files.paths import data_dir
from ckh.learn.models.artifact import load_model
from ckh.ops.grouped_conv.kernel import amd_short_name, kernel_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.ops.grouped_conv.rules.sets import RULE_SETS, rule_set
from ckh.problems import Direction
from tests.refusals import expect_error, expect_refusal

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.ops.grouped_conv.kernel import ConvKernel

GFX950 = load_arch("gfx950")
MODEL = data_dir("models") / "grouped_conv_forward_bf16_gfx950"
PROBLEM = ConvProblem(Direction.FORWARD, 16, 256, 256, 1, 28, 28, 3, 3, pad_h=1, pad_w=1, dtype="bf16")
POOL = conv_pool(Direction.FORWARD, GFX950, 2, "bf16")
LEARNED = [kernel for kernel in POOL if kernel.pipeline == "compv3"][:3]
# The same kernels with two blocks per compute unit are in no pool.
OUTSIDE = [replace(kernel, block_per_cu=2) for kernel in LEARNED]
NEW_KIND = [kernel for kernel in POOL if kernel.pipeline == "basic_v1"][:2]
ARGS = ["predict", "--n", "16", "--c", "256", "--dtype", "bf16", "--arch", "gfx950", "--top", "20", "--wide"]


def names(kernels: list[ConvKernel]) -> list[str]:
    """Their complete names."""
    return list(map(kernel_name, kernels))


def predict(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    """The JSON document of an answer."""
    assert run([*ARGS, "--json", *args]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_exactly_the_listed_kernels_are_ranked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All are ranked, including those outside of the pool and of unmeasured kinds, which are counted."""
    wanted = names([*OUTSIDE, *NEW_KIND])
    (tmp_path / "list.txt").write_text("# mine\n" + "\n".join([*wanted, "", wanted[0]]) + "  # again\n")
    document = predict(capsys, "--kernels", str(tmp_path / "list.txt"))
    assert document["candidates"] == 5
    assert {item["kernel"] for item in document["kernels"]} <= set(wanted)
    assert document["refused"] == {}
    assert document["known"]["families"] == ["basic_v1"]
    assert document["known"]["unknown_kernels"] == 2


def test_stdin_and_registries_list_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All sources give the same answer."""
    kernels = [*OUTSIDE, *NEW_KIND]
    write_registry(tmp_path / "set.json", kernels, arch="gfx950")
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(names(kernels))))
    result = [
        predict(capsys, *given)["kernels"]
        for given in (
            ["--kernels", "-"],
            ["--kernels", str(tmp_path / "set.json")],
        )
    ]
    assert result[0] == result[1]
    assert result[0]


def test_scores_equal_the_models(tmp_path: Path) -> None:
    """Python ranks names and kernels; each has the score computed for it alone."""
    given: list[str | ConvKernel] = [*names(OUTSIDE), *LEARNED]
    ranked = ckh.rank(PROBLEM, arch="gfx950", kernels=given)
    assert {candidate.kernel for candidate in ranked} == {*OUTSIDE, *LEARNED}
    model = load_model(MODEL)
    for candidate in ranked:
        assert candidate.score == pytest.approx(model.predict(PROBLEM, [candidate.kernel], "rank")[0], rel=1e-12)
    many = ckh.rank_many([PROBLEM, replace(PROBLEM, n=1)], arch="gfx950", kernels=given)
    assert many[0] == ranked
    assert {item.kernel for item in many[1]} == {*OUTSIDE, *LEARNED}
    everything = ckh.rank(PROBLEM, arch="gfx950")
    assert not {item.kernel for item in everything} & set(OUTSIDE)


@pytest.mark.slow
def test_amds_profiler_set_has_an_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On gfx950, whose default pool contains none of it."""
    path = tmp_path / "profiler.json"
    bench = ["bench", "--op", "grouped_conv", "--rule-set", "profiler", "--dry-run", "--arch", "gfx950"]
    assert run([*bench, "--dtype", "bf16", "--write-registry", str(path)]) == 0
    kernels = json.loads(path.read_text())["kernels"]
    assert not {kernel["name"] for kernel in kernels} & set(names(list(POOL)))
    capsys.readouterr()
    document = predict(capsys, "--kernels", str(path))
    assert document["candidates"] + sum(document["refused"].values()) == len(kernels)
    assert document["candidates"] > 50


BROKEN = replace(LEARNED[0], warp_tile_m=17)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "has no kernels"),
        (["# nothing"], "has no kernels"),
        (["no kernel"], "no kernel"),
        (["gemm_universal_fp16_rcr_compv3_cshuffle_intrawave_True_True_True_False_64x64x64_2x2x1_16x16x16"], "gemm"),
        ([amd_short_name(LEARNED[0])], "incomplete"),
        ([kernel_name(LEARNED[0]), kernel_name(replace(LEARNED[0], dtype="fp16"))], "kernels of bf16 and fp16"),
    ],
)
def test_invalid_lists_are_refused_in_one_line(
    lines: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 4, with the file's name."""
    (tmp_path / "list.txt").write_text("\n".join(lines))
    assert run([*ARGS, "--kernels", str(tmp_path / "list.txt")]) == ExitCode.BAD_DATA
    captured = capsys.readouterr()
    error = next(line for line in captured.err.splitlines() if line.startswith("error: "))
    assert words in error
    assert "list.txt" in error
    assert captured.out == ""


def test_a_list_of_another_kind_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The reason refers to the list, with exit code 5."""
    kernels = [replace(kernel, variant=Direction.BWD_DATA) for kernel in LEARNED]
    (tmp_path / "list.txt").write_text("\n".join(names(kernels)))
    assert run([*ARGS, "--kernels", str(tmp_path / "list.txt")]) == ExitCode.NO_KERNEL
    expect_error(capsys.readouterr().err, "no-kernel", 3, 3, "forward 2 bf16")


def test_kernels_that_the_architecture_cannot_build_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are ranked; without others it is exit code 5."""
    (tmp_path / "list.txt").write_text("\n".join(names([BROKEN, LEARNED[0]])))
    document = predict(capsys, "--kernels", str(tmp_path / "list.txt"))
    assert [entry["kernel"] for entry in document["kernels"]] == names([LEARNED[0]])
    (reason,) = document["refused"]
    assert "17x16x16" in reason
    (tmp_path / "list.txt").write_text(kernel_name(BROKEN))
    assert run([*ARGS, "--kernels", str(tmp_path / "list.txt")]) == ExitCode.NO_KERNEL
    expect_error(capsys.readouterr().err, "no-kernel", 1, 1, "17x16x16")


def test_kernels_in_python_are_checked_likewise() -> None:
    """Objects other than kernels, and kernels of another operation."""
    lists: list[list[Any]] = [[], [3], ["x"], [None]]
    for wrong in lists:
        with pytest.raises(DataError):
            ckh.rank(PROBLEM, arch="gfx950", kernels=wrong)


@pytest.mark.parametrize("name", ["default", "tiny", "tests"])
def test_a_rule_set_is_ranked_as_its_list(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--rule-set gives the same document as --kernels with the set's kernels of the problem's kind."""
    kernels = rule_set(name, Direction.FORWARD, 3, "fp16", load_arch("gfx942"))
    listed = tmp_path / "kernels.txt"
    listed.write_text("\n".join(map(kernel_name, kernels)))
    asked = ["predict", "--n", "16", "--c", "256", "--ndim", "3", "--dtype", "fp16", "--arch", "gfx942", "--json"]
    result = []
    for more in (["--rule-set", name], ["--kernels", str(listed)]):
        assert run([*asked, "--top", "1000", *more]) == ExitCode.OK
        result.append(json.loads(capsys.readouterr().out))
        probing, *others = result[-1]["not_measured"]["next_commands"]
        assert shlex.split(probing)[-4:-2] == more
        result[-1]["not_measured"]["next_commands"] = others
        assert result[-1].pop("next_command") == probing
    assert result[0] == result[1]
    ranked = {item for row in result[0]["kernels"] for item in (row["kernel"], *row["tied"])}
    assert ranked
    assert ranked <= set(map(kernel_name, kernels))


def test_each_problem_has_its_own_rule_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By direction, dimensions and element type; a problem whose kind is not in the set has no kernels."""
    problems = tmp_path / "problems.txt"
    texts = [
        "conv_forward_bf16_nhwgc_2d_n16_c256_k256_g1_i28x28_f3x3_s1x1_p1x1_d1x1",
        "conv_bwd_data_fp16_ndhwgc_3d_n2_c64_k64_g1_i8x28x28_f3x3x3_s1x1x1_p1x1x1_d1x1x1",
        "conv_forward_fp8_nhwgc_2d_n16_c256_k256_g1_i28x28_f3x3_s1x1_p1x1_d1x1",
    ]
    problems.write_text("\n".join(texts))
    asked = ["predict", "--problems", str(problems), "--arch", "gfx942", "--rule-set", "tests", "--top", "1", "--json"]
    assert run(asked) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert [item["problem"] for item in document["results"]] == texts[:2]
    assert [item["problem"] for item in document["failures"]] == texts[2:]
    kinds = [(Direction.FORWARD, 2, "bf16"), (Direction.BWD_DATA, 3, "fp16")]
    for result, kind in zip(document["results"], kinds, strict=True):
        names = set(map(kernel_name, rule_set("tests", *kind, load_arch("gfx942"))))
        assert result["kernels"][0]["kernel"] in names
        assert result["candidates"] + sum(result["refused"].values()) == len(names)


@pytest.mark.parametrize(
    "args",
    [
        ["--n", "16", "--c", "256", "--rule-set", "none"],
        ["--n", "16", "--c", "256", "--rule-set", "tiny", "--kernels", "-"],
        ["--m", "16", "--n", "256", "--k", "512", "--rule-set", "tiny"],
    ],
)
def test_unknown_rule_sets_are_refused(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown name, a second list, an operation without rule sets: one line each."""
    assert run(["predict", *args, "--arch", "gfx950"]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("error: ")


def test_rule_sets_are_completed() -> None:
    """From the typed prefix, for bench and predict."""
    assert _completion.rule_sets("t") == ["tiny", "tests"]
    assert _completion.rule_sets("") == list(RULE_SETS)


def test_python_ranks_a_rule_set(capsys: pytest.CaptureFixture[str]) -> None:
    """`rank`, `rank_many` and `known` take its name: kernels, scores and caveats equal those of --rule-set."""
    flat = replace(PROBLEM, n=1)
    deep = ConvProblem(Direction.FORWARD, 1, 64, 64, 1, 8, 8, 3, 3, ndim=3, di=4, dtype="bf16")
    document = predict(capsys, "--rule-set", "tests")
    ranked = ckh.rank(PROBLEM, 20, arch="gfx950", rule_set="tests")
    assert [(kernel_name(candidate.kernel), candidate.score) for candidate in ranked] == [
        (item["kernel"], item["score"]) for item in document["kernels"]
    ]
    many = ckh.rank_many([deep, PROBLEM, flat], 20, arch="gfx950", rule_set="tests")
    assert [[item.kernel for item in best] for best in many] == [
        [item.kernel for item in ckh.rank(problem, 20, arch="gfx950", rule_set="tests")]
        for problem in (deep, PROBLEM, flat)
    ]
    assert {item.kernel.ndim_spatial for item in many[0]} == {3}
    known = ckh.answer(PROBLEM, 20, arch="gfx950", rule_set="tests").known
    assert list(known.families) == document["known"]["families"]
    assert known.unknown_kernels == document["known"]["unknown_kernels"]


def test_python_refuses_two_lists_and_unknown_sets() -> None:
    """A list with a rule set, an unknown set, and an argument that is not a name."""
    with expect_refusal(UsageError, "conflicting-options", "rule_set"):
        ckh.rank(PROBLEM, arch="gfx950", kernels=names(LEARNED), rule_set="tests")
    with pytest.raises(UsageError, match="none"):
        ckh.rank_many([PROBLEM], arch="gfx950", rule_set="none")
    with pytest.raises(TypeError, match="rule_set"):
        ckh.answer(PROBLEM, arch="gfx950", rule_set=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["--rule-set", "--kernels", "--no-pad-channels"])
def test_the_suggested_probe_ranks_the_same_kernels(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The suggested command of an answer without measurements ranks the same kernels."""
    options = {"--rule-set": ["tests"], "--no-pad-channels": []}.get(given, [str(tmp_path / "set.json")])
    write_registry(
        tmp_path / "set.json", conv_pool(Direction.FORWARD, load_arch("gfx942"), 2, "bf16")[:9], arch="gfx942"
    )
    asked = ["predict", "--n", "16", "--c", "256", "--arch", "gfx942", given, *options]
    assert run([*asked, "--json", "--top", "2"]) == 0
    command = json.loads(capsys.readouterr().out)["not_measured"]["next_commands"][0]
    assert shlex.split(command) == ["ckh", *asked, "--probe", "5"]
