"""Compare kernels emitted by ckh with those built by Composable Kernel's own launchers: registers, LDS, scratch.

    python benchmarks/same_kernel.py [--arch gfx942] [--keep FOLDER] [NAME …]

CK's launchers are those of `example/ck_tile` and `tile_engine/ops/gemm`, which are searched in the folder above the
headers, in its subfolder `ck`, or in `CK_SOURCE`. Both are compiled for the GPU only, with the same flags, and compared
for each case of the main loop, stored or added. Needs hipcc and CK Tile's headers (`HIPCC`, `CK_TILE_INCLUDE`) but no
GPU; takes a minute on one core per name. The exit code is 1 if a difference is not explained.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.compilation.binary import parse_resources
from ckh.bench.devices.device import DeviceOptions
from ckh.bench.devices.device_choice import open_device
from ckh.ops.gemm_universal.kernel import parse_kernel_name as parse_gemm
from ckh.ops.grouped_conv.kernel import parse_kernel_name as parse_conv
from ckh.problems import Direction
from ckh.text.tabletext import table_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.bench.devices.device import Device
    from ckh.ops.gemm_universal.kernel import GemmKernel
    from ckh.ops.grouped_conv.kernel import ConvKernel

    Kernel = ConvKernel | GemmKernel

_CONV, _GEMM = "grouped_conv_", "gemm_universal_"
_UNPADDED, _PADDED = "False_False_False_False", "True_True_True_False"
# Compared kernels, by the names of ckh. Vector widths are those of CK's launcher.
NAMES = (
    f"{_CONV}bwd_weight_fp16_nhwgc_2d_compv3_cshuffle_intrawave_16x64x64_1x4x1_16x16x32_vec4_8_8",
    f"{_CONV}bwd_data_fp16_nhwgc_2d_compv3_cshuffle_intrawave_16x64x64_1x4x1_16x16x32_vec4_8_8",
    f"{_CONV}fwd_bf16_nhwgc_2d_compv3_cshuffle_intrawave_16x64x64_1x4x1_16x16x32_vec4_8_8",
    f"{_GEMM}fp16_rcr_compv3_cshuffle_intrawave_{_UNPADDED}_128x128x64_2x2x1_32x32x16",
    f"{_GEMM}fp8_rcr_compv4_cshuffle_intrawave_{_PADDED}_128x64x64_2x2x1_32x32x16",
    f"{_GEMM}bf16_rrr_mem_cshuffle_interwave_{_PADDED}_64x64x64_2x2x1_32x32x16",
    f"{_CONV}bwd_weight_fp16_nhwgc_2d_compv4_cshuffle_intrawave_64x64x32_2x2x1_16x16x16_vec8_8_8_dsb",
    f"{_CONV}fwd_fp16_nhwgc_2d_compv4_cshuffle_intrawave_64x64x64_2x2x1_32x32x16_vec4_8_8_dsb",
    f"{_CONV}fwd_fp16_nhwgc_2d_mem_cshuffle_interwave_128x32x64_4x1x1_32x32x16_vec4_8_8",
    f"{_CONV}bwd_data_fp16_nhwgc_2d_mem_cshuffle_intrawave_128x32x64_4x1x1_32x32x16_vec4_8_8",
    f"{_CONV}bwd_weight_bf16_nhwgc_2d_mem_cshuffle_intrawave_128x32x64_4x1x1_32x32x16_vec8_8_8",
    f"{_GEMM}fp16_ccr_compv3_cshuffle_intrawave_True_True_True_True_128x128x64_2x2x1_32x32x16",
    f"{_GEMM}fp16_rcr_basic_v1_cshuffle_intrawave_{_UNPADDED}_256x256x64_2x2x1_32x32x16",
    f"{_CONV}fwd_fp16_nhwgc_2d_compv3_cshuffle_intrawave_128x128x64_2x2x1_16x16x32_vec4_8_8_bpc2",
)
# Reasons why a kernel differs from that of CK's launcher.
EXPLAINED: dict[str, str] = {}

_FILES = {Direction.FORWARD: "forward", Direction.BWD_DATA: "backward_data", Direction.BWD_WEIGHT: "backward_weight"}
_INVOKERS = {
    Direction.FORWARD: (
        "GroupedConvolutionForwardInvoker::grouped_conv_fwd",
        "GroupedConvFwdHostArgs<ck_tile::element_wise::PassThrough>",
    ),
    Direction.BWD_DATA: ("GroupedConvolutionBackwardDataInvoker::grouped_conv_bwd_data", "GroupedConvBwdDataHostArgs"),
    Direction.BWD_WEIGHT: (
        "GroupedConvolutionBackwardWeightInvoker::grouped_conv_bwd_weight",
        "GroupedConvBwdWeightHostArgs",
    ),
}
_ENUMERATORS = {"mem": "MEMORY", "compv3": "COMPUTE_V3", "compv4": "COMPUTE_V4"}
_TYPES = {"fp16": "ck_tile::half_t", "bf16": "ck_tile::bf16_t"}
_GPU_ALONE = ("--cuda-device-only", "-S", "-Wno-unused-command-line-argument")
_LAYOUTS = {"r": "RowMajor", "c": "ColumnMajor"}
_OCCUPANCY = "GemmKernel::MaxOccupancyGridSize(stream)"
_FUNCTION = re.compile(r"Function Name: (\S*kentry\S*)")
# Main loop, its end, and store or add, as encoded in a mangled name.
_LOOP = re.compile(r"GemmPipelineSchedulerE\d+ELb([01])ELNS_10TailNumberE(\d+)E")
_OPERATION = re.compile(r"memory_operation_enumE(\d+)E")

Case = tuple[str, str, str]  # whether the main loop runs, how it ends, and whether results are stored (0) or added


@dataclass(frozen=True, slots=True)
class Taken:
    """Resource usage of a kernel."""

    sgprs: int
    vgprs: int
    agprs: int
    lds_bytes: int
    scratch_bytes: int

    def __str__(self) -> str:
        """Text for the table."""
        return f"{self.sgprs}, {self.vgprs}, {self.agprs}, {self.lds_bytes}, {self.scratch_bytes}"


@dataclass(frozen=True, slots=True)
class Source:
    """A translation unit, and the folders of headers that it includes besides CK Tile's."""

    text: str
    folders: tuple[Path, ...]


