"""Translation units of several kernels, so that common code is parsed and instantiated once.

Each kernel has its own namespace, with the text of those of ckh's headers that depend on kernel parameters; all other
headers are included once. The compiled library holds all kernels but exports the functions of one: the index of that
kernel is stored after a marker in the file (`templates/ck_tile/unit.hpp`), so a copy with another index is the library
of another kernel.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.codegen.ck_tile import LABEL
from ckh.bench.compilation.binary import FUNCTION_REMARK
from ckh.errors import UsageError
from ckh.kernels.pipelines import PIPELINES, TABLE_PIPELINES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


_FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-stack-protector",
    "-fvisibility=default",
    "-shared",
    "-fPIC",
)


@dataclass(frozen=True, slots=True)
class HostSimd:
    """The SIMD registers of a CPU: their size in bytes (16, 32 or 64) and their number (16 or 32)."""

    vector_bytes: int
    registers: int

    def __post_init__(self) -> None:
        if self.vector_bytes not in (16, 32, 64) or self.registers not in (16, 32):
            raise UsageError(
                f"no CPU has {self.registers} SIMD registers of {self.vector_bytes} bytes", code="bad-kernel"
            )


def template_dir() -> Path:
    """Directory of the headers that are included by kernels of several operations."""
    return Path(__file__).parent / "templates" / "host"


def staging_constants(pipeline: str) -> dict[str, bool]:
    """Compile-time constants of a pipeline in the sources of host kernels."""
    row = PIPELINES.get(pipeline)
    if row is None or row.staging is None:
        raise UsageError(
            f"the host device has no pipeline {pipeline}", "one of " + ", ".join(TABLE_PIPELINES), code="unknown-name"
        )
    return row.staging.constants()


def compile_flags() -> tuple[str, ...]:
    """Compiler flags for one translation unit, including the shared include directory, without input and output."""
    return (*_FLAGS, f"-I{template_dir()}")


def translation_unit(first: str, lines: Iterable[str], *last: str) -> str:
    """Source that includes a header, states `lines` in the namespace `ckh::kernel`, then includes the others."""
    included = "".join(f'#include "{name}"\n' for name in last)
    head, tail = f'#include "{first}"\n\nnamespace ckh::kernel {{\n', f"\n}}  // namespace ckh::kernel\n\n{included}"
    return "\n".join((head, *lines, tail))


def header_contents(folder: Path) -> bytes:
    """Names and contents of a folder's headers, which a compiled kernel depends on in addition to its own source."""
    headers = sorted(folder.glob("*.hpp"))
    return b"".join(header.name.encode() + b"\0" + header.read_bytes() + b"\0" for header in headers)


class UnsupportedKernelError(Exception):
    """A kernel that a device cannot build; the message names the missing feature."""


_INCLUDE = re.compile(r'#include (?:"([^"]+)"|<[^>]+>)')
COMMENT = re.compile(r"//[^\n]*")
_CONSTANT = re.compile(r"(?:inline constexpr|using) [^=]*?(\w+)(?:\[\w+\])? =")
_PARAMETERS = "kernel::"  # namespace of a kernel's parameters
_SIZES = re.compile(r"\bck_tile::index_t\b|\bVariant::")
_MARK = b"ckh-chosen:\0"
_NUMBER_BYTES = 4
_HOST = "#ifndef __HIP_DEVICE_COMPILE__\n"  # GPU code would otherwise need the functions in the table
_FUNCTIONS = (
    "abi_version",
    "operand_count",
    "name",
    "error",
    "unsupported",
    "workspace_bytes",
    "run",
    "time",
    "time_by",
    "set_flush",
)

# CK Tile's kernels are function templates. A type from the kernel's own namespace among the template arguments makes
# their names unique, so that compiler remarks on a function can be attributed to one kernel.
_REGION = """
namespace {space} {{
using namespace ckh;
template <class Kernel>
struct OwnKernel : Kernel {{}};
}}  // namespace {space}
{defined}
{body}
{undefined}
"""


