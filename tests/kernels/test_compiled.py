"""Resources of compiled kernels by name: kept when they are compiled, read again, and no damage matters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ckh.kernels.compiled import add_compiled, compiled
from ckh.schema import Resources

if TYPE_CHECKING:
    from pathlib import Path

TAKES = Resources(96, 16, 40, 16384, 8, 2, 0, 4)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_last_of_a_name_is_found_for_its_architecture_alone() -> None:
    """Compiled again, by another compiler, a kernel is what it is now; of another GPU or operation nothing is known."""
    newer = replace(TAKES, vgprs=64, occupancy=5)
    add_compiled("gfx942", "op", "one", TAKES)
    add_compiled("gfx942", "op", "two", TAKES)
    add_compiled("gfx942", "op", "one", newer)
    assert compiled("gfx942", "op") == {"one": newer, "two": TAKES}
    assert compiled("gfx950", "op") == compiled("gfx942", "other") == {}


def test_damage_costs_its_line_alone(cache: Path) -> None:
    """Lines that are cut off, of other fields, negative, or no JSON are none; what is added after them is read."""
    add_compiled("gfx942", "op", "one", TAKES)
    (file,) = (cache / "resources").iterdir()
    others = ['["a", 1, 2]', '["b", 1, 1, 1, 1, 1, 1, 1, -1]', '["c", 1, 1, 1, 1, 1, 1, 1, 1e9]', "[3]", "{}", "7"]
    with file.open("ab") as lines:
        lines.write("\n".join([*others, '["cut", 96, 16']).encode() + b"\xff")
    add_compiled("gfx942", "op", "two", TAKES)
    assert compiled("gfx942", "op") == {"one": TAKES, "two": TAKES}


def test_a_cache_that_others_write_to_is_not_believed(cache: Path) -> None:
    """An answer without it is still one."""
    add_compiled("gfx942", "op", "one", TAKES)
    cache.chmod(0o777)
    assert compiled("gfx942", "op") == {}
