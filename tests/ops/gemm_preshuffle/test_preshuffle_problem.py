"""Problems with a shuffled B: identity, refusals, sets, kernels, rules and pools."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.bench.planning.registry import read_registry
from ckh.cli import run
from ckh.data.dataset import read_dataset
from ckh.errors import DataError, ExitCode
from ckh.ops import operation, operation_of
from ckh.ops.aiter_gemm.kernel import kernel_pool
from ckh.ops.aiter_gemm.problem import CKTILE
from ckh.ops.base import Encoding
from ckh.ops.gemm_preshuffle.kernel_rules import (
    FAMILY,
    POOLS,
    PRESHUFFLE_RULES,
    parse_preshuffle_kernel,
)
from ckh.ops.gemm_preshuffle.operation import OPERATION
from ckh.ops.gemm_preshuffle.problem import DTYPES, GemmPreshuffleProblem
from ckh.ops.gemm_universal.features import GEMM_UNIVERSAL
from ckh.ops.gemm_universal.kernel import kernel_name
from tests.refusals import expect_refusal, has_values

if TYPE_CHECKING:
    from pathlib import Path

GFX942, GFX950 = load_arch("gfx942"), load_arch("gfx950")
GROUP = ("fp16", "rcr", False)
NAME = "fp16_rcr_preshufflev2_cshuffle_intrawave_False_False_False_False_64x64x64_2x2x1_16x16x32"
PLAIN = parse_preshuffle_kernel(f"gemm_preshuffle_{NAME}")
PERMUTED = parse_preshuffle_kernel(f"gemm_preshuffle_permute_n_{NAME}")


@pytest.mark.parametrize("order", ["16x16", "32x8", "16x32", "16x16p2x4", "32x8p1x2"])
def test_texts_hold_the_identity(order: str) -> None:
    """A problem is parsed from its text, by the operation with the longest matching prefix."""
    problem = GemmPreshuffleProblem(16, 4096, 512, "fp8", b_order=order)
    assert problem.canonical() == f"gemm_preshuffle_fp8_rcr_m16_n4096_k512_b{order}"
    assert GemmPreshuffleProblem.parsed(problem.canonical()) == problem
    assert str(problem.stored_order) == order
    assert problem.permute_n is ("p" in order)
    assert operation_of(problem.canonical()).name == "gemm_preshuffle"


@pytest.mark.parametrize("kernel", [PLAIN, PERMUTED])
def test_names_round_trip(kernel: Any) -> None:
    """A permuted kernel has another beginning; AMD's names, with the scheduler `default`, do not say which it is."""
    name = kernel_name(kernel)
    assert parse_preshuffle_kernel(name) == kernel
    direct = name.replace("_cshuffle_", "_default_")
    assert parse_preshuffle_kernel(direct) == replace(kernel, epilogue="default")
    short = parse_preshuffle_kernel("gemm_preshuffle_fp16_rcr_64x64x64_preshufflev2_intrawave")
    assert (bool(short.missing), short.b_order) == (True, "")
    amds = (name.replace("_intrawave_", "_default_"), direct.replace("_intrawave_", "_default_"))
    for wrong in (
        *amds,
        "gemm_preshuffle_fp16_rcr_64x64x64_preshufflev2_default",
        name.replace("preshufflev2", "shufflev2"),
    ):
        with expect_refusal(DataError, "bad-kernel", wrong):
            parse_preshuffle_kernel(wrong)


@pytest.mark.parametrize(
    ("dtype", "instruction", "order"),
    [
        ("fp8", "16x16x128 flatmm", "16x16"),
        ("fp16", "16x16x16", "16x8"),
        ("bf16", "16x16x32", "16x16"),
        ("fp16", "32x32x8", "32x8"),
        ("fp16", "32x32x16", "32x16"),
        ("fp8", "16x16x64", "16x16"),
        ("bf8", "16x16x32", "16x8"),
        ("fp8", "32x32x16", "32x8"),
        ("fp8", "16x16x128", "16x32"),
    ],
)
def test_orders_follow_from_instructions(dtype: str, instruction: str, order: str) -> None:
    """A lane has a quarter of K of 16 columns, and half of K of 32; with flatmm it reads 16 bytes of it at once."""
    instruction, *pipeline = instruction.split()
    for kernel, more in ((PLAIN, ""), (PERMUTED, "p2x2")):
        other = replace(kernel, dtype=dtype, pipeline=pipeline[0] if pipeline else "preshufflev2")
        named = kernel_name(other).replace("16x16x32", instruction)
        expected = more if instruction.startswith("16") else more.replace("x2", "x1")
        assert parse_preshuffle_kernel(named).b_order == order + expected


