"""Emitted GEMM host kernels: compiled for real, right on awkward sizes, and distinct for distinct parameters."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import prod, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from joblib import Parallel, delayed
from numpy.typing import NDArray

from ckh.archs import load_arch
from ckh.bench.codegen import unit as host
from ckh.bench.codegen.unit import HostSimd
from ckh.bench.compilation.toolchain import find_compiler
from ckh.bench.devices.device import headers_comment
from ckh.bench.devices.host_device import HostDevice
from ckh.bench.isolated.kernel_library import KernelLibrary, pointers
from ckh.bench.isolated.memory import GuardedBuffer, input_array
from ckh.bench.isolated.verify import FP32_ROUNDING
from ckh.errors import UsageError
from ckh.kernels.pipelines import TABLE_PIPELINES, Scheduler
from ckh.ops.gemm_universal.kernel import GemmKernel, kernel_name, parse_kernel_name, short_name
from ckh.ops.gemm_universal.kernels.pool import gemm_pool
from ckh.ops.gemm_universal.kernels.problem_rules import GEMM_RULES
from ckh.ops.gemm_universal.measuring.hip import emit_for_host as emit
from ckh.ops.gemm_universal.measuring.measured import MEASURED, CGemmProblem
from ckh.ops.gemm_universal.problem import GEMM_LAYOUTS, GemmProblem
from tests.refusals import expect_values

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ckh.archs import Triple

pytestmark = pytest.mark.slow

Array = NDArray[Any]
Libraries = dict[GemmKernel, KernelLibrary]

HOST = load_arch("host")
assert MEASURED.host is not None
(TEMPLATES,) = MEASURED.host.templates
SIMD = HostSimd(64, 32)
PADS = tuple(product((True, False), repeat=3))
NAN_BYTE = 0xFF
ODD_BYTES = 4  # operands start one float after a page boundary

# Ones, primes that no tile divides, less and more than a tile along every axis, exact multiples, more than one tile of
# K even where tile_k counts vectors.
SIZES: dict[str, Triple] = {
    "one product": (1, 1, 1),
    "vector by matrix": (1, 263, 131),
    "matrix by vector": (139, 1, 67),
    "outer product": (131, 127, 1),
    "tiny": (3, 5, 2),
    "skinny": (16, 300, 257),
    "primes": (37, 523, 263),
    "whole tiles": (256, 256, 256),
    "long reduction": (7, 19, 1301),
}


def choose(layout: str) -> list[GemmKernel]:
    """A kernel of every pipeline and scheduler, with alternating tiles, blocks and all combinations of padding."""
    pool = gemm_pool(HOST, layout=layout)
    ways = dict.fromkeys((kernel.pipeline, kernel.scheduler) for kernel in pool)
    turn = GEMM_LAYOUTS.index(layout)
    chosen = []
    for number, way in enumerate(ways):
        fits = [kernel for kernel in pool if (kernel.pipeline, kernel.scheduler) == way and kernel.pad_m]
        pads = PADS[(number + 3 * turn) % len(PADS)]
        kernel = fits[(13 * number + 5 * turn) % len(fits)]
        chosen.append(replace(kernel, pad_m=pads[0], pad_n=pads[1], pad_k=pads[2]))
    return chosen


CHOSEN = {layout: choose(layout) for layout in GEMM_LAYOUTS}
PLAIN = parse_kernel_name(
    "gemm_universal_fp32_rrr_compv3_cshuffle_intrawave_True_True_True_False_64x64x64_2x2x1_16x16x16"
)
IN_PLACE = replace(PLAIN, pipeline="basic_v1")
DOTS = replace(IN_PLACE, layout="rcr")
# Rows of a register block depend on the waves only if they are fewer than the registers hold.
FLAT = replace(PLAIN, warp_tile_m=1)

# A kernel and a change of one parameter, which must change the machine code.
CHANGES: dict[str, tuple[GemmKernel, dict[str, Any]]] = {
    "tile_m": (PLAIN, {"tile_m": 32}),
    "tile_n": (PLAIN, {"tile_n": 128}),
    "tile_k": (DOTS, {"tile_k": 128}),
    "wave_m": (FLAT, {"wave_m": 1}),
    "wave_n": (FLAT, {"wave_n": 1}),
    "warp_tile_m": (PLAIN, {"warp_tile_m": 1}),
    "warp_tile_n": (replace(FLAT, wave_n=1), {"warp_tile_n": 32}),
    "warp_tile_k": (PLAIN, {"warp_tile_k": 32}),
    "warp_tile_k of dot products": (DOTS, {"warp_tile_k": 32}),
    "pipeline": (PLAIN, {"pipeline": "mem"}),
    "scheduler": (PLAIN, {"scheduler": Scheduler.INTERWAVE}),
    "scheduler of dot products": (DOTS, {"scheduler": Scheduler.INTERWAVE}),
    "pad_m": (PLAIN, {"pad_m": False}),
    "pad_n": (PLAIN, {"pad_n": False}),
    "pad_k": (PLAIN, {"pad_k": False}),
    "pad_k of dot products": (DOTS, {"pad_k": False}),
    "layout of A": (PLAIN, {"layout": "crr"}),
    "layout of B": (IN_PLACE, {"layout": "rcr"}),
}
CHANGED = {name: (kernel, replace(kernel, **changes)) for name, (kernel, changes) in CHANGES.items()}


def build(kernels: Iterable[GemmKernel], folder: Path, simd: HostSimd) -> dict[GemmKernel, Path]:
    """Compile every kernel once, two in parallel."""

    def compiled(number: int, kernel: GemmKernel) -> Path:
        source, library = folder / f"{number}.cpp", folder / f"{number}.so"
        source.write_text(emit(kernel, simd), encoding="utf-8")
        # Vectors wider than this CPU's registers have no stable ABI, which only inlined functions use.
        warnings = ("-Wall", "-Wextra", "-Werror", "-Wno-psabi")
        command = [*find_compiler().command, *host.compile_flags(), f"-I{TEMPLATES}", *warnings]
        subprocess.run([*command, "-o", str(library), str(source)], check=True, timeout=120)
        return library

    unique = list(dict.fromkeys(kernels))
    tasks = (delayed(compiled)(number, kernel) for number, kernel in enumerate(unique))
    return dict(zip(unique, Parallel(n_jobs=2, backend="threading")(tasks), strict=True))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    """The chosen kernels."""
    kernels = [kernel for chosen in CHOSEN.values() for kernel in chosen]
    libraries = build(kernels, tmp_path_factory.mktemp("chosen"), SIMD)
    return {kernel: KernelLibrary(str(path)) for kernel, path in libraries.items()}


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> dict[GemmKernel, Path]:
    """The kernels with a changed parameter and their originals, all for the registers of the same CPU."""
    kernels = [kernel for pair in CHANGED.values() for kernel in pair]
    return build(kernels, tmp_path_factory.mktemp("changed"), HostSimd(32, 16))


def as_argument(m: int, n: int, k: int, split_k: int = 1) -> Any:
    """The sizes as arguments of a library's functions."""
    return ctypes.byref(CGemmProblem(m, n, k, split_k))