def unit_source(sources: Sequence[str], folders: Sequence[Path]) -> str:
    """Combine the sources of single kernels into one translation unit."""
    texts = _texts(folders)
    shared: dict[str, None] = {}
    bodies = ["\n".join(_own_lines(source, texts, shared, set())) for source in sources]
    regions = [_region(_space(number), body) for number, body in enumerate(bodies)]
    entries = (", ".join(f"{_space(n)}_{name}" for name in _FUNCTIONS) for n in range(len(sources)))
    table = "".join(f"    {{{entry}}},\n" for entry in entries)
    head = "\n".join((*shared, '#include "unit.hpp"'))
    return f"{head}\n{''.join(regions)}\n{_HOST}const ckh::Entry ckh::entries[] = {{\n{table}}};\n#endif\n"


def similarity(source: str) -> tuple[list[str], list[str]]:
    """Sort key that places similar kernels next to each other.

    Kernels with different tiles have least in common; then come element types and pipelines, and spatial dimensions.
    """
    lines = [line for line in source.splitlines() if LABEL not in line]
    return list(filter(_SIZES.search, lines)), lines


def chosen(library: bytes, number: int) -> bytes:
    """Return a unit's library with the given kernel selected; empty if it is not a unit's library."""
    head, mark, tail = library.partition(_MARK)
    if not mark or _MARK in tail:
        return b""
    return head + mark + number.to_bytes(_NUMBER_BYTES, "little") + tail[_NUMBER_BYTES:]


def chosen_number(library: bytes) -> int | None:
    """Index of the kernel selected in a unit's library; None if it is not a unit's library."""
    _, mark, tail = library.partition(_MARK)
    return int.from_bytes(tail[:_NUMBER_BYTES], "little") if mark else None


def function_part(number: int) -> str:
    """Part of the mangled names of a kernel's functions in a unit."""
    space = _space(number)
    return f"{len(space)}{space}"


def remarks_of(number: int, messages: str) -> str:
    """Compiler remarks on the functions of one kernel of a unit."""
    part = function_part(number)
    blocks = re.split(rf"(?m)^(?=.*{FUNCTION_REMARK}: )", messages)
    return "".join(block for block in blocks if part in block.partition("\n")[0])


def code_hash(source: str, folders: Sequence[Path]) -> str:
    """Hash of everything in a source that ckh's headers read, except kernel names."""
    texts = _texts(folders)
    body = "\n".join(_own_lines(source, texts, {}, set()))
    read = set(re.findall(rf"\b{_PARAMETERS}(\w+)", body))
    lines = (line for line in source.splitlines() if LABEL not in line and _reads(line, read))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def _reads(line: str, read: set[str]) -> bool:
    constant = _CONSTANT.match(line)
    return constant is None or constant[1] in read


def _space(number: int) -> str:
    return f"ckh_u{number}"


def _region(space: str, body: str) -> str:
    names = {"ckh": space} | {f"ckh_{function}": f"{space}_{function}" for function in _FUNCTIONS}
    defined = "\n".join(f"#define {name} {own}" for name, own in names.items())
    undefined = "\n".join(f"#undef {name}" for name in names)
    return _REGION.format(space=space, defined=defined, body=body, undefined=undefined)


def _texts(folders: Iterable[Path]) -> dict[str, str]:
    """Texts of ckh's headers that depend on kernel parameters, directly or through an include, by name."""
    texts = {path.name: path.read_text(encoding="utf-8") for folder in folders for path in folder.glob("*.hpp")}
    own = {name for name, text in texts.items() if _PARAMETERS in COMMENT.sub("", text)}
    while more := {name for name, text in texts.items() if own.intersection(_INCLUDE.findall(text))} - own:
        own |= more
    return {name: texts[name] for name in own}


def _own_lines(text: str, texts: dict[str, str], shared: dict[str, None], seen: set[str]) -> Iterator[str]:
    """Expand the includes of headers that depend on the kernel; the other includes are collected in `shared`."""
    for line in text.splitlines():
        include = _INCLUDE.match(line)
        if include is None:
            if line != "#pragma once":
                yield line
        elif include[1] not in texts:
            shared[line] = None
        elif include[1] not in seen:
            seen.add(include[1])
            yield from _own_lines(texts[include[1]], texts, shared, seen)
