"""Computing items ahead in a thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from ckh.data.parquet import ahead

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_items_come_in_order_and_one_is_computed_ahead() -> None:
    """While an item is used, exactly one more is computed."""
    begun = [threading.Event() for _ in range(4)]

    def numbers() -> Iterator[int]:
        for number, event in enumerate(begun):
            event.set()
            yield number

    result = []
    for number in ahead(numbers()):
        result.append(number)
        if number + 1 < len(begun):
            assert begun[number + 1].wait(30)
        assert not any(event.is_set() for event in begun[number + 2 :])
    assert result == [0, 1, 2, 3]


def test_an_error_comes_after_the_items_before_it() -> None:
    """An error is raised at the position of its item."""

    def numbers() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    result = ahead(numbers())
    assert next(result) == 1
    with pytest.raises(ValueError, match="no more"):
        next(result)
