"""Packed forests survive the round trip through files, and damage is detected before any access out of bounds."""

from __future__ import annotations

import gzip
import multiprocessing
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckh.errors import ModelError
from ckh.ranking import forest_file
from ckh.ranking.forest_file import decode, encode, forest_of, open_forest, read_packed
from tests.refusals import expect_refusal

from .conftest import train

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.ranking.packed import PackedForest

_FIELDS = ("roots", "nodes", "leaves", "families", "thresholds", "sets", "words")


def _assert_equal(packed_forest: PackedForest, other: PackedForest) -> None:
    assert packed_forest.feature_names == other.feature_names
    assert (packed_forest.high_exponent, packed_forest.low_exponent) == (other.high_exponent, other.low_exponent)
    for name in _FIELDS:
        np.testing.assert_array_equal(getattr(packed_forest, name), getattr(other, name))


def _text() -> bytes:
    text: str = train(rounds=5).booster.model_to_string()
    return text.encode()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "forests"


def test_a_forest_round_trips_through_its_file() -> None:
    """Encoding and decoding change nothing."""
    forest = train().forest
    _assert_equal(decode(encode(forest)), forest)


def test_plain_and_gzipped_texts_share_a_forest(tmp_path: Path, cache: Path) -> None:
    """Both are read, built once, and mapped from the cache afterwards."""
    (tmp_path / "plain.lgbm").write_bytes(_text())
    (tmp_path / "small.lgbm.gz").write_bytes(gzip.compress(_text()))
    built = [open_forest(tmp_path / name) for name in ("plain.lgbm", "small.lgbm.gz")]
    again = open_forest(tmp_path / "plain.lgbm")
    _assert_equal(*built)
    _assert_equal(built[0], again)
    assert len(list(cache.iterdir())) == 2
    assert not again.nodes.flags.writeable


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), is_repaired=st.booleans())
def test_a_flipped_bit_is_an_error_or_harmless(place: float, bit: int, is_repaired: bool) -> None:
    """Checksums detect it; with adjusted checksums, no index out of range is accepted."""
    content = bytearray(encode(train(rounds=3).forest))
    content[int(place * len(content))] ^= 1 << bit
    if not is_repaired:
        with pytest.raises(ModelError):
            decode(bytes(content))
        return
    header = forest_file._HEADER.size
    content[header - 4 : header] = struct.pack("=I", zlib.crc32(content[forest_file._START :]))
    content[header : header + 4] = struct.pack("=I", zlib.crc32(content[:header]))
    try:
        forest = decode(bytes(content))
    except ModelError:
        return
    _assert_inside(forest)


def _assert_inside(forest: PackedForest) -> None:
    nodes, leaves = len(forest.nodes), len(forest.leaves)
    for child in (*forest.nodes[:, 1:].ravel().tolist(), *forest.roots.tolist()):
        assert -leaves <= child < nodes
    assert all(0 <= test < len(forest.thresholds) for test in forest.nodes[:, 0].tolist())
    for feature, _, first, count in forest.families.tolist():
        assert 0 <= feature < len(forest.feature_names)
        assert 0 <= first <= first + count <= len(forest.thresholds)
    for start, count in forest.sets.tolist():
        assert 0 <= start <= start + count <= len(forest.words)
    assert 0 < forest.high_exponent - forest.low_exponent < 64


@settings(max_examples=40, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_an_error(place: float) -> None:
    """Any missing number of bytes is detected."""
    content = encode(train(rounds=3).forest)
    with pytest.raises(ModelError, match="damaged"):
        decode(content[: int(place * len(content))])


@pytest.mark.parametrize("damage", [b"", b"x", b"\0" * 56, None])
def test_a_damaged_cache_entry_is_rebuilt(cache: Path, damage: bytes | None) -> None:
    """Whatever the cache contains, the answer is right and the entry is repaired."""
    forest = forest_of(_text(), "model")
    (entry,) = cache.iterdir()
    good = entry.read_bytes()
    entry.write_bytes(good[:-8] if damage is None else damage)
    with pytest.raises(ModelError):
        read_packed(entry)
    _assert_equal(forest_of(_text(), "model"), forest)
    assert entry.read_bytes() == good


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of an older format is not read."""
    content = encode(train(rounds=3).forest)
    monkeypatch.setattr(forest_file, "VERSION", forest_file.VERSION + 1)
    with expect_refusal(ModelError, "other-version"):
        decode(content)


def test_without_a_cache_the_forest_is_built_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder that cannot be created costs only time."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "file" / "cache"))
    _assert_equal(forest_of(_text(), "model"), train(rounds=5).forest)


def test_unusable_models_are_refused_by_name(tmp_path: Path, cache: Path) -> None:
    """The message names the file and what is wrong; nothing is cached."""
    with pytest.raises(ModelError, match="missing"):
        open_forest(tmp_path / "missing.lgbm")
    for content, word in (
        (b"hello", "not a complete"),
        (gzip.compress(_text())[:-20], "damaged"),
        (_text().replace(b"num_class=1", b"num_class=3"), "several classes"),
        (_text().replace(b"\nmax_feature_idx", b"\naverage_output\nmax_feature_idx"), "averaged"),
        (_text().replace(b"leaf_value=", b"leaf_value=inf ", 1).replace(b"num_leaves=", b"x=", 1), "damaged"),
    ):
        with pytest.raises(ModelError, match=rf"my\.lgbm.*{word}"):
            forest_of(content, "my.lgbm")
    assert list(cache.glob("*")) == []


def _open(path: Path) -> int:
    return len(open_forest(path).nodes)


@pytest.mark.slow
def test_several_processes_build_the_same_entry(tmp_path: Path, cache: Path) -> None:
    """All get the forest; one complete entry and no other file remains."""
    path = tmp_path / "model.lgbm"
    path.write_bytes(_text())
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        counts = pool.map(_open, [path] * 12)
    assert set(counts) == {len(train(rounds=5).forest.nodes)}
    (entry,) = cache.iterdir()
    assert len(read_packed(entry).nodes) == counts[0]
