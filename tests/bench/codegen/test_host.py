"""Emitted host kernels: compiled for real, right on awkward problems, and distinct for distinct parameters."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ckh.archs import load_arch
from ckh.bench.codegen import unit as host
from ckh.bench.codegen.unit import HostSimd
from ckh.bench.compilation.compile import KernelBuilder, default_jobs
from ckh.bench.computation import measured_of
from ckh.bench.devices.device import headers_comment
from ckh.bench.devices.device_choice import HostDevice
from ckh.bench.isolated.kernel_library import KernelLibrary
from ckh.bench.isolated.measure import Bench
from ckh.bench.isolated.memory import HostMemory
from ckh.bench.supervision.protocol import Job, Op, PhaseClock
from ckh.errors import UsageError
from ckh.kernels.pipelines import TABLE_PIPELINES, Scheduler
from ckh.ops import operation, operation_of_kernel
from ckh.ops.gemm_universal import kernel as gemm
from ckh.ops.gemm_universal.kernels.pool import gemm_pool
from ckh.ops.gemm_universal.kernels.problem_rules import GEMM_RULES
from ckh.ops.gemm_universal.measuring.measured import CGemmProblem
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, GemmProblem
from ckh.ops.grouped_conv import kernel as conv
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.kernels.variants import CONV_TILES
from ckh.ops.grouped_conv.measuring.measured import c_problem
from ckh.ops.grouped_conv.problem import ConvProblem, parse_conv_problem
from ckh.problems import Direction
from ckh.schema import Status
from tests.real import sampled
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ckh.bench.compilation.compile import Built

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optimized")]

Build = dict[Any, "Built"]

HOST = load_arch("host")
SIMD, SHORT_SIMD, SHORTEST_SIMD = HostSimd(64, 32), HostSimd(32, 16), HostSimd(16, 16)
PADS = tuple(product((True, False), repeat=3))

# Awkward problems: primes that no tile divides, few channels, lanes that span groups, pixels without a tap.
PROBLEMS: dict[str, str] = {
    "primes": "fp32_nhwgc_2d_n2_c13_k11_g1_i17x19_f5x3_s1x1_p2x1_d1x1",
    "first layer": "fp32_nhwgc_2d_n1_c3_k67_g1_i31x29_f7x7_s2x2_p3x3_d1x1",
    "many channels": "fp32_nhwgc_2d_n1_c139_k131_g1_i7x5_f3x3_s1x1_p1x1_d1x1",
    "1x1": "fp32_nhwgc_2d_n3_c131_k67_g1_i7x11_f1x1_s1x1_p0x0_d1x1",
    "1x1 that skips pixels": "fp32_nhwgc_2d_n1_c33_k17_g1_i11x9_f1x1_s2x3_p0x0_d1x1",
    "stride, dilation and padding": "fp32_nhwgc_2d_n2_c19_k23_g1_i23x13_f3x2_s2x3_p4x1_d2x3",
    "one output": "fp32_nhwgc_2d_n1_c5_k3_g1_i5x7_f5x7_s1x1_p0x0_d1x1",
    "depthwise": "fp32_nhwgc_2d_n2_c37_k37_g37_i11x7_f3x3_s1x1_p1x1_d1x1",
    "depthwise with stride": "fp32_nhwgc_2d_n1_c150_k150_g150_i13x9_f5x3_s2x2_p2x1_d1x2",
    "three channels a group": "fp32_nhwgc_2d_n1_c21_k14_g7_i9x10_f3x3_s1x1_p1x0_d1x1",
    "wide groups": "fp32_nhwgc_2d_n1_c46_k58_g2_i9x8_f3x3_s1x2_p0x1_d1x1",
    # Input and output exceed the half megabyte of a band of split_image.
    "several bands": "fp32_nhwgc_2d_n1_c67_k65_g1_i61x59_f3x1_s1x1_p1x0_d1x1",
    "3D": "fp32_ndhwgc_3d_n1_c5_k18_g1_i5x6x7_f3x3x3_s2x1x1_p1x1x1_d1x2x1",
    "3D, depthwise": "fp32_ndhwgc_3d_n2_c19_k19_g19_i4x5x6_f3x1x3_s1x1x2_p1x0x2_d1x1x1",
    "3D, groups": "fp32_ndhwgc_3d_n1_c12_k8_g4_i5x4x7_f2x3x2_s1x1x1_p0x1x0_d2x1x1",
}
# Ones, primes that no tile divides, less and more than a tile along every axis, exact multiples, more than one tile of
# K even where tile_k counts vectors.
SIZES: dict[str, tuple[int, int, int]] = {
    "one product": (1, 1, 1),
    "vector by matrix": (1, 263, 131),
    "matrix by vector": (139, 1, 67),
    "outer product": (131, 127, 1),
    "tiny": (3, 5, 2),
    "skinny": (16, 300, 257),
    "prime sizes": (37, 523, 263),
    "whole tiles": (256, 256, 256),
    "long reduction": (7, 19, 1301),
}
OF_CHANGED = ("primes", "depthwise", "three channels a group", "3D")
OF_CHANGED_GEMMS = ("one product", "skinny", "prime sizes", "long reduction")


def pool_of(group: str) -> Sequence[Any]:
    """The host's kernels of a direction of convolutions, or of a layout of GEMMs."""
    return gemm_pool(HOST, layout=group) if group in GEMM_LAYOUTS else conv_pool(Direction(group), HOST)


