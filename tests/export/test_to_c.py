"""The C export ranks as Python does, to the last kernel, and refuses invalid input."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh.errors import NoKernelError, UsageError
from ckh.export.groups import DIRECTIONS, DTYPES
from ckh.export.to_c import c_files
from ckh.kernels.pools import Pools
from ckh.kernels.table import KernelTable
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.models.artifact import load_model
from ckh.ops import operation
from ckh.ops.gemm_universal import operation as gemm_operation
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernel import kernel_name as gemm_name
from ckh.ops.gemm_universal.kernel import parse_kernel_name as parse_gemm
from ckh.ops.gemm_universal.kernels.pool import POOLS
from ckh.ops.gemm_universal.kernels.problem_rules import GEMM_RULES
from ckh.ops.grouped_conv.consumers import KIND
from ckh.ops.grouped_conv.features import CORE_NAMES
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from ckh.ranking.layout import HEADER, VERSION
from tests.hostmodels import FORWARD, GEMM
from tests.learn.conftest import amd_model, saved
from tests.refusals import expect_refusal

from .conftest import (
    COMPILERS,
    HERE,
    STRICT,
    Found,
    ask,
    compile_program,
    error_names,
    export,
    gemm_model,
    line,
    line_of,
    run,
)
from .problems import any_conv, conv_problems, gemm_problems

if TYPE_CHECKING:
    from ckh.learn.models.artifact import Model

LAYOUTS = next(code.values for code in KIND.codes if code.name == "layout")
HARNESS = HERE / "harness.c"
PAIRS = 10_000


@pytest.fixture(scope="module")
def shipped(host_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of a convolution model and a GEMM model."""
    return export(
        tmp_path_factory.mktemp("shipped") / "c", [load_model(host_models / name) for name in (FORWARD, GEMM)]
    )


@pytest.fixture(scope="module")
def harness(shipped: Path) -> Path:
    """The program that ranks with them."""
    return compile_program(shipped, HARNESS, "-O0")


@cache
def _name(op: str, kernel: Any) -> str:
    return operation(op).kernels.name(kernel)


def expected(problem: Any, model: Model) -> Found:
    """Python's answer."""
    try:
        ranked = ranking_of(problem, model).unpadded.ranked  # C pads nothing
    except NoKernelError:
        ranked = []
    if not ranked:
        return Found("CKH_ERROR_NO_KERNEL", [], [])
    names = [_name(model.spec.op.name, candidate.kernel) for candidate in ranked]
    nan = float("nan")
    told = [
        (candidate.score, nan if candidate.tflops is None else candidate.tflops, candidate.latency_ms or nan)
        for candidate in ranked
    ]
    return Found("CKH_OK", names, told)


def assert_same(founds: list[Found], problems: list[Any], model: Model) -> int:
    """Compare with Python, and return the number of compared kernels."""
    assert len(founds) == len(problems)
    pairs = 0
    for item, problem in zip(founds, problems, strict=True):
        wanted = expected(problem, model)
        assert item.error == wanted.error, problem
        assert item.kernels == wanted.kernels, problem
        if wanted.kernels:
            np.testing.assert_allclose(item.numbers, wanted.numbers, rtol=1e-12, atol=0)
        pairs += len(wanted.kernels)
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize("name", [FORWARD, GEMM])
@pytest.mark.parametrize("is_cpp", [False, True], ids=["c11", "c++17"])
@pytest.mark.parametrize("pair", COMPILERS, ids=lambda pair: pair[0])
def test_ranks_like_python(host_models: Path, shipped: Path, pair: tuple[str, str], is_cpp: bool, name: str) -> None:
    """Ten thousand scores and their order, with each compiler, and warnings as errors."""
    model = load_model(host_models / name)
    random = Random(f"{pair} {is_cpp}")
    if name == FORWARD:
        problems: list[Any] = conv_problems(random, 40, (Direction.FORWARD,), "fp32")
    else:
        problems = gemm_problems(random, 60, "fp32")
    program = compile_program(shipped, HARNESS, "-O1", *STRICT, pair=pair, is_cpp=is_cpp)
    result = ask(program, shipped / "models" / f"{name}.ckhm", [line_of(problem) for problem in problems])
    assert assert_same(result, problems, model) >= PAIRS


