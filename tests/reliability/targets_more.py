"""Readers of files that ckh or AITER wrote and strangers may hand on: tunings, exports, tables, GPU code."""

from __future__ import annotations

import json
import lzma
import shutil
import struct
from functools import cache
from typing import TYPE_CHECKING, Any

from ckh.commands.convert import _mapping as mapping_of
from ckh.data.formats import ReadOptions
from ckh.data.readers import read_input
from ckh.export.answered import checked_tables
from ckh.ops.aiter.installed import own_table
from ckh.ops.aiter_gemm.consumers import _table as gemm_table
from ckh.ops.gemm_universal.problem import GemmProblem
from ckh.shapes.layers import WeightedProblem
from ckh.tune import steps
from ckh.tune.page import page
from ckh.tune.settings import TuneSettings, progress_of
from ckh.tune.tuning import ModelTuning
from tests.isa.keep import FOLDER, LEAST
from tests.reliability import samples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reliability.mutation import Mutator

_GEMM = "gemm_fp32_rcr_m16_n128_k64_splitk1"
_KERNEL = "gemm_universal_fp32_rcr_compv3_cshuffle_intrawave_False_False_False_False_64x64x64_2x2x1_32x32x8"
_FIELDS = (0, 1, 2, 3, 8, 63, 64, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)
_SHAPES = [WeightedProblem("gemm_universal", GemmProblem.parsed(_GEMM), 2, ("qkv",), "")]


@cache
def code_objects() -> list[bytes]:
    """A kernel of convolutions."""
    return [lzma.decompress((FOLDER / f"{LEAST}.co.xz").read_bytes())]


def damaged_code(mutator: Mutator) -> bytes:
    """Damaged bytes, or a field of the header, of sections, segments or symbols with another value."""
    if mutator.random.random() < 0.3:
        return mutator.next()
    chance, content = mutator.random, bytearray(code_objects()[0])
    programs, sections = struct.unpack_from("<QQ", content, 32)
    counts = struct.unpack_from("<HHHH", content, 54)  # size and number of segments, of sections
    for _ in range(chance.choice((1, 1, 2, 4))):
        kind = chance.randrange(4)
        if kind == 0:
            at, size = chance.choice(((24, 8), (32, 8), (40, 8), (48, 4), (52, 2), (54, 2), (56, 2), (58, 2), (60, 2)))
        elif kind == 1:
            at, size = sections + counts[2] * chance.randrange(counts[3]) + 8 * chance.randrange(8), 8
        elif kind == 2:
            at, size = programs + counts[0] * chance.randrange(counts[1]) + 8 * chance.randrange(7), 8
        else:
            at, size = 4 * chance.randrange(len(content) // 4), 4
        content[at : at + size] = (chance.choice(_FIELDS) % 256**size).to_bytes(size, "little")
    return bytes(content)


def read_map(folder: Path) -> Callable[[bytes], object]:
    """--map options, and a table that is read by them."""
    table = folder / "mine.csv"
    table.write_bytes(samples.tile_engine_csv()[0])

    def reader(content: bytes) -> object:
        maps = mapping_of(content.decode("utf-8", "replace").split("\n"), "gemm_universal", None)
        return read_input(table, ReadOptions("gfx942", op="gemm_universal", mapping=maps))

    return reader


_SETTINGS = TuneSettings(("config.json",), device="host", dtype="fp32")


def tune_files() -> list[bytes]:
    """The settings of a tuning."""
    settings = {
        "op": None,
        "dtype": "fp32",
        "device": "host",
        "budget": "15m",
        "sources": ["config.json"],
        "options": [],
    }
    document = {"ckh_version": "0.1.0", "settings": settings, "done": ["shapes", "before"]}
    return [json.dumps(document).encode()]


def tune_steps() -> list[bytes]:
    """The answers before a tuning, and the list of its export."""
    kernel = {"kernel": _KERNEL, "latency_ms": 0.01}
    answer = {"problem": _GEMM, "padded": None, "arch": "gfx942", "kernels": [kernel], "predicted_interval": [0.8, 1.2]}
    row = {"problem": _GEMM, "kernel": _KERNEL, "us": 11.0, "written": False}
    missing = {"problem": _GEMM, "reason": "none"}
    return [json.dumps({"results": [answer], "choices": [row], "missing": [missing]}).encode()]


def read_steps(folder: Path) -> Callable[[bytes], object]:
    """The results of a tuning, from the documents of its steps."""

    def reader(content: bytes) -> object:
        for name in (steps.BEFORE, steps.EXPORTED):
            (folder / name).write_bytes(content)
        tuning: Any = object.__new__(ModelTuning)
        tuning.settings = TuneSettings(("llama3-8b",), device="hip", to="aiter", installed="aiter")
        tuning.out, tuning._measured_run, tuning._held_out_efficiency = folder, None, None
        tuning._left_out = tuning._padded = ()
        rows, predicted, _ = tuning._rows("gemm_universal", _SHAPES, None)
        return page(tuning._document("gemm_universal", rows, predicted, None), "15m", ())

    return reader


def read_tune_file(folder: Path) -> Callable[[bytes], object]:
    """The progress of a folder."""

    def reader(content: bytes) -> object:
        (folder / "tune.json").write_bytes(content)
        return progress_of(folder, _SETTINGS)

    return reader


@cache
def export_lists() -> list[bytes]:
    """The list of an export for AITER."""
    row = {"problem": samples.AITER_GEMMS[0], "arch": "gfx942", "kernel": "k", "written": True, "us": 11.0}
    document = {"to": "aiter", "op_type": "aiter_gemm", "files": ["export.json"], "choices": [row], "missing": []}
    return [json.dumps(document).encode()]


def read_export(folder: Path) -> Callable[[bytes], object]:
    """The check of an export against a folder of AITER's."""
    export, root = folder / "export", folder / "aiter"
    shutil.rmtree(export, ignore_errors=True)
    export.mkdir()
    (root / "configs").mkdir(parents=True)

    def reader(content: bytes) -> object:
        (export / "export.json").write_bytes(content)
        return checked_tables("aiter", export, root)

    return reader


def read_own_tables(folder: Path) -> Callable[[bytes], object]:
    """AITER's own table, into which rows are merged."""
    table = gemm_table("a8w8")
    roots = iter(range(1 << 40))

    def reader(content: bytes) -> object:
        root = folder / str(next(roots) % 2)
        (root / "configs").mkdir(parents=True, exist_ok=True)
        (root / "configs" / f"{table.name}.csv").write_bytes(content)
        own_table.cache_clear()
        return table.of_root(root).merged([], table.columns)

    return reader
