"""Unusable models in the user's folders: one warning each per process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.text.log import warn

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.errors import ModelError

_LEFT_OUT: dict[Path, str] = {}  # folder -> warning


def leave_out(path: Path, error: ModelError) -> None:
    """Warn of an unusable model, once."""
    if path not in _LEFT_OUT:
        _LEFT_OUT[path] = f"the model {path} is not used: {error.message}"
        warn(_LEFT_OUT[path], "unusable-model")


def unusable_models() -> tuple[str, ...]:
    """Warnings about models skipped in this process."""
    return tuple(_LEFT_OUT.values())
