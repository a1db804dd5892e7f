"""GPU functions of a file: a code object, a bundle, or a library that contains one."""

from __future__ import annotations

import json
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.archs import load_arch
from ckh.bench.codegen.unit import chosen_number, function_part
from ckh.bench.compilation.kernel_cache import loadable
from ckh.emulator.codeobject import BUNDLE_MAGIC, CodeObject, bundled_archs, code_in
from ckh.errors import DataError, UsageError
from ckh.files.untrusted import most_unpacked, read_bytes
from ckh.schema import Resources

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.emulator.codeobject import CompiledKernel
    from ckh.hardware.archspec import ArchSpec

_ELF_MAGIC, _AMDGPU = b"\x7fELF", 224
_ELF = struct.Struct("<16xHHIQQQI")  # type, machine, version, entry, segments, sections, flags
# Processor in the flags of an ELF file (LLVM, "User Guide for AMDGPU Backend", EF_AMDGPU_MACH).
_MACHINE_BITS = 0xFF
_MACHINES: dict[str, str] = json.loads(Path(__file__).with_name("machines.json").read_bytes())
# A compressed bundle: magic, version and method, in versions 2 and 3 its size, and the size and hash of the bundle.
_COMPRESSED_MAGIC = b"CCOB"
_COMPRESSED = {1: struct.Struct("<4xHHIQ"), 2: struct.Struct("<4xHH4xIQ"), 3: struct.Struct("<4xHH8xQQ")}
_ZLIB = 0  # else zstd
_BUNDLES = re.compile(re.escape(BUNDLE_MAGIC) + b"|" + _COMPRESSED_MAGIC + rb"[\1-\3]\0[\0\1]\0")
_REGISTERS, _REGISTER_GRANULE = 512, 8  # per lane, vector and accumulation registers together
_SCALARS, _SCALAR_GRANULE = 800, 16  # per SIMD
_LDS_GRANULE = 512
_SHOWN, _SHOWN_NAME = 5, 100  # names of functions in an error, and their characters


@dataclass(frozen=True, slots=True)
class Function:
    """A GPU function."""

    name: str  # mangled name
    resources: Resources  # registers, LDS, scratch memory, spills and occupancy
    threads: int  # maximum threads per block; 0: unknown
    entry: int  # offset in the loaded code object
    code: bytes  # machine code


@dataclass(frozen=True, slots=True)
class CodeFile:
    """The functions of a file, and their architecture."""

    arch: str
    functions: tuple[Function, ...]


def read_code(path: Path, arch: str | None, parts: Sequence[str] = ()) -> CodeFile:
    """Read the functions of a file whose mangled names contain one of `parts`, by default all.

    `arch` selects the code of a file for several architectures.
    """
    data = read_bytes(_loadable(path))
    number = chosen_number(data)
    functions: list[Function] = []
    try:
        for code in _code_objects(data, arch):
            processor = arch = _machine(code, arch)
            loaded = CodeObject(code)
            functions += [_function(kernel, loaded, load_arch(processor)) for kernel in loaded.kernels.values()]
    except (ValueError, struct.error, zlib.error, OSError) as error:  # ValueError: code that cannot be loaded
        hint = "name a code object, or a library of kernels"
        raise DataError(f"{path}: {error}", hint, code="damaged") from error
    if number is not None:
        functions = [function for function in functions if function_part(number) in function.name]
    if not functions:
        raise DataError(f"{path}: a code object without kernels", "it may be stripped", code="damaged")
    named = [function for function in functions if not parts or any(part in function.name for part in parts)]
    if not named:
        names = ", ".join(function.name[:_SHOWN_NAME] for function in functions[:_SHOWN])
        more = f" and {len(functions) - _SHOWN} more" if len(functions) > _SHOWN else ""
        raise UsageError(
            f"{path} has no function named {' or '.join(parts)}", f"it has {names}{more}", code="unknown-name"
        )
    if empty := [function.name for function in named if not function.code]:
        raise DataError(f"{path}: {empty[0]} has no instructions", "it may be cut off", code="damaged")
    return CodeFile(processor, tuple(named))


def _loadable(path: Path) -> Path:
    """The file itself, or for a file of the cache, a loadable copy of its unit's library."""
    try:
        return type(path)(loadable(str(path)))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", code="unreadable") from error


