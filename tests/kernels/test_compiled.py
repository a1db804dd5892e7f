"""Resources of compiled kernels by name: stored at compilation, read back, and robust against damage."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ckh.kernels.compiled import add_compiled, compiled_here
from ckh.schema import Resources

if TYPE_CHECKING:
    from pathlib import Path

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
    assert compiled_here("gfx942", "op") == {"one": newer, "two": TAKES}
    assert compiled_here("gfx950", "op") == compiled_here("gfx942", "other") == {}


def test_damage_costs_only_its_line(cache: Path) -> None:
    """Truncated lines, wrong fields, negative numbers and invalid JSON are skipped; later lines are read."""
    add_compiled("gfx942", "op", "one", TAKES)
    (file,) = (cache / "resources").iterdir()
    others = ['["a", 1, 2]', '["b", 1, 1, 1, 1, 1, 1, 1, -1]', '["c", 1, 1, 1, 1, 1, 1, 1, 1e9]', "[3]", "{}", "7"]
    with file.open("ab") as lines:
        lines.write("\n".join([*others, '["cut", 96, 16']).encode() + b"\xff")
    add_compiled("gfx942", "op", "two", TAKES)
    assert compiled_here("gfx942", "op") == {"one": TAKES, "two": TAKES}


def test_a_cache_writable_by_others_is_ignored(cache: Path) -> None:
    """There is an answer without it."""
    add_compiled("gfx942", "op", "one", TAKES)
    cache.chmod(0o777)
    assert compiled_here("gfx942", "op") == {}
