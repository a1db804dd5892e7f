"""Shipped answers equal the full command's, from the first call."""

from __future__ import annotations

import os
import shutil
import zlib
from typing import TYPE_CHECKING

import pytest

from ckh.quick import shipped
from ckh.quick.answer import text_of
from ckh.quick.store import read_facts
from ckh.ranking.library import is_available
from ckh.text.log import written

from .test_quick import asked, full

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow  # all answers are prepared first, as in a build

LINES = [
    "--n 16 --c 256",
    "--c 64 --k 128 --hi 56 --stride 2 --top 3 --json",
    "--di 9 --c 24 --y 1",
    "--variant bwd_data --c 32 --g 32 --hi 17 --dtype fp32",
    "--variant bwd_weight --arch host --c 96 --hi 14 --why",
    "--m 128 --n 1536 --k 7168",
    "--m 31 --n 17 --k 3 --layout rrr --json",
    "--op aiter_gemm --arch gfx950 --family a8w8_bpreshuffle --m 17 --n 7168 --k 2048",
    "--op aiter_gemm --arch gfx942 --m 17 --n 7168 --k 2048 --json",
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the build puts into a wheel."""
    folder = tmp_path_factory.mktemp("wheel") / "prepared"
    with pytest.MonkeyPatch.context() as patch:
        _own_folders(patch, folder.parent)
        shipped.write(folder)
    return folder


@pytest.fixture(autouse=True)
def installed(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh installation."""
    if not is_available():
        pytest.skip("ckh was installed without its C part")
    _own_folders(monkeypatch, tmp_path)
    copied = tmp_path / "prepared"
    shutil.copytree(prepared, copied, copy_function=os.link)
    monkeypatch.setattr(shipped, "FOLDER", copied)
    return copied


def _own_folders(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.delenv("CKH_MODELS", raising=False)
    patch.delenv("CKH_QUICK", raising=False)
    patch.setenv("CKH_DATA_DIR", str(folder / "user"))
    patch.setenv("CKH_CACHE_DIR", str(folder / "cache"))


@pytest.mark.parametrize("line", LINES)
def test_the_first_answer_is_quick(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For every operation, direction and layout, to the letter."""
    text = text_of(asked(line))
    assert text is not None
    assert written(text) == full(capsys, line)


def test_user_models_are_not_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user's model, a folder of models, or a named model may answer instead."""
    assert written(text_of(asked("--c 64")) or "") == full(capsys, "--c 64")
    assert shipped.find(asked("--c 64 --model models/mine")) is None
    with monkeypatch.context() as patch:
        patch.setenv("CKH_MODELS", str(tmp_path))
        assert shipped.find(asked("--c 64")) is None
    (tmp_path / "user" / "models" / "mine").mkdir(parents=True)
    assert shipped.find(asked("--c 64")) is None


@pytest.mark.parametrize("line", ["--arch gfx90a", "--dtype fp16", "--c 64 --layout nhwgc", "--op nothing"])
def test_problems_outside_shipped_models_have_no_answer(line: str) -> None:
    """The full command reports the error."""
    assert text_of(asked(line)) is None


def test_changed_models_have_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepared answers apply only to the models that they were made from."""
    assert shipped.find(asked("--c 64")) is not None
    monkeypatch.setattr(shipped, "__version__", "9.9")
    assert shipped.find(asked("--c 64")) is None


def test_large_models_are_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call unpacks a model into the cache; a damaged file gives no answer."""
    packed = tmp_path / "large" / "gemm_universal_fp32_host.ckhm.z"
    monkeypatch.setattr(shipped, "_MAX_PLAIN_BYTES", 1 << 18)
    monkeypatch.setattr(shipped, "FOLDER", packed.parent)
    shipped.write(packed.parent)
    line = asked("--m 128 --n 1536 --k 7168")
    content = packed.read_bytes()
    old = tmp_path / "cache" / "shipped" / f"1-1-{packed.stem}"
    old.parent.mkdir(parents=True, mode=0o700)
    old.touch()
    (path,) = {shipped.find(line)[1] for _ in range(2)}  # type: ignore[index]
    assert [*(tmp_path / "cache" / "shipped").iterdir()] == [path]
    assert path.read_bytes() == zlib.decompress(content)
    assert path.stat().st_size > 2 * len(content)
    path.unlink()
    packed.unlink()
    packed.write_bytes(content[: len(content) // 2])
    assert text_of(line) is None


@pytest.mark.parametrize("name", ["index.json", "0.json", "grouped_conv_forward_fp32_host.ckhm"])
def test_damaged_answers_are_ignored(installed: Path, name: str) -> None:
    """A flipped bit in any file of an answer."""
    line = asked("--c 64")
    facts = shipped.find(line)
    assert facts is not None
    path = installed / (name if name != "0.json" else _facts_name(installed))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.unlink()
    path.write_bytes(content)
    assert text_of(line) is None


def _facts_name(folder: Path) -> str:
    """The facts file of 2D forward convolutions."""
    names = read_facts(folder / "index.json", shipped._stamp())
    assert names is not None
    return str(names["names"]["grouped_conv fp32 host forward 2D"])