def _code_objects(data: bytes, arch: str | None) -> Iterator[bytes]:
    """The code object, or those of each bundle in a library, which has one for each of its sources."""
    if data.startswith(_ELF_MAGIC) and _ELF.unpack_from(data)[1] == _AMDGPU:
        yield data
        return
    bundles: list[memoryview] = []
    room = most_unpacked(len(data))
    for found in _BUNDLES.finditer(data):
        bundle = memoryview(data)[found.start() :]
        if bundle[: len(_COMPRESSED_MAGIC)] == _COMPRESSED_MAGIC:
            bundle = _uncompressed(bundle, room)
            room -= len(bundle)
        bundles.append(bundle)
    if not bundles:
        raise ValueError("it has no GPU code")
    names = sorted({name for bundle in bundles for name in bundled_archs(bundle)})
    if arch is None and len(names) != 1:
        raise ValueError(f"name one of its architectures with --arch: {', '.join(names)}")
    wanted = arch or names[0]
    for bundle in bundles:
        if wanted not in names or wanted in bundled_archs(bundle):
            offset, size = code_in(bundle, wanted)
            if (room := room - size) < 0:
                raise ValueError("bundles whose code overlaps")
            yield bytes(bundle[offset : offset + size])


def _uncompressed(data: memoryview, most: int) -> memoryview:
    """The bundle of at most this size that some bytes begin with, compressed by `--offload-compress`."""
    layout = _COMPRESSED[data[4]]
    _, method, size, _ = layout.unpack_from(data)
    packed = data[layout.size :]
    if size > most:
        raise ValueError(f"a compressed bundle of {size} bytes; the limit is {most}")
    if method == _ZLIB:
        result = zlib.decompressobj().decompress(packed, size)
    else:
        from pyarrow import BufferReader, CompressedInputStream

        result = CompressedInputStream(BufferReader(packed), "zstd").read(size)
    if len(result) < size:
        raise ValueError("a truncated compressed bundle")
    return memoryview(result)


def _machine(code: bytes, arch: str | None) -> str:
    """Processor of a code object; an error if it is not the given architecture."""
    if not code.startswith(_ELF_MAGIC):
        raise ValueError("a code object that is not an ELF file")
    _, machine, *_, flags = _ELF.unpack_from(code)
    processor = _MACHINES.get(hex(flags & _MACHINE_BITS)) if machine == _AMDGPU else None
    if processor is None:
        raise ValueError(f"it is code for another processor: machine {machine}, flags {flags:#x}")
    if arch not in (None, processor):
        raise ValueError(f"it is code for {processor}, not {arch}")
    return processor


def _function(kernel: CompiledKernel, code: CodeObject, arch: ArchSpec) -> Function:
    own = kernel.registers
    vgprs = own.vgprs - own.agprs
    resources = Resources(
        vgprs=vgprs,
        agprs=own.agprs,
        sgprs=own.sgprs,
        lds_bytes=kernel.lds,
        scratch_bytes=kernel.scratch,
        vgpr_spills=own.vgpr_spills,
        sgpr_spills=own.sgpr_spills,
        occupancy=min(waves_by(own.vgprs, own.sgprs, kernel.lds, own.threads // arch.wavefront_size, arch).values()),
    )
    return Function(kernel.name, resources, own.threads, kernel.entry, code.machine_code(kernel))


def waves_by(vgprs: int, sgprs: int, lds: int, waves: int, arch: ArchSpec) -> dict[str, int]:
    """Waves per SIMD that each resource allows, by name of the resource.

    Registers are of a lane, vector and accumulation registers together, and of a wave; `lds` bytes and `waves` are of
    a block, 0: unknown.
    """
    hardware = arch.hardware
    most = hardware.max_waves_per_cu // hardware.simds_per_cu
    limits = {"waves": most, "vector registers": min(most, _REGISTERS // _rounded(max(vgprs, 1), _REGISTER_GRANULE))}
    limits["scalar registers"] = min(most, _SCALARS // _rounded(max(sgprs, 1), _SCALAR_GRANULE))
    if lds and waves:
        blocks = arch.lds_capacity // _rounded(lds, _LDS_GRANULE)
        limits["LDS"] = min(most, -(-blocks * waves // hardware.simds_per_cu))
    return limits


def _rounded(count: int, granule: int) -> int:
    return -(-count // granule) * granule