# Kernels that AMD's tile engine lists with its default configuration, and the same without `permute_n`, by columns and
# K of the instruction: `gemm_preshuffle_instance_builder.py`, GPU gfx942. Of permuted ones it lists the default
# epilogue too, which stores their columns in the wrong order.
LISTED = {
    ("fp16", True): {(16, 32): 16, (16, 16): 11, (32, 16): 4, (32, 8): 1},
    ("fp8", True): {(16, 64): 56, (16, 32): 43, (32, 32): 24, (32, 16): 13},
    ("fp16", False): {(16, 32): 21, (16, 16): 16, (32, 16): 11, (32, 8): 4},
    ("fp8", False): {(16, 64): 69, (16, 32): 56, (32, 32): 43, (32, 16): 24},
}


@pytest.mark.parametrize(("dtype", "permute_n"), LISTED)
def test_pools_are_the_tile_engines(dtype: str, *, permute_n: bool) -> None:
    """Each geometry persistent or not, and unless permuted with either epilogue."""
    pool = [kernel for kernel in POOLS.of(GFX942, dtype, "rcr", permute_n) if kernel.pipeline == "preshufflev2"]
    geometries = {(kernel.tile, kernel.wave, kernel.warp_tile) for kernel in pool}
    assert Counter(warp_tile[1:] for *_, warp_tile in geometries) == LISTED[dtype, permute_n]
    assert len(pool) == len(geometries) * (2 if permute_n else 4)
    assert POOLS.of(load_arch("gfx1201"), dtype, "rcr", permute_n) == ()


@pytest.mark.parametrize(("dtype", "instructions"), [("fp16", ("16x32", "32x16")), ("fp8", ("16x64", "32x32"))])
def test_pools_have_flatmm(dtype: str, instructions: tuple[str, ...]) -> None:
    """With its waves along N, whose lanes read 16 bytes, also with fewer rows than the tile engine's."""
    pool = [kernel for kernel in POOLS.of(GFX942, dtype, *GROUP[1:]) if kernel.pipeline == "flatmm"]
    assert {f"{kernel.warp_tile_n}x{kernel.warp_tile_k}" for kernel in pool} == set(instructions)
    assert {kernel.wave for kernel in pool} == {(1, 4, 1)}
    assert {kernel.b_order for kernel in pool} == {"16x16", "32x16"}
    assert {(kernel.epilogue, kernel.persistent) for kernel in pool} == {("cshuffle", False)}
    assert {16, 32, 64, 128} <= {kernel.tile_m for kernel in pool}
    assert all(2 * kernel.tile_m * kernel.tile_k * (2 if dtype == "fp16" else 1) <= 65536 for kernel in pool)


@pytest.mark.parametrize("arch", [GFX942, GFX950])
def test_pools_have_aiters_flatmm(arch: Any) -> None:
    """All geometries in its list of row-wise fp8 GEMMs with CK Tile, of one or an even number of instructions along M.

    Some fill the LDS of gfx942 to the last byte.
    """
    listed = {
        (kernel.tile_m, kernel.tile_n, kernel.tile_k, kernel.mfma_m, kernel.mfma_n, kernel.wave_m, kernel.wave_n)
        for kernel in kernel_pool("a8w8_bpreshuffle", CKTILE, arch.name)
        if kernel.tile_m == kernel.mfma_m or kernel.tile_m // kernel.mfma_m % 2 == 0
    }
    pool = (kernel for kernel in POOLS.of(arch, "fp8", *GROUP[1:]) if kernel.pipeline == "flatmm")
    ours = {(*kernel.tile, *kernel.warp_tile[:2], *kernel.wave[:2]) for kernel in pool}
    assert len(listed) > 45
    assert listed <= ours


@pytest.mark.parametrize("dtype", ["fp16", "fp8"])
def test_the_searched_space_contains_the_pool(dtype: str) -> None:
    """A search may propose all of it, and smaller steps along K."""
    problem = GemmPreshuffleProblem(256, 256, 256, dtype)
    product = FAMILY.searched.product(problem, GFX942)
    pool = POOLS.of(GFX942, dtype, *GROUP[1:])
    assert [product.kernel(*item) for item in zip(*product.numbers_of(pool), strict=True)] == list(pool)