def ways_of(kernels: Iterable[Any]) -> list[tuple[str, Scheduler]]:
    """Their pipelines and schedulers."""
    return list(dict.fromkeys((kernel.pipeline, kernel.scheduler) for kernel in kernels))


def convolutions(direction: Direction) -> list[Any]:
    """A kernel of every pipeline and scheduler, with alternating tiles and flags."""
    pool, chosen = pool_of(direction), []
    for number, way in enumerate(ways_of(pool), 8 * list(Direction).index(direction)):
        tile = CONV_TILES[number % len(CONV_TILES)].tile
        fits = [kernel for kernel in pool if (kernel.pipeline, kernel.scheduler, kernel.tile) == (*way, tile)]
        chosen.append(fits[number % len(fits)])
    return chosen


def gemms(layout: str) -> list[Any]:
    """A kernel of every other pipeline and scheduler: each meets both orders of either operand."""
    pool, turn, chosen = pool_of(layout), GEMM_LAYOUTS.index(layout), []
    for number, way in list(enumerate(ways_of(pool)))[turn % 2 :: 2]:
        fits = [kernel for kernel in pool if (kernel.pipeline, kernel.scheduler) == way and kernel.pad_m]
        pads = dict(zip(("pad_m", "pad_n", "pad_k"), PADS[(number // 2 + 4 * turn) % len(PADS)], strict=True))
        chosen.append(replace(fits[(13 * number + 5 * turn) % len(fits)], **pads))
    return chosen


CHOSEN: dict[str, list[Any]] = {str(direction): convolutions(direction) for direction in Direction}
CHOSEN |= {layout: gemms(layout) for layout in GEMM_LAYOUTS}
# Those that are compiled: by the commit, like kernels for GPUs.
SAMPLED: dict[str, list[Any]] = {group: sampled(kernels) for group, kernels in CHOSEN.items()}


def find(direction: Direction, short_end: str) -> Any:
    """The kernel of the pool with this end of its short name."""
    (kernel,) = (k for k in pool_of(direction) if conv.amd_short_name(k).endswith(f"_{short_end}"))
    return kernel


FORWARD = find(Direction.FORWARD, "64x64x64_compv3_intrawave")
DATA = find(Direction.BWD_DATA, "64x64x64_mem_intrawave")
WEIGHT = find(Direction.BWD_WEIGHT, "64x64x64_basic_v1_intrawave")
PLAIN = gemm.parse_kernel_name(
    "gemm_universal_fp32_rrr_compv3_cshuffle_intrawave_True_True_True_False_64x64x64_2x2x1_16x16x16"
)
DOTS = replace(PLAIN, pipeline="basic_v1", layout="rcr")
# Rows of a register block depend on the waves only if they are fewer than the registers hold.
FLAT = replace(PLAIN, warp_tile_m=1)

# A kernel and a change of one parameter, which must change the machine code. Tiles, waves and warp tiles become
# register blocks in a header that GEMMs and convolutions share.
CHANGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "tile_m": (PLAIN, {"tile_m": 32}),
    "tile_n": (PLAIN, {"tile_n": 128}),
    "tile_k": (DOTS, {"tile_k": 128}),
    "wave_m": (FLAT, {"wave_m": 1}),
    "wave_n": (FLAT, {"wave_n": 1}),
    "warp_tile_m": (PLAIN, {"warp_tile_m": 1}),
    "warp_tile_n": (replace(FLAT, wave_n=1), {"warp_tile_n": 32}),
    "warp_tile_k": (PLAIN, {"warp_tile_k": 32}),
    "warp_tile_k of dot products": (DOTS, {"warp_tile_k": 32}),
    "scheduler": (PLAIN, {"scheduler": Scheduler.INTERWAVE}),
    "scheduler of dot products": (DOTS, {"scheduler": Scheduler.INTERWAVE}),
    "pad_m": (PLAIN, {"pad_m": False}),
    "pad_n": (PLAIN, {"pad_n": False}),
    "pad_k": (PLAIN, {"pad_k": False}),
    "pad_k of dot products": (DOTS, {"pad_k": False}),
    "wave_m of bwd_data": (replace(DATA, warp_tile_m=1), {"wave_m": 1}),
    "tile_k of bwd_weight": (WEIGHT, {"tile_k": 128}),
    "scheduler of bwd_weight": (WEIGHT, {"scheduler": Scheduler.INTERWAVE}),
    "double_smem_buffer": (FORWARD, {"double_smem_buffer": True}),
    "double_smem_buffer in place": (WEIGHT, {"double_smem_buffer": True}),
    "split_image": (FORWARD, {"split_image": True}),
    "split_image of bwd_data": (DATA, {"split_image": True}),
    "vector_a": (FORWARD, {"vector_a": 2}),
    "vector_b": (FORWARD, {"vector_b": 4}),
    "vector_c": (DATA, {"vector_c": 4}),
}
OF_GEMMS = [name for name, (kernel, _) in CHANGES.items() if isinstance(kernel, gemm.GemmKernel)]
CHANGED = {
    name: (CHANGES[name][0], replace(CHANGES[name][0], **CHANGES[name][1]))
    for name in (*sampled(OF_GEMMS), *sampled(name for name in CHANGES if name not in OF_GEMMS))
}
PIPELINES = [replace(PLAIN, pipeline=pipeline) for pipeline in (PLAIN.pipeline, *sampled(TABLE_PIPELINES))]
# Register blocks wider than a tile leave a remainder that even unpadded kernels handle.
NARROW = sampled(
    replace(CHOSEN[layout][0], tile_n=24, warp_tile_n=8, wave_n=2, pad_n=False) for layout in GEMM_LAYOUTS
) + sampled(kernel for direction in Direction for kernel in CHOSEN[direction][1::5])


def emit(kernel: Any, simd: HostSimd) -> str:
    """The source of a kernel for a CPU's registers."""
    emission = measured_of(operation_of_kernel(kernel)).host
    assert emission is not None
    return emission.emit(kernel, simd)


class OtherSimd(HostDevice):
    """This CPU with the SIMD registers of another; the compiler splits wider vectors."""

    def __init__(self, simd: HostSimd) -> None:
        super().__init__()
        self._simd = simd

    def emit(self, kernel: Any) -> str:
        return emit(kernel, self._simd)

    def compile_command(self, kernel: Any, source: Path, library: Path) -> list[str]:
        """Warnings are errors, except about the ABI of wide vectors, which only inlined functions use, and loops."""
        less = ("-Wno-psabi", "-Wno-aggressive-loop-optimizations")
        return [*super().compile_command(kernel, source, library), "-Wall", "-Wextra", "-Werror", *less]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Iterable[Any], HostSimd], Build]]:
    """Compile kernels for some registers, with a separate cache for this module."""

    def built(kernels: Iterable[Any], simd: HostSimd) -> Build:
        device = OtherSimd(simd)
        jobs = default_jobs(device.job_bytes)
        result = KernelBuilder(device).build(list(dict.fromkeys(kernels)), jobs, lambda _count, _text: None)
        assert {item.message for item in result.values() if item.status is not Status.OK} == set()
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CKH_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield built


