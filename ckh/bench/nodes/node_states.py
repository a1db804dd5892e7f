"""The work of a cluster's nodes, printed from time to time: `ckh bench --cluster … --verbose`."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckh.errors import CkhError
from ckh.text.log import note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ckh.cluster.calls import Cluster

_FIRST_S, _EVERY_S = 5.0, 30.0


@dataclass(slots=True)
class _Device:
    """The work of a device: finished calls and pairs; and what it does, since when."""

    calls: int = 0
    pairs: int = 0
    problem: str = ""
    since_s: float = 0.0


class NodeStates:
    """Counts what devices do, and says it of each, with the calls that its node has, in a line.

    Args:
        cluster: the nodes.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._devices: dict[tuple[str, str], _Device] = {}
        self._lock = threading.Lock()

    @contextmanager
    def working(self, address: str, device: str, problem: str, pairs: int) -> Iterator[None]:
        """Count a call of a node's device; one that fails counts for nothing."""
        with self._lock:
            state = self._devices.setdefault((address, device), _Device())
            state.problem, state.since_s = problem, time.monotonic()
        try:
            yield
            state.calls, state.pairs = state.calls + 1, state.pairs + pairs
        finally:
            state.problem = ""

    def lines(self) -> list[str]:
        """A line for each node, and one for each device that was used.

        Raises:
            DeviceError: the scheduler is gone.
        """
        calls, here = self._cluster.open_calls(), self._cluster.nodes()
        lines = [f"{node.address}: {calls.get(node.address, 0)} calls, {node.slots} at a time" for node in here]
        with self._lock:
            for (address, device), state in sorted(self._devices.items()):
                is_here = any(node.address == address for node in here)
                seconds = time.monotonic() - state.since_s
                now = f"on {state.problem} for {seconds:.0f} s" if state.problem else "waits"
                doing = now if is_here else "its worker was lost"
                lines.append(f"{device}: {state.pairs} pairs in {state.calls} calls, {doing}")
        return lines

    @contextmanager
    def said(self) -> Iterator[None]:
        """Say it after some seconds, and then every thirty, as long as the context lasts."""
        ended = threading.Event()

        def speak() -> None:
            wait_s = _FIRST_S
            while not ended.wait(wait_s):
                try:
                    note("\n".join(self.lines()))
                except CkhError:
                    return  # whoever uses the cluster says that it is gone
                wait_s = _EVERY_S

        speaker = threading.Thread(target=speak, daemon=True)
        speaker.start()
        try:
            yield
        finally:
            ended.set()
            speaker.join()
