"""Emitted host kernels: compiled for real, right on awkward problems, and distinct for distinct parameters."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ckh.archs import load_arch
from ckh.bench.codegen.unit import HostSimd
from ckh.bench.compilation.compile import KernelBuilder, default_jobs
from ckh.bench.devices.host_device import HostDevice
from ckh.bench.isolated.kernel_library import KernelLibrary
from ckh.bench.isolated.measure import Bench
from ckh.bench.isolated.memory import HostMemory
from ckh.bench.supervision.protocol import Job, Op, PhaseClock
from ckh.errors import UsageError
from ckh.kernels.pipelines import Scheduler
from ckh.ops.grouped_conv.kernel import amd_short_name, parse_kernel_name
from ckh.ops.grouped_conv.kernels.pool import conv_pool
from ckh.ops.grouped_conv.kernels.variants import CONV_TILES
from ckh.ops.grouped_conv.measuring.measured import c_problem, emit_host
from ckh.ops.grouped_conv.problem import ConvProblem, parse_conv_problem
from ckh.problems import Direction
from ckh.schema import Status
from tests.refusals import expect_refusal, expect_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ckh.bench.compilation.compile import Built
    from ckh.ops.grouped_conv.kernel import ConvKernel

pytestmark = pytest.mark.slow

Build = dict[Any, "Built"]

HOST = load_arch("host")
SIMD = HostSimd(64, 32)

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


def problem(text: str, direction: Direction) -> ConvProblem:
    """The problem of a line of the table."""
    return parse_conv_problem(f"conv_{direction}_{text}")


def choose(direction: Direction) -> list[ConvKernel]:
    """A kernel of every pipeline and scheduler, with alternating tiles and flags."""
    pool = conv_pool(direction, HOST)
    ways = dict.fromkeys((kernel.pipeline, kernel.scheduler) for kernel in pool)
    chosen = []
    for number, way in enumerate(ways, 8 * list(Direction).index(direction)):
        tile = CONV_TILES[number % len(CONV_TILES)].tile
        fits = [kernel for kernel in pool if (kernel.pipeline, kernel.scheduler, kernel.tile) == (*way, tile)]
        chosen.append(fits[number % len(fits)])
    return chosen


CHOSEN = {direction: choose(direction) for direction in Direction}


def find(direction: Direction, short_end: str) -> ConvKernel:
    """The kernel of the pool with this end of its short name."""
    (kernel,) = (k for k in conv_pool(direction, HOST) if amd_short_name(k).endswith(f"_{short_end}"))
    return kernel


FORWARD = find(Direction.FORWARD, "64x64x64_compv3_intrawave")
DATA = find(Direction.BWD_DATA, "64x64x64_mem_intrawave")
WEIGHT = find(Direction.BWD_WEIGHT, "64x64x64_basic_v1_intrawave")
# Rows of a register block depend on the waves only if they are fewer than the registers hold.
FLAT = replace(DATA, warp_tile_m=1)

# A kernel and a change of one parameter, which must change the machine code.
CHANGES: dict[str, tuple[ConvKernel, dict[str, Any]]] = {
    "tile_m": (FORWARD, {"tile_m": 32}),
    "tile_n": (DATA, {"tile_n": 128}),
    "tile_k": (WEIGHT, {"tile_k": 128}),
    "wave_m": (FLAT, {"wave_m": 1}),
    "wave_n": (FORWARD, {"wave_n": 2}),
    "warp_tile_m": (DATA, {"warp_tile_m": 1}),
    "warp_tile_n": (DATA, {"warp_tile_n": 32}),
    "warp_tile_k": (FORWARD, {"warp_tile_k": 32}),
    "pipeline": (FORWARD, {"pipeline": "compv6"}),
    "scheduler of mem": (DATA, {"scheduler": Scheduler.INTERWAVE}),
    "scheduler of basic_v1": (WEIGHT, {"scheduler": Scheduler.INTERWAVE}),
    "double_smem_buffer": (FORWARD, {"double_smem_buffer": True}),
    "double_smem_buffer in place": (WEIGHT, {"double_smem_buffer": True}),
    "split_image": (FORWARD, {"split_image": True}),
    "split_image of bwd_data": (DATA, {"split_image": True}),
    "vector_a": (FORWARD, {"vector_a": 2}),
    "vector_b": (FORWARD, {"vector_b": 4}),
    "vector_c": (DATA, {"vector_c": 4}),
}
CHANGED = {name: (kernel, replace(kernel, **changes)) for name, (kernel, changes) in CHANGES.items()}


class OtherSimd(HostDevice):
    """This CPU with the SIMD registers of another; the compiler splits wider vectors."""

    def __init__(self, simd: HostSimd) -> None:
        super().__init__()
        self._simd = simd

    def emit(self, kernel: Any) -> str:
        return emit_host(kernel, self._simd)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A separate cache for this module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CKH_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def build(device: HostDevice, kernels: Iterable[ConvKernel]) -> Build:
    return KernelBuilder(device).build(list(kernels), default_jobs(device.job_bytes), lambda _count, _text: None)


@pytest.fixture(scope="module")
def built(cache: None) -> Build:
    """The chosen kernels."""
    return build(HostDevice(), [kernel for chosen in CHOSEN.values() for kernel in chosen])


@pytest.fixture(scope="module")
def changed(cache: None) -> Build:
    """The kernels with a changed parameter and their originals, all for the registers of the same CPU."""
    return build(OtherSimd(HostSimd(32, 16)), [kernel for pair in CHANGED.values() for kernel in pair])


def assert_right(p: ConvProblem, libraries: Iterable[str]) -> None:
    """Run every library on the problem, with guards around its output; a wrong result raises `KernelFailure`."""
    bench = Bench(HostMemory(), PhaseClock())
    assert bench.set_problem(Job(Op.PROBLEM, 1, p.canonical())).status is Status.OK
    for library in libraries:
        reply = bench.measure(Job(Op.MEASURE, 2, library=library, samples=1))
        assert (reply.status, len(reply.samples_ns)) == (Status.OK, 1)


def instructions(library: str) -> list[str]:
    """Machine code without the addresses of jumps and data, which may move for other reasons."""
    command = ["objdump", "-d", "-j", ".text", "--no-show-raw-insn", "--no-addresses", library]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = (line.partition("#")[0].strip() for line in text.splitlines() if line.startswith("\t"))
    without_data = (re.sub(r"-?0x[0-9a-f]+\(%rip\)", "(%rip)", line) for line in lines)
    return [re.sub(r"^((?:j\w+|call)\s).*", r"\1", line) for line in without_data]


def test_chosen_kernels_cover_every_combination() -> None:
    """Together they have every pipeline with every scheduler, tile, and flag, in every direction."""
    everything = [kernel for chosen in CHOSEN.values() for kernel in chosen]
    assert {kernel.tile for kernel in everything} == {row.tile for row in CONV_TILES}
    for direction, chosen in CHOSEN.items():
        pool = conv_pool(direction, HOST)
        assert {(k.pipeline, k.scheduler) for k in chosen} == {(k.pipeline, k.scheduler) for k in pool}
        assert len(chosen) == (8 if direction is Direction.FORWARD else 7)
        assert {(k.double_smem_buffer, k.split_image) for k in chosen} == {(a, b) for a in (0, 1) for b in (0, 1)}


def test_every_kernel_compiles(built: Build, changed: Build) -> None:
    """All of the chosen and the changed kernels have a library."""
    results = [*built.values(), *changed.values()]
    assert {result.message for result in results if result.status is not Status.OK} == set()


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("text", PROBLEMS.values(), ids=PROBLEMS.keys())
def test_results_are_right(text: str, direction: Direction, built: Build) -> None:
    """Every chosen kernel gives the reference's result and writes nowhere else."""
    assert_right(problem(text, direction), [built[kernel].library for kernel in CHOSEN[direction]])


