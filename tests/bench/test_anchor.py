"""Detection of kernels measured at another clock of the GPU, by the anchor's times after them, computed by hand."""

from __future__ import annotations

import pytest

from ckh.bench.supervision.protocol import Reply
from ckh.bench.supervision.runner import on_problem
from ckh.bench.supervision.supervisor import Looks, with_anchor
from ckh.schema import Status


def reply(anchor_ns: float, own_ns: float = 100.0) -> Reply:
    """Reply of a kernel that was followed by this anchor time."""
    return Reply(0, Status.OK, samples_ns=(own_ns,), loops=5, anchor_ns=anchor_ns)


@pytest.mark.parametrize(
    ("anchor_ns", "moved"),
    [
        ((100, 101, 99, 100, 104), ""),
        ((100, 100, 143, 143, 143), "abc"),  # c was running when the clock fell
        ((100, 125, 125, 100, 100), "bcd"),  # up again: b and d were running when it changed
        ((100, 100, 700, 100, 100), "cd"),  # other work on the GPU, after c
        ((100, 100, 100, 100, 700), "e"),  # the same after the last one, which is not mistaken for the clock
        ((0, 0, 0, 0, 0), ""),
    ],
)
def test_kernels_at_another_clock_are_detected(anchor_ns: tuple[float, ...], moved: str) -> None:
    """Kernels whose previous or next anchor time differs by more than 5 % from the median of the last three."""
    looks = Looks()
    for kernel, ns in zip("abcde", anchor_ns, strict=True):
        looks.add(kernel, reply(float(ns)))
    assert looks.moved() == set(moved)


def test_a_clock_rising_during_the_anchor_is_detected() -> None:
    """Its own samples replace the anchor time before it."""
    looks = Looks()
    for kernel, own_ns in (("a", 200.0), ("b", 150.0), ("c", 300.0)):
        looks.add(kernel, reply(100.0, own_ns))
    assert looks.moved() == {"a"}


def test_remeasured_kernels_have_one_clock() -> None:
    """A second pass replaces the first results of a kernel."""
    looks = Looks()
    for kernel, ns in zip("abcabc", (100, 143, 143, 143, 143, 143), strict=True):
        looks.add(kernel, reply(float(ns)))
    assert looks.moved() == frozenset()


@pytest.mark.parametrize(("behind_ns", "moved"), [(101.0, ""), (125.0, "abcd")])
def test_leaders_are_compared_with_the_others(behind_ns: float, moved: str) -> None:
    """If the clock changed before or during the rounds of leaders, no kernel's time is comparable with another's."""
    looks = Looks()
    for kernel in "abcd":
        looks.add(kernel, reply(100.0))
    looks.add_rounds({"a", "c"}, [reply(behind_ns), reply(behind_ns)])
    assert looks.moved() == set(moved)


def test_the_first_correct_kernel_is_the_anchor() -> None:
    """Other kernels change nothing."""
    setup = on_problem("p")
    assert with_anchor(setup, "wrong.so", Reply(0, Status.WRONG_RESULT)) == setup
    anchored = with_anchor(setup, "first.so", reply(100.0))
    assert (anchored.library, anchored.loops, anchored.problem) == ("first.so", 5, "p")
    assert with_anchor(anchored, "second.so", reply(100.0)) == anchored
