"""Items of an iterator that are computed while those before are used."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The items, each computed in a thread while the one before is used: one more than without is in memory.

    That is worth it where both sides are busy outside of Python: with a disk, in Arrow, with a digest.
    """
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, iterator, end)
        while (item := coming.result()) is not end:
            coming = thread.submit(next, iterator, end)
            yield item  # type: ignore[misc]