@pytest.mark.slow
def test_other_models_rank_like_python(tmp_path: Path, harness: Path) -> None:
    """A model of AMD's for a GPU: all directions, kernels refused by vectors and loops, and log TFLOPS."""
    amd_model(tmp_path / "any", CORE_NAMES, arch="gfx942", hardware=None)
    model = load_model(tmp_path / "any")
    export(tmp_path / "c", [model])
    problems = conv_problems(Random(3), 60, tuple(Direction), "bf16")
    result = ask(harness, tmp_path / "c" / "models" / "any.ckhm", list(map(line_of, problems)))
    assert_same(result, problems, model)
    refused = sum(item.error == "CKH_ERROR_NO_KERNEL" for item in result)
    assert 0 < refused < len(result)
    assert {len(item.kernels) for item in result} == {0, 64, 96, 176, 196, 208}


@pytest.mark.slow
@pytest.mark.parametrize("tile", [{"tile_m", "tile_n", "tile_k"}, {"tile_m", "pad_n"}, set()], ids=len)
def test_pools_factored_differently(
    tmp_path: Path, tile: set[str], harness: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Features of tile, variant and problem together, and pools of several blocks, give the same results."""
    model = gemm_model(tmp_path / "small")
    problems = gemm_problems(Random(9), 12, "fp32")
    wanted = [expected(problem, model) for problem in problems]
    monkeypatch.setattr("ckh.ranking.pool.split", lambda codes, *_: frozenset(tile & codes.keys()))
    monkeypatch.setattr("ckh.ranking.model_file.BLOCK", 3)
    folder = export(tmp_path / "c", [model])
    result = ask(harness, folder / "models" / "small.ckhm", list(map(line_of, problems)))
    assert [item.kernels for item in result] == [item.kernels for item in wanted]
    for ours, python in zip(result, wanted, strict=True):
        np.testing.assert_allclose(ours.numbers, python.numbers, rtol=1e-12, atol=0)


@pytest.mark.slow
def test_gemms_of_a_gpu_rank_like_python(tmp_path: Path, harness: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules on padding, vectors and split-K, with every 61st kernel of gfx942."""

    def every_61st(*group: Any) -> KernelTable[GemmKernel]:
        return KernelTable.of(GemmKernel, POOLS.of(*group)[::61])

    thin = Pools(GemmKernel, GEMM_RULES, every_61st, lambda item: (item.dtype, item.layout), parse_gemm, gemm_name)
    monkeypatch.setattr(gemm_operation, "POOLS", thin)
    monkeypatch.setattr("ckh.ops.gemm_universal.consumers.POOLS", thin)
    model = gemm_model(tmp_path / "small", "gfx942", "fp16")
    folder = export(tmp_path / "c", [model])
    problems = gemm_problems(Random(10), 60, "fp16", most_split=8)
    result = ask(harness, folder / "models" / "small.ckhm", list(map(line_of, problems)))
    assert assert_same(result, problems, model) >= PAIRS
    assert len({len(item.kernels) for item in result}) >= 3


@pytest.mark.slow
def test_an_omitted_layout_has_the_operations_default(harness: Path, shipped: Path) -> None:
    """0 means NHWGC or NDHWGC."""
    problem = conv_problems(Random(3), 1, (Direction.FORWARD,), "fp32")[0]
    numbers = line_of(problem).split()
    both = ask(
        harness, shipped / "models" / f"{FORWARD}.ckhm", [line_of(problem), " ".join([*numbers[:3], "0", *numbers[4:]])]
    )
    assert both[0].kernels == both[1].kernels != []


@pytest.mark.slow
def test_no_speed_is_returned_far_out_of_distribution(host_models: Path, harness: Path, shipped: Path) -> None:
    """Up to 8 times the model's largest threshold there is a time, beyond it none, as in Python."""
    model = load_model(host_models / FORWARD)
    most = int(8 * max(model.reach["n"], 1.0))
    problems = [replace(conv_problems(Random(3), 1, (Direction.FORWARD,), "fp32")[0], n=n) for n in (most, most + 1)]
    result = ask(harness, shipped / "models" / f"{FORWARD}.ckhm", list(map(line_of, problems)))
    assert assert_same(result, problems, model)
    assert [all(np.isnan(numbers[1:]).all() for numbers in item.numbers) for item in result] == [False, True]


@pytest.mark.slow
def test_invalid_sizes_are_refused_like_in_python(host_models: Path, harness: Path, shipped: Path) -> None:
    """An error exactly where Python has one, or where products of sizes exceed 64 bits."""
    random, model = Random(4), load_model(host_models / FORWARD)
    tried = [any_conv(random) for _ in range(150)]
    codes = [0, DTYPES.index("fp32"), 0]
    lines = [line("conv", *codes, item["ndim"], *(item[name] for name in KIND.sizes.values())) for item in tried]
    result = ask(harness, shipped / "models" / f"{FORWARD}.ckhm", lines)
    errors = 0
    for item, sizes in zip(result, tried, strict=True):
        try:
            problem = ConvProblem(**sizes)
        except UsageError:
            assert item.error == "CKH_ERROR_SIZE", sizes
            errors += 1
            continue
        if problem.flops < 2**62:
            assert item.kernels == expected(problem, model).kernels, sizes
        else:
            assert item.error in {"CKH_OK", "CKH_ERROR_SIZE"}
    assert 40 < errors < 110


@pytest.mark.slow
def test_mismatching_enums_and_models(harness: Path, shipped: Path) -> None:
    """Unknown codes are one error, codes that do not match the model another."""
    sizes = line_of(conv_problems(Random(5), 1, (Direction.FORWARD,), "fp32")[0]).split()[5:]
    kinds = [
        ((0, 1, 0, 2), "CKH_OK"),
        ((-1, 1, 0, 2), "CKH_ERROR_ENUM"),
        ((len(DIRECTIONS), 1, 0, 2), "CKH_ERROR_ENUM"),
        ((0, len(DTYPES), 0, 2), "CKH_ERROR_ENUM"),
        ((0, 1, len(LAYOUTS), 2), "CKH_ERROR_ENUM"),
        ((0, 1, 0, 1), "CKH_ERROR_ENUM"),
        ((0, 1, 0, 4), "CKH_ERROR_ENUM"),
        ((1, 1, 0, 2), "CKH_ERROR_OTHER"),
        ((0, DTYPES.index("fp16"), 0, 2), "CKH_ERROR_OTHER"),
        ((0, 1, LAYOUTS.index("nchw"), 2), "CKH_ERROR_OTHER"),
    ]
    two_dimensional = [1, 64, 64, 1, 1, 28, 28, 1, 3, 3, 1, 1, 1, 0, 1, 1, 1, 1, 1]
    assert len(sizes) == len(two_dimensional)
    lines = [line("conv", *codes, *two_dimensional) for codes, _ in kinds]
    lines += [line("gemm", 1, 0, 64, 64, 64, 1), line("gemm", 1, 4, 64, 64, 64, 1)]
    result = ask(harness, shipped / "models" / f"{FORWARD}.ckhm", lines)
    assert [item.error for item in result] == [error for _, error in kinds] + ["CKH_ERROR_OTHER", "CKH_ERROR_ENUM"]


@pytest.mark.slow
def test_threads_give_the_single_threaded_result(shipped: Path) -> None:
    """Six threads rank with one model, under the thread sanitizer if available."""
    problems = conv_problems(Random(6), 12, (Direction.FORWARD,), "fp32")
    program = compile_program(shipped, HARNESS, "-O0", "-g", "-fsanitize=thread")
    lines = "\n".join(map(line_of, problems))
    out = run([program, shipped / "models" / f"{FORWARD}.ckhm", "6"], input=lines)
    assert out.splitlines()[-1] == "differing 0"


@pytest.fixture(scope="module")
def damage_program(shipped: Path) -> Path:
    """The program damage.c with exported sources, which are the same for any model, under sanitizers."""
    flags = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")  # -O1 takes four times as long
    return compile_program(shipped, HERE / "damage.c", *flags)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["host", "amd"])
