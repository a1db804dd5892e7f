"""Small models in the search path, an empty cache, and the C part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ckh import cli
from ckh.quick.request import Request, parse
from ckh.ranking.library import is_available
from tests.export.conftest import gemm_model
from tests.learn.conftest import saved

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of forward convolutions and one of GEMMs, both for the host."""
    folder = tmp_path_factory.mktemp("models")
    saved(folder / "conv")
    gemm_model(folder / "gemm")
    return folder


@pytest.fixture
def alone(models: Path, host_asked: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """These models, for the host by default, and no measurements or prepared answers; skipped if ckh has no C part."""
    if not is_available():
        pytest.skip("ckh was installed without its C part")
    monkeypatch.setenv("CKH_MODELS", str(models))
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CKH_QUICK", raising=False)


def asked(line: str) -> Request:
    """The request of a command line that can be answered quickly."""
    result = parse(["predict", *line.split()])
    assert result is not None
    return result


def full(capsys: pytest.CaptureFixture[str], line: str) -> str:
    """The output of the full command."""
    assert cli.run(["predict", *line.split()]) == 0
    return capsys.readouterr().out