@pytest.mark.parametrize(
    ("changes", "values"),
    [
        ({"pipeline": "compv3"}, ("compv3", "preshufflev2")),
        ({"layout": "rrr"}, ("rcr", "rrr")),
        ({"dtype": "int8"}, ("int8",)),
        ({"pad_n": True}, ("padded",)),
        ({"vector_a": 4}, ("native",)),
        ({"tile_m": 32}, ("tile_m 32", "64")),
        ({"wave_m": 1}, ("1x2x1",)),
        ({"tile_k": 192}, ("192", "24", "64")),
        ({"wave_m": 4, "wave_n": 1, "warp_tile_k": 16}, ("1 x 16 x 16",)),
        ({"warp_tile_m": 64, "warp_tile_n": 4, "warp_tile_k": 16}, ("16 or 32", "not 4")),
        ({"pipeline": "flatmm"}, ("flatmm", "2")),
        ({"pipeline": "flatmm", "wave_m": 1, "wave_n": 4, "persistent": True}, ("persistent",)),
        ({"pipeline": "flatmm", "wave_m": 1, "wave_n": 4, "epilogue": "default"}, ("default",)),
        ({"pipeline": "flatmm", "wave_m": 1, "wave_n": 4, "warp_tile_k": 16}, ("1 x 16 x 16",)),
        ({"pipeline": "flatmm", "tile_m": 256, "tile_k": 128, "wave_m": 1, "wave_n": 4}, ("131072", "65536")),
        (
            {"pipeline": "flatmm", "tile_n": 128, "wave_m": 1, "wave_n": 4}
            | {"tile_m": 256, "warp_tile_m": 32, "warp_tile_n": 32, "warp_tile_k": 16},
            ("65792", "65536"),
        ),
    ],
)
def test_kernels_that_cannot_be_built_are_refused(changes: dict[str, Any], values: tuple[str, ...]) -> None:
    """By the architecture's rules, with the values."""
    assert PRESHUFFLE_RULES.of_arch(PLAIN, GFX942) == ()
    reasons = PRESHUFFLE_RULES.of_arch(replace(PLAIN, **changes), GFX942)
    assert any(has_values(reason, *values) for reason in reasons), reasons


@pytest.mark.parametrize(("changes", "value"), [({"epilogue": "default"}, "default"), ({"tile_n": 96}, "3")])
def test_permuted_kernels_need_an_epilogue_that_permutes(changes: dict[str, Any], value: str) -> None:
    """The default epilogue does not, and columns are permuted in pairs."""
    assert PRESHUFFLE_RULES.of_arch(PERMUTED, GFX942) == ()
    assert any(has_values(item, value) for item in PRESHUFFLE_RULES.of_arch(replace(PERMUTED, **changes), GFX942))
    assert PRESHUFFLE_RULES.of_arch(replace(PLAIN, **changes), GFX942) == ()


def test_waves_of_32_lanes_and_the_host_have_none() -> None:
    """The order of B is that of 64 lanes."""
    for name, value in (("gfx1201", "32"), ("host", "host")):
        assert any(has_values(item, value) for item in PRESHUFFLE_RULES.of_arch(PLAIN, load_arch(name)))


def test_kernels_of_another_order_do_not_apply() -> None:
    """A kernel applies to problems in its order whose N and K are whole tiles, whatever M."""
    problem = GemmPreshuffleProblem(7, 256, 256, "fp16")
    assert PRESHUFFLE_RULES.check(PLAIN, GFX942, problem) == []
    assert OPERATION.kernels.mismatch(PLAIN, problem) == ""
    other = replace(problem, b_order="16x8")
    assert any(has_values(item, "16x16x32", "16x16", "16x8") for item in PRESHUFFLE_RULES.check(PLAIN, GFX942, other))
    assert has_values(OPERATION.kernels.mismatch(PLAIN, other), "16x16", other.canonical())
    permuted = replace(problem, b_order="16x16p2x2")
    assert PRESHUFFLE_RULES.check(PERMUTED, GFX942, permuted) == []
    assert PRESHUFFLE_RULES.check(PLAIN, GFX942, permuted) != []
    for ragged in (replace(problem, n=272), replace(problem, k=272)):
        assert PRESHUFFLE_RULES.check(PLAIN, GFX942, ragged) != []


@pytest.mark.slow
def test_one_order_serves_every_dtype() -> None:
    """The default is an order that gfx942 and gfx950 have kernels for, in every element type."""
    for arch in (GFX942, GFX950):
        for dtype in DTYPES:
            problem = GemmPreshuffleProblem(256, 256, 256, dtype)
            pool = POOLS.of(arch, dtype, *GROUP[1:])
            assert sum(not PRESHUFFLE_RULES.check(kernel, arch, problem) for kernel in pool) > 50


