"""`ckh.progress` selects the style of progress output."""

from __future__ import annotations

import sys
import time
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

import ckh
from ckh.text import progress as module
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Restores the style after a test."""
    yield
    ckh.progress("auto")


def _shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The stderr output of a step of work, with a line after a moment."""
    monkeypatch.setattr(module, "_FIRST_LINE_S", 0.01)
    with module.progress("title", 2) as advance:
        advance(1, "some text")
        if "line" in module._style():
            time.sleep(0.2)
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("style", "is_line", "is_bar"), [("none", False, False), ("lines", True, False), ("bars", False, True)]
)
def test_styles(
    style: str, is_line: bool, is_bar: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing, lines, or a bar also if stderr is not a terminal."""
    ckh.progress(style)
    text = _shown(capsys, monkeypatch)
    assert ("title: 1/2" in text) is is_line
    assert ("\x1b[" in text) is is_bar
    assert bool(text) is (is_line or is_bar)


def test_auto_is_a_bar_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal and a notebook it is lines."""
    assert module._style() == "lines"
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    assert module._style() == "bars"


def test_another_style_is_refused() -> None:
    """The error lists the styles."""
    with expect_refusal(ckh.UsageError, "unknown-name", "loud"):
        ckh.progress("loud")