def ck_source() -> Path | None:
    """The folder with CK's examples and tile engine, if there is one."""
    include = Path(os.environ.get("CK_TILE_INCLUDE", "/opt/rocm/include"))
    places = (Path(os.environ.get("CK_SOURCE", "")), include.parent / "ck", include.parent)
    return next((place for place in places if (place / "tile_engine/ops/gemm").is_dir()), None)


def parse_name(name: str) -> Kernel:
    """The kernel of a full name of either operation."""
    return parse_conv(name) if name.startswith(_CONV) else parse_gemm(name)


def conv_source(kernel: ConvKernel, ck: Path) -> Source:
    """CK's launcher of its example of convolutions, with the kernel's parameters."""
    function, arguments = _INVOKERS[kernel.variant]
    letters = {"M": "m", "N": "n", "K": "k"}
    sizes = {
        **{f"{letter}_Tile": getattr(kernel, f"tile_{axis}") for letter, axis in letters.items()},
        **{f"{letter}_Warp": getattr(kernel, f"wave_{axis}") for letter, axis in letters.items()},
        **{f"{letter}_Warp_Tile": getattr(kernel, f"warp_tile_{axis}") for letter, axis in letters.items()},
        **{f"VectorSize{letter.upper()}": getattr(kernel, f"vector_{letter}") for letter in "abc"},
        "kBlockPerCu": kernel.block_per_cu,
        "NumGroupsToMerge": kernel.num_groups_to_merge,
    }
    constants = {
        **{f"ck_tile::index_t {name}": value for name, value in sizes.items()},
        "bool DoubleSmemBuffer": str(kernel.double_smem_buffer).lower(),
        "auto Pipeline": f"ck_tile::GemmPipeline::{_ENUMERATORS[kernel.pipeline]}",
        "auto Scheduler": f"ck_tile::GemmPipelineScheduler::{str(kernel.scheduler).capitalize()}",
    }
    body = "".join(f"    static constexpr {name} = {value};\n" for name, value in constants.items())
    dtype = _TYPES[kernel.dtype]
    layouts = ", ".join(f"ck_tile::tensor_layout::convolution::{item}" for item in ("NHWGC", "GKYXC", "NHWGK"))
    # Only the kernels that store, or only those that add: other kernels in a translation unit may change register
    # counts.
    kept, left_out = ("AtomicAdd", "Set") if kernel.split_k > 1 else ("Set", "AtomicAdd")
    text = (
        '#include "grouped_convolution_utils.hpp"\n'
        f"#define MemoryOp{left_out} MemoryOp{kept}\n"
        f'#include "grouped_convolution_{_FILES[kernel.variant]}_invoker.hpp"\n'
        f"struct Config : ConvConfigBase {{\n{body}}};\n"
        f"template float {function}<2, Config, {dtype}, {dtype}, float, {dtype}, {layouts}>(\n"
        f"    const ck_tile::{arguments}&, const ck_tile::stream_config&);\n"
    )
    return Source(text, (ck / "example/ck_tile/20_grouped_convolution",))


