"""Every architecture, operation and element type known to ckh is answered, or refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ckh
from ckh.archs import HOST, arch_names, load_arch
from ckh.cli import run
from ckh.errors import ExitCode
from tests.refusals import expect_error

SIZES = {
    "grouped_conv": ["--n", "4", "--c", "64", "--k", "128"],
    "gemm_universal": ["--m", "128", "--n", "1536", "--k", "7168"],
    "aiter_moe": ["--tokens", "64", "--model-dim", "7168", "--inter-dim", "256", "--experts", "256", "--topk", "8"],
}
DTYPES = ("fp32", "fp16", "bf16", "fp8", "bf8", "int8")
GPUS = [name for name in arch_names() if name != HOST]
ESTIMATED = [name for name in GPUS if load_arch(name).peaks is not None]


def predicted(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Return the exit code of a prediction as JSON, and its output."""
    code = run(["predict", *words, "--json"])
    return int(code), *capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("op", ["grouped_conv", "gemm_universal"])
@pytest.mark.parametrize("arch", ESTIMATED)
def test_all_element_types_of_a_gpu_are_answered(arch: str, op: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each element type of its matrix instructions has ranked kernels; any other is refused for lack of kernels."""
    peaks = load_arch(arch).peaks
    assert peaks is not None
    for dtype in DTYPES:
        code, out, err = predicted(capsys, "--op", op, "--arch", arch, "--dtype", dtype, *SIZES[op])
        if dtype not in peaks.flops_per_cu_clock:
            assert (code, json.loads(out)["code"]) == (ExitCode.NO_KERNEL, "no-kernel")
            expect_error(err, "no-kernel", arch)
            continue
        assert code == ExitCode.OK, err
        document = json.loads(out)
        assert len(document["kernels"]) > 1
        if document["not_measured"] is not None:
            assert document["not_measured"]["worth"] is None  # of fewer than 30 problems, or of those that shaped it
            # A model of gfx950's convolutions in bf16 answers in fp16; on two GPUs its model of fp8 GEMMs does.
            stands_in = op == "gemm_universal" and arch in {"gfx942", "gfx950"}
            stands_in |= (op, arch, dtype) == ("grouped_conv", "gfx950", "fp16")
            assert (document["not_measured"]["basis"] == "model") == stands_in
            assert len(document["not_measured"]["next_commands"]) == 2


@pytest.mark.parametrize("dtype", load_arch("gfx1250").dtypes)
def test_without_peak_rates_a_model_stands_in_for_gemms(dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    """gfx1250 has GEMMs in order by gfx950's model, marked and not evaluated, and no kernels of convolutions."""
    assert sorted(set(GPUS) - set(ESTIMATED)) == ["gfx1250"]
    words = ["--arch", "gfx1250", "--dtype", dtype]
    code, out, err = predicted(capsys, "--op", "gemm_universal", *words, *SIZES["gemm_universal"])
    assert code == ExitCode.OK, err
    document = json.loads(out)
    assert len(document["kernels"]) > 1
    assert (document["not_measured"]["basis"], document["not_measured"]["worth"]) == ("model", None)
    for direction in ("forward", "bwd_data", "bwd_weight"):
        code, _, err = predicted(capsys, "--variant", direction, *words, *SIZES["grouped_conv"])
        assert code == ExitCode.NO_KERNEL
        expect_error(err, "no-kernel", "gfx1250")


@pytest.mark.parametrize("direction", ["bwd_data", "bwd_weight"])
@pytest.mark.parametrize("arch", ESTIMATED)
def test_backward_directions_are_answered(arch: str, direction: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On every GPU an estimate ranks the kernels of backward convolutions in fp16."""
    words = ["--op", "grouped_conv", "--arch", arch, "--dtype", "fp16", "--variant", direction]
    code, out, err = predicted(capsys, *words, *SIZES["grouped_conv"])
    assert code == ExitCode.OK, err
    assert json.loads(out)["not_measured"]["basis"] == "estimate"


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_mixtures_of_experts_are_answered(arch: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each element type that a GPU multiplies is answered; kinds not measured on it are marked."""
    blocks: list[str] = ["--quant", "per_1x128"]  # of which two kernels were measured on gfx942
    for dtype, quant in (("fp8", []), ("bf16", []), ("pk_fp4", []), ("fp8", blocks)):
        is_measured = arch == "gfx950" or quant != blocks
        words = ["--op", "aiter_moe", "--arch", arch, "--dtype", dtype, *quant, *SIZES["aiter_moe"]]
        code, out, err = predicted(capsys, *words)
        if (arch, dtype) == ("gfx942", "pk_fp4"):
            assert code == ExitCode.NO_KERNEL
            continue
        assert code == ExitCode.OK, err
        document = json.loads(out)
        assert (document["not_measured"] is None) == is_measured
        assert len(document["kernels"]) > 1
        refused = predicted(capsys, *words, "--require", "measured")[0]
        assert refused == (ExitCode.OK if is_measured else ExitCode.BAD_DATA)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--arch", HOST, "--dtype", "fp16", *SIZES["grouped_conv"]], "host does not run fp16 (it runs fp32)"),
        (
            ["--arch", "gfx90a", "--op", "aiter_gemm", *SIZES["gemm_universal"]],
            "there are no kernels of a8w8 (any library) on gfx90a",
        ),
        (["--arch", "gfx90a", "--op", "aiter_moe", *SIZES["aiter_moe"]], "no known kernel of AITER's"),
    ],
)
def test_without_a_kernel_the_reason_is_reported(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 5 and the reason, as for any problem without a kernel."""
    code, _, err = predicted(capsys, *words)
    assert code == ExitCode.NO_KERNEL
    assert why in err


@pytest.mark.slow
def test_the_suggested_tune_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second command plans kernels of the problem itself, within its budget."""
    monkeypatch.chdir(tmp_path)
    _, out, _ = predicted(capsys, "--arch", "gfx942", "--dtype", "fp8", *SIZES["gemm_universal"])
    document = json.loads(out)
    command = document["not_measured"]["next_commands"][1].split()
    assert command[:3] == ["ckh", "tune", document["problem"]]
    assert run([*command[1:], "--dry-run"]) == ExitCode.OK
    (folder,) = (tmp_path / "tuned").iterdir()
    assert [item.problem.canonical() for item in ckh.shapes.read(str(folder / "shapes.csv"))] == [document["problem"]]
    assert "--plan auto --budget 15m" in capsys.readouterr().out


@pytest.mark.slow
def test_every_problem_that_amd_measured_is_answered() -> None:
    """All 344 convolutions of AMD's two files of gfx950 have kernels, 50 of them padded, all in distribution."""
    files = sorted((Path(__file__).parents[2] / "data").glob("amd-gfx950-conv-*.parquet"))
    problems = list({problem: None for file in files for problem in ckh.read_dataset(file).problems()})
    result = [some[0] for some in ckh.rank_many(problems, top=1, arch="gfx950")]
    assert len(result) == 344
    assert sum(item.padded is not None for item in result) == 50
    assert not [problem for problem in problems if ckh.answer(problem, arch="gfx950").known.doubts]
