"""Completeness of a library: a compiler's output is complete, and no part of it is."""

from __future__ import annotations

import random
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest

from ckh.bench.compilation.binary import ElfFault, fault_of_library
from ckh.bench.compilation.toolchain import find_compiler
from ckh.bench.isolated.kernel_library import ENTRY_POINTS
from tests.bench.faults import GOOD
from tests.refusals import expect_values

if TYPE_CHECKING:
    from pathlib import Path

DAMAGES = {"short": 1000, "long": 100_000}
X86_64, AARCH64 = 62, 183
FAILURES = {"", *ElfFault}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A compiler's output."""
    return compiled(tmp_path_factory.mktemp("elf"), GOOD.source, "-shared")


def compiled(folder: Path, source: str, *flags: str) -> bytes:
    (folder / "a.cpp").write_text(source, encoding="utf-8")
    command = [*find_compiler().command, "-w", "-fPIC", *flags, "-o", str(folder / "a"), str(folder / "a.cpp")]
    subprocess.run(command, check=True)
    return (folder / "a").read_bytes()


def test_compiler_output_is_complete(library: bytes, tmp_path: Path) -> None:
    """It is complete with symbols and without, and with trailing data."""
    assert fault_of_library(library, ENTRY_POINTS) == ""
    assert fault_of_library(library + b"more", ENTRY_POINTS) == ""
    assert fault_of_library(compiled(tmp_path, GOOD.source, "-shared", "-s"), ENTRY_POINTS) == ""


def test_missing_and_undefined_functions_are_named(library: bytes, tmp_path: Path) -> None:
    """A library that only calls a function does not define it."""
    expect_values(fault_of_library(library, [*ENTRY_POINTS, "ckh_more"]), "ckh_more")
    calls = compiled(tmp_path, 'extern "C" int ckh_run(); int other() { return ckh_run(); }', "-shared")
    expect_values(fault_of_library(calls, ["ckh_run"]), "ckh_run")


@pytest.mark.parametrize(
    ("source", "flags", "fault"),
    [
        ("int main() {}", ("-pie",), "ckh_abi_version"),
        ("int main() {}", ("-no-pie",), ElfFault.NOT_SHARED),
        ("int a;", ("-c",), ElfFault.NOT_SHARED),
    ],
)
def test_another_kind_of_file_is_refused(source: str, flags: tuple[str, ...], fault: str, tmp_path: Path) -> None:
    """Programs and object files are ELF files too; a position-independent one is a library without functions."""
    expect_values(fault_of_library(compiled(tmp_path, source, *flags), ENTRY_POINTS), fault)


def test_no_truncated_file_is_accepted(library: bytes) -> None:
    """This holds wherever the end is cut off, down to a single byte."""
    lengths = {*range(0, len(library), 97), *range(64), len(library) - 1}
    faults = {length: fault_of_library(library[:length], ENTRY_POINTS) for length in lengths}
    assert faults.pop(0) == ElfFault.EMPTY
    assert all(faults.values())
    assert faults[len(library) - 1] == ElfFault.DAMAGED  # the section table is at the end of a file
    assert {faults[length] for length in range(4, 16)} == {ElfFault.OTHER_MACHINE}


@pytest.mark.parametrize(
    ("table_field", "entry_size_field", "size_field"), [(32, 54, 32), (40, 58, 32)], ids=["segment", "section"]
)
def test_a_section_beyond_the_file_is_an_error(
    library: bytes, table_field: int, entry_size_field: int, size_field: int
) -> None:
    """The stated size of the first non-empty part exceeds the file."""
    (table,) = struct.unpack_from("<Q", library, table_field)
    (entry_size,) = struct.unpack_from("<H", library, entry_size_field)
    at = next(
        at for at in range(table, len(library), entry_size) if struct.unpack_from("<Q", library, at + size_field)[0]
    )
    size = struct.pack("<Q", len(library) + 1)
    longer = library[: at + size_field] + size + library[at + size_field + len(size) :]
    assert fault_of_library(longer, ENTRY_POINTS) == ElfFault.TRUNCATED


def test_another_machine_is_reported(library: bytes) -> None:
    """It is detected by the number of the processor, or of bits."""
    machine = AARCH64 if struct.unpack_from("<H", library, 18)[0] == X86_64 else X86_64
    other = library[:18] + struct.pack("<H", machine) + library[20:]
    narrow = library[:4] + b"\1" + library[5:]
    assert {fault_of_library(item, ENTRY_POINTS) for item in (other, narrow)} == {ElfFault.OTHER_MACHINE}
    assert fault_of_library(b"int main;\n", ENTRY_POINTS) == ElfFault.NOT_ELF


def test_damage_is_reported_without_side_effects(library: bytes, reliability: str) -> None:
    """Random bytes in headers and tables give an answer, never an exception."""
    rng = random.Random(7)
    ends = (*range(64), *range(len(library) - 4096, len(library)))
    for _ in range(DAMAGES[reliability]):
        damaged = bytearray(library)
        for _ in range(rng.randint(1, 8)):
            damaged[rng.choice(ends) if rng.random() < 0.7 else rng.randrange(len(library))] = rng.randrange(256)
        result = fault_of_library(bytes(damaged), ENTRY_POINTS)
        assert result in FAILURES or any(name in result for name in ENTRY_POINTS)
