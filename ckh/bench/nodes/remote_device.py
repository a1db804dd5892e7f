"""A device of a cluster's node, as the client sees it: it runs jobs as a `Supervisor` runs them here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.compilation.kernel_cache import KernelCache
from ckh.bench.nodes.remote import Missing, run_jobs, store
from ckh.bench.supervision.protocol import device_name
from ckh.cluster.calls import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ckh.bench.nodes.node_states import NodeStates
    from ckh.bench.nodes.remote import DeviceRequest, NodeFacts
    from ckh.bench.supervision.protocol import Job, Reply
    from ckh.cluster.calls import Cluster, ClusterNode

SHIPPED = 32  # kernels in one call; a CK Tile kernel has some megabytes


@dataclass(frozen=True, slots=True)
class RemoteDevice:
    """A device of a node."""

    node: ClusterNode
    facts: NodeFacts
    number: int

    @property
    def name(self) -> str:
        """Machine, and which of its devices."""
        return device_name(self.facts.machine, self.facts.configs[self.number])


@dataclass(slots=True)
class RemoteRunner:
    """Runs jobs on a device of a node (`JobRunner`).

    Attributes:
        cluster: the nodes.
        request: which device the node opens.
        device: of the node.
        states: where it is counted.
        timeout_s: longest time for one kernel on one problem, in seconds.
        should_stop: called all the time; once it is true, what runs is withdrawn.
        node: the device's name, for rows.
        phase_s: seconds by phase.
        restarts: of the device's process.
    """

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
        """Name it."""
        self.node = self.device.name

    def run(self, setup: Job | None, jobs: Sequence[Job]) -> Iterator[tuple[Job, Reply]]:
        """Do jobs on the problem of `setup`; all replies come together, or none if it was stopped.

        Raises:
            NodeLostError: the node is gone; nothing was done.
            DeviceError: the device cannot be used.
        """
        keyed = [replace(job, library=Path(job.library).stem) if job.library else job for job in jobs]
        arguments = (self.request, self.device.number, self.timeout_s, setup, keyed)
        call = Call(run_jobs, arguments, on=self.device.node.address)
        problem = "" if setup is None else setup.problem
        while True:
            with self.states.working(self.device.node.address, self.node, problem, len(jobs)):
                found = self.cluster.result(call, self.should_stop)
            if found is None:
                return
            if not isinstance(found, Missing):
                break
            self._ship(found.keys)
        for phase, seconds in found.phase_s.items():
            self.phase_s[phase] = self.phase_s.get(phase, 0.0) + seconds
        self.restarts += found.restarts
        yield from zip(jobs, found.replies, strict=False)

    def _ship(self, keys: Sequence[str]) -> None:
        """Send kernels to the node's cache, some at a time."""
        kernels = KernelCache()
        for start in range(0, len(keys), SHIPPED):
            files = kernels.files(keys[start : start + SHIPPED])
            self.cluster.result(Call(store, (files,), on=self.device.node.address), self.should_stop)
