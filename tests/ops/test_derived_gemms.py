"""What the operations that are derived from `gemm_universal` have in common: refusals, sets, pools, keys and lists."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.cli import run
from ckh.errors import ExitCode, UsageError
from ckh.ops import operation, operation_of
from ckh.ops.gemm_batched.problem import GemmBatchedProblem
from ckh.ops.gemm_grouped.problem import GemmGroupedProblem
from ckh.ops.gemm_multi_d.problem import GemmMultiDProblem
from ckh.ops.gemm_preshuffle.problem import GemmPreshuffleProblem
from ckh.ops.gemm_streamk.problem import GemmStreamKProblem
from ckh.ops.gemm_universal.kernel import GemmKernel
from ckh.ops.gemm_universal.kernels.pool import gemm_pool
from ckh.ops.gemm_universal.problem_sets import held_out_weights
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

ARCH = load_arch("gfx942")
PROBLEMS: dict[str, Any] = {
    "gemm_batched": GemmBatchedProblem(256, 128, 64, "fp16", batch=3),
    "gemm_grouped": GemmGroupedProblem(ms="512x2", n=128, k=64, dtype="fp16", layout="ccr"),
    "gemm_multi_d": GemmMultiDProblem(16, 16, 64, "fp16"),
    "gemm_preshuffle": GemmPreshuffleProblem(64, 256, 2**14, "fp8"),
    "gemm_streamk": GemmStreamKProblem(16, 16, 64, "fp16"),
}


@pytest.mark.parametrize(
    "text",
    [
        "gemm_batched_fp16_rcr_b64_m1024_n1024_k128_splitk1_lda136_sb140000",
        "gemm_grouped_fp16_rrr_m512+64x8+0x2_n128_k64_splitk2",
        "gemm_multi_d_fp16_rcr_m16_n4096_k4096_add_relu_vr",
        "gemm_preshuffle_fp8_rcr_m16_n4096_k4096_b16x16p4x2",
        "gemm_streamk_bf16_rrr_m16_n4096_k512",
    ],
)
def test_texts_are_stable(text: str) -> None:
    """Journals depend on them."""
    assert operation_of(text).problems.parse(text).canonical() == text


@pytest.mark.parametrize(
    "text",
    [
        "gemm_batched_fp16_rcr_m1_n1_k1_splitk1",
        "gemm_batched_fp16_rcr_b2_m1_n1_k1_splitk1_ld9",
        "gemm_grouped_fp16_rcr_m_n1_k1_splitk1",
        "gemm_grouped_fp16_rcr_m8_n1_k1",
        "gemm_multi_d_fp16_rcr_m1_n1_k1",
        "gemm_multi_d_fp16_rcr_m1_n1_k1_add_vvv",
        "gemm_preshuffle_fp16_rcr_m1_n16_k16",
        "gemm_preshuffle_fp16_rcr_m1_n16_k16_b",
        "gemm_streamk_fp16_rcr_m1_n1",
        "gemm_streamk_fp16_rcr_m1_n1_k1_splitk1",
        *(f"{op}_" for op in PROBLEMS),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    """Texts without a part that the operation needs, with parts of others, and with nothing."""
    op = next(op for op in PROBLEMS if text.startswith(op))
    with expect_refusal(UsageError, "bad-problem"):
        operation(op).problems.parse(text)


@pytest.mark.parametrize(
    ("op", "changes", "code", "value"),
    [
        ("gemm_batched", {"batch": 0}, "out-of-range", 0),
        ("gemm_batched", {"batch": 2**31}, "out-of-range", 2**31),
        ("gemm_batched", {"batch": 1.5}, "bad-number", 1.5),
        ("gemm_batched", {"lda": -1}, "out-of-range", -1),
        ("gemm_batched", {"batch_stride_c": 2**31}, "out-of-range", 2**31),
        ("gemm_batched", {"split_k": 65}, "indivisible", 65),
        ("gemm_batched", {"layout": "rcc"}, "unknown-name", "rcc"),
        ("gemm_grouped", {"ms": ""}, "bad-problem", "ms"),
        ("gemm_grouped", {"ms": "64+"}, "bad-problem", "64+"),
        ("gemm_grouped", {"ms": "-4x2"}, "bad-problem", "-4x2"),
        ("gemm_grouped", {"ms": "64x8x2"}, "bad-problem", "64x8x2"),
        ("gemm_grouped", {"ms": "64x0"}, "out-of-range", 0),
        ("gemm_grouped", {"ms": "0x7"}, "out-of-range", 0),
        ("gemm_grouped", {"ms": "1x1025"}, "out-of-range", 1025),
        ("gemm_grouped", {"ms": "1073741824x2"}, "out-of-range", 2**31),
        ("gemm_grouped", {"m": 15}, "impossible-problem", 15),
        ("gemm_multi_d", {"function": "tanh"}, "unknown-name", "tanh"),
        ("gemm_multi_d", {"ds": ""}, "bad-problem", "ds"),
        ("gemm_multi_d", {"ds": "vvv"}, "bad-problem", "vvv"),
        ("gemm_multi_d", {"ds": "x"}, "bad-problem", "x"),
        ("gemm_multi_d", {"split_k": 2}, "out-of-range", 2),
        ("gemm_multi_d", {"dtype": "int8"}, "unknown-dtype", "int8"),
        ("gemm_preshuffle", {"b_order": ""}, "bad-problem", "b_order"),
        ("gemm_preshuffle", {"b_order": "16x12"}, "bad-problem", "16x12"),
        ("gemm_preshuffle", {"b_order": "8x16"}, "bad-problem", "8x16"),
        ("gemm_preshuffle", {"b_order": "16x16p0x2"}, "bad-problem", "16x16p0x2"),
        ("gemm_preshuffle", {"n": 40}, "indivisible", "n=40"),
        ("gemm_preshuffle", {"k": 36}, "indivisible", "k=36"),
        ("gemm_preshuffle", {"b_order": "16x16p4x8"}, "indivisible", "512"),
        ("gemm_preshuffle", {"split_k": 2}, "out-of-range", "split_k=2"),
        ("gemm_preshuffle", {"layout": "rrr"}, "out-of-range", "rrr"),
        ("gemm_preshuffle", {"dtype": "fp32"}, "unknown-dtype", "fp32"),
        ("gemm_streamk", {"split_k": 2}, "out-of-range", 2),
        *((op, {"k": 0}, "out-of-range", 0) for op in PROBLEMS),
        *((op, {"dtype": "fp12"}, "unknown-dtype", "fp12") for op in PROBLEMS),
    ],
)
def test_impossible_problems_are_refused(op: str, changes: dict[str, Any], code: str, value: object) -> None:
    """Each with one line that names the value."""
    given = {"m": 0} | changes if op == "gemm_grouped" else changes  # of groups, M is the sum
    with expect_refusal(UsageError, code, value) as caught:
        replace(PROBLEMS[op], **given)
    assert "\n" not in caught.value.message


def key_of(problem: Any) -> tuple[int, ...]:
    """What training sets share with no other: a product of a batch, a weight else."""
    return (problem.m, problem.n, problem.k) if hasattr(problem, "batch") else (problem.n, problem.k)


# What the problems of an operation's training sets have.
CONTENTS: dict[str, Any] = {
    "gemm_batched": lambda problems: {2, 16, 128} <= {problem.batch for problem in problems},
    "gemm_grouped": lambda problems: (
        {4, 16, 128} <= {problem.num_groups for problem in problems}
        and {len(problem.groups) > 2 for problem in problems} == {True, False}
    ),
    "gemm_multi_d": lambda problems: len({problem.function for problem in problems}) == 5,
    "gemm_preshuffle": lambda problems: {(problem.n % 64, problem.k % 64) for problem in problems} == {(0, 0)},
    "gemm_streamk": lambda problems: {problem.k % 64 for problem in problems} == {0},
}


@pytest.mark.parametrize(("op", "name"), [(op, name) for op in PROBLEMS for name in operation(op).problems.set_names()])
def test_sets_hold_distinct_problems(op: str, name: str) -> None:
    """All of the requested element type; training sets share nothing with the models', and stay within limits."""
    part = operation(op).problems
    problems: Sequence[Any] = part.load(name, None, "bf16")
    assert len(problems) == len(set(problems)) > 5
    assert {problem.dtype for problem in problems} == {"bf16"}
    if name.endswith("train"):
        others = (part.load(other, None, "bf16") for other in part.set_names() if not other.endswith("train"))
        known = {key_of(problem) for problems in others for problem in problems}
        assert not (known | (set() if op == "gemm_batched" else held_out_weights())) & set(map(key_of, problems))
        assert CONTENTS[op](problems)
        assert max(problem.bytes for problem in problems) <= (64_000_000 if name.startswith("host") else 4_000_000_000)


