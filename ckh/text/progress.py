"""Progress bars on stderr for long work, and occasional lines if stderr is not a terminal."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ckh.strenum import StrEnum
from ckh.text.log import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class ProgressStyle(StrEnum):
    """How progress is shown: bars on a terminal and in a notebook, else lines; always bars or lines; or not at all."""

    AUTO = "auto"
    BARS = "bars"
    LINES = "lines"
    NONE = "none"


_chosen = {"style": ProgressStyle.AUTO}


def show_progress(style: ProgressStyle) -> None:
    """Choose how progress is shown from now on."""
    _chosen["style"] = style


def _style() -> ProgressStyle:
    style = _chosen["style"]
    if style is not ProgressStyle.AUTO:
        return style
    is_shown = sys.stderr.isatty() or "ipykernel" in sys.modules
    return ProgressStyle.BARS if is_shown else ProgressStyle.LINES


# Times of lines without a bar: the first soon, to show that the work has begun.
_FIRST_LINE_S = 2.0
_INTERVAL_S = 30.0
_BAR_WIDTH = 16


@contextmanager
def progress(title: str, total: int, so_far: Callable[[], str] | None = None) -> Iterator[Callable[[int, str], None]]:
    """Show the progress of some work, with rate and remaining time, or with what `so_far` says instead.

    Yields a function `advance(steps, text)`: `steps` more are done, `text` is the current step. `advance(0, text)`
    marks the beginning of work: steps before the first such call do not count for the rate.
    """
    style = _style()
    if style is ProgressStyle.NONE:
        yield lambda _steps, _text: None
    elif style is ProgressStyle.BARS:
        with _bar(title, total, so_far) as advance:
            yield advance
    else:
        with _plain(title, total, so_far) as advance:
            yield advance


@contextmanager
def _bar(title: str, total: int, so_far: Callable[[], str] | None) -> Iterator[Callable[[int, str], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    # The current step is shortened first, as kernels have long names.
    shortened = Column(ratio=1, no_wrap=True, overflow="ellipsis")

    class SoFar(ProgressColumn):
        def render(self, task: Task) -> str:
            del task
            return so_far() if so_far is not None else ""

    rate = TextColumn("{task.fields[rate]}"), TextColumn("left"), TimeRemainingColumn()
    step = TextColumn("{task.fields[text]}", table_column=shortened)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=_BAR_WIDTH),
        MofNCompleteColumn(),
        *((SoFar(shortened),) if so_far is not None else (*rate, step)),
        console=Console(stderr=True, force_terminal=True if _chosen["style"] is ProgressStyle.BARS else None),
        expand=True,
        transient=True,
        refresh_per_second=2 if so_far else 10,
    )
    with bar:
        task = bar.add_task(title, total=total, rate="", text="")

        is_begun = False

        def advance(steps: int, text: str = "") -> None:
            nonlocal is_begun
            if not is_begun and not steps and text:
                is_begun = True
                bar.reset(task, completed=int(bar.tasks[0].completed))
            speed = bar.tasks[0].speed
            bar.update(task, advance=steps, text=text, rate=f"{speed:.1f}/s" if speed else "")

        yield advance


@contextmanager
def _plain(title: str, total: int, so_far: Callable[[], str] | None) -> Iterator[Callable[[int, str], None]]:
    """Lines printed by a separate thread, even while the first step takes long."""
    start = time.monotonic()
    done, working_on = 0, ""
    free: int | None = None  # steps before the beginning of work

    def advance(steps: int, text: str = "") -> None:
        nonlocal done, working_on, free, start
        if free is None and not steps and text:
            free, start = done, time.monotonic()
        done, working_on = done + steps, text

    def speak() -> None:
        wait_s = _FIRST_LINE_S
        while not ended.wait(wait_s):
            rest = None if so_far is None else so_far()
            note(
                _line(title, (free or 0, done, total), time.monotonic() - start, rest or working_on, has_rate=not rest)
            )
            wait_s = _INTERVAL_S

    ended = threading.Event()
    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield advance
    finally:
        ended.set()
        speaker.join()


def _line(title: str, steps: tuple[int, int, int], seconds: float, text: str, *, has_rate: bool = True) -> str:
    """Progress, with rate and remaining time once a counted step is done."""
    free, done, total = steps
    rate = (done - free) / seconds
    speed = f" ({rate:.1f}/s, {max(total - done, 0) / rate:.0f} s left)" if has_rate and done > free else ""
    return f"{title}: {done}/{total}{speed} {text}".rstrip()
