"""Resources of compiled kernels by name: stored at compilation, read back, and robust against damage."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ckh.kernels.compiled import add_compiled, compiled, compiled_here, shipped, shipped_path
from ckh.ops import operation
from ckh.schema import Resources
from tests.learn.conftest import AMD_KERNELS

if TYPE_CHECKING:
    from pathlib import Path

op = operation("grouped_conv")

TAKES = Resources(96, 16, 40, 16384, 8, 2, 0, 4)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_last_entry_of_a_name_wins_per_architecture() -> None:
    """The last compilation of a kernel counts; other GPUs and operations are independent."""
    newer = replace(TAKES, vgprs=64, occupancy=5)
    add_compiled("gfx942", "op", "one", TAKES)
    add_compiled("gfx942", "op", "two", TAKES)
    add_compiled("gfx942", "op", "one", newer)
    assert compiled("gfx942", "op") == {"one": newer, "two": TAKES}
    assert compiled("gfx950", "op") == compiled("gfx942", "other") == {}


def test_damage_costs_only_its_line(cache: Path) -> None:
    """Truncated lines, wrong fields, negative numbers and invalid JSON are skipped; later lines are read."""
    add_compiled("gfx942", "op", "one", TAKES)
    (file,) = (cache / "resources").iterdir()
    others = ['["a", 1, 2]', '["b", 1, 1, 1, 1, 1, 1, 1, -1]', '["c", 1, 1, 1, 1, 1, 1, 1, 1e9]', "[3]", "{}", "7"]
    with file.open("ab") as lines:
        lines.write("\n".join([*others, '["cut", 96, 16']).encode() + b"\xff")
    add_compiled("gfx942", "op", "two", TAKES)
    assert compiled("gfx942", "op") == {"one": TAKES, "two": TAKES}


def test_a_cache_writable_by_others_is_ignored(cache: Path) -> None:
    """There is an answer without it."""
    add_compiled("gfx942", "op", "one", TAKES)
    cache.chmod(0o777)
    assert compiled("gfx942", "op") == {}


def test_every_amd_convolution_ships() -> None:
    """AMD's tiles on gfx950 have registers, code size, and a function for each loop tail."""
    by_pipeline = {
        "compv3": ("1", "2", "2 and more"),
        "compv4": ("1", "2", "3", "4 and more, in steps of 2", "5 and more, in steps of 2"),
    }
    result = shipped("gfx950", "grouped_conv")
    measured = [item for item in AMD_KERNELS if item.pipeline in by_pipeline and op.kernels.name(item) in result]
    assert len(measured) == 40  # ten tiles with two pipelines, each also for split images
    for kernel in measured:
        item = result[op.kernels.name(kernel)]
        assert tuple(sorted(item.trips)) == by_pipeline[kernel.pipeline]
        # Registers of sums alone, in granules of 8, are fewer; 512 are shared by the waves of a SIMD.
        waves = (kernel.wave_m or 0) * (kernel.wave_n or 0) * (kernel.wave_k or 0)
        sums = kernel.tile_m * kernel.tile_n // (64 * waves)
        assert sums <= item.resources.vgprs + item.resources.agprs <= 512 // item.resources.occupancy
        assert item.resources.lds_bytes == (kernel.tile_m + kernel.tile_n) * kernel.tile_k * 2 * (
            1 + (kernel.pipeline == "compv4")
        )
        assert 2000 < item.code_bytes < 100_000


def test_local_registers_take_precedence_over_shipped_ones() -> None:
    """Kernel by kernel; other kernels keep their shipped registers."""
    first, second = sorted(shipped("gfx950", "grouped_conv"))[:2]
    add_compiled("gfx950", "grouped_conv", first, TAKES)
    result = compiled("gfx950", "grouped_conv")
    assert result[first] == TAKES
    assert result[second] == shipped("gfx950", "grouped_conv")[second].resources
    assert compiled_here("gfx950", "grouped_conv") == {first: TAKES}


@pytest.mark.parametrize(
    "path", sorted(shipped_path("gfx950", "grouped_conv").parent.iterdir()), ids=lambda path: path.stem
)
def test_shipped_files_are_whole(path: Path) -> None:
    """Each has compiler and headers; its lines are the kernels of its groups, each once, all of the operation."""
    arch, _, name = path.stem.partition("-")
    head, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert (head["arch"], head["op"]) == (arch, name)
    assert "CK Tile late2025" in head["compiler"]
    assert len(lines) == sum(item["compiled"] for item in head["groups"]) == len(shipped(arch, name))
    assert all(op.kernels.name(op.kernels.parse(line[0])) == line[0] for line in lines)
