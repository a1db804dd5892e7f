"""The header for AMD's dispatcher, compiled with a stand-in for the dispatcher's own, and run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ckh.archs import load_arch
from ckh.cli import run
from ckh.errors import ExitCode
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.models.artifact import load_model
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.ops.grouped_conv.kernel import amd_full_name
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.hostmodels import GEMM as HOST_GEMM
from tests.refusals import expect_values

if TYPE_CHECKING:
    from ckh.ops.grouped_conv.kernel import ConvKernel

ROOT = Path(__file__).parents[2]
STUB = Path(__file__).with_name("dispatcher_stub")
CONV = "grouped_conv_forward_bf16_gfx950"
GEMM = "gemm_universal_bf16_gfx942"
GCC, GXX = (str(shutil.which(name) or "") for name in ("gcc", "g++"))
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not (GCC and GXX), reason="there is no gcc and g++")]
MAIN = """#include <cstdio>
#include "{name}.hpp"
using namespace ck_tile::dispatcher;
int main()
{{
    {dispatcher} dispatcher{registry};
    dispatcher.set_heuristic({heuristic});
    dispatcher.set_strategy({dispatcher}::SelectionStrategy::Heuristic);
    ckh::{name}::Heuristic::Problem p;
    {settings}
    for(const std::string& one : dispatcher.ranked(p)) std::puts(one.c_str());
    std::printf("split %d\\n", ckh::{name}::Heuristic().best_split_k(p));
    try {{ ckh::{name}::Heuristic other("nowhere"); }} catch(const std::runtime_error& e) {{ std::puts(e.what()); }}
}}
"""
CONV_SETTINGS = (
    "p.N = 4; p.C = 64; p.K = 128; p.input_spatial = {1, 56, 56}; p.filter_spatial = {1, 3, 3}; p.stride = {1, 2, 2};"
)
PROBLEM = ConvProblem(
    Direction.FORWARD, n=4, c=64, k=128, g=1, hi=56, wi=56, y=3, x=3, stride_h=2, stride_w=2, pad_h=1, pad_w=1,
    dtype="bf16",
)  # fmt: skip


@pytest.fixture(scope="module")
def gemm_model(host_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The host's model of GEMMs as if it were a GPU's, as no model of a GPU's CK Tile GEMMs ships."""
    folder = tmp_path_factory.mktemp("models") / GEMM
    shutil.copytree(host_models / HOST_GEMM, folder)
    path = folder / "feature_spec.json"
    hardware = load_arch("gfx942").hardware.to_dict()
    spec = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(spec | {"dtype": "bf16", "arch": "gfx942", "hardware": hardware}), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def exported(gemm_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both models in one export, with the C sources compiled."""
    out = tmp_path_factory.mktemp("dispatcher") / "cpp"
    models = ["--model", str(ROOT / "models" / CONV), "--model", str(gemm_model)]
    assert run(["export", *models, "--to", "ck-dispatcher", "--out", str(out)]) == ExitCode.OK
    sources = [str(path) for path in sorted(out.glob("*.c")) if path.name != "example.c"]
    subprocess.run([GCC, "-std=c11", "-O0", "-ffp-contract=off", "-c", *sources], cwd=out, check=True)
    return out


def ran(exported: Path, name: str, dispatcher: str, settings: str, *flags: str) -> list[str]:
    """The lines printed by a program with the header."""
    registry = "(&GroupedConvRegistry::instance())" if name == CONV else ""
    heuristic = (
        f'ckh::{CONV}::Heuristic("models/{CONV}.ckhm", nullptr)' if name == CONV else f"ckh::{name}::heuristic()"
    )
    text = MAIN.format(name=name, dispatcher=dispatcher, registry=registry, settings=settings, heuristic=heuristic)
    return run_program(exported, text, *flags)


def run_program(exported: Path, text: str, *flags: str) -> list[str]:
    """The lines printed by a program beside the export."""
    (exported / "main.cpp").write_text(text)
    objects = [str(path) for path in sorted(exported.glob("*.o"))]
    warnings = ["-Wall", "-Wextra", "-Wshadow", "-Werror"]
    command = [GXX, "-std=c++17", *warnings, *flags, f"-I{STUB}", "-I.", "main.cpp", *objects, "-lm", "-o", "program"]
    subprocess.run(command, cwd=exported, check=True)
    done = subprocess.run(["./program"], cwd=exported, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("older", [False, True])
def test_convolutions_are_ranked_as_in_python(exported: Path, older: bool) -> None:
    """All applicable kernels in Python's order, by AMD's names, with problems of newer and older dispatchers."""
    padding = (
        "p.padding = {0, 1, 1};" if older else 'p.padding_left = p.padding_right = {0, 1, 1}; p.dtype_in = "bf16";'
    )
    flags = ["-DOLDER"] if older else []
    *names, split, error = ran(exported, CONV, "GroupedConvDispatcher", CONV_SETTINGS + padding, *flags)
    ranking = ranking_of(PROBLEM, load_model(ROOT / "models" / CONV))
    wanted = dict.fromkeys(amd_full_name(candidate.kernel) for candidate in ranking.ranked)
    assert names == list(wanted)
    assert len(names) > 10
    assert split == "split 1"
    expect_values(error, "ckh:", CONV, "nowhere")


def test_the_example_in_docs_compiles_and_ranks(exported: Path) -> None:
    """With the export in a folder ckh_cpp of the working directory, it selects Python's first kernel."""
    block = (ROOT / "docs" / "consumers.md").read_text(encoding="utf-8").partition("```cpp\n")[2].partition("```")[0]
    include, _, lines = block.partition("\n")
    problem = f"ckh::{CONV}::Heuristic::Problem p; {CONV_SETTINGS} p.padding_left = p.padding_right = {{0, 1, 1}};"
    (exported / "ckh_cpp").symlink_to(exported)
    first = "std::puts(dispatcher.select_kernel(p)->name().c_str());"
    result = best_first()
    made = "".join(declared(kernel) for kernel in result if is_declarable(kernel))
    text = f"{include}\n#include <cstdio>\nint main() {{\n{lines}{problem}\n{SET}{made}{REGISTER}{first}\n}}\n"
    best = next(kernel for kernel in result if is_declarable(kernel))
    assert run_program(exported, text) == [stem(best)]


@cache
def best_first() -> list[ConvKernel]:
    """The kernels for the problem, in Python's order."""
    ranked = ranking_of(PROBLEM, load_model(ROOT / "models" / CONV)).ranked
    return [candidate.kernel for candidate in ranked]


SET = "GroupedConvKernelSet set;"
REGISTER = "GroupedConvRegistry::instance().register_set(set);"


def is_declarable(kernel: ConvKernel) -> bool:
    """True if a declaration determines the kernel: no split image, and buffers as required."""
    return not kernel.split_image and kernel.double_smem_buffer == (kernel.pipeline == "compv4")


def stem(kernel: ConvKernel) -> str:
    """The name of the declaration, which ends at the warp tile."""
    return re.sub("(_dsb|_large_tensor)+$", "", amd_full_name(kernel))


def declared(kernel: ConvKernel) -> str:
    """A C++ statement that declares a kernel."""
    tile, wave, warp = (
        f"{getattr(kernel, f'{what}_m')}, {getattr(kernel, f'{what}_n')}, {getattr(kernel, f'{what}_k')}"
        for what in ("tile", "wave", "warp_tile")
    )
    return (
        f'set.add(GroupedConvSignature().dtype("{kernel.dtype}").layout("{kernel.layout}"), GroupedConvAlgorithm()'
        f'.tile({tile}).wave({wave}).warp({warp}).pipeline("{kernel.pipeline}").scheduler("{kernel.scheduler}")'
        f'.double_smem_buffer({str(kernel.double_smem_buffer).lower()}), "gfx950");\n'
    )


def selected(exported: Path, registered: str) -> list[str]:
    """The kernel that AMD's dispatcher selects of registered ones, the number of its names, and what is left out."""
    text = f"""#include <cstdio>
#include "{CONV}.hpp"
using namespace ck_tile::dispatcher;
int main()
{{
    {SET}
    {registered}
    GroupedConvDispatcher dispatcher(&GroupedConvRegistry::instance());
    ckh::{CONV}::Heuristic heuristic;
    dispatcher.set_heuristic(heuristic);
    dispatcher.set_strategy(GroupedConvDispatcher::SelectionStrategy::Heuristic);
    ckh::{CONV}::Heuristic::Problem p;
    {CONV_SETTINGS} p.padding_left = p.padding_right = {{0, 1, 1}};
    std::puts(dispatcher.select_kernel(p)->name().c_str());
    for(const std::string& one : heuristic(p)) std::puts(one.c_str());
    for(const std::string& one : heuristic.left_out()) std::puts(("left out " + one).c_str());
}}
"""
    return run_program(exported, text)


@pytest.mark.parametrize("pipeline", ["compv3", "compv4", "mem"])
def test_each_kernel_declaration_is_matched(exported: Path, pipeline: str) -> None:
    """Including kernels of compv4, whose full names end in _dsb, which declarations omit; in Python's order."""
    result = best_first()
    some = [kernel for kernel in result if is_declarable(kernel) and kernel.pipeline == pipeline]
    assert bool(some) == (pipeline in {kernel.pipeline for kernel in result})
    if some:
        lines = selected(exported, "".join(map(declared, some)) + REGISTER)
        assert lines == [stem(some[0]), *map(stem, some)]


def test_a_name_never_matches_a_longer_one(exported: Path) -> None:
    """If _large_tensor of the best kernel is registered too, the next kernel is selected instead."""
    result = best_first()
    first, second = [kernel for kernel in result if is_declarable(kernel) and kernel.pipeline == "compv3"][:2]
    key = "GroupedConvKernelKey key; key.large_tensor = true; "
    name = f'"{stem(first)}_large_tensor"'
    made = f"std::make_shared<GroupedConvKernelInstance>(key, {name}, nullptr)"
    longer = f"{key}GroupedConvRegistry::instance().register_kernel(key, {made});"
    chosen, *lines = selected(exported, declared(first) + declared(second) + REGISTER + longer)
    names = [line for line in lines if not line.startswith("left out")]
    assert stem(first) not in names
    assert chosen == names[0] != stem(first)
    assert f"left out {stem(first)}" in lines


def test_problems_outside_the_model_get_no_names(exported: Path) -> None:
    """Other element types, directions or splits, unequal paddings and invalid sizes are left to the dispatcher."""
    padding = "p.padding_left = p.padding_right = {0, 1, 1};"
    outside = ('p.dtype_in = "fp16";', "p.op = GroupedConvOp::BackwardData;", "p.split_k = 4;", "p.N = -1;")
    settings = [padding, "p.padding_left = {0, 1, 1};", *(padding + item for item in outside)]
    blocks = "".join(
        f'{{ ckh::{CONV}::Heuristic::Problem p; {CONV_SETTINGS} {item} std::printf("%zu\\n", heuristic(p).size()); }}\n'
        for item in settings
    )
    text = f"""#include <cstdio>
#include "{CONV}.hpp"
using namespace ck_tile::dispatcher;
int main()
{{
    ckh::{CONV}::Heuristic heuristic("models/{CONV}.ckhm", nullptr);
    {blocks}
}}
"""
    inside, *others = run_program(exported, text)
    assert int(inside) > 10
    assert others == ["0"] * 5


def test_gemms_are_ranked_as_in_python(exported: Path, gemm_model: Path) -> None:
    """Names are the dispatcher's identifiers: without the operation, beginning with the element type."""
    *names, split, _ = ran(exported, GEMM, "Dispatcher", "p = Problem(64, 256, 512);")
    ranking = ranking_of(GemmProblem(64, 256, 512, "bf16"), load_model(gemm_model))
    assert names == [candidate.name.removeprefix("gemm_universal_") for candidate in ranking.ranked]
    assert names[0].startswith("bf16_rcr_")
    assert split == "split 1"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("aiter_moe_gfx942", "ck-dispatcher has no aiter_moe"),
        (HOST_GEMM, "is for CPUs, and ck-dispatcher runs kernels of GPUs"),
    ],
)
def test_models_of_other_kernels_are_refused(
    name: str, why: str, host_models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The dispatcher has neither AITER's nor host kernels; nothing is written."""
    folder = host_models if name == HOST_GEMM else ROOT / "models"
    args = ["--model", str(folder / name), "--out", str(tmp_path / "out")]
    assert run(["export", *args, "--to", "ck-dispatcher"]) == ExitCode.USAGE
    assert why in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
