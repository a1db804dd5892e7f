"""Several kernels in one translation unit: each is the same as alone, whatever is shared."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.bench.codegen import ck_tile
from ckh.bench.codegen.ck_tile import Interface
from ckh.bench.codegen.unit import UnsupportedKernelError, chosen, code_hash, remarks_of, similarity, unit_source
from ckh.bench.compilation.binary import parse_resources
from ckh.bench.compilation.compile import KernelBuilder
from ckh.bench.compilation.kernel_cache import loadable
from ckh.bench.compilation.toolchain import find_compiler
from ckh.bench.devices.device import DeviceOptions
from ckh.bench.devices.hip_device import HipDevice
from ckh.files.paths import cache_dir
from ckh.ops import operation
from ckh.ops.grouped_conv.rules.sets import rule_set
from ckh.problems import Direction
from ckh.schema import Status
from tests.bench.fake_hipcc import REMARKS
from tests.real import compiles, interface_here, sampled, set_kernel_cache, skip_without_compiler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ckh.ops.grouped_conv.kernel import ConvKernel

ROOT = Path(__file__).parents[3]

# A minimal version of ckh's headers for a kernel that returns its value: a vocabulary, headers that read its
# parameters, and one that only includes one of them.
TEMPLATES = {
    "vocabulary.hpp": """#pragma once
#include <cstdint>
namespace ckh {
struct Problem { int64_t n; };
template <class Kernel> using OwnKernel = Kernel;
}
namespace ck_tile {
template <int Bound, class Kernel> int kentry(int n) { return Kernel{}(n) + Bound; }
}
""",
    "twice.hpp": "#pragma once\nnamespace ckh { struct Twice { int operator()(int n) const { return 2 * n; } }; }\n",
    "types.hpp": """#pragma once
#include "twice.hpp"
namespace ckh { constexpr int sum = kernel::value + kernel::more; }  // of this kernel
""",
    "limits.hpp": '#pragma once\n#include "types.hpp"\nnamespace ckh { constexpr int limit = sum; }\n',
    "abi.hpp": """#pragma once
#include "types.hpp"
#include "limits.hpp"
namespace ckh { inline int32_t flushed = 0; }
extern "C" {
int32_t ckh_abi_version(void) { return 2; }
int32_t ckh_operand_count(void) { return ckh::kernel::more; }
const char* ckh_name(void) { return ckh::kernel::label + 11; }
const char* ckh_error(void) { return "ckh-kernel: is not renamed"; }
const char* ckh_unsupported(const ckh::Problem*) { return nullptr; }
int64_t ckh_workspace_bytes(const ckh::Problem*) { return ckh::limit; }
int32_t ckh_run(const ckh::Problem* p, void* const*) {
    return ck_tile::kentry<100, ckh::OwnKernel<ckh::Twice>>(int(p->n) * ckh::sum) + ckh::flushed;
}
int32_t ckh_time(const ckh::Problem*, void* const*, int32_t, int32_t, double*) { return 0; }
int32_t ckh_time_by(int32_t, const ckh::Problem*, void* const* operands, int32_t count, int32_t first, int32_t,
                    int32_t, double* ns) {
    *ns = double(ckh::sum * count + first);
    return operands == nullptr;
}
void ckh_set_flush(void*, int64_t bytes) { ckh::flushed = int32_t(bytes); }
}
""",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The templates."""
    (tmp_path / "templates").mkdir()
    for name, text in TEMPLATES.items():
        (tmp_path / "templates" / name).write_text(text, encoding="utf-8")
    return tmp_path / "templates"


def source_of(name: str, value: int, more: int = 1, unread: int = 0) -> str:
    """The source of a single kernel."""
    return f"""#include "vocabulary.hpp"

namespace ckh::kernel {{
inline constexpr char label[512] = "ckh-kernel:{name}";
inline constexpr int value = {value};
inline constexpr int more = {more};
inline constexpr int unread = {unread};
}}  // namespace ckh::kernel

#include "limits.hpp"
#include "abi.hpp"
// headers 0
"""


