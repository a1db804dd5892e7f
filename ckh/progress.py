"""Progress bars on stderr for long work; quiet where stderr is no terminal."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ckh.log import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PLAIN_INTERVAL_S = 30.0
_BAR_WIDTH = 16


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """Show how far some work is, with rate and time left.

    Yields:
        A function `advance(steps, text)`: `steps` more are done, `text` says what is worked on. On a terminal it
        moves a bar; elsewhere (CI logs) it prints a line every thirty seconds.
    """
    if sys.stderr.isatty():
        with _bar(title, total) as advance:
            yield advance
    else:
        yield _plain(title, total)


@contextmanager
def _bar(title: str, total: int) -> Iterator[Callable[[int, str], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=_BAR_WIDTH),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TextColumn("left"),
        TimeRemainingColumn(),
        # What is worked on gives way first: kernels have long names.
        TextColumn("{task.fields[text]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        console=Console(stderr=True),
        expand=True,
        transient=True,
    )
    with bar:
        task = bar.add_task(title, total=total, rate="", text="")

        def advance(steps: int, text: str = "") -> None:
            speed = bar.tasks[0].speed
            bar.update(task, advance=steps, text=text, rate=f"{speed:.1f}/s" if speed else "")

        yield advance


def _plain(title: str, total: int) -> Callable[[int, str], None]:
    start = last = time.monotonic()
    done = 0

    def advance(steps: int, text: str = "") -> None:
        nonlocal done, last
        done += steps
        now = time.monotonic()
        if now - last < _PLAIN_INTERVAL_S or not done:
            return
        last = now
        rate = done / (now - start)
        note(f"{title}: {done}/{total} ({rate:.1f}/s, {max(total - done, 0) / rate:.0f} s left) {text}".rstrip())

    return advance
