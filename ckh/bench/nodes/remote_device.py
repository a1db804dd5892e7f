"""Client side of a cluster node's device: runs jobs as a local `Supervisor` does.

Also prints the work of the nodes from time to time, for `ckh bench --cluster … --verbose`.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.compilation.kernel_cache import KernelCache
from ckh.bench.nodes.remote import Missing, run_jobs, store
from ckh.bench.supervision.protocol import device_name
from ckh.cluster.calls import Call
from ckh.errors import CkhError
from ckh.text.log import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ckh.bench.nodes.remote import DeviceRequest, NodeFacts
    from ckh.bench.supervision.protocol import Job, Reply
    from ckh.cluster.calls import Cluster, ClusterNode

SHIPPED = 32  # kernels per call; a CK Tile kernel has some megabytes


@dataclass(frozen=True, slots=True)
class RemoteDevice:
    """A device of a node."""

    node: ClusterNode
    facts: NodeFacts
    number: int

    @property
    def name(self) -> str:
        """Name of the machine and the device."""
        return device_name(self.facts.machine, self.facts.configs[self.number])


@dataclass(slots=True)
class RemoteRunner:
    """Runs jobs on a device of a node (`JobRunner`)."""

    cluster: Cluster
    request: DeviceRequest
    device: RemoteDevice
    states: NodeStates
    timeout_s: float
    should_stop: Callable[[], bool]
    node: str = field(init=False)
    phase_s: dict[str, float] = field(default_factory=dict)
    restarts: int = 0

    def __post_init__(self) -> None:
        """Set the name."""
        self.node = self.device.name

    def run(self, setup: Job | None, jobs: Sequence[Job]) -> Iterator[tuple[Job, Reply]]:
        """Run jobs on the problem of `setup`; all replies arrive together, or none if stopped."""
        keyed = [replace(job, library=Path(job.library).stem) if job.library else job for job in jobs]
        arguments = (self.request, self.device.number, self.timeout_s, setup, keyed)
        call = Call(run_jobs, arguments, on=self.device.node.address)
        problem = "" if setup is None else setup.problem
        while True:
            with self.states.working(self.device.node.address, self.node, problem, len(jobs)):
                result = self.cluster.result(call, self.should_stop)
            if result is None:
                return
            if not isinstance(result, Missing):
                break
            self._ship(result.keys)
        for phase, seconds in result.phase_s.items():
            self.phase_s[phase] = self.phase_s.get(phase, 0.0) + seconds
        self.restarts += result.restarts
        yield from zip(jobs, result.replies, strict=False)

    def _ship(self, keys: Sequence[str]) -> None:
        """Send kernels to the node's cache, in batches."""
        kernels = KernelCache()
        for start in range(0, len(keys), SHIPPED):
            files = kernels.files(keys[start : start + SHIPPED])
            self.cluster.result(Call(store, (files,), on=self.device.node.address), self.should_stop)


_FIRST_S, _EVERY_S = 5.0, 30.0


@dataclass(slots=True)
class _Device:
    """State of a device: finished calls and pairs, and the current work with its start."""

    calls: int = 0
    pairs: int = 0
    problem: str = ""
    since_s: float = 0.0


class NodeStates:
    """Tracks the work of devices, and prints one line for each, with the calls of its node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._devices: dict[tuple[str, str], _Device] = {}
        self._lock = threading.Lock()

    @contextmanager
    def working(self, address: str, device: str, problem: str, pairs: int) -> Iterator[None]:
        """Record a call on a node's device; failed calls are not counted."""
        with self._lock:
            state = self._devices.setdefault((address, device), _Device())
            state.problem, state.since_s = problem, time.monotonic()
        try:
            yield
            state.calls, state.pairs = state.calls + 1, state.pairs + pairs
        finally:
            state.problem = ""

    def lines(self) -> list[str]:
        """One line for each node, and one for each device that was used."""
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
        """Print the lines after some seconds, then every thirty, for the duration of the context."""
        ended = threading.Event()

        def speak() -> None:
            wait_s = _FIRST_S
            while not ended.wait(wait_s):
                try:
                    note("\n".join(self.lines()))
                except CkhError:
                    return  # reported by the user of the cluster
                wait_s = _EVERY_S

        speaker = threading.Thread(target=speak, daemon=True)
        speaker.start()
        try:
            yield
        finally:
            ended.set()
            speaker.join()