@pytest.mark.parametrize("name", ["primes", "depthwise", "three channels a group", "3D"])
def test_results_of_changed_kernels_are_right(name: str, changed: Build) -> None:
    """Kernels outside the pools, with other waves, warp tiles and vectors, compute the same."""
    for direction in Direction:
        libraries = [result.library for kernel, result in changed.items() if kernel.variant is direction]
        assert_right(problem(PROBLEMS[name], direction), libraries)


@pytest.mark.parametrize("simd", [HostSimd(16, 16), HostSimd(32, 32)], ids=str)
@pytest.mark.usefixtures("cache")
def test_results_are_right_with_other_registers(simd: HostSimd) -> None:
    """Kernels for CPUs with other vectors compute the same."""
    kernels = {direction: chosen[1::5] for direction, chosen in CHOSEN.items()}
    libraries = build(OtherSimd(simd), [kernel for chosen in kernels.values() for kernel in chosen])
    for direction, chosen in kernels.items():
        for name in ("primes", "first layer", "depthwise", "three channels a group", "3D"):
            assert_right(problem(PROBLEMS[name], direction), [libraries[kernel].library for kernel in chosen])


@pytest.mark.parametrize(("kernel", "other"), CHANGED.values(), ids=CHANGED.keys())
def test_every_parameter_changes_the_machine_code(kernel: ConvKernel, other: ConvKernel, changed: Build) -> None:
    """No parameter is without effect on the machine code."""
    plain = instructions(changed[kernel].library)
    assert len(plain) > 1000
    differs = plain != instructions(
        changed[other].library
    )  # outside the assertion, which would print thousands of lines
    assert differs