def basic_gemm_source(kernel: GemmKernel, ck: Path) -> Source:
    """CK's launcher of its basic example of GEMMs, whose tile is its own."""
    a, b = (f"ck_tile::tensor_layout::gemm::{_LAYOUTS[letter]}" for letter in kernel.layout[:2])
    dtype, c = _TYPES[kernel.dtype], "ck_tile::tensor_layout::gemm::RowMajor"
    text = (
        '#include "gemm_utils.hpp"\n'
        "template <class Layout>\nconstexpr auto is_row_major(Layout) {\n"
        f"    return ck_tile::bool_constant<std::is_same_v<Layout, {c}>>{{}};\n}}\n"
        '#include "gemm_basic_invoker.hpp"\n'
        f"template float BasicInvoker::gemm<GemmConfigBase, {dtype}, {dtype}, ck_tile::tuple<>, float, {dtype}, {a},\n"
        f"    {b}, ck_tile::tuple<>, {c}, false, ck_tile::element_wise::PassThrough>(\n"
        "    const ck_tile::GemmHostArgs&, const ck_tile::stream_config&);\n"
    )
    return Source(text, (ck / "example/ck_tile/03_gemm",))


def gemm_source(kernel: GemmKernel, ck: Path, arch: str, folder: Path) -> Source:
    """What CK's tile engine generates for the kernel."""
    if kernel.pipeline == "basic_v1":
        return basic_gemm_source(kernel, ck)
    engine = ck / "tile_engine/ops/gemm"
    tile = "_".join("x".join(map(str, part)) for part in (kernel.tile, kernel.wave, kernel.warp_tile))
    options = (kernel.pipeline, kernel.epilogue, kernel.scheduler, *kernel.pads, kernel.persistent)
    command = [sys.executable, str(engine / "gemm_instance_builder.py"), "--working_path", str(folder)]
    command += ["--gpu_target", arch, "--datatype", kernel.dtype, "--layout", kernel.layout, "--gen_single"]
    command += ["--kernel_name", "single", "--tile_config", tile, "--trait_combo", "_".join(map(str, options))]
    command += ["--config_json", str(engine / "configs/default_config.json")]
    subprocess.run(command, check=True, capture_output=True)
    (header,) = folder.glob("gemm_single_*.hpp")
    # The launcher instantiates a persistent kernel a second time, to query how many blocks fit a compute unit. Common
    # code is then a function called by both, which needs scratch memory: here there is a single kernel.
    header.write_text(header.read_text(encoding="utf-8").replace(_OCCUPANCY, "dim3(1)"), encoding="utf-8")
    return Source(f'#include "{header.name}"\nauto* const used = &SelectedKernel::launch;\n', (folder,))


