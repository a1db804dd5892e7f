"""Each reader of measurements, as registered: one strange entry is left out and counted, and the rest is read."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from ckh.data.formats import ReadOptions
from ckh.data.readers import readers
from ckh.errors import DataError
from tests.reliability import samples

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.data.formats import Reading

# Format of a reader -> strange entries, which are appended as lines.
STRANGE = {
    "journal": ("\0\0", "{}", "not JSON", '{"kind": "result"}'),
    "csv": ("cut,1", "tf32,inf,_comment", ",".join(["x"] * 40)),
    "statements": (
        "MIOpenDriver conv -n 0",
        "ckProfiler gemm 1 1",
        "hipblaslt-bench -m 4",
        "gemm_bf16_rcr_m0_n2_k3_splitk1",
    ),
    "log": ('{"a": 1}', '{"name": "x",}', '{"name": 7, "perf_result": {}}'),
}
KINDS = {
    "journal": "journal",
    "library-log": "statements",
    "bench-log": "log",
    "tile-engine-json": "",
    "amd-parquet": "",
    "gemm-parquet": "",
}
ARCH = {
    "library-log": "gfx942",
    "bench-log": "gfx950",
    "amd-csv": "gfx942",
    "tile-engine-csv": "gfx950",
    "master-csv": "gfx950",
}


def read(name: str, content: bytes, folder: Path, *, strict: bool = False) -> Reading:
    """Read a file of these bytes."""
    path = folder / "input.csv"
    path.write_bytes(content)
    return readers()[name].read(path, ReadOptions(arch=ARCH.get(name), strict=strict))


def lines_of(name: str) -> tuple[bytes, tuple[str, ...]]:
    """A sample of a format whose entries are lines, and strange lines; skips other formats."""
    kind = KINDS.get(name, "csv")
    if not kind:
        pytest.skip("its entries are not lines")
    return getattr(samples, name.replace("-", "_"))()[0], STRANGE[kind]


@pytest.mark.parametrize("name", readers())
def test_one_strange_line_is_counted(name: str, tmp_path: Path) -> None:
    """Each sort is one entry more, which is not used; if strict, it is an error."""
    content, strange = lines_of(name)
    good = read(name, content, tmp_path).account
    for line in strange:
        changed = content.rstrip() + b"\n" + line.encode() + b"\n"
        account = read(name, changed, tmp_path).account
        assert (account.used, account.bad.total()) == (good.used, good.bad.total() + 1), line
        assert account.total == good.total + 1
        with pytest.raises(DataError):
            read(name, changed, tmp_path, strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", readers())
def test_lines_in_are_lines_used_and_accounted_for(name: str, tmp_path: Path) -> None:
    """Of any mixture of good and strange lines, none vanishes (seeded)."""
    content, strange = lines_of(name)
    good, draw = read(name, content, tmp_path).account, random.Random(name)
    for _ in range(20):
        lines = draw.choices(strange, k=draw.randrange(9))
        changed = content.rstrip() + "".join(f"\n{line}" for line in lines).encode() + b"\n"
        account = read(name, changed, tmp_path).account
        assert account.total == good.total + len(lines)
