"""The Python API: its names, import time, and the examples in docs/python.md."""

from __future__ import annotations

import ast
import doctest
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ckh
from ckh import ConvProblem, Direction, GemmProblem, Ranked, load_model, rank, rank_many
from ckh.cli import run
from ckh.errors import ExitCode
from ckh.files.paths import data_dir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh import Model

ROOT = Path(ckh.__file__).parents[1]
GUIDE = ROOT / "docs" / "python.md"
GEMM = GemmProblem(64, 64, 64, "fp8")


@pytest.fixture(autouse=True)
def only_what_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No user models; paths of the examples are those of the repository."""
    monkeypatch.delenv("CKH_MODELS", raising=False)
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(ROOT)


@pytest.mark.slow
def test_examples_of_the_guide_return_what_they_show() -> None:
    """Every example in docs/python.md runs as written."""
    result = doctest.testfile(str(GUIDE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted >= 15
    assert result.failed == 0


def test_the_guide_names_every_public_name() -> None:
    """Every exported name is documented, and vice versa."""
    text = GUIDE.read_text(encoding="utf-8")
    missing = [name for name in ckh.__all__ if f"ckh.{name}" not in text and f"`{name}`" not in text]
    assert missing == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", ["import ckh; f = ckh.rank", "from ckh import rank as f", "import ckh.learn.answers.ranking as a"]
)
def test_rank_stays_a_function(how: str) -> None:
    """However it is imported, and after it was called: no module replaces it."""
    code = f"""
{how}
import ckh
problem = ckh.GemmProblem(16, 64, 64, "fp8")
for _ in range(2):
    assert ckh.rank(problem, top=1) == ckh.rank_many([problem], top=1)[0]