def test_tables_of_times_are_converted(tmp_path: Path) -> None:
    """A row's kernel states the order of B; one that cannot have run the problem is refused."""
    table, out = tmp_path / "own.csv", tmp_path / "times.parquet"
    small = kernel_name(replace(PLAIN, warp_tile_k=16))
    rows = f"{kernel_name(PLAIN)},16,128,256,4.5\n{kernel_name(PERMUTED)},16,128,256,5\n{small},16,128,256,6\n"
    table.write_text(f"name,m,n,k,us\n{rows}", encoding="utf-8")
    options = ["--op", "gemm_preshuffle", "--arch", "gfx942", "--map", "kernel=name", "--map", "latency_us=us"]
    assert run(["convert", str(table), *options, "--out", str(out)]) == ExitCode.OK
    dataset = read_dataset(out)
    assert [problem.b_order for problem in dataset.problems()] == ["16x16", "16x16p2x2", "16x8"]
    assert [round(ms * 1000, 3) for ms in dataset.frame["latency_ms"]] == [4.5, 5.0, 6.0]
    table.write_text(f"name,m,n,k,us\n{kernel_name(PLAIN)},16,100,256,4.5\n", encoding="utf-8")
    assert run(["convert", str(table), *options, "--out", str(out), "--force"]) == ExitCode.BAD_DATA
    assert read_dataset(out).problems() == dataset.problems()


def configuration(*, permute_n: bool) -> dict[str, Any]:
    """The tile engine's default configuration of these GEMMs."""
    sizes = {"min": 64, "max": 256, "step": 64}
    waves = {"m": [4, 2, 1], "n": [4, 2, 1], "k": [1]}
    instructions = {"m": [4, 16, 32], "n": [16, 32, 64], "k": [8, 16, 32, 64, 128]}
    traits: dict[str, list[Any]] = {
        "pipeline": ["preshufflev2"],
        "scheduler": ["default"],
        "epilogue": ["default", "cshuffle"],
        "pad_m": [False],
        "pad_n": [False],
        "pad_k": [False],
        "persistent": [True, False],
    }
    return {
        "tile_config": {
            **{f"tile_{axis}": sizes for axis in "mnk"},
            **{f"warp_{axis}": {"values": values} for axis, values in waves.items()},
            **{f"warp_tile_{axis}": {"values": values} for axis, values in instructions.items()},
        },
        "trait_config": {name: {"values": values} for name, values in traits.items()},
        "k_block_per_cu": 1,
        "permute_n": permute_n,
    }


@pytest.mark.parametrize("permute_n", [False, True])
def test_the_tile_engines_configuration_states_whether_n_is_permuted(tmp_path: Path, *, permute_n: bool) -> None:
    """Its kernels are the pool's of the same pipeline; lists that are written are read again."""
    path, group = tmp_path / "default_config.json", ("fp16", "rcr", permute_n)
    path.write_text(json.dumps(configuration(permute_n=permute_n)), encoding="utf-8")
    built = read_registry(path, operation(OPERATION.name)).built(GFX942, "fp16")
    assert {kernel.permute_n for kernel in built} == {permute_n}
    assert set(built) == {kernel for kernel in POOLS.of(GFX942, *group) if kernel.pipeline == "preshufflev2"}
    for name, made in FAMILY.lists.write(built[::7], GFX942, "own").items():
        (tmp_path / name).write_bytes(made.content)
        assert set(built[::7]) <= set(read_registry(tmp_path / name, operation(OPERATION.name)).built(GFX942, "fp16"))
        assert name.endswith("_permute_n.json") is permute_n
    predict = ["predict", "--op", "gemm_preshuffle", "--m", "64", "--n", "256", "--k", "256", "--dtype", "fp16"]
    given = [*predict, "--arch", "gfx942", "--kernels", str(path), "--b-order"]
    for order, permutes in (("16x16", False), ("16x16p4x2", True)):
        assert run([*given, order]) == (ExitCode.OK if permutes is permute_n else ExitCode.NO_KERNEL)


@pytest.mark.parametrize(("kernel", "permutes"), [(PLAIN, 0), (PERMUTED, 1)])
def test_features_are_those_of_gemms_and_what_waves_read(kernel: Any, permutes: int) -> None:
    """Two tiles of A in LDS, 2 x 64 x 64 x 2 bytes; two tiles of B in the 64 lanes of the 2 waves along N."""
    problem = GemmPreshuffleProblem(64, 256, 256, "fp16", b_order=kernel.b_order)
    columns = OPERATION.problems.features([problem]) | OPERATION.kernels.features([kernel], Encoding(is_gpu=True))
    engine = OPERATION.training.engine
    result = dict(zip(engine.names, engine.matrix(columns, GFX942.hardware.to_dict())[0].tolist(), strict=True))
    assert (result["permutes_n"], result["a_lds_bytes"], result["b_register_bytes"]) == (permutes, 16384, 128)
    assert set(GEMM_UNIVERSAL.names) < set(result)