@pytest.fixture
def compiled(folder: Path, tmp_path: Path) -> Callable[[Sequence[str]], bytes]:
    """Compile the unit of some sources to a library."""

    def compile_unit(sources: Sequence[str]) -> bytes:
        (tmp_path / "unit.cpp").write_text(unit_source(sources, [folder]), encoding="utf-8")
        folders = [f"-I{item}" for item in (folder, ck_tile.template_dir())]
        command = [*find_compiler().command, "-std=c++20", "-O2", "-shared", "-fPIC", "-s", *folders]
        subprocess.run([*command, "-o", str(tmp_path / "unit.so"), str(tmp_path / "unit.cpp")], check=True)
        return (tmp_path / "unit.so").read_bytes()

    return compile_unit


def test_each_copy_is_the_selected_kernel(compiled: Callable[[Sequence[str]], bytes], tmp_path: Path) -> None:
    """It has its own name, parameters and variables; a library without selection is the first kernel's."""
    library = compiled([source_of("one", 3), source_of("two", 4, 5), source_of("three", 6)])
    first, second, third = (chosen(library, number) for number in range(3))
    for file, copy, name, more, total in (
        ("a", library, "one", 1, 4),
        ("b", first, "one", 1, 4),
        ("c", second, "two", 5, 9),
        ("d", third, "three", 1, 7),
    ):
        (tmp_path / file).write_bytes(copy)
        kernel: Any = ctypes.CDLL(str(tmp_path / file))
        kernel.ckh_name.restype = kernel.ckh_error.restype = ctypes.c_char_p
        kernel.ckh_workspace_bytes.restype = ctypes.c_int64
        assert (kernel.ckh_name().decode(), kernel.ckh_error()) == (name, b"ckh-kernel: is not renamed")
        assert kernel.ckh_operand_count() == more
        problem = ctypes.c_int64(10)
        assert kernel.ckh_workspace_bytes(ctypes.byref(problem)) == total
        ns = ctypes.c_double()
        assert kernel.ckh_time_by(0, None, ctypes.byref(problem), 100, 7, 1, 1, ctypes.byref(ns)) == 0
        assert ns.value == 100 * total + 7
        kernel.ckh_set_flush(None, ctypes.c_int64(1000))
        assert kernel.ckh_run(ctypes.byref(problem), None) == 2 * 10 * total + 100 + 1000


def test_only_kernel_dependent_code_is_repeated(folder: Path) -> None:
    """Other headers are included once, before all kernels."""
    text = unit_source([source_of("one", 3), source_of("two", 4)], [folder])
    assert [line for line in text.splitlines() if line.startswith("#include")] == [
        '#include "vocabulary.hpp"',
        '#include "twice.hpp"',
        '#include "unit.hpp"',
    ]
    assert [text.count(part) for part in ("constexpr int sum", "constexpr int limit", "#pragma once")] == [2, 2, 0]


@pytest.mark.parametrize("library", [b"", b"no mark", b"ckh-chosen:\0....ckh-chosen:\0...."])
def test_a_library_of_a_single_kernel_has_no_selection(library: bytes) -> None:
    """Libraries without a marker, or with more than one."""
    assert chosen(library, 2) == b""


def test_only_the_number_is_changed() -> None:
    """The library has the same length as before."""
    library = b"ab ckh-chosen:\0\0\0\0\0 cd"
    assert (chosen(library, 0), chosen(library, 258)) == (library, b"ab ckh-chosen:\0\2\1\0\0 cd")


def test_remarks_are_assigned_to_the_right_kernel() -> None:
    """The first kernel's remarks are not those of the eleventh."""
    messages = "a.cpp:1: warning: nothing\n" + "".join(
        REMARKS.replace("NS_33", f"N{len(space)}{space}9OwnKernelINS_33").replace("@scratch@", str(scratch))
        for space, scratch in (("ckh_u1", 8), ("ckh_u10", 16), ("ckh_u2", 24), ("ckh_u1", 4))
    )
    for number, scratch in ((1, 8), (10, 16), (2, 24)):
        resources = parse_resources(remarks_of(number, messages), "GroupedConvolution")
        assert resources is not None
        assert resources.scratch_bytes == scratch
    assert remarks_of(3, messages) == ""