THREE = ("compv3", "compv4", "mem")
# Operation -> pipelines of its pools, and the end of a group of problems.
PIPELINES: dict[str, tuple[tuple[str, ...], tuple[Any, ...]]] = {
    "gemm_batched": (THREE, ()),
    "gemm_grouped": (THREE, ()),
    "gemm_multi_d": (THREE, ("mul", 2)),
    "gemm_streamk": (("compv3",), ()),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "dtype"),
    [
        ("gfx942", "bf16"),
        ("host", "fp32"),
    ],
)
@pytest.mark.parametrize("op", PIPELINES)
def test_pools_are_of_the_tile_engines_pipelines(op: str, arch: str, dtype: str) -> None:
    """A pool has gemm_universal's kernels of these pipelines, in its order; batched ones are not persistent."""
    family: Any = import_module(f"ckh.ops.{op}.operation").FAMILY
    (pipelines, group), spec = PIPELINES[op], load_arch(arch)
    names = list(GemmKernel.__dataclass_fields__)

    def parameters(kernel: Any) -> tuple[Any, ...]:
        return tuple([getattr(kernel, name) for name in names])

    expected = [
        parameters(kernel)
        for kernel in gemm_pool(spec, dtype, "rrr")
        if kernel.pipeline in pipelines and not (op == "gemm_batched" and kernel.persistent)
    ]
    pool = family.pools.of(spec, dtype, "rrr", *group)
    none = arch == "host" and op in {"gemm_multi_d", "gemm_streamk"}
    assert list(dict.fromkeys(map(parameters, pool))) == ([] if none else expected)
    assert none or {type(kernel) for kernel in pool} == {operation(op).kernels.type}
    assert set(family.bench_pools.of(spec, dtype, "rrr", *group)) <= set(pool)