@pytest.fixture(scope="module")
def built(build: Callable[[Iterable[Any], HostSimd], Build]) -> Build:
    """The chosen kernels."""
    return build([kernel for kernels in SAMPLED.values() for kernel in kernels], SIMD)


@pytest.fixture(scope="module")
def changed(build: Callable[[Iterable[Any], HostSimd], Build]) -> Build:
    """The kernels with a changed parameter, their originals, and one of each pipeline, for the same registers."""
    return build([*(kernel for pair in CHANGED.values() for kernel in pair), *PIPELINES], SHORT_SIMD)


class UnalignedMemory(HostMemory):
    """Memory whose inputs start one float after a page boundary."""

    def add_input(self, values: NDArray[Any]) -> NDArray[Any]:
        super().add_input(np.concatenate([np.zeros(1, values.dtype), values.reshape(-1)]))
        self._inputs[-1] = self._inputs[-1][1:].reshape(values.shape)
        return self._inputs[-1]


def problem_of(kernel: Any, name: str) -> ConvProblem | GemmProblem:
    """The problem of a kernel's kind; axes that a GEMM kernel does not pad are rounded up to whole tiles."""
    if name in PROBLEMS:
        return parse_conv_problem(f"conv_{kernel.variant}_{PROBLEMS[name]}")
    sizes = zip(SIZES[name], kernel.tile, kernel.pads, strict=True)
    m, n, k = (size if padded else -(-size // tile) * tile for size, tile, padded in sizes)
    return GemmProblem(m, n, k, "fp32", kernel.layout)


def assert_right(name: str, kernels: Iterable[Any], libraries: Build) -> None:
    """Run kernels on a problem, with guards around the output; a wrong result raises `KernelFailure`."""
    by_problem = defaultdict(list)
    for kernel in kernels:
        by_problem[problem_of(kernel, name)].append(libraries[kernel].library)
    bench = Bench(UnalignedMemory(), PhaseClock())
    for problem, some in by_problem.items():
        assert bench.set_problem(Job(Op.PROBLEM, 1, problem.canonical())).status is Status.OK
        for library in some:
            reply = bench.measure(Job(Op.MEASURE, 2, library=library, samples=1))
            assert (reply.status, len(reply.samples_ns)) == (Status.OK, 1)


def instructions(library: str) -> tuple[str, ...]:
    """Machine code without the addresses of jumps and data, which may move for other reasons."""
    command = ["objdump", "-d", "-j", ".text", "--no-show-raw-insn", "--no-addresses", library]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = (line.partition("#")[0].strip() for line in text.splitlines() if line.startswith("\t"))
    without_data = (re.sub(r"-?0x[0-9a-f]+\(%rip\)", "(%rip)", line) for line in lines)
    return tuple(re.sub(r"^((?:j\w+|call)\s).*", r"\1", line) for line in without_data)


def test_chosen_kernels_cover_every_combination() -> None:
    """They have every pipeline with every scheduler, tile, flag, block and padding, in every direction."""
    everything = [kernel for direction in Direction for kernel in CHOSEN[direction]]
    assert {kernel.tile for kernel in everything} == {row.tile for row in CONV_TILES}
    for direction in Direction:
        chosen = CHOSEN[direction]
        assert ways_of(chosen) == ways_of(pool_of(direction))
        assert len(chosen) == (8 if direction is Direction.FORWARD else 7)
        assert {(k.double_smem_buffer, k.split_image) for k in chosen} == {(a, b) for a in (0, 1) for b in (0, 1)}
    products, pool = [kernel for layout in GEMM_LAYOUTS for kernel in CHOSEN[layout]], pool_of("rcr")
    for place in (0, 1):
        orders = {(kernel.pipeline, kernel.scheduler, kernel.layout[place]) for kernel in products}
        assert orders == {(*way, order) for way in ways_of(pool) for order in "rc"}
    assert {kernel.pads for kernel in products} == set(PADS)
    blocks = {(kernel.wave, kernel.warp_tile) for kernel in products}
    assert blocks == {(kernel.wave, kernel.warp_tile) for kernel in pool}


@pytest.mark.parametrize(
    ("group", "name"),
    [(group, name) for group in CHOSEN for name in (SIZES if group in GEMM_LAYOUTS else PROBLEMS)],
)
def test_results_are_right(group: str, name: str, built: Build) -> None:
    """Every chosen kernel gives the reference's result for unaligned operands, and writes nowhere else."""
    assert_right(name, SAMPLED[group], built)


@pytest.mark.parametrize("name", [*OF_CHANGED, *OF_CHANGED_GEMMS])
def test_results_of_changed_kernels_are_right(name: str, changed: Build) -> None:
    """Kernels outside the pools, with other waves, warp tiles and vectors, compute the same with fewer registers."""
    assert_right(name, [kernel for kernel in changed if hasattr(kernel, "variant") is (name in PROBLEMS)], changed)


def test_results_are_right_with_the_shortest_registers(build: Callable[[Iterable[Any], HostSimd], Build]) -> None:
    """Kernels for CPUs with the shortest vectors compute the same."""
    libraries = build(NARROW, SHORTEST_SIMD)
    for name in ("prime sizes", "first layer", *OF_CHANGED):
        assert_right(name, [kernel for kernel in NARROW if hasattr(kernel, "variant") is (name in PROBLEMS)], libraries)


@pytest.mark.parametrize(("kernel", "other"), CHANGED.values(), ids=CHANGED.keys())
def test_every_parameter_changes_the_machine_code(kernel: Any, other: Any, changed: Build) -> None:
    """No parameter is without effect on the machine code."""
    plain = instructions(changed[kernel].library)
    assert len(plain) > 500
    differs = plain != instructions(changed[other].library)  # outside the assertion, which would print all lines
    assert differs


def test_every_pipeline_has_distinct_machine_code(changed: Build) -> None:
    """No two pipelines have the same machine code for the same tile, block and scheduler."""
    codes = {instructions(changed[kernel].library) for kernel in PIPELINES}
    assert len(codes) == len(set(PIPELINES)) > 1


def test_every_kernel_of_a_pool_has_its_own_source() -> None:
    """No two kernels are compiled to the same library, except that convolutions in 2D and 3D share theirs."""
    kernels = [kernel for group in CHOSEN for kernel in pool_of(group)]
    assert len({emit(kernel, SIMD) for kernel in kernels}) == len(kernels)
    for direction in Direction:
        in_3d = [emit(kernel, SIMD) for kernel in conv_pool(direction, HOST, 3)]
        assert in_3d == [emit(kernel, SIMD) for kernel in pool_of(direction)]


def test_a_library_identifies_its_kernel(built: Build) -> None:
    """A convolution states a unique id of its source, a GEMM its complete name, or neither would have loaded."""
    ids = set()
    for kernel, result in built.items():
        library = ctypes.CDLL(result.library)
        if isinstance(kernel, gemm.GemmKernel):
            assert KernelLibrary(result.library).name() == gemm.kernel_name(kernel)
        else:
            library.ckh_source_id.restype = ctypes.c_char_p
            said = library.ckh_source_id().decode()
            assert f'source_id = "{said}"' in emit(kernel, SIMD)
            assert library.ckh_abi_version() == 2
            ids.add(said)
    assert len(ids) == sum(len(SAMPLED[direction]) for direction in Direction)


def test_source_is_the_same_in_another_process() -> None:
    """Nothing depends on Python's random hashes, or on time."""
    program = (
        "import hashlib\n"
        "from tests.bench.codegen.test_host import CHOSEN, SIMD, emit, pool_of\n"
        "texts = [emit(kernel, SIMD) for group in CHOSEN for kernel in pool_of(group)]\n"
        "print(hashlib.sha256(''.join(texts).encode()).hexdigest())\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4321"}
    command, root = [sys.executable, "-c", program], Path(__file__).parents[3]
    text = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=True).stdout
    texts = [emit(kernel, SIMD) for group in CHOSEN for kernel in pool_of(group)]
    assert text.strip() == hashlib.sha256("".join(texts).encode()).hexdigest()


@pytest.mark.parametrize("kernel", [FORWARD, PLAIN], ids=["convolution", "GEMM"])
def test_source_depends_on_the_registers(kernel: Any) -> None:
    """Another CPU gets another source, so a shared cache never confuses them."""
    registers = [HostSimd(vector_bytes, number) for vector_bytes in (16, 32, 64) for number in (16, 32)]
    assert len({emit(kernel, simd) for simd in registers}) == 6


@pytest.mark.parametrize("direction", list(Direction))
def test_an_invalid_convolution_is_refused(direction: Direction, built: Build) -> None:
    """Channels that groups do not divide, and a size of zero, are refused with a reason and not run."""
    kernel = SAMPLED[direction][0]
    library, p = KernelLibrary(built[kernel].library), problem_of(kernel, "three channels a group")
    assert isinstance(p, ConvProblem)
    assert library.unsupported(ctypes.byref(c_problem(p))) is None
    for name, value, reason in (("g", 5, b"C and K must be divisible by G"), ("hi", 0, b"a size is not positive")):
        bad = c_problem(p)
        setattr(bad, name, value)
        assert library.unsupported(ctypes.byref(bad)) == reason
        assert library.run(ctypes.byref(bad), None) == 1


@pytest.mark.parametrize("layout", GEMM_LAYOUTS)
def test_unsupported_sizes_of_gemms_are_refused_with_the_axis(layout: str, built: Build) -> None:
    """A size that an unpadded tile does not divide is refused, without running, exactly if the rules refuse it."""
    for kernel in SAMPLED[layout]:
        library = KernelLibrary(built[kernel].library)
        for axis, (name, padded) in enumerate(zip("mnk", kernel.pads, strict=True)):
            m, n, k = (tile + (at == axis) for at, tile in enumerate(kernel.tile))
            reason = None if padded else f"{name.upper()} is not a multiple of tile_{name}, nor padded".encode()
            problem = ctypes.byref(CGemmProblem(m, n, k, 1))
            assert library.unsupported(problem) == reason
            assert bool(GEMM_RULES.of_problem(kernel, HOST, GemmProblem(m, n, k, layout=layout))) is not padded
            assert padded or library.run(problem, None) == 1
        m, n, k = kernel.tile
        split = ctypes.byref(CGemmProblem(m, n, k, 2))
        assert library.unsupported(split) == b"the host does not split K"
        assert library.run(split, None) == 1
        for zero in ((0, n, k), (m, -n, k), (m, n, 0)):
            assert library.unsupported(ctypes.byref(CGemmProblem(*zero, 1))) == b"a size is not positive"


def test_the_key_covers_both_directories_of_headers(tmp_path: Path) -> None:
    """A change of any header that a kernel includes results in another library."""
    device, emission = HostDevice(), measured_of(operation("gemm_universal")).host
    assert emission is not None
    (templates,) = emission.templates
    shared = list(host.template_dir().glob("*.hpp"))
    assert shared
    assert all(header.read_bytes() in device.cache_salt() for header in shared)
    assert device.emit(PLAIN).endswith(headers_comment((templates,)))
    own = Path(shutil.copytree(templates, tmp_path / "own"))
    comments = {headers_comment((own,))}
    assert comments == {headers_comment((templates,))}
    headers = list(own.glob("*.hpp"))
    for header in headers:
        header.write_text(header.read_text(encoding="utf-8") + "// more\n", encoding="utf-8")
        comments.add(headers_comment((own,)))
    assert len(comments) == 1 + len(headers) > 1
    with_shared = headers_comment((own, host.template_dir()))
    assert with_shared not in {*comments, headers_comment((host.template_dir(),))}
    command = device.compile_command(PLAIN, tmp_path / "a.cpp", tmp_path / "a.so")
    assert [word for word in command if word.startswith("-I")] == [f"-I{host.template_dir()}", f"-I{templates}"]


@pytest.mark.parametrize(
    "kernel",
    [
        conv.parse_kernel_name("grouped_conv_forward_fp32_2d_64x64x64_compv3_intrawave"),
        gemm.parse_kernel_name(gemm.short_name(PLAIN)),
    ],
    ids=["convolution", "GEMM"],
)
def test_incomplete_kernels_are_refused(kernel: Any) -> None:
    """AMD's short names lack fields that a source needs; the message names them."""
    with pytest.raises(UsageError) as caught:
        emit(kernel, SIMD)
    assert caught.value.code == "incomplete-kernel"
    expect_values(caught.value.message, "wave_m, wave_n, wave_k, warp_tile_m")
    with expect_refusal(UsageError, "incomplete-kernel", "vector_b"):
        emit(replace(FORWARD, vector_b=None), SIMD)


@pytest.mark.parametrize(
    ("kernel", "change", "message"),
    [
        *((FORWARD, {"dtype": dtype}, f"computes fp32, not {dtype}") for dtype in ("bf16", "fp16", "fp64")),
        *((FORWARD, {"pipeline": pipeline}, pipeline) for pipeline in ("compv1", "comp_async", "wavelet")),
        (PLAIN, {"dtype": "bf16"}, "computes fp32, not bf16"),
        (PLAIN, {"layout": "rcc"}, "has no layout rcc"),
        (PLAIN, {"pipeline": "preshufflev2"}, "has no pipeline preshufflev2"),
        (PLAIN, {"epilogue": "default"}, "has no epilogue default"),
        (PLAIN, {"persistent": True}, "has no persistent kernels"),
        (PLAIN, {"vector_a": 4}, "the host device has native vector widths only"),
        (PLAIN, {"suffix": "_odd"}, "does not support the suffix _odd"),
    ],
)
def test_features_missing_on_the_host_are_refused(kernel: Any, change: dict[str, Any], message: str) -> None:
    """Missing features are not replaced."""
    with pytest.raises(UsageError, match=message):
        emit(replace(kernel, **change), SIMD)


@pytest.mark.parametrize(("vector_bytes", "registers"), [(8, 16), (24, 16), (64, 8), (128, 32)])
def test_impossible_registers_are_refused(vector_bytes: int, registers: int) -> None:
    """SIMD vectors have 16, 32 or 64 bytes, and there are 16 or 32 of them."""
    with expect_refusal(UsageError, "bad-kernel", registers, vector_bytes):
        HostSimd(vector_bytes, registers)
