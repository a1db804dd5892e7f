"""Several kernels in one translation unit, so that what they share is read and instantiated once.

Each kernel is in a namespace of its own, with the text of those of our headers that depend on a kernel's parameters;
all other headers are included once. What is compiled is a library of all of them, which exports the functions of one:
the number of that kernel stands behind a mark in the file (`templates/ck_tile/unit.hpp`), so that a copy with another
number is another kernel's library.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from ckh.bench.codegen.ck_tile import LABEL
from ckh.bench.compilation.binary import FUNCTION_REMARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

_INCLUDE = re.compile(r'#include (?:"([^"]+)"|<[^>]+>)')
_COMMENT = re.compile(r"//[^\n]*")
_CONSTANT = re.compile(r"(?:inline constexpr|using) [^=]*?(\w+)(?:\[\w+\])? =")
_PARAMETERS = "kernel::"  # the namespace of a kernel's parameters
_SIZES = re.compile(r"\bck_tile::index_t\b|\bVariant::")
_MARK = b"ckh-chosen:\0"
_NUMBER_BYTES = 4
_HOST = "#ifndef __HIP_DEVICE_COMPILE__\n"  # GPU code would need the functions in the table
_FUNCTIONS = ("abi_version", "name", "error", "unsupported", "workspace_bytes", "run", "time", "time_by", "set_flush")

# Kernels of CK Tile are functions with types as parameters. One of the kernel's own namespace among them makes their
# names differ, so that what the compiler says of a function is said of one kernel.
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
    """The translation unit of the kernels that `sources` are those of, each alone.

    Args:
        sources: of kernels of one operation.
        folders: where our headers are.
    """
    texts = _texts(folders)
    shared: dict[str, None] = {}
    bodies = ["\n".join(_own_lines(source, texts, shared, set())) for source in sources]
    regions = [_region(_space(number), body) for number, body in enumerate(bodies)]
    entries = (", ".join(f"{_space(n)}_{name}" for name in _FUNCTIONS) for n in range(len(sources)))
    table = "".join(f"    {{{entry}}},\n" for entry in entries)
    head = "\n".join((*shared, '#include "unit.hpp"'))
    return f"{head}\n{''.join(regions)}\n{_HOST}const ckh::Entry ckh::entries[] = {{\n{table}}};\n#endif\n"


def similarity(source: str) -> tuple[list[str], list[str]]:
    """A key in whose order neighbours have most in common.

    Kernels that differ in their tiles share least; then come element types and pipelines, and numbers of dimensions.
    """
    lines = [line for line in source.splitlines() if LABEL not in line]
    return list(filter(_SIZES.search, lines)), lines


def chosen(library: bytes, number: int) -> bytes:
    """The library of a unit as that of one of its kernels; empty if it is not a unit's."""
    head, mark, tail = library.partition(_MARK)
    if not mark or _MARK in tail:
        return b""
    return head + mark + number.to_bytes(_NUMBER_BYTES, "little") + tail[_NUMBER_BYTES:]


def chosen_number(library: bytes) -> int | None:
    """The number of the kernel that a unit's library is that of; None if it is not a unit's."""
    _, mark, tail = library.partition(_MARK)
    return int.from_bytes(tail[:_NUMBER_BYTES], "little") if mark else None


def function_part(number: int) -> str:
    """Part of the mangled names of a kernel's functions in a unit."""
    space = _space(number)
    return f"{len(space)}{space}"


def remarks_of(number: int, messages: str) -> str:
    """The compiler's remarks on the functions of one kernel of a unit."""
    part = function_part(number)
    blocks = re.split(rf"(?m)^(?=.*{FUNCTION_REMARK}: )", messages)
    return "".join(block for block in blocks if part in block.partition("\n")[0])


def code_hash(source: str, folders: Sequence[Path]) -> str:
    """A hash that sources share if they differ in nothing that our headers read, their names excepted."""
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
    """Our headers that depend on a kernel's parameters, or include one that does, by name."""
    texts = {path.name: path.read_text(encoding="utf-8") for folder in folders for path in folder.glob("*.hpp")}
    own = {name for name, text in texts.items() if _PARAMETERS in _COMMENT.sub("", text)}
    while more := {name for name, text in texts.items() if own.intersection(_INCLUDE.findall(text))} - own:
        own |= more
    return {name: texts[name] for name in own}


def _own_lines(text: str, texts: dict[str, str], shared: dict[str, None], seen: set[str]) -> Iterator[str]:
    """A text with the headers that depend on a kernel in place of their inclusions; others are put into `shared`."""
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