def test_damaged_files_are_refused(tmp_path: Path, kind: str, damage_program: Path) -> None:
    """A hundred damaged and truncated files give errors under sanitizers, and no read out of bounds."""
    if kind == "host":
        saved(tmp_path / "model")
    else:
        amd_model(tmp_path / "model", CORE_NAMES, arch="gfx942", hardware=None)
    folder = export(tmp_path / "c", [load_model(tmp_path / "model")])
    rows = run([damage_program, folder / "models" / "model.ckhm", "100", "7"]).splitlines()
    opened = {int(error): int(count) for error, count, _ in map(str.split, rows)}
    ranked = {int(error): int(count) for error, _, count in map(str.split, rows)}
    names = {name: number for number, name in error_names(folder / "ckh.h").items()}
    assert opened[names["CKH_ERROR_DAMAGED"]] > 50
    assert ranked[names["CKH_OK"]] > opened[names["CKH_OK"]] > 1  # what damages values alone
    assert sum(opened.values()) == 100


@pytest.mark.slow
def test_files_of_another_format_are_refused(tmp_path: Path, harness: Path, shipped: Path) -> None:
    """A missing file, a folder, an empty file, and a model of another version each have their error."""
    (tmp_path / "empty").write_bytes(b"")
    other = tmp_path / "other.ckhm"
    other.write_bytes(_of_version((shipped / "models" / f"{FORWARD}.ckhm").read_bytes(), VERSION + 1))
    names = error_names(shipped / "ckh.h")
    opened = {}
    for path in (tmp_path / "missing", tmp_path, tmp_path / "empty", other, Path("embedded:none")):
        opened[path.name] = names[int(run([harness, path], input="").split()[1])]
    assert next(iter(opened.values())) == "CKH_ERROR_FILE"
    assert list(opened.values())[2:] == ["CKH_ERROR_DAMAGED", "CKH_ERROR_VERSION", "CKH_ERROR_NO_MODEL"]
    assert opened[tmp_path.name] in {"CKH_ERROR_FILE", "CKH_ERROR_NO_MEMORY"}