def test_equal_parameters_give_equal_code(folder: Path) -> None:
    """Names, and parameters that no header reads, are not part of the code; parameters that a header reads are."""
    plain = code_hash(source_of("one", 3), [folder])
    assert code_hash(source_of("another", 3, unread=7), [folder]) == plain
    assert len({plain, *(code_hash(source_of("one", *values), [folder]) for values in ((4, 1), (3, 2)))}) == 3
    assert code_hash(source_of("one", 3).replace("// headers 0", "// headers 1"), [folder]) != plain


def test_kernels_with_the_same_tile_are_adjacent() -> None:
    """They are adjacent whatever their names and pipelines."""
    line = 'label = "ckh-kernel:{}";\nPipeline::{}\nck_tile::index_t tile_m = {};\n'
    sources = [line.format(n, *kernel) for n, kernel in enumerate([("mem", 16), ("v3", 32), ("v3", 16), ("mem", 32)])]
    assert [sources.index(source) for source in sorted(sources, key=similarity)] == [0, 2, 3, 1]


def benchmark(name: str) -> Any:
    """A script in benchmarks as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"benchmarks/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look it up
    spec.loader.exec_module(module)
    return module


def device_code(library: bytes) -> Iterator[tuple[str, bytes]]:
    """As read by the benchmark."""
    result: Iterator[tuple[str, bytes]] = benchmark("compile_cost").device_code(library)
    return result


class _Alone(HipDevice):
    """A device that compiles each kernel separately."""

    unit_kernels = 1


def is_emitted(device: HipDevice, kernel: ConvKernel) -> bool:
    """Whether the headers can build a kernel."""
    with suppress(UnsupportedKernelError):
        return bool(device.emit(kernel))
    return False


@pytest.mark.slow
@compiles()
def test_real_kernels_have_the_same_device_code_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the same byte by byte, with the same resources, as compiled alone."""
    skip_without_compiler()
    alone, together = _Alone(DeviceOptions("gfx942")), HipDevice(DeviceOptions("gfx942"))
    kernels = [k for k in rule_set("tiny", Direction.FORWARD, 2, "bf16", together.arch) if is_emitted(together, k)][:2]
    assert len(kernels) == 2
    builts = []
    for device in (alone, together):
        monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / device.__class__.__name__))
        builts.append(KernelBuilder(device).build(kernels, 1, lambda _count, _text: None))
    for kernel in kernels:
        first, second = (built[kernel] for built in builts)
        assert (first.status, second.status) == (Status.OK, Status.OK)
        assert first.binary == second.binary is not None
        every = device_code(Path(first.library).read_bytes())
        code = {name: item for name, item in every if "kentry" in name}  # the headers also have functions of their own
        number = Path(loadable(second.library)).read_bytes().partition(b"ckh-chosen:\0")[2][0]
        own = {
            name: item
            for name, item in device_code(Path(loadable(second.library)).read_bytes())
            if f"6ckh_u{number}" in name
        }
        assert sorted(code.values()) == sorted(own.values())
        assert any(code.values())


TEMPLATES_OF_OPERATIONS = sorted(ROOT.glob("ckh/ops/*/templates/ck_tile"))


@pytest.mark.parametrize("folder", TEMPLATES_OF_OPERATIONS, ids=lambda folder: folder.parents[1].name)
def test_the_occupancy_is_that_of_the_launched_function(folder: Path) -> None:
    """No header has a second GPU function of a kernel: CK Tile's MaxOccupancyGridSize would be one."""
    text = re.sub("//[^\n]*", "", "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.hpp")))
    assert "MaxOccupancyGridSize" not in text
    asked = re.findall(
        r"hipOccupancyMaxActiveBlocksPerMultiprocessor\(&\w+,\s*(?:reinterpret_cast\W[^(]*\()?(\w+)", text
    )
    assert text.count("hipOccupancyMaxActiveBlocksPerMultiprocessor(") == len(asked)
    launched = re.findall(r"launch_of\((?:ck_tile::)?(\w+)", text)
    assert set(asked) <= set(launched)
    functions = re.findall(r"kentry<[^;{]*?\b(OwnKernel<Kernel>|Kernel, Pointer)", text)
    assert text.count("kentry<") == len(functions)