def sizes_for(kernel: GemmKernel, sizes: Triple) -> Triple:
    """Sizes rounded up to whole tiles along axes that the kernel does not pad."""
    m, n, k = (
        size if padded else -(-size // tile) * tile
        for size, tile, padded in zip(sizes, kernel.tile, kernel.pads, strict=True)
    )
    return m, n, k


def unaligned(values: Array) -> Array:
    """A read-only copy that starts at an odd float."""
    return input_array(np.concatenate([np.zeros(1, np.float32), values.reshape(-1)]))[1:]


@lru_cache(maxsize=64)
def case(sizes: Triple) -> tuple[Array, Array, Array, Array]:
    """A, B, their product in double precision and the tolerance of verify.py."""
    m, n, k = sizes
    rng = np.random.default_rng(prod(sizes))
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    magnitudes = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    return a, b, a.astype(np.float64) @ b.astype(np.float64), FP32_ROUNDING * (16 + sqrt(k)) * magnitudes


def assert_right(library: KernelLibrary, layout: str, sizes: Triple) -> None:
    """C equals NumPy's double-precision result, and nothing is written outside C and the workspace."""
    m, n, k = sizes
    a, b, exact, allowed = case(sizes)
    stored_a, stored_b = (unaligned(x if order == "r" else x.T) for x, order in zip((a, b), layout[:2], strict=True))
    problem = as_argument(m, n, k)
    assert library.unsupported(problem) is None
    workspace = GuardedBuffer(library.workspace_bytes(problem))
    out = GuardedBuffer(ODD_BYTES + 4 * m * n)
    workspace.data[:] = out.data[:] = NAN_BYTE
    addresses = (stored_a.ctypes.data, stored_b.ctypes.data, out.address + ODD_BYTES, workspace.address)
    assert library.run(problem, pointers(addresses)) == 0
    assert (out.overrun(), workspace.overrun()) == ("", "")
    assert (out.data[:ODD_BYTES] == NAN_BYTE).all()
    c = out.data[ODD_BYTES:].view(np.float32).reshape(m, n)
    assert (np.abs(c - exact) <= allowed).all()  # false for NaN


def instructions(library: Path) -> list[str]:
    """Machine code without the addresses of jumps and data, which may move for other reasons."""
    command = ["objdump", "-d", "-j", ".text", "--no-show-raw-insn", "--no-addresses", str(library)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = (line.partition("#")[0].strip() for line in text.splitlines() if line.startswith("\t"))
    without_data = (re.sub(r"-?0x[0-9a-f]+\(%rip\)", "(%rip)", line) for line in lines)
    return [re.sub(r"^((?:j\w+|call)\s).*", r"\1", line) for line in without_data]


@pytest.mark.parametrize("layout", GEMM_LAYOUTS)
def test_chosen_kernels_cover_every_combination(layout: str) -> None:
    """In every layout they have each pipeline with each of its schedulers, and all combinations of padding."""
    pool, chosen = gemm_pool(HOST, layout=layout), CHOSEN[layout]
    assert {(k.pipeline, k.scheduler) for k in chosen} == {(k.pipeline, k.scheduler) for k in pool}
    assert {kernel.pads for kernel in chosen} == set(PADS)
    blocks = {(kernel.wave, kernel.warp_tile) for chosen in CHOSEN.values() for kernel in chosen}
    assert blocks == {(kernel.wave, kernel.warp_tile) for kernel in pool}


@pytest.mark.parametrize("layout", GEMM_LAYOUTS)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_results_are_right(sizes: Triple, layout: str, built: Libraries) -> None:
    """Every chosen kernel gives NumPy's result for unaligned operands, and writes nowhere else."""
    for kernel in CHOSEN[layout]:
        assert_right(built[kernel], layout, sizes_for(kernel, sizes))


@pytest.mark.parametrize("name", ["one product", "skinny", "primes", "long reduction"])
def test_results_of_changed_kernels_are_right(name: str, changed: dict[GemmKernel, Path]) -> None:
    """Kernels outside the pools, for a CPU with fewer and shorter registers, compute the same."""
    for kernel, path in changed.items():
        assert_right(KernelLibrary(str(path)), kernel.layout, sizes_for(kernel, SIZES[name]))


def test_results_are_right_with_the_shortest_registers(tmp_path: Path) -> None:
    """Register blocks wider than a tile leave a remainder that even unpadded kernels handle."""
    narrow = [replace(CHOSEN[layout][0], tile_n=24, warp_tile_n=8, wave_n=2, pad_n=False) for layout in GEMM_LAYOUTS]
    for kernel, path in build(narrow, tmp_path, HostSimd(16, 16)).items():
        assert_right(KernelLibrary(str(path)), kernel.layout, sizes_for(kernel, SIZES["primes"]))


@pytest.mark.parametrize(("kernel", "other"), CHANGED.values(), ids=CHANGED.keys())
def test_every_parameter_changes_the_machine_code(
    kernel: GemmKernel, other: GemmKernel, changed: dict[GemmKernel, Path]
) -> None:
    """No parameter is without effect on the machine code."""
    plain = instructions(changed[kernel])
    assert len(plain) > 500
    differs = plain != instructions(changed[other])  # outside the assertion, which would print thousands of lines
    assert differs


def test_every_pipeline_has_distinct_machine_code(tmp_path: Path) -> None:
    """No two pipelines have the same machine code for the same tile, block and scheduler."""
    kernels = [replace(PLAIN, pipeline=pipeline) for pipeline in TABLE_PIPELINES]
    codes = {tuple(instructions(path)) for path in build(kernels, tmp_path, SIMD).values()}
    assert len(codes) == len(TABLE_PIPELINES)


def test_every_kernel_of_the_pools_has_its_own_source() -> None:
    """No two kernels of any layout are compiled to the same library."""
    kernels = [kernel for layout in GEMM_LAYOUTS for kernel in gemm_pool(HOST, layout=layout)]
    assert len({emit(kernel, SIMD) for kernel in kernels}) == len(kernels)


def test_a_library_contains_its_name_and_abi_version(built: Libraries) -> None:
    """A library has the kernel's complete name and version 1 of the ABI, or would not have loaded."""
    for kernel, library in built.items():
        assert library.name() == kernel_name(kernel)


def test_time_is_measured_per_loop(built: Libraries) -> None:
    """Every sample is a positive time, and the whole product was timed."""
    kernel = CHOSEN["rcr"][0]
    m, n, k = sizes_for(kernel, SIZES["tiny"])
    problem, ns = as_argument(m, n, k), (ctypes.c_double * 3)()
    a, b = np.ones((m, k), np.float32), np.ones((n, k), np.float32)
    out, workspace = GuardedBuffer(4 * m * n), GuardedBuffer(built[kernel].workspace_bytes(problem))
    a, b = input_array(a), input_array(b)
    addresses = (a.ctypes.data, b.ctypes.data, out.address, workspace.address)
    assert built[kernel].time(problem, pointers(addresses), 2, 3, ns) == 0
    assert all(value > 0 for value in ns)
    assert (out.data.view(np.float32) == k).all()


@pytest.mark.parametrize("layout", GEMM_LAYOUTS)
def test_unsupported_sizes_are_refused_with_the_axis(layout: str, built: Libraries) -> None:
    """A size that an unpadded tile does not divide is refused, without running, exactly if the rules refuse it."""
    for kernel in CHOSEN[layout]:
        library = built[kernel]
        for axis, (name, padded) in enumerate(zip("mnk", kernel.pads, strict=True)):
            m, n, k = (tile + (at == axis) for at, tile in enumerate(kernel.tile))
            reason = None if padded else f"{name.upper()} is not a multiple of tile_{name}, nor padded".encode()
            assert library.unsupported(as_argument(m, n, k)) == reason
            refused = GEMM_RULES.of_problem(kernel, HOST, GemmProblem(m, n, k, layout=layout))
            assert bool(refused) is (reason is not None)
            if reason is not None:
                assert library.run(as_argument(m, n, k), None, None, None, None) == 1


def test_split_k_and_sizes_of_zero_are_refused(built: Libraries) -> None:
    """The host does not split K, and a size of zero is nothing to compute."""
    library = built[CHOSEN["rrr"][0]]
    m, n, k = CHOSEN["rrr"][0].tile
    assert library.unsupported(as_argument(m, n, k, 2)) == b"the host does not split K"
    assert library.run(as_argument(m, n, k, 2), None, None, None, None) == 1
    for sizes in ((0, n, k), (m, -n, k), (m, n, 0)):
        assert library.unsupported(as_argument(*sizes)) == b"a size is not positive"


def test_source_depends_on_the_registers() -> None:
    """Another CPU gets another source, so a shared cache never confuses them."""
    registers = [HostSimd(vector_bytes, number) for vector_bytes in (16, 32, 64) for number in (16, 32)]
    assert len({emit(PLAIN, simd) for simd in registers}) == 6


def test_the_key_covers_both_directories_of_headers(tmp_path: Path) -> None:
    """A change of any header that a kernel includes results in another library."""
    device = HostDevice()
    shared = list(host.template_dir().glob("*.hpp"))
    assert shared
    assert all(header.read_bytes() in device.cache_salt() for header in shared)
    assert device.emit(PLAIN).endswith(headers_comment((TEMPLATES,)))
    own = Path(shutil.copytree(TEMPLATES, tmp_path / "own"))
    comments = {headers_comment((own,))}
    assert comments == {headers_comment((TEMPLATES,))}
    headers = list(own.glob("*.hpp"))
    for header in headers:
        header.write_text(header.read_text(encoding="utf-8") + "// more\n", encoding="utf-8")
        comments.add(headers_comment((own,)))
    assert len(comments) == 1 + len(headers) > 1
    with_shared = headers_comment((own, host.template_dir()))
    assert with_shared not in {*comments, headers_comment((host.template_dir(),))}
    command = device.compile_command(PLAIN, tmp_path / "a.cpp", tmp_path / "a.so")
    assert [word for word in command if word.startswith("-I")] == [f"-I{host.template_dir()}", f"-I{TEMPLATES}"]


def test_incomplete_kernel_is_refused() -> None:
    """AMD's short names lack fields that a source needs; the message names them."""
    with pytest.raises(UsageError) as caught:
        emit(parse_kernel_name(short_name(PLAIN)), SIMD)
    assert caught.value.code == "incomplete-kernel"
    expect_values(caught.value.message, "wave_m, wave_n, wave_k, warp_tile_m")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "bf16"}, "computes fp32, not bf16"),
        ({"layout": "rcc"}, "has no layout rcc"),
        ({"pipeline": "preshufflev2"}, "has no pipeline preshufflev2"),
        ({"epilogue": "default"}, "has no epilogue default"),
        ({"persistent": True}, "has no persistent kernels"),
        ({"vector_a": 4}, "the host device has native vector widths only"),
        ({"suffix": "_odd"}, "does not support the suffix _odd"),
    ],
)
def test_features_missing_on_the_host_are_refused(change: dict[str, Any], message: str) -> None:
    """Missing features are not replaced."""
    with pytest.raises(UsageError, match=message):
        emit(replace(PLAIN, **change), SIMD)