def _of_version(content: bytes, version: int) -> bytes:
    magic, order, _, *rest = HEADER.unpack_from(content)
    return HEADER.pack(magic, order, version, *rest) + content[HEADER.size :]


@pytest.mark.slow
def test_an_export_opens_any_model_of_its_version(tmp_path: Path, harness: Path) -> None:
    """Sources do not depend on the exported models."""
    saved(tmp_path / "small")
    model = load_model(tmp_path / "small")
    folder = export(tmp_path / "other", [model])
    problems = conv_problems(Random(11), 5, (Direction.FORWARD,), "fp32")
    result = ask(harness, folder / "models" / "small.ckhm", list(map(line_of, problems)))
    assert assert_same(result, problems, model) == 5 * 300
    for source in folder.glob("ckh*"):
        assert source.read_bytes() == (harness.parents[1] / source.name).read_bytes()


@pytest.mark.slow
def test_embedded_models(tmp_path: Path) -> None:
    """A model embedded in the program ranks the same, without a file."""
    saved(tmp_path / "small")
    model = load_model(tmp_path / "small")
    folder = export(tmp_path / "c", [model], embed=True)
    assert not (folder / "models").exists()
    program = compile_program(folder, HARNESS, "-O0", *STRICT)
    problems = conv_problems(Random(8), 5, (Direction.FORWARD,), "fp32")
    assert assert_same(ask(program, "embedded:small", list(map(line_of, problems))), problems, model) == 5 * 300


@pytest.mark.slow
def test_cmake_builds_the_example(tmp_path: Path) -> None:
    """`cmake` builds library and example, which prints the five best kernels."""
    if shutil.which("cmake") is None or not COMPILERS:
        pytest.skip("no cmake")
    saved(tmp_path / "small")
    model = load_model(tmp_path / "small")
    folder = export(tmp_path / "c", [model])
    run(["cmake", "-S", folder, "-B", tmp_path / "build", "-DCMAKE_BUILD_TYPE=Debug"])  # whose compilation is quick
    run(["cmake", "--build", tmp_path / "build"])
    out = run([tmp_path / "build" / "example"], cwd=folder).splitlines()
    problem = ConvProblem(Direction.FORWARD, 16, 256, 256, 1, 28, 28, 3, 3, pad_h=1, pad_w=1)
    assert [row.split()[-1] for row in out] == expected(problem, model).kernels[:5]
    assert len((folder / "example.c").read_text().splitlines()) < 25


def test_models_with_the_same_name_are_refused(tmp_path: Path) -> None:
    """Embedded models are distinguished by name."""
    saved(tmp_path / "a" / "same")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with expect_refusal(UsageError, "duplicate-name", "same"):
        c_files([load_model(tmp_path / name / "same") for name in "ab"], embed=False)


def test_exports_are_reproducible(tmp_path: Path) -> None:
    """The same model gives the same bytes."""
    saved(tmp_path / "small")
    first, second = (c_files([load_model(tmp_path / "small")], embed=True)[0] for _ in range(2))
    assert first == second


def test_a_formula_that_cannot_be_exported_is_named(tmp_path: Path) -> None:
    """A feature that branches on sizes in Python is refused by name."""
    from ckh.errors import ModelError
    from ckh.features.engine import Feature

    saved(tmp_path / "small")
    model = load_model(tmp_path / "small")
    engine = model.spec.engine
    used = model.spec.feature_names[model.packed_forest("rank").families[0, 0]]
    odd = Feature(used, "", lambda c: c["N"] if c["N"] > 1 else c["C"])
    changed = replace(engine, features=tuple(odd if f.name == used else f for f in engine.features))
    op = replace(model.spec.op, training=replace(model.spec.op.training, engine=changed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ckh.learn.models.spec.operation", lambda _: op)
        with expect_refusal(ModelError, "bad-formula", used):
            c_files([model], embed=False)