SCRIPT = benchmark("unit_resources")
LATE = [unit for unit in SCRIPT.UNITS if unit.interface is Interface.LATE_2025]


def test_units_have_a_persistent_kernel_of_each_operation_that_has_them() -> None:
    """Batched kernels, and those of convolutions, are never persistent."""
    named = [(unit.op, name) for unit in LATE if not isinstance(unit.kernels, str) for name in unit.kernels]
    kernels = [(op, operation(op).kernels.parse(name)) for op, name in named]
    persistent = {op for op, kernel in kernels if getattr(kernel, "persistent", False)}
    assert persistent == {"gemm_universal", "gemm_multi_d", "gemm_preshuffle", "gemm_grouped", "gemm_streamk"}


def test_units_cover_each_operation_architecture_and_interface() -> None:
    """Headers of mid-2025 have neither Stream-K, additional operands nor backward data."""
    operations = {path.parents[1].name for path in TEMPLATES_OF_OPERATIONS}
    mid = [unit for unit in SCRIPT.UNITS if unit.interface is Interface.MID_2025]
    assert {unit.op for unit in LATE} == operations
    assert {unit.op for unit in mid} == operations - {"gemm_streamk", "gemm_multi_d"}
    for units, directions in ((LATE, {"bwd_data", "bwd_weight", "forward"}), (mid, {"bwd_weight", "forward"})):
        known = {"gfx90a", "gfx942", *(["gfx950"] if units is LATE else [])}  # by the compilers of these headers
        assert {unit.arch for unit in units} == known
        drawn = [unit.kernels for unit in units if unit.op == "grouped_conv" and isinstance(unit.kernels, str)]
        assert {text.split()[0] for text in drawn} == directions
        assert {text.split()[0] for text in drawn if "3D" in text} == directions
    assert sum(SCRIPT.DRAWN if isinstance(unit.kernels, str) else len(unit.kernels) for unit in SCRIPT.UNITS) >= 40


def test_a_changed_kernel_is_reported() -> None:
    """Another register, and a function that is no kernel's."""
    one, other = (SCRIPT.Taken(64, 0, vgprs, 0, 0, 0, 4, 900, 120, 0) for vgprs in (40, 41))
    alone = [SCRIPT.Call([[one, one]], 2, 1.0), SCRIPT.Call([[other]], 1, 1.0)]
    same = SCRIPT.Call([[one, one], [other]], 3, 2.0)
    assert list(SCRIPT.differences(("a", "b"), same, alone)) == []
    changed = list(SCRIPT.differences(("a", "b"), SCRIPT.Call([[one, other], [other]], 4, 2.0), alone))
    assert [line.split(":")[0] for line in changed] == ["a and others", "a"]


@pytest.mark.slow
@compiles()
@pytest.mark.parametrize("unit", sampled(LATE, share=6), ids=lambda unit: f"{unit.op} {unit.arch} {unit.kernels[:12]}")
def test_a_unit_changes_no_kernel(unit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its GPU functions, none of which calls another, and their resources and loops are those of each kernel alone."""
    skip_without_compiler()
    if interface_here() is not Interface.LATE_2025:
        pytest.skip("the kernels are for headers of late 2025")
    set_kernel_cache(monkeypatch)
    names, kept = unit.names(HipDevice(DeviceOptions(unit.arch))), cache_dir("units")
    together = SCRIPT.compiled(unit.op, unit.arch, names, kept)
    alone = [SCRIPT.compiled(unit.op, unit.arch, (name,), kept) for name in names]
    assert list(SCRIPT.differences(names, together, alone)) == []
    assert {function.calls for functions in together.taken for function in functions} == {0}