def theirs(kernel: Kernel, ck: Path, arch: str, folder: Path) -> Source:
    """CK's own launcher with a kernel's parameters."""
    variant = getattr(kernel, "variant", None)
    return gemm_source(kernel, ck, arch, folder) if variant is None else conv_source(kernel, ck)  # type: ignore[arg-type]


def compiled(device: Device, kernel: Kernel, source: Source, folder: Path) -> dict[Case, Taken]:
    """Resource usage of the GPU functions of a translation unit, by case.

    Raises:
        RuntimeError: it does not compile.
    """
    path = folder / "kernel.cpp"
    path.write_text(source.text, encoding="utf-8")
    command = device.compile_command(kernel, path, folder / "kernel.s")
    command += [*(f"-I{folder}" for folder in source.folders), *_GPU_ALONE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        raise RuntimeError("\n".join(errors[:3]) or done.stderr[-500:])
    return taken(done.stderr)


def taken(remarks: str) -> dict[Case, Taken]:
    """Resource usage of kernels, by case, from the compiler's remarks."""
    result = {}
    for name in dict.fromkeys(_FUNCTION.findall(remarks)):
        resources = parse_resources(remarks, name)
        if resources is not None:
            result[case_of(name)] = Taken(*(getattr(resources, field) for field in Taken.__dataclass_fields__))
    return result


def case_of(function: str) -> Case:
    """Case of a function by its mangled name; a pipeline without main loops has one."""
    loop, operation = _LOOP.search(function), _OPERATION.search(function)
    has_loop, tail = (loop[1], loop[2]) if loop else ("", "")
    return has_loop, tail, operation[1] if operation else ""


def row(name: str, ck: dict[Case, Taken], ours: dict[Case, Taken]) -> tuple[list[str], bool]:
    """A row of the table, and whether all cases that both have are equal."""
    cases = sorted(set(ck) & set(ours), key=lambda case: (case[0] != "1", case[2], case[1]))
    if not cases:
        return [name, "", "", "no case in common"], False
    equal = sum(ck[case] == ours[case] for case in cases)
    shown = next((case for case in cases if ck[case] != ours[case]), cases[0])
    return [name, str(ck[shown]), str(ours[shown]), f"{equal} of {len(cases)}"], equal == len(cases)


def compare(names: Sequence[str], arch: str, ck: Path, keep: Path | None = None) -> Iterator[tuple[list[str], bool]]:
    """A row for each kernel, and whether it is equal or its difference is explained; keeps assembly on request."""
    device = open_device("hip", DeviceOptions(arch))
    for name in names:
        kernel = parse_name(name)
        with tempfile.TemporaryDirectory() as temporary_directory, tempfile.TemporaryDirectory() as other:
            its = compiled(
                device, kernel, theirs(kernel, ck, arch, Path(temporary_directory)), Path(temporary_directory)
            )
            ours = compiled(device, kernel, Source(device.emit(kernel), ()), Path(other))
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(temporary_directory, "kernel.s"), keep / f"{name}.ck.s")
                shutil.copy(Path(other, "kernel.s"), keep / f"{name}.ckh.s")
        cells, is_same = row(name, its, ours)
        yield cells, is_same or name in EXPLAINED


def main() -> None:
    """Compare, print the table, and report differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="NAME", help="kernels by their full names  [a list of fourteen]")
    parser.add_argument("--arch", default="gfx942")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep both sides' assembly there")
    asked = parser.parse_args()
    ck = ck_source()
    if ck is None:
        parser.error("there are no examples and tile engine of Composable Kernel: name their folder in CK_SOURCE")
    rows, is_good = [], True
    for cells, is_fine in compare(asked.names or NAMES, asked.arch, ck, asked.keep):
        print(" | ".join(cells), file=sys.stderr, flush=True)
        rows.append(cells)
        is_good &= is_fine
    title = "SGPRs, VGPRs, AGPRs, bytes of LDS, bytes of scratch"
    print(table_text(title, ["kernel", "CK's own", "ckh's", "equal cases"], rows), end="")
    for name, why in EXPLAINED.items():
        print(f"\n{name}: {why}")
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