# Operation -> changes of its problem, and the number of different keys.
KEYS: dict[str, tuple[tuple[dict[str, Any], ...], int]] = {
    "gemm_batched": (({"batch": 8}, {"lda": 68}, {"lda": 84}, {"lda": 66}, {"batch": 70_000}, {"ldc": 129}), 5),
    "gemm_grouped": (
        tuple({"ms": ms, "m": 0} for ms in ("512+1024x7", "512x2+8", "512x2+4", "512x2+12", f"{2**24}")),
        4,
    ),
    "gemm_preshuffle": (
        *(({"n": 17 * 256}, {"k": 19 * 2**14}, {"m": 61}, {"n": 768}, {"k": 192}, {"b_order": "16x8"}),),
        5,
    ),
}


@pytest.mark.parametrize("op", KEYS)
def test_problems_of_one_key_have_the_same_candidates(op: str) -> None:
    """The key covers remainders, limits and reach; factors that no tile has make no difference."""
    kernels, result = operation(op).kernels, dict[object, set[int]]()
    for changes in ({}, *KEYS[op][0]):
        problem = replace(PROBLEMS[op], **changes)
        result.setdefault(kernels.key_of(problem), set()).add(
            len(kernels.candidates(problem, ARCH, Path("none")).chosen)
        )
    assert {len(counts) for counts in result.values()} == {1}
    assert len(result) == KEYS[op][1]


BOTH = ("intrawave", "interwave")
# Operation -> options of a problem, sizes of tiles, pipelines, schedulers, persistence, and the number of kernels.
CONFIGURATIONS: dict[str, tuple[str, tuple[int, ...], Sequence[str], Sequence[str], Sequence[bool], int]] = {
    "gemm_batched": ("--batch 4 --m 128", (64, 128), ("compv3", "mem"), BOTH[:1], (False,), 16),
    # Of the pipelines, only mem is interwave.
    "gemm_grouped": ("--ms 128x3+0", (64,), THREE, BOTH, (False, True), 8),
    # A configuration states no reduction, so it lists both; compv4 has less LDS, and needs two tiles along K.
    "gemm_streamk": ("--m 128", (64, 128), ("compv3", "compv4"), BOTH[:1], (False,), 24),
}


@pytest.mark.parametrize("op", CONFIGURATIONS)
def test_the_tile_engines_configuration(op: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A configuration in the tile engine's form is the list of kernels that are ranked."""
    options, tiles, pipelines, schedulers, persistent, count = CONFIGURATIONS[op]
    step = {"values": list(tiles)} if len(tiles) == 1 else {"min": tiles[0], "max": tiles[-1], "step": 64}
    traits: dict[str, Any] = {
        "pipeline": pipelines,
        "scheduler": schedulers,
        "epilogue": ["cshuffle"],
        **{name: [False] for name in ("pad_m", "pad_n", "pad_k")},
        "persistent": persistent,
    }
    document = {
        "tile_config": {
            **{f"tile_{axis}": step for axis in "mnk"},
            **{f"warp_{axis}": {"values": [1] if axis == "k" else [2]} for axis in "mnk"},
            **{f"warp_tile_{axis}": {"values": [16] if axis == "k" else [32]} for axis in "mnk"},
        },
        "trait_config": {name: {"values": list(values)} for name, values in traits.items()},
        "k_block_per_cu": 1,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    sizes = [*options.split(), "--n", "128", "--k", "128", "--dtype", "fp16", "--arch", "gfx942"]
    assert run(["predict", "--op", op, *sizes, "--kernels", str(path), "--json", "--top", "99"]) == ExitCode.OK
    answer = json.loads(capsys.readouterr().out)
    assert answer["candidates"] == count
    kernels: list[Any] = [operation(op).kernels.parse(item["kernel"]) for item in answer["kernels"]]
    assert {(kernel.wave, kernel.warp_tile) for kernel in kernels} == {((2, 2, 1), (32, 32, 16))}
    assert {kernel.pipeline for kernel in kernels} <= set(pipelines)
    assert {getattr(kernel, "blocks_per_cu", 0) for kernel in kernels} == {0}
