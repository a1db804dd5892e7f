"""Assignment of tasks to devices: tasks in order, each continued by the device that began it."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from ckh.cluster.calls import NodeLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ckh.bench.supervision.runner import JobRunner
    from ckh.errors import CkhError

T = TypeVar("T")


def in_order(tasks: Iterable[T]) -> Callable[[str], T | None]:
    """Task source for `Driver.serve` that returns tasks in order, for any device."""
    left = iter(tasks)
    return lambda _node: next(left, None)


class BegunTasks(Generic[T]):
    """Tasks in order; one that a device has begun is continued there, or on another device if that one is missing."""

    def __init__(self, tasks: Iterable[tuple[T, str | None]], is_here: Callable[[str], bool]) -> None:
        self._new: deque[T] = deque()
        self._begun: dict[str, deque[T]] = {}
        self._is_here = is_here
        for task, device in tasks:
            (self._new if device is None else self._begun.setdefault(device, deque())).append(task)

    def next(self, device: str) -> T | None:
        """Next task of a device; None if there is none for it."""
        if own := self._begun.get(device):
            return own.popleft()
        if self._new:
            return self._new.popleft()
        left = (tasks for name, tasks in self._begun.items() if tasks and not self._is_here(name))
        return tasks.popleft() if (tasks := next(left, None)) is not None else None


class Serving(Generic[T]):
    """State shared by the devices of a cluster in a run: tasks of lost nodes, and failures."""

    def __init__(
        self, choose: Callable[[str], T | None], work: Callable[[JobRunner, T], None], should_stop: Callable[[], bool]
    ) -> None:
        self._choose = choose
        self._lost: deque[T] = deque()
        self._without: set[str] = set()  # idle devices
        self._here: set[str] = set()
        self._lock = threading.Lock()
        self._work = work
        self._should_stop = should_stop
        self.failures: list[CkhError] = []

    @property
    def is_over(self) -> bool:
        """True once the run is to end, complete or not."""
        return bool(self.failures) or self._should_stop()

    @property
    def is_open(self) -> bool:
        """True while there may be a task for a device."""
        return (bool(self._lost) or not self._without) and not self.is_over

    def is_wanted(self, name: str) -> bool:
        """True if there may be a task for this device."""
        return (bool(self._lost) or name not in self._without) and not self.is_over

    def see(self, names: set[str]) -> None:
        """Record the available devices: unfinished tasks of missing devices go to the others."""
        with self._lock:
            if not self._here <= names:
                self._without.clear()
            self._here = names

    def do_all(self, runner: JobRunner) -> None:
        """Execute tasks with a device until there are none for it; if its node is lost, others continue."""
        while not self.is_over and (task := self._next(runner.node)) is not None:
            with self._kept(task):
                self._work(runner, task)

    @contextmanager
    def _kept(self, task: T) -> Iterator[None]:
        """Keep a task for another device if this device's node is lost."""
        try:
            yield
        except NodeLostError:
            self._lost.append(task)
            raise

    def _next(self, node: str) -> T | None:
        with self._lock:
            if self._lost:
                return self._lost.popleft()
            task = self._choose(node)
            if task is None:
                self._without.add(node)
            return task
