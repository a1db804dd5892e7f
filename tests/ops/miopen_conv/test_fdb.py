"""Files of find databases: plain and bz2, valid and damaged."""

from __future__ import annotations

import bz2
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from ckh.errors import DataError, UsageError
from ckh.ops.miopen_conv.readers.fdb import FdbDevice, Tally, device_of, iter_rows, sniff
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from pathlib import Path

NEW = (
    "256-14-14-3x3-128-14-14-32-1x1-1x1-1x1-0-NCHW-FP32-F=ConvAsm3x3U:0.25,0,miopenConvolutionFwdAlgoDirect;"
    "GemmFwdRest:1.5,64,miopenConvolutionFwdAlgoGEMM\n"
)
OLD = "64-7-7-1x1-32-14-14-8-0x0-2x2-1x1-0-NCHW-FP16-B=miopenConvolutionBwdDataAlgoGEMM:gemm,3.5,9,rocBlas,<unused>\n"
NO_TIME = NEW.replace("0.25", "0").replace("256-", "512-")


def _write(folder: Path, content: str | bytes, name: str = "gfx90a68.fdb.txt") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("gfx90a68.fdb.txt", FdbDevice("gfx90a", 104)),
        ("gfx90a6e.HIP.fdb.txt.bz2", FdbDevice("gfx90a", 110)),
        ("gfx942130.fdb.txt", FdbDevice("gfx942", 304)),
        ("gfx90878.HIP.3_1_0.ufdb.txt", FdbDevice("gfx908", 120)),
        ("gfx908_60.fdb.txt", FdbDevice("gfx908", 60)),
        ("gfx110060.fdb.txt", FdbDevice("gfx1100", 96)),
        ("gfx1100_48.fdb.txt", FdbDevice("gfx1100", 48)),
    ],
)
def test_the_file_name_has_the_device(tmp_path: Path, name: str, device: FdbDevice) -> None:
    """Compute units are hex after the architecture, or decimal after an underscore."""
    assert device_of(tmp_path / name) == device


def test_given_options_take_precedence_over_the_name(tmp_path: Path) -> None:
    """Architecture and compute units can be given, singly or both."""
    assert device_of(tmp_path / "gfx90a68.fdb.txt", "gfx942") == FdbDevice("gfx942", 104)
    assert device_of(tmp_path / "gfx90a68.fdb.txt", num_cus=7) == FdbDevice("gfx90a", 7)
    assert device_of(tmp_path / "some.txt", "gfx950", 256) == FdbDevice("gfx950", 256)


@pytest.mark.parametrize("name", ["some.fdb.txt", "gfx90a.fdb.txt", "gfx90a00.fdb.txt", "gfx90azz.fdb.txt", "gfx9"])
def test_a_name_without_device_is_refused(tmp_path: Path, name: str) -> None:
    """Nothing is guessed for a name that states no device."""
    with expect_refusal(UsageError, "unknown-hardware"):
        device_of(tmp_path / name)


def test_an_unknown_architecture_is_refused(tmp_path: Path) -> None:
    """An unknown architecture is an error that lists the known ones."""
    with expect_refusal(UsageError, "unknown-arch", "gfx906"):
        device_of(tmp_path / "gfx906_60.fdb.txt")


@pytest.mark.parametrize("pack", [bytes, bz2.compress])
def test_both_forms_are_read_plain_and_compressed(tmp_path: Path, pack: type[bytes]) -> None:
    """Lines of both forms, a blank line, CRLF and a byte-order mark: three rows in order, and one without a time."""
    text = "\ufeff" + NEW.replace("\n", "\r\n") + "\n" + OLD + NO_TIME
    path = _write(tmp_path, pack(text.encode()))
    tally = Tally()
    rows = list(iter_rows(path, tally))
    assert [row.solver.solver for row in rows] == ["ConvAsm3x3U", "GemmFwdRest", "gemm", "GemmFwdRest"]
    assert [row.solver.time_ms for row in rows] == [0.25, 1.5, 3.5, 1.5]
    assert [row.problem.c for row in rows] == [256, 256, 32, 512]
    assert (tally.without_time, tally.bad) == (1, {})


def test_bad_lines_are_counted_by_reason_and_refuse_the_file(tmp_path: Path) -> None:
    """A file with bad lines is refused with their counts and numbers; skipping them gives the valid rows."""
    path = _write(tmp_path, NEW.encode() + b"nonsense\n\xff\xfe=\n" + NEW.replace("FP32", "FP8").encode() + b"x\n")
    with expect_refusal(DataError, "bad-row", "4", "2", "1", "1", "2"):
        list(iter_rows(path, Tally()))
    tally = Tally()
    assert len(list(iter_rows(path, tally, skip_bad=True))) == 2
    assert sorted(tally.bad.values()) == [1, 1, 2]


def test_an_endless_line_is_skipped(tmp_path: Path) -> None:
    """A line of three megabytes is one bad line, and the next line is read."""
    tally = Tally()
    path = _write(tmp_path, b"1" * 3_000_000 + b"\n" + NEW.encode())
    assert len(list(iter_rows(path, tally, skip_bad=True))) == 2
    assert tally.bad == {"too long": 1}


@pytest.mark.parametrize("content", [b"", b"\n\n", b"BZh", bz2.compress(NEW.encode() * 500)[:-20], b"BZh9" + b"x" * 99])
def test_unusable_files_are_refused(tmp_path: Path, content: bytes) -> None:
    """Empty, blank, truncated and damaged files are refused, even with bad lines skipped."""
    path = _write(tmp_path, content)
    with pytest.raises(DataError):
        list(iter_rows(path, Tally(), skip_bad=True))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """A missing file is a data error, not a traceback."""
    with expect_refusal(DataError, "unreadable"):
        list(iter_rows(tmp_path / "gfx90a68.fdb.txt", Tally()))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Reading 20,000 lines, 3 MB of text in a packed file, never holds more than 1 MB."""
    path = _write(tmp_path, bz2.compress(NEW.encode() * 20_000, 1))
    tracemalloc.start()
    count = sum(1 for _ in iter_rows(path, Tally()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 40_000
    assert peak < 1_000_000


def test_sniffing_knows_both_forms_and_nothing_else() -> None:
    """Plain and packed lines look like a database; CSV, JSON and damaged bytes do not."""
    for text in (NEW, OLD, NEW.replace("NCHW", "NHWC-NHWC-NHWC")):
        assert sniff(text.encode())
        assert sniff(bz2.compress(text.encode() * 2000)[:65536])
    for other in (b"", b"a,b,c\n1,2,3\n", b'{"event": 1}\n', b"BZhello", b"256-14-14=x"):
        assert not sniff(other)