@pytest.mark.parametrize("direction", list(Direction))
def test_every_kernel_of_a_pool_has_its_own_source(direction: Direction) -> None:
    """No two kernels are compiled to the same library, except that 2D and 3D share theirs."""
    sources = [emit_host(kernel, SIMD) for kernel in conv_pool(direction, HOST)]
    assert len(set(sources)) == len(sources)
    assert [emit_host(kernel, SIMD) for kernel in conv_pool(direction, HOST, 3)] == sources


def test_the_source_id_identifies_the_source(built: Build) -> None:
    """A library states a unique id of its source, and version 2 of the ABI."""
    ids = set()
    for kernel, result in built.items():
        library = ctypes.CDLL(result.library)
        library.ckh_source_id.restype = ctypes.c_char_p
        said = library.ckh_source_id().decode()
        assert f'source_id = "{said}"' in HostDevice().emit(kernel)
        assert library.ckh_abi_version() == 2
        ids.add(said)
    assert len(ids) == len(built)


def test_source_is_the_same_in_another_process() -> None:
    """Nothing depends on Python's random hashes, or on time."""
    program = (
        "import hashlib\n"
        "from ckh.archs import load_arch\n"
        "from ckh.bench.codegen.unit import HostSimd\n"
        "from ckh.ops.grouped_conv.measuring.measured import emit_host\n"
        "from ckh.ops.grouped_conv.kernels.pool import conv_pool\n"
        "from ckh.problems import Direction\n"
        "texts = [emit_host(k, HostSimd(64, 32)) for d in Direction for k in conv_pool(d, load_arch('host'))]\n"
        "print(hashlib.sha256(''.join(texts).encode()).hexdigest())\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4321"}
    text = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    texts = [emit_host(kernel, SIMD) for direction in Direction for kernel in conv_pool(direction, HOST)]
    assert text.strip() == hashlib.sha256("".join(texts).encode()).hexdigest()


def test_source_depends_on_the_registers() -> None:
    """Another CPU gets another source, so a shared cache never confuses them."""
    kernel = CHOSEN[Direction.FORWARD][0]
    registers = [HostSimd(vector_bytes, number) for vector_bytes in (16, 32, 64) for number in (16, 32)]
    assert len({emit_host(kernel, simd) for simd in registers}) == 6


@pytest.mark.parametrize("direction", list(Direction))
def test_an_invalid_problem_is_refused(direction: Direction, built: Build) -> None:
    """Channels that groups do not divide, and a size of zero, are refused with a reason and not run."""
    library = KernelLibrary(built[CHOSEN[direction][0]].library)
    p = problem(PROBLEMS["three channels a group"], direction)
    assert library.unsupported(ctypes.byref(c_problem(p))) is None
    for name, value, reason in (("g", 5, b"C and K must be divisible by G"), ("hi", 0, b"a size is not positive")):
        bad = c_problem(p)
        setattr(bad, name, value)
        assert library.unsupported(ctypes.byref(bad)) == reason
        assert library.run(ctypes.byref(bad), None) == 1


def test_incomplete_kernel_is_refused() -> None:
    """AMD's short names lack fields that a source needs; the message names them."""
    kernel = parse_kernel_name("grouped_conv_forward_fp32_2d_64x64x64_compv3_intrawave")
    with pytest.raises(UsageError) as caught:
        emit_host(kernel, SIMD)
    assert caught.value.code == "incomplete-kernel"
    expect_values(caught.value.message, "wave_m, wave_n, wave_k, warp_tile_m")
    with expect_refusal(UsageError, "incomplete-kernel", "vector_b"):
        emit_host(replace(CHOSEN[Direction.FORWARD][0], vector_b=None), SIMD)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp64"])
def test_other_types_are_refused(dtype: str) -> None:
    """The host computes fp32 only."""
    with expect_refusal(UsageError, "unknown-dtype", "fp32", dtype):
        emit_host(replace(CHOSEN[Direction.FORWARD][0], dtype=dtype), SIMD)


@pytest.mark.parametrize("pipeline", ["compv1", "comp_async", "wavelet"])
def test_other_pipelines_are_refused(pipeline: str) -> None:
    """Pipelines that the host does not have are not replaced."""
    with expect_refusal(UsageError, "unknown-name", pipeline):
        emit_host(replace(CHOSEN[Direction.FORWARD][0], pipeline=pipeline), SIMD)


@pytest.mark.parametrize(("vector_bytes", "registers"), [(8, 16), (24, 16), (64, 8), (128, 32)])
def test_impossible_registers_are_refused(vector_bytes: int, registers: int) -> None:
    """SIMD vectors have 16, 32 or 64 bytes, and there are 16 or 32 of them."""
    with expect_refusal(UsageError, "bad-kernel", registers, vector_bytes):
        HostSimd(vector_bytes, registers)