from ckh import rank
assert callable(rank)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_public_name_wins_over_a_module_of_that_name() -> None:
    """An imported submodule replaces the attribute of its package: submodules named like functions are callable."""
    modules = {
        path.stem for path in (ROOT / "ckh").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert modules & {*ckh.__all__} == {"bench", "shapes", "tune"}
    code = """
import inspect
import ckh.bench.planning.plan, ckh.tune.steps
import ckh
from ckh.api.benching import bench
from ckh.api.tuner import tune
assert (ckh.bench.function, ckh.tune.function) == (bench, tune)
assert inspect.signature(ckh.bench) == inspect.signature(bench)
for call in (lambda: ckh.bench(nothing=1), lambda: ckh.tune("x", nothing=1)):
    try:
        call()
    except ckh.UsageError as error:
        assert error.code == "unknown-field", error
    else:
        raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_ckh_imports_nothing() -> None:
    """`import ckh` loads no other module of ckh and nothing from outside the standard library."""
    code = "import sys; before = set(sys.modules); import ckh; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    outside = [name for name in ast.literal_eval(done.stdout) if name.split(".")[0] not in sys.stdlib_module_names]
    assert outside == ["ckh"]


def test_every_public_name_is_there() -> None:
    """`from ckh import *`, `dir(ckh)` and the attributes agree; any other name is an AttributeError."""
    space: dict[str, object] = {}
    exec("from ckh import *", space)  # noqa: S102 - what a user types
    assert set(ckh.__all__) <= set(space) & set(dir(ckh))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ckh.nothing


LAYER = ConvProblem(Direction.FORWARD, n=16, c=256, k=256, g=1, hi=28, wi=28, y=3, x=3, pad_h=1, pad_w=1, dtype="bf16")


@pytest.mark.slow
@pytest.mark.usefixtures("known_host")
@pytest.mark.parametrize(
    ("problem", "arch", "words", "is_known"),
    [
        (LAYER, "gfx950", "--n 16 --c 256", True),
        (replace(LAYER, n=99), "gfx950", "--n 99 --c 256", False),
        (LAYER, "gfx942", "--n 16 --c 256", False),
        (GemmProblem(3, 1, 70_000), "host", "--m 3 --n 1 --k 70000", False),
    ],
)
def test_known_matches_predict(
    problem: ConvProblem | GemmProblem, arch: str, words: str, is_known: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """For sizes inside and outside of the measured range, for another GPU's model, and on the CPU."""
    assert run(["predict", *words.split(), "--arch", arch, "--json"]) == ExitCode.OK
    document = ckh.answer(problem, arch=arch).known.document()
    assert document == json.loads(capsys.readouterr().out)["known"]
    assert document["is_known"] is is_known


@pytest.mark.usefixtures("known_host")
@pytest.mark.parametrize(
    ("problem", "arch", "kinds"),
    [
        (LAYER, "gfx950", {"headers", "not-ranked", "interval", "measure-first"}),
        (replace(LAYER, n=99), "gfx950", {"headers", "not-ranked", "not-calibrated", "out-of-distribution"}),
        (LAYER, "gfx942", {"not-measured", "headers", "estimated-resources", "ties"}),
        (GemmProblem(3, 1, 70_000), "host", {"not-calibrated", "out-of-distribution", "ties"}),
    ],
)
def test_an_answer_has_the_caveats_of_predict(
    problem: ConvProblem | GemmProblem, arch: str, kinds: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Python, text and JSON give the same kernels and caveats."""
    result = ckh.answer(problem, arch=arch)
    assert {caveat.kind for caveat in result.caveats} == kinds
    sizes = [f"--{name}={value}" for name, value in problem.to_dict().items() if name in {"n", "c", "k", "m"}]
    assert run(["predict", *sizes, "--arch", arch, "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert [item["kernel"] for item in document["kernels"]] == [kernel.kernel for kernel in result.kernels]
    assert [item["kind"] for item in document["caveats"]] == [caveat.kind for caveat in result.caveats]
    assert run(["predict", *sizes, "--arch", arch, "--why"]) == ExitCode.OK
    text = " ".join(capsys.readouterr().out.split())
    assert all(" ".join(caveat.message.split()) in text for caveat in result.caveats if caveat.kind != "not-measured")


def test_the_api_is_typed() -> None:
    """The type checker accepts this file; a name that is lost or changes its type fails there."""
    layer = ConvProblem(Direction.FORWARD, n=1, c=8, k=8, g=1, hi=8, wi=8, y=1, x=1, dtype="bf16")
    model: Model = load_model(ROOT / "models" / "grouped_conv_forward_bf16_gfx950")
    best: Ranked[Any] = rank(layer, top=1, model=model)[0]
    several: Sequence[Sequence[Ranked[Any]]] = rank_many([GemmProblem(8, 8, 8), layer], top=2)
    assert several[1][0] == best
    assert best.name == model.spec.op.kernels.name(best.kernel)


def test_a_model_is_accepted_by_folder() -> None:
    """A path as `str` or `Path` is equivalent to the loaded model, in each function that takes a model."""
    folder = data_dir("models") / "grouped_conv_forward_bf16_gfx950"
    problem, model = "conv_forward_bf16_nhwgc_2d_n1_c8_k8_g1_i8x8_f1x1_s1x1_p0x0_d1x1", ckh.load_model(folder)
    for named in (str(folder), folder):
        assert ckh.rank(problem, 3, named) == ckh.rank(problem, 3, model)
        assert ckh.rank_many([problem], 3, named) == ckh.rank_many([problem], 3, model)
        assert ckh.answer(problem, 3, named).known == ckh.answer(problem, 3, model).known
    with pytest.raises(ckh.ModelError):
        ckh.rank(problem, model="nowhere")


def test_a_problem_is_accepted_as_canonical_text() -> None:
    """Texts are equivalent to their problems; any other text is refused."""
    text = GEMM.canonical()
    assert ckh.rank(text, 3) == ckh.rank(GEMM, 3)
    assert ckh.rank_many([f" {text}", GEMM], 3) == ckh.rank_many([GEMM, GEMM], 3)
    assert ckh.answer(text) == ckh.answer(GEMM)
    assert ckh.answer(text).known == ckh.answer(GEMM).known
    for wrong in ("conv_forward", "nothing", ""):
        with pytest.raises(ckh.UsageError):
            ckh.rank(wrong)


TEXT = GEMM.canonical()
VALID: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "rank": ([TEXT], {}),
    "rank_many": ([[TEXT]], {}),
    "answer": ([TEXT], {}),
    "kernel": ([TEXT], {}),
    "run": ([TEXT], {}),
    "explain": (["a_kernel"], {}),
    "load_model": (["nowhere"], {}),
    "problem": ([TEXT], {}),
    "read_dataset": (["nowhere"], {}),
    "evaluate": (["nowhere"], {}),
    "train": (["nowhere", "model"], {}),
    "bench": ([TEXT, "run"], {}),
    "tune": (["resnet50"], {"out": "tuned"}),
}


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        *((name, None, 5) for name in VALID),
        *((name, None, None) for name in VALID if name not in {"problem", "bench"}),
        *((name, "model", 5) for name in ("rank", "rank_many", "kernel", "evaluate")),
        *((name, "kernels", "a_name") for name in ("rank", "rank_many", "kernel")),
        *((name, "arch", 942) for name in ("rank", "rank_many", "kernel", "bench", "tune")),
        *((name, "out", 5) for name in ("train", "bench", "tune")),
        ("rank", "kernels", 5),
        ("evaluate", "model", {}),
        ("rank_many", None, TEXT),
        ("rank_many", None, [5]),
        ("rank_many", None, GEMM),
        ("rank", "top", "3"),
        ("rank", "rule_set", 5),
        ("explain", "problem", 5),
        ("explain", "code_object", 5),
        ("kernel", "timeout_s", "30"),
        ("train", "targets", "tflops"),
        ("train", "targets", 5),
        ("train", "warm_start", 5),
        ("train", "folds", "five"),
        ("train", "learning_rate", "fast"),
        ("bench", "kernels", 5),
        ("bench", "kernels", [5]),
        ("bench", "samples", "many"),
        ("tune", "tp", "eight"),
        ("tune", "budget", 15),
    ],
)
def test_a_wrong_type_is_named(
    name: str, option: str | None, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An argument of another type is a CkhError that is a TypeError too, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    (first, *others), options = VALID[name]
    if option == "out" and others:
        others = [value]
    elif option is None:
        first = value
    else:
        options = {**options, option: value}
    with pytest.raises(TypeError, match="must be") as caught:
        getattr(ckh, name)(first, *others, **options)
    assert isinstance(caught.value, ckh.UsageError)
    assert caught.value.code == "wrong-type"
    assert not any(tmp_path.iterdir())
