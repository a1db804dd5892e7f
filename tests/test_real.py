"""The sample of kernels that a run compiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests import real
from tests.real import sampled

if TYPE_CHECKING:
    import pytest

KERNELS = [("gfx942", f"kernel {number}") for number in range(41)]


def test_commits_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit takes a quarter in order, at least one, always the same; after some commits each had its turn."""
    monkeypatch.delenv("CKH_TEST_ALL_KERNELS", raising=False)
    chosen = sampled(KERNELS)
    assert chosen == sampled(iter(KERNELS)) == [kernel for kernel in KERNELS if kernel in set(chosen)]
    assert (len(chosen), len(sampled(KERNELS[:3])), sampled([])) == (11, 1, [])
    taken = set()
    for number in range(40):
        monkeypatch.setattr(real, "_commit", lambda number=number: b"commit %d" % number)
        taken |= set(sampled(KERNELS))
    assert taken == set(KERNELS)


def test_all_kernels_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """As CONTRIBUTING.md says."""
    monkeypatch.setenv("CKH_TEST_ALL_KERNELS", "1")
    assert sampled(KERNELS) == KERNELS
